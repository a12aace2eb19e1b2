"""Where an artefact is, and what its files are called. Nothing here imports torch."""

from pathlib import Path

from reprogram.errors import ReprogramError
from reprogram.files import is_leftover, read_json, settle_folder

FILES = ("artefact.json", "artefact.safetensors", "labels.csv")


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
    return folder


def refuse_reference(folder: Path) -> None:
    """Raise where a run folder holds a reference method, which has no mapping that could be used."""
    content = read_json(folder / "config.json", "run configuration") if (folder / "config.json").is_file() else None
    if isinstance(content, dict) and isinstance(name := content.get("reference"), str):
        raise ReprogramError(
            f"{str(folder)!r} holds the reference {name}, which is there to compare with and has no mapping; look at it "
            "with reprogram report, or give a run of reprogram fit"
        )
