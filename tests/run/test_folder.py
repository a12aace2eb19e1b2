"""A run folder: what stands in it, and what may be done with one that is there."""

import csv
import io
import json
import re
import shutil
import subprocess
import sys
from dataclasses import replace
from importlib import metadata

import pytest
import torch
from safetensors.torch import load_file

import sealed
from command import PADDING, SMALL, here
from conftest import draw_folder
from holding import held
from reprogram.errors import ReprogramError
from reprogram.reprogrammed import Reprogrammed
from reprogram.run.build import prepare
from reprogram.run.config import FitConfig
from reprogram.run.folder import environment, predictions_csv, run_fit, seen_images, stored_config
from reprogram.run.steps import epoch_line
from reprogram.run.update import update_run
from reprogram.run.verify import verify
from reprogram.training import budget
from reprogram.training.budget import Budget
from reprogram.training.evaluation import Evaluation, evaluate
from reprogram.training.result import Diverged

BASE = {
    "model": "timm:test_resnet",
    "pretrained": False,
    "canvas": 32,
    "batch_size": 16,
    "mapping": "blm",
    "program": "padding",
}


def configured(data, **more):
    return FitConfig.read({**BASE, "data": str(data), **more})


def records(folder):
    return sealed.without_times(folder / "metrics.jsonl")


def same_tensors(one, other, file):
    expected, found = load_file(one / file), load_file(other / file)
    return expected.keys() == found.keys() and all(torch.equal(expected[key], found[key]) for key in expected)


@pytest.fixture(scope="module")
def finished(shapes, tmp_path_factory):
    """A run of three epochs with a constant learning rate, so that longer ones begin like it."""
    folder = tmp_path_factory.mktemp("finished") / "run"
    run_fit(configured(shapes, epochs=3, schedule="constant"), folder)
    return folder


def test_the_stored_configuration_is_the_resolved_one_and_repeats_the_run(finished, tmp_path):
    stored = stored_config(finished)
    assert (stored.program, stored.canvas, stored.options("program")) == ("padding", 32, {"image_size": 18})
    run_fit(stored, tmp_path / "again")
    assert stored_config(tmp_path / "again") == stored
    assert records(tmp_path / "again") == records(finished)
    assert same_tensors(tmp_path / "again", finished, "artefact/artefact.safetensors")
    assert (tmp_path / "again" / "predictions.csv").read_bytes() == (finished / "predictions.csv").read_bytes()


def test_a_finished_run_can_be_trained_longer(finished, shapes, tmp_path):
    """Its epochs stay, others follow; the end is that of a run that was as long from the beginning."""
    folder = shutil.copytree(finished, tmp_path / "run")
    run_fit(configured(shapes, epochs=5), folder, resume=True)
    assert records(folder)[:3] == records(finished)
    assert [record["epoch"] for record in records(folder)] == [1, 2, 3, 4, 5]
    assert stored_config(folder).epochs == json.loads((folder / "result.json").read_text())["epochs"] == 5
    run_fit(configured(shapes, epochs=5, schedule="constant"), tmp_path / "whole")
    assert records(folder) == records(tmp_path / "whole")
    for file in ("artefact/artefact.safetensors", "checkpoint/state.safetensors"):
        assert same_tensors(folder, tmp_path / "whole", file)


def test_a_run_by_the_clock_tells_how_many_epochs_fitted_and_can_be_repeated_or_trained_longer(
    shapes, tmp_path, monkeypatch
):
    monkeypatch.setattr(budget, "_epoch_seconds", lambda state, data: (1000.0, 0.0))
    folder = tmp_path / "run"
    run_fit(configured(shapes, minutes=60), folder)
    stored = stored_config(folder)
    assert (stored.epochs, stored.minutes) == (3, 60)
    assert all(finding.problem is None for finding in verify(folder))
    run_fit(configured(shapes, epochs=3), tmp_path / "repeated")
    assert records(folder) == records(tmp_path / "repeated")
    assert same_tensors(folder, tmp_path / "repeated", "artefact/artefact.safetensors")
    run_fit(configured(shapes, epochs=5), folder, resume=True)
    assert [record["epoch"] for record in records(folder)] == [1, 2, 3, 4, 5]
    assert stored_config(folder).minutes is None


