"""A training by the clock: how many epochs are planned, that planning changes nothing, and when it ends."""

import time
from types import SimpleNamespace

import pytest
import torch

from reprogram import fit
from reprogram.errors import ReprogramError
from reprogram.files import read_tensors, write_tensors
from reprogram.programs import NoProgram, Watermark
from reprogram.progress import Progress
from reprogram.reprogrammed import Reprogrammed
from reprogram.sources.memory import PassMemory
from reprogram.training import budget, loop
from reprogram.training.budget import Budget
from reprogram.training.result import Diverged
from reprogram.training.state import FitState
from sides import build, small_data, small_frozen


class Told(Progress):
    """What is said."""

    def __init__(self):
        self.lines = []

    def say(self, line):
        self.lines.append(line)


@pytest.fixture
def clocked(monkeypatch):
    """An epoch takes as many seconds as the test says, and timing one as well, whatever the machine does."""
    now = [0.0]
    monkeypatch.setattr(loop, "time", SimpleNamespace(monotonic=lambda: now[0], perf_counter=time.perf_counter))

    def take(each, first=0.0, timing=0.0):
        def timed(state, data):
            now[0] += timing
            return each, first

        monkeypatch.setattr(budget, "_epoch_seconds", timed)

    return take


@pytest.mark.parametrize(
    ("seconds", "spent", "each", "first", "most", "expected"),
    [
        (100, 0, 1, 0, 200, 90),  # a tenth is spare
        (100, 40, 1, 10, 200, 40),
        (100, 0, 1, 0, 7, 7),
        (100, 0, 1000, 0, 200, 1),
        (100, 500, 1, 0, 200, 1),
        (100, 0, 0, 0, 200, 200),
    ],
)
def test_as_many_epochs_as_fit(seconds, spent, each, first, most, expected):
    assert Budget(seconds, spent).epochs(each, first, most) == expected


def trained(minutes, told=None, checkpoint=None, stop=None, **settings):
    model = build("blm", program=Watermark(24))

    def on_epoch(records, epochs):
        if len(records) == stop:
            raise KeyboardInterrupt

    result = fit(
        model,
        small_data(),
        batch_size=20,
        lr=0.05,
        minutes=minutes,
        progress=told,
        checkpoint=checkpoint,
        on_epoch=on_epoch,
        **{"epochs": 50, "schedule": "onecycle", **settings},
    )
    return model, result


def test_a_training_by_the_clock_is_one_of_that_many_epochs(clocked):
    clocked(10.0)
    told = Told()
    by_clock, result = trained(1.0, told)
    assert len(result.records) == 5
    assert any("an epoch takes about 10 s, so 5 are trained (--epochs 5 repeats it)" in line for line in told.lines)
    by_number, _ = trained(None, epochs=5)
    assert torch.equal(by_clock.program.theta, by_number.program.theta)


def test_measuring_changes_nothing():
    """With the real clock: all of one epoch, which is the most that is allowed."""
    measured, _ = trained(60.0, epochs=1)
    plain, _ = trained(None, epochs=1)
    assert torch.equal(measured.program.theta, plain.program.theta)
    assert torch.equal(measured.mapping.weights, plain.mapping.weights)


@pytest.mark.parametrize("mapping", ["blm+", "gaussian", "linear"])
@pytest.mark.parametrize("program", [Watermark(24), NoProgram(24)], ids=["watermark", "none"])
def test_every_kind_of_training_can_be_measured(program, mapping):
    told, model = Told(), build(mapping, program=program)
    fit(model, small_data(), epochs=2, batch_size=20, minutes=60, progress=told)
    assert any("so that all 2 fit" in line for line in told.lines) == model.trainable


def test_it_goes_on_as_it_was_planned(clocked, tmp_path):
    clocked(10.0)
    whole, _ = trained(1.0)
    with pytest.raises(KeyboardInterrupt):
        trained(1.0, checkpoint=tmp_path / "state", stop=2)
    clocked(1.0)  # the machine has become faster: the run stays what it was
    continued, result = trained(1.0, checkpoint=tmp_path / "state")
    assert len(result.records) == 5
    assert torch.equal(continued.program.theta, whole.program.theta)


