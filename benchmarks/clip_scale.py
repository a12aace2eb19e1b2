"""CLIP with the texts of SUN397: k_S = 81 · 397 = 32,157 source labels, k_T = 397. Time and peak memory of every part.

    python benchmarks/clip_scale.py

Prints a table and writes benchmarks/clip_scale.json. The image tower is ViT-B-32 with random weights; the text embeddings
are random unit vectors, since only their number matters here. Memory is the peak of the whole process (VmHWM, Linux only)
during a part, less what it held when the model was loaded: everything that comes on top of the model, also what earlier
parts have left. The fits' lines hold the activations of the image tower, which every source has; they stand alone, too.
"""

import argparse
import gc
import json
import platform
import re
import time
import warnings
from collections.abc import Callable, Iterable
from pathlib import Path

import torch
from rich.console import Console
from rich.table import Table
from torch.nn import functional as F

from reprogram import Reprogrammed, fit, load_frozen, make_mapping
from reprogram.data import ArraySplit, DataSet
from reprogram.errors import EvidenceWarning
from reprogram.mappings import MAPPINGS, bayes, one_to_one, select
from reprogram.programs import Watermark
from reprogram.sources import Texts, VisionLanguage
from reprogram.statistics import JointStatistics
from reprogram.statistics.joint import top_count

TEMPLATES, K_TARGET, WIDTH, BATCH, STEP_BATCH = 81, 397, 512, 256, 32
SELECTED = 794  # two samples of each class
CLASSES = tuple(f"class {index}" for index in range(K_TARGET))
Rows = dict[str, dict[str, float]]


def main() -> None:
    """Measure, print, write."""
    argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter).parse_args()
    warnings.simplefilter("ignore", EvidenceWarning)  # a few images cannot show all classes
    frozen = clip()
    gc.collect()
    loaded = memory("VmRSS")
    rows, difference = parts(frozen, loaded)
    rows |= fits(frozen, loaded)
    peak = max(row["megabytes"] for row in rows.values())
    table = Table("what", "seconds", "MB beyond the model", title=f"k_S = {frozen.k_source:,}, k_T = {K_TARGET}")
    for name, row in rows.items():
        table.add_row(name, f"{row['seconds']:.3f}", f"{row['megabytes']:,.0f}")
    Console(width=120).print(table)
    print(f"at most {peak:,.0f} MB beyond the model ({loaded / 1e6:,.0f} MB, with everything imported)")
    print(f"the two ways to the target logits differ by {difference:.1e} of the largest")
    content = {
        "command": "python benchmarks/clip_scale.py",
        "machine": {"platform": platform.platform(), "torch": torch.__version__, "threads": torch.get_num_threads()},
        "k_source": frozen.k_source,
        "k_target": K_TARGET,
        "most_megabytes_beyond_the_model": peak,
        "difference_of_the_two_ways": difference,
        "rows": rows,
    }
    Path(__file__).with_suffix(".json").write_text(json.dumps(content, indent=2, ensure_ascii=False) + "\n")


def clip() -> VisionLanguage:
    tower = load_frozen("openclip:ViT-B-32/openai", pretrained=False, classes=["x"], templates="default")
    assert isinstance(tower, VisionLanguage)
    texts = Texts(CLASSES, [f"template {index} of a {{}}." for index in range(TEMPLATES)])
    text = torch.randn(len(texts), WIDTH, generator=torch.Generator().manual_seed(0))
    return VisionLanguage(
        tower.module.image_tower, text, texts, logit_scale=4.6, mean=tower.mean, std=tower.std, input_size=tower.input_size
    )


