"""Readers that go away, streams that are closed, full devices and signals: real processes and pipes."""

import json
import os
import pty
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from command import SMALL, here
from reprogram.cli.main import main
from reprogram.cli.outside import Signals

PROGRAM = f"{shlex.quote(sys.executable)} -m reprogram"
QUICK = ("--program", "none", "--mapping", "blm", *SMALL)
MANY = 16  # epochs: enough that a signal comes in time also on a busy machine


def shell(line, cwd, **environment):
    """What a person types, with the exit code of reprogram, not of what reads it."""
    return subprocess.run(
        ["bash", "-c", f"set -o pipefail; {line}"],
        cwd=cwd,
        capture_output=True,
        text=True,
        errors="surrogateescape",
        timeout=200,
        env={**os.environ, **environment},
    )


def words(*arguments):
    return " ".join([PROGRAM, *(shlex.quote(str(argument)) for argument in arguments)])


WHOLE = {"config.json", "metrics.jsonl", "result.json", "environment.json", "artefact", "predictions.csv", "images.txt"}


@pytest.mark.parametrize(
    "where",
    ["| head -1", "| true", ">&-", "2>&-", ">/dev/full", ">/dev/full 2>/dev/full", "<&- >&- 2>&-"],
)
def test_a_fit_that_nobody_listens_to_is_finished(where, shapes, tmp_path):
    done = shell(f"{words('fit', shapes, '--epochs', 2, *SMALL, '--out', 'run')} {where}", tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    assert {path.name for path in (tmp_path / "run").iterdir()} >= WHOLE
    assert len((tmp_path / "run" / "metrics.jsonl").read_text().splitlines()) == 2
    assert here("evaluate", tmp_path / "run").returncode == 0


def test_other_work_that_nobody_listens_to_is_finished(shapes, tmp_path):
    line = words("logits", "--data", shapes, *SMALL[:-2], "--out", "shards")
    assert shell(f"{line} | true", tmp_path).returncode == 0
    assert shell(f"{words('map', 'shards', '--mapping', 'blm', '--out', 'm')} | true", tmp_path).returncode == 0
    assert shell(f"{words('update', 'm', '--remove', 'disc', '--out', 'n')} >/dev/full", tmp_path).returncode == 0
    assert (tmp_path / "n" / "artefact.json").exists()
    done = shell(f"{words('map', 'predict', 'm', 'shards', '--out', 'p.csv')} | true", tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert len((tmp_path / "p.csv").read_text().splitlines()) > 100
    # here standard output is the answer
    for where, code, told in (("| true", 141, ""), (">/dev/full", 2, "No space left"), (">&-", 2, "closed")):
        done = shell(f"{words('map', 'predict', 'm', 'shards')} {where}", tmp_path)
        assert done.returncode == code
        assert told in done.stderr
        assert done.stderr.count("\n") == bool(told)


@pytest.mark.parametrize("verb", ["--help", "fit --help", "--version", "models bundled:*", "predict", "evaluate"])
def test_an_answer_that_nobody_reads_is_told_by_the_exit_code(verb, run, shapes, tmp_path):
    image = next((shapes / "test" / "disc").iterdir())
    arguments = {"predict": ("predict", run[0], image), "evaluate": ("evaluate", run[0])}.get(verb, verb.split())
    line = words(*arguments)
    if verb in ("--help", "predict", "evaluate"):
        closed = shell(f"{line} | true", tmp_path)
        assert (closed.returncode, closed.stderr) == (141, "")
    full = shell(f"{line} >/dev/full", tmp_path)
    assert (full.returncode, full.stderr.count("\n")) == (2, 1)
    assert full.stderr.startswith("reprogram: standard output cannot be written to (No space left")
    assert shell(f"{line} >&- 2>&-", tmp_path).returncode == 2


def test_a_mistake_is_an_exit_code_also_where_nobody_reads_it(tmp_path):
    for where in ("2>&-", "2>/dev/full", "2>&1 | true", ">&- 2>&-"):
        assert shell(f"{words('fit', '--mapping', 'blmm')} {where}", tmp_path).returncode == 2


def start(arguments, cwd, **options):
    return subprocess.Popen(
        [sys.executable, "-m", "reprogram", *map(str, arguments)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=cwd,
        # a test run in the background of a shell, or under nohup, ignores these and would hand that on
        preexec_fn=lambda: [signal.signal(one, signal.SIG_DFL) for one in (signal.SIGINT, signal.SIGHUP)],
        **options,
    )


def wait_for(condition, process):
    deadline = time.monotonic() + 120
    while not condition():
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < deadline
        time.sleep(0.002)


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGHUP])
def test_a_signal_ends_a_fit_as_ctrl_c_does(how, shapes, tmp_path):
    """The folder can be continued, nothing half-written is left, and a second signal at once does no harm."""
    process = start(("fit", shapes, "--epochs", MANY, *SMALL, "--out", "run"), tmp_path)
    metrics = tmp_path / "run" / "metrics.jsonl"
    wait_for(lambda: metrics.exists() and metrics.read_text(), process)
    process.send_signal(how)
    process.send_signal(how)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 128 + how
    assert err == ""
    assert out.splitlines()[-1] == "interrupted; continue with: reprogram fit --resume --out run"
    assert not [path for path in (tmp_path / "run").rglob("*") if "tmp" in path.name or "unfinished" in path.name]
    here("fit", "--resume", "--out", tmp_path / "run")
    assert len(metrics.read_text().splitlines()) == MANY


def test_a_signal_ends_logits_and_says_how_to_go_on(shapes, tmp_path):
    arguments = ("logits", "--data", shapes, "--shard-size", 2, *SMALL[:-2], "--out", "shards")
    process = start(arguments, tmp_path)
    wait_for(lambda: len(list((tmp_path / "shards").glob("*.npz"))) > 1, process)
    process.send_signal(signal.SIGTERM)
    out, err = process.communicate(timeout=60)
    assert (process.returncode, err) == (143, "")
    assert "the same command continues" in out.splitlines()[-1]
    here(*arguments, cwd=tmp_path)
    assert len(list((tmp_path / "shards").glob("*.npz"))) == 63


def test_nohup_is_respected(shapes, tmp_path):
    process = start(
        ("fit", shapes, "--epochs", 4, *SMALL, "--out", "run"),
        tmp_path,
    )
    process.kill()
    process.communicate()
    line = words("fit", shapes, "--epochs", 4, *SMALL, "--out", "run")
    process = subprocess.Popen(
        ["nohup", *shlex.split(line)], cwd=tmp_path, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    wait_for(lambda: (tmp_path / "run" / "metrics.jsonl").exists(), process)
    process.send_signal(signal.SIGHUP)
    assert process.wait(timeout=100) == 0
    assert (tmp_path / "run" / "result.json").exists()


def test_a_terminal_that_goes_away_does_not_end_a_fit_that_ignores_it(shapes, tmp_path):
    """The live bar writes to a terminal that is gone; where the hang-up is ignored, the run goes on."""
    controller, terminal = pty.openpty()
    line = words("fit", shapes, "--epochs", 4, *SMALL, "--out", "run")
    process = subprocess.Popen(
        shlex.split(line),
        cwd=tmp_path,
        stdin=terminal,
        stdout=terminal,
        stderr=subprocess.PIPE,
        preexec_fn=lambda: signal.signal(signal.SIGHUP, signal.SIG_IGN),
    )
    os.close(terminal)
    assert os.read(controller, 100)
    os.close(controller)
    assert process.communicate(timeout=100)[1] == b""
    assert process.returncode == 0
    assert (tmp_path / "run" / "result.json").exists()


@pytest.mark.parametrize("after", [0.3, 0.6, 1.0, 1.6, 2.4])
def test_ctrl_c_while_torch_is_imported_shows_no_traceback(after, run, shapes, tmp_path):
    process = start(("evaluate", run[0]), tmp_path)
    os.set_blocking(process.stderr.fileno(), True)
    wait_for(lambda: "reprogram/cli" in maps(process) or time.sleep(after) is None, process)
    if process.poll() is None:
        process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert err == ""
    assert process.returncode == (130 if not out.strip().endswith("calibration error") else 0)


def maps(process):
    return Path(f"/proc/{process.pid}/maps").read_text()


def test_signals_are_as_before_when_a_command_is_called_from_python(capsys):
    before = [signal.getsignal(one) for one in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)]
    streams = sys.stdout, sys.stderr
    assert main(["--version"]) == 0
    assert before == [signal.getsignal(one) for one in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)]
    assert streams == (sys.stdout, sys.stderr)


