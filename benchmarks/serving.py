"""A thousand tasks on one frozen model: memory, throughput and latency of `reprogram serve`, against offline and plain.

    python benchmarks/serving.py [--seconds 10] [--rounds 3] [--tasks 1000] [--out docs/results/serving.md]

Each round has one stretch of `--seconds` of each: offline `predict`, the service asked for one task, for all of them, for
three with programs, and a plain FastAPI application around the same model. Server, clients and offline work are processes
of their own on this machine (loopback only), which share its processors; stretches alternate, so that what else the
machine does meets them alike.
"""

import argparse
import asyncio
import itertools
import multiprocessing
import os
import platform
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median

from serving_tasks import (
    CLASSES,
    GARBAGE_HEADING,
    MODEL,
    PROGRAMS,
    ask,
    make_pictures,
    make_tasks,
    packed,
    private_bytes,
)

CLIENTS = 32


def offline(connection, folder, pictures):
    """A process that classifies files for some seconds whenever it is asked to, as `reprogram predict` does.

    Other processes decode, and are there before the clock starts.
    """
    from reprogram.memory import keep_freed_memory
    from reprogram.predict import predict_paths
    from reprogram.reprogrammed import Reprogrammed

    keep_freed_memory()  # as the command does
    model = Reprogrammed.load(folder)
    model.accelerate()
    files = sorted(Path(pictures).glob("*.jpg"))
    connection.send("ready")
    while (seconds := connection.recv()) is not None:
        rows = predict_paths(model, itertools.cycle(files), batch_size=32)
        for _ in range(64):
            next(rows)
        began, done = time.perf_counter(), 0
        while time.perf_counter() - began < seconds:
            next(rows)
            done += 1
        connection.send(done / (time.perf_counter() - began))
        rows.close()


def plain(folder, port):
    """What one writes by hand: FastAPI, the same model, one image per request, no batches."""
    import io as streams

    import uvicorn
    from fastapi import FastAPI, File, UploadFile

    from reprogram.reprogrammed import Reprogrammed

    model = Reprogrammed.load(folder)
    model.accelerate()
    app = FastAPI()

    @app.post("/predict")
    def predict(image: UploadFile = File()):  # noqa: B008
        said = model.predict(streams.BytesIO(image.file.read()))
        return {"label": said.labels[0], "probability": float(said.confidence[0])}

    uvicorn.run(app, host="127.0.0.1", port=port, log_level="error")


async def one_client(port, paths, bodies, until, latencies, failures, seed):
    """Asks, waits for the answer and asks again, on one connection."""
    choose = random.Random(seed)
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        while time.perf_counter() < until:
            body = choose.choice(bodies)
            head = (
                f"POST {choose.choice(paths)} HTTP/1.1\r\nHost: localhost\r\n"
                f"Content-Type: multipart/form-data; boundary=edge\r\nContent-Length: {len(body)}\r\n\r\n"
            )
            began = time.perf_counter()
            writer.write(head.encode() + body)
            answer = await reader.readuntil(b"\r\n\r\n")
            lines = answer.lower().split(b"\r\n")
            length = next(int(line.split(b":")[1]) for line in lines if line.startswith(b"content-length"))
            await reader.readexactly(length)
            latencies.append(time.perf_counter() - began)
            if b" 200 " not in answer[:20]:
                failures.append(answer[:40])
    finally:
        writer.close()


def load(connection, pictures):
    """A process of clients: told port, paths, clients and seconds, it answers with rate and latencies."""
    head = b'--edge\r\nContent-Disposition: form-data; name="image"; filename="a.jpg"\r\n\r\n'
    bodies = [head + path.read_bytes() + b"\r\n--edge--\r\n" for path in sorted(Path(pictures).glob("*.jpg"))]
    connection.send("ready")
    while (asked := connection.recv()) is not None:
        port, paths, clients, seconds = asked
        latencies, failures = [], []

        async def all_of_them(port=port, paths=paths, clients=clients, seconds=seconds, latencies=latencies, bad=failures):
            until = time.perf_counter() + seconds
            await asyncio.gather(
                *(one_client(port, paths, bodies, until, latencies, bad, number) for number in range(clients))
            )

        began = time.perf_counter()
        asyncio.run(all_of_them())
        rate = len(latencies) / (time.perf_counter() - began)
        connection.send((rate, sorted(latencies), len(failures)))


