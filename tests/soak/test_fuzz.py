"""The fuzz harness: it notices planted faults, and every parser stands a short run of it."""

import json
import os
import random
import re
import subprocess
import sys
from pathlib import Path

import pytest

from soak.mutate import BYTES, TEXT, Known, mutate
from soak.structure import JSON, NPY, SAFETENSORS, ZIPS
from soak.targets import all_targets
from soak.workers import made_input

ROOT = Path(__file__).parents[2]
EACH = 60


def fuzz(*arguments):
    paths = os.pathsep.join([str(ROOT), str(ROOT / "tests" / "soak"), os.environ.get("PYTHONPATH", "")])
    command = [sys.executable, "-m", "soak.fuzz", *map(str, arguments)]
    return subprocess.run(
        command, capture_output=True, text=True, timeout=240, cwd=ROOT, env={**os.environ, "PYTHONPATH": paths}
    )


def rows(output):
    """The table by target: numbers by column."""
    lines = [[cell.strip() for cell in line.strip("|").split("|")] for line in output.splitlines() if line.startswith("|")]
    head, _, *others = lines
    return {
        name: {column: float(cell.replace(",", "")) for column, cell in zip(head[1:], cells, strict=True)}
        for name, *cells in others
    }


@pytest.fixture(scope="module")
def planted(tmp_path_factory):
    folder = tmp_path_factory.mktemp("failures")
    done = fuzz("--module", "planted", "--each", 12, "--seconds", 60, "--failures", folder)
    return done, rows(done.stdout), folder


def test_faults_are_counted_and_the_run_goes_on_behind_them(planted):
    done, table, _ = planted
    assert done.returncode == 1, done.stdout + done.stderr
    for name, column in [
        ("raises", "tracebacks"),
        ("hangs", "hangs"),
        ("crashes", "signals"),
        ("takes memory", "tracebacks"),
    ]:
        row = table[name]
        others = {"tracebacks", "signals", "hangs"} - {column}
        assert row[column] >= 1, f"{name} was not noticed"
        assert row["inputs"] == 12, f"{name}: a fault ended the run"
        assert row["accepted"] >= 1
        assert not any(row[other] for other in others), f"{name} was taken for something else"
        assert row["accepted"] + row["refused"] + row[column] == 12
    assert table["sound"]["accepted"] + table["sound"]["refused"] == 12
    assert "sound:" not in done.stdout.split("found:")[1]
    assert table["total"]["inputs"] == sum(row["inputs"] for name, row in table.items() if name != "total")


def test_memory_is_bounded(planted):
    assert 100 < planted[1]["takes memory"]["peak MB"] < 300, "256 MB were allowed"


def test_a_parser_that_ends_its_process_without_an_error_is_noticed(planted):
    assert "leaves: the process ended itself" in planted[0].stdout


def test_a_target_that_tests_nothing_is_a_finding(planted):
    assert "refuses all: no good input is accepted" in planted[0].stdout
    assert "cannot be prepared: cannot be prepared: ZeroDivisionError" in planted[0].stdout


def test_a_runtime_error_of_a_preparation_is_kept_and_the_second_try_begins_anew(planted):
    done, table, folder = planted
    assert table["second try"]["inputs"] == 12, done.stdout
    assert (folder / "second try-preparation.txt").read_text().endswith("RuntimeError: not now\n")


def test_a_folder_is_good_again_after_each_input(planted):
    table = planted[1]["folder"]
    assert table["signals"] >= 1
    assert not table["tracebacks"], "what one input left was there for the next"


def test_a_failing_input_is_kept_with_the_command_that_repeats_it(planted):
    done, _, folder = planted
    (command,) = re.findall(r"raises: KeyError at planted.py.*\n +python -m soak.fuzz (.*)\n(?: +python.*\n)?", done.stdout)
    assert Path(command.split()[-1]).parent == folder
    again = fuzz("--module", "planted", *command.split())
    assert again.returncode == 1
    assert again.stderr.rstrip().endswith("KeyError: 'missing'")


def test_the_same_seed_gives_the_same_inputs(tmp_path):
    target = all_targets()["names"]
    seeds = target.seeds_in(tmp_path)
    first = [made_input(target, seeds, 1, number) for number in range(60)]
    assert first == [made_input(target, seeds, 1, number) for number in range(60)]
    assert first[: len(seeds)] == seeds
    assert first[len(seeds) :] != [made_input(target, seeds, 2, number) for number in range(len(seeds), 60)]
    assert len(set(first)) > 50


@pytest.mark.parametrize("mutators", [BYTES, TEXT, JSON, NPY, ZIPS, SAFETENSORS])
def test_mutators_take_anything_and_change_most(mutators):
    rng, changed = random.Random(0), 0
    contents = [b"", b"x", b'{"a": [1, {"b": "[2]"}], "c": null}', bytes(range(256)) * 3]
    for number in range(2000):
        data = contents[number % len(contents)]
        changed += mutate(data, rng, Known(contents, (b"word",)), mutators) != data
    assert changed > 1800


def test_json_stays_json_under_its_own_mutator():
    rng, parsed = random.Random(0), 0
    data = json.dumps({"a": [1, 2.5, None], "b": {"c": "text"}}).encode()
    for _ in range(300):
        try:
            json.loads(mutate(data, rng, Known(), (JSON[0],)))
            parsed += 1
        except (ValueError, RecursionError):  # too deep, too many digits, a half of a bracket
            pass
    assert parsed > 200


def test_every_parser_stands_a_short_run(tmp_path):
    done = fuzz("--each", EACH, "--seconds", 120, "--failures", tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    table = rows(done.stdout)
    assert table.keys() == {*all_targets(), "total"}
    assert all(row["inputs"] >= 5 for row in table.values())
