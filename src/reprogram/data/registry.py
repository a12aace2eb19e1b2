"""What `--data` and `load_data` take: one record for each kind of data, known before anything heavy is imported."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from reprogram.data.group_patterns import PLACE, GroupPattern
from reprogram.data.paper_sets import paper_missing, paper_set
from reprogram.errors import ReprogramError, nearest, shown
from reprogram.files.foreign import absolute, expanded, is_file, is_folder
from reprogram.registry import Registry


@dataclass(frozen=True)
class LoadOptions:
    """What a loader is told besides what to load.

    Attributes:
        root: the folder that holds named sets.
        split_seed: decides which images are set aside for testing, where the data bring no split of their own.
        download: whether what is missing may be fetched.
        group: where the groups of the images stand, for a kind of data that can tell: a column or a pattern.
    """

    root: Path = Path("data")
    split_seed: int | None = 0
    download: bool = False
    group: str | None = None


@dataclass(frozen=True)
class DataFormat:
    """One kind of data.

    Attributes:
        name: of the kind.
        form: how it is written, such as `hf:NAME`.
        meaning: what is found there, in one line for `reprogram datasets`.
        matches: whether a text names data of this kind; looks at the text and at most whether a path is there.
        load: `load(spec, options)` makes the `DataSet`: a function, or where it is, as "module:function".
        prefix: what stands before the name or path, such as `hf:`.
        path: the path that a text holds, or None where it is a name; by default it is a name.
        check: raises the error of a text that cannot be right, without loading anything; given the text and the root.
        check_group: raises the error of a `--group` that cannot be right, given what was written; None where such data
            have no groups.
    """

    name: str
    form: str
    meaning: str
    matches: Callable[[str], bool]
    load: str | Callable[[str, LoadOptions], Any]
    prefix: str = ""
    path: Callable[[str], Path | None] | None = None
    check: Callable[[str, Path], object] | None = None
    check_group: Callable[[str], object] | None = None


FORMATS: Registry[DataFormat] = Registry("data format")


def register_format(record: DataFormat) -> None:
    """Add a kind of data; where several match a text, the one that was registered last is taken."""
    FORMATS.register(record.name, record)


def find_format(spec: str) -> DataFormat:
    """The kind of data that a text names, or an error that says what there is."""
    found = _matching(spec)
    if found is not None:
        return found
    if is_file(given_path(spec)):
        problem = f"data {shown(spec)} is a file of a kind that is not known"
    else:
        problem = f"data {shown(spec)} is neither a folder or file that is there, nor a known set"
    names = [record.form for record in FORMATS.values() if record.form == record.name]
    forms = ", ".join(record.form for record in FORMATS.values())
    raise ReprogramError(f"{problem}{nearest(spec, names) or '; check the path'} (known: {forms}; see: reprogram datasets)")


def check_data_spec(spec: str, root: str | Path = "data", group: str | None = None) -> None:
    """Raise our error for data that cannot be there, before anything is loaded: a wrong path or an unknown name."""
    record = find_format(spec)
    if record.check is not None:
        record.check(spec, Path(root))
    if group is not None and record.check_group is None:
        raise ReprogramError(
            f"--group {shown(group)} was given, but data {shown(spec)} tell no groups; leave it out, or list the images in "
            "a table with a column for their groups"
        )
    if group is not None and record.check_group is not None:
        record.check_group(group)


def absolute_spec(spec: str) -> str:
    """The same data as seen from any folder: paths become absolute, `~` is expanded, names stay.

    >>> absolute_spec("digits"), absolute_spec("torchvision:MNIST"), absolute_spec("/nowhere/t.csv")
    ('digits', 'torchvision:MNIST', '/nowhere/t.csv')
    """
    return _located(spec) or spec


def begins_with(prefix: str) -> Callable[[str], bool]:
    """A `matches` for texts with a prefix."""
    return lambda spec: spec.startswith(prefix)


def ends_with(*suffixes: str) -> Callable[[str], bool]:
    """A `matches` for files by the end of their name; whether one is there is for `check` to say."""
    return lambda spec: spec.lower().endswith(suffixes)


def given_path(spec: str) -> Path:
    """A `path` for texts that are paths; `~` is the user's home."""
    return expanded(spec, "data")


