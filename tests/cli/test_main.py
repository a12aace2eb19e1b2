"""The command line as a whole: its help, its mistakes, and how soon it finds them."""

import importlib
import json
import re
import subprocess
import sys

import numpy as np
import pytest

from command import SMALL, here, reprogram
from conftest import draw_folder
from reprogram.cli.table import COMMANDS
from tiny_onnx import onnx_of_means

#: Positional in all commands that have them.
WORDS = {"words", "run", "runs", "images", "files", "artefact", "pattern", "name", "path", "method"}


def plain(text):
    """A help text without the frames and line breaks that tyro sets it in."""
    return " ".join(re.sub("[│╭╮╰╯─]", " ", text).split())


@pytest.mark.parametrize("verb", COMMANDS)
def test_help_explains_every_flag(verb):
    """With the settings of all mappings, programs and sources, where the command takes them."""
    command = COMMANDS[verb]
    with pytest.raises(SystemExit) as left:
        here(*verb.split(), "--help")
    assert left.value.code == 0
    printed = plain(reprogram(*verb.split(), "--help").stdout)
    for name, field in {**command.schema.model_fields, **command.further()}.items():
        positional = (
            name in WORDS - {"run"} or (name == "run" and verb != "logits") or (verb, name) == ("map predict", "mapping")
        )
        assert positional or f"--{name.replace('_', '-')}" in printed, name
        assert plain(field.description) in printed, name


def test_the_overview_names_every_verb():
    overview = here().stdout
    assert all(f"\n  {verb} " in overview for verb in COMMANDS)
    assert here("--help").stdout == here("-h").stdout == overview
    assert max(map(len, overview.splitlines())) <= 80
    assert re.fullmatch(r"reprogram \d+\.\d+.*\n", here("--version").stdout)


