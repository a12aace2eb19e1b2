"""Does `torch.compile` bring anything to a training step? Ours, the compiled module, and ours compiled, in turn.

    python benchmarks/compiled.py [--rounds 5]

Needs a C++ compiler. The compiled module is channels-last, and inductor fuses what stands between its convolutions, batch
norms too. One thread, its own computing time, the best of the rounds. Prints a table.
"""

import argparse
import copy
import logging
import time
import warnings
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from reprogram import Reprogrammed, load_frozen, make_mapping
from reprogram.devices import autocast, in_hardware
from reprogram.memory import keep_freed_memory
from reprogram.programs import Padding, Watermark
from scaling import fastest

# model, canvas, image, batch
CASES = (
    ("bundled:efficientnet_lite0", 64, 64, 64),
    ("bundled:efficientnet_lite0", 224, 224, 16),
    ("torchvision:resnet18", 224, 224, 16),
    ("torchvision:resnet18", 224, 32, 16),
)
CPU = torch.device("cpu")


def steps(name: str, canvas: int, image: int, batch: int, precision: Any) -> dict[str, Callable[[], Tensor]]:
    """One training step each way; each returns its gradient of θ."""
    frozen = load_frozen(name, pretrained=False)
    program = Padding(canvas, image) if image < canvas else Watermark(canvas)
    model = Reprogrammed(program, frozen, make_mapping("rlm", frozen.labels, list("abcdefghij")))
    model.accelerate()
    compiled = torch.compile(copy.deepcopy(frozen.module).to(memory_format=torch.channels_last), dynamic=False)
    prepared = torch.compile(model.source_logits, dynamic=False)
    images, labels = torch.rand(batch, 3, image, image), torch.arange(batch) % 10

    def of_module(images: Tensor) -> Tensor:
        return compiled(program(images).contiguous(memory_format=torch.channels_last))

    def step(logits_of: Callable[[Tensor], Tensor]) -> Tensor:
        program.theta.grad = None
        with autocast(CPU, precision):
            logits = logits_of(images)
        F.cross_entropy(model.mapping(logits.float()), labels).backward()
        assert program.theta.grad is not None
        return program.theta.grad.clone()

    calls = {"ours": model.source_logits, "module": of_module, "both": prepared}
    return {name: (lambda call=call: step(call)) for name, call in calls.items()}


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    given = parser.parse_args()
    warnings.simplefilter("ignore")
    logging.getLogger("torch._dynamo").setLevel(logging.ERROR)  # it tells of each place that it cannot compile
    torch.set_num_threads(1)
    keep_freed_memory()
    print("| model | canvas, image | precision | ours, images/s | compiled module | ours, compiled | seconds to compile |")
    print("|---|---|---|---:|---:|---:|---:|")
    for name, canvas, image, batch in CASES:
        for precision in ("fp32", "bf16") if in_hardware(CPU, "bf16") else ("fp32",):
            torch.compiler.reset()
            acts, began = steps(name, canvas, image, batch, precision), time.perf_counter()
            found = {who: act() for who, act in acts.items()}
            spent = time.perf_counter() - began
            if precision == "fp32":
                for who in ("module", "both"):
                    torch.testing.assert_close(
                        found[who], found["ours"], rtol=1e-2, atol=float(found["ours"].abs().max()) / 50
                    )
            best = fastest(acts, given.rounds, time.thread_time)
            speeds = " | ".join(f"{batch / best[who]:.1f} ({best['ours'] / best[who]:.2f})" for who in ("module", "both"))
            first = f"| {name} | {canvas}, {image} | {precision} | {batch / best['ours']:.1f} "
            print(f"{first}| {speeds} | {spent:.0f} |", flush=True)


if __name__ == "__main__":
    main()
