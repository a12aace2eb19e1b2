"""The command line as a person types it: in a process of its own, with its output and exit code."""

import json
import re
import signal
import subprocess
import sys
import time
from dataclasses import replace

import pytest
import torch
from PIL import Image
from safetensors.torch import load_file

from command import reprogram
from conftest import draw_folder
from reprogram import load_data

SMALL = ("--model", "timm:test_resnet", "--no-pretrained", "--canvas", "64", "--batch-size", "16", "--lr", "0.05")


@pytest.fixture(scope="module")
def run(shapes, tmp_path_factory):
    """A finished run on the drawn shapes."""
    folder = tmp_path_factory.mktemp("runs") / "shapes"
    done = reprogram("fit", "--data", shapes, "--mapping", "blm", "--epochs", 3, "--out", folder, *SMALL)
    return folder, done.stdout


def test_fit_fills_the_run_folder(run):
    folder, printed = run
    assert {path.name for path in folder.iterdir()} == {
        "config.json", "metrics.jsonl", "result.json", "environment.json", "artefact", "checkpoint", "predictions.csv",
    }  # fmt: skip
    result = json.loads((folder / "result.json").read_text())
    assert set(result["accuracy"]) == {"last", "selected", "best_on_test"}
    records = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    assert [record["epoch"] for record in records] == [1, 2, 3]
    rows = (folder / "predictions.csv").read_text().splitlines()
    assert rows[0] == "image,label,predicted,confidence"
    assert len(rows) == 31
    right = sum(row.split(",")[1] == row.split(",")[2] for row in rows[1:])
    assert right / 30 == pytest.approx(result["accuracy"]["selected"])
    assert "epoch 3/3" in printed
    assert str(folder) in printed


def test_evaluate_repeats_the_number_of_the_run(run, shapes):
    folder, _ = run
    printed = reprogram("evaluate", folder).stdout
    accuracy = json.loads((folder / "result.json").read_text())["accuracy"]["selected"]
    assert f"accuracy on {shapes.name} (test): {100 * accuracy:.1f} %" in printed
    assert reprogram("evaluate", folder / "artefact", "--data", shapes).stdout.splitlines()[-2:] == printed.splitlines()[-2:]


def test_evaluate_on_another_folder_takes_all_its_images(run, tmp_path):
    """A folder without splits is measured whole, and it may lack classes that the model has."""
    draw_folder(tmp_path / "new", classes=("stripes", "disc"), per_class=7, seed=9)
    printed = reprogram("evaluate", run[0], "--data", tmp_path / "new").stdout
    assert "of 14)" in printed
    assert "square" in printed


def test_the_split_of_a_flat_folder_is_that_of_the_run(tmp_path):
    """Evaluating on the folder that a run was trained on must not take images it has trained on."""
    draw_folder(tmp_path / "flat", per_class=10)
    reprogram("fit", "--data", "flat", "--program", "none", "--seed", 3, "--out", "run", *SMALL, cwd=tmp_path)
    accuracy = json.loads((tmp_path / "run" / "result.json").read_text())["accuracy"]["last"]
    for data in ([], ["--data", "flat"]):
        assert f"(test): {100 * accuracy:.1f} %" in reprogram("evaluate", "run", *data, cwd=tmp_path).stdout


def test_a_run_with_a_weights_file_can_be_used_from_elsewhere(places, shapes, tmp_path):
    weights = tmp_path / "w.safetensors"
    weights.write_bytes(places["many_labels"].read_bytes())
    flags = (
        "--model",
        "timm:test_resnet",
        "--weights",
        "w.safetensors",
        "--canvas",
        64,
        "--program",
        "none",
        "--mapping",
        "blm",
    )
    reprogram("fit", "--data", shapes, *flags, "--out", "run", cwd=tmp_path)
    image = next((shapes / "test" / "disc").iterdir())
    expected = reprogram("predict", tmp_path / "run", image).stdout
    weights.rename(tmp_path / "moved.safetensors")
    assert reprogram("predict", tmp_path / "run", image, check=False).returncode == 2
    assert reprogram("predict", tmp_path / "run", image, "--weights", tmp_path / "moved.safetensors").stdout == expected


