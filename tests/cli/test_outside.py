"""Readers that go away, streams that are closed, full devices and signals: real processes and pipes."""

import contextlib
import csv
import io
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

from command import PADDING, SMALL, here
from reprogram.cli.main import main
from reprogram.cli.outside import Signals
from reprogram.text import printable, read_csv

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


@pytest.mark.parametrize("where", ["| head -1", ">/dev/full 2>/dev/full", "<&- >&- 2>&-"])
def test_a_fit_that_nobody_listens_to_is_finished(where, shapes, tmp_path):
    done = shell(
        f"{words('fit', shapes, '--epochs', 2, *PADDING, '--mapping', 'blm', *SMALL, '--out', 'run')} {where}", tmp_path
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert {path.name for path in (tmp_path / "run").iterdir()} >= WHOLE
    assert len((tmp_path / "run" / "metrics.jsonl").read_text().splitlines()) == 2
    assert here("evaluate", tmp_path / "run").returncode == 0


class Deaf(io.StringIO):
    """A reader that goes away after the first line."""

    def write(self, text):
        if "\n" in self.getvalue():
            raise BrokenPipeError(32, "Broken pipe")
        return super().write(text)


def test_all_work_goes_on_when_nobody_listens_and_answers_do_not(shapes, run, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    image = next((shapes / "test" / "disc").iterdir())
    codes = {}
    for arguments in (
        ("logits", "--data", shapes, *SMALL[:-2], "--out", "shards"),
        ("map", "shards", "--mapping", "blm", "--out", "m"),
        ("update", "m", "--remove", "disc", "--out", "n"),
        ("map", "predict", "m", "shards", "--out", "p.csv"),
        ("map", "predict", "m", "shards"),
        ("predict", run[0], image),
        ("evaluate", run[0]),
        ("datasets",),
    ):
        with contextlib.redirect_stdout(Deaf()) as heard:
            codes[" ".join(map(str, arguments[:2]))] = main([str(argument) for argument in arguments])
        assert heard.getvalue().count("\n") >= 1
    assert list(codes.values()) == [0, 0, 0, 141, 141, 141, 141]  # map predict is told by its second call
    assert (tmp_path / "n" / "artefact.json").exists()
    assert len((tmp_path / "p.csv").read_text().splitlines()) == 127
    assert capsys.readouterr().err.count("\n") <= 1


@pytest.mark.parametrize("verb", ["--help", "fit --help", "--version"])
def test_an_answer_that_nobody_reads_is_told_by_the_exit_code(verb, tmp_path):
    line = words(*verb.split())
    closed = shell(f"{line} | true", tmp_path)
    assert (closed.returncode, closed.stderr) == (141, "")
    full = shell(f"{line} >/dev/full", tmp_path)
    assert (full.returncode, full.stderr.count("\n")) == (2, 1)
    assert full.stderr.startswith("reprogram: standard output cannot be written to (No space left")
    closed = shell(f"{line} >&-", tmp_path)
    assert (closed.returncode, "closed" in closed.stderr) == (2, True)
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


def test_a_signal_ends_a_fit_as_ctrl_c_does(shapes, tmp_path):
    """The folder can be continued, nothing half-written is left, and a second signal at once does no harm."""
    how = signal.SIGTERM
    process = start(("fit", shapes, "--epochs", MANY, *PADDING, "--mapping", "blm", *SMALL, "--out", "run"), tmp_path)
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
    process.send_signal(signal.SIGHUP)
    out, err = process.communicate(timeout=60)
    assert (process.returncode, err) == (129, "")
    assert "the same command continues" in out.splitlines()[-1]
    here(*arguments, cwd=tmp_path)
    assert len(list((tmp_path / "shards").glob("*.npz"))) == 63


def test_a_terminal_that_goes_away_does_not_end_a_fit_that_ignores_it(shapes, tmp_path):
    """The live bar writes to a terminal that is gone; where the hang-up is ignored (nohup), the run goes on."""
    controller, terminal = pty.openpty()
    line = words("fit", shapes, "--epochs", 4, *PADDING, "--mapping", "blm", *SMALL, "--out", "run")
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
    process.send_signal(signal.SIGHUP)
    assert process.communicate(timeout=200)[1] == b""
    assert process.returncode == 0
    assert (tmp_path / "run" / "result.json").exists()


@pytest.mark.parametrize("loaded", ["pydantic_core", "torch/lib", "PIL"])
def test_ctrl_c_while_torch_is_imported_shows_no_traceback(loaded, tmp_path):
    """At several moments of the import, told by what the process has loaded by then."""
    process = start(("models", "timm:*"), tmp_path)
    files = Path(f"/proc/{process.pid}")
    wait_for(lambda: loaded in (files / "maps").read_text() or process.poll() is not None, process)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=100)
    assert err == ""
    assert process.returncode == 130


def test_signals_are_as_before_when_a_command_is_called_from_python(capsys):
    before = [signal.getsignal(one) for one in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)]
    streams = sys.stdout, sys.stderr
    assert main(["--version"]) == 0
    assert before == [signal.getsignal(one) for one in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)]
    assert streams == (sys.stdout, sys.stderr)


