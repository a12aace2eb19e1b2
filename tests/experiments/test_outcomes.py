"""A run folder as an outcome, and what holds of labels."""

import math

import pytest

from grids import outcome
from reprogram.errors import ReprogramError
from reprogram.experiments.outcomes import Failure, levels_of, measured, merged_axes, number_of, outcome_of
from reprogram.run import read_run


def test_a_run_folder(run):
    folder, _ = run
    found = outcome_of(folder, {"mapping": "blm"})
    record = read_run(folder)
    assert found.name == folder.name
    assert found.seed == record.config.seed
    assert found.accuracy == {name: record.result["accuracy"][name] for name in ("selected", "last", "best_on_test")}
    assert (found.n, len(found.right), found.extra["epochs"], found.extra["classes"]) == (30, 30, 3, 3)
    assert sum(found.right) / 30 == pytest.approx(measured(found))
    assert found.seconds == record.result["seconds"]
    assert found.extra["parameters"] == record.result["parameters"]["free"] > 0
    assert outcome_of(record, {"mapping": "blm"}, seed=7).seed == 7


def test_what_is_no_finished_run_is_said(run, tmp_path):
    folder, _ = run
    with pytest.raises(ReprogramError, match="is no finished run"):
        outcome_of(folder / "artefact", {})
    with pytest.raises(ReprogramError, match="neither a run nor a mapping"):
        outcome_of(tmp_path, {})


def test_levels_are_in_the_order_of_their_numbers():
    runs = [outcome({"λ": label}, 0, 0.5) for label in ("10", "0.1", "1", "1e3", "default")]
    assert levels_of(runs, "λ") == ["0.1", "1", "10", "1e3", "default"]
    assert levels_of(runs, "λ", ["default", "nowhere", "10"]) == ["default", "10", "0.1", "1", "1e3"]


def test_numbers():
    assert number_of("40%") == 40
    assert number_of(12) == 12
    assert number_of(None) is number_of("inf") is number_of("") is None
    assert math.isclose(number_of(" 1e-3 "), 0.001)


def test_axes_are_merged_into_methods():
    runs = [Failure("f", {"data": "a", "program": "none", "mapping": "blm"}, 0, "")]
    name, (found,) = merged_axes(runs, ["program", "mapping"])
    assert (name, found.labels) == ("program / mapping", {"data": "a", "program / mapping": "none / blm"})
    assert merged_axes(runs, ["data"]) == ("data", runs)
