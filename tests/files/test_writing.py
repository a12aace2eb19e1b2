import errno
import os
import stat
import subprocess
import sys
import threading
from pathlib import Path

import pytest
import torch

from reprogram.errors import ReprogramError
from reprogram.files import (
    claimed_folder,
    is_leftover,
    locked,
    read_sealed,
    read_tensors,
    remove_leftovers,
    settle_folder,
    write_file,
    write_folder,
    write_sealed,
    write_tensors,
    write_text,
    writing,
)


def test_tensors_and_header_come_back_to_the_bit(tmp_path):
    tensors = {"a": torch.randn(3, 2), "b/c": torch.arange(4), "d": torch.rand(2, 3, dtype=torch.float64).T}
    write_tensors(tmp_path / "x.safetensors", tensors, {"epoch": 3, "name": "θ"})
    back, header = read_tensors(tmp_path / "x.safetensors", "file")
    assert header == {"epoch": 3, "name": "θ"}
    assert all(torch.equal(back[key], tensors[key]) for key in tensors)
    assert [path.name for path in tmp_path.iterdir()] == ["x.safetensors"]


def test_a_failed_write_leaves_the_old_file_and_no_rubbish(tmp_path):
    write_sealed(tmp_path / "x.json", {"old": 1})
    with pytest.raises(TypeError):
        write_sealed(tmp_path / "x.json", {"new": object()})
    with pytest.raises(AttributeError):
        write_tensors(tmp_path / "x.json", {"a": "no tensor"})
    assert read_sealed(tmp_path / "x.json", "file") == {"old": 1}
    assert [path.name for path in tmp_path.iterdir()] == ["x.json"]


def test_a_failed_folder_leaves_the_old_one(tmp_path):
    write_folder(tmp_path / "f", lambda fresh: (fresh / "a").touch())

    def fail(fresh):
        (fresh / "b").touch()
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write_folder(tmp_path / "f", fail)
    assert [path.name for path in tmp_path.iterdir()] == ["f"]
    assert [path.name for path in (tmp_path / "f").iterdir()] == ["a"]


def test_a_claimed_folder_is_taken_back_if_nothing_came_of_it(tmp_path):
    with pytest.raises(KeyError), claimed_folder(tmp_path / "a" / "b"):
        raise KeyError
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(FileExistsError), claimed_folder(tmp_path / "a" / "b") as folder:
        (folder / "work").mkdir() or (folder / "work").mkdir()
    assert (tmp_path / "a" / "b" / "work").exists()


def test_numbered_folders_are_never_shared(tmp_path):
    names = []
    for _ in range(3):
        with claimed_folder(tmp_path / "run", numbered=True) as folder:
            names.append(folder.name)
    assert names == ["run", "run-2", "run-3"]


def test_names_that_are_not_utf8_are_written(tmp_path):
    write_sealed(tmp_path / "x.json", {"name": "caf\udce9.png"})
    assert read_sealed(tmp_path / "x.json", "file") == {"name": "caf\udce9.png"}


def names(folder):
    return sorted(path.name for path in folder.iterdir())


@pytest.mark.parametrize("exchange", [True, False])
def test_a_folder_is_replaced_as_a_whole(tmp_path, monkeypatch, exchange):
    if not exchange:
        monkeypatch.setattr(writing, "_exchange", lambda one, other: False)
    write_folder(tmp_path / "f", lambda fresh: (fresh / "a").touch())
    write_folder(tmp_path / "f", lambda fresh: (fresh / "b").touch())
    assert names(tmp_path) == ["f"]
    assert names(tmp_path / "f") == ["b"]


def test_a_folder_that_was_moved_aside_comes_back(tmp_path, monkeypatch):
    """What a kill between the two steps leaves, where folders cannot be exchanged."""
    write_folder(tmp_path / "f", lambda fresh: (fresh / "a").touch())
    (tmp_path / "f").rename(tmp_path / ".replaced-f")
    settle_folder(tmp_path / "f")
    assert names(tmp_path) == ["f"]
    assert names(tmp_path / "f") == ["a"]
    (tmp_path / "f").rename(tmp_path / ".replaced-f")
    write_folder(tmp_path / "f", lambda fresh: (fresh / "b").touch())
    assert names(tmp_path) == ["f"]


def test_reading_brings_a_place_in_order_but_not_under_somebody_who_writes(tmp_path):
    write_folder(tmp_path / "f", lambda fresh: (fresh / "a").touch())
    for name in (".unfinished-0123abcd-f", ".replaced-f"):
        (tmp_path / name).mkdir()
    (tmp_path / ".f.lock").touch()
    with locked(tmp_path / ".f.lock", "it"):
        settle_folder(tmp_path / "f")
        assert names(tmp_path) == [".f.lock", ".replaced-f", ".unfinished-0123abcd-f", "f"]
    settle_folder(tmp_path / "f")
    assert names(tmp_path) == ["f"]


def test_an_exchange_that_the_file_system_cannot_do_is_done_in_two_steps(tmp_path, monkeypatch):
    for name in ("one", "other"):
        (tmp_path / name).mkdir()
    assert writing._exchange(tmp_path / "one", tmp_path / "other") is (sys.platform in ("linux", "darwin"))
    with pytest.raises(OSError, match="No such file"):
        writing._exchange(tmp_path / "one", tmp_path / "missing")