@pytest.mark.parametrize("said", [{}, {"epochs": 3}], ids=["", "which were said before, too"])
def test_what_the_clock_has_cut_off_is_trained_when_its_epochs_are_said(shapes, tmp_path, monkeypatch, said):
    monkeypatch.setattr(budget, "_epoch_seconds", lambda state, data: (1000.0, 0.0))
    monkeypatch.setattr(Budget, "used_up", lambda self, records, between=0.0: len(records) == 2)
    folder = tmp_path / "run"
    run_fit(configured(shapes, minutes=60, **said), folder)
    assert [record["epoch"] for record in records(folder)] == [1, 2]
    run_fit(configured(shapes, epochs=3), folder, resume=True)
    run_fit(configured(shapes, epochs=3), tmp_path / "whole")
    assert records(folder) == records(tmp_path / "whole")
    assert same_tensors(folder, tmp_path / "whole", "artefact/artefact.safetensors")


def test_the_same_command_goes_on_by_the_clock(shapes, tmp_path, monkeypatch):
    """The most epochs that were said are more than what was planned, but they are no wish for more."""
    monkeypatch.setattr(budget, "_epoch_seconds", lambda state, data: (1000.0, 0.0))
    config, folder = configured(shapes, minutes=60, epochs=9), tmp_path / "run"
    run_fit(config, folder)
    before = (folder / "metrics.jsonl").read_text()
    run_fit(config, folder, resume=True)
    stored = stored_config(folder)
    assert (stored.epochs, stored.minutes) == (3, 60)
    assert (folder / "metrics.jsonl").read_text() == before


def test_resuming_with_the_same_epochs_changes_nothing(finished, shapes):
    before = {path: path.read_bytes() for path in finished.rglob("*") if path.is_file() and path.name != "environment.json"}
    run_fit(configured(shapes, epochs=3), finished, resume=True)
    assert before == {path: path.read_bytes() for path in before}


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"epochs": 2}, "--epochs 2 was given, but the run in .* has 3; resume it as it was"),
        ({"lr": 0.7}, "--lr 0.7 was given, but .* has 0.1"),
        ({"mapping": "ilm"}, "--mapping ilm was given, but .* has blm"),
        ({"smoothing": 3}, "--smoothing 3.* was given, but .* has 1.0"),
        ({"image_size": 9}, "--image-size 9 was given, but .* has 18"),
        ({"skip_bad": True}, "--skip-bad True was given, but .* has False"),
    ],
)
def test_a_run_is_not_continued_otherwise(finished, shapes, changed, words):
    before = {path: path.stat().st_mtime_ns for path in finished.rglob("*")}
    with pytest.raises(ReprogramError, match=words):
        run_fit(configured(shapes, **changed), finished, resume=True)
    assert before == {path: path.stat().st_mtime_ns for path in finished.rglob("*")}


def test_replaced_images_are_noticed_when_a_run_is_resumed(tmp_path):
    """Same names, sizes and labels: only the content tells."""
    draw_folder(tmp_path / "set", per_class=6)
    run_fit(configured(tmp_path / "set", epochs=1), tmp_path / "run")
    for path in (tmp_path / "set").rglob("*.png"):
        path.unlink()
    shutil.rmtree(tmp_path / "set")
    draw_folder(tmp_path / "set", per_class=6, seed=9)
    with pytest.raises(ReprogramError, match="was made with other data"):
        run_fit(configured(tmp_path / "set", epochs=2), tmp_path / "run", resume=True)


def test_a_folder_that_is_no_run_is_left_alone(shapes, tmp_path):
    (tmp_path / "thesis").mkdir()
    (tmp_path / "thesis" / "chapter.tex").write_text("years of work")
    (tmp_path / "file").write_text("x")
    for name in ("thesis", "file"):
        with pytest.raises(ReprogramError, match="already exists and is not a run"):
            run_fit(configured(shapes), tmp_path / name)
    assert [path.name for path in (tmp_path / "thesis").iterdir()] == ["chapter.tex"]
    (tmp_path / "thesis" / "config.json").write_text("{}")
    with pytest.raises(ReprogramError, match="already holds a run; add --resume"):
        run_fit(configured(shapes), tmp_path / "thesis")


