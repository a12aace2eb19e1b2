"""What holds when it goes wrong: garbage, slow clients, full queues, and the end under load."""

import json
import os
import shutil
import signal
import socket
import threading
import time
from pathlib import Path

import pytest

from reprogram.errors import ReprogramError
from reprogram.serve.launch import Plan, serve
from reprogram.serve.limits import Limits
from reprogram.serve.torch_tasks import TorchWay
from serving import Process, Running, bomb, form, picture

GOOD = picture(4)
BODY, HEADERS = form(("a.png", GOOD))


def resident_bytes(pid):
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


def request_bytes(body=BODY, length=None):
    head = f"POST /v1/tasks/boats/predict HTTP/1.1\r\nHost: x\r\nContent-Type: {HEADERS['Content-Type']}\r\n"
    return f"{head}Content-Length: {len(body) if length is None else length}\r\n\r\n".encode() + body


def talk(client, content, *, half_close=False, wait=True):
    """Send bytes as they are; what comes back until the other side closes."""
    with socket.create_connection((client.host, client.port), timeout=20) as connection:
        connection.sendall(content)
        if half_close:
            connection.shutdown(socket.SHUT_WR)
        answer = b""
        while wait and (piece := connection.recv(65536)):
            answer += piece
            body = answer.partition(b"\r\n\r\n")[2]
            if body.endswith(b"}"):
                break
    return answer


@pytest.fixture(scope="module")
def process(made_tasks, tmp_path_factory):
    """A server of its own, whose memory can be measured, with small limits."""
    root = tmp_path_factory.mktemp("process")
    shutil.copytree(made_tasks, root / "tasks")
    running = Process(root / "tasks", "--max-upload", "1", "--max-pixels", "1000000", log=root / "log")
    yield running
    if running.process.poll() is None:
        running.end(signal.SIGKILL)


GARBAGE = {
    "truncated": lambda client: client.predict("boats", ("a.png", GOOD[:-300]))[0] == 422,
    "huge": lambda client: client.predict("boats", ("a.png", b"\x89PNG\r\n\x1a\n" + b"\0" * 2_000_000))[0] == 413,
    "endless": lambda client: b" 413 " in talk(client, request_bytes(BODY, length=10**12)),
    "wrong type": lambda client: client.predict("boats", ("a.py", b"print(1)"))[0] == 415,
    "bomb": lambda client: client.predict("boats", ("a.png", bomb()))[0] == 413,
    "no http": lambda client: b"not readable as HTTP" in talk(client, b"\x16\x03\x01\x02\0\r\n\r\n"),
    "long head": lambda client: b" 400 " in talk(client, b"GET / HTTP/1.1\r\nX: " + b"a" * 200_000, wait=True),
    "gone": lambda client: talk(client, request_bytes(), wait=False) == b"",
    "half a body and gone": lambda client: talk(client, request_bytes()[:-100], wait=False) == b"",
    "half closed": lambda client: b'"label"' in talk(client, request_bytes(), half_close=True),
    "half closed too early": lambda client: talk(client, request_bytes()[:-100], half_close=True) == b"",
}


