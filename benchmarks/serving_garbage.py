"""Good requests among garbage, and the end of the service under load: what is answered, what it costs, what is lost.

    python benchmarks/serving_garbage.py [--seconds 60] [--out docs/results/serving.md]

`reprogram serve` on the bundled model gets good requests from some clients, each of whose answers is compared with what was
said before the garbage began, while others send it what it must refuse: truncated, huge and endless bodies, a
decompression bomb, what is no image and what is no HTTP, clients that stop in the middle, that close one half of the
connection, that send a byte now and then. Memory (PSS), answers and the log are looked at. Then it gets SIGTERM under load,
and after that, started again, SIGKILL while clients also upload tasks: what was answered has to be there when it is back.

With --out the section is put at the end of that file, in the place of the one that stands there.
"""

import argparse
import asyncio
import json
import multiprocessing
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import zlib
from collections import Counter
from contextlib import suppress
from pathlib import Path

from serving_tasks import GARBAGE_HEADING, MODEL, ask, make_pictures, make_tasks, packed, private_bytes

GOOD_CLIENTS = 8
ENDING_CLIENTS = 8
TASKS = ("first", "padding-a")
TORN = (0, b"")
LIMITS = ("--max-upload", "4", "--max-pixels", "4000000")
EVENTS = {"prepared", "started", "request", "server", "draining", "stopped", "task-added", "task-removed"}


def form(*files):
    """The body of a form with these images."""
    head = b'--edge\r\nContent-Disposition: form-data; name="image"; filename="a.jpg"\r\n\r\n'
    return b"".join(head + content + b"\r\n" for content in files) + b"--edge--\r\n"


def request(task, body, length=None):
    """The bytes of a request."""
    length = len(body) if length is None else length
    head = (
        f"POST /v1/tasks/{task}/predict HTTP/1.1\r\nHost: localhost\r\n"
        f"Content-Type: multipart/form-data; boundary=edge\r\nContent-Length: {length}\r\n\r\n"
    )
    return head.encode() + body


def bomb(side=60_000):
    """A PNG of some hundred bytes that claims billions of pixels."""

    def chunk(kind, content):
        return len(content).to_bytes(4, "big") + kind + content + zlib.crc32(kind + content).to_bytes(4, "big")

    head = side.to_bytes(4, "big") * 2 + b"\x08\x02\0\0\0"
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", zlib.compress(bytes(9999))) + chunk(b"IEND", b"")


async def answer(reader):
    """Status and body of one answer; None where the other side closes without one, TORN where it does in the middle."""
    head = b""
    try:
        head = await reader.readuntil(b"\r\n\r\n")
        lines = head.lower().split(b"\r\n")
        length = [int(line.split(b":")[1]) for line in lines if line.startswith(b"content-length")]
        return int(head.split()[1]), await (reader.readexactly(length[0]) if length else reader.read())
    except asyncio.IncompleteReadError as error:
        return TORN if head or error.partial else None
    except ConnectionError:
        return TORN if head else None


async def sent(port, content, *, half=False, wait=True):
    """The status of the answer to some bytes, None without one.

    Args:
        port: of the service.
        content: the bytes.
        half: whether this side of the connection is closed behind them.
        wait: whether the answer is waited for.
    """
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        writer.write(content)
        with suppress(ConnectionError):  # what is refused by its head is not read to the end
            await writer.drain()
            if half:
                writer.write_eof()
        found = await answer(reader) if wait else None
        return None if found is None else found[0]
    finally:
        writer.close()