def test_an_interrupt_where_nothing_can_be_raised_comes_again():
    class Interrupting:
        def __del__(self):
            raise KeyboardInterrupt

    with Signals(own=False) as signals, pytest.raises(KeyboardInterrupt):
        signals.begin()
        thing = Interrupting()
        del thing
        for _ in range(1000):
            time.sleep(0.001)
    assert signals.received == signal.SIGINT


# ---- names

HOSTILE = "\x1b]0;owned\x07\x1b[2J"
NAMES = (f"a{HOSTILE}", "b\nc\r\x9bd", "=cmd|'/C calc'!A0", ":cat: [red]", "é", "猫")


@pytest.fixture(scope="module")
def hostile(tmp_path_factory, shapes):
    """Data whose classes and files have names that attack terminals and spreadsheets, and a run on them."""
    root = tmp_path_factory.mktemp("hostile")
    pictures = sorted((shapes / "train" / "disc").iterdir())
    for number, name in enumerate(NAMES):
        for kind, first in (("train", 0), ("test", 3)):
            folder = root / "set" / kind / name
            folder.mkdir(parents=True)
            for place in range(first, first + 2):
                (folder / f"=x{place}{HOSTILE}.png").write_bytes(pictures[number * 5 + place % 5].read_bytes())
            raw = os.fsencode(folder) + b"/caf\xe9-%d.png" % first
            Path(os.fsdecode(raw)).write_bytes(pictures[number * 5 + 4].read_bytes())
    done = here("fit", root / "set", *QUICK, "--out", root / "run")
    return root, done


