"""A table of images: CSV or Parquet with the columns `path`, `label` and perhaps `split`."""

import csv
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from reprogram.data.dataset import DataSet, FileSplit
from reprogram.data.splits import drawn_test, places_by_word, sorted_classes
from reprogram.errors import ReprogramError, first_line

_COLUMNS = ("path", "label", "split")


def load_table(path: Path, split_seed: int | None = 0) -> DataSet:
    """Load the images that a table lists.

    Args:
        path: a `.csv`, `.tsv` or `.parquet` file with the columns `path` (relative to the table's folder, or absolute),
            `label` (a class name) and perhaps `split` (train, val or test). Other columns are ignored.
        split_seed: of the test split where the table has no column `split`.

    Raises:
        ReprogramError: a column, a cell or an image file is missing, a split has an unknown name, or there are fewer than
            two classes.
    """
    columns = _read_parquet(path) if path.suffix.lower() == ".parquet" else _read_csv(path)
    count = len(columns["path"])
    if not count:
        raise ReprogramError(f"table {str(path)!r} has no row below its header; list one image in each row")
    cells = {name: [_text(value) for value in values] for name, values in columns.items()}
    for name, values in cells.items():
        if "" in values:
            raise ReprogramError(f"table {str(path)!r} has no {name} in row {values.index('') + 1}; fill the cell in")
    files = [path.parent / cell for cell in cells["path"]]
    for row, file in enumerate(files, start=1):
        if not file.is_file():
            raise ReprogramError(
                f"table {str(path)!r} names the image {cells['path'][row - 1]!r} in row {row}, but there is no file "
                f"{str(file)!r}; give paths relative to the table's folder"
            )
    classes = sorted_classes(cells["label"])
    if len(classes) < 2:
        raise ReprogramError(
            f"table {str(path)!r} has the one class {classes[0]!r}, but at least 2 are expected; check the column label"
        )
    numbers = {name: number for number, name in enumerate(classes)}
    labels = torch.tensor([numbers[name] for name in cells["label"]], dtype=torch.int64)
    everything = FileSplit(files, labels)
    source = f"table {str(path)!r}"
    places = places_by_word(cells["split"], source) if "split" in cells else drawn_test(labels, split_seed, source)
    return DataSet.of_parts(path.stem, classes, everything.divided(places), source=source)


def _text(value: Any) -> str:
    return "" if value is None else str(value).strip()


def _known_columns(path: Path, header: Sequence[str]) -> dict[str, int]:
    """Where the columns that count are, whatever else the table holds."""
    places = {name.strip().lower(): place for place, name in reversed(list(enumerate(header)))}
    for name in ("path", "label"):
        if name not in places:
            raise ReprogramError(
                f"table {str(path)!r} has the columns {', '.join(header) or '(none)'}, but path, label and perhaps split "
                f"are expected; add or rename the column {name}"
            )
    return {name: places[name] for name in _COLUMNS if name in places}


def _read_csv(path: Path) -> Mapping[str, list[Any]]:
    try:
        # utf-8-sig, because a spreadsheet program begins its file with a byte order mark
        with path.open(encoding="utf-8-sig", newline="") as file:
            rows = [row for row in csv.reader(file, delimiter="\t" if path.suffix.lower() == ".tsv" else ",") if row]
    except FileNotFoundError:
        raise ReprogramError(f"table {str(path)!r} does not exist; check the path") from None
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise ReprogramError(f"table {str(path)!r} cannot be read ({error}); save it as CSV in UTF-8") from None
    if not rows:
        raise ReprogramError(f"table {str(path)!r} is empty; begin it with the header path,label or path,label,split")
    places = _known_columns(path, rows[0])
    return {name: [row[place] if place < len(row) else None for row in rows[1:]] for name, place in places.items()}


def _read_parquet(path: Path) -> Mapping[str, list[Any]]:
    try:
        import pyarrow.parquet
    except ModuleNotFoundError:
        raise ReprogramError(
            f"table {str(path)!r} needs pyarrow, which is not installed; run: pip install 'reprogram[data]'"
        ) from None
    if not path.is_file():
        raise ReprogramError(f"table {str(path)!r} does not exist; check the path")
    try:
        header = pyarrow.parquet.read_schema(path).names
        places = _known_columns(path, header)
        table = pyarrow.parquet.read_table(path, columns=[header[place] for place in places.values()])
        return {name: table.column(header[place]).to_pylist() for name, place in places.items()}
    except (OSError, pyarrow.ArrowException) as error:
        raise ReprogramError(
            f"table {str(path)!r} cannot be read ({first_line(error)}); write it as Parquet again"
        ) from None
