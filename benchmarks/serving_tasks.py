"""What both benchmarks of the service need: pictures, tasks on the bundled model, and words with a server.

    python benchmarks/serving_tasks.py FOLDER

makes the tasks in a folder: one without a program, and three with one.
"""

import argparse
import io
import json
import urllib.request
import zipfile
from pathlib import Path

MODEL = "bundled:efficientnet_lite0"
GARBAGE_HEADING = "## Among garbage"  # of the section that serving_garbage.py writes at the end of the same page
CLASSES = [f"class {number}" for number in range(10)]
PROGRAMS = {
    "padding-a": {"name": "padding", "canvas": 224, "image_size": 128},
    "padding-b": {"name": "padding", "canvas": 224, "image_size": 64},
    "watermark": {"name": "watermark", "canvas": 224, "frame": 30},
}


def make_pictures(folder):
    """Photographs would do as well: 320 x 240 JPEG files of smooth noise, as large as such files are."""
    import numpy as np
    from PIL import Image

    rng = np.random.default_rng(0)
    for number in range(16):
        coarse = Image.fromarray(rng.integers(0, 255, (24, 32, 3), dtype=np.uint8))
        coarse.resize((320, 240), Image.Resampling.BICUBIC).save(folder / f"{number}.jpg", quality=90)


def make_tasks(folder):
    """`first`, whose copies become the others, and three with programs."""
    import torch

    from reprogram.mappings.certainty import measure_certainty
    from reprogram.mappings.making import make_mapping
    from reprogram.programs.base import make_program
    from reprogram.reprogrammed import Reprogrammed
    from reprogram.sources.load import load_frozen

    frozen = load_frozen(MODEL)
    generator = torch.Generator().manual_seed(0)
    for name, program in {"first": {"name": "none", "canvas": 224}, **PROGRAMS}.items():
        logits = torch.randn(200, frozen.k_source, generator=generator)
        targets = torch.arange(200) % len(CLASSES)
        mapping = make_mapping("blm+", frozen.labels, CLASSES)
        mapping.estimate(mapping.count(logits, targets))
        measure_certainty(mapping, (logits, targets))
        model = Reprogrammed(make_program(**program), frozen, mapping)
        if name != "first":
            with torch.no_grad():
                model.program.theta.copy_(torch.rand(model.program.theta.shape, generator=generator))
        model.save(folder / name)


def private_bytes(pid):
    """What a process has for itself, and its part of what it shares (PSS)."""
    text = Path(f"/proc/{pid}/smaps_rollup").read_text()
    return next(int(line.split()[1]) * 1024 for line in text.splitlines() if line.startswith("Pss:"))


def ask(port, method, path, body=None, kind=None):
    """What the service answers in JSON."""
    request = urllib.request.Request(f"http://127.0.0.1:{port}{path}", body, {"Content-Type": kind or ""}, method=method)
    with urllib.request.urlopen(request, timeout=120) as response:
        return json.load(response)


def packed(folder):
    """An artefact as a zip archive."""
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w") as archive:
        for file in sorted(folder.iterdir()):
            archive.write(file, file.name)
    return stream.getvalue()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="where the tasks go")
    make_tasks(parser.parse_args().folder)


if __name__ == "__main__":
    main()