def test_a_run_that_cannot_begin_leaves_no_folder(shapes, tmp_path):
    stepped = {"mapping": "gaussian+", "weighting": "rank"}  # through which no program can be trained
    for changed in ({"device": "warp"}, {"image_size": 99}, {"shots": 999}, {"mapping": "none"}, stepped):
        with pytest.raises(ReprogramError):
            run_fit(configured(shapes, **changed), tmp_path / "runs" / "x")
    assert list(tmp_path.iterdir()) == []


def test_the_images_that_were_used_are_remembered(finished, shapes):
    from reprogram.data.load import load_data

    data = load_data(shapes)
    known = seen_images(finished)
    assert data.train.count_among(known) == len(data.train)  # validation images are taken from these
    assert data.test.count_among(known) == 0
    assert seen_images(shapes) == set()


def test_an_epoch_for_a_reader():
    record = {
        "epoch": 2,
        "loss": 0.5,
        "accuracy": {"train": 0.25, "val": None, "test": 1.0},
        "mapping_change": 0.125,
        "seconds": 1.26,
        "images_per_second": 33.4,
    }
    line = epoch_line(record, 3)
    assert line == "epoch 2/3  loss 0.5000  train 25.0 %  test 100.0 %  mapping change 0.125  1.3 s  33 images/s"
    quiet = {**record, "loss": None, "mapping_change": None, "images_per_second": None}
    assert epoch_line(quiet, 3) == "epoch 2/3  train 25.0 %  test 100.0 %  1.3 s"


def test_predictions_survive_strange_names():
    outcome = Evaluation(
        torch.tensor([0, 1]), torch.tensor([1, 1]), torch.tensor([0.5, 1.0]), ('a, "b"', "c\nd"), ("x,y.png", "é.png")
    )
    rows = list(csv.reader(io.StringIO(predictions_csv(outcome))))
    assert rows[1:] == [["x,y.png", 'a, "b"', "c\nd", "0.500000"], ["é.png", "c\nd", "c\nd", "1.000000"]]
    hostile = replace(outcome, classes=("=1+1", "'-tis"), names=("@x\ry.png", "-1"))
    rows = list(csv.reader(io.StringIO(predictions_csv(hostile), newline="")))
    assert rows[1:] == [["'@x\ry.png", "'=1+1", "''-tis", "0.500000"], ["'-1", "''-tis", "''-tis", "1.000000"]]


def test_the_environment_names_versions_and_the_processor():
    found = environment(torch.device("cpu"))
    assert found["packages"]["torch"] == metadata.version("torch")
    assert found["capability"] == torch.backends.cpu.get_cpu_capability()
    assert found["threads"] == torch.get_num_threads()


def test_test_images_that_are_training_images_too_are_told(shapes, tmp_path):
    folder = shutil.copytree(shapes, tmp_path / "set")
    for number in range(4):
        shutil.copy(folder / "train" / "disc" / f"{number:03}.png", folder / "test" / "disc" / f"again {number}.png")
    run_fit(configured(folder), tmp_path / "run")
    notes = json.loads((tmp_path / "run" / "result.json").read_text())["notes"]
    assert "4 of 34 test images are training images, too: the accuracy flatters" in notes


def test_a_run_that_was_updated_is_not_trained_on(finished, shapes, tmp_path):
    folder = shutil.copytree(finished, tmp_path / "run")
    sealed.forge(folder / "artefact" / "artefact.json", updates=[{"remove": ["disc"]}])
    with pytest.raises(ReprogramError, match="was changed by reprogram update, which training on would undo"):
        run_fit(configured(shapes), folder, resume=True)


def test_files_have_the_permissions_of_new_files(finished):
    plain = finished.parent / "plain"
    plain.write_text("")
    modes = {path.stat().st_mode for path in finished.rglob("*") if path.is_file()}
    assert modes == {plain.stat().st_mode}


