"""A table of images: CSV or Parquet with the columns `path`, `label` and perhaps `split`."""

import csv
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from reprogram.child import tried_in_child
from reprogram.data.dataset import DataSet, FileSplit
from reprogram.data.group_patterns import PLACE, GroupPattern
from reprogram.data.parquet import COLUMNS, read_columns
from reprogram.data.splits import drawn_test, places_by_word, sorted_classes
from reprogram.errors import ReprogramError, extra_missing, first_line, short, shown
from reprogram.files.foreign import Lines, is_file, is_text, opened_text
from reprogram.names import LONGEST_NAME


def load_table(path: Path, split_seed: int | None = 0, group: str | None = None) -> DataSet:
    """Load the images that a table lists.

    Args:
        path: a `.csv`, `.tsv` or `.parquet` file with the columns `path` (relative to the table's folder, or absolute),
            `label` (a class name) and perhaps `split` (train, val or test). Other columns are ignored.
        split_seed: of the test split where the table has no column `split`.
        group: the column that names the groups, whose images stay together; or a pattern on the paths (`GroupPattern`).

    Raises:
        ReprogramError: a column, a cell or an image file is missing, a split has an unknown name, or there are fewer than
            two classes.
    """
    pattern = GroupPattern.read(group) if group is not None and PLACE in group else None
    column = None if group is None or pattern is not None else group.strip().lower()
    columns = (_read_parquet if path.suffix.lower() == ".parquet" else _read_csv)(path, column)
    count = len(columns["path"])
    if not count:
        raise ReprogramError(f"table {str(path)!r} has no row below its header; list one image in each row")
    cells = {
        name: [_text(path, row, name, value) for row, value in enumerate(values, start=1)]
        for name, values in columns.items()
    }
    files = [path.parent / cell for cell in cells["path"]]
    for row, file in enumerate(files, start=1):
        if not is_file(file):
            raise ReprogramError(
                f"table {str(path)!r} names the image {shown(cells['path'][row - 1])} in row {row}, but there is no file "
                f"{shown(str(file))}; give paths relative to the table's folder"
            )
    classes = sorted_classes(cells["label"])
    if len(classes) < 2:
        raise ReprogramError(
            f"table {str(path)!r} has the one class {shown(classes[0])}, but at least 2 are expected; check the column label"
        )
    numbers = {name: number for number, name in enumerate(classes)}
    labels = torch.tensor([numbers[name] for name in cells["label"]], dtype=torch.int64)
    source, notes = f"table {str(path)!r}", list[str]()
    groups = None if column is None else cells[column]
    if pattern is not None:
        groups, notes = pattern.groups_of(cells["path"], source)
    everything = FileSplit(files, labels).with_groups(groups)
    if "split" in cells:
        places = places_by_word(cells["split"], source)
    else:
        places = drawn_test(labels, split_seed, source, everything.group_numbers())
    return DataSet.of_parts(path.stem, classes, everything.divided(places), source=source, notes=notes)


def _text(path: Path, row: int, column: str, value: Any) -> str:
    """A cell as text, if it is one that can be written and read."""
    if isinstance(value, bytes):
        try:
            value = value.decode()
        except UnicodeDecodeError:
            value = value.decode(errors="surrogateescape")  # as Python has the names of such files
    if isinstance(value, float) and value.is_integer():  # a class number, which a column with empty cells holds as 3.0
        value = int(value)
    text = "" if value is None else str(value).strip()
    if not text:
        raise ReprogramError(f"table {str(path)!r} has no {column} in row {row}; fill the cell in")
    if isinstance(value, (list, tuple, dict)) or len(text) > LONGEST_NAME or not is_text(text):
        raise ReprogramError(
            f"table {str(path)!r} has the {column} {shown(value)} in row {row}, but a plain text of at most {LONGEST_NAME} "
            "letters is expected; mend that row"
        )
    return text


def _known_columns(path: Path, header: Sequence[str], group: str | None) -> dict[str, int]:
    """Where the columns that count are, that of the groups among them, whatever else the table holds."""
    names = [name.strip().lower() for name in header]
    places = {name: place for place, name in reversed(list(enumerate(names)))}
    for name in ("path", "label"):
        if name not in places:
            raise ReprogramError(
                f"table {str(path)!r} has the columns {_listed(header)}, but path, label and perhaps split "
                f"are expected; add or rename the column {name}"
            )
    if group is not None and group not in places:
        raise ReprogramError(
            f"table {str(path)!r} has the columns {_listed(header)}, but --group asks for {short(group)}; name one of them, "
            f"or write a pattern with {PLACE}"
        )
    wanted = [*COLUMNS, *([] if group is None or group in COLUMNS else [group])]
    for name in wanted:
        if names.count(name) > 1:
            raise ReprogramError(
                f"table {str(path)!r} has {names.count(name)} columns {name}, but one is expected; rename the others"
            )
    return {name: places[name] for name in wanted if name in places}


def _listed(header: Sequence[str]) -> str:
    return (", ".join(map(short, header[:12])) or "(none)") + (" ..." if len(header) > 12 else "")


def _read_csv(path: Path, group: str | None) -> Mapping[str, list[Any]]:
    remedy = "save it as CSV in UTF-8"
    columns: dict[str, list[Any]] = {}
    places: dict[str, int] = {}
    try:
        with opened_text(path, "table", remedy, newline="") as file:
            lines = Lines(file, path, "table")
            for row in csv.reader(lines, delimiter="\t" if path.suffix.lower() == ".tsv" else ","):
                lines.end_row()
                if not places and row:
                    places = _known_columns(path, row, group)
                    columns = {name: [] for name in places}
                elif row:  # what stands in other columns is let go at once
                    for name, place in places.items():
                        columns[name].append(row[place] if place < len(row) else None)
    except csv.Error as error:
        raise ReprogramError(f"table {str(path)!r} cannot be read ({first_line(error)}); {remedy}") from None
    if not places:
        raise ReprogramError(f"table {str(path)!r} is empty; begin it with the header path,label or path,label,split")
    return columns


def _read_parquet(path: Path, group: str | None) -> Mapping[str, list[Any]]:
    try:
        import pyarrow.parquet  # noqa: F401
    except ModuleNotFoundError:
        raise extra_missing("pyarrow", "data", f"table {str(path)!r}") from None
    if not is_file(path):
        raise ReprogramError(f"table {str(path)!r} does not exist; check the path")
    remedy = "write it as Parquet again"
    task = "read_columns" if group is None else "walk_columns"
    tried_in_child(f"reprogram.data.parquet:{task}", path, "table", remedy)
    try:
        header, columns = read_columns(path, group)
    except ReprogramError:
        raise
    except Exception as error:  # of many kinds, all meaning that the file is not as pyarrow would have written it
        raise ReprogramError(f"table {str(path)!r} cannot be read ({first_line(error)}); {remedy}") from None
    return {name: columns[place] for name, place in _known_columns(path, header, group).items()}
