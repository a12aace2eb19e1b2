"""Where an artefact is, and what its files are called. Nothing here imports torch."""

import os
from contextlib import suppress
from pathlib import Path

from reprogram.errors import ReprogramError, short, shown
from reprogram.files import is_leftover, read_json, settle_folder
from reprogram.files.listings import EXPORTED

FILES = ("artefact.json", "artefact.safetensors", "labels.csv")
_NAMED = 8  # runs in a folder that stand in a sentence


def check_free(folder: Path) -> None:
    """Raise unless an artefact may be written there: nothing stands there, or an artefact that can be replaced."""
    if folder.exists() and not (
        folder.is_dir() and all(entry.name in FILES or is_leftover(entry) for entry in folder.iterdir())
    ):
        raise ReprogramError(f"{str(folder)!r} exists and is not an artefact; save to a folder that does not exist yet")


def artefact_folder(folder: Path) -> Path:
    """The folder itself, or the artefact inside a run folder; `~` is the user's home."""
    folder = folder.expanduser()
    settle_folder(folder)
    if not folder.is_dir():
        raise ReprogramError(f"{str(folder)!r} is not a folder; give a run folder or an artefact folder")
    settle_folder(folder / "artefact")
    if (folder / "artefact").is_dir():
        return folder / "artefact"
    refuse_reference(folder)
    if (folder / "checkpoint").is_dir() or (folder / "config.json").is_file():
        raise ReprogramError(
            f"the run in {str(folder)!r} is not finished; continue it with: reprogram fit --resume --out {folder}"
        )
    if not any((folder / name).exists() for name in FILES[:2]):
        raise ReprogramError(_nothing_in(folder))
    return folder


def holds_reference(folder: Path) -> str | None:
    """The reference method that a run folder holds, if it does."""
    content = read_json(folder / "config.json", "run configuration") if (folder / "config.json").is_file() else None
    name = content.get("reference") if isinstance(content, dict) else None
    return name if isinstance(name, str) else None


def refuse_reference(folder: Path) -> None:
    """Raise where a run folder holds a reference method, which has no mapping that could be used."""
    if (name := holds_reference(folder)) is not None:
        raise ReprogramError(
            f"{str(folder)!r} holds the reference {name}, which is there to compare with and has no mapping; look at it "
            "with reprogram report, or give a run of reprogram fit"
        )


def _nothing_in(folder: Path) -> str:
    """What is said of a folder that is no artefact: what it is instead, as far as that can be told."""
    if (folder / EXPORTED).is_file():
        return (
            f"{shown(str(folder))} is an export, which others run (as reprogram serve --backend onnxruntime does); give the "
            "run that it was made from"
        )
    if runs := runs_inside(folder):
        more = f" and {len(runs) - _NAMED:,} more" if len(runs) > _NAMED else ""
        held = f"runs: {', '.join(map(short, runs[:_NAMED]))}{more}" if len(runs) > 1 else f"one: {short(runs[0])}"
        which = "one of them, such as " if len(runs) > 1 else ""
        return f"{shown(str(folder))} is no run but holds {held}; give {which}{shown(str(folder / runs[0]))}"
    return f"{shown(str(folder))} is neither a run nor a mapping; give a folder that reprogram fit or reprogram map wrote"


def runs_inside(folder: Path) -> list[str]:
    """The runs and artefacts in a folder, or else in the folders there, by their paths in it."""
    inside = _folders(folder)
    found = [name for name in inside if holds_artefact(folder / name)]
    return found or [
        f"{outer}/{name}" for outer in inside for name in _folders(folder / outer) if holds_artefact(folder / outer / name)
    ]


def _folders(folder: Path) -> list[str]:
    with suppress(OSError), os.scandir(folder) as entries:
        return sorted(entry.name for entry in entries if not entry.name.startswith(".") and entry.is_dir())
    return []


def holds_artefact(folder: Path) -> bool:
    """Whether a folder is an artefact, or a run with one."""
    return (folder / FILES[0]).is_file() or (folder / "artefact" / FILES[0]).is_file()
