"""`import reprogram` is light, and the module order of the design holds."""

import subprocess
import sys

HEAVY = (
    "timm",
    "torchvision",
    "sklearn",
    "scipy",
    "matplotlib",
    "ray",
    "open_clip",
    "tyro",
    "rich",
    "transformers",
    "datasets",
    "onnx",
    "onnxruntime",
    "pyarrow",
    "lmdb",
)


def test_import_pulls_in_nothing_heavy():
    code = f"import sys, reprogram; print([name for name in {HEAVY!r} if name in sys.modules])"
    printed = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert printed.strip() == "[]"
