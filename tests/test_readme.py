"""The README can be followed: it is short, and its extras and make targets exist. Its blocks run in test_docs."""

import re
import tomllib
from pathlib import Path

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text()


def test_it_is_short():
    assert len(README.splitlines()) <= 140
    for code in re.findall(r"```python\n(.*?)```", README, flags=re.DOTALL):
        assert len([line for line in code.splitlines() if line.strip()]) <= 12


def test_the_extras_that_it_names_exist():
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    named = {extra for extras in re.findall(r"reprogram\[([\w,]+)\]", README) for extra in extras.split(",")}
    assert {"all", "models", "sklearn"} <= named <= set(extras)


def test_all_means_all_extras_but_those_for_development():
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    (everything,) = extras.pop("all")
    assert set(re.findall(r"\[(.*)\]", everything)[0].split(",")) == set(extras) - {"dev"}


def test_its_make_targets_exist():
    makefile = (ROOT / "Makefile").read_text()
    found = re.findall(r"(?:`|^)make ([a-z ]+)(?:`|$)", README, flags=re.MULTILINE)
    for target in {word for words in found for word in words.split()}:
        assert re.search(rf"^{target}:", makefile, flags=re.MULTILINE), target
