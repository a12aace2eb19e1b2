"""What a recipe would cost: images that have to go through each model, times how long one takes on this machine.

Work is counted in images that are trained on and images that only pass: of each epoch the training images, a pass over
them for a mapping that is estimated anew, the validation and test images. How many there are is known without the data.
Seconds per image are measured with random weights on one thread, as `compare` runs by default.
"""

import functools
import platform
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from pydantic import BaseModel
from torch import Tensor
from torch.nn import functional as F

from reprogram.data.paper_sets import paper_set
from reprogram.errors import ReprogramError
from reprogram.experiments.grid import Cell
from reprogram.files import cache_folder, read_sealed, write_sealed
from reprogram.mappings.making import make_mapping
from reprogram.programs.base import make_program
from reprogram.progress import Progress
from reprogram.reprogrammed import Reprogrammed
from reprogram.run.defaults import with_mapping
from reprogram.sources.frozen import Frozen
from reprogram.sources.load import load_frozen
from reprogram.sources.registry import find_source

#: Minutes on an A100 that the paper's Table 8 prints for ILM on Flowers102 and the images behind them, as work.
ANCHORS = {"torchvision:resnet18.IMAGENET1K_V1": 12.04, "timm:resnext101_32x8d.fb_wsl_ig1b_ft_in1k": 24.81}
_ANCHOR_SET, _ANCHOR_EPOCHS = "flowers102", 200
_STEP = 3.0  # a training step of an image counts as so many passes of it
_CANVAS = 224
_PREFIX = "paper:"
_BUDGET = 50.0  # seconds, for all measurements together
_LEAST = 2.0  # seconds for each
_LARGE = 50_000_000  # parameters
_BATCHES = (16, 8, 4)
_CLASSES = tuple(f"class {number}" for number in range(10))


@dataclass(frozen=True)
class Work:
    """Images of a run.

    Attributes:
        trained: images that are trained on, each once for each epoch.
        passed: images that only go through the model.
    """

    trained: float
    passed: float


@dataclass(frozen=True)
class Kind:
    """What the seconds per image depend on.

    Attributes:
        model: of the run.
        program: of the run; a reference method has the images unchanged, and is measured like a watermark.
        image_size: of the image on the canvas.
    """

    model: str
    program: str
    image_size: int

    def __str__(self) -> str:
        inside = f" around {self.image_size} px" if self.program == "padding" else ""
        return f"{self.model}, {self.program}{inside}"


@dataclass(frozen=True)
class Timing:
    """Seconds of a batch: what all its images share, such as the frame around them, and each image.

    Attributes:
        base: of a batch.
        image: of an image.
    """

    base: float
    image: float

    def per_image(self, batch: int) -> float:
        """Seconds per image in batches of this size."""
        return self.base / batch + self.image


@dataclass(frozen=True)
class Speed:
    """How long batches take on one thread.

    Attributes:
        step: a training step.
        forward: a pass.
        parameters: of the model, whose weights would be downloaded.
    """

    step: Timing
    forward: Timing
    parameters: int


@dataclass(frozen=True)
class Estimate:
    """What runs cost.

    Attributes:
        runs: how many.
        core_hours: on one core of this machine.
        gpu_hours: on an A100 as fast as the paper's.
        speeds: what was measured, by kind.
    """

    runs: int
    core_hours: float
    gpu_hours: float
    speeds: dict[Kind, Speed]


def work_of(cell: Cell) -> Work:
    """The images of a run on one of the paper's data sets; its recipe names its epochs."""
    config, entry = cell.config, paper_set(cell.data.removeprefix(_PREFIX))
    train = entry.train * (config.fraction or 1.0)
    passed = float(config.epochs * (entry.test + (entry.val or 0)))
    if cell.reference == "finetune-linear":  # the model itself is only passed
        return Work(0.0, passed + config.epochs * train)
    if cell.reference is not None:
        return Work(config.epochs * train, passed)
    resolved = with_mapping(config, config.named_mapping, config.options("mapping"))
    refresh = resolved.extras.get("refresh")
    estimated = 0 if refresh is None else config.epochs if refresh == "fresh" else 1
    return Work(config.epochs * train, passed + estimated * train)


def kind_of(cell: Cell) -> Kind:
    """What measurement tells about a run."""
    config, entry = cell.config, paper_set(cell.data.removeprefix(_PREFIX))
    padded = cell.reference is None and config.named_program == "padding"
    return Kind(config.model, "padding" if padded else "watermark", entry.image_size if padded else _CANVAS)


def gpu_hours(cell: Cell) -> float:
    """By the paper's own times: the work of this run over that of its anchor; other models count as ResNeXt-101."""
    minutes = ANCHORS.get(cell.config.model, max(ANCHORS.values()))
    entry, work = paper_set(_ANCHOR_SET), work_of(cell)
    anchor = _ANCHOR_EPOCHS * (_STEP * entry.train + entry.test)
    return minutes / 60 * (_STEP * work.trained + work.passed) / anchor