def parts(frozen: VisionLanguage, loaded: int) -> tuple[Rows, float]:
    """What comes behind the image tower, on given features; and how far the two ways to the target logits differ."""
    top_k = top_count(0.15, K_TARGET, frozen.k_source)
    targets = torch.arange(BATCH) % K_TARGET
    features = F.normalize(torch.randn(BATCH, WIDTH, generator=torch.Generator().manual_seed(1)), dim=1).requires_grad_()
    logits = (frozen.scale * features @ frozen.text.T).detach()
    counts = JointStatistics.counts(frozen.k_source, K_TARGET)
    sums = JointStatistics.probabilities(frozen.k_source, K_TARGET, top_k)
    omega = bayes(sums.update(logits, targets))
    folded = frozen.folded(omega)

    def through_logits() -> None:
        F.cross_entropy((frozen.scale * features @ frozen.text.T) @ omega, targets).backward()

    def through_features() -> None:
        F.cross_entropy(features @ folded, targets).backward()

    def choose() -> None:
        many = F.normalize(torch.randn(SELECTED, WIDTH, generator=torch.Generator().manual_seed(2)), dim=1)
        labels = torch.arange(SELECTED) % K_TARGET

        def blocks() -> Iterable[tuple[torch.Tensor, torch.Tensor]]:
            return ((frozen.from_features(part), of) for part, of in zip(many.split(130), labels.split(130), strict=True))

        select(blocks, K_TARGET, span=frozen.span)

    acts: dict[str, Callable[[], object]] = {
        f"counts, batch of {BATCH}": lambda: counts.update(logits, targets),
        f"top-{top_k} probabilities, batch of {BATCH}": lambda: sums.update(logits, targets),
        "ω of blm+": lambda: bayes(sums),
        "ω of ilm": lambda: one_to_one(counts),
        "ω of the ensemble": lambda: make_mapping("ensemble", frozen.labels, CLASSES),
        f"features to loss and back through the logits, batch of {BATCH}": through_logits,
        "folding ω into the features (once per ω)": lambda: frozen.folded(omega),
        f"features to loss and back through the folded ω, batch of {BATCH}": through_features,
        "span (once per model)": lambda: frozen.span,
        f"choosing among all mappings by leave-one-out, {SELECTED} samples": choose,
    }
    rows = {name: measured(act, loaded) for name, act in acts.items()}
    direct = logits @ omega
    return rows, float((direct - features.detach() @ folded).abs().max() / direct.abs().max())


def fits(frozen: VisionLanguage, loaded: int) -> Rows:
    """The image tower alone, and a fit of one step with each mapping."""
    pixels = torch.randint(256, (STEP_BATCH, 3, 224, 224), dtype=torch.uint8)
    split = ArraySplit(pixels, torch.arange(STEP_BATCH) % K_TARGET)
    data = DataSet("noise", CLASSES, train=split, test=split.subset(torch.arange(2)))

    def program() -> Watermark:
        return Watermark(224, frame=30, interpolation=frozen.interpolation).bind(frozen.mean, frozen.std)

    def tower_alone() -> None:
        frozen.features(program()(pixels)).sum().backward()

    def run(method: str) -> None:
        span = frozen.span if method == "gaussian" else None
        model = Reprogrammed(program(), frozen, make_mapping(method, frozen.labels, CLASSES, span=span))
        fit(model, data, epochs=1, batch_size=STEP_BATCH, mapping_lr=0.001)

    rows = {f"image tower alone, a step on {STEP_BATCH} images": measured(tower_alone, loaded)}
    for method in MAPPINGS:
        rows[f"fit with {method}: estimate, one step, test"] = measured(lambda method=method: run(method), loaded)
    return rows


def measured(act: Callable[[], object], loaded: int) -> dict[str, float]:
    """Seconds of one act, and the megabytes that the process held at its peak beyond those with the model alone."""
    gc.collect()
    Path("/proc/self/clear_refs").write_text("5")  # the peak starts anew
    start = time.perf_counter()
    act()
    return {"seconds": time.perf_counter() - start, "megabytes": max(0, memory("VmHWM") - loaded) / 1e6}


def memory(line: str) -> int:
    """One of the process's sizes, in bytes."""
    found = re.search(rf"{line}:\s+(\d+) kB", Path("/proc/self/status").read_text())
    assert found is not None
    return int(found[1]) * 1024


if __name__ == "__main__":
    main()
