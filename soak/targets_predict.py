"""Fuzz targets of what `reprogram predict --out` keeps beside a table that is not complete."""

from pathlib import Path

from reprogram.files.tables import Column
from reprogram.predict.output import output
from reprogram.predict.words import Meant
from soak.sealing import reseal_json
from soak.structure import JSON
from soak.targets import FolderTarget, Target

_COLUMNS = (Column("image"), Column("error"))
_NAMES = ("a.png", "=1.png", "two\nlines.png", "d.png", "e.png")
_IDENTITY = {"model": "abc", "batch_size": 2}


def _fill(folder: Path, stop: int | None = None) -> int:
    with output(folder / "rows.csv", "csv", _COLUMNS, _IDENTITY, resume=True, save_every=1) as table:
        if not table.complete:
            for image in table.rest_of(map(Meant, _NAMES)):
                if table.rows == stop:
                    raise KeyboardInterrupt
                table.add([{"image": image.path, "error": None}])
        return table.rows


def _make(folder: Path) -> None:
    try:
        _fill(folder, stop=3)
    except KeyboardInterrupt:
        assert (folder / ".rows.csv.journal").exists()


def _continue(folder: Path) -> None:
    """What is continued must hold as many rows as it says."""
    rows = _fill(folder)
    assert rows == len(_NAMES)
    assert not list(folder.glob(".*"))


TARGETS: list[Target] = [
    FolderTarget(
        "predict.journal",
        _make,
        _continue,
        files=(".*",),
        seal=lambda name, data: reseal_json(data) if name.endswith("journal") else data,
        fresh=True,
        mutators=JSON,
    )
]