def test_predict_names_the_evidence(run, shapes):
    folder, _ = run
    images = sorted((shapes / "test" / "disc").iterdir())[:2]
    text = reprogram("predict", folder, *images, "--evidence", 2).stdout.splitlines()
    assert len(text) == 6
    assert text[0].startswith(f"{images[0]}: ")
    objects = [json.loads(line) for line in reprogram("predict", folder, *images, "--format", "json").stdout.splitlines()]
    assert [entry["image"] for entry in objects] == [str(image) for image in images]
    assert text[0].endswith(f"{objects[0]['label']} ({100 * objects[0]['probability']:.1f} %)")


def test_models_and_datasets_are_listed():
    assert reprogram("models", "bundled:*").stdout.split() == [f"bundled:efficientnet_lite{i}" for i in range(3)]
    assert "timm:resnet18" in reprogram("models", "timm:resnet1*").stdout.split()
    assert "digits" in reprogram("datasets").stdout


def test_help_explains_every_flag():
    from reprogram.cli.main import FitCommand

    printed = " ".join(re.sub("[│╭╮╰╯─]", " ", reprogram("fit", "--help").stdout).split())
    flags = (
        "model pretrained weights data program mapping image_size canvas frame smoothing top_ratio refresh epochs "
        "batch_size lr optimizer schedule seed device precision val_fraction out resume config"
    )
    for name in flags.split():
        assert f"--{name.replace('_', '-')}" in printed
        assert FitCommand.model_fields[name].description in printed
    overview = reprogram().stdout
    for verb in ("demo", "fit", "evaluate", "predict", "models", "datasets"):
        assert f"  {verb}" in overview
    assert reprogram("fit", "--resume", "--help").returncode == 0


def test_without_a_program_the_fit_is_one_pass(shapes, tmp_path):
    reprogram("fit", "--data", shapes, "--program", "none", "--mapping", "blm", "--out", tmp_path / "run", *SMALL)
    records = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    assert len(records) == 1
    assert records[0]["loss"] is None


def test_a_config_file_gives_defaults_and_flags_go_before_it(run, tmp_path):
    folder, _ = run
    reprogram("fit", "--config", folder / "config.json", "--epochs", 1, "--mapping", "rlm", "--out", tmp_path / "run")
    config = json.loads((tmp_path / "run" / "config.json").read_text())
    expected = json.loads((folder / "config.json").read_text())
    assert config == expected | {"epochs": 1, "mapping": "rlm"}


def test_the_default_run_folder_is_new_each_time(shapes, tmp_path):
    for _ in range(2):
        reprogram("fit", "--data", shapes, "--program", "none", "--mapping", "rlm", *SMALL, cwd=tmp_path)
    assert sorted(path.name for path in (tmp_path / "runs").iterdir()) == [
        f"{shapes.name}-none-rlm",
        f"{shapes.name}-none-rlm-2",
    ]


def without_times(path):
    records = [json.loads(line) for line in path.read_text().splitlines()]
    return [
        {key: value for key, value in record.items() if key not in ("seconds", "images_per_second")} for record in records
    ]


def test_bad_images_are_skipped_on_demand_and_listed(tmp_path):
    folder = draw_folder(tmp_path / "set", per_class=8)
    (folder / "disc" / "003.png").write_bytes(b"")
    flags = ("fit", "--data", folder, "--program", "none", *SMALL, "--out", tmp_path / "run")
    assert "003.png" in reprogram(*flags, check=False).stderr
    assert not (tmp_path / "run").exists()
    reprogram(*flags, "--skip-bad")
    result = json.loads((tmp_path / "run" / "result.json").read_text())
    assert len(result["skipped"]) == 1
    assert "003.png" in result["skipped"][0]
    assert sum(result["images"].values()) == 23


def test_shots_and_fraction(shapes, tmp_path):
    for name, flags, expected in (("shots", ["--shots", 4], 12), ("fraction", ["--fraction", 0.5], 42)):
        reprogram("fit", "--data", shapes, "--program", "none", *flags, *SMALL, "--no-cache", "--out", tmp_path / name)
        assert json.loads((tmp_path / name / "result.json").read_text())["images"]["train"] == expected


