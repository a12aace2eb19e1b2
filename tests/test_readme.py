"""The README is true: its Python runs as it stands, its commands too, and its numbers are those that come out."""

import json
import pickle
import re
import shlex
import subprocess
import sys
from pathlib import Path

import datasets
import numpy as np
import pyarrow
import pyarrow.parquet
import pytest
from PIL import Image
from safetensors.torch import save_file

import tiny_clip
from reprogram.cli.main import main
from reprogram.sources.load import import_torchvision

README = (Path(__file__).parent.parent / "README.md").read_text()


def blocks(language):
    return re.findall(rf"```{language}\n(.*?)```", README, flags=re.DOTALL)


PYTHON = [code for code in blocks("python") if "openclip:" not in code]


@pytest.mark.parametrize("number", range(len(PYTHON)))
def test_the_python_examples_run_and_their_numbers_are_right(number, tmp_path):
    code = PYTHON[number]
    assert len([line for line in code.splitlines() if line.strip()]) <= 12
    write_answers(tmp_path / "answers.npz")
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=tmp_path, check=True)
    printed = done.stdout.splitlines()
    promised = [line.split("#", 1)[1].strip() for line in code.splitlines() if line.lstrip().startswith("print(")]
    assert len(printed) == len(promised) >= 2
    for found, expected in zip(printed, promised, strict=True):
        numbers = [[float(word) for word in re.findall(r"\d\.\d+", text)] for text in (found, expected)]
        assert numbers[0] == pytest.approx(numbers[1], abs=0.05)  # other processors round differently
        assert re.sub(r"\d\.\d+", "", found) == re.sub(r"\d\.\d+", "", expected)
    assert number > 0 or (tmp_path / "digits-reader" / "artefact.json").exists()


def write_answers(path):
    """Logits over 20 source labels for 300 animals of four kinds, some labels louder than others."""
    rng = np.random.default_rng(0)
    kinds = np.array(["ant", "bee", "cat", "dog"])
    place = rng.integers(0, 4, 300)
    logits = rng.normal(size=(4, 20))[place] + 1.6 * rng.normal(size=(300, 20)) + 2 * rng.normal(size=20)
    np.savez(path, logits=logits.astype(np.float32), labels=kinds[place], names=np.array([f"thing {i}" for i in range(20)]))


def test_the_python_example_for_clip_runs(desk):
    """With a tiny CLIP in the place of OpenAI's, which would have to be downloaded, and a frame that fits its 32 pixels."""
    (code,) = (code for code in blocks("python") if "openclip:" in code)
    assert len([line for line in code.splitlines() if line.strip()]) <= 12
    code = code.replace("openclip:ViT-B-32/openai", "openclip:my-clip").replace("frozen.input_size, 30", "32, 4")
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=desk, check=True)
    assert done.stdout.startswith("disc\n")
    assert (desk / "photos-reader" / "artefact.json").exists()


@pytest.fixture(scope="module")
def desk(shapes, tmp_path_factory):
    """A folder in which everything lies that the README's commands name."""
    root = tmp_path_factory.mktemp("desk")
    (root / "photos").symlink_to(shapes)
    (root / "new.jpg").symlink_to(sorted((shapes / "test" / "disc").iterdir())[0])
    files = [(split, path) for split in ("train", "test") for path in sorted((shapes / split).rglob("*.png"))[::4]]
    columns = {
        "path": [str(path) for _, path in files],
        "label": [path.parent.name for _, path in files],
        "split": [split for split, _ in files],
    }
    rows = [",".join(row) for row in zip(*columns.values(), strict=True)]
    (root / "photos.csv").write_text("\n".join(["path,label,split", *rows]))
    pyarrow.parquet.write_table(pyarrow.table(columns), root / "photos.parquet")
    images = [Image.open(path).convert("RGB") for _, path in files]
    np.savez(root / "photos.npz", images=np.stack([np.array(image) for image in images]), labels=columns["label"])
    features = datasets.Features(
        {"image": datasets.Image(), "label": datasets.ClassLabel(names=["disc", "square", "stripes"])}
    )
    parts = {
        split: datasets.Dataset.from_dict(
            {
                "image": [image for image, (of, _) in zip(images, files, strict=True) if of == split],
                "label": [label for label, of in zip(columns["label"], columns["split"], strict=True) if of == split],
            },
            features=features,
        )
        for split in ("train", "test")
    }
    datasets.DatasetDict(parts).save_to_disk(root / "photos-on-disk")
    write_cifar10(root / "sets")
    write_eurosat(root / "sets")
    answers = [
        {"image": name, "label": name[0], "labels": [{"name": "Tabby"}]} for name in ("a1", "b1", "a2", "b2", "a3", "b3")
    ]
    (root / "answers.jsonl").write_text("\n".join(map(json.dumps, answers)))
    import_torchvision()
    import timm

    save_file(timm.create_model("test_resnet", num_classes=9).state_dict(), root / "my-weights.safetensors")
    write_hf_classifier(root / "my-classifier")
    write_onnx_classifier(root / "my-model.onnx")
    tiny_clip.train(root / "my-clip", steps=0)
    (root / "my-clip.safetensors").symlink_to(root / "my-clip" / "open_clip_model.safetensors")
    return root


