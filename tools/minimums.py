"""Print the lowest version of every dependency that `pyproject.toml` allows, as constraints for pip: `name==version` lines.

`make test-minimums` installs exactly these into an environment of its own and runs the suite there.
"""

import re
import sys
import tomllib
from pathlib import Path

PROJECT = Path(__file__).parent.parent / "pyproject.toml"
REQUIREMENT = re.compile(r"(?P<name>[A-Za-z0-9._-]+)(?:>=|==)(?P<version>[0-9][0-9.]*)")


def canonical(name: str) -> str:
    """The name of a package as package indexes compare it."""
    return re.sub(r"[-_.]+", "-", name).lower()


def minimums(project: Path = PROJECT) -> dict[str, str]:
    """Package to the lowest version allowed, over all extras, in alphabetical order.

    Raises:
        ValueError: a requirement is not `name>=version` or `name==version`, or two extras disagree.
    """
    table = tomllib.loads(project.read_text(encoding="utf-8"))["project"]
    own = canonical(table["name"])
    found: dict[str, str] = {}
    for text in (*table["dependencies"], *(line for lines in table["optional-dependencies"].values() for line in lines)):
        if canonical(text.split("[")[0]) == own:  # an extra that is made of others
            continue
        match = REQUIREMENT.fullmatch(text)
        if match is None:
            raise ValueError(f"the requirement {text!r} is not of the form name>=version or name==version")
        name, version = canonical(match["name"]), match["version"]
        if found.setdefault(name, version) != version:
            raise ValueError(f"{name} is required from {found[name]} and from {version}: say the same in all extras")
    return dict(sorted(found.items()))


if __name__ == "__main__":
    try:
        print("\n".join(f"{name}=={version}" for name, version in minimums().items()))
    except ValueError as problem:
        sys.exit(str(problem))
