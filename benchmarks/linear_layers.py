"""Networks of linear layers: these as matrix products and as convolutions, and the module as it is, alternately.

    python benchmarks/linear_layers.py [--rounds 5] [--models timm:vit_small_patch16_224 ...]

Random weights, 32 px images in 224 px, fp32. Writes benchmarks/linear_layers.json and docs/results/linear-layers.md.
"""

import argparse
import json
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch.nn import functional as F

from reprogram import Reprogrammed, load_frozen, make_mapping
from reprogram.acceleration import linear
from reprogram.memory import keep_freed_memory
from reprogram.programs import Padding

HERE = Path(__file__).parent
PAGE = HERE.parent / "docs" / "results" / "linear-layers.md"
MODELS = (
    "timm:vit_small_patch16_224",
    "timm:convnext_tiny",
    "openclip:ViT-B-32/openai",
)
WAYS = ("plain", "products", "convolutions")
BATCH, CLASSES = 8, [f"class {number}" for number in range(10)]


def measure(name: str, rounds: int) -> dict[str, Any]:
    texts: dict[str, Any] = {"classes": CLASSES, "templates": "default"} if name.startswith("openclip:") else {}
    frozen = load_frozen(name, pretrained=False, **texts)
    images, labels = torch.rand(BATCH, 3, 32, 32), torch.arange(BATCH) % len(CLASSES)
    plain, ours = (Reprogrammed(Padding(224, 32), frozen, make_mapping("rlm", frozen.labels, CLASSES)) for _ in range(2))
    chosen = ours.accelerate()

    def step(model: Reprogrammed) -> torch.Tensor:
        model.zero_grad(set_to_none=True)
        F.cross_entropy(model(images), labels).backward()
        return model.program.theta.grad

    def only_pass(model: Reprogrammed) -> torch.Tensor:
        with torch.inference_mode():
            return model.source_logits(images)

    acts: dict[str, Callable[[Reprogrammed], torch.Tensor]] = {"training step": step, "pass": only_pass}
    seconds: dict[str, dict[str, list[float]]] = {act: {way: [] for way in WAYS} for act in acts}
    found: dict[str, torch.Tensor] = {}
    for turn in range(rounds + 1):
        for act, run in acts.items():
            for way in WAYS:
                linear._mkl_holds_back = lambda way=way: way == "convolutions"
                start = time.thread_time()
                found[f"{act} {way}"] = run(plain if way == "plain" else ours).detach().clone()
                if turn:
                    seconds[act][way].append(time.thread_time() - start)
    off = {
        act: float((found[f"{act} convolutions"] - found[f"{act} plain"]).norm() / found[f"{act} plain"].norm())
        for act in acts
    }
    row = {"model": name, "chosen": chosen, "seconds": seconds, "off": off}
    print(name, {act: {way: round(min(s), 3) for way, s in ways.items()} for act, ways in seconds.items()}, off, flush=True)
    return row


def page(content: dict[str, Any]) -> str:
    lines = [
        "# Linear layers as convolutions",
        "",
        f"`{content['command']}` on {content['processor']} ({content['capability']}), one thread, torch "
        f"{content['torch']}: batches of {BATCH} images of 32 px in 224 px, random weights, fp32, alternately in one "
        f"process, medians of {content['rounds']} rounds of the thread's own computing time. *Products* is the network "
        "prepared with its linear layers as matrix products; *convolutions* the same with them as 1 × 1 convolutions, "
        "which is what runs on processors of AMD.",
        "",
        "| model | | plain ms | products | convolutions | times as fast as products | as plain | off plain |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for row in content["rows"]:
        for act, ways in row["seconds"].items():
            plain, products, convolutions = (1000 * statistics.median(ways[way]) for way in WAYS)
            lines.append(
                f"| {row['model']} | {act} | {plain:.0f} | {products:.0f} | {convolutions:.0f} "
                f"| {products / convolutions:.2f} | {plain / convolutions:.2f} | {row['off'][act]:.0e} |"
            )
    lines += ["", "Chosen: " + "; ".join(f"{row['model']}: {row['chosen']}" for row in content["rows"]) + "."]
    return "\n".join(lines) + "\n"


def main() -> None:
    """Measure, print, write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--models", nargs="+", default=MODELS)
    parser.add_argument("--no-page", action="store_true", help="print only")
    given = parser.parse_args()
    keep_freed_memory()  # as the command line does
    torch.set_num_threads(1)  # whose own computing time counts: other work on the machine does not
    lines = Path("/proc/cpuinfo").read_text().splitlines() if Path("/proc/cpuinfo").is_file() else []
    content = {
        "command": f"python benchmarks/linear_layers.py --rounds {given.rounds}",
        "processor": next((line.split(":")[1].strip() for line in lines if "model name" in line), "?"),
        "capability": torch.backends.cpu.get_cpu_capability(),
        "torch": torch.__version__,
        "rounds": given.rounds,
        "rows": [measure(name, given.rounds) for name in given.models],
    }
    if not given.no_page:
        Path(__file__).with_suffix(".json").write_text(json.dumps(content, indent=1) + "\n")
        PAGE.write_text(page(content))
    print(page(content))


if __name__ == "__main__":
    main()
