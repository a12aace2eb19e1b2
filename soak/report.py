"""What a fuzz run prints: a table with a line per target, and what was found."""

from collections.abc import Sequence

from soak.workers import Tally

_HEAD = ("target", "inputs", "accepted", "refused", "tracebacks", "signals", "hangs", "peak MB", "inputs/s")


def table(tallies: Sequence[Tally]) -> str:
    """A line per target, and their totals."""
    rows = [_row(tally) for tally in tallies]
    total = Tally("total")
    for tally in tallies:
        total.add(tally)
    lines = [_HEAD, *rows, _row(total)]
    widths = [max(len(line[column]) for line in lines) for column in range(len(_HEAD))]
    texts = [_line(line, widths) for line in lines]
    rule = "|" + "|".join("-" * (width + 1) + ("-" if column == 0 else ":") for column, width in enumerate(widths)) + "|"
    return "\n".join([texts[0], rule, *texts[1:]])


def findings(tallies: Sequence[Tally]) -> str:
    """Each distinct failure with how often it was met and how it is repeated; empty if there is none."""
    lines = []
    for tally in tallies:
        for key, count in sorted(tally.failures.items(), key=lambda item: -item[1]):
            lines.append(f"{tally.target}: {key} ({count} inputs)")
            for file in tally.kept.get(key, []):
                lines.append(f"    python -m soak.fuzz --targets {tally.target} --repeat {file}")
    return "\n".join(lines)


def _row(tally: Tally) -> tuple[str, ...]:
    numbers = (tally.tried, tally.accepted, tally.refused, tally.tracebacks, tally.signals, tally.hangs)
    rate = tally.tried / tally.seconds if tally.seconds else 0.0
    return (tally.target, *(f"{number:,}" for number in numbers), f"{tally.peak / 1e6:,.0f}", f"{rate:,.0f}")


def _line(cells: Sequence[str], widths: Sequence[int]) -> str:
    first, *others = (
        cell.ljust(width) if column == 0 else cell.rjust(width)
        for column, (cell, width) in enumerate(zip(cells, widths, strict=True))
    )
    return "| " + " | ".join([first, *others]) + " |"
