"""Fuzz targets of the command line, and of hostile names on their way to a terminal, a table and a file."""

import contextlib
import csv
import io
import random
import unicodedata
from pathlib import Path

from reprogram.cli.arguments import parse, read
from reprogram.cli.main import main
from reprogram.cli.table import COMMANDS
from reprogram.cli.text import show_table
from reprogram.errors import ReprogramError, ignore_evidence_warnings
from reprogram.registry import imported
from soak.mutate import TEXT, Known, Mutator
from soak.targets import BytesTarget, Target

_SEPARATOR = b"\0"  # which no word can hold: the system ends words with it
_LINES = (
    "demo --epochs 2 --seed 1",
    "fit photos --mapping blm+ --epochs 3 --lr 0.05 --no-cache --skip-bad",
    "fit --data digits --model timm:test_resnet --program padding --canvas 64 --shots 4 --smoothing 2 --top-ratio 0.5",
    "fit --resume --out here --epochs 9",
    "fit --config settings.json --mapping gaussian",
    "evaluate here --split val --batch-size 8 --data digits",
    "predict here image.png --evidence 2 --format json",
    "update here --add digits --remove a,b --out there",
    "map shards --mapping auto --out there --classes a,b --holdout 0.1",
    "map shard.npz --mapping blm+ --smoothing 3 --replace",
    "map predict here shard.npz --out out.csv",
    "logits --model timm:test_resnet --data digits --out shards --split test --shard-size 9",
    "models timm:*",
    "models show timm:test_resnet",
    "datasets --data-root here",
    "datasets check dtd",
    "--version",
)
_ODD_WORDS = (
    b"", b"-", b"--", b"---", b"--help", b"-h", b"--=", b"--=x", b"--epochs=", b"--epochs=3", b"--no-cache=1",
    b"--no-no-cache", b"--no-epochs", b"--batch_size", b"--batch-size", b"99999999999999999999", b"-1", b"nan", b"inf",
    b"1e400", b"0x10", b"1_000", "٣".encode(), b"None", b"True", b"[]", b"{}", b"@file", b"=", b"~", b"~nobody", b"/", b"..",
    b"/dev/null", b"\xff\xfe", b"\x1b[31m", b"a\nb", b"here", b"--tyro-print-completion", b"--root", b"hf:x", b"timm:",
    b":", b"bundled:x", b"paper:x", b"torchvision:x", b"x" * 300, b"x" * 5000, b"--" + b"x" * 5000, b"%s", b"{0}",
    b"--mapping", b"--program", b"--device", b"cuda:99",
)  # fmt: skip
_MARKS = {"\u202a", "\u202b", "\u202c", "\u202d", "\u202e", "\u2066", "\u2067", "\u2068", "\u2069"}


def _line_seeds(folder: Path) -> list[bytes]:
    return [_SEPARATOR.join(word.encode() for word in line.split()) for line in _LINES]


def _other_word(data: bytes, rng: random.Random, known: Known) -> bytes:
    """Replace, add, drop, double or move a word."""
    words = data.split(_SEPARATOR)
    place, choice = rng.randrange(len(words)), rng.randrange(6)
    if choice == 0 and len(words) > 1:
        del words[place]
    elif choice == 1:
        words.insert(place + 1, rng.choice(_ODD_WORDS))
    elif choice == 2:
        words.insert(place, rng.choice(rng.choice(known.seeds).split(_SEPARATOR)))
    elif choice == 3:
        words.append(words[place])
    elif choice == 4:
        other = rng.randrange(len(words))
        words[place], words[other] = words[other], words[place]
    else:
        words[place] = rng.choice(_ODD_WORDS)
    return _SEPARATOR.join(words)


_WORDS: tuple[Mutator, ...] = (*(_other_word,) * 20, *TEXT)


