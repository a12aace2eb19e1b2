"""`reprogram fit`: its run folder, its defaults, and going on after a kill."""

import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import time

import pytest
import torch
from safetensors.torch import load_file

from command import PADDING, SMALL, here, reprogram
from conftest import draw_folder
from reprogram.cli import fit as cli_fit
from reprogram.run.config import FitConfig
from reprogram.run.folder import run_fit
from reprogram.training.checkpoint import read_checkpoint
from sealed import content, without_times


def test_fit_fills_the_run_folder(run):
    folder, printed = run
    assert {path.name for path in folder.iterdir()} == {
        "config.json", "metrics.jsonl", "result.json", "environment.json", "artefact", "checkpoint", "predictions.csv",
        "images.txt", "first.json", "program.safetensors", "report.html",
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


def test_without_a_program_the_fit_is_one_pass(shapes, tmp_path):
    here("fit", "--data", shapes, "--program", "none", "--mapping", "blm", "--out", tmp_path / "run", *SMALL)
    records = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    assert len(records) == 1
    assert records[0]["loss"] is None


def test_a_config_file_gives_defaults_and_flags_go_before_it(run, tmp_path):
    folder, _ = run
    here("fit", "--config", folder / "config.json", "--epochs", 1, "--mapping", "rlm", "--out", tmp_path / "run")
    config = content(tmp_path / "run" / "config.json")
    expected = content(folder / "config.json")
    for name in ("smoothing", "refresh", "folds"):  # of blm, which was replaced
        del expected[name]
    changed = {"epochs": 1, "mapping": "rlm"}
    assert config == expected | changed | {"given": expected["given"] | changed}


def test_the_default_run_folder_is_new_each_time(shapes, tmp_path):
    for _ in range(2):
        here("fit", "--data", shapes, "--program", "none", "--mapping", "rlm", *SMALL, cwd=tmp_path)
    assert sorted(path.name for path in (tmp_path / "runs").iterdir()) == [
        f"{shapes.name}-none-rlm",
        f"{shapes.name}-none-rlm-2",
    ]


def test_bad_images_are_skipped_on_demand_and_listed(tmp_path):
    folder = draw_folder(tmp_path / "set", per_class=8)
    (folder / "disc" / "003.png").write_bytes(b"")
    flags = ("fit", "--data", folder, "--program", "none", *SMALL, "--out", tmp_path / "run")
    assert "003.png" in here(*flags, check=False).stderr
    assert not (tmp_path / "run").exists()
    here(*flags, "--skip-bad")
    result = json.loads((tmp_path / "run" / "result.json").read_text())
    assert len(result["skipped"]) == 1
    assert "003.png" in result["skipped"][0]
    assert sum(result["images"].values()) == 23


def test_shots_and_fraction(shapes, tmp_path):
    for name, flags, expected in (("shots", ["--shots", 4], 12), ("fraction", ["--fraction", 0.5], 42)):
        here("fit", "--data", shapes, "--program", "none", *flags, *SMALL, "--no-cache", "--out", tmp_path / name)
        assert json.loads((tmp_path / name / "result.json").read_text())["images"]["train"] == expected


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
    arguments = ("fit", "--data", shapes, "--mapping", mapping, "--epochs", MANY, *PADDING, *SMALL)
    here(*arguments, "--out", tmp_path / "whole")
    code, _ = interrupt_in_an_epoch((*arguments, "--out", tmp_path / "cut"), tmp_path / "cut", 2, signal.SIGKILL)
    assert code == -signal.SIGKILL
    (tmp_path / "cut" / "checkpoint" / ".state.safetensors.1.tmp").write_bytes(b"half a file")
    here("fit", "--resume", "--out", tmp_path / "cut")
    listings = [
        sorted(str(path.relative_to(root)) for path in root.rglob("*")) for root in (tmp_path / "cut", tmp_path / "whole")
    ]
    assert listings[0] == listings[1]
    assert without_times(tmp_path / "cut" / "metrics.jsonl") == without_times(tmp_path / "whole" / "metrics.jsonl")
    whole, cut = (json.loads((tmp_path / name / "result.json").read_text()) for name in ("whole", "cut"))
    assert whole["accuracy"] == cut["accuracy"]
    for file in ("artefact/artefact.safetensors", "checkpoint/state.safetensors", "program.safetensors"):
        expected, found = load_file(tmp_path / "whole" / file), load_file(tmp_path / "cut" / file)
        assert expected.keys() == found.keys()
        assert all(torch.equal(expected[key], found[key]) for key in expected)
    assert (tmp_path / "cut" / "predictions.csv").read_text() == (tmp_path / "whole" / "predictions.csv").read_text()


def as_stored(folder):
    content = json.loads((folder / "config.json").read_text())
    return content["epochs"], content["minutes"], content["given"].get("epochs")


@pytest.mark.parametrize("said", [[], ["--minutes", 60]], ids=["alone", "with the minutes"])
def test_going_on_is_no_wish_for_a_training_without_a_clock(shapes, tmp_path, said):
    """Killed before the first epoch, after one, and finished: the minutes and what was planned by them stay."""
    folder = tmp_path / "run"
    how = ("fit", "--data", shapes, "--mapping", "blm", *PADDING, *SMALL, "--out", folder)
    code, _ = interrupt_in_an_epoch((*how, "--minutes", 60), folder, 0, signal.SIGKILL)
    assert code == -signal.SIGKILL
    shutil.rmtree(folder / "checkpoint", ignore_errors=True)
    assert as_stored(folder)[1:] == (60, None)
    again = ("--resume", "--out", folder, *said)
    code, _ = interrupt_in_an_epoch(("fit", *again), folder, 2, signal.SIGKILL)
    assert code == -signal.SIGKILL
    assert as_stored(folder) == (200, 60, None)  # an hour has room for all that are allowed
    checkpoint = read_checkpoint(folder / "checkpoint" / "state.safetensors")[1]
    assert checkpoint["planned"] == 200
    refused = here("fit", *again, "--epochs", 20, check=False)
    assert refused.returncode == 2
    assert "--epochs 20 was given, but the run in" in refused.stderr


def test_a_run_whose_time_is_up_is_finished_until_epochs_are_said(shapes, tmp_path):
    folder = tmp_path / "run"
    how = ("fit", "--data", shapes, "--mapping", "blm", *SMALL, "--program", "auto", "--out", folder)
    first = here(*how, "--minutes", "0.001").stdout
    assert "no program is trained: the time is up (minutes = 0.001); with epochs = 20, say, it goes on all the same" in first
    kept = ("config.json", "result.json", "metrics.jsonl")
    before = [(folder / name).read_text() for name in kept]
    for more in ([], ["--minutes", "0.001"], []):
        assert "the time is up" in here("fit", "--resume", "--out", folder, *more).stdout
        assert [(folder / name).read_text() for name in kept] == before
    assert "epoch 1/2" in here("fit", "--resume", "--out", folder, "--epochs", 2).stdout
    assert as_stored(folder) == (2, None, 2)


def test_a_cache_that_is_cut_under_a_run_ends_it_with_a_word_and_resume_decodes_again(shapes, tmp_path):
    arguments = ("fit", "--data", shapes, "--mapping", "blm", "--epochs", 12, *PADDING, *SMALL, "--out", tmp_path / "run")
    environment = {**os.environ, "REPROGRAM_CACHE": str(tmp_path / "cache")}
    command = [sys.executable, "-m", "reprogram", *map(str, arguments)]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, env=environment)
    while not (tmp_path / "run" / "metrics.jsonl").exists():
        assert process.poll() is None
        time.sleep(0.002)
    for path in (tmp_path / "cache").glob("*.npy"):
        os.truncate(path, 100)
    _, told = process.communicate(timeout=120)
    assert process.returncode == -signal.SIGBUS
    assert "Bus error" in told
    reprogram("fit", "--resume", "--out", tmp_path / "run", env=environment)


