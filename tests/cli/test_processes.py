"""`torchrun … -m reprogram fit`: one run folder, one voice, one result; and what becomes of it when a process dies."""

import json
import os
import signal
import subprocess
import time

import pytest
import torch
from safetensors.torch import load_file

from command import PADDING, SMALL, here
from launching import command, environment, launch

FIT = ("-m", "reprogram", "fit")
MANY = 16  # epochs: enough that a signal comes in time also on a busy machine
TINY = ("--model", "timm:test_resnet", "--no-pretrained", "--canvas", "32", "--image-size", "20", "--batch-size", "16")


def result_of(folder):
    return json.loads((folder / "result.json").read_text())


def metrics_of(folder):
    path = folder / "metrics.jsonl"
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def test_without_a_program_two_processes_find_what_one_finds(shapes, tmp_path):
    """Whole batches go through the network as with one process: the same logits, choice, artefact and predictions."""
    flags = ("--data", shapes, "--program", "none", *SMALL)
    here("fit", *flags, "--out", tmp_path / "one")
    done = launch(2, *FIT, *flags, "--out", tmp_path / "two")
    for line in ("chosen ", "run folder ", "report "):
        assert done.stdout.count(f"\n{line}") == 1, done.stdout
    assert "reprogram: " not in done.stderr
    one, two = ({path.name: path for path in (tmp_path / name).iterdir()} for name in ("one", "two"))
    assert one.keys() == two.keys()
    for name in ("config.json", "predictions.csv", "images.txt", "selection.json"):
        assert one[name].read_bytes() == two[name].read_bytes(), name
    tensors = [load_file(folder["artefact"] / "artefact.safetensors") for folder in (one, two)]
    assert tensors[0].keys() == tensors[1].keys()
    assert all(torch.equal(tensors[0][name], tensors[1][name]) for name in tensors[0])
    assert json.loads(two["environment.json"].read_text())["processes"] == 2
    assert result_of(tmp_path / "one")["accuracy"] == result_of(tmp_path / "two")["accuracy"]


@pytest.fixture
def training(shapes, tmp_path):
    """A training on two processes that has completed an epoch; the ids of its workers by rank."""
    folder = tmp_path / "run"
    flags = ("--data", shapes, "--mapping", "blm", "--epochs", MANY, *PADDING, *TINY, "--out", folder)
    process = subprocess.Popen(
        command(2, *FIT, *flags), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment()
    )
    until = time.monotonic() + 200
    while len(metrics_of(folder)) < 2:
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < until
        time.sleep(0.01)
    lock = int((folder / ".lock").read_text())
    listed = subprocess.run(["ps", "-o", "pid=", "--ppid", str(process.pid)], capture_output=True, text=True, check=True)
    others = [int(word) for word in listed.stdout.split() if int(word) != lock]
    yield folder, process, lock, others
    if process.poll() is None:
        process.kill()
    process.wait()


def end(folder, process):
    printed, said = process.communicate(timeout=120)
    assert process.returncode != 0
    assert not (folder / "result.json").exists()
    return printed, [line for line in said.splitlines() if line.startswith("reprogram: ")]


def finish_alone(folder):
    """What is left can be continued by one process; the epochs that were complete stay as they were."""
    before = metrics_of(folder)
    done = len(before)
    assert done < MANY
    here("fit", "--resume", "--out", folder)
    assert metrics_of(folder)[:done] == before
    assert result_of(folder)["epochs"] == len(metrics_of(folder)) == MANY


def test_a_killed_process_ends_the_run_with_a_sentence_and_one_continues(training):
    folder, process, _, (other,) = training
    os.kill(other, signal.SIGKILL)
    _, said = end(folder, process)
    again = f"continue with: reprogram fit --resume --out {folder}"
    assert said == [f"reprogram: rank 1 of 2 ended without a word (killed, or no memory was left); {again}"]
    finish_alone(folder)


def test_where_the_first_process_is_killed_another_says_so(training):
    folder, process, first, _ = training
    os.kill(first, signal.SIGKILL)
    _, said = end(folder, process)
    assert len(said) == 1
    assert said[0].startswith("reprogram: rank 0 of 2 ended without a word")
    assert said[0].endswith(f"reprogram fit --resume --out {folder}")


def test_an_interrupt_of_torchrun_is_one_of_the_run(training):
    folder, process, *_ = training
    process.send_signal(signal.SIGTERM)
    printed, said = end(folder, process)
    assert said == []
    assert printed.count(f"interrupted; continue with: reprogram fit --resume --out {folder}") == 1


def test_a_mistake_that_all_meet_is_told_once(shapes):
    done = launch(2, *FIT, "--data", shapes, *PADDING, *TINY, "--out", shapes, check=False)
    assert done.returncode != 0
    said = [line for line in done.stderr.splitlines() if line.startswith("reprogram: ")]
    assert said == [f"reprogram: '{shapes}' already exists and is not a run; choose another --out"]


@pytest.mark.parametrize(("local", "heard"), [("0", True), ("1", False)])
def test_a_mistake_before_they_have_met_is_told_by_one_of_each_machine(local, heard, shapes, monkeypatch):
    for name, value in {"WORLD_SIZE": "4", "RANK": f"{2 + int(local)}", "LOCAL_RANK": local}.items():
        monkeypatch.setenv(name, value)
    done = here("fit", shapes, "--mapping", "blmm", check=False)
    assert (done.returncode, "did you mean" in done.stderr) == (2, heard)
    other = here("evaluate", shapes / "nowhere", check=False)  # no command that they share
    assert (other.returncode, "is not a folder" in other.stderr) == (2, True)
