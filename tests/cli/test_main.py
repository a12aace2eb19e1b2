"""The command line as a whole: its help, its mistakes, and how soon it finds them."""

import re
import subprocess
import sys

import pytest

from command import SMALL, here, reprogram
from conftest import draw_folder


def test_help_explains_every_flag():
    """Of every command, with the settings of all mappings, programs and sources."""
    for verb, command in COMMANDS.items():
        printed = plain(reprogram(*verb.split(), "--help").stdout)
        for name, field in {**command.schema.model_fields, **command.further()}.items():
            if name not in {"run", "images", "files", "artefact", "pattern", "name"} and not (verb, name) == ("map predict", "mapping"):
                assert f"--{name.replace('_', '-')}" in printed, (verb, name)
            assert plain(field.description) in printed, (verb, name)
    flags = "smoothing top-ratio refresh image-size frame shrinkage templates input-size"
    assert all(f"--{flag}" in plain(reprogram("fit", "--resume", "--help").stdout) for flag in flags.split())


MISTAKES = {
    "missing folder": (["fit", "--data", "nowhere"], ["nowhere", "folder"]),
    "empty class": (["fit", "--data", "{empty}"], ["holds no image"]),
    "no test split": (["fit", "--data", "{no_test}"], ["no test split"]),
    "unknown model": (["fit", "--model", "timm:resnet19"], ["resnet19", "resnet18"]),
    "unknown source": (["fit", "--model", "resnet18"], ["source:name"]),
    "unknown mapping": (["fit", "--mapping", "blmm"], ["'blmm'", "did you mean 'blm'"]),
    "unknown program": (["fit", "--program", "pading"], ["'pading'", "padding"]),
    "unknown flag": (["fit", "--epohcs", "3"], ["--epohcs", "--epochs"]),
    "unknown verb": (["fitt"], ["'fitt'", "'fit'"]),
    "a word too many": (["fit", "digits"], ["'digits'", "not expected"]),
    "no number": (["fit", "--epochs", "three"], ["--epochs three", "integer"]),
    "no value": (["fit", "--epochs"], ["--epochs needs a value"]),
    "negative smoothing": (["fit", "--smoothing", "-1"], ["--smoothing -1", "greater than or equal to 0"]),
    "smoothing NaN": (["fit", "--smoothing", "nan"], ["--smoothing nan", "finite"]),
    "top ratio zero": (["fit", "--top-ratio", "0", "--program", "none", *SMALL], ["top ratio 0", "positive"]),
    "one-to-one impossible": (
        ["fit", "--mapping", "ilm", "--model", "timm:test_resnet", "--weights", "{two_labels}", "--canvas", "64"],
        ["10 classes", "out of 2"],
    ),
    "unreadable image": (["fit", "--data", "{broken}", *SMALL], ["005.png", "cannot be decoded"]),
    "wrong artefact": (["predict", "{shapes}", "x.png"], ["artefact.json", "does not exist"]),
    "no run": (["evaluate", "nowhere"], ["nowhere", "run folder"]),
    "wrong classes": (["evaluate", "{run}", "--data", "digits"], ["0, 1, 2, 3", "disc"]),
    "missing image": (["predict", "{run}", "nowhere.png"], ["nowhere.png", "does not exist"]),
    "image too large": (["fit", "--image-size", "300", *SMALL], ["300", "64"]),
    "frame too wide": (["fit", "--program", "watermark", "--frame", "40", *SMALL], ["40", "32"]),
    "frame without watermark": (["fit", "--frame", "4", *SMALL], ["frame", "watermark"]),
    "missing weights": (["fit", "--weights", "nowhere.safetensors"], ["nowhere.safetensors", "does not exist"]),
    "unknown device": (["fit", "--device", "warp", *SMALL], ["warp"]),
    "label sets differ": (["fit", "--mapping", "none", *SMALL], ["'none'", "source labels"]),
    "folder in use": (["fit", "--out", "{run}"], ["already holds a run", "--resume"]),
    "resume otherwise": (["fit", "--resume", "--out", "{run}", "--lr", "0.7"], ["--lr 0.7", "0.05"]),
    "resume what": (["fit", "--resume"], ["--out"]),
    "resume a typo": (["fit", "--resume", "--out", "typo"], ["'typo'", "no run to resume"]),
    "resume with a config": (["fit", "--resume", "--out", "{run}", "--config", "{bad_config}"], ["no --config"]),
    "unused setting": (["fit", "--mapping", "rlm", "--top-ratio", "all", *SMALL], ["'rlm'", "top_ratio", "blm+"]),
    "folder under a file": (["fit", "--out", "{bad_config}/x", *SMALL], ["bad.json", "check the path"]),
    "empty split": (["fit", "--data", "{empty_test}", *SMALL], ["holds no image"]),
    "unfinished run": (["predict", "{unfinished}", "x.png"], ["not finished", "--resume"]),
    "foreign class": (["evaluate", "{run}", "--data", "{foreign}"], ["'torus'", "disc"]),
    "artefact without data": (["evaluate", "{run}/artefact"], ["--data"]),
    "meta device": (["fit", "--device", "meta", *SMALL], ["'meta'", "not available"]),
    "bad config": (["fit", "--config", "{bad_config}"], ["'epohcs'", "did you mean 'epochs'"]),
    "check what": (["datasets", "check"], ["one name"]),
    "check nothing of the paper": (["datasets", "check", "flowers"], ["'flowers'", "flowers102"]),
    "a set that is not there": (["fit", "--data", "paper:dtd", *SMALL], ["paper:dtd", "'data'", "DATASETS.md"]),
    "a table without labels": (["fit", "--data", "{table}", *SMALL], ["table.csv", "label"]),
    "too many shots": (["fit", "--shots", "9999", *SMALL], ["9999 shots"]),
    "show what": (["models", "show"], ["one model"]),
    "no pattern": (["models", "timm:zzz*"], ["timm:zzz*"]),
}


