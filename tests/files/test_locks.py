import errno
import os
import threading
import time

import pytest

from holding import held
from reprogram.errors import ReprogramError
from reprogram.files import locked, locks, remove_abandoned, write_text


@pytest.fixture
def holder(tmp_path):
    with held(tmp_path / ".lock") as process:
        yield process


def test_a_lock_leaves_nothing_behind(tmp_path):
    for _ in range(2):
        with locked(tmp_path / ".lock", "the folder"):
            assert [path.name for path in tmp_path.iterdir()] == [".lock"]
        assert list(tmp_path.iterdir()) == []


def test_a_second_process_is_refused_and_told_who_holds_it(tmp_path, holder):
    with (
        pytest.raises(
            ReprogramError, match=f"^the folder is in use by process {holder.pid}; wait until that has ended, or go$"
        ),
        locked(tmp_path / ".lock", "the folder", remedy=", or go"),
    ):
        pass
    assert (tmp_path / ".lock").exists()


def test_the_lock_of_a_killed_process_is_taken_over(tmp_path, holder):
    holder.kill()
    holder.wait()
    assert (tmp_path / ".lock").exists()
    with locked(tmp_path / ".lock", "the folder"):
        assert (tmp_path / ".lock").read_text() == f"{os.getpid()}\n"
    assert list(tmp_path.iterdir()) == []


def test_waiting_ends_when_the_holder_does(tmp_path, holder):
    said = []
    threading.Timer(0.3, holder.kill).start()
    with locked(tmp_path / ".lock", "the folder", wait=30, on_wait=lambda: said.append("waiting")):
        assert said == ["waiting"]


def test_threads_exclude_one_another(tmp_path):
    inside, most = [], []

    def work():
        for _ in range(20):
            with locked(tmp_path / ".lock", "the folder", wait=30):
                inside.append(1)
                most.append(len(inside))
                time.sleep(0.0005)
                inside.pop()

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(most) == 80
    assert max(most) == 1


def test_a_lock_file_that_is_a_link_is_not_followed(tmp_path):
    (tmp_path / "precious").write_text("content")
    (tmp_path / ".lock").symlink_to("precious")
    with pytest.raises(OSError, match="symbolic"), locked(tmp_path / ".lock", "the folder"):
        pass
    assert (tmp_path / "precious").read_text() == "content"


def test_only_the_file_that_was_abandoned_is_removed(tmp_path, monkeypatch):
    """Between opening and locking, its holder removes it and another process makes one of the same name."""
    path = tmp_path / ".lock"
    first, second = locked(path, "it"), locked(path, "it")
    first.__enter__()
    take = locks._take

    def later(descriptor):
        monkeypatch.undo()
        first.__exit__(None, None, None)
        second.__enter__()
        take(descriptor)

    monkeypatch.setattr(locks, "_take", later)
    remove_abandoned(path)
    with pytest.raises(ReprogramError, match="in use"), locked(path, "it"):
        pass
    second.__exit__(None, None, None)
    assert list(tmp_path.iterdir()) == []


def test_where_there_are_no_locks_work_goes_on_and_nothing_is_taken_for_abandoned(tmp_path, monkeypatch):
    def no_locks(descriptor):
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(locks, "_take", no_locks)
    (tmp_path / ".x-0123abcd.tmp").write_text("of somebody who may be alive")
    with locked(tmp_path / ".lock", "it"):
        remove_abandoned(tmp_path / ".lock")
        write_text(tmp_path / "x", "content")
        assert sorted(path.name for path in tmp_path.iterdir()) == [".lock", ".x-0123abcd.tmp", "x"]


def test_an_interrupt_does_not_remove_the_lock_of_another(tmp_path, monkeypatch):
    path = tmp_path / ".lock"
    look = locks.still_there

    def replaced(descriptor, at):
        monkeypatch.setattr(locks, "still_there", look)
        path.unlink()
        path.write_text("of another")
        raise KeyboardInterrupt

    monkeypatch.setattr(locks, "still_there", replaced)
    with pytest.raises(KeyboardInterrupt), locked(path, "it"):
        pass
    assert path.read_text() == "of another"
