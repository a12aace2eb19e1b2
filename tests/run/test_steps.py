"""What a run does one after the other: an answer without a program, and training that is kept only where it pays."""

import itertools
import json
from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from command import SMALL, here
from reprogram import Frozen, fit_data
from reprogram.acceleration import accelerate
from reprogram.acceleration.accelerate import Accelerated
from reprogram.data import ArraySplit, DataSet
from reprogram.errors import ReprogramError
from reprogram.mappings.selection import select
from reprogram.progress import Progress
from reprogram.run import steps
from reprogram.run.build import Prepared, build
from reprogram.run.config import FitConfig
from reprogram.run.defaults import Facts, resolve
from reprogram.run.first import first_answer
from reprogram.run.folder import FolderBook
from reprogram.run.steps import PATIENCE, Book, Gain, carry_out
from reprogram.training.evaluation import evaluate
from reprogram.training.kept import KeptLogits
from sealed import content, without_times
from sides import small_data, small_frozen

CLASSES = ("red", "green", "blue")


class Colours(nn.Module):
    """The mean of each colour and an offset: one label always wins then, and a watermark can make up for it."""

    def __init__(self, offsets):
        super().__init__()
        self.offsets, self.seen = nn.Parameter(torch.tensor(offsets)), 0

    def forward(self, images):
        self.seen += len(images)
        return 10 * (images.mean((2, 3)) + self.offsets)


def colours(n=45, seed=0):
    draw = torch.Generator().manual_seed(seed)
    labels = torch.arange(n) % 3
    images = 0.3 * torch.rand(n, 3, 8, 8, generator=draw)
    images[torch.arange(n), labels] += 0.2
    return ArraySplit(images, labels)


def task(*, val=True, offsets=(0.0, 0.5, 1.0), **said):
    data = DataSet("colours", CLASSES, colours(), colours(30, 1), colours(30, 2) if val else None)
    frozen = Frozen(Colours(offsets), labels=CLASSES, input_size=8)
    config = resolve(
        FitConfig(**{"mapping": "none", "lr": 0.1, "batch_size": 8, "epochs": 12, "cache": False, **said}),
        Facts(input_size=8),
    )
    return Prepared(config, data, build(config, frozen, data), ())


class Heard(Progress):
    def __init__(self):
        self.lines = []

    def say(self, line):
        self.lines.append(line)


@settings(deadline=None, derandomize=True, max_examples=100)
@given(st.integers(0, 9), st.integers(0, 9), st.integers(1, 5))
def test_chance_is_the_share_of_all_outcomes_that_are_as_good(better, worse, looks):
    outcomes = list(itertools.product((0, 1), repeat=min(better + worse, 12)))
    if better + worse <= 12:
        share = sum(sum(outcome) >= better for outcome in outcomes) / len(outcomes)
        assert Gain(better, worse, 99, looks).chance == pytest.approx(min(1, looks * share))
    assert Gain(better + 1, worse, 99, looks).chance <= Gain(better, worse, 99, looks).chance + 1e-12
    assert Gain(better, worse + 1, 99, looks).chance >= Gain(better, worse, 99, looks).chance - 1e-12


def test_every_image_goes_through_the_model_once_and_gives_what_its_logits_give():
    prepared = task(mapping="auto", offsets=(0.0, 0.1, 0.0))
    module, data = prepared.model.frozen.module, prepared.data
    module.seen = 0
    answer = first_answer(prepared.config, prepared.model.frozen, data, Progress(), test=True)
    blank = 1  # `build` tries the canvas with one
    assert module.seen == len(data.train) + len(data.val) + len(data.test) + blank
    with torch.no_grad():
        logits = answer.model.source_logits(data.train.pixels(8))
    chosen = select((logits, data.train.labels), 3)
    assert (answer.candidate, answer.left_out) == (chosen.choice, chosen.table[0].score)
    assert evaluate(answer.model, data.val).accuracy == answer.record["accuracy"]["val"] == answer.validation.accuracy
    named = task(mapping=chosen.choice.mapping, **chosen.choice.settings, offsets=(0.0, 0.1, 0.0))
    again = first_answer(named.config, named.model.frozen, data, Progress(), test=False)
    assert again.left_out == answer.left_out
    assert torch.equal(again.model.mapping.weights, answer.model.mapping.weights)
    assert again.test is None


