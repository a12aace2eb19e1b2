"""Results come in the order of the items, and a mistake reads the same in every engine."""

import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from reprogram import ReprogramError
from reprogram.answers.parallel import Workers
from reprogram.answers.survey import survey_shard


def test_processes_keep_the_order_and_carry_errors(tmp_path):
    for number in range(9):
        (tmp_path / f"{number}.csv").write_text("label,logit_0\n" + "cat,1\n" * (number + 1))
    items = sorted(tmp_path.iterdir())
    (tmp_path / "4.csv").write_text("label,logit_0\ncat,x\n,2\n")
    with Workers("local", processes=2) as workers:
        found = workers.map(survey_shard, {}, [item for item in items if item.name != "4.csv"])
        assert [survey.rows for survey in found] == [1, 2, 3, 4, 6, 7, 8, 9]
        with pytest.raises(ReprogramError, match=r"row 2 of .*4.csv' has no label") as raised:
            list(workers.map(survey_shard, {}, items))
    with pytest.raises(ReprogramError) as alone:
        list(Workers().map(survey_shard, {}, items))
    assert str(raised.value) == str(alone.value)


def test_mistakes():
    for arguments, message in (
        (("cloud",), "engine 'cloud' is not known"),
        (("local", 0), "at least 1"),
        (("local", 1, "auto"), "only the ray engine"),
    ):
        with pytest.raises(ReprogramError, match=message):
            Workers(*arguments)


def test_a_ray_that_is_not_there_is_told_at_once():
    pytest.importorskip("ray")
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    with Workers("ray", 1, f"127.0.0.1:{port}") as workers, pytest.raises(ReprogramError, match="does not answer"):
        list(workers.map(pow, 2, [1]))


def listening():
    """Address and inode of every socket that waits for connections here, as Linux tells them."""
    found = {}
    for table in ("tcp", "tcp6"):
        for line in Path("/proc/net", table).read_text().splitlines()[1:]:
            _, address, _, state, *_, inode = line.split()[:10]
            if state == "0A":
                found[inode] = address.partition(":")[0]
    return found


def sockets_of(pids):
    links = []
    for pid in pids:
        for entry in Path(f"/proc/{pid}/fd").iterdir():
            try:
                links.append(str(entry.readlink()))
            except OSError:  # closed meanwhile
                continue
    return {link[len("socket:[") : -1] for link in links if link.startswith("socket:[")}


def descendants(pid):
    children = [
        int(child)
        for task in Path(f"/proc/{pid}/task").iterdir()
        for child in (task / "children").read_text().split()
        if Path("/proc", child).exists()
    ]
    return [pid, *(below for child in children for below in descendants(child))]


@pytest.mark.skipif(not Path("/proc/net/tcp").exists(), reason="only Linux tells its sockets so")
def test_an_own_ray_listens_on_the_loopback_interface_alone():
    """And it leaves nothing behind that would make a later Ray of the caller's do so."""
    pytest.importorskip("ray")
    name = "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"
    before = os.environ.get(name)
    with Workers("ray", 1) as workers:
        assert list(workers.map(pow, 2, [1, 2, 3])) == [2, 4, 8]
        sockets = listening()
        own = {inode: sockets[inode] for inode in sockets_of(descendants(os.getpid())) if inode in sockets}
    assert len(own) >= 4  # of the head, the node, a worker and this process
    assert set(own.values()) <= {"0100007F", "0000000000000000FFFF00000100007F", "00000000000000000000000001000000"}
    assert os.environ.get(name) == before
    from ray._private import ray_constants

    assert ray_constants.ENABLE_RAY_CLUSTER


SLEEPER = """
import sys, time
from reprogram.answers.parallel import Workers

def sleep(shared, seconds):
    print("begun", flush=True)
    time.sleep(seconds)

if __name__ == "__main__":
    with Workers("local", 2) as workers:
        list(workers.map(sleep, None, [60, 60, 60]))
"""


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGKILL])
def test_processes_end_with_the_one_that_started_them(how, tmp_path):
    """A Ctrl-C, which a terminal sends to all of them, is told by the first alone; a kill reaches only that one."""
    (tmp_path / "sleeper.py").write_text(SLEEPER)
    process = subprocess.Popen(
        [sys.executable, "sleeper.py"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=tmp_path,
        start_new_session=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    assert process.stdout.readline() == process.stdout.readline() == "begun\n"
    family = descendants(process.pid)
    assert len(family) >= 3
    if how == signal.SIGINT:
        os.killpg(process.pid, how)
    else:
        process.send_signal(how)
    started = time.monotonic()
    _, told = process.communicate(timeout=50)
    assert told.count("Traceback") == (1 if how == signal.SIGINT else 0), told  # this script does not catch its own
    while any(Path("/proc", str(pid), "exe").exists() for pid in family):
        assert time.monotonic() - started < 40
        time.sleep(0.05)