def test_good_requests_succeed_among_garbage(process):
    client = process.client
    _, expected = client.predict("boats", ("a.png", GOOD))
    slow = [socket.create_connection((client.host, client.port)) for _ in range(4)]
    for number, connection in enumerate(slow):  # some never finish the head, some never finish the body
        connection.sendall(request_bytes()[: 30 if number % 2 else 250])
    good, bad = [], []

    def ask_well():
        for _ in range(12):
            good.append(client.predict("boats", ("a.png", GOOD)))

    def ask_badly(names, rounds):
        for _ in range(rounds):
            for name in names:
                bad.append((name, GARBAGE[name](client)))

    def together(rounds):
        threads = [threading.Thread(target=ask_well) for _ in range(4)]
        threads += [threading.Thread(target=ask_badly, args=(list(GARBAGE)[part::2], rounds)) for part in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    together(1)
    before = resident_bytes(process.process.pid)
    together(3)
    growth = resident_bytes(process.process.pid) - before
    for connection in slow:
        connection.close()
    assert [name for name, right in bad if not right] == []
    assert len(bad) == 4 * len(GARBAGE)
    assert len(good) == 96
    for status, said in good:
        assert status == 200
        assert said["predictions"][0]["label"] == expected["predictions"][0]["label"]
        assert said["predictions"][0]["probability"] == pytest.approx(expected["predictions"][0]["probability"], abs=1e-5)
    assert growth < 30e6
    events = process.events()
    assert not [one for one in events if one["event"] == "fault"]
    assert {one["status"] for one in events if one["event"] == "request"} <= {200, 400, 413, 415, 422, 499}
    told = {one["status"]: one["error"] for one in events if one.get("error")}
    assert "cannot be decoded" in told[422]
    assert "went away" in told[499]


def test_sigterm_answers_what_was_accepted_and_ends_with_0(process):
    """Those that were accepted are answered; nothing that was answered is lost; the log tells it."""
    client = process.client
    answered, refused = [], []

    def ask():
        while True:
            try:
                status, said = client.predict("padded", *[("a.png", GOOD)] * 8)
            except (OSError, json.JSONDecodeError) as error:
                refused.append(error)
                return
            answered.append((status, len(said.get("predictions", []))))

    threads = [threading.Thread(target=ask) for _ in range(6)]
    for thread in threads:
        thread.start()
    while len(answered) < 12:
        time.sleep(0.01)
    code = process.end(signal.SIGTERM)
    for thread in threads:
        thread.join()
    assert code == 0
    assert set(answered) == {(200, 8)}
    assert all(isinstance(error, ConnectionRefusedError | ConnectionResetError) for error in refused), refused
    events = process.events()
    assert [one["event"] for one in events if one["event"] != "request"][-2:] == ["draining", "stopped"]
    assert sum(one.get("images") == 8 and one["status"] == 200 for one in events if one["event"] == "request") == len(
        answered
    )


def test_what_cannot_be_answered_before_the_end_is_told_so(made_tasks, monkeypatch):
    """The end is not waited for without end; who is cut off gets a sentence of ours, and no bare 500."""
    monkeypatch.setattr("reprogram.serve.launch._GRACE", 0.3)
    real, began, found = TorchWay.__call__, threading.Event(), []

    def slowly(*given):
        began.set()
        time.sleep(3)
        return real(*given)

    monkeypatch.setattr(TorchWay, "__call__", slowly)
    with Running(made_tasks / "boats", watch=False, prepare=False) as client:
        asking = threading.Thread(target=lambda: found.append(client.predict("boats", ("a.png", GOOD))))
        asking.start()
        assert began.wait(60)
    asking.join()
    ((status, said),) = found
    assert status == 503
    assert said["error"].startswith("this service is being ended, and the answer took too long")


def test_a_full_queue_is_said_at_once(made_tasks):
    limits = Limits(queue=4, batch=1, images=64)
    with Running(made_tasks / "boats", watch=False, limits=limits, prepare=False) as client:
        status, said = client.predict("boats", *[("a.png", GOOD)] * 5)
        assert status == 429
        assert "try again" in said["error"]
        assert client.raw("POST", "/v1/tasks/boats/predict", *form(*[("a.png", GOOD)] * 5))[1]["retry-after"] == "1"
        assert client.predict("boats", *[("a.png", GOOD)] * 4)[0] == 200


def test_a_slow_body_is_given_up(made_tasks):
    with Running(made_tasks / "boats", watch=False, limits=Limits(seconds=0.3), prepare=False) as client:
        answer = talk(client, request_bytes()[:-50])
    assert b" 400 " in answer
    assert b"send it faster" in answer


def test_mistakes_before_the_port_is_open(made_tasks, tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as taken, pytest.raises(ReprogramError, match="cannot be listened at"):
        serve(Plan([made_tasks], port=taken.getsockname()[1]), print)
    with pytest.raises(ReprogramError, match="without a token"), Running(made_tasks, host="0.0.0.0", uploads=True):
        pass
    with pytest.raises(ReprogramError, match="no run and no artefact"), Running(tmp_path):
        pass