async def slowly(port, at_once, rest):
    """The same where some bytes come at once and the rest one by one, until the other side has had enough."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    reading = asyncio.create_task(answer(reader))
    try:
        writer.write(at_once)
        for place in range(len(rest)):
            writer.write(rest[place : place + 1])
            done, _ = await asyncio.wait([reading], timeout=0.5)
            if done:
                break
        found = await reading
        return None if found is None else found[0]
    finally:
        writer.close()


def garbage(good):
    """By name: how it is sent, and the answers that it may get; None is a connection that is closed without one."""
    whole = request("first", form(good))
    head = whole.index(b"\r\n\r\n") + 4
    huge = request("first", form(b"\xff\xd8\xff" + bytes(6_000_000)))
    return {
        "truncated image": (lambda port: sent(port, request("first", form(good[: len(good) // 2]))), {422}),
        "more bytes than are taken": (lambda port: sent(port, huge), {413}),
        "a length of 10^12 bytes": (lambda port: sent(port, request("first", b"", 10**12)), {413}),
        "decompression bomb": (lambda port: sent(port, request("first", form(bomb()))), {413}),
        "no image": (lambda port: sent(port, request("first", form(b"print('hello')"))), {415}),
        "no HTTP": (lambda port: sent(port, b"\x16\x03\x01\x02\0\r\n\r\n"), {400}),
        "a head without end": (lambda port: sent(port, b"GET / HTTP/1.1\r\nX: " + b"a" * 200_000), {400}),
        "no such task": (lambda port: sent(port, request("nobody", form(good))), {404}),
        "gone before the answer": (lambda port: sent(port, whole, wait=False), {None}),
        "gone in the middle": (lambda port: sent(port, whole[:-500], wait=False), {None}),
        "half closed": (lambda port: sent(port, whole, half=True), {200}),
        "half closed in the middle": (lambda port: sent(port, whole[:-500], half=True), {None}),
        "a head byte by byte": (lambda port: slowly(port, b"", whole[:head]), {None}),
        "a body byte by byte": (lambda port: slowly(port, whole[:head], whole[head:]), {400}),
    }


async def ask_well(port, expected, until, found):
    """Ask, wait, compare, ask again, on one connection."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    turn = len(found["turns"])
    found["turns"].append(turn)
    try:
        while time.perf_counter() < until:
            task, content, label, share = expected[turn % len(expected)]
            turn += 3  # another picture and another task
            began = time.perf_counter()
            writer.write(request(task, form(content)))
            got = await answer(reader)
            found["seconds"].append(time.perf_counter() - began)
            if got is None or got[0] != 200:
                found["failed"].append(got)
                return
            said = json.loads(got[1])["predictions"][0]
            right = said["label"] == label and abs(said["probability"] - share) < 1e-5
            found["right" if right else "wrong"].append(said)
    finally:
        writer.close()


async def ask_badly(port, send, allowed, until, seen, surprises, pause):
    """Send one kind of garbage again and again."""
    while time.perf_counter() < until:
        try:
            status = await asyncio.wait_for(send(port), 60)
        except (TimeoutError, OSError) as error:
            status = type(error).__name__
        seen[status] += 1
        if status not in allowed:
            surprises.append(status)
        await asyncio.sleep(pause)


