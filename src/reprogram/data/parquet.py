"""The columns of a Parquet table of images; read by a child process first, so nothing heavy is imported here."""

from pathlib import Path
from typing import Any

from reprogram.errors import ReprogramError

COLUMNS = ("path", "label", "split")


def read_columns(path: Path, group: str | None = None) -> tuple[list[str], dict[int, list[Any]]]:
    """The names of all columns, and the values of those that count, by place; none where two have one name.

    `group` is a further column that counts, in lower case.
    """
    import pyarrow.parquet

    with pyarrow.parquet.ParquetFile(path) as file:
        header: list[str] = file.schema_arrow.names
        known = {place: name for place, name in enumerate(header) if name.strip().lower() in (*COLUMNS, group)}
        if len(set(known.values())) < len(known):
            return header, {}
        rows, size = file.metadata.num_rows, path.stat().st_size
        if rows > size:  # a few bytes can mean any number of equal rows, but images have paths of their own
            raise ReprogramError(f"table {str(path)!r} claims {rows} rows in {size} bytes; write it as Parquet again")
        columns: dict[int, list[Any]] = {place: [] for place in known}
        for batch in file.iter_batches(4096, columns=list(known.values())) if known else ():
            for place, name in known.items():
                columns[place] += batch.column(name).to_pylist()
        return header, columns


def walk_columns(path: Path) -> None:
    """Read all columns to their end, as somebody else will do with one of them after us."""
    import pyarrow.parquet

    read_columns(path)
    with pyarrow.parquet.ParquetFile(path) as file:
        for batch in file.iter_batches(4096):
            batch.validate(full=True)