class Worker:
    """A process that does something whenever it is asked to."""

    def __init__(self, target, *arguments):
        self.ours, theirs = multiprocessing.Pipe()
        # no daemon, which may start no processes, as decoding does; without our copy of its end, its death is noticed
        self.process = multiprocessing.get_context("spawn").Process(target=target, args=(theirs, *arguments))
        self.process.start()
        theirs.close()
        assert self.ours.recv() == "ready"

    def __call__(self, asked):
        """Its answer."""
        self.ours.send(asked)
        return self.ours.recv()

    def end(self):
        """Ask no more."""
        self.ours.send(None)
        self.process.join(30)
        self.process.kill()


def free_port():
    import socket

    with socket.create_server(("127.0.0.1", 0)) as taken:
        return taken.getsockname()[1]


def measure(options, work):
    """All numbers, as one dictionary."""
    pictures, made, served = work / "pictures", work / "made", work / "served"
    for folder in (pictures, made, served):
        folder.mkdir()
    make_pictures(pictures)
    multiprocessing.get_context("spawn").Pool(1).apply(make_tasks, (made,))
    shutil.copytree(made / "first", served / "first")
    log = (work / "log").open("wb")
    server = subprocess.Popen(
        [sys.executable, "-m", "reprogram", "serve", str(served), "--allow-upload", "--port", "0"],
        stdout=subprocess.PIPE,
        stderr=log,
        text=True,
    )
    port = int(server.stdout.readline().rpartition(":")[2])
    other_port = free_port()
    other = subprocess.Popen([sys.executable, __file__, "--plain", str(made / "first"), "--port", str(other_port)])
    found = {"rates": {}, "latencies": {}, "failures": 0}
    try:
        clients, alone = Worker(load, str(pictures)), Worker(offline, str(made / "first"), str(pictures))
        first = ["/v1/tasks/first/predict"]
        clients((port, first, CLIENTS, 3.0))
        found["memory of one task"] = private_bytes(server.pid)

        content = packed(made / "first")
        live = []
        for number in range(12):
            began = time.perf_counter()
            ask(port, "PUT", f"/v1/tasks/new-{number}", content, "application/zip")
            live.append(time.perf_counter() - began)
        found["live"] = live
        for number in range(12):
            ask(port, "DELETE", f"/v1/tasks/new-{number}")

        for number in range(1, options.tasks):  # the folder is watched
            shutil.copytree(made / "first", work / "copy")
            (work / "copy").rename(served / f"task-{number}")
        began = time.perf_counter()
        while len(ask(port, "GET", "/v1/tasks")["tasks"]) < options.tasks:
            time.sleep(0.5)
            assert time.perf_counter() - began < 600
        every = [f"/v1/tasks/{one['name']}/predict" for one in ask(port, "GET", "/v1/tasks")["tasks"]]
        clients((port, every, CLIENTS, 3.0))
        found["memory of all tasks"] = private_bytes(server.pid)

        for name in PROGRAMS:
            shutil.copytree(made / name, work / "copy")
            (work / "copy").rename(served / name)
        while len(ask(port, "GET", "/v1/tasks")["tasks"]) < options.tasks + len(PROGRAMS):
            time.sleep(0.5)
        programs = [f"/v1/tasks/{name}/predict" for name in PROGRAMS]
        for path in programs:  # those that came later are prepared when they have been used and nothing waits
            clients((port, [path], 8, 6.0))
            time.sleep(5)
        stretches = {
            "offline predict": lambda: (alone(options.seconds), [], 0),
            "one task": lambda: clients((port, first, CLIENTS, options.seconds)),
            "all tasks": lambda: clients((port, every, CLIENTS, options.seconds)),
            "three programs": lambda: clients((port, programs, CLIENTS, options.seconds)),
            "plain FastAPI": lambda: clients((other_port, ["/predict"], CLIENTS, options.seconds)),
            "one client": lambda: clients((port, first, 1, options.seconds)),
        }
        while True:  # until the plain one answers
            try:
                clients((other_port, ["/predict"], 1, 0.5))
                break
            except OSError:
                time.sleep(0.5)
        for _ in range(options.rounds):
            for name, stretch in stretches.items():
                rate, latencies, failures = stretch()
                found["rates"].setdefault(name, []).append(rate)
                found["latencies"].setdefault(name, []).extend(latencies)
                found["failures"] += failures
                print(f"{name}: {rate:.1f} images/s", file=sys.stderr, flush=True)
        clients.end()
        alone.end()
    finally:
        other.kill()
        server.send_signal(signal.SIGTERM)
        found["exit code"] = server.wait(60)
        log.close()
    return found


