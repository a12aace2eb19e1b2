"""Exports beside the live model: three runs, each format, at least 100 images at batches of 1 and 7; sizes and seconds.

    python benchmarks/export.py

makes the runs in a folder of its own: the demo's (Lite0, padding, blm+, digits on a canvas of 48, fewer epochs), one with a
Gaussian mapping on the same backbone, and a tiny CLIP with a watermark that is trained on the spot on drawn shapes (it needs
a clone, because the CLIP is that of the tests). With --web FOLDER, where `npm install --ignore-scripts onnxruntime-web` was
run, the adapters are also tried in onnxruntime-web under Node.
"""

import argparse
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

ROOT = Path(__file__).parent.parent


def make_runs(folder: Path, epochs: int) -> dict[str, Path]:
    """Carry out the three runs."""
    sys.path.insert(0, str(ROOT / "tests"))
    import tiny_clip
    from reprogram.run.config import FitConfig
    from reprogram.run.folder import run_fit

    images, labels = tiny_clip.drawn(tiny_clip.SHAPES, 120, seed=5)
    names = np.array(tiny_clip.SHAPES)[labels.numpy()]
    np.savez(folder / "shapes.npz", images=images.permute(0, 2, 3, 1).numpy(), labels=names)
    clip = f"openclip:{tiny_clip.train(folder / 'clip')}"
    wanted = {
        "padding, blm+": {"data": "digits", "program": "padding", "mapping": "blm+", "canvas": 48, "epochs": epochs},
        "gaussian": {"data": "digits", "program": "none", "mapping": "gaussian", "canvas": 48},
        "CLIP, watermark, blm+": {
            "data": str(folder / "shapes.npz"),
            "model": clip,
            "program": "watermark",
            "mapping": "blm+",
            "epochs": epochs,
        },
    }
    runs = {}
    for number, (name, settings) in enumerate(wanted.items()):
        runs[name] = folder / f"run-{number}"
        run_fit(FitConfig.read(settings), runs[name])
    return runs


def in_javascript(task: Path, web: Path, folder: Path) -> float:
    """The largest difference of a probability between Python and onnxruntime-web."""
    from reprogram.export import load_exported
    from reprogram.export.comparison import drawn

    exported = load_exported(task)
    pixels = np.ascontiguousarray(drawn(100, exported.image_size).permute(0, 2, 3, 1).numpy())
    given, found = folder / "images.bin", folder / "answers.bin"
    given.write_bytes(pixels.tobytes())
    script = shutil.copy(ROOT / "examples" / "onnxruntime-web" / "classify.mjs", web / "classify.mjs")
    subprocess.run(["node", str(script), str(task), str(given), str(found)], check=True, stdout=subprocess.DEVNULL)
    answers = np.frombuffer(found.read_bytes(), np.float32).reshape(len(pixels), -1)
    return float(np.abs(answers - exported.probabilities(pixels)).max())


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--epochs", type=int, default=4, help="of the runs that train a program")
    parser.add_argument("--images", type=int, default=200, help="images to compare on")
    parser.add_argument("--web", type=Path, help="folder with node_modules/onnxruntime-web")
    arguments = parser.parse_args()
    from reprogram.export import export_run

    print("| run | format | file | bytes | images | largest difference of a probability | of a logit | seconds |")
    print("|---|---|---|--:|--:|--:|--:|--:|")
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        for name, run in make_runs(folder, arguments.epochs).items():
            for form, file in (("onnx", "model.onnx"), ("onnx-adapter", "task.onnx_adapter"), ("torch", "model.pt2")):
                backbone = folder / ("clip.onnx" if "CLIP" in name else "backbone.onnx") if "adapter" in form else None
                start = time.perf_counter()
                done = export_run(run, run / form, format=form, backbone=backbone, images=arguments.images)
                seconds, found = time.perf_counter() - start, done.comparison
                print(
                    f"| {name} | `{form}` | `{file}` | {done.sizes[file]:,} | {found.images} | {found.probability:.1e} | "
                    f"{found.logit:.1e} | {seconds:.0f} |",
                    flush=True,
                )
            if arguments.web is not None:
                apart = in_javascript(run / "onnx-adapter", arguments.web, folder)
                print(f"| {name} | the same adapter in onnxruntime-web | | | 100 | {apart:.1e} | | |", flush=True)
        for path in sorted(folder.glob("*.onnx")):
            print(f"\n`{path.name}`: {path.stat().st_size:,} bytes")


if __name__ == "__main__":
    main()