def verbs(root):
    image = next(path for path in sorted((root / "set" / "test" / NAMES[0]).iterdir()) if HOSTILE in path.name)
    raw = next(path for path in sorted((root / "set" / "test" / NAMES[0]).iterdir()) if "caf" in path.name)
    return {
        "fit": ("fit", root / "set", *QUICK, "--out", f"run{HOSTILE}"),
        "evaluate": ("evaluate", root / "run"),
        "predict": ("predict", root / "run", image, raw),
        "predict json": ("predict", root / "run", image, raw, "--format", "json"),
        "logits": ("logits", "--run", root / "run", "--out", f"shards{HOSTILE}"),
        "map": ("map", f"shards{HOSTILE}", "--mapping", "blm", "--out", f"m{HOSTILE}"),
        "map predict": ("map", "predict", f"m{HOSTILE}", f"shards{HOSTILE}", "--out", "p.csv"),
        "map predict jsonl": ("map", "predict", f"m{HOSTILE}", f"shards{HOSTILE}", "--out", "p.jsonl"),
        "map predict here": ("map", "predict", f"m{HOSTILE}", f"shards{HOSTILE}"),
        "update": ("update", f"m{HOSTILE}", "--remove", NAMES[0], "--out", f"n{HOSTILE}"),
        "mistake": ("predict", root / "run", f"no{HOSTILE}\nwhere.png"),
    }


