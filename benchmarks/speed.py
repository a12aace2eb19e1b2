"""Training steps of the library against `plain.py`, alternately in one process, best of N; statistics and memory.

    python benchmarks/speed.py [--rounds 3] [--cases padding-32 ...]

Writes benchmarks/results.json and docs/results/speed.md. Ratios are plain time over ours. What an epoch costs by canvas and
image, `scaling.py` measures.
"""

import argparse
import contextlib
import copy
import ctypes
import gc
import json
import platform
import statistics
import threading
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch.nn import functional as F

from kept_memory import give_back
from plain import Plain, plain_blm, plain_blm_plus
from reprogram import Frozen, Reprogrammed, load_frozen, make_mapping
from reprogram.acceleration.costs import operations
from reprogram.acceleration.network import export_network
from reprogram.devices import autocast, in_hardware
from reprogram.errors import EvidenceWarning
from reprogram.mappings import bayes
from reprogram.memory import keep_freed_memory
from reprogram.programs import Padding, Watermark
from reprogram.statistics import JointStatistics

HERE = Path(__file__).parent
PAGE = HERE.parent / "docs" / "results" / "speed.md"
CLASSES = 10


@dataclass(frozen=True)
class Case:
    """What is timed: a model, the side of its images on a canvas (the same: a watermark), a batch, and what is asked.

    Wanted are the ratios of fp32 and bf16 against the plain version, and that of bf16 against our own fp32.
    """

    name: str
    model: str
    image: int
    batch: int
    wanted: tuple[float | None, float | None]
    canvas: int = 224
    over_fp32: float | None = None


CASES = (
    Case("padding-32", "torchvision:resnet18", 32, 64, (5.0, 9.0)),
    Case("padding-128", "torchvision:resnet18", 128, 32, (2.0, 4.0)),
    Case("watermark", "torchvision:resnet18", 224, 32, (1.25, 2.5)),
    Case("lite0-padding-32", "bundled:efficientnet_lite0", 32, 64, (5.0, None), over_fp32=1.3),
    Case("lite0-padding-128", "bundled:efficientnet_lite0", 128, 32, (2.2, None), over_fp32=1.3),
    Case("lite0-watermark", "bundled:efficientnet_lite0", 224, 32, (None, None), over_fp32=1.3),
    Case("lite0-watermark, canvas 64", "bundled:efficientnet_lite0", 64, 64, (None, None), canvas=64, over_fp32=1.3),
    Case("resnext101-padding-32", "torchvision:resnext101_32x8d", 32, 16, (2.0, None)),
    Case("demo, padding 32 in 48", "bundled:efficientnet_lite0", 32, 64, (None, None), canvas=48, over_fp32=1.3),
)


