"""`reprogram update` as a person types it, on runs and on mappings."""

import json
import re
import shutil

import numpy as np
import pytest
import torch

from conftest import draw_folder
from reprogram.cli.main import main
from reprogram.mappings.base import Mapping
from reprogram.run.folder import seen_images

SMALL = ("--model", "timm:test_resnet", "--no-pretrained", "--canvas", "64", "--batch-size", "16", "--val-fraction", "0")


def run(*words):
    return main(list(map(str, words)))


def folder_of(root, train, test):
    """An image folder with these class folders in each split, as links to drawn ones."""
    for split, folders in (("train", train), ("test", test)):
        (root / split).mkdir(parents=True)
        for name, parts in folders.items():
            (root / split / name).mkdir()
            for part in parts:
                for image in sorted(part.iterdir()):
                    shutil.copy(image, root / split / name / f"{part.parent.name}-{image.name}")
    return root


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """Image folders of two classes, of images to add with a third class, and of all together; a run on the first."""
    root = tmp_path_factory.mktemp("update")
    first, more, test = (
        draw_folder(root / name, per_class=n, seed=s) for name, n, s in (("a", 8, 1), ("b", 5, 2), ("c", 3, 3))
    )
    shutil.rmtree(more / "disc")
    two = ("disc", "stripes")
    folder_of(root / "old", {name: [first / name] for name in two}, {name: [test / name] for name in two})
    every = ("disc", "square", "stripes")
    parts = {"disc": [first / "disc"], "square": [more / "square"], "stripes": [first / "stripes", more / "stripes"]}
    folder_of(root / "whole", parts, {name: [test / name] for name in every})
    for mapping in ("blm", "gaussian"):
        for data in ("old", "whole"):
            flags = ("--program", "none", "--mapping", mapping, "--out", root / f"{data}-{mapping}", *SMALL)
            assert run("fit", "--data", root / data, *flags) == 0
    return root


def copied(place, name, tmp_path):
    return shutil.copytree(place / name, tmp_path / name)


def same(one, other):
    one, other = Mapping.load(one), Mapping.load(other)
    assert one.classes == other.classes
    for key, value in one.state_dict().items():
        theirs = other.state_dict()[key]
        if key in ("statistics.rounding", "statistics.removed"):
            continue
        if value.is_floating_point():  # the network rounds another batch of images otherwise
            torch.testing.assert_close(value, theirs, rtol=1e-3, atol=1e-3 * float(value.abs().max()))
        else:
            assert torch.equal(value, theirs)


@pytest.mark.filterwarnings("default::reprogram.errors.EvidenceWarning")
@pytest.mark.parametrize("mapping", ["blm", "gaussian"])
def test_images_are_added_forgotten_and_classes_removed(mapping, place, tmp_path, capsys):
    old, whole = copied(place, f"old-{mapping}", tmp_path), place / f"whole-{mapping}"
    kept = {name: (old / name).read_bytes() for name in ("result.json", "predictions.csv", "config.json")}
    capsys.readouterr()
    assert run("update", old, "--add", place / "b") == 0
    printed = capsys.readouterr().out
    assert "square" in printed
    assert "added 10 samples" in printed
    assert "result.json, predictions.csv and report.html tell of it as trained" in printed
    assert "write the report anew: reprogram report " in printed
    same(old, whole)
    (record,) = json.loads((old / "artefact" / "artefact.json").read_text())["updates"]
    assert record["add"]["new_classes"] == ["square"]
    assert {name: (old / name).read_bytes() for name in kept} == kept
    assert run("predict", old, place / "b" / "square" / "000.png") == 0
    assert len(seen_images(old)) == 26
    capsys.readouterr()
    assert run("update", old, "--forget", place / "b", "--out", tmp_path / "less") == 0
    assert "reprogram: warning: there is no evidence for target class 'square'" in capsys.readouterr().err
    same(old, whole)  # it was written elsewhere
    assert run("update", tmp_path / "less", "--remove", "square") == 0
    same(tmp_path / "less", place / f"old-{mapping}")
    assert len(json.loads((tmp_path / "less" / "artefact.json").read_text())["updates"]) == 3
    samples = ("--samples", place / "b") if mapping == "gaussian" else ()
    assert run("update", old, "--remove", "square", *samples) == 0
    capsys.readouterr()
    assert run("update", old, "--forget", place / "b", "--out", tmp_path / "x") == 2
    assert "has the class 'square', which the mapping does not have" in capsys.readouterr().err


def test_what_a_run_cannot_do_is_said_in_one_sentence(place, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for mapping in ("linear", "blm"):
        flags = ("--program", "padding", "--image-size", "32", "--epochs", "1", "--mapping", mapping, "--out", mapping)
        assert run("fit", "--data", place / "old", *flags, *SMALL) == 0
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    gaussian = place / "old-gaussian"
    for words, message in (
        (("linear", "--add", place / "b"), "learned by gradient"),
        (("linear", "--remove", "disc"), "learned by gradient"),
        (("blm", "--forget", place / "b"), "was trained while its mapping was counted"),
        (("blm", "--remove", "disk"), "did you mean 'disc'"),
        (("blm", "--add", "nothing"), "neither a folder"),
        (("blm", "--add", place / "b", "--out", "linear"), "exists already"),
        (("blm",), "--add, --forget or --remove"),
        (("blm", "--samples", place / "b", "--add", place / "b"), "goes with --remove"),
        ((gaussian, "--remove", "disc"), "give them with --samples"),
        (
            (gaussian, "--remove", "disc", "--samples", place / "b"),
            "has 0 samples of class 'disc', but the mapping was given 8",
        ),
    ):
        capsys.readouterr()
        assert run("update", *words) == 2
        printed = capsys.readouterr().err
        assert message in printed
        assert len(printed.strip().splitlines()) == 1
    assert {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()} == before
    assert run("update", "blm", "--add", place / "b") == 0
    printed = capsys.readouterr().out
    assert "counted under the program as it is now" in printed
    assert "were used in this run" not in printed
    assert run("update", "blm", "--add", place / "old", "--out", "twice") == 0
    assert re.search(r"note: (\d+) of these \1 images were used in this run; what its training", capsys.readouterr().out)


def test_a_mapping_is_updated_by_shards(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    for name, labels in (("old", ["cat", "dog"] * 10), ("new", ["cat", "eel, electric"] * 6)):
        np.savez(f"{name}.npz", logits=rng.normal(size=(len(labels), 4)), label=labels)
    assert run("map", "old.npz", "--mapping", "blm", "--out", "m") == 0
    assert run("map", "old.npz", "new.npz", "--mapping", "blm", "--out", "whole") == 0
    capsys.readouterr()
    assert run("update", "m", "--add", "new.npz", "--out", "both") == 0
    printed = capsys.readouterr().out
    assert "added 12 samples of shard 'new.npz'; new: eel, electric" in printed
    assert "was that of the mapping before" in printed
    same("both", "whole")
    assert run("update", "both", "--remove", "eel, electric") == 0
    assert Mapping.load("both").classes == ("cat", "dog")
    assert run("update", "m", "--forget", "new.npz") == 2
    assert run("map", "predict", "both", "old.npz", "--out", "p.csv") == 0
    printed = capsys.readouterr()
    assert "which the mapping does not have" in printed.err
