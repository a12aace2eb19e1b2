"""Write the table of `docs/licences.md`: what each extra installs and its licence, as the installed packages say it.

Run it with the Python of `.venv` (`make licences`) after a change of `constraints.txt`.
"""

from collections.abc import Mapping
from importlib.metadata import Distribution

from packages import ROOT, closure, installed, licence, pins

PAGE = ROOT / "docs" / "licences.md"
EXTRAS = ("models", "sklearn", "data", "hf", "onnx", "clip", "figures", "ray", "serve", "dev")
BUILD = ("hatchling", "editables")
HEAD = "| package | version | licence | comes with |\n|---|---|---|---|\n"


def comes_with(there: Mapping[str, Distribution]) -> dict[str, str]:
    """Canonical name of every package to the extras that bring it."""
    always = closure([("reprogram", ())], there, here=False)
    parts = {extra: closure([("reprogram", (extra,))], there, here=False) for extra in EXTRAS}
    parts["build"] = closure([(name, ()) for name in BUILD], there, here=False)
    return {
        name: "always" if name in always else ", ".join(part for part, names in parts.items() if name in names)
        for name in there
    }


def row(name: str, version: str, distribution: Distribution, extras: str) -> str:
    """One line of the table."""
    return f"| {name} | {version} | {licence(distribution)} | {extras} |"


def main() -> None:
    """Write the table below the words of the page; refuse when the environment is not the pinned one."""
    there, pinned = installed(), pins()
    other = [
        f"{name}=={version}"
        for name, (_, version) in pinned.items()
        if name not in there or there[name].version.partition("+")[0] != version
    ]
    if other:
        raise SystemExit(f"not installed in the pinned version: {', '.join(other)}; run: make install")
    extras = comes_with(there)
    rows = [row(name, version, there[name], extras[name]) for name, (_, version) in sorted(pinned.items())]
    words = PAGE.read_text(encoding="utf-8").partition(HEAD)[0]
    PAGE.write_text(words + HEAD + "\n".join(rows) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