def _check_line(data: bytes) -> None:
    """All that is done with words before anything is carried out."""
    words = [word.decode("utf-8", "surrogateescape") for word in data.split(_SEPARATOR)]
    count = 2 if " ".join(words[:2]) in COMMANDS else 1
    verb = " ".join(words[:count])
    if verb not in COMMANDS:
        return
    command = COMMANDS[verb]
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        given = parse(command.schema, words[count:], f"reprogram {verb}", command.further())
        checked = given if command.open_ended else read(command.schema, given)
        if command.check is not None:
            imported(command.check)(checked)


def _said_seeds(folder: Path) -> list[bytes]:
    lines = (
        "predict nothing image.png",
        "evaluate nothing",
        "map predict nothing shard.npz",
        "nothing",
        "fit --epochs many",
    )
    return [_SEPARATOR.join(word.encode() for word in line.split()) for line in lines]


def _check_said(data: bytes) -> None:
    """A mistake is told in one line, without anything that steers a terminal, and exit code 2."""
    words = [word.decode("utf-8", "surrogateescape") for word in data.split(_SEPARATOR)]
    if words[0] in ("demo", "fit", "logits", "models", "datasets", "map", "update") and words[0:2] != ["map", "predict"]:
        words = ["predict", "nothing", *words]  # nothing is carried out here
    output, errors = io.StringIO(), io.StringIO()
    code = 0
    with contextlib.redirect_stdout(output), contextlib.redirect_stderr(errors):
        try:
            code = main(words)
        except SystemExit as ended:  # help
            code = ended.code if isinstance(ended.code, int) else 0
    said = errors.getvalue()
    assert code in (0, 2), f"exit code {code}"
    assert (code == 0) == (said == ""), f"exit code {code} with {said!r}"
    if said:
        assert said.endswith("\n"), f"an unfinished line: {said!r}"
        assert said.count("\n") == 1, f"more than one line: {said!r}"
        assert not _steering(said[:-1]), f"not fit for a terminal: {said!r}"


def _name_seeds(folder: Path) -> list[bytes]:
    names = ("cat", "Forest_Broad-Leaved", "=1+1", "crane, bird", 'the "one"', "猫", "é", "[red]x[/red]", ":cat:", "a\tb")
    return [_SEPARATOR.join(name.encode() for name in (*names[start:], "other")) for start in range(len(names))]


def _check_names(data: bytes) -> None:
    """Class names in an artefact's table, in CSV and on a terminal: nothing raises, nothing steers, nothing is lost."""
    from reprogram import make_mapping
    from reprogram.mappings.artefact import labels_csv
    from soak.material import LABELS, logits

    names = list(dict.fromkeys(word.decode("utf-8", "surrogateescape") for word in data.split(_SEPARATOR)))
    names += [f"class {number}" for number in range(3 - len(names))]
    mapping = make_mapping("blm", LABELS, names[:200])
    statistics = mapping.new_statistics()
    statistics.update(*logits(9))
    with ignore_evidence_warnings():
        mapping.estimate(statistics)
        text = labels_csv(mapping)
        explained = mapping.explain(2)
    rows = list(csv.reader(io.StringIO(text, newline="")))
    assert {len(row) for row in rows} == {4}, "a row of labels.csv has other columns"
    output = io.StringIO()
    with contextlib.redirect_stdout(output):
        show_table(("class", "labels"), [[name, str(len(labels))] for name, labels in explained.classes.items()])
    lines = output.getvalue()
    assert not _steering(lines.replace("\n", "")), f"not fit for a terminal: {lines!r}"
    lines.encode("utf-8")


def _steering(text: str) -> bool:
    """Whether a terminal would take any of this for something else than letters."""
    return any(unicodedata.category(letter) in ("Cc", "Cs") or letter in _MARKS for letter in text)


TARGETS: list[Target] = [
    BytesTarget("cli.words", _line_seeds, _check_line, mutators=_WORDS, refusals=(ReprogramError, SystemExit), slow=True),
    BytesTarget("cli.said", _said_seeds, _check_said, mutators=_WORDS),
    BytesTarget("cli.names", _name_seeds, _check_names, mutators=TEXT),
]
