"""Freed memory is kept where that can be had, and what the user has decided stays."""

import os
import platform
import subprocess
import sys

import pytest

from reprogram import memory

FAULTS = """
import resource, sys
from reprogram.memory import keep_freed_memory
import torch

torch.set_num_threads(1)
if sys.argv[1] == "kept":
    assert keep_freed_memory()

def work():
    for _ in range(20):
        torch.ones(64, 2**18)  # 64 MB, freed at once

work()
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
work()
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="other systems keep memory in their own ways")


def faults(how):
    """How many pages the system has to hand out for work that was done once already."""
    own = {name: value for name, value in os.environ.items() if not name.startswith(("MALLOC_", "GLIBC_", "LD_PRELOAD"))}
    done = subprocess.run([sys.executable, "-c", FAULTS, how], capture_output=True, text=True, check=True, env=own)
    return int(done.stdout)


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="other C libraries keep memory in their own ways")
def test_memory_that_is_kept_is_not_asked_for_again():
    assert 10 * faults("kept") < faults("given back")  # pages of 4 KiB or, where the system likes, of 2 MiB


@pytest.mark.parametrize(
    "name",
    [
        "GLIBC_TUNABLES",
        "LD_PRELOAD",
        "MALLOC_MMAP_MAX_",
        "MALLOC_MMAP_THRESHOLD_",
        "MALLOC_TRIM_THRESHOLD_",
        "MALLOC_TOP_PAD_",
    ],
)
def test_what_the_user_has_decided_stays(name, monkeypatch):
    monkeypatch.setattr(memory.ctypes, "CDLL", lambda name: pytest.fail("nothing is to be changed"))
    assert not memory.keep_freed_memory({name: "whatever"})


def test_an_empty_variable_decides_nothing(monkeypatch):
    class Glibc:
        """A C library that takes everything."""

        gnu_get_libc_version = True
        mallopt = staticmethod(lambda name, value: 1)

    monkeypatch.setattr(memory.ctypes, "CDLL", lambda name: Glibc())
    assert memory.keep_freed_memory({"LD_PRELOAD": "", "PATH": "/bin"})


def test_another_library_or_system_is_left_alone(monkeypatch):
    class Other:
        """A C library without glibc's names."""

    monkeypatch.setattr(memory.ctypes, "CDLL", lambda name: Other())
    assert not memory.keep_freed_memory({})
    monkeypatch.setattr(memory.sys, "platform", "darwin")
    assert not memory.keep_freed_memory({})


def test_torch_is_not_imported_for_it():
    code = (
        "import sys; from reprogram.memory import keep_freed_memory; keep_freed_memory(); sys.exit('torch' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