def test_ctrl_c_leaves_a_resumable_run_and_says_how(shapes, tmp_path):
    arguments = ("fit", "--data", shapes, "--mapping", "blm", "--epochs", MANY, *PADDING, *SMALL, "--out", tmp_path / "run")
    code, printed = interrupt_in_an_epoch(arguments, tmp_path / "run", 1, signal.SIGINT)
    assert code == 130
    assert f"reprogram fit --resume --out {tmp_path / 'run'}" in printed
    here("fit", "--resume", "--out", tmp_path / "run")
    assert len((tmp_path / "run" / "metrics.jsonl").read_text().splitlines()) == MANY


def test_resuming_a_finished_run_changes_nothing(run):
    folder, _ = run
    before = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file() and path.name != "environment.json"}
    here("fit", "--resume", "--out", folder)
    assert before == {path: path.read_bytes() for path in before}


def test_auto_chooses_a_mapping_once_and_says_why(shapes, tmp_path):
    folder = tmp_path / "auto"
    done = here("fit", "--data", shapes, "--mapping", "auto", "--epochs", 2, "--out", folder, *PADDING, *SMALL)
    selection = json.loads((folder / "selection.json").read_text())
    chosen = json.loads((folder / "artefact" / "artefact.json").read_text())["mapping"]
    assert chosen["name"] == selection["choice"]["mapping"]
    assert f"chosen {chosen['name']}" in done.stdout
    assert {row["mapping"] for row in selection["table"]} == {"flm", "blm", "blm+", "gaussian", "gaussian+"}
    again = here("fit", "--resume", "--out", folder)
    assert "chosen" not in again.stdout
    refused = here("fit", "--data", shapes, "--mapping", "auto", "--smoothing", 3, *SMALL, cwd=tmp_path, check=False)
    assert refused.returncode == 2
    assert "--smoothing 3 was given, but mapping auto chooses it" in refused.stderr


