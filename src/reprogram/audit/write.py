"""Files of audited rows: one for each label, the most suspicious first, as CSV, JSON lines or Parquet."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from reprogram.answers.predictions import check_suffix
from reprogram.audit.report import Audit, Reason, Suspicion
from reprogram.errors import extra_missing
from reprogram.files import write_file
from reprogram.text import csv_cell, csv_line, json_text

COLUMNS = ("image", "split", "label", "suggested", "lead", "wrong", "sure", "judged", "for", "against", "duplicate")
_ROWS_AT_ONCE = 4096


def write_audit(path: Path, audit: Audit) -> None:
    """Write one file in one step, in the format that its suffix names."""
    check_suffix(path)
    twins = _twins(audit)
    if path.suffix.lower() == ".parquet":
        write_file(path, lambda temporary: _write_parquet(temporary, audit, twins))
        return
    line = _csv_row if path.suffix.lower() == ".csv" else _json_row

    def fill(temporary: Path) -> None:
        with temporary.open("w", encoding="utf-8", errors="surrogateescape", newline="") as file:
            if line is _csv_row:
                file.write(csv_line(COLUMNS))
            file.writelines(line(row, twins.get(row.place, "")) for row in audit.suspicious())

    write_file(path, fill)


def _twins(audit: Audit) -> dict[int, str]:
    """For each row that is like another one, the name of the first such row."""
    found: dict[int, str] = {}
    for pair in audit.duplicates:
        found.setdefault(pair.first, audit.names[pair.second])
        found.setdefault(pair.second, audit.names[pair.first])
    return found


def _csv_row(row: Suspicion, twin: str) -> str:
    texts = [row.name, row.split, row.given, row.suggested or ""]
    numbers = ["" if value is None else f"{value:.6g}" for value in (row.lead, row.wrong, row.sure)]
    reasons = [_listed(row.reasons_for), _listed(row.reasons_against)]
    return csv_line([*map(csv_cell, texts), *numbers, row.judged, *map(csv_cell, reasons), csv_cell(twin)])


def _listed(reasons: tuple[Reason, ...]) -> str:
    return "; ".join(f"{reason.source} {reason.amount:+.3g}" for reason in reasons)


def _json_row(row: Suspicion, twin: str) -> str:
    return json_text(_record(row, twin)) + "\n"


def _record(row: Suspicion, twin: str) -> dict[str, Any]:
    values = (
        row.name,
        row.split,
        row.given,
        row.suggested,
        row.lead,
        row.wrong,
        row.sure,
        row.judged,
        *([{"source": one.source, "amount": one.amount} for one in side] for side in (row.reasons_for, row.reasons_against)),
        twin or None,
    )
    return dict(zip(COLUMNS, values, strict=True))


def _write_parquet(path: Path, audit: Audit, twins: dict[int, str]) -> None:
    try:
        import pyarrow
        import pyarrow.parquet
    except ModuleNotFoundError:
        raise extra_missing("pyarrow", "data", "a .parquet file") from None
    text, number = pyarrow.string(), pyarrow.float64()
    reasons = pyarrow.list_(pyarrow.struct([("source", text), ("amount", number)]))
    kinds = [text, text, text, text, number, number, number, text, reasons, reasons, text]
    schema = pyarrow.schema(list(zip(COLUMNS, kinds, strict=True)))
    with pyarrow.parquet.ParquetWriter(path, schema) as writer:
        for records in _batches(audit, twins):
            writer.write_table(pyarrow.Table.from_pylist([_encodable(record) for record in records], schema=schema))


def _batches(audit: Audit, twins: dict[int, str]) -> Iterator[list[dict[str, Any]]]:
    records: list[dict[str, Any]] = []
    for row in audit.suspicious():
        records.append(_record(row, twins.get(row.place, "")))
        if len(records) == _ROWS_AT_ONCE:
            yield records
            records = []
    if records:
        yield records


def _encodable(value: Any) -> Any:
    """Parquet holds UTF-8 alone, so a byte of a file name that is no text is written as Python shows it."""
    if isinstance(value, dict):
        return {name: _encodable(part) for name, part in value.items()}
    if isinstance(value, list):
        return [_encodable(part) for part in value]
    return value.encode("utf-8", "backslashreplace").decode() if isinstance(value, str) else value