def paper_eurosat(root, per_class=3):
    """CoOp's layout of EuroSAT, much smaller."""
    entries = {"train": [], "val": [], "test": []}
    for label in range(10):
        for number in range(3 * per_class):
            path = f"Class_{label}/{number}.jpg"
            (root / "eurosat" / "2750" / path).parent.mkdir(parents=True, exist_ok=True)
            Image.new("RGB", (64, 64), (25 * label, 10 * number, 99)).save(root / "eurosat" / "2750" / path)
            entries[("train", "val", "test")[number % 3]].append([path, label, f"Class_{label}"])
    (root / "eurosat" / "split_zhou_EuroSAT.json").write_text(json.dumps(entries))
    return root


def test_a_set_of_the_paper_under_its_protocol(tmp_path):
    root = paper_eurosat(tmp_path / "sets")
    assert re.search(r"paper:eurosat .*present", reprogram("datasets", "--data-root", root).stdout)
    done = reprogram("datasets", "check", "paper:eurosat", "--data-root", root, check=False)
    assert done.returncode == 2
    assert "13,500" in done.stdout
    flags = ("fit", "--data", "paper:eurosat", "--data-root", root, "--protocol", "paper", "--epochs", 1, "--canvas", 56)
    model = ("--model", "timm:test_resnet", "--no-pretrained")
    printed = reprogram(*flags, *model, "--program", "watermark", "--out", tmp_path / "run").stdout
    config = json.loads((tmp_path / "run" / "config.json").read_text())
    assert (config["epochs"], config["lr"], config["batch_size"]) == (1, 0.01, 256)
    assert "13,500" in printed, "the difference from the published counts is said"
    reprogram(*flags, *model, "--out", tmp_path / "padded")
    program = json.loads((tmp_path / "padded" / "artefact" / "artefact.json").read_text())["program"]
    assert program["image_size"] == 32, "128 px on a canvas of 224"


def test_flips_are_the_paper_s_and_else_only_where_they_are_safe(tmp_path):
    from reprogram.run.config import FitConfig

    data = load_data(draw_folder(tmp_path / "set"))
    for program, protocol, safe, expected in (
        ("watermark", "default", None, "crop"),
        ("watermark", "default", False, "crop"),
        ("watermark", "default", True, "flip"),
        ("watermark", "paper", False, "flip"),
        ("padding", "paper", True, "none"),
    ):
        config = FitConfig(program=program, protocol=protocol)
        assert config.training_settings(replace(data, flip_safe=safe)).augment == expected


def test_models_are_described_and_other_sources_explained(places):
    shown = reprogram("models", "show", "timm:test_resnet").stdout
    assert re.search(r"labels +1000: tench; goldfish", shown)
    assert "WordNet" in shown
    assert "onnx:FILE" in reprogram("models", "onnx:*").stdout


MANY = 16  # epochs: enough that a signal comes in time also on a busy machine