@pytest.mark.parametrize("mapping", ["none", "blm"])
def test_a_program_that_is_tried_costs_its_epochs_and_no_pass_more(mapping):
    """First every image as it is, which is also the pass for the first ω; then each epoch trains, validates and tests."""
    prepared = task(mapping=mapping, lr=1e-6)
    module, data = prepared.model.frozen.module, prepared.data
    module.seen = 0
    result = carry_out(prepared, Book(), Progress())
    assert not result.steps[1]["kept"]
    n, others = len(data.train), len(data.val) + len(data.test)
    blank = 2  # `build` tries the canvas with one, of either program
    assert module.seen == (n + others) + PATIENCE * (n + others) + blank


def sides_task(**said):
    """A network with something to prepare, which it is: the logits are those of folded batch norms."""
    data = small_data()
    facts = {"lr": 0.1, "batch_size": 16, "epochs": 2, "cache": False, "canvas": 24, "calibration": "none"}
    config = resolve(FitConfig(**{**facts, **said}), Facts(input_size=24))
    frozen = small_frozen()
    return Prepared(config, data, build(config, frozen, data), ())


@pytest.mark.parametrize(
    ("said", "spared"),
    [
        ({"mapping": "blm+"}, 1),
        ({"mapping": "gaussian"}, 1),  # whose statistics are counted in folds
        ({"mapping": "auto"}, 1),
        ({"mapping": "gaussian", "precision": "bf16"}, 1),
        ({"program": "watermark", "mapping": "blm+", "augment": "none"}, 1),
        ({"program": "watermark", "mapping": "blm+", "augment": "crop"}, 0),  # which counts the middle of larger images
        ({"program": "watermark", "mapping": "auto", "augment": "none"}, 2),
        ({"program": "watermark", "mapping": "auto", "augment": "crop"}, 1),
        ({"program": "padding", "mapping": "auto"}, 1),
        ({"program": "padding", "mapping": "auto", "protocol": "paper"}, 1),
        ({"program": "padding", "mapping": "gaussian"}, 0),
    ],
    ids=lambda value: " ".join(map(str, value.values())) if isinstance(value, dict) else str(value),
)
def test_logits_that_serve_again_are_those_of_another_pass_to_the_bit(monkeypatch, said, spared):
    """So that a run which was stopped, and has no logits any more, ends as one that was not."""
    monkeypatch.setattr(accelerate, "_WORTH", 1)
    monkeypatch.setattr(steps, "_no_trial", lambda *_: None)
    seen = []
    monkeypatch.setattr(Accelerated, "__call__", spied(Accelerated.__call__, seen))
    kept = carry_out(sides_task(**said), Book(), Progress())
    with_them = sum(seen)
    seen.clear()
    monkeypatch.setattr(KeptLogits, "serves", lambda *_: False)
    again = carry_out(sides_task(**said), Book(), Progress())
    assert sum(seen) - with_them == spared * len(small_data().train)
    assert kept.model.accelerated.folded == 1
    assert [without(record) for record in kept.records] == [without(record) for record in again.records]
    for name, tensor in again.model.state_dict().items():
        assert torch.equal(kept.model.state_dict()[name], tensor), name


def spied(call, seen):
    def counted(self, images):
        seen.append(len(images))
        return call(self, images)

    return counted


def without(record):
    return {name: value for name, value in record.items() if name not in ("seconds", "images_per_second")}


def test_a_program_that_pays_is_kept():
    heard = Heard()
    result = carry_out(task(), Book(), heard)
    first, trial = result.steps
    assert (first["kept"], trial["kept"]) == (False, True)
    assert first["val"]["accuracy"] == pytest.approx(1 / 3)
    assert trial["gain"] == pytest.approx(result.records[result.selected_epoch]["accuracy"]["val"] - 1 / 3)
    assert result.model.program.name == "watermark"
    assert [record["epoch"] for record in result.records] == list(range(len(result.records)))
    assert result.selected_epoch >= 1
    assert result.accuracy["selected"] == result.test.accuracy > 0.9
    assert any("beyond chance): kept; in" in line for line in heard.lines)