MISTAKES = {
    "a flag twice": (["fit", "--epochs", "3", "--epochs", "4"], ["--epochs was given 2 times"]),
    "home of nobody": (["fit", "~nobody-here/photos"], ["begins with ~"]),
    "missing folder": (["fit", "--data", "nowhere"], ["nowhere", "folder"]),
    "missing table": (["fit", "--data", "nowhere.csv"], ["'nowhere.csv'", "does not exist"]),
    "missing arrays": (["fit", "nowhere.npz"], ["'nowhere.npz'", "does not exist"]),
    "empty class": (["fit", "--data", "{empty}"], ["holds no image"]),
    "no test split": (["fit", "--data", "{no_test}"], ["no test split"]),
    "unknown model": (["fit", "--model", "timm:resnet19"], ["resnet19", "resnet18"]),
    "unknown source": (["fit", "--model", "resnet18"], ["source:name"]),
    "missing onnx file": (["fit", "--model", "onnx:nowhere.onnx"], ["nowhere.onnx", "does not exist"]),
    "unknown mapping": (["fit", "--mapping", "blmm"], ["'blmm'", "did you mean 'blm'"]),
    "unknown program": (["fit", "--program", "pading"], ["'pading'", "padding"]),
    "unknown flag": (["fit", "--epohcs", "3"], ["--epohcs", "--epochs"]),
    "unknown verb": (["fitt"], ["'fitt'", "'fit'"]),
    "a word too many": (["fit", "digits", "more"], ["'more'", "not expected"]),
    "data twice": (["fit", "digits", "--data", "digits"], ["both given"]),
    "no number": (["fit", "--epochs", "three"], ["--epochs three", "integer"]),
    "no value": (["fit", "--epochs"], ["--epochs needs a value"]),
    "no value before a flag": (["fit", "--epochs", "--lr", "0.1"], ["--epochs needs a value"]),
    "a switch with a value": (["fit", "--resume=yes"], ["--resume takes no value", "'yes'"]),
    "no epochs": (["fit", "--epochs", "0"], ["--epochs 0", "greater than or equal to 1"]),
    "a batch beyond all bounds": (["fit", "--batch-size", "9223372036854775808"], ["--batch-size", "less than or equal"]),
    "a seed beyond all bounds": (["fit", "--seed", "9223372036854775808"], ["--seed 9223372036854775808", "less than"]),
    "shots beyond all bounds": (["fit", "--shots", "9223372036854775808"], ["--shots 9223372036854775808", "below 2^63"]),
    "an option beyond all bounds": (
        ["fit", "--mapping", "blm+", "--top-k", "9223372036854775808"],
        ["--top-k 9", "below 2^63"],
    ),
    "a row beyond all bounds": (["map", "x.npz", "--seed", "9223372036854775808"], ["--seed 9", "below 2^63"]),
    "a number without end": (["fit", "--seed", "9" * 5000], ["--seed ", "9999", "integer"]),
    "a config beyond all bounds": (["fit", "--config", "{beyond}"], ["--split-seed 9", "below 2^63"]),
    "a canvas for no memory": (
        ["fit", *SMALL[:3], "--canvas", "4611686018427387904"],
        ["equal to 8192", "--canvas"],
    ),
    "negative smoothing": (
        ["fit", "--mapping", "blm", "--smoothing", "-1"],
        ["--smoothing -1", "greater than or equal to 0"],
    ),
    "smoothing NaN": (["fit", "--mapping", "blm", "--smoothing", "nan"], ["--smoothing nan", "finite"]),
    "top ratio zero": (
        ["fit", "--mapping", "blm+", "--top-ratio", "0", "--program", "none", *SMALL],
        ["--top-ratio 0", "greater than 0 or 'all'"],
    ),
    "unknown optimizer": (["fit", "--optimizer", "adamw"], ["--optimizer adamw", "'adam' or 'sgd'"]),
    "one-to-one impossible": (
        ["fit", "--mapping", "ilm", "--model", "timm:test_resnet", "--weights", "{two_labels}", "--canvas", "64"],
        ["10 classes", "out of 2"],
    ),
    "unreadable image": (["fit", "--data", "{broken}", *SMALL], ["005.png", "cannot be decoded", "--skip-bad"]),
    "wrong artefact": (["predict", "{shapes}", "{image}"], ["neither a run nor a mapping", "reprogram fit"]),
    "no run": (["evaluate", "nowhere"], ["nowhere", "run folder"]),
    "no run to predict with": (["predict", "nowhere", "{image}"], ["nowhere", "run folder"]),
    "a run with a slip": (["predict", "{run}x", "{image}"], ["shapesx' is not a folder", "; did you mean 'shapes'?"]),
    "a file of a run": (["predict", "{run}/config.json", "{image}"], ["config.json' is not a folder", "artefact folder\n"]),
    "images before the run": (["predict", "{shapes}", "{run}"], ["is no run, but '", "is one; give the run first"]),
    "an address": (["predict", "{run}", "https://example.org/cat.jpg"], ["is an address", "nothing is fetched", "save it"]),
    "no such device": (["predict", "{run}", "{image}", "--device", "gpu"], ["device 'gpu' is not available"]),
    "an export as a file": (["export", "{run}", "--out", "model.onnx"], ["'model.onnx' ends like a file", "name a folder"]),
    "nothing to serve": (["serve", "{shapes}"], ["holds no run and no artefact", "a folder of runs"]),
    "exports to serve": (["serve", "{exported}"], ["holds exports and no run", "--backend onnxruntime"]),
    "a folder of folders to serve": (["serve", "{runs_above}"], ["holds no run itself, but '", "/deep' does; give that"]),
    "an image with a slip": (["predict", "{run}", "{shapes}/tests"], ["tests' does not exist", "; did you mean 'test'?"]),
    "wrong classes": (["evaluate", "{run}", "--data", "digits"], ["a class '0'", "disc"]),
    "missing image": (["predict", "{run}", "nowhere.png"], ["nowhere.png", "does not exist"]),
    "a folder without images": (
        ["predict", "{run}", "{run}/artefact"],
        ["no image was found in folder '", "/artefact' (1 .json", "left out)", "folders that hold some"],
    ),
    "a pattern without images": (["predict", "{run}", "{run}/*.jpg"], ["found by pattern '", "/*.jpg';", "patterns such"]),
    "words without images": (
        ["predict", "{run}", "{run}/artefact", "*.png", "{run}/[ab]", "~/nothing*here", "?"],
        ["no image was found in folder '", ", by pattern '*.png', by pattern '", "nothing*here' and 1 more (1 .json"],
    ),
    "a folder of runs": (["predict", "{runs}", "{image}"], ["is no run but holds runs: birds, boats; give one", "birds'"]),
    "a folder of folders of runs": (
        ["evaluate", "{runs_above}"],
        ["is no run but holds runs: deep/birds, deep/boats; give one"],
    ),
    "a folder of one run": (["export", "{run}/.."], ["is no run but holds one: shapes; give '"]),
    "an export for a run": (["evaluate", "{exported}"], ["is an export", "give the run that it was made from"]),
    "a report on a folder of runs": (["report", "{runs}"], ["holds runs: birds, boats"]),
    "a figure of a folder of runs": (["figure", "{runs}"], ["holds runs: birds, boats"]),
    "logits of a folder of runs": (["logits", "--run", "{runs}", "--out", "x"], ["holds runs: birds, boats"]),
    "no image": (["predict", "{run}"], ["no image was given", "RUN PATH"]),
    "two lists": (["predict", "{run}", "-", "-"], ["given twice", "once"]),
    "null without a list": (["predict", "{run}", "{image}", "--null"], ["--null", "give -"]),
    "resume without out": (["predict", "{run}", "{image}", "--resume"], ["--resume", "--out"]),
    "parquet in a terminal": (["predict", "{run}", "{image}", "--format", "parquet"], ["no text", "--out"]),
    "text in a file": (["predict", "{run}", "{image}", "--out", "x.csv", "--format", "text"], ["--format text", "csv"]),
    "resume and replace": (["predict", "{run}", "{image}", "--out", "x.csv", "--resume", "--replace"], ["both given"]),
    "predictions of no format": (["predict", "{run}", "{image}", "--out", "x.txt"], ["x.txt", ".csv, .jsonl, .parquet"]),
    "predictions in a folder": (["predict", "{run}", "{image}", "--out", "{run}", "--format", "csv"], ["is a folder"]),
    "an address without ray": (["predict", "{run}", "{image}", "--address", "auto"], ["--engine ray"]),
    "evaluate where": (["evaluate"], ["RUN is missing"]),
    "a split that is not there": (["evaluate", "{run}", "--data", "{foreign}", "--split", "dev"], ["--split dev"]),
    "image too large": (["fit", "--program", "padding", "--image-size", "300", *SMALL], ["300", "64"]),
    "frame too wide": (["fit", "--program", "watermark", "--frame", "40", *SMALL], ["40", "32"]),
    "frame without watermark": (["fit", "--program", "padding", "--frame", "4", *SMALL], ["frame", "watermark"]),
    "missing weights": (["fit", "--weights", "nowhere.safetensors"], ["nowhere.safetensors", "does not exist"]),
    "unknown device": (["fit", "--device", "warp", *SMALL], ["warp"]),
    "label sets differ": (["fit", "--mapping", "none", *SMALL], ["'none'", "source labels"]),
    "folder in use": (["fit", "--out", "{run}"], ["already holds a run", "--resume"]),
    "no run folder": (["fit", "--out", "{shapes}"], ["already exists and is not a run"]),
    "resume otherwise": (["fit", "--resume", "--out", "{run}", "--lr", "0.7"], ["--lr 0.7", "0.05"]),
    "resume with another mapping": (["fit", "--resume", "--out", "{run}", "--mapping", "ilm"], ["--mapping ilm", "blm"]),
    "resume with fewer epochs": (["fit", "--resume", "--out", "{run}", "--epochs", "2"], ["--epochs 2", "has 3"]),
    "resume what": (["fit", "--resume"], ["--out"]),
    "resume a typo": (["fit", "--resume", "--out", "typo"], ["'typo'", "no run to resume"]),
    "resume with a config": (["fit", "--resume", "--out", "{run}", "--config", "{bad_config}"], ["no --config"]),
    "resume a run without settings": (
        ["fit", "--resume", "--out", "{listed}"],
        ["carries no SHA-256"],
    ),
    "unused setting": (["fit", "--mapping", "rlm", "--top-ratio", "all", *SMALL], ["'rlm'", "top_ratio", "blm+"]),
    "folder under a file": (["fit", "--out", "{bad_config}/x", *SMALL], ["bad.json", "check the path"]),
    "empty split": (["fit", "--data", "{empty_test}", *SMALL], ["holds no image"]),
    "unfinished run": (["predict", "{unfinished}", "{image}"], ["not finished", "--resume"]),
    "foreign class": (["evaluate", "{run}", "--data", "{foreign}"], ["'torus'", "disc"]),
    "artefact without data": (["evaluate", "{run}/artefact"], ["--data"]),
    "meta device": (["fit", "--device", "meta", *SMALL], ["'meta'", "not available"]),
    "bad config": (["fit", "--config", "{bad_config}"], ["'epohcs'", "did you mean 'epochs'"]),
    "a config that is a list": (["fit", "--config", "{listed}/config.json"], ["table of settings"]),
    "no config": (["fit", "--config", "nowhere.json"], ["nowhere.json", "does not exist"]),
    "a config that is no JSON": (["fit", "--config", "{table}"], ["table.csv", "not a readable JSON file"]),
    "check what": (["datasets", "check"], ["NAME is missing"]),
    "check nothing of the paper": (["datasets", "check", "flowers"], ["'flowers'", "flowers102"]),
    "a set that is not there": (["fit", "--data", "paper:dtd", *SMALL], ["paper:dtd", "data", "DATASETS.md"]),
    "no set of the paper": (["fit", "--data", "paper:dtdd", *SMALL], ["'dtdd'", "dtd"]),
    "a table without labels": (["fit", "--data", "{table}", *SMALL], ["table.csv", "label"]),
    "arrays without labels": (["fit", "--data", "{arrays}", *SMALL], ["arrays.npz", "labels"]),
    "too many shots": (["fit", "--shots", "9999", *SMALL], ["9999 shots"]),
    "shots and fraction": (["fit", "--shots", "2", "--fraction", "0.5", *SMALL], ["both given"]),
    "show what": (["models", "show"], ["NAME is missing"]),
    "show nothing": (["models", "show", "timm:resnet19"], ["resnet19"]),
    "no pattern": (["models", "timm:zzz*"], ["timm:zzz*"]),
    "a program for a model without gradients": (["fit", "--model", "onnx:{onnx}", "--program", "padding"], ["no gradients"]),
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
    draw_folder(root / "empty_test" / "train")
    (root / "empty_test" / "test").mkdir()
    draw_folder(root / "foreign", classes=("disc", "torus"), per_class=2)
    (root / "unfinished" / "checkpoint").mkdir(parents=True)
    (root / "table.csv").write_text("path,kind\nx.png,disc\n")
    np.savez(root / "arrays.npz", images=np.zeros((4, 8, 8), np.uint8))
    (root / "bad.json").write_text('{"epohcs": 3}')
    (root / "beyond.json").write_text('{"split_seed": 9223372036854775808}')
    (root / "listed").mkdir()
    (root / "exported").mkdir()
    (root / "exported" / "export.json").write_text("{}")
    for number, name in enumerate(("boats", "birds", ".hidden", "photos")):
        (root / "above" / "deep" / name).mkdir(parents=True)
        if number < 3:
            (root / "above" / "deep" / name / "artefact").symlink_to(run[0] / "artefact")
    (root / "listed" / "config.json").write_text(json.dumps([1, 2]))
    names = ("empty", "no_test", "broken", "empty_test", "foreign", "unfinished", "listed")
    return {name: root / name for name in names} | {
        "two_labels": root / "two_labels.safetensors",
        "table": root / "table.csv",
        "arrays": root / "arrays.npz",
        "onnx": onnx_of_means(root / "model.onnx"),
        "shapes": shapes,
        "image": next((shapes / "test" / "disc").iterdir()),
        "run": run[0],
        "runs": root / "above" / "deep",
        "runs_above": root / "above",
        "exported": root / "exported",
        "bad_config": root / "bad.json",
        "beyond": root / "beyond.json",
    }


@pytest.mark.parametrize("name", MISTAKES)
def test_a_mistake_is_one_sentence_and_exit_code_2(name, places, tmp_path):
    """Nothing is written either, and nothing that was there is changed."""
    arguments, words = MISTAKES[name]
    everything = [*places["run"].rglob("*"), *places["listed"].rglob("*"), *places["unfinished"].rglob("*")]
    before = {path: path.stat().st_mtime_ns for path in everything}
    done = here(*(argument.format(**places) for argument in arguments), cwd=tmp_path, check=False)
    assert done.returncode == 2, done.stdout
    assert done.stderr.startswith("reprogram: ")
    assert done.stderr.count("\n") == 1
    assert all(word in done.stderr for word in words), done.stderr
    assert list(tmp_path.iterdir()) == []
    assert before == {path: path.stat().st_mtime_ns for path in everything}


def test_a_mistake_in_a_real_process(tmp_path):
    done = reprogram("fit", "--mapping", "blmm", cwd=tmp_path, check=False)
    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr == (
        "reprogram: mapping 'blmm' is not known; did you mean 'blm'? "
        "(known: rlm, flm, ilm, blm, blm+, gaussian, gaussian+, linear, sigmoid, none, ensemble, auto)\n"
    )
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["--version"],
        ["fitt"],
        ["fit", "--help"],
        ["fit", "--mapping", "blmm"],
        ["fit", "--program", "pading"],
        ["fit", "--epohcs", "3"],
        ["fit", "--epochs", "three"],
        ["fit", "--mapping", "blm", "--smoothing", "-1"],
        ["fit", "--mapping", "rlm", "--top-ratio", "all"],
        ["fit", "--image-size", "9", "--frame", "3"],
        ["fit", "nowhere"],
        ["fit", "--data", "nowhere.csv"],
        ["fit", "--data", "paper:dtd"],
        ["fit", "--model", "resnet18"],
        ["fit", "--model", "onnx:nowhere.onnx"],
        ["fit", "--weights", "nowhere.safetensors"],
        ["fit", "--config", "nowhere.json"],
        ["fit", "--resume", "--out", "nowhere"],
        ["evaluate", "nowhere"],
        ["evaluate", ".", "--data", "nowhere"],
        ["evaluate", "."],
        ["report", "."],
        ["export", "."],
        ["predict", "nowhere", "x.png"],
        ["predict", ".", "nowhere.png"],
        ["predict", ".", ".", "--resume"],
        ["predict", ".", ".", "--out", "x.txt"],
        ["map", "x", "--mapping", "blmm"],
        ["logits", "--out", "x", "--data", "nowhere"],
        ["logits", "--out", "x", "--run", "nowhere"],
    ],
    ids=" ".join,
)
def test_what_can_be_known_at_once_is_said_before_torch_is_imported(arguments, tmp_path):
    """Importing torch takes seconds, on a busy machine half a minute."""
    fine = not arguments or arguments[-1] in ("--version", "--help")
    assert left_by(arguments, tmp_path) == f"left {0 if fine else 2} []"
    assert not list(tmp_path.iterdir())


