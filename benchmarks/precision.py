"""Is bf16 faster where `--precision auto` chooses it? Networks of all kinds, in turn in one process, beside the rule's word.

    python benchmarks/precision.py [--rounds 4] [--minutes N] [--threads 1]

Times are the best of some rounds of fp32, bf16, fp32, bf16 ..., with freed memory kept, as the command line does it. The
weights are random but for the bundled networks: no time depends on them. Each network is written to
benchmarks/precision.json when it is done, and is not done again. Writes docs/results/precision.md.
"""

import argparse
import json
import warnings
from pathlib import Path
from typing import Any

import torch

from kept import Kept
from reprogram import load_frozen
from reprogram.acceleration.precision import choose_precision
from reprogram.devices import autocast, in_hardware
from reprogram.errors import EvidenceWarning
from reprogram.memory import keep_freed_memory
from speed import Ours, alternately

HERE = Path(__file__).parent
PAGE = HERE.parent / "docs" / "results" / "precision.md"
LITE0 = "bundled:efficientnet_lite0"
#: Model, canvas, side of the images (that of the canvas: a watermark), images at once.
CASES = (
    (LITE0, 48, 32, 64),
    (LITE0, 64, 64, 64),
    (LITE0, 224, 32, 32),
    (LITE0, 224, 128, 16),
    (LITE0, 224, 224, 8),
    ("torchvision:resnet18", 64, 64, 16),
    ("torchvision:resnet18", 224, 32, 16),
    ("torchvision:resnext101_32x8d", 224, 32, 4),
    ("timm:vit_tiny_patch16_224", 224, 224, 8),
    ("timm:vit_small_patch16_224", 224, 224, 4),
    ("timm:convnext_tiny", 224, 32, 8),
    ("timm:mobilenetv3_large_100", 64, 64, 32),
    ("timm:mobilenetv3_large_100", 224, 32, 16),
    ("timm:mobilenetv3_small_050", 64, 64, 32),
    ("timm:lcnet_050", 64, 64, 32),
    ("timm:regnetx_002", 64, 64, 32),
    ("torchvision:shufflenet_v2_x0_5", 64, 64, 32),
    ("torchvision:squeezenet1_1", 64, 64, 32),
    ("torchvision:densenet121", 64, 64, 16),
    ("timm:test_resnet", 64, 64, 32),
    ("timm:test_efficientnet", 64, 64, 32),
    ("timm:test_vit", 160, 160, 16),
)


def measured(model: str, canvas: int, image: int, batch: int, rounds: int) -> dict[str, Any]:
    """Images per second of training steps and of passes without a gradient, and what the rule says."""
    frozen = load_frozen(model, pretrained=model.startswith("bundled:"))
    ways = {precision: Ours(frozen, canvas, image, precision) for precision in ("fp32", "bf16")}
    images, labels = torch.rand(batch, 3, image, image), torch.arange(batch) % 10

    def passing(ours: Ours) -> None:
        with torch.inference_mode(), autocast(torch.device("cpu"), ours.precision):
            ours.model.source_logits(images)

    acts = {f"step {name}": (lambda ours=ours: ours.step(images, labels)) for name, ours in ways.items()}
    acts |= {f"pass {name}": (lambda ours=ours: passing(ours)) for name, ours in ways.items()}
    speed = {name: round(batch / seconds, 2) for name, seconds in alternately(acts, rounds).items()}
    chosen = choose_precision(frozen, canvas)
    return {**speed, "auto": chosen.precision, "why": chosen.why, "prepared": ways["fp32"].described}


def table(runs: dict[str, Any]) -> str:
    """What was found, for a reader."""
    lines = [
        "| model | canvas, image | step: fp32 images/s | bf16 | ratio | pass: fp32 | bf16 | ratio | auto |",
        "|---|---|---:|---:|---:|---:|---:|---:|---|",
    ]
    for key, run in runs.items():
        model, canvas, image, _ = json.loads(key)
        cells = [
            f"{run[f'{what} fp32']:.1f} | {run[f'{what} bf16']:.1f} | {run[f'{what} bf16'] / run[f'{what} fp32']:.2f}"
            for what in ("step", "pass")
        ]
        lines.append(f"| {model} | {canvas}, {image} | {' | '.join(cells)} | {run['auto']}: {run['why']} |")
    return "\n".join(lines) + "\n"


def main() -> None:
    """Measure what is not measured yet, and write the page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument("--minutes", type=float, default=1e6, help="begin no network after so many")
    parser.add_argument("--threads", type=int, default=1)
    given = parser.parse_args()
    warnings.simplefilter("ignore", EvidenceWarning)
    torch.set_num_threads(given.threads)
    keep_freed_memory()
    if not in_hardware(torch.device("cpu"), "bf16"):
        parser.error("this processor has no bf16 in hardware")
    kept = Kept(HERE / "precision.json", given.minutes)
    for case in CASES:
        kept.run(list(case), lambda case=case: measured(*case, rounds=given.rounds))
    content = kept.read()
    command = f"python benchmarks/precision.py --rounds {given.rounds} --threads {given.threads}"
    PAGE.write_text(
        "# Where bf16 is faster\n\n"
        f"`{command}` on {content['environment']['cores']} shared cores, torch {torch.__version__}: "
        "the best of the rounds of fp32 and bf16 in turn, in one process. A ratio above "
        "1 says that bf16 is faster; `auto` is what the rule of `--precision auto` chooses, and why. "
        "Other work on the machine falls on single rounds: a ratio far from its neighbours is that.\n\n"
        f"{table(content['runs'])}"
    )


if __name__ == "__main__":
    main()
