"""Every public name has a docstring and stands on some page; every benchmark starts."""

import importlib
import inspect
import re
import runpy
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
TEXT = "\n".join(page.read_text() for page in (ROOT / "README.md", *(ROOT / "docs").glob("*.md")))
NAMESPACES = (
    "",
    ".mappings",
    ".programs",
    ".sources",
    ".statistics",
    ".data",
    ".training",
    ".answers",
    ".audit",
    ".run",
    ".references",
    ".predict",
    ".export",
    ".experiments",
    ".figures",
    ".report",
    ".theory",
)
NAMES = [
    (f"reprogram{space}", name) for space in NAMESPACES for name in importlib.import_module(f"reprogram{space}").__all__
]
BENCHMARKS = [path for path in sorted((ROOT / "benchmarks").glob("*.py")) if "__main__" in path.read_text()]


@pytest.mark.parametrize(("space", "name"), NAMES)
def test_a_public_name_is_documented(space, name):
    thing = getattr(importlib.import_module(space), name)
    assert re.search(rf"\b{re.escape(name)}\b", TEXT), f"{space}.{name} stands on no page"
    owner = thing if inspect.isclass(thing) or inspect.isfunction(thing) else type(thing)
    assert owner.__doc__, f"{space}.{name} has no docstring"


@pytest.mark.parametrize("path", BENCHMARKS, ids=lambda path: path.stem)
def test_a_benchmark_starts_and_says_what_it_does(path, monkeypatch, capsys):
    monkeypatch.syspath_prepend(str(path.parent))
    monkeypatch.setattr(sys, "argv", [path.name, "--help"])
    with pytest.raises(SystemExit) as end:
        runpy.run_path(str(path), run_name="__main__")
    assert end.value.code == 0
    assert path.name in capsys.readouterr().out