def left_by(arguments, folder):
    """The exit code of a command in a process of its own, and which heavy packages it has imported."""
    code = (
        "import sys\n"
        "from reprogram.cli.main import main\n"
        "try:\n    code = main(sys.argv[1:])\n"
        "except SystemExit as left:\n    code = left.code\n"
        "heavy = [name for name in ('torch', 'timm', 'torchvision', 'sklearn', 'PIL') if name in sys.modules]\n"
        "print(f'left {code} {heavy}', file=sys.stderr)"
    )
    command = [sys.executable, "-c", code, *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, cwd=folder, check=True).stderr.splitlines()[-1]


def test_words_that_mean_no_image_are_told_before_torch_is_imported(run, tmp_path):
    """Pillow knows which files are images."""
    assert left_by(["predict", run[0], ".", "*.jpg", "--out", "x.csv"], tmp_path) == "left 2 ['PIL']"
    assert not list(tmp_path.iterdir())


def test_a_closed_pipe_is_no_error():
    done = subprocess.run(
        f"{sys.executable} -m reprogram models 'timm:*' | head -1", shell=True, capture_output=True, text=True, check=True
    )
    assert done.stderr == ""


@pytest.mark.parametrize("moment", ["sleep_while_waiting", "outlets", "_dispatch"])
def test_an_interrupt_at_any_moment_shows_no_traceback(moment, monkeypatch, capsys):
    def interrupted(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(f"reprogram.cli.main.{moment}", interrupted)
    assert importlib.import_module("reprogram.cli.main").main(["models"]) == 130
    assert capsys.readouterr().err == ""