def test_the_data_may_stand_alone(tmp_path, monkeypatch):
    """`reprogram fit photos`, also with the home folder as ~ in quotes, as some shells and programs hand it over."""
    draw_folder(tmp_path / "photos", per_class=5)
    monkeypatch.setenv("HOME", str(tmp_path))
    flags = ("--program", "none", "--mapping", "rlm", *SMALL)
    here("fit", "photos", *flags, "--out", "~/runs/here", cwd=tmp_path)
    here("fit", "~/photos", *flags, "--config", tmp_path / "runs" / "here" / "config.json", "--out", tmp_path / "home")
    configs = [json.loads((tmp_path / name / "config.json").read_text()) for name in ("runs/here", "home")]
    assert configs[0] == configs[1]
    assert configs[0]["data"] == str(tmp_path / "photos")
    here("fit", "--resume", "--out", "~/home")
    assert not (tmp_path / "~").exists()


def test_a_run_by_an_absolute_table_lies_under_runs(shapes, tmp_path):
    (tmp_path / "work").mkdir()
    table = tmp_path / "data" / "t.csv"
    table.parent.mkdir()
    rows = [f"{path},{path.parent.name}" for path in sorted((shapes / "train").rglob("*.png"))]
    table.write_text("\n".join(["path,label", *rows]))
    here("fit", "--data", table, "--program", "none", "--mapping", "rlm", *SMALL, cwd=tmp_path / "work")
    assert [path.name for path in table.parent.iterdir()] == ["t.csv"]
    assert [path.name for path in (tmp_path / "work" / "runs").iterdir()] == ["t-none-rlm"]


def test_hints_can_be_pasted_also_where_names_have_blanks(shapes, tmp_path):
    folder = tmp_path / "my birds' run"
    printed = here("fit", shapes, "--program", "none", "--mapping", "rlm", *SMALL, "--out", folder).stdout
    hint = next(line for line in printed.splitlines() if "reprogram predict" in line)
    words = shlex.split(hint.partition("classify an image: ")[2])
    assert words == ["reprogram", "predict", str(folder), "IMAGE"]
    image = next((shapes / "test" / "disc").iterdir())
    assert here(*words[1:-1], image).stdout.startswith(str(image))


def test_a_cache_that_cannot_be_written_is_said_and_done_without(shapes, tmp_path, monkeypatch):
    """A file in the place of the folder: root may write everywhere, so taking rights away would prove nothing."""
    (tmp_path / "cache").write_text("")
    monkeypatch.setenv("REPROGRAM_CACHE", str(tmp_path / "cache"))
    flags = ("fit", shapes, "--program", "none", "--mapping", "blm", *SMALL)
    done = here(*flags, "--out", tmp_path / "run")
    note = [line for line in done.stdout.splitlines() if line.startswith("note: the cache folder")]
    assert len(note) == 1
    assert "REPROGRAM_CACHE" in note[0]
    assert "--no-cache" in note[0]
    quiet = here(*flags, "--no-cache", "--out", tmp_path / "quiet")
    assert "cache folder" not in quiet.stdout
    weights = [load_file(tmp_path / name / "artefact" / "artefact.safetensors") for name in ("run", "quiet")]
    assert all(torch.equal(weights[0][key], weights[1][key]) for key in weights[0])


