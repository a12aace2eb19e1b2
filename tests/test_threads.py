"""Threads that sleep while they wait, and no more of them than CPUs are granted."""

import os
import subprocess
import sys

import pytest

from reprogram import threads


@pytest.fixture
def machine(monkeypatch, tmp_path):
    """A machine with 8 CPUs whose control groups say nothing; returns what makes it another one."""

    def change(cpus=8, cgroup_2=None, cgroup_1=None):
        files = {"cpu.max": cgroup_2, "quota": (cgroup_1 or (None, None))[0], "period": (cgroup_1 or (None, None))[1]}
        for name, content in files.items():
            (tmp_path / name).unlink(missing_ok=True)
            if content is not None:
                (tmp_path / name).write_text(content)
        monkeypatch.setattr(threads, "_CGROUP_2", tmp_path / "cpu.max")
        monkeypatch.setattr(threads, "_CGROUP_1", (tmp_path / "quota", tmp_path / "period"))
        monkeypatch.setattr(os, "sched_getaffinity", lambda process: set(range(cpus)), raising=False)

    change()
    return change


def environment(**given):
    threads.sleep_while_waiting(given)
    return given


ASLEEP = {"OMP_WAIT_POLICY": "PASSIVE", "GOMP_SPINCOUNT": "0", "KMP_BLOCKTIME": "0"}


def test_waiting_threads_sleep_and_all_cpus_are_used(machine):
    assert threads.granted_cpus() == 8
    assert environment() == ASLEEP


def test_what_the_user_has_set_wins(machine):
    machine(cgroup_2="200000 100000\n")
    assert environment(OMP_WAIT_POLICY="ACTIVE") == {"OMP_WAIT_POLICY": "ACTIVE", "OMP_NUM_THREADS": "2"}
    assert environment(GOMP_SPINCOUNT="7") == {**ASLEEP, "GOMP_SPINCOUNT": "7", "OMP_NUM_THREADS": "2"}
    assert environment(OMP_NUM_THREADS="5") == {**ASLEEP, "OMP_NUM_THREADS": "5"}


@pytest.mark.parametrize(
    ("told", "cpus"),
    [
        ({"cgroup_2": "max 100000\n"}, 8),
        ({"cgroup_2": "200000 100000\n"}, 2),
        ({"cgroup_2": "150000 100000\n"}, 2),  # one and a half: rounded up, for a share of a CPU is still one
        ({"cgroup_2": "10000 100000\n"}, 1),
        ({"cgroup_2": "1600000 100000\n"}, 8),  # more than there are
        ({"cgroup_2": "nonsense\n"}, 8),
        ({"cgroup_2": "5 0\n"}, 8),
        ({"cgroup_2": "max\n"}, 8),
        ({"cgroup_1": ("-1\n", "100000\n")}, 8),
        ({"cgroup_1": ("300000\n", "100000\n")}, 3),
        ({"cgroup_1": ("300000\n", None)}, 8),
        ({"cgroup_2": "400000 100000\n", "cgroup_1": ("100000\n", "100000\n")}, 4),  # version 2 is asked first
        ({"cpus": 3}, 3),
        ({"cpus": 1, "cgroup_2": "400000 100000\n"}, 1),
    ],
)
def test_cpus_are_those_of_the_affinity_and_of_the_quota(machine, told, cpus):
    machine(**told)
    assert threads.granted_cpus() == cpus
    limited = cpus < told.get("cpus", 8)  # OpenMP knows the affinity, but no quota
    assert environment().get("OMP_NUM_THREADS") == (str(cpus) if limited else None)


def test_without_an_affinity_all_cpus_of_the_machine_count(machine, monkeypatch):
    monkeypatch.delattr(os, "sched_getaffinity", raising=False)
    monkeypatch.setattr(os, "cpu_count", lambda: 5)
    assert threads.granted_cpus() == 5
    monkeypatch.setattr(os, "cpu_count", lambda: None)
    assert threads.granted_cpus() == 1


def test_the_command_line_sets_them_before_torch_is_imported():
    """`runpy` is what `python -m` does; torch is a stand-in that tells what it finds when it is imported."""
    code = """
import importlib.abc, os, runpy, sys

class Watch(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name == "torch":
            print("torch finds", os.environ.get("OMP_WAIT_POLICY"), os.environ.get("GOMP_SPINCOUNT"))
            sys.stdout.flush()
            os._exit(0)

sys.meta_path.insert(0, Watch())
sys.argv = ["reprogram", "models", "bundled:*"]
runpy.run_module("reprogram", run_name="__main__")
"""
    for given, expected in (({}, "PASSIVE 0"), ({"OMP_WAIT_POLICY": "ACTIVE"}, "ACTIVE None")):
        clean = {name: value for name, value in os.environ.items() if not name.startswith(("OMP_", "GOMP_", "KMP_"))}
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=clean | given, check=True)
        assert done.stdout == f"torch finds {expected}\n", done.stderr