@pytest.fixture(scope="module")
def places(tmp_path_factory, shapes, run):
    """The things that the mistakes are made with."""
    root = tmp_path_factory.mktemp("mistakes")
    draw_folder(root / "empty")
    (root / "empty" / "void").mkdir()
    draw_folder(root / "no_test" / "train")
    draw_folder(root / "broken", per_class=8)
    (root / "broken" / "disc" / "005.png").write_bytes(b"\x89PNG\r\n\x1a\n and no more")
    from reprogram.sources.load import import_torchvision

    import_torchvision()
    import timm
    from safetensors.torch import save_file

    save_file(timm.create_model("test_resnet", num_classes=2).state_dict(), root / "two_labels.safetensors")
    save_file(timm.create_model("test_resnet", num_classes=9).state_dict(), root / "many_labels.safetensors")
    draw_folder(root / "empty_test" / "train")
    (root / "empty_test" / "test").mkdir()
    draw_folder(root / "foreign", classes=("disc", "torus"), per_class=2)
    (root / "unfinished" / "checkpoint").mkdir(parents=True)
    (root / "table.csv").write_text("path,kind\nx.png,disc\n")
    (root / "bad.json").write_text('{"epohcs": 3}')
    return {
        "empty": root / "empty",
        "no_test": root / "no_test",
        "broken": root / "broken",
        "two_labels": root / "two_labels.safetensors",
        "many_labels": root / "many_labels.safetensors",
        "empty_test": root / "empty_test",
        "foreign": root / "foreign",
        "unfinished": root / "unfinished",
        "table": root / "table.csv",
        "shapes": shapes,
        "run": run[0],
        "bad_config": root / "bad.json",
    }


@pytest.mark.parametrize("name", MISTAKES)
def test_a_mistake_is_one_sentence_and_exit_code_2(name, places, tmp_path, monkeypatch, capsys):
    """Nothing is written either. The real entry point runs in this process, to save the imports."""
    from reprogram.cli.main import main

    arguments, words = MISTAKES[name]
    monkeypatch.chdir(tmp_path)
    assert main([argument.format(**places) for argument in arguments]) == 2
    message = capsys.readouterr().err
    assert message.startswith("reprogram: ")
    assert message.count("\n") == 1
    assert all(word in message for word in words), message
    assert list(tmp_path.iterdir()) == []


def test_a_mistake_in_a_real_process(tmp_path):
    done = here("fit", "--mapping", "blmm", cwd=tmp_path, check=False)
    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr == (
        "reprogram: mapping 'blmm' is not known; did you mean 'blm'? "
        "(known: rlm, flm, ilm, blm, blm+, gaussian, linear, sigmoid, none, ensemble, auto)\n"
    )
    assert not list(tmp_path.iterdir())


def test_a_closed_pipe_is_no_error():
    done = subprocess.run(
        f"{sys.executable} -m reprogram models 'timm:*' | head -1", shell=True, capture_output=True, text=True, check=True
    )
    assert done.stderr == ""