async def waiting(port):
    """How many images wait for the model, as the service says."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n")
    text = (await answer(reader))[1].decode()
    writer.close()
    return next(int(float(line.split()[1])) for line in text.splitlines() if line.startswith("reprogram_waiting_images "))


async def mixed(port, pid, expected, seconds, kinds):
    """Good requests and garbage at once; the memory on the way."""
    until = time.perf_counter() + seconds
    good = {"turns": [], "seconds": [], "failed": [], "right": [], "wrong": []}
    seen, surprises, memory = {name: Counter() for name in kinds}, {name: [] for name in kinds}, []

    async def weigh():
        while time.perf_counter() < until:
            memory.append((private_bytes(pid), await waiting(port)))
            await asyncio.sleep(max(0.1, seconds / 12))

    work = [ask_well(port, expected, until, good) for _ in range(GOOD_CLIENTS)]
    for name, (send, allowed) in kinds.items():
        # who waits for no answer is held back by nothing else; a body that has come as a whole is worked on, as its client
        # may have closed only its own half of the connection
        pause = 0.0 if "byte by byte" in name else 1.0 if "gone" in name else 0.1
        work += [ask_badly(port, send, allowed, until, seen[name], surprises[name], pause) for _ in range(1 if pause else 4)]
    await asyncio.gather(weigh(), *work)
    return {"good": good, "seen": seen, "surprises": surprises, "memory": memory}


async def until_the_end(port, expected, ended, uploads=()):
    """Ask until nobody answers any more: what was answered, and what was sent as a whole and was not."""
    found = {"right": 0, "wrong": 0, "other": Counter(), "unanswered": 0, "torn": 0, "kept": []}

    async def asking(number):
        turn = number
        while not ended.is_set():
            task, content, label, share = expected[turn % len(expected)]
            turn += 1
            try:
                reader, writer = await asyncio.open_connection("127.0.0.1", port)
            except OSError:
                return
            try:
                writer.write(request(task, form(*[content] * 4)))
                await writer.drain()
                got = await answer(reader)
                if got is None or got is TORN:
                    found["unanswered" if got is None else "torn"] += 1
                elif got[0] != 200:
                    found["other"][got[0]] += 1
                else:
                    said = json.loads(got[1])["predictions"]
                    right = len(said) == 4 and all(
                        one["label"] == label and abs(one["probability"] - share) < 1e-5 for one in said
                    )
                    found["right" if right else "wrong"] += 1
            except OSError:
                found["unanswered"] += 1
            finally:
                writer.close()

    async def uploading():
        for number, content in enumerate(uploads):
            if ended.is_set():
                return
            head = (
                f"PUT /v1/tasks/new-{number} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/zip\r\n"
                f"Content-Length: {len(content)}\r\n\r\n"
            )
            try:
                reader, writer = await asyncio.open_connection("127.0.0.1", port)
                writer.write(head.encode() + content)
                got = await answer(reader)
                writer.close()
            except OSError:
                return
            if got is None or got is TORN:
                return
            if got[0] in (200, 201):
                found["kept"].append(f"new-{number}")

    await asyncio.gather(*(asking(number) for number in range(ENDING_CLIENTS)), uploading())
    return found


class Service:
    """`reprogram serve` in a process of its own."""

    def __init__(self, folder, log, *flags):
        self.log = log
        with log.open("wb") as errors:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "reprogram", "serve", str(folder), "--port", "0", *LIMITS, *flags],
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
            )
        line = self.process.stdout.readline()
        assert line.startswith("serving "), log.read_text()
        self.port, self.pid = int(line.rpartition(":")[2]), self.process.pid

    def end(self, number):
        """Send a signal and wait; the exit code."""
        self.process.send_signal(number)
        return self.process.wait(90)

    def events(self):
        """The lines of the log, and those among them that are none of ours."""
        lines, foreign = [], []
        for text in self.log.read_text(errors="replace").splitlines():
            try:
                line = json.loads(text)
                (lines if line.get("event") in EVENTS else foreign).append(line)
            except ValueError:
                foreign.append(text)
        return lines, foreign


async def ended_by(service, number, expected, after, uploads=()):
    """Load, and a signal in the middle of it."""
    ended = asyncio.Event()
    asking = asyncio.create_task(until_the_end(service.port, expected, ended, uploads))
    await asyncio.sleep(after)
    code = await asyncio.get_running_loop().run_in_executor(None, service.end, number)
    ended.set()
    return code, await asking


def expected_answers(port, pictures):
    """What is said of each picture by each task while nobody else asks."""
    found = []
    for path in sorted(pictures.glob("*.jpg"))[:5]:
        content = path.read_bytes()
        for task in TASKS:
            said = ask(port, "POST", f"/v1/tasks/{task}/predict", form(content), "multipart/form-data; boundary=edge")
            found.append((task, content, said["predictions"][0]["label"], said["predictions"][0]["probability"]))
    return found


def measure(seconds, work):
    """All numbers."""
    pictures, made, served = work / "pictures", work / "made", work / "served"
    for folder in (pictures, made, served):
        folder.mkdir()
    make_pictures(pictures)
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        pool.apply(make_tasks, (made,))
    for task in TASKS:
        shutil.copytree(made / task, served / task)
    found = {"load": [os.getloadavg()[0]]}
    service = Service(served, work / "garbage.log")
    try:
        expected = expected_answers(service.port, pictures)
        kinds = garbage(expected[0][1])
        quick = {name: kind for name, kind in kinds.items() if "byte by byte" not in name}
        asyncio.run(mixed(service.port, service.pid, expected, 5.0, {}))  # ways are prepared
        found["idle"] = private_bytes(service.pid)
        asyncio.run(mixed(service.port, service.pid, expected, 15.0, quick))  # whatever is loaded by the first of a kind
        found["before"] = private_bytes(service.pid)
        found["mixed"] = asyncio.run(mixed(service.port, service.pid, expected, seconds, kinds))
        found["still"] = expected_answers(service.port, pictures)  # behind what clients left waiting that have gone
        found["still"] = sum(
            one[2] == other[2] and abs(one[3] - other[3]) < 1e-5 for one, other in zip(found["still"], expected, strict=True)
        )
        found["after"] = private_bytes(service.pid)
        found["log"] = service.events()
        found["term"] = asyncio.run(ended_by(service, signal.SIGTERM, expected, 4.0))
        lines, found["foreign"] = service.events()
        asked = [line for line in lines[len(found["log"][0]) :] if line["event"] == "request"]
        found["term logged"] = Counter(line["status"] for line in asked)
    finally:
        service.process.kill()
    service = Service(served, work / "killed.log", "--allow-upload")
    try:
        expected = expected_answers(service.port, pictures)
        found["kill"] = asyncio.run(ended_by(service, signal.SIGKILL, expected, 4.0, [packed(made / "first")] * 200))
    finally:
        service.process.kill()
    service = Service(served, work / "again.log", "--allow-upload")
    try:
        names = {task["name"] for task in ask(service.port, "GET", "/v1/tasks")["tasks"]}
        kept = found["kill"][1]["kept"]
        _, content, label, share = expected[0]  # of `first`, which was uploaded
        kind = "multipart/form-data; boundary=edge"
        found["back"] = [
            name
            for name in kept
            if name in names
            and (said := ask(service.port, "POST", f"/v1/tasks/{name}/predict", form(content), kind)["predictions"][0])
            and said["label"] == label
            and abs(said["probability"] - share) < 1e-5
        ]
        found["verify"] = subprocess.run(
            [sys.executable, "-m", "reprogram", "verify", str(served)], capture_output=True, check=False
        ).returncode
    finally:
        found["again"] = service.end(signal.SIGTERM)
    found["load"].append(os.getloadavg()[0])
    return found


def section(found, seconds):
    """The section of the page, in Markdown."""
    import torch

    good, memory = found["mixed"]["good"], found["mixed"]["memory"]
    times = sorted(good["seconds"])
    lines = found["log"][0]
    statuses = Counter(line["status"] for line in lines if line["event"] == "request")
    said = Counter(line["said"] for line in lines if line["event"] == "server")
    code, term = found["term"]
    kill = found["kill"][1]
    logged = found["term logged"]
    first, last = found["load"]
    answered = term["right"] + term["wrong"]
    rows = [
        (
            f"good requests ({GOOD_CLIENTS} clients, two tasks) that were answered with the label and probability of before",
            f"{len(good['right']):,} of {len(good['right']) + len(good['wrong']) + len(good['failed']):,}",
        ),
        (
            "their latency, p50 and p99",
            f"{1000 * times[len(times) // 2]:.0f} and {1000 * times[int(0.99 * len(times))]:.0f} ms",
        ),
        ("garbage sent", f"{sum(sum(seen.values()) for seen in found['mixed']['seen'].values()):,}"),
        ("answers to garbage other than those in the table below", str(sum(map(len, found["mixed"]["surprises"].values())))),
        (
            "memory (PSS): good requests alone; after 15 s of garbage; at the end",
            f"{found['idle'] / 1e6:.0f}, {found['before'] / 1e6:.0f}, {found['after'] / 1e6:.0f} MB",
        ),
        (
            "the same on the way, and images that waited for the model then",
            ", ".join(f"{value / 1e6:.0f} MB ({images})" for value, images in memory),
        ),
        ("answers in the log", ", ".join(f"{status}: {count:,}" for status, count in sorted(statuses.items()))),
        ("lines of the log that are none of ours, or tell of a fault", str(len(found["foreign"]))),
        ("lines in which uvicorn says something through our log", ", ".join(f"{n:,} x {text}" for text, n in said.items())),
        (
            f"SIGTERM under load ({ENDING_CLIENTS} clients, 4 images each): exit code; answered, all right; by the log",
            f"{code}; {answered:,}, {'yes' if not term['wrong'] else 'no'}; {logged[200]:,}",
        ),
        (
            "of requests that were sent then: answered otherwise; cut in the middle of an answer; never accepted",
            f"{sum(term['other'].values())}; {term['torn']}; {term['unanswered']}",
        ),
        (
            "SIGKILL under load: answered, all right; cut in the middle of an answer; without an answer",
            f"{kill['right'] + kill['wrong']:,}, {'no' if kill['wrong'] else 'yes'}; {kill['torn']}; {kill['unanswered']}",
        ),
        (
            "uploads that were answered before SIGKILL; of them there, and right, after a new start; `verify` of the folder",
            f"{len(kill['kept'])}; {len(found['back'])}; exit code {found['verify']}",
        ),
    ]
    table = [
        GARBAGE_HEADING,
        "",
        f"`python benchmarks/serving_garbage.py --seconds {seconds:g}`: {MODEL} at 224 px, {os.cpu_count()} processors, "
        f"torch {torch.__version__},",
        f"load average {first:.1f} before and {last:.1f} after. Clients and service share the processors. It takes 4 MiB",
        "and 4,000,000 pixels at the most.",
        "",
        "| what | found |",
        "|---|---|",
        *(f"| {what} | {value} |" for what, value in rows),
        "",
        "| garbage | sent | answers (`–`: closed without one) |",
        "|---|--:|---|",
    ]
    for name, seen in found["mixed"]["seen"].items():
        told = ", ".join(f"{'–' if status is None else status}: {count:,}" for status, count in seen.items())
        table.append(f"| {name} | {sum(seen.values()):,} | {told} |")
    return "\n".join(table) + "\n"


def main():
    """Print the section, or put it into a page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=60.0, help="of good requests and garbage")
    parser.add_argument("--out", type=Path, help="Markdown file whose last section it becomes; by default standard output")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="serving-garbage-") as work:
        found = measure(options.seconds, Path(work))
    text = section(found, options.seconds)
    if options.out:
        before = options.out.read_text().partition(GARBAGE_HEADING)[0].rstrip() if options.out.exists() else ""
        options.out.write_text(f"{before}\n\n{text}" if before else text)
    print(text)


if __name__ == "__main__":
    main()
