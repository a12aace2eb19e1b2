"""The short version of the kills, some at each kind of call; and that the harness would notice what it looks for."""

import random
import shutil
import signal

import pytest

from soak.faults import Call, Ended, build_library, scratch
from soak.kills import Bench
from soak.trials import KILLS, Report, Supply, Trial, chosen_calls, plan
from soak.verbs import SCENARIOS, differences, mixtures


@pytest.fixture(scope="module")
def bench():
    base = scratch("kills")
    bench = Bench(base / "worker-0", build_library(base))
    yield bench
    bench.close()
    shutil.rmtree(base)


def one_of_each_kind(calls):
    by_kind = {}
    for call in calls:
        by_kind.setdefault(call.kind, []).append(call)
    return {kind: found[len(found) // 2] for kind, found in by_kind.items()}


_KINDS = {
    "fit": ("fsync", "rename", "unlink", "write"),
    "fit by default": ("rename", "write"),
    "logits": ("fallocate", "mkdir", "open", "rename"),
    "predict csv": ("rename", "write"),
    "map replace": ("fsync", "mkdir", "open", "rename", "rmdir", "unlink", "write"),
}


@pytest.mark.parametrize("name", _KINDS)
def test_after_a_kill_at_each_kind_of_call_the_same_command_gives_the_same_result(bench, name):
    calls = bench.undisturbed(SCENARIOS[name]).calls
    kinds = one_of_each_kind(calls)
    trials = [Trial(name, "before", kinds[kind].number) for kind in _KINDS[name]]
    if name == "map replace":
        trials.append(Trial(name, "half", kinds["write"].number))
        trials.append(Trial(name, "after", [call.number for call in calls if call.kind == "rename"][-1]))
    outcomes = [bench.make(trial) for trial in trials]
    assert [outcome.kills for outcome in outcomes] == [1] * len(trials)
    assert [str(outcome) for outcome in outcomes if outcome.problems] == []


@pytest.mark.parametrize("name", ["fit longer", "map replace", "map predict csv"])
def test_a_call_that_fails_ends_in_one_sentence_and_the_old_state(bench, name):
    kinds = one_of_each_kind(bench.undisturbed(SCENARIOS[name]).calls)
    trials = [Trial(name, "full-disk", kinds["write"].number), Trial(name, "io-error", kinds["rename"].number)]
    trials += [Trial(name, "short", kinds["write"].number)]
    assert [str(outcome) for outcome in map(bench.make, trials) if outcome.problems] == []


@pytest.mark.parametrize("name", ["fit", "map replace"])
def test_two_commands_at_once_do_not_mix(bench, name):
    rename = one_of_each_kind(bench.undisturbed(SCENARIOS[name]).calls)["rename"]
    trials = [Trial(name, "same", rename.number), Trial(name, "rival", rename.number)]
    assert [str(outcome) for outcome in map(bench.make, trials) if outcome.problems] == []


def test_reading_leaves_nothing_behind(bench):
    assert bench.undisturbed(SCENARIOS["predict"]).calls == ()
    assert bench.make(Trial("predict", "SIGKILL", share=0.5)).problems == ()


def test_a_folder_that_is_replaced_in_place_is_noticed(bench):
    plant = "tests.soak.in_place:write_in_place"
    bench.make(Trial("map replace", "before", 1))  # puts the old mapping there
    ended = bench.server.run(*SCENARIOS["map replace"].command, plant=plant)
    places = [call.number for call in ended.calls if call.kind == "rename"]
    # killed where the first file of the new mapping has its place and the second has not
    outcome = bench.make(Trial("map replace", "before", places[1]), plant=plant)
    assert "mapping is neither as before nor as after" in outcome.problems[0]
    assert f"python -m soak --trial 'map replace/before/{places[1]}/0/0.0000'" in str(outcome)


def test_the_plan_has_every_manner_and_every_chosen_call(bench):
    scenario = SCENARIOS["map replace"]
    known = bench.undisturbed(scenario)
    trials = plan(scenario, known, random.Random(0))
    assert {trial.manner for trial in trials} >= {*KILLS, "full-disk", "no-space", "io-error", "short", "same", "rival"}
    points = {call.number for call in chosen_calls(known.calls)}
    assert points == {trial.number for trial in trials if trial.manner == "before"}
    assert all(Trial.read(str(trial)) == trial for trial in trials if trial.share == 0)
    supply = Supply([scenario], {scenario.name: known}, seed=0)
    given = [supply.next(enough=True) for _ in trials]
    assert sorted(map(str, given)) == sorted(map(str, trials))
    assert supply.next(enough=True) is None
    assert supply.next(enough=False).manner.startswith("SIG")


def test_of_many_writes_to_one_file_three_are_chosen_and_what_changes_nothing_is_not():
    calls = [Call(number, "write", 9, "a" if number < 8 else "b") for number in range(1, 10)]
    assert [call.number for call in chosen_calls(calls)] == [1, 4, 7, 8, 9]
    calls = [
        Call(number, kind, 0, "a") for number, kind in enumerate(("mkdir", "fsync", "mkdir", "rmdir", "mkdir"), start=1)
    ]
    assert [call.number for call in chosen_calls(calls)] == [1, 4, 5]


def test_states_are_compared_file_by_file_and_artefacts_as_a_whole():
    old = {"m/artefact.json": b"1", "m/artefact.safetensors": b"1", "m": b"", "table.csv": b"1"}
    new = {path: content.replace(b"1", b"2") for path, content in old.items()}
    assert mixtures(old, old, new) == mixtures(new, old, new) == []
    assert mixtures({**old, ".table.csv.tmp": b"half"}, old, new) == []
    assert "m is neither" in mixtures({**old, "m/artefact.json": b"2"}, old, new)[0]
    assert mixtures({**old, "table.csv": b"half"}, old, new) == ["table.csv is neither as before nor as after"]
    assert mixtures({path: old[path] for path in old if path != "table.csv"}, old, new) == ["table.csv is lost"]
    assert mixtures({**old, "stray": b""}, old, new) == ["stray is new, and no part of the result"]
    assert differences({"a": b"1", "b": b""}, {"a": b"2", "c": b""}) == [
        "a is different",
        "b is left over",
        "c is missing",
    ]


def test_the_table_counts_what_was_survived(bench):
    report = Report(0, points={"predict": 0})
    report.outcomes.append(bench.make(Trial("predict", "SIGKILL", share=0.1)))
    assert report.kills == 1
    assert report.table() == [["predict", "0", "1 of 1", "-", "-"]]
    assert report.failed == []


@pytest.mark.parametrize("code", [-signal.SIGSEGV, -signal.SIGALRM])
def test_a_crash_or_a_hang_after_a_signal_is_no_kill(bench, code):
    trial = Trial("predict", "SIGTERM", share=0.4)
    known = bench.undisturbed(SCENARIOS["predict"])
    assert bench._judge(trial, Ended(code, "", "", 1.0), known) == [f"exit code {code}: "]
    assert bench._judge(trial, Ended(143, "", "", 1.0), known) == []