@pytest.mark.parametrize("encoding", ["utf-8", "ascii"])
def test_no_verb_writes_what_steers_a_terminal(encoding, hostile, tmp_path):
    root, _ = hostile
    environment = {"LC_ALL": "C", "PYTHONIOENCODING": encoding}
    for name, arguments in verbs(root).items():
        done = subprocess.run(
            [sys.executable, "-m", "reprogram", *map(str, arguments)],
            cwd=tmp_path,
            capture_output=True,
            env={**os.environ, **environment},
            timeout=200,
        )
        assert done.returncode == (2 if name == "mistake" else 0), (name, done.stderr)
        assert b"Traceback" not in done.stderr
        shown = done.stderr if name == "map predict here" else done.stdout + done.stderr
        text = shown.decode(encoding)
        assert not set(text) & {chr(code) for code in (*range(10), *range(11, 32), *range(127, 160))}, name
        if name == "mistake":
            assert text.count("\n") == 1
            assert "\\x1b]0;owned" in text
        if name == "evaluate" and encoding == "utf-8":
            assert all(word in text for word in ("é", "猫", ":cat: [red]", "=cmd"))
        if name == "predict json":
            told = [json.loads(line) for line in text.splitlines()]
            assert [entry["image"] for entry in told] == [str(argument) for argument in arguments[2:4]]
            assert all(entry["label"] in NAMES for entry in told)


def test_no_table_of_ours_holds_a_formula_and_all_names_come_back(hostile, tmp_path):
    from reprogram.text import read_csv

    root, _ = hostile
    for name in ("logits", "map", "map predict", "map predict jsonl"):
        here(*verbs(root)[name], cwd=tmp_path)
    tables = [root / "run" / "predictions.csv", root / "run" / "artefact" / "labels.csv", tmp_path / "p.csv"]
    import csv

    for table in tables:
        with table.open(encoding="utf-8", errors="surrogateescape", newline="") as file:
            for row in csv.DictReader(file):
                assert all(cell[:1] not in tuple("=+@\t\r") for cell in row.values())
                assert all(cell[:1] != "-" for name, cell in row.items() if name != "weight")
    assert {row["class"] for row in read_csv(tables[1])} <= set(NAMES)
    rows = read_csv(tables[2])
    assert {row["label"] for row in rows} == set(NAMES)
    objects = [json.loads(line) for line in (tmp_path / "p.jsonl").read_text(encoding="utf-8").splitlines()]
    assert [(row["image"], row["label"], row["predicted"]) for row in rows] == [
        (entry["image"], entry["label"], entry["predicted"]) for entry in objects
    ]
    images = {row["image"] for row in read_csv(tables[0])}
    assert all(Path(image).is_file() for image in images)
    assert sum("\udce9" in image for image in images) == len(NAMES)


def on_a_terminal(arguments, cwd):
    """What a terminal receives, bytes and all."""
    controller, terminal = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", "reprogram", *map(str, arguments)],
        cwd=cwd,
        stdin=terminal,
        stdout=terminal,
        stderr=terminal,
        env={**os.environ, "TERM": "xterm", "COLUMNS": "300"},
    )
    os.close(terminal)
    received = b""
    while True:
        try:
            part = os.read(controller, 65536)
        except OSError:  # Linux says so when the last writer is gone
            break
        if not part:
            break
        received += part
    os.close(controller)
    assert process.wait(timeout=100) == 0, received
    return received.decode("utf-8")


def test_a_terminal_receives_no_escape_of_a_name_and_no_emoji(hostile, tmp_path):
    root, _ = hostile
    for name in ("fit", "evaluate", "logits", "map", "map predict here"):
        text = on_a_terminal(verbs(root)[name], tmp_path)
        assert "\x1b]0;" not in text, name
        assert "\x1b[2J" not in text, name
        assert "\x9b" not in text, name
        assert "🐱" not in text, name
        if name != "logits":
            assert "\\x1b]0;owned" in text, name