def test_a_slower_machine_ends_it_before_the_last_epoch(clocked, monkeypatch):
    clocked(0.001)
    told = Told()
    monkeypatch.setattr(Budget, "used_up", lambda self, records, between=0.0: len(records) == 3)
    _, result = trained(1.0, told)
    assert len(result.records) == 3
    assert "time is up after 3 of 50 epochs (minutes = 1); epochs = 50 trains them all" in told.lines


def test_what_was_spent_before_counts(clocked):
    clocked(10.0)
    model = build("blm", program=Watermark(24))
    result = fit(model, small_data(), epochs=50, batch_size=20, minutes=1, spent=34.0)
    assert len(result.records) == 2


def test_what_planning_takes_counts(clocked):
    clocked(10.0, timing=22.0)
    assert len(trained(1.0)[1].records) == 3


@pytest.mark.parametrize(("refresh", "counts"), [("reuse", True), ("never", False)])
def test_the_step_that_is_timed_counts_for_the_next_mapping_as_those_of_an_epoch_do(monkeypatch, refresh, counts):
    found = []

    class PlannedError(Exception):
        pass

    def count(self, gathered, logits, labels, indices):
        found.append(len(labels))

    def planned(state, data, *others):
        budget._epoch_seconds(state, data)
        raise PlannedError

    monkeypatch.setattr(FitState, "count", count)
    monkeypatch.setattr(loop, "planned", planned)
    with pytest.raises(PlannedError):
        fit(build("blm", program=Watermark(24), refresh=refresh), small_data(), batch_size=25, minutes=1)
    assert set(found) == ({25} if counts else set())  # and no smaller batch at the end


def test_what_was_spent_counts_once_when_it_goes_on(clocked, tmp_path, monkeypatch):
    """Neither a slow start of the second process nor a fast one changes where it ends, also once it has ended."""
    clocked(10.0)
    data, where = small_data(), tmp_path / "state"

    def goes_on(spent, stop=None):
        def on_epoch(records, epochs):
            records[-1]["seconds"] = 10.0
            if len(records) == stop:
                raise KeyboardInterrupt

        how = {"epochs": 50, "batch_size": 20, "minutes": 1, "spent": spent}
        return fit(build("blm", program=Watermark(24)), data, **how, checkpoint=where, on_epoch=on_epoch)

    with pytest.raises(KeyboardInterrupt):
        goes_on(0.0, stop=2)
    assert len(goes_on(500.0).records) == 5
    monkeypatch.setattr(Budget, "used_up", lambda self, records, between=0.0: self.spent + 10 * len(records) >= 60)
    where = tmp_path / "slower"
    assert len(goes_on(30.0).records) == 2  # two epochs were planned
    where = tmp_path / "slower still"
    monkeypatch.setattr(loop, "planned", lambda *given: 5)
    assert len(goes_on(30.0).records) == 3
    assert len(goes_on(0.0).records) == 3  # it was over


def test_what_is_remembered_is_not_taken_for_the_time_of_a_pass(tmp_path, monkeypatch):
    """A grid's runs share what the model says under an untrained program; a training's later passes are no such."""
    model = build("blm", program=Watermark(24), refresh="fresh")
    model.frozen.memory = memory = PassMemory(tmp_path / "memory", model.frozen.fingerprint)
    passes, once = [], Reprogrammed._passed

    def passed(self, images):
        passes.append(len(images))
        return once(self, images)

    class PlannedError(Exception):
        pass

    def planned(state, data, *others):
        budget._epoch_seconds(state, data)
        raise PlannedError

    monkeypatch.setattr(Reprogrammed, "_passed", passed)
    monkeypatch.setattr(loop, "planned", planned)
    with pytest.raises(PlannedError):
        fit(model, small_data(), batch_size=20, minutes=1)
    assert len(passes) == 4 * (1 + 3)  # of a step, and of each split
    assert model.frozen.memory is memory
    assert not list(tmp_path.rglob("*.safetensors"))