class Ours:
    """The library's training step on the same images."""

    def __init__(self, frozen: Frozen, canvas: int, image: int, precision: str = "fp32") -> None:
        program = Padding(canvas, image) if image < canvas else Watermark(canvas)
        classes = [f"class {index}" for index in range(CLASSES)]
        self.model = Reprogrammed(program, frozen, make_mapping("blm", frozen.labels, classes))
        self.described = self.model.accelerate()
        self.optimizer = torch.optim.Adam(self.model.program.parameters(), lr=0.01)
        self.statistics = JointStatistics.counts(frozen.k_source, CLASSES)
        self.precision: Any = precision

    def step(self, images: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        """One step of training, as `fit` takes it."""
        with autocast(torch.device("cpu"), self.precision):
            logits = self.model.source_logits(images)
        loss = F.cross_entropy(self.model.mapping(logits.float()), labels)
        self.optimizer.zero_grad(set_to_none=True)
        loss.backward()
        self.optimizer.step()
        self.statistics.update(logits.detach(), labels)
        return logits.detach()


def alternately(acts: dict[str, Callable[[], object]], rounds: int, *, settled: bool = False) -> dict[str, float]:
    """The best time of each act, in seconds, over rounds of A, B, A, B ..., after one round that is not counted.

    With `settled` each goes twice and the second time counts, so that none starts with the caches that another one left.
    """
    best = dict.fromkeys(acts, float("inf"))
    for turn in range(rounds + 1):
        for name, act in acts.items():
            (give_back if name.startswith("plain") else keep_freed_memory)()  # as each has it in practice
            if settled:
                act()
            start = time.perf_counter()
            act()
            if turn:
                best[name] = min(best[name], time.perf_counter() - start)
    return best


def peak_memory(act: Callable[[], object]) -> float:
    """How many MB the process grows at most while the act runs, seen every millisecond."""
    page, done, seen = 4096, threading.Event(), [0]

    def resident() -> int:
        return int(Path("/proc/self/statm").read_text().split()[1]) * page

    def watch() -> None:
        while not done.is_set():
            seen[0] = max(seen[0], resident())
            time.sleep(0.001)

    gc.collect()
    with contextlib.suppress(OSError, AttributeError):  # what the allocator keeps of earlier acts would hide this one's
        ctypes.CDLL("libc.so.6").malloc_trim(0)
    start = resident()
    watcher = threading.Thread(target=watch)
    watcher.start()
    act()
    done.set()
    watcher.join()
    return (max(seen[0], resident()) - start) / 1e6


def matmul_peak(dtype: torch.dtype = torch.float32, side: int = 2048) -> float:
    """GFLOP/s of a large matrix product."""
    left, right = torch.randn(side, side).to(dtype), torch.randn(side, side).to(dtype)
    return 2 * side**3 / alternately({"product": lambda: left @ right}, 5)["product"] / 1e9


def errors(plain: Plain, ours: Ours, image: int) -> dict[str, float]:
    """How far logits and the gradient of θ are from float64, of both: median and largest of nine draws of two images."""
    program, module = ours.model.program, copy.deepcopy(plain.module).double()
    exact_program = copy.deepcopy(program).double()
    found: dict[str, list[float]] = {}
    for seed in range(9):
        draw = torch.Generator().manual_seed(seed)
        images = torch.rand(2, 3, image, image, generator=draw)
        with torch.no_grad():
            program.theta.normal_(generator=draw)
            exact_program.theta.copy_(program.theta)

        def outcome(call: Any, part: Any, pixels: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            part.zero_grad()
            logits = call(pixels)
            logits.logsumexp(1).sum().backward()
            return logits.detach().double(), part.theta.grad.double()

        exact = outcome(lambda x: module(exact_program(x)), exact_program, images.double())
        for who, call in (("plain", lambda x: plain.module(program(x))), ("ours", ours.model.source_logits)):
            for what, value, truth in zip(("logits", "gradient"), outcome(call, program, images), exact, strict=True):
                found.setdefault(f"{who} {what}", []).append(float((value - truth).norm() / truth.norm()))
    with torch.no_grad():
        program.theta.zero_()
    medians = {key: statistics.median(values) for key, values in found.items()}
    return medians | {f"{key}, largest": max(values) for key, values in found.items()}


def gigaflop(frozen: Frozen, canvas: int) -> float:
    """Forward and backward of one whole canvas, 10⁹ multiplications and additions of convolutions and linear layers."""
    network = export_network(frozen.module, canvas)
    return 2 * sum(operations(node, network.weights) for node in network.operators) / 1e9


def measure_case(case: Case, rounds: int, peak: float) -> dict[str, Any]:
    frozen = load_frozen(case.model, pretrained=case.model.startswith("bundled:"))
    plain = Plain(frozen.module, frozen.mean, frozen.std, case.canvas, case.image, CLASSES)
    images, labels = torch.rand(case.batch, 3, case.image, case.image), torch.arange(case.batch) % CLASSES
    runs: dict[str, Any] = {"plain": plain, "fp32": Ours(frozen, case.canvas, case.image)}
    if in_hardware(torch.device("cpu"), "bf16"):
        runs["bf16"] = Ours(frozen, case.canvas, case.image, "bf16")
    best = alternately({name: (lambda run=run: run.step(images, labels)) for name, run in runs.items()}, rounds)
    work = gigaflop(frozen, case.canvas) * case.batch
    ours, logits = runs["fp32"], torch.randn(case.batch, frozen.k_source, requires_grad=True)

    def map_and_count() -> None:
        F.cross_entropy(ours.model.mapping(logits), labels).backward()
        ours.statistics.update(logits.detach(), labels)

    mapping = alternately({"mapping": map_and_count}, 5)["mapping"]
    row: dict[str, Any] = {
        "case": case.name,
        "model": case.model,
        "batch": case.batch,
        "chosen": runs["fp32"].described,
        "images_per_second": {name: case.batch / seconds for name, seconds in best.items()},
        "ratio": {name: best["plain"] / seconds for name, seconds in best.items() if name != "plain"},
        "wanted": {**dict(zip(("fp32", "bf16"), case.wanted, strict=True)), "bf16_over_fp32": case.over_fp32},
        "error": errors(plain, runs["fp32"], case.image),
        "peak_mb": {name: peak_memory(lambda run=run: run.step(images, labels)) for name, run in runs.items()},
        "mapping_share": mapping / best["fp32"],
        "of_matmul_peak": {name: work / seconds / peak for name, seconds in best.items()},
    }
    print(json.dumps(row["ratio"]), case.name, row["chosen"], flush=True)
    return row


def measure_statistics(rounds: int) -> list[dict[str, Any]]:
    """An epoch's update of the mapping from logits, and what it holds in memory, against n, k_S and k_T."""
    rows = []
    sizes = [(5000, 1000, 100), (5000, 1000, 10), (5000, 1000, 397), (20000, 1000, 100), (5000, 8000, 100)]
    sizes += [(5000, 1000, 37), (5000, 1000, 200), (2000, 365, 47), (5000, 21843, 50)]
    for n, k_source, k_target in sizes:
        logits, labels = torch.randn(n, k_source), torch.arange(n) % k_target
        top_k = max(1, 15 * k_target // 100)

        def stream(make: Callable[[], JointStatistics], logits: Any = logits, labels: Any = labels) -> torch.Tensor:
            statistics = make()
            for part, targets in zip(logits.split(256), labels.split(256), strict=True):
                statistics.update(part, targets)
            return bayes(statistics)

        def counts(k_source: int = k_source, k_target: int = k_target) -> JointStatistics:
            return JointStatistics.counts(k_source, k_target)

        def sums(k_source: int = k_source, k_target: int = k_target, top_k: int = top_k) -> JointStatistics:
            return JointStatistics.probabilities(k_source, k_target, top_k)

        best = alternately(
            {
                "plain blm": lambda a=logits, b=labels, k=k_target: plain_blm(a, b, k),
                "blm": lambda stream=stream, counts=counts: stream(counts),
                "plain blm+": lambda a=logits, b=labels, k=k_target, top=top_k: plain_blm_plus(a, b, k, top),
                "blm+": lambda stream=stream, sums=sums: stream(sums),
                "plain blm+, float64": lambda a=logits, b=labels, k=k_target, top=top_k: plain_blm_plus(
                    a.double(), b, k, top
                ),
            },
            rounds,
            settled=True,
        )
        rows.append({"n": n, "k_source": k_source, "k_target": k_target, "seconds": best})
    return rows


def measure_statistics_memory() -> dict[str, float]:
    """MB that an epoch of n = 50,000 and k_S = 1000 holds beyond one batch."""
    batch, labels = torch.randn(250, 1000), torch.arange(250) % 100
    kept: list[torch.Tensor] = []

    def streamed() -> None:
        statistics = JointStatistics.counts(1000, 100)
        for _ in range(200):
            statistics.update(batch, labels)

    def all_kept() -> None:
        kept.extend(batch.clone() for _ in range(200))

    streamed()
    return {"ours": peak_memory(streamed), "plain": peak_memory(all_kept)}


def table(content: dict[str, Any]) -> str:
    machine = content["machine"]
    lines = [
        "# Speed against the plain version",
        "",
        f"`{content['command']}` on {machine['processor']}, {machine['threads']} threads, torch {machine['torch']}, "
        f"matrix product {machine['matmul_gflops']:.0f} GFLOP/s. "
        f"Best of {content['rounds']}, run alternately in one process, each with memory as it has it (glibc's way; kept, as "
        f"by the command line); canvas 224 unless said. `mapping` is what "
        "mapping, loss and statistics take of our step. Errors are relative to float64: median of nine draws, for the "
        "gradient also the largest. A gradient in float32 is off by 1e-3 or more where one activation lands on the other "
        "side of a kink; which draws meet one is chance, in the plain version as in ours.",
        "",
        "| case | model | plain images/s | ours | ratio | wanted | ours in bf16 | ratio | wanted | to our fp32 | wanted "
        "| of matmul peak, plain / ours | step memory MB, plain / ours | logits off float64, plain / ours "
        "| gradient, plain / ours | mapping | chosen |",
        "|---|---|---|---|---|---|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    for row in content["cases"]:
        speed, error, peak, share = (row[key] for key in ("images_per_second", "error", "peak_mb", "of_matmul_peak"))
        ratio, wanted = row["ratio"], row["wanted"]
        low = [f"{speed['bf16']:.1f}", f"{ratio['bf16']:.2f}"] if "bf16" in ratio else ["–", "–"]
        over = f"{ratio['bf16'] / ratio['fp32']:.2f}" if "bf16" in ratio else "–"
        lines.append(
            f"| {row['case']} | {row['model']} | {speed['plain']:.1f} | {speed['fp32']:.1f} | {ratio['fp32']:.2f} "
            f"| {wanted['fp32'] or ''} | {low[0]} | {low[1]} | {wanted['bf16'] or ''} | {over} "
            f"| {wanted.get('bf16_over_fp32') or ''} | {share['plain']:.2f} / {share['fp32']:.2f} "
            f"| {peak['plain']:.0f} / {peak['fp32']:.0f} | {error['plain logits']:.1e} / {error['ours logits']:.1e} "
            f"| {error['plain gradient']:.1e} ({error['plain gradient, largest']:.1e}) / {error['ours gradient']:.1e} "
            f"({error['ours gradient, largest']:.1e}) | {100 * row['mapping_share']:.2f} % "
            f"| {row['chosen']} |"
        )
    if not any("bf16" in row["ratio"] for row in content["cases"]):
        lines += ["", "bf16 was not measured, as this processor does not have it in hardware."]
    lines += [
        "",
        "What an epoch's statistics take, and the mapping from them. Plain BLM+ adds up in fp32, all images at once; "
        "ours in float64, in batches of 256. The last ratio is against the plain version in float64, which is as exact. "
        "Each is timed after a call of its own.",
        "",
        "| n | k_S | k_T | plain BLM ms | ours | ratio | plain BLM+ ms | ours | ratio | plain in float64 | ratio |",
        "|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    for row in content["statistics"]:
        ms = {name: 1000 * value for name, value in row["seconds"].items()}
        lines.append(
            f"| {row['n']} | {row['k_source']} | {row['k_target']} | {ms['plain blm']:.1f} | {ms['blm']:.1f} "
            f"| {ms['plain blm'] / ms['blm']:.2f} | {ms['plain blm+']:.1f} | {ms['blm+']:.1f} "
            f"| {ms['plain blm+'] / ms['blm+']:.2f} | {ms['plain blm+, float64']:.1f} "
            f"| {ms['plain blm+, float64'] / ms['blm+']:.2f} |"
        )
    memory = content["statistics_memory_mb"]
    if "statistics_by" in content:
        lines += ["", f"These were measured again, after the others, by `{content['statistics_by']}`."]
    lines += [
        "",
        f"Statistics of n = 50,000, k_S = 1000: {memory['ours']:.0f} MB beyond a batch; plain {memory['plain']:.0f} MB.",
    ]
    return "\n".join(lines) + "\n"


def write(content: dict[str, Any]) -> None:
    """The numbers and the page."""
    (HERE / "results.json").write_text(json.dumps(content, indent=1) + "\n")
    PAGE.parent.mkdir(parents=True, exist_ok=True)
    PAGE.write_text(table(content))
    print(table(content))


def main() -> None:
    """Measure, print, write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--cases", nargs="*", default=[case.name for case in CASES])
    parser.add_argument("--statistics", action="store_true", help="measure these alone again, and keep all other numbers")
    given = parser.parse_args()
    warnings.simplefilter("ignore", EvidenceWarning)
    if given.statistics:
        content = json.loads((HERE / "results.json").read_text())
        content["statistics"] = measure_statistics(given.rounds)
        content["statistics_by"] = f"python benchmarks/speed.py --statistics --rounds {given.rounds}"
        write(content)
        return
    peak = matmul_peak()
    machine = {
        "platform": platform.platform(),
        "processor": next(
            (x.split(":")[1].strip() for x in Path("/proc/cpuinfo").read_text().splitlines() if "model name" in x), "?"
        ),
        "capability": torch.backends.cpu.get_cpu_capability(),
        "torch": torch.__version__,
        "threads": torch.get_num_threads(),
        "matmul_gflops": peak,
    }
    content = {"command": "python benchmarks/speed.py", "machine": machine, "rounds": given.rounds}
    content["cases"] = [measure_case(case, given.rounds, peak) for case in CASES if case.name in given.cases]
    content["statistics"] = measure_statistics(given.rounds)
    content["statistics_memory_mb"] = measure_statistics_memory()
    write(content)


if __name__ == "__main__":
    main()
