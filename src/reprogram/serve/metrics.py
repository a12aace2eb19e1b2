"""What Prometheus reads at /metrics: counts and durations of this service, in a registry of its own."""

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

_SECONDS = (0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0)
_IMAGES = (1, 2, 4, 8, 16, 32, 64, 128)


class Metrics:
    """The numbers, and the text of all of them."""

    content_type = "text/plain; version=0.0.4; charset=utf-8"

    def __init__(self) -> None:
        own = self.registry = CollectorRegistry()
        self.requests = Counter("reprogram_requests", "Requests that were answered.", ("route", "status"), registry=own)
        self.seconds = Histogram(
            "reprogram_request_seconds",
            "From the head of a request to its answer.",
            ("route",),
            buckets=_SECONDS,
            registry=own,
        )
        self.images = Counter("reprogram_images", "Images that went through the model.", registry=own)
        self.batches = Histogram("reprogram_batch_images", "Images per step of the model.", buckets=_IMAGES, registry=own)
        self.model_seconds = Counter("reprogram_model_seconds", "Time in the frozen model.", registry=own)
        self.mapping_seconds = Counter("reprogram_mapping_seconds", "Time in the mappings of the tasks.", registry=own)
        self.waiting = Gauge("reprogram_waiting_images", "Images that wait for the model.", registry=own)
        self.tasks = Gauge("reprogram_tasks", "Tasks that are served.", registry=own)
        self.resident = Gauge("reprogram_tasks_in_memory", "Tasks that are in memory now.", registry=own)
        self.bytes = Gauge("reprogram_task_bytes", "Bytes of the tasks in memory.", registry=own)
        self.loads = Counter("reprogram_task_loads", "Times that a task was read from the disk.", registry=own)

    def text(self) -> bytes:
        """All of them, as Prometheus reads them."""
        return generate_latest(self.registry)
