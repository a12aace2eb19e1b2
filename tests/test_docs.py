"""The pages under docs/ are true: their files, commands, outputs and Python are tried as they stand."""

import re
import shlex
from pathlib import Path

import pytest

from reprogram.cli.main import main

DOCS = Path(__file__).parent.parent / "docs"
BLOCK = re.compile(r"```(\w+)(?: (\S+))?\n(.*?)```", flags=re.DOTALL)


def words(text):
    return text.split()


@pytest.mark.parametrize("page", ["top-k-answers.md"])
def test_a_reader_who_follows_the_page_sees_what_it_shows(page, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "100")
    printed = None
    for language, name, content in BLOCK.findall((DOCS / page).read_text()):
        if language == "jsonl":
            (tmp_path / name).write_text(content)
        elif language == "console":
            (command,) = (line[2:] for line in content.splitlines() if line.startswith("$ "))
            assert main(shlex.split(command)[1:]) == 0, capsys.readouterr().err
            printed = capsys.readouterr().out
        elif language == "text":
            assert words(content) == words(printed)
        elif language == "python":
            exec(compile(content, page, "exec"), {})
            promised = [line.split("#", 1)[1].strip() for line in content.splitlines() if line.startswith("print(")]
            assert capsys.readouterr().out.splitlines() == promised