def test_a_finished_run_trains_longer_on_demand(run, tmp_path):
    folder = shutil.copytree(run[0], tmp_path / "run")
    before = without_times(folder / "metrics.jsonl")
    printed = here("fit", "--resume", "--out", folder, "--epochs", 4).stdout
    assert "epoch 4/4" in printed
    assert "epoch 3/" not in printed
    assert without_times(folder / "metrics.jsonl")[:3] == before
    assert json.loads((folder / "config.json").read_text())["epochs"] == 4
    refused = here("fit", "--resume", "--out", folder, "--epochs", 3, check=False)
    assert (refused.returncode, "--epochs 3 was given" in refused.stderr) == (2, True)


def test_flags_that_say_what_the_run_has_are_no_contradiction(run, shapes):
    flags = ("--data", shapes, "--epochs", 3, "--lr", "5e-2", "--smoothing", 1, "--image-size", 36, "--mapping", "blm")
    done = here("fit", "--resume", "--out", run[0], *flags)
    assert "epoch 3/3" not in done.stdout


def test_a_stored_config_repeats_the_run(run, tmp_path):
    folder, _ = run
    here("fit", "--config", folder / "config.json", "--out", tmp_path / "again", cwd=tmp_path)
    for name in ("config.json", "predictions.csv", "images.txt", "artefact/artefact.json", "artefact/labels.csv"):
        assert (tmp_path / "again" / name).read_bytes() == (folder / name).read_bytes(), name
    assert without_times(tmp_path / "again" / "metrics.jsonl") == without_times(folder / "metrics.jsonl")


@pytest.fixture
def small_demo(monkeypatch):
    """The demo with two mappings and a network of 0.5 M parameters instead of six and 4.7 M; returns the runs asked for."""
    asked = []

    def run_small(config, folder, **how):
        asked.append((config, folder, how))
        return run_fit(FitConfig.read({**config.given, "model": "timm:test_resnet", "pretrained": False}), folder, **how)

    monkeypatch.setattr(cli_fit, "DEMO_METHODS", ("rlm", "blm"))
    monkeypatch.setattr(cli_fit, "run_fit", run_small)
    return asked


def test_the_demo_compares_mappings_on_the_bundled_model_and_continues(small_demo, tmp_path):
    done = here("demo", "--epochs", 1, "--seed", 3, "--out", "my demo", cwd=tmp_path)
    assert {path.name for path in (tmp_path / "my demo").iterdir()} == {"rlm", "blm", "report.html"}
    for config, _, how in small_demo:
        assert (config.model, config.data, config.seed) == ("bundled:efficientnet_lite0", "digits", 3)
        assert how["resume"]
    table = done.stdout.partition("(chance: 10 %)")[2]
    assert re.search(r"\n *rlm +random one-to-one .* %", table)
    assert "reprogram evaluate 'my demo/blm+'" in table
    before = {path: path.read_bytes() for path in tmp_path.rglob("*.safetensors")}
    here("demo", "--epochs", 1, "--seed", 3, "--out", "my demo", cwd=tmp_path)
    assert before == {path: path.read_bytes() for path in before}, "what is done is not done again"


def test_an_interrupted_demo_says_how_to_go_on(monkeypatch, tmp_path):
    def interrupted(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr(cli_fit, "run_fit", interrupted)
    done = here("demo", "--epochs", 3, "--out", "my demo", cwd=tmp_path, check=False)
    assert done.returncode == 130
    assert "reprogram demo --epochs 3 --seed 0 --out 'my demo'" in done.stdout
    assert not list(tmp_path.iterdir())


def test_a_diverging_run_is_one_sentence_and_its_last_good_epoch_can_be_used(shapes, tmp_path):
    flags = ("--program", "watermark", "--mapping", "blm", "--epochs", 9, "--schedule", "constant", *SMALL[:-1], "1e37")
    done = here("fit", "--data", shapes, "--out", tmp_path / "run", *flags, check=False)
    assert done.returncode == 2
    found = re.fullmatch(
        r"reprogram: .* in epoch (\d) of 9 \(its loss was \S+ before\); lower lr = 1e\+37: "
        r"the model of epoch \d is kept \(\d+\.\d % on test\)\n",
        done.stderr,
    )
    assert found, done.stderr
    assert f"epoch {int(found[1]) - 1}/9" in done.stdout
    assert f"epoch {found[1]}/9" not in done.stdout
    image = next((shapes / "test" / "disc").iterdir())
    assert image.name in here("predict", tmp_path / "run", image).stdout
    again = here("fit", "--resume", "--out", tmp_path / "run", check=False)
    assert (again.returncode, again.stderr) == (2, done.stderr)
