import os
import threading
import time

import pytest

from holding import held
from reprogram.errors import ReprogramError
from reprogram.files import locked, locks, remove_abandoned


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
    path.write_text("old")
    free = locks.held_by_another

    def meanwhile(descriptor):
        path.unlink()
        path.write_text("new")
        return free(descriptor)

    monkeypatch.setattr(locks, "held_by_another", meanwhile)
    remove_abandoned(path)
    assert path.read_text() == "new"
    monkeypatch.undo()
    remove_abandoned(path)
    assert not path.exists()
