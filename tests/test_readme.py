"""The README is true: its Python runs as it stands, its commands too, and its numbers are those that come out."""

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

README = (Path(__file__).parent.parent / "README.md").read_text()


def blocks(language):
    return re.findall(rf"```{language}\n(.*?)```", README, flags=re.DOTALL)


def test_the_python_example_runs_and_its_numbers_are_right(tmp_path):
    (code,) = blocks("python")
    assert len([line for line in code.splitlines() if line.strip()]) <= 12
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=tmp_path, check=True)
    printed = done.stdout.splitlines()
    promised = [line.split("#", 1)[1].strip() for line in code.splitlines() if line.lstrip().startswith("print(")]
    assert len(printed) == len(promised) >= 2
    numbers = [[float(number) for number in re.findall(r"\d\.\d+", text)] for text in (printed[0], promised[0])]
    assert numbers[0] == pytest.approx(numbers[1], abs=0.05)  # other processors round differently
    assert printed[1] == promised[1]
    assert (tmp_path / "digits-reader" / "artefact.json").exists()


def test_the_commands_on_your_own_folder_run(shapes, tmp_path):
    commands = [line for block in blocks("console") for line in block.splitlines() if line.startswith("$ reprogram")]
    assert len(commands) >= 3
    environment = os.environ | {"PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"}
    (tmp_path / "photos").symlink_to(shapes)
    (tmp_path / "new.jpg").symlink_to(sorted((shapes / "test" / "disc").iterdir())[0])
    for command in commands:
        words = shlex.split(command.removeprefix("$ "))
        if words[1] == "fit":  # smaller than a reader's run, but every flag of the README is taken
            words += ["--epochs", "1", "--canvas", "48"]
        done = subprocess.run(words, capture_output=True, text=True, cwd=tmp_path, env=environment)
        assert done.returncode == 0, (command, done.stderr)


def test_make_targets_of_the_readme_exist():
    makefile = (Path(__file__).parent.parent / "Makefile").read_text()
    for target in {
        word for words in re.findall(r"(?:`|^)make ([a-z ]+)(?:`|$)", README, flags=re.MULTILINE) for word in words.split()
    }:
        assert re.search(rf"^{target}:", makefile, flags=re.MULTILINE), target
