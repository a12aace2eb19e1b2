"""The container cannot be built here; its commands are those that the tests run, and it names nothing that is not there."""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from reprogram.cli.commands import ServeCommand
from serving import Process

ROOT = Path(__file__).parent.parent.parent


@pytest.fixture(scope="module")
def instructions():
    text = (ROOT / "Dockerfile").read_text().replace("\\\n", " ")
    lines = [line for line in text.splitlines() if line.strip() and not line.startswith("#")]
    return [tuple(line.split(maxsplit=1)) for line in lines]


def values(instructions, name):
    return [value for key, value in instructions if key == name]


def test_it_is_small_and_not_root_and_names_no_registry(instructions):
    assert {key for key, _ in instructions} <= {
        *("FROM", "WORKDIR", "COPY", "RUN", "ARG", "ENV", "USER", "EXPOSE", "STOPSIGNAL", "HEALTHCHECK", "ENTRYPOINT", "CMD")
    }
    assert all(re.fullmatch(r"python:3\.11-slim( AS build)?", value) for value in values(instructions, "FROM"))
    assert values(instructions, "USER") == ["10001:10001"]
    installs = [value for value in values(instructions, "RUN") if "pip install" in value]
    assert installs[0].endswith("torch torchvision")
    assert "[models,serve]" in installs[1]
    assert all("-c constraints.txt" in value for value in installs)
    pinned = (ROOT / "constraints.txt").read_text()
    assert re.search(r"^torch==", pinned, flags=re.MULTILINE)
    assert re.search(r"^uvicorn==", pinned, flags=re.MULTILINE)


def test_what_is_copied_is_there_and_not_ignored(instructions):
    kept = {line[1:] for line in (ROOT / ".dockerignore").read_text().splitlines() if line.startswith("!")}
    for value in values(instructions, "COPY"):
        names = [] if "--from" in value else value.split()[:-1]
        for name in names:
            assert (ROOT / name).exists()
            assert name in kept


def test_the_commands_run_with_nothing_to_write_to_but_tmp(instructions, made_tasks, tmp_path):
    """ENTRYPOINT with CMD, and HEALTHCHECK, with this machine's paths and port; SIGTERM ends it with code 0."""
    entry, command = json.loads(values(instructions, "ENTRYPOINT")[0]), json.loads(values(instructions, "CMD")[0])
    health = json.loads(values(instructions, "HEALTHCHECK")[0].split("CMD", 1)[1])
    assert entry == ["reprogram", "serve"]
    assert shutil.which("reprogram", path=str(Path(sys.executable).parent))
    arguments = [str(made_tasks) if word == "/runs" else word for word in command]
    place = arguments.index("--host")
    arguments[place + 1], arguments = "127.0.0.1", arguments[: arguments.index("--port")]  # `Process` takes a free one
    before = {path: path.stat().st_mtime_ns for path in made_tasks.rglob("*")}
    running = Process(*arguments, log=tmp_path / "log")
    address = running.client.address
    asked = [sys.executable if word == "python" else word.replace("http://127.0.0.1:8000", address) for word in health]
    assert asked[-1] == address
    assert subprocess.run(asked, check=False, timeout=60, env=os.environ).returncode == 0
    assert running.end(signal.SIGTERM) == 0
    assert subprocess.run(asked, check=False, timeout=60, env=os.environ).returncode == 1
    assert {path: path.stat().st_mtime_ns for path in made_tasks.rglob("*")} == before


def test_the_compose_file_uses_flags_that_there_are():
    text = (ROOT / "compose.yaml").read_text()
    words = json.loads(re.search(r"command: (\[.*\])", text)[1])
    flags = [word[2:].replace("-", "_") for word in words if word.startswith("--")]
    assert set(flags) == {"host", "port", "token"}
    assert set(flags) <= set(ServeCommand.model_fields)
    assert "read_only: true" in text
    assert 'tmpfs: ["/tmp"]' in text
    assert '"127.0.0.1:8000:8000"' in text