def interrupt_in_an_epoch(arguments, folder, epochs_done, how):
    """Start a fit, wait for some finished epochs, and send a signal while the next one runs."""
    process = subprocess.Popen(
        [sys.executable, "-m", "reprogram", *map(str, arguments)],
        stdout=subprocess.PIPE,
        text=True,
        # a test run in the background of a shell ignores Ctrl-C and would hand that on
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    metrics = folder / "metrics.jsonl"
    deadline = time.monotonic() + 120
    while not (metrics.exists() and len(metrics.read_text().splitlines()) >= epochs_done):
        assert process.poll() is None, "the fit ended before it could be interrupted"
        assert time.monotonic() < deadline
        time.sleep(0.002)
    time.sleep(0.05)
    process.send_signal(how)
    printed, _ = process.communicate(timeout=60)
    assert len(metrics.read_text().splitlines()) < MANY, "the fit was over before the signal came"
    assert not (folder / "result.json").exists()
    return process.returncode, printed


@pytest.mark.parametrize("mapping", ["blm+", "ilm"])
def test_a_killed_fit_resumes_to_the_bit(shapes, tmp_path, mapping):
    """SIGKILL in an epoch, then --resume: the same accuracies, metrics, θ and ω as an undisturbed run."""
    arguments = ("fit", "--data", shapes, "--mapping", mapping, "--epochs", MANY, *SMALL)
    reprogram(*arguments, "--out", tmp_path / "whole")
    code, _ = interrupt_in_an_epoch((*arguments, "--out", tmp_path / "cut"), tmp_path / "cut", 2, signal.SIGKILL)
    assert code == -signal.SIGKILL
    (tmp_path / "cut" / "checkpoint" / ".state.safetensors.1.tmp").write_bytes(b"half a file")
    reprogram("fit", "--resume", "--out", tmp_path / "cut")
    listings = [
        sorted(str(path.relative_to(root)) for path in root.rglob("*")) for root in (tmp_path / "cut", tmp_path / "whole")
    ]
    assert listings[0] == listings[1]
    assert without_times(tmp_path / "cut" / "metrics.jsonl") == without_times(tmp_path / "whole" / "metrics.jsonl")
    whole, cut = (json.loads((tmp_path / name / "result.json").read_text()) for name in ("whole", "cut"))
    assert whole["accuracy"] == cut["accuracy"]
    for file in ("artefact/artefact.safetensors", "checkpoint/state.safetensors"):
        expected, found = load_file(tmp_path / "whole" / file), load_file(tmp_path / "cut" / file)
        assert expected.keys() == found.keys()
        assert all(torch.equal(expected[key], found[key]) for key in expected)
    assert (tmp_path / "cut" / "predictions.csv").read_text() == (tmp_path / "whole" / "predictions.csv").read_text()


def test_ctrl_c_leaves_a_resumable_run_and_says_how(shapes, tmp_path):
    arguments = ("fit", "--data", shapes, "--epochs", MANY, *SMALL, "--out", tmp_path / "run")
    code, printed = interrupt_in_an_epoch(arguments, tmp_path / "run", 1, signal.SIGINT)
    assert code == 130
    assert f"reprogram fit --resume --out {tmp_path / 'run'}" in printed
    reprogram("fit", "--resume", "--out", tmp_path / "run")
    assert len((tmp_path / "run" / "metrics.jsonl").read_text().splitlines()) == MANY


def test_resuming_a_finished_run_changes_nothing(run):
    folder, _ = run
    before = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file() and path.name != "environment.json"}
    reprogram("fit", "--resume", "--out", folder)
    assert before == {path: path.read_bytes() for path in before}


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
    done = reprogram("fit", "--mapping", "blmm", cwd=tmp_path, check=False)
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


def test_an_image_of_another_size_and_mode_is_classified(run, tmp_path):
    Image.new("LA", (300, 20), (120, 30)).save(tmp_path / "grey alpha.png")
    assert reprogram("predict", run[0], tmp_path / "grey alpha.png").stdout.startswith(f"{tmp_path}/grey alpha.png: ")


def test_auto_chooses_a_mapping_once_and_says_why(shapes, tmp_path):
    folder = tmp_path / "auto"
    done = reprogram("fit", "--data", shapes, "--mapping", "auto", "--epochs", 2, "--out", folder, *SMALL)
    selection = json.loads((folder / "selection.json").read_text())
    chosen = json.loads((folder / "artefact" / "artefact.json").read_text())["mapping"]
    assert chosen["name"] == selection["choice"]["mapping"]
    assert f"chosen {chosen['name']}" in done.stdout
    assert {row["mapping"] for row in selection["table"]} == {"flm", "blm", "blm+", "gaussian"}
    again = reprogram("fit", "--resume", "--out", folder)
    assert "chosen" not in again.stdout
    refused = reprogram("fit", "--data", shapes, "--mapping", "auto", "--smoothing", 3, *SMALL, cwd=tmp_path, check=False)
    assert refused.returncode == 2
    assert "smoothing = 3.0 was given, but mapping auto chooses it" in refused.stderr
