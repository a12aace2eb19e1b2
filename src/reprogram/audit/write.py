"""Files of audited rows: one for each label, the most suspicious first, as CSV, JSON lines or Parquet."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from reprogram.audit.report import Audit, Reason, Suspicion
from reprogram.files import write_file
from reprogram.files.tables import Column, form_of, table_head, write_parquet
from reprogram.text import csv_cell, csv_line, json_text

_REASON = (Column("source"), Column("amount", "number"))
COLUMNS = (
    *map(Column, ("image", "split", "label", "suggested")),
    *(Column(name, "number") for name in ("lead", "wrong", "sure")),
    Column("judged"),
    *(Column(name, "records", _REASON) for name in ("for", "against")),
    Column("duplicate"),
)
_ROWS_AT_ONCE = 4096


def write_audit(path: Path, audit: Audit) -> None:
    """Write one file in one step, in the format that its suffix names."""
    form, twins = form_of(path), _twins(audit)
    if form == "parquet":
        write_file(path, lambda temporary: write_parquet(temporary, COLUMNS, _batches(audit, twins)))
        return
    line = _csv_row if form == "csv" else _json_row

    def fill(temporary: Path) -> None:
        with temporary.open("w", encoding="utf-8", errors="surrogateescape", newline="") as file:
            file.write(table_head(form, COLUMNS))
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
    return dict(zip((column.name for column in COLUMNS), values, strict=True))


def _batches(audit: Audit, twins: dict[int, str]) -> Iterator[list[dict[str, Any]]]:
    records: list[dict[str, Any]] = []
    for row in audit.suspicious():
        records.append(_record(row, twins.get(row.place, "")))
        if len(records) == _ROWS_AT_ONCE:
            yield records
            records = []
    if records:
        yield records