def percentile(values, share):
    return 1000 * values[min(len(values) - 1, int(share * len(values)))] if values else 0.0


def page(found, options):
    import torch

    rates = {name: median(values) for name, values in found["rates"].items()}
    grown = (found["memory of all tasks"] - found["memory of one task"]) / 1e6
    live = sorted(1000 * value for value in found["live"])
    pairs = zip(found["rates"]["all tasks"], found["rates"]["one task"], strict=True)
    shared = median(one / other for one, other in pairs)
    against = median(
        one / other for one, other in zip(found["rates"]["one task"], found["rates"]["offline predict"], strict=True)
    )
    plainly = median(
        one / other for one, other in zip(found["rates"]["one task"], found["rates"]["plain FastAPI"], strict=True)
    )
    command = f"python benchmarks/serving.py --seconds {options.seconds:g} --rounds {options.rounds} --tasks {options.tasks}"
    threads = os.environ.get("OMP_NUM_THREADS", "as torch likes")
    quickly = f"{median(live):.0f} ms; {live[-1]:.0f} ms"
    lines = [
        "# Serving a thousand tasks",
        "",
        f"`{command}` on {platform.machine()}, {os.cpu_count()} processors, torch {torch.__version__},",
        f"OMP_NUM_THREADS {threads},",
        f"load average {os.getloadavg()[0]:.1f} at the end. {MODEL} at 224 px, tasks of",
        f"{len(CLASSES)} classes by blm+, {CLIENTS} clients that each wait for their answer, JPEG files",
        "of 320 x 240. Clients, servers and",
        f"offline work share the processors. Stretches alternate, {options.rounds} of {options.seconds:g} s each; rates are",
        "medians, ratios the median of those within a round.",
        "",
        "| what | wanted | found |",
        "|---|---|---|",
        f"| memory of {options.tasks:,} tasks over that of one (PSS, all asked) | < 100 MB | {grown:.0f} MB |",
        f"| throughput, all tasks / one task | ≥ 0.9 | {shared:.2f} |",
        f"| a new task is live (PUT until its answer, median of {len(live)}; the slowest) | < 50 ms | {quickly} |",
        f"| throughput, {CLIENTS} clients / offline `predict` | ≥ 0.8 | {against:.2f} |",
        f"| throughput, {CLIENTS} clients / plain FastAPI | | {plainly:.2f} |",
        f"| answers other than 200 | 0 | {found['failures']} |",
        "",
        "| stretch | images/s | of each round | p50 ms | p90 ms | p99 ms |",
        "|---|---|---|---|---|---|",
    ]
    for name, rate in rates.items():
        values = sorted(found["latencies"][name])
        each = ", ".join(f"{value:.1f}" for value in found["rates"][name])
        slow = " | ".join(f"{percentile(values, share):.0f}" for share in (0.5, 0.9, 0.99)) if values else "| | "
        lines.append(f"| {name} | {rate:.1f} | {each} | {slow} |")
    return "\n".join(lines) + "\n"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=10.0, help="of each stretch")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--tasks", type=int, default=1000)
    parser.add_argument("--out", help="Markdown file; by default standard output")
    parser.add_argument("--plain", help=argparse.SUPPRESS)
    parser.add_argument("--port", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.plain:
        plain(options.plain, options.port)
        return
    with tempfile.TemporaryDirectory(prefix="serving-") as work:
        found = measure(options, Path(work))
    text = page(found, options)
    if options.out:
        page_file = Path(options.out)
        _, heading, rest = page_file.read_text().partition(GARBAGE_HEADING) if page_file.exists() else ("", "", "")
        page_file.write_text(f"{text}\n{heading}{rest}" if heading else text)
    print(text)


if __name__ == "__main__":
    main()