@pytest.mark.parametrize(
    ("said", "words"),
    [
        ({"val": False}, "no validation images to judge it by"),
        ({"offsets": (0.0, 0.0, 0.0)}, "0 of 30 validation images are wrong, too few"),
    ],
)
def test_what_could_not_be_shown_to_pay_is_not_tried(said, words):
    heard = Heard()
    result = carry_out(task(**said), Book(), heard)
    assert (result.model.program.name, result.selected_epoch, len(result.records)) == ("none", 0, 1)
    assert any(words in line for line in heard.lines)
    assert result.accuracy["last"] == result.test.accuracy


def test_a_program_that_brings_nothing_is_not_kept_and_its_trial_is_short():
    result = carry_out(task(lr=1e-6), Book(), Progress())
    assert (result.model.program.name, result.selected_epoch) == ("none", 0)
    assert len(result.records) == 1 + PATIENCE
    assert [step["kept"] for step in result.steps] == [True, False]
    assert (result.steps[1]["better"], result.steps[1]["worse"]) == (0, 0)
    assert result.accuracy["selected"] == result.records[0]["accuracy"]["test"] == result.test.accuracy


def test_a_trial_is_as_patient_as_it_is_told():
    heard = Heard()
    result = carry_out(task(lr=1e-6, patience=4), Book(), heard)
    assert len(result.records) == 1 + 4
    assert any("4 epochs without a gain" in line for line in heard.lines)


def test_a_trial_that_diverges_leaves_the_first_answer():
    result = carry_out(task(lr=1e37, schedule="constant"), Book(), Progress())
    assert result.model.program.name == "none"
    assert "given up" in result.steps[1]["told"]


def test_a_named_program_is_trained_in_any_case_beside_the_first_answer():
    result = carry_out(task(program="watermark", lr=1e-6, epochs=5), Book(), Progress())
    assert (result.model.program.name, len(result.records), result.records[0]["epoch"]) == ("watermark", 5, 1)
    assert [step["program"] for step in result.steps] == ["none"]


def test_the_paper_s_protocol_trains_at_once():
    result = carry_out(task(protocol="paper", epochs=2), Book(), Progress())
    assert (result.steps, result.model.program.name) == ((), "padding")


def test_a_mapping_that_is_learned_is_trained_without_a_program(shapes):
    result = fit_data(shapes, model="timm:test_resnet", pretrained=False, canvas=32, mapping="linear", epochs=2)
    assert (result.model.program.name, len(result.records), result.steps) == ("none", 2, ())


class StoppedError(Exception):
    pass


class Fragile(FolderBook):
    """A folder under a process that ends before or after one of its writings."""

    def __init__(self, folder, number):
        super().__init__(folder, {})
        self.left = number

    def __getattribute__(self, name):
        value = super().__getattribute__(name)
        if not name.startswith("write_"):
            return value

        def act(*arguments, **options):
            self.left -= 1
            if self.left == 0:
                raise StoppedError
            found = value(*arguments, **options)
            self.left -= 1
            if self.left == 0:
                raise StoppedError
            return found

        return act


def state(folder):
    kept = {path.name: path.read_bytes() for path in sorted((folder / "artefact").iterdir())}
    first = {
        name: value for name, value in content(folder / "first.json").items() if name not in ("images_per_second", "spent")
    }
    first["record"]["seconds"] = 0
    return kept, first, without_times(folder / "metrics.jsonl")


@pytest.mark.parametrize(
    "said",
    [{}, {"lr": 1e-6}, {"mapping": "blm"}, {"program": "none"}],
    ids=["kept", "not kept", "counted", "none"],
)
def test_a_run_that_is_stopped_anywhere_ends_as_if_it_had_not_been(tmp_path, said):
    said = (
        {"epochs": 5, "mapping": "auto", "offsets": (0.0, 0.1, 0.0), **said} if "program" in said else {"epochs": 5, **said}
    )

    def finish(book):
        result = carry_out(task(**said), book, Progress())
        book.write_records(result.records)
        result.model.save(book.folder / "artefact")
        return result

    whole = finish(FolderBook(tmp_path / "whole", {}))
    for number in itertools.count(1):
        folder = tmp_path / str(number)
        try:
            finish(Fragile(folder, number))
        except StoppedError:
            cut = finish(FolderBook(folder, {}))
            assert state(folder) == state(tmp_path / "whole"), number
            assert (cut.accuracy, cut.selected_epoch) == (whole.accuracy, whole.selected_epoch)
            assert torch.equal(cut.test.predicted, whole.test.predicted)
        else:
            break
    assert number > 4


