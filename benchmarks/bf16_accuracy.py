"""Whether bf16 passes cost accuracy: five-epoch runs in fp32 and bf16, three seeds, two data sets.

    python benchmarks/bf16_accuracy.py FOLDER FOLDER [--epochs 5] [--shots 20] [--canvas 128]

Writes docs/results/bf16.md. Where the processor has no bf16, its arithmetic is imitated: the output and the gradient of
every layer, and the weights of those that multiply, are rounded to bf16 and sums stay in float32, as in hardware.
"""

import argparse
import copy
import statistics
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from reprogram import Frozen, fit, load_data, load_frozen
from reprogram.devices import choose_precision
from reprogram.run import FitConfig, resolve
from reprogram.run.build import build, divided_data, known_facts

OUT = Path(__file__).parents[1] / "docs" / "results" / "bf16.md"


class _Round(torch.autograd.Function):
    """To bf16 and back, forward and backward."""

    @staticmethod
    def forward(ctx: Any, values: Tensor) -> Tensor:
        return values.bfloat16().float()

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        return grad.bfloat16().float()


def imitate_bf16(frozen: Frozen) -> Frozen:
    """A copy of the model that rounds like bf16 autocast."""
    module = copy.deepcopy(frozen.module)
    for part in module.modules():
        if isinstance(part, (nn.Conv2d, nn.Linear)):
            part.register_forward_pre_hook(lambda _, given: (_Round.apply(given[0]),))
            for weight in part.parameters():
                weight.data = weight.data.bfloat16().float()
        if not list(part.children()):
            part.register_forward_hook(lambda _, given, output: _Round.apply(output))
    return Frozen(module, mean=frozen.mean, std=frozen.std, input_size=frozen.input_size, labels=frozen.labels)


def accuracy(config: FitConfig, frozen: Frozen, precision: str) -> float:
    data = load_data(config.data)
    config = resolve(config, known_facts(frozen, data))
    data = divided_data(config, data)
    result = fit(build(config, frozen, data), data, config.training(), precision=precision)
    assert result.accuracy["last"] is not None
    return 100 * result.accuracy["last"]


def main() -> None:
    """Run all, print and write the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", nargs="+")
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--shots", type=int, default=20)
    parser.add_argument("--canvas", type=int, default=128)
    given = parser.parse_args()
    native = choose_precision(torch.device("cpu"), "auto") == "bf16"
    frozen = load_frozen("bundled:efficientnet_lite0")
    lowered = frozen if native else imitate_bf16(frozen)
    lines = [
        "# bf16 against fp32",
        "",
        f"`python benchmarks/bf16_accuracy.py` with {given.epochs} epochs, {given.shots} images per class, canvas "
        f"{given.canvas}, EfficientNet-Lite0, BLM+, padding; bf16 {'in hardware' if native else 'imitated by rounding'}. "
        "Test accuracy in %.",
        "",
        "| data | fp32, three seeds | bf16, three seeds | difference of means | standard deviation of fp32 |",
        "|---|---|---|---|---|",
    ]
    for folder in given.data:
        scores: dict[str, list[float]] = {"fp32": [], "bf16": []}
        for seed in range(3):
            config = FitConfig(
                data=folder,
                epochs=given.epochs,
                seed=seed,
                shots=given.shots,
                canvas=given.canvas,
                evaluate_every=given.epochs,
            )
            scores["fp32"].append(accuracy(config, frozen, "fp32"))
            scores["bf16"].append(accuracy(config, lowered, "bf16" if native else "fp32"))
            print(folder, seed, scores, flush=True)
        means = {name: statistics.mean(values) for name, values in scores.items()}
        shown = {name: ", ".join(f"{value:.1f}" for value in values) for name, values in scores.items()}
        lines.append(
            f"| {Path(folder).name} | {shown['fp32']} | {shown['bf16']} | {means['bf16'] - means['fp32']:+.2f} "
            f"| {statistics.stdev(scores['fp32']):.2f} |"
        )
    OUT.parent.mkdir(parents=True, exist_ok=True)
    OUT.write_text("\n".join(lines) + "\n")
    print("\n".join(lines))


if __name__ == "__main__":
    main()