def estimate(cells: Sequence[Cell], progress: Progress | None = None, *, budget: float = _BUDGET) -> Estimate:
    """What these runs would cost on this machine and on the paper's.

    Args:
        cells: the runs.
        progress: where to say what is measured.
        budget: seconds for what is not known yet; each kind takes at least one step.
    """
    kinds = list(dict.fromkeys(kind_of(cell) for cell in cells))
    speeds = measured(kinds, progress or Progress(), budget)
    seconds = 0.0
    for cell in cells:
        speed, work = speeds[kind_of(cell)], work_of(cell)
        batch = cell.config.given.get("batch_size", paper_set(cell.data.removeprefix(_PREFIX)).batch_size)
        seconds += work.trained * speed.step.per_image(batch) + work.passed * speed.forward.per_image(batch)
    return Estimate(len(cells), seconds / 3600, sum(map(gpu_hours, cells)), speeds)


# ---- measuring


class _Stored(BaseModel):
    """Speeds that were measured before, in the user's cache folder."""

    machine: str
    speeds: dict[str, tuple[float, float, float, float, int]]


def measured(kinds: Iterable[Kind], progress: Progress, budget: float = _BUDGET) -> dict[Kind, Speed]:
    """The speed of each kind: as it was measured on this machine before, or now."""
    path, machine = cache_folder() / "speeds.json", _machine()
    known: dict[str, Any] = {}
    if path.is_file():
        try:
            stored = _Stored.model_validate(read_sealed(path, "measured speeds", _Stored, remedy="remove it"))
            known = dict(stored.speeds) if stored.machine == machine else {}
        except ReprogramError:  # it can be measured again
            known = {}
    missing = [kind for kind in dict.fromkeys(kinds) if str(kind) not in known]
    for kind in missing:
        progress.say(f"measuring {kind}")
        speed = measure(kind, max(_LEAST, budget / len(missing)))
        known[str(kind)] = (speed.step.base, speed.step.image, speed.forward.base, speed.forward.image, speed.parameters)
    if missing:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_sealed(path, {"machine": machine, "speeds": known})
    found = {kind: known[str(kind)] for kind in kinds}
    return {kind: Speed(Timing(*v[:2]), Timing(*v[2:4]), int(v[4])) for kind, v in found.items()}


def _machine() -> str:
    return f"{platform.processor() or platform.machine()}, torch {torch.__version__}"


def measure(kind: Kind, seconds: float) -> Speed:
    """Time a model with random weights under a program on one thread, for about so many seconds.

    A large network is timed on a canvas of half the side, and its times are taken four times: all that grows with the
    canvas is convolutions.
    """
    ends = time.perf_counter() + seconds
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        frozen = _frozen(kind.model)
        half = frozen.parameter_count > _LARGE and not find_source(kind.model)[0].kind.needs_classes
        scale = 2 if half else 1
        model = _model(kind, frozen, scale)
        model.accelerate()

        def step(images: Tensor) -> None:
            model.zero_grad(set_to_none=True)
            F.cross_entropy(model(images), torch.arange(len(images)) % len(_CLASSES)).backward()

        def forward(images: Tensor) -> None:
            with torch.inference_mode():
                model.source_logits(images)

        halfway = (time.perf_counter() + max(ends, time.perf_counter())) / 2
        times = [_timing(act, kind.image_size // scale, until) for act, until in ((step, halfway), (forward, ends))]
        step_time, forward_time = (Timing(scale**2 * found.base, scale**2 * found.image) for found in times)
        return Speed(step_time, forward_time, frozen.parameter_count)
    finally:
        torch.set_num_threads(threads)


def _timing(act: Callable[[Tensor], None], size: int, ends: float) -> Timing:
    """The line through the times of one image and of a few, as many as there is time for."""

    def seconds(count: int) -> float:
        images = torch.rand(count, 3, size, size)
        start = time.thread_time()  # what this thread computes: other work on the machine does not count
        act(images)
        return time.thread_time() - start

    seconds(1)  # what is only done once
    one = seconds(1)
    left = max(0.0, ends - time.perf_counter())
    several = next((count for count in _BATCHES if 2 * count * one < left), _BATCHES[-1])
    more = seconds(several)
    while time.perf_counter() + one + more < ends:
        before = one + more
        one, more = min(one, seconds(1)), min(more, seconds(several))
        if one + more > 0.98 * before:  # the least of several has settled
            break
    each = max(0.0, (more - one) / (several - 1))
    return Timing(max(0.0, one - each), each or more / several)


@functools.lru_cache(maxsize=1)
def _frozen(name: str) -> Frozen:
    """A model with random weights; kept until another one is asked for."""
    texts: dict[str, Any] = {"classes": _CLASSES, "templates": "default"}
    return load_frozen(name, pretrained=False, **(texts if find_source(name)[0].kind.needs_classes else {}))


def _model(kind: Kind, frozen: Frozen, scale: int) -> Reprogrammed:
    frame = find_source(kind.model)[0].kind.default_frame
    own: dict[str, Any] = {"image_size": kind.image_size // scale} if kind.program == "padding" else {"frame": frame}
    program = make_program(kind.program, _CANVAS // scale, interpolation=frozen.program_interpolation, **own)
    return Reprogrammed(program, frozen, make_mapping("rlm", frozen.labels, _CLASSES))