def test_a_first_answer_of_other_images_is_refused(tmp_path):
    carry_out(task(program="none"), FolderBook(tmp_path / "run", {}), Progress())
    other = task(program="none")
    images = other.data.train.images.flip(3)
    other.data.train.images[:] = images
    with pytest.raises(ReprogramError, match="the run was made with other data; continue it as it was"):
        carry_out(other, FolderBook(tmp_path / "run", {}), Progress())


def test_by_default_the_command_line_says_what_each_step_brought(shapes, tmp_path):
    done = here("fit", shapes, *SMALL, cwd=tmp_path)
    folder = tmp_path / "runs" / shapes.name
    result = json.loads((folder / "result.json").read_text())
    told = done.stdout
    assert "without a program: " in told
    assert [step["program"] for step in result["steps"]] == ["none", "watermark"]
    assert result["steps"][1]["told"] in told
    assert json.loads((folder / "config.json").read_text())["given"].keys().isdisjoint({"program", "mapping"})
    here("verify", folder)
    before = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file() and path.name != "environment.json"}
    here("fit", "--resume", "--out", folder)
    here("fit", shapes, *SMALL, "--program", "auto", "--mapping", "auto", "--resume", "--out", folder)
    assert before == {path: path.read_bytes() for path in before}


@pytest.mark.parametrize("weighting", ["rank", "presence"])
def test_no_program_is_trained_through_a_mapping_that_changes_in_steps_alone(weighting):
    """It would have no gradient; named, it is refused in a sentence, and a trial says why there is none."""
    with pytest.raises(ReprogramError, match=r"'gaussian\+' was given with settings .* program 'padding' cannot be trained"):
        carry_out(task(program="padding", mapping="gaussian+", weighting=weighting), Book(), Progress())
    result = carry_out(task(program="auto", mapping="gaussian+", weighting=weighting), Book(), Progress())
    assert "which no gradient sees" in result.steps[-1]["told"]


@pytest.mark.parametrize("program", ["padding", "auto"])
def test_what_was_done_before_a_training_counts_as_spent(program, monkeypatch):
    """By the clock, and also what is decided right before it."""
    now, spent = [100.0], []

    def chosen(prepared, progress):
        now[0] += 20
        return prepared

    class BegunError(Exception):
        pass

    def begun(*_, **how):
        spent.append(how["spent"])
        raise BegunError

    prepared = replace(task(program=program, minutes=10), started=70.0)
    monkeypatch.setattr(steps, "time", SimpleNamespace(monotonic=lambda: now[0]))
    monkeypatch.setattr(steps, "with_chosen_mapping", chosen)
    monkeypatch.setattr(steps, "fit", begun)
    with pytest.raises(BegunError):
        carry_out(prepared, Book(), Progress())
    assert spent == [50.0]


def test_a_trial_that_has_begun_goes_on_however_long_its_images_take_to_load(tmp_path):
    """What a second process needs to begin anew is not of the minutes that were given: they were planned before."""
    book, heard = FolderBook(tmp_path, {}), Heard()
    begun = task(program="auto", minutes=60, epochs=3, patience=3)
    whole = carry_out(begun, book, heard)
    assert len(whole.records) == 4
    late = replace(task(program="auto", minutes=60, epochs=3, patience=3), started=begun.started - 10_000)
    again = carry_out(late, book, heard)
    assert not any("time is up" in line for line in heard.lines)
    assert len(again.records) == 4
    assert again.accuracy == whole.accuracy
    (tmp_path / "late").mkdir()
    book = FolderBook(tmp_path / "late", {})
    for prepared in (late, begun):  # what was decided once is decided, also for a process that is quicker
        heard.lines.clear()
        assert len(carry_out(prepared, book, heard).records) == 1
        assert any("no program is trained: the time is up (minutes = 60)" in line for line in heard.lines)