def write_cifar10(root):
    """CIFAR-10's own archive layout, with ten images per file and torchvision's checksums made to fit in the child."""
    folder = root / "cifar-10-batches-py"
    folder.mkdir(parents=True)
    rng = np.random.default_rng(0)
    for name in ("data_batch_1", "data_batch_2", "data_batch_3", "data_batch_4", "data_batch_5", "test_batch"):
        batch = {"data": rng.integers(0, 255, (10, 3072), dtype=np.uint8), "labels": list(range(10))}
        (folder / name).write_bytes(pickle.dumps(batch))
    (folder / "batches.meta").write_bytes(pickle.dumps({"label_names": [f"class {index}" for index in range(10)]}))


def write_eurosat(root):
    """CoOp's layout of EuroSAT with three images per class and split."""
    folder = root / "eurosat" / "2750"
    entries = {"train": [], "val": [], "test": []}
    rng = np.random.default_rng(0)
    for label in range(10):
        for number, split in enumerate(["train", "val", "test"] * 3):
            path = f"Class{label}/Class{label}_{number}.jpg"
            (folder / path).parent.mkdir(parents=True, exist_ok=True)
            Image.fromarray(rng.integers(0, 255, (64, 64, 3), dtype=np.uint8)).save(folder / path)
            entries[split].append([path, label, f"Class{label}"])
    (root / "eurosat" / "split_zhou_EuroSAT.json").write_text(json.dumps(entries))


def write_hf_classifier(folder):
    import transformers

    config = transformers.ViTConfig(
        hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=16, image_size=32, patch_size=8,
        id2label={index: f"thing {index}" for index in range(6)},
    )  # fmt: skip
    transformers.ViTForImageClassification(config).save_pretrained(folder)
    processor = {"image_processor_type": "ViTImageProcessor", "size": {"height": 32, "width": 32}}
    (folder / "preprocessor_config.json").write_text(json.dumps(processor))


def write_onnx_classifier(path):
    """Mean colours of the image times a matrix: a classifier with seven labels."""
    from onnx import TensorProto, helper, numpy_helper, save

    weights = np.random.default_rng(0).normal(size=(3, 7)).astype(np.float32)
    nodes = [
        helper.make_node("GlobalAveragePool", ["x"], ["pooled"]),
        helper.make_node("Flatten", ["pooled"], ["flat"]),
        helper.make_node("MatMul", ["flat", "w"], ["logits"]),
    ]
    graph = helper.make_graph(
        nodes,
        "colours",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 3, 32, 32])],
        [helper.make_tensor_value_info("logits", TensorProto.FLOAT, ["n", 7])],
        [numpy_helper.from_array(weights, "w")],
    )
    save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9), path)


COMMANDS = [line[2:] for block in blocks("console") for line in block.splitlines() if line.startswith("$ ")]


@pytest.mark.parametrize("command", COMMANDS)
def test_each_command_of_the_readme_runs(command, desk, monkeypatch, capsys):
    """With one epoch on a smaller canvas where a program is trained, but with every flag that the README gives."""
    words = shlex.split(command)
    assert words[0] == "reprogram"
    monkeypatch.chdir(desk)
    if "torchvision:CIFAR10" in words:  # the replica has other bytes than the archive that torchvision knows
        monkeypatch.setattr("torchvision.datasets.cifar.check_integrity", lambda *_, **__: True)
    if "openclip:ViT-B-32/openai" in words:  # its weights would have to be downloaded: a tiny CLIP stands in for it
        words[words.index("openclip:ViT-B-32/openai")] = "openclip:my-clip"
        words += ["--epochs", "1"]
    elif words[1] == "fit" and "--program" not in words:
        words += ["--epochs", "1", "--canvas", "48"]
    elif words[1] == "logits" or (words[1] == "fit" and "--model" not in words):
        words += ["--canvas", "48"]
    assert main(words[1:]) == 0, capsys.readouterr().err


def test_make_targets_of_the_readme_exist():
    makefile = (Path(__file__).parent.parent / "Makefile").read_text()
    for target in {
        word for words in re.findall(r"(?:`|^)make ([a-z ]+)(?:`|$)", README, flags=re.MULTILINE) for word in words.split()
    }:
        assert re.search(rf"^{target}:", makefile, flags=re.MULTILINE), target