def test_numbers_that_are_not_finite_leave_the_model_as_it_was_given_by_the_clock_too():
    frozen = small_frozen()
    with torch.no_grad():
        next(frozen.module.parameters()).fill_(torch.nan)
    model = build("blm", frozen, program=Watermark(24))
    with pytest.raises(Diverged, match=r"NaN or infinity in epoch 1 .*the model is left as it was given"):
        fit(model, small_data(), epochs=2, batch_size=20, minutes=60)
    assert not model.program.theta.any()


def test_it_ends_where_the_next_epoch_that_is_measured_would_be_too_late(clocked, monkeypatch):
    clocked(10.0)
    ends = []
    monkeypatch.setattr(Budget, "used_up", lambda self, records, between=0.0: ends.append(self.every))
    trained(1.0, evaluate_every=2)
    assert set(ends) == {2}


def test_a_pass_that_processes_share_is_timed_as_their_share(monkeypatch):
    state = SimpleNamespace(
        model=build("blm"), settings=SimpleNamespace(batch_size=20, precision="fp32"), ranks=SimpleNamespace(size=1)
    )
    monkeypatch.setattr(budget, "_seconds", lambda act, device: 1.0)
    train = small_data().train  # 60 images
    assert budget._pass_seconds(state, train, 12) == 3.0
    state.ranks.size = 2
    assert budget._pass_seconds(state, train, 12) == 1.5


def test_what_passes_between_epochs_counts(clocked, monkeypatch):
    """Such as to write a checkpoint: half a minute each, where epochs take next to nothing."""
    clocked(1.0)
    now = loop.time.monotonic
    late = [0.0]
    monkeypatch.setattr(loop, "time", SimpleNamespace(monotonic=lambda: now() + late[0], perf_counter=time.perf_counter))

    def written(records, epochs):
        late[0] += 20.0

    model = build("blm", program=Watermark(24))
    result = fit(model, small_data(), epochs=50, batch_size=20, minutes=1, on_epoch=written)
    assert len(result.records) in (2, 3)  # a third would fit but for the epochs themselves


def test_the_plan_is_told_before_the_first_epoch_and_when_it_goes_on(clocked, tmp_path):
    clocked(10.0)
    told = []

    def fitted(stop):
        def go_on(records, epochs):
            told.append(f"epoch {len(records)}")
            if len(records) == stop:
                raise KeyboardInterrupt

        how = {"epochs": 50, "batch_size": 20, "minutes": 1, "checkpoint": tmp_path / "state", "on_plan": told.append}
        fit(build("blm", program=Watermark(24)), small_data(), **how, on_epoch=go_on)

    with pytest.raises(KeyboardInterrupt):
        fitted(stop=2)
    fitted(stop=None)
    assert told == [5, "epoch 1", "epoch 2", 5, "epoch 3", "epoch 4", "epoch 5"]


def test_more_epochs_than_were_allowed_cannot_have_been_planned(clocked, tmp_path):
    clocked(10.0)
    with pytest.raises(KeyboardInterrupt):
        trained(1.0, checkpoint=tmp_path / "state", stop=2)
    tensors, header = read_tensors(tmp_path / "state", "checkpoint")
    write_tensors(tmp_path / "state", tensors, {**header, "planned": 10**30})
    with pytest.raises(ReprogramError, match=r"has 1000000000000000000000000000000 epochs, but epochs = 50 was given"):
        trained(1.0, checkpoint=tmp_path / "state")


def test_one_epoch_is_trained_in_any_case_and_said(clocked):
    clocked(1000.0)
    told = Told()
    _, result = trained(1.0, told)
    assert len(result.records) == 1
    said = "1 minutes, of which 0 s are gone: the first epoch takes about 1000 s, so only that one is trained"
    assert said in told.lines


@pytest.mark.parametrize("minutes", [0, -1, "soon"])
def test_no_time_is_refused(minutes):
    with pytest.raises(ReprogramError, match=r"minutes = .* was given, but it should be"):
        trained(minutes)
