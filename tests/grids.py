"""Finished runs of grids, made up: for statistics, tables and figures over runs."""

import itertools

import numpy as np

from reprogram.experiments.folder import Note
from reprogram.experiments.outcomes import Outcome
from reprogram.files import write_sealed

#: Names that mean something to Markdown, LaTeX, HTML, a spreadsheet, a terminal, or to nobody.
HOSTILE = (
    "a|b_c%d",
    "two\nlines\r\x1b[31mred\x07",
    "$x^2$ \\input{/etc/passwd} & # ~ {",
    "<script>alert(1)</script> [l](http://x.y) ![i](u) `c`",
    "=HYPERLINK(1)",
    "[2pt] --- *b* **c** \\\\",
    "\u202egpj \u200bzero \udcff half \ud800",
    "猫 λ ± 🐈",
)


def outcome(labels, seed, selected, *, last=None, best=None, n=500, right=None, **extra):
    """A run; without more words, all three of its accuracies are the same."""
    accuracy = {
        "selected": selected,
        "last": selected if last is None else last,
        "best_on_test": selected if best is None else best,
    }
    name = "-".join([*labels.values(), f"s{seed}"])
    return Outcome(name, dict(labels), seed, accuracy, right, n, 12.5, extra)


def grid(data=("a", "b", "c", "d"), mapping=("blm", "blm+", "ilm"), seeds=(0, 1, 2), seed=0, **axes):
    """All combinations, with accuracies that differ by data set, by method, and a little by seed."""
    rng = np.random.default_rng(seed)
    names = {"data": data, "mapping": mapping, **axes}
    level = {(axis, label): rng.uniform(0, 0.08) for axis, labels in names.items() for label in labels}
    found = []
    for labels in itertools.product(*names.values()):
        told = dict(zip(names, labels, strict=True))
        base = 0.5 + sum(level[item] for item in told.items()) + rng.normal(0, 0.02)
        for number in seeds:
            last = float(np.clip(round((base + rng.normal(0, 0.01)) * 500) / 500, 0, 1))
            best = last + int(rng.integers(0, 12)) / 500
            selected = last + (best - last) * 0.5
            found.append(outcome(told, number, selected, last=last, best=best, classes=10 * (data.index(told["data"]) + 1)))
    return found


def make_up(folder, cell, best, seconds=60.0, free=101_376):
    """What a finished run of a grid leaves, as far as a comparison with the paper reads it."""
    folder.run(cell).mkdir(parents=True)
    result = {"accuracy": {"last": best - 0.02, "selected": None, "best_on_test": best}, "seconds": seconds}
    write_sealed(folder.run(cell) / "result.json", {**result, "parameters": {"free": free, "frozen": 1}})
    folder.write_note(cell, Note(state="done"))