def test_two_processes_never_fill_one_folder(shapes, tmp_path):
    """Both begin at the same moment with different seeds: one is refused, and the folder is that of the other."""
    command = ["fit", str(shapes), *SMALL, *PADDING, "--epochs", "3", "--mapping", "blm", "--out", str(tmp_path / "run")]
    both = [
        subprocess.Popen(
            [sys.executable, "-m", "reprogram", *command, "--seed", str(seed)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for seed in (1, 2)
    ]
    told = [process.communicate(timeout=300) for process in both]
    codes = [process.returncode for process in both]
    assert sorted(codes) == [0, 2], told
    winner = codes.index(0)
    assert ("is in use by process" in told[1 - winner][1]) or ("already holds a run" in told[1 - winner][1])
    assert stored_config(tmp_path / "run").seed == winner + 1
    assert all(checked.problem is None for checked in verify(tmp_path / "run"))
    assert not (tmp_path / "run" / ".lock").exists()


def test_a_run_that_is_in_use_is_refused_and_that_of_a_dead_process_is_not(finished, shapes, tmp_path):
    folder = shutil.copytree(finished, tmp_path / "run")
    with held(folder / ".lock") as holder:
        before = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
        with pytest.raises(ReprogramError, match=rf"run' is in use by process {holder.pid}; wait until that has ended"):
            run_fit(configured(shapes, epochs=5), folder, resume=True)
        with pytest.raises(ReprogramError, match="is in use by process"):
            update_run(folder, remove=["disc"])
        assert before == {path: path.read_bytes() for path in before}
    assert (folder / ".lock").exists()
    run_fit(configured(shapes), folder, resume=True)
    assert not (folder / ".lock").exists()


def test_resume_begins_a_run_that_is_not_there_if_it_is_told_what_to_train_on(shapes, tmp_path):
    """So that one command line begins, continues and finishes a run, as often as it is stopped."""
    flags = (*SMALL, *PADDING, "--epochs", 1, "--mapping", "blm", "--out", tmp_path / "run", "--resume")
    done = here("fit", *flags, check=False)
    assert done.returncode == 2
    assert "holds no run to resume; check the path, or say with --data" in done.stderr
    here("fit", shapes, *flags)
    before = (tmp_path / "run" / "result.json").read_bytes()
    here("fit", shapes, *flags)
    assert (tmp_path / "run" / "result.json").read_bytes() == before


def test_a_run_that_diverges_leaves_the_artefact_of_its_last_good_epoch(shapes, tmp_path):
    """A watermark moves by about lr each step, and at about 1e38 the network overflows."""
    config = configured(shapes, program="watermark", epochs=9, lr=1e37, schedule="constant")
    folder = tmp_path / "run"
    with pytest.raises(Diverged, match=r"in epoch \d of 9 .*lower lr = 1e\+37: the model of epoch \d is kept") as caught:
        run_fit(config, folder)
    result, sentence = json.loads((folder / "result.json").read_text()), str(caught.value)
    assert result["stopped"] == sentence
    assert result["epochs"] == len(records(folder)) == len(caught.value.result.records) >= 1
    assert f"in epoch {result['epochs'] + 1} of 9" in sentence
    assert result["selected_epoch"] == caught.value.result.selected_epoch
    assert evaluate(Reprogrammed.load(folder), prepare(config).data.test).accuracy == caught.value.result.test.accuracy
    assert len((folder / "predictions.csv").read_text().splitlines()) == 31
    # going on repeats the epoch, which ends as it did before, and says so again
    kept = {path: path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}
    with pytest.raises(Diverged, match=re.escape(sentence)):
        run_fit(config, folder, resume=True)
    assert {path: path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()} == kept


def test_a_mapping_that_no_program_can_be_trained_through_leaves_no_folder(shapes, tmp_path):
    config = configured(shapes, mapping="gaussian+", weighting="rank", program="watermark")
    with pytest.raises(ReprogramError, match="changes in steps alone"):
        run_fit(config, tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_a_finished_run_has_not_stopped(finished):
    assert "stopped" not in json.loads((finished / "result.json").read_text())


def test_a_stored_run_asks_for_no_download_by_itself(finished, shapes, tmp_path):
    """A folder that was received may say so; only what is said now counts."""
    folder = shutil.copytree(finished, tmp_path / "run")
    sealed.forge(folder / "config.json", download=True)
    assert not stored_config(folder).download
    run_fit(configured(shapes), folder, resume=True)
    assert not json.loads((folder / "config.json").read_text())["download"]
    run_fit(configured(shapes, download=True), folder, resume=True)
    assert json.loads((folder / "config.json").read_text())["download"]


def test_a_damaged_artefact_of_a_run_can_be_made_anew_as_it_says(finished, shapes, tmp_path):
    folder = shutil.copytree(finished, tmp_path / "run")
    whole = {path: path.read_bytes() for path in (folder / "artefact").iterdir()}
    (folder / "artefact" / "artefact.json").write_bytes(b"{")
    with pytest.raises(ReprogramError, match=r"remove the folder '.*artefact' and resume again"):
        run_fit(configured(shapes), folder, resume=True)
    shutil.rmtree(folder / "artefact")
    run_fit(configured(shapes), folder, resume=True)
    assert whole == {path: path.read_bytes() for path in whole}


def test_a_run_that_kept_auto_goes_on_as_its_checkpoint_says(processor, shapes, tmp_path):
    """Configurations did not always name what was chosen, but checkpoints did."""
    processor(True)
    folder = tmp_path / "run"
    how = {"precision": "auto", "schedule": "constant", "shots": 4, "canvas": 24}
    run_fit(configured(shapes, epochs=1, **how), folder)
    sealed.forge(folder / "config.json", precision="auto")
    run_fit(configured(shapes, epochs=2, **how), folder, resume=True)
    assert len(records(folder)) == 2
    sealed.forge(folder / "config.json", precision="auto")
    processor(False)
    with pytest.raises(ReprogramError, match=r"was made with settings precision = 'bf16', but now it is 'fp32'"):
        run_fit(configured(shapes, epochs=3, **how), folder, resume=True)


def test_auto_is_decided_once_and_stays(processor, passes, shapes, tmp_path):
    """On a processor with bf16: the configuration names what was chosen, a resumed run ends like a whole one."""
    processor(True)
    parts, whole = tmp_path / "parts", tmp_path / "whole"
    how = {"precision": "auto", "schedule": "constant", "shots": 4, "canvas": 24}
    result = run_fit(configured(shapes, epochs=1, **how), parts)
    assert set(passes) == {torch.bfloat16}
    assert stored_config(parts).precision == result.model.precision == Reprogrammed.load(parts).precision == "bf16"
    run_fit(configured(shapes, epochs=2, **how), parts, resume=True)
    run_fit(configured(shapes, epochs=2, **how), whole)
    assert records(parts) == records(whole)
    assert same_tensors(parts, whole, "artefact/artefact.safetensors")
    assert not [one for one in verify(parts) if one.problem is not None]
    processor(False)
    with pytest.raises(ReprogramError, match=r"was begun in bf16, which this cpu does not have in hardware; continue it"):
        run_fit(configured(shapes, epochs=3, **how), parts, resume=True)
    with pytest.raises(ReprogramError, match=r"--precision fp32 was given, but the run in .* has bf16"):
        run_fit(configured(shapes, epochs=3, precision="fp32"), parts, resume=True)


def test_what_was_named_is_emulated_and_auto_is_not(processor, passes, shapes, tmp_path):
    processor(False)
    how = {"program": "none", "shots": 3, "canvas": 24}
    run_fit(configured(shapes, precision="auto", **how), tmp_path / "auto")
    assert set(passes) == {torch.float32}
    assert stored_config(tmp_path / "auto").precision == "fp32"
    passes.clear()
    run_fit(configured(shapes, precision="bf16", **how), tmp_path / "named")
    assert set(passes) == {torch.bfloat16}
    run_fit(configured(shapes, precision="bf16", **how), tmp_path / "named", resume=True)