@pytest.fixture
def interruptible():
    """Whoever starts the tests in the background may have told them to ignore an interrupt."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("interruptible")
def test_an_interrupt_where_nothing_can_be_raised_comes_again():
    class Interrupting:
        def __del__(self):
            raise KeyboardInterrupt

    def work():
        thing = Interrupting()
        del thing
        time.sleep(60)

    started = time.monotonic()
    with Signals(own=False) as signals, pytest.raises(KeyboardInterrupt):
        work()
    assert time.monotonic() - started < 50
    assert signals.received == signal.SIGINT


@pytest.mark.usefixtures("interruptible")
def test_an_interrupt_while_something_else_cannot_be_raised_comes_again(monkeypatch):
    class Failing:
        def __del__(self):
            raise ValueError("nobody hears this")

    def work():
        thing = Failing()
        del thing
        time.sleep(60)

    monkeypatch.setattr(sys, "unraisablehook", lambda _: signal.raise_signal(signal.SIGINT))
    started = time.monotonic()
    with Signals(own=False), pytest.raises(KeyboardInterrupt):
        work()
    assert time.monotonic() - started < 50


# ---- names

HOSTILE = "\x1b]0;owned\x07\x1b[2J"
LONG = "n" * 240
NAMES = (f"a{HOSTILE}", "b\nc\r\x9bd", "=cmd|' C calc'!A0", ":cat: [red]", "é", "猫", f"<script>\u202e{LONG}")


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
                (folder / f"=x{place}{HOSTILE}.png").write_bytes(pictures[(number * 5 + place % 5) % 32].read_bytes())
            raw = os.fsencode(folder) + b"/caf\xe9-%d.png" % first
            Path(os.fsdecode(raw)).write_bytes(pictures[(number * 5 + 4) % 32].read_bytes())
    here("fit", root / "set", *QUICK, "--out", root / "run")
    return root


def verbs(root):
    image = next(path for path in sorted((root / "set" / "test" / NAMES[0]).iterdir()) if HOSTILE in path.name)
    raw = next(path for path in sorted((root / "set" / "test" / NAMES[0]).iterdir()) if "caf" in path.name)
    return {
        "fit": ("fit", root / "set", *QUICK, "--out", f"run{HOSTILE}"),
        "evaluate": ("evaluate", root / "run"),
        "evaluate json": ("evaluate", root / "run", "--out", f"e{HOSTILE}.json"),
        "evaluate csv": ("evaluate", root / "run", "--out", f"e{HOSTILE}.csv"),
        "predict": ("predict", root / "run", image, raw),
        "predict json": ("predict", root / "run", image, raw, "--format", "json"),
        "logits": ("logits", "--run", root / "run", "--out", f"shards{HOSTILE}"),
        "map": ("map", f"shards{HOSTILE}", "--mapping", "blm", "--out", f"m{HOSTILE}"),
        "map predict": ("map", "predict", f"m{HOSTILE}", f"shards{HOSTILE}", "--out", "p.csv"),
        "map predict jsonl": ("map", "predict", f"m{HOSTILE}", f"shards{HOSTILE}", "--out", "p.jsonl"),
        "map predict here": ("map", "predict", f"m{HOSTILE}", f"shards{HOSTILE}"),
        "audit": ("audit", f"shards{HOSTILE}", "--out", f"a{HOSTILE}.csv"),
        "audit jsonl": ("audit", "--run", root / "run", "--out", f"a{HOSTILE}.jsonl"),
        "forecast": ("forecast", f"shards{HOSTILE}", "--out", f"f{HOSTILE}.csv"),
        "forecast json": ("forecast", f"shards{HOSTILE}", "--out", f"f{HOSTILE}.json"),
        "verify": ("verify", f"m{HOSTILE}"),
        "datasets": ("datasets", "--data-root", f"d{HOSTILE}"),
        "models": ("models", f"no{HOSTILE}"),
        "update": ("update", f"m{HOSTILE}", "--remove", NAMES[0], "--out", f"n{HOSTILE}"),
        "mistake": ("predict", root / "run", f"no{HOSTILE}\nwhere.png"),
    }


class Terminal(io.TextIOWrapper):
    """A stream of an encoding, which keeps its bytes, and may say that it is a terminal."""

    def __init__(self, encoding, live=False):
        self.content, self.live = io.BytesIO(), live
        super().__init__(self.content, encoding, "strict", write_through=True)

    def isatty(self):
        return self.live


def told(arguments, cwd, encoding="utf-8", live=False):
    """Exit code, standard output and standard error of a command, decoded as strictly as a reader would."""
    out, err = Terminal(encoding, live), Terminal(encoding)
    with contextlib.chdir(cwd), contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = main([str(argument) for argument in arguments])
    return code, out.content.getvalue(), err.content.getvalue().decode(encoding)


CONTROLS = {chr(code) for code in (*range(10), *range(11, 32), *range(127, 160))}


@pytest.mark.parametrize("encoding", ["utf-8", "ascii"])
def test_no_verb_writes_what_steers_a_terminal(encoding, hostile, tmp_path):
    for name, arguments in verbs(hostile).items():
        code, out, err = told(arguments, tmp_path, encoding)
        assert code == (2 if name in ("mistake", "models") else 0), (name, err)
        assert not set(err) & CONTROLS, name
        if name == "map predict here":  # data, as in a file: UTF-8, and the names as they are
            assert out == (tmp_path / "p.csv").read_bytes()
            continue
        text = out.decode(encoding)
        assert not set(text) & CONTROLS, name
        assert all(printable(line) == line for line in text.split("\n")), name
        assert LONG not in text or name.startswith("predict"), name  # it is shortened for a reader, never in files
        if name == "mistake":
            assert (text, err.count("\n"), "\\x1b]0;owned" in err) == ("", 1, True)
        if name == "evaluate":
            shown = ("é", "猫") if encoding == "utf-8" else ("\\xe9", "\\u732b")
            assert all(word in text for word in (*shown, ":cat: [red]", "=cmd", "\\x1b]0;owned"))
        if name == "predict json":
            entries = [json.loads(line) for line in text.splitlines()]
            assert [entry["image"] for entry in entries] == [str(argument) for argument in arguments[2:4]]
            assert all(entry["label"] in NAMES for entry in entries)


def test_a_process_without_a_language_names_what_it_cannot_write(hostile, tmp_path):
    arguments = verbs(hostile)["predict"]
    done = shell(words(*arguments), tmp_path, LC_ALL="C", PYTHONIOENCODING="ascii")
    assert (done.returncode, done.stderr) == (0, "")
    assert "caf\\udce9" in done.stdout


def test_a_live_terminal_receives_no_escape_of_a_name_and_no_emoji(hostile, tmp_path):
    """Live bars have escapes of their own, so only what the names bring is looked for."""
    for name in ("fit", "evaluate", "logits", "map", "map predict here"):
        code, out, _ = told(verbs(hostile)[name], tmp_path, live=True)
        text = out.decode()
        assert code == 0
        assert not any(part in text for part in ("\x1b]0;", "\x1b[2J", "\x9b", "\x07", "🐱")), name
        assert name == "logits" or "\\x1b]0;owned" in text, name


NUMBERS = ("weight", "lead", "value", "low", "high")


def test_no_table_of_ours_holds_a_formula_and_all_names_come_back(hostile, tmp_path):
    root = hostile
    written = ("map predict jsonl", "evaluate csv", "evaluate json", "audit", "audit jsonl", "forecast", "forecast json")
    for name in ("logits", "map", "map predict", *written):
        here(*verbs(root)[name], cwd=tmp_path)
    tables = [root / "run" / "predictions.csv", root / "run" / "artefact" / "labels.csv", tmp_path / "p.csv"]
    tables += [tmp_path / f"{name}{HOSTILE}.csv" for name in "eaf"]
    for table in tables:
        with table.open(encoding="utf-8", errors="surrogateescape", newline="") as file:
            for row in csv.DictReader(file):
                assert all(cell[:1] not in tuple("=+@\t\r") for cell in row.values())
                assert all(cell[:1] != "-" for name, cell in row.items() if name not in NUMBERS)
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
    mistakes = [(row["image"], row["label"], row["predicted"]) for row in read_csv(tables[3])]
    told = json.loads((tmp_path / f"e{HOSTILE}.json").read_text(encoding="utf-8"))["mistakes"]
    assert mistakes == [(entry["image"], entry["label"], entry["predicted"]) for entry in told]
    assert all(Path(image).is_file() for image, _, _ in mistakes)
    assert {row["label"] for row in read_csv(tables[4])} == set(NAMES)
    audited = [json.loads(line) for line in (tmp_path / f"a{HOSTILE}.jsonl").read_text(encoding="utf-8").splitlines()]
    assert {entry["label"] for entry in audited} == set(NAMES)
    assert all(Path(entry["image"]).is_file() for entry in audited)
    gains = {row["class"] for row in read_csv(tables[5]) if row["kind"] == "gain"}
    assert gains == set(NAMES)
    forecast = json.loads((tmp_path / f"f{HOSTILE}.json").read_text(encoding="utf-8"))
    assert {gain["name"] for gain in forecast["classes"]} == set(NAMES)