def test_what_killed_processes_left_is_removed_and_what_live_ones_write_is_not(tmp_path):
    (tmp_path / ".x.json-0123abcd.tmp").write_text("half")
    (tmp_path / ".other.json-0123abcd.tmp").write_text("half")
    (tmp_path / ".unfinished-0123abcd-f23").mkdir()
    began, go_on = threading.Event(), threading.Event()

    def slowly(temporary):
        temporary.write_text("slow")
        began.set()
        assert go_on.wait(30)

    slow = threading.Thread(target=write_file, args=(tmp_path / "x.json", slowly))
    slow.start()
    assert began.wait(30)
    write_text(tmp_path / "x.json", "quick")
    remove_leftovers(tmp_path)
    assert [name for name in names(tmp_path) if name.endswith(".tmp")] != []  # that of the slow one
    go_on.set()
    slow.join()
    assert names(tmp_path) == ["x.json"]
    assert (tmp_path / "x.json").read_text() == "slow"


def test_leftovers_are_known_by_their_names(tmp_path):
    for name in (".x-00.tmp", ".lock", ".f.lock", ".unfinished-0123abcd-f", ".replaced-f"):
        assert is_leftover(tmp_path / name)
    for name in ("x.tmp", ".hidden", "lock", ".git"):
        assert not is_leftover(tmp_path / name)


def test_new_files_and_folders_have_the_modes_that_the_user_wants(tmp_path):
    code = (
        "import os, pathlib, torch; os.umask(0o027); from reprogram.files import *; "
        "write_sealed(pathlib.Path('a.json'), {}); write_tensors(pathlib.Path('b.safetensors'), {'x': torch.ones(2)}); "
        "write_folder(pathlib.Path('c'), lambda fresh: None)"
    )
    subprocess.run([sys.executable, "-c", code], cwd=tmp_path, check=True)
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in tmp_path.iterdir()}
    assert modes == {"a.json": 0o640, "b.safetensors": 0o640, "c": 0o750}


@pytest.mark.parametrize("name", ["n" * 255, "猫" * 85, "🐈" * 63])
def test_the_longest_names_can_be_written(tmp_path, monkeypatch, name):
    write_text(tmp_path / "a" / name, "x")
    assert names(tmp_path / "a") == [name]
    for exchange in (writing._exchange, lambda one, other: False):
        monkeypatch.setattr(writing, "_exchange", exchange)
        write_folder(tmp_path / "b" / name, lambda fresh: (fresh / "x").touch())
        assert names(tmp_path / "b") == [name]


def test_everything_is_brought_to_the_disk_before_it_takes_its_place(tmp_path, monkeypatch):
    done = []
    synced, replaced = os.fsync, type(tmp_path).replace
    monkeypatch.setattr(os, "fsync", lambda descriptor: (done.append("fsync"), synced(descriptor))[1])
    monkeypatch.setattr(type(tmp_path), "replace", lambda self, to: (done.append("replace"), replaced(self, to))[1])
    write_text(tmp_path / "x", "content")
    assert done == ["fsync", "replace", "fsync"]  # the file, its place, and the folder that names it


def test_a_full_disk_is_an_error_of_the_system_and_leaves_the_old_file(tmp_path, monkeypatch):
    write_tensors(tmp_path / "x", {"a": torch.ones(3)})
    before = (tmp_path / "x").read_bytes()

    def full(descriptor):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space"):
        write_tensors(tmp_path / "x", {"a": torch.zeros(3)})
    assert names(tmp_path) == ["x"]
    assert (tmp_path / "x").read_bytes() == before


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_numbers_that_json_does_not_know_are_not_written(tmp_path, value):
    with pytest.raises(ReprogramError, match=r"x\.json.*NaN or infinity"):
        write_sealed(tmp_path / "x.json", {"a": [value]})
    assert names(tmp_path) == []


def test_a_link_to_a_folder_stays_a_link(tmp_path, monkeypatch):
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to("real")
    write_folder(tmp_path / "link", lambda fresh: (fresh / "a").touch())
    assert names(tmp_path) == ["link", "real"]
    assert (tmp_path / "link").is_symlink()
    assert names(tmp_path / "real") == ["a"]
    monkeypatch.chdir(tmp_path / "real")
    for path in (Path(), Path("/")):
        settle_folder(path)


def test_what_appeared_meanwhile_can_be_spared(tmp_path):
    def check():
        raise KeyError

    with pytest.raises(KeyError):
        write_folder(tmp_path / "f", lambda fresh: (fresh / "a").touch(), check)
    assert names(tmp_path) == []


def test_a_folder_is_not_taken_for_the_leftover_of_one_with_a_like_name(tmp_path):
    """While m-2 is written, m is written and read."""

    def fill(fresh):
        write_folder(tmp_path / "m", lambda other: (other / "a").touch())
        settle_folder(tmp_path / "m")
        settle_folder(tmp_path / "2")
        (fresh / "b").touch()

    write_folder(tmp_path / "m-2", fill)
    assert names(tmp_path) == ["m", "m-2"]
    assert names(tmp_path / "m-2") == ["b"]


def test_what_stands_aside_is_kept_while_its_place_is_in_use(tmp_path):
    (tmp_path / ".replaced-f").mkdir()
    (tmp_path / "f").mkdir()
    with locked(tmp_path / ".f.lock", "it"):
        remove_leftovers(tmp_path)
        assert (tmp_path / ".replaced-f").is_dir()
    remove_leftovers(tmp_path)
    assert names(tmp_path) == ["f"]


def test_a_temporary_file_that_another_has_taken_for_a_leftover_is_made_anew(tmp_path, monkeypatch):
    others = [True, False]
    monkeypatch.setattr(writing, "held_by_another", lambda descriptor: others.pop(0))
    write_text(tmp_path / "x", "content")
    assert others == []
    assert (tmp_path / "x").read_text() == "content"


def test_a_place_that_nothing_of_ours_can_stand_beside_needs_no_order(tmp_path):
    (tmp_path / "loop").symlink_to("loop")
    (tmp_path / ("n" * 250)).mkdir()
    before = names(tmp_path)
    for name in before:
        settle_folder(tmp_path / name)
    assert names(tmp_path) == before