def _matching(spec: str) -> DataFormat | None:
    return next((record for record in reversed(list(FORMATS.values())) if record.matches(spec)), None)


def _located(spec: str) -> str | None:
    record = _matching(spec)
    path = None if record is None or record.path is None else record.path(spec)
    return None if record is None or path is None else f"{record.prefix}{absolute(path)}"


def _file_is_there(spec: str, _root: Path) -> None:
    if not is_file(given_path(spec)):
        raise ReprogramError(f"data {shown(spec)} does not exist; check the path")


def _check_column(group: str) -> None:
    if not group.strip():
        raise ReprogramError(
            "--group is empty, but the name of what tells the groups is expected; write it, or leave it out"
        )


def _check_column_or_pattern(group: str) -> None:
    _check_column(group)
    if PLACE in group:
        GroupPattern.read(group)


def _hub_path(spec: str) -> Path | None:
    path = given_path(spec.partition(":")[2])
    return path if is_folder(path) or is_file(path) else None


def _check_hub(spec: str, _root: Path) -> None:
    name = spec.partition(":")[2]
    if name.startswith(("/", ".", "~")) and _hub_path(spec) is None:  # meant as a path: no name on the Hub begins like this
        raise ReprogramError(f"data {shown(spec)} does not exist; check the path")


def _check_paper(spec: str, root: Path) -> None:
    entry = paper_set(spec.partition(":")[2])
    if not is_folder(root):
        raise paper_missing(entry, root)


_LOAD = "reprogram.data.load"
for _record in (
    DataFormat(
        "folder",
        "FOLDER",
        "train/<class>/*.jpg, test/<class>/*.jpg, perhaps val/; or <class>/*.jpg, a fifth of them for testing",
        matches=lambda spec: is_folder(given_path(spec)),
        load=f"{_LOAD}:from_folder",
        path=given_path,
        check_group=GroupPattern.read,
    ),
    DataFormat(
        "table",
        "FILE.csv, FILE.parquet",
        "a table with the columns path, label and perhaps split",
        matches=ends_with(".csv", ".tsv", ".parquet"),
        load=f"{_LOAD}:from_table",
        path=given_path,
        check=_file_is_there,
        check_group=_check_column_or_pattern,
    ),
    DataFormat(
        "npz",
        "FILE.npz",
        "arrays images and labels, perhaps split and classes",
        matches=ends_with(".npz"),
        load=f"{_LOAD}:from_npz",
        path=given_path,
        check=_file_is_there,
        check_group=_check_column,
    ),
    DataFormat(
        "digits",
        "digits",
        "1,797 handwritten digits of 8×8 pixels, 10 classes, inside scikit-learn (no download)",
        matches=lambda spec: spec == "digits",
        load=f"{_LOAD}:from_digits",
    ),
    DataFormat(
        "hf",
        "hf:NAME",
        "a data set of the `datasets` library, from the Hub or saved on disk",
        matches=begins_with("hf:"),
        prefix="hf:",
        load=f"{_LOAD}:from_hub",
        path=_hub_path,
        check=_check_hub,
        check_group=_check_column,
    ),
    DataFormat(
        "torchvision",
        "torchvision:NAME",
        "a data set of torchvision under --data-root",
        matches=begins_with("torchvision:"),
        prefix="torchvision:",
        load=f"{_LOAD}:from_torchvision",
    ),
    DataFormat(
        "paper",
        "paper:NAME",
        "one of the paper's twelve sets under --data-root",
        matches=begins_with("paper:"),
        prefix="paper:",
        load=f"{_LOAD}:from_paper",
        check=_check_paper,
    ),
):
    register_format(_record)
