"""True labels for answers that have none: a table of images and labels beside the files, matched by path or file name."""

import csv
import io
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from pathlib import Path

from reprogram.answers.block import Block, check_once
from reprogram.errors import ReprogramError, first_line, short, shown
from reprogram.files.foreign import expanded, is_file, read_list
from reprogram.names import LONGEST_NAME

IMAGE_COLUMNS = ("image", "filepath", "file", "filename", "path", "name")
_REMEDY = "save it as CSV in UTF-8 with the columns image and label"
_SEVERAL = -1
_DEEPEST = 8  # parts of the end of a path by which it may be named
_WINDOW = re.compile(r"(.+)#-?[0-9.e+-]+\Z", re.DOTALL)


@dataclass(frozen=True)
class LabelTable:
    """A table of true labels. It travels between processes by its path; each reads it once.

    The image of an answer is the one of the table that has the same path, or of which one path is the end of the other:
    `site1/IMG_7.JPG` is `/data/site1/IMG_7.JPG`, and never `/data/site2/IMG_7.JPG`. A part of a recording, such as
    `dawn.wav#0-3`, may also be named by the recording. A table without a column of images has a label for each answer, in
    the order of one file.

    Attributes:
        path: a CSV or TSV file with the columns `image` and `label`, and perhaps `split`; or `begin` and `end`, the seconds
            of a part of a recording. Rows without a label do not count.
    """

    path: Path

    @classmethod
    def read(cls, path: "str | Path | LabelTable") -> "LabelTable":
        """Read a table, and say what is wrong with it."""
        if isinstance(path, LabelTable):
            return path
        found = expanded(path, "labels")
        if not is_file(found):
            raise ReprogramError(f"labels {shown(str(path))} is no file; give a CSV table with the columns image and label")
        table = cls(found.absolute())
        if not table._content.labels:
            raise ReprogramError(f"labels {str(found)!r} has no row with a label; {_REMEDY}")
        return table

    def labelled(self, block: Block, before: int = 0, *, others: bool = False) -> Block:
        """The rows of a block with their labels.

        Args:
            block: rows of a shard.
            before: how many rows of the shard came before.
            others: whether rows that the table does not name come, too, without a label.
        """
        content = self._content
        if content.in_order:
            rows = range(before, before + block.rows)
            truths = [row if row < len(content.labels) and content.labels[row] else -1 for row in rows]
        else:
            truths = [self._find(content, block, row) for row in range(block.rows)]
        splits = block.splits
        if content.has_splits:
            splits = [content.splits[truth] if truth >= 0 else "" for truth in truths]
        labels = [content.labels[truth] if truth >= 0 else "" for truth in truths]
        whole = replace(block, labels=labels, splits=splits, truths=truths)
        return whole if others else whole.chosen([row for row, truth in enumerate(truths) if truth >= 0])

    def check_shards(self, shards: Sequence[Path]) -> None:
        """Raise where a table without images shall be the labels of several files."""
        if self._content.in_order and len(shards) > 1:
            raise ReprogramError(
                f"labels {str(self.path)!r} has no column image, so it goes with one file in its order, but {len(shards)} "
                "were given; add that column"
            )

    def check_count(self, path: Path, rows: int) -> None:
        """Raise where a table without images has not one label for each row of a file."""
        if self._content.in_order and rows != len(self._content.labels):
            raise ReprogramError(
                f"labels {str(self.path)!r} has no column image and {len(self._content.labels)} rows, but {str(path)!r} has "
                f"{rows} answers; give one row for each, or add that column"
            )

    def unmatched(self, answers: int, example: str) -> ReprogramError:
        """The error where no answer has a label."""
        return ReprogramError(
            f"none of the {answers} answers, such as {shown(example)}, is among the {self.images} images of labels "
            f"{str(self.path)!r}, such as {shown(self._content.names[0])}; write the images as the answers do"
        )

    def note(self, truths: dict[int, str], rows: int, answers: int) -> str:
        """What became of the answers and of the table."""
        missing = next((row for row in self._content.counted if row not in truths), None)
        text = f"{rows} of {answers} answers have a label in {short(self.path.name)}" + (
            "; the others are left out" if rows < answers else ""
        )
        if missing is None or self._content.in_order:
            return text
        return (
            f"{text}; {self.images - len(truths)} of its {self.images} images are in no answer, such as "
            f"{shown(self._content.names[missing])}"
        )

    def meet(self, meant: dict[int, str], found: Iterable[tuple[int, str]]) -> None:
        """Note which image each row of the table means; it may not mean two."""
        for truth, image in found:
            first = meant.setdefault(truth, image)
            if first != image:
                raise ReprogramError(
                    f"the image {shown(self._content.names[truth])} of labels {str(self.path)!r} could be {shown(first)} or "
                    f"{shown(image)}; write as much of the path as tells them apart"
                )

    @property
    def images(self) -> int:
        """How many rows have a label."""
        return len(self._content.counted)

    @property
    def _content(self) -> "_Content":
        try:
            status = self.path.stat()
        except OSError as error:
            raise ReprogramError(
                f"labels {str(self.path)!r} cannot be read ({error.strerror}); check the path, also on the machines that "
                "read the shards"
            ) from None
        return _content(self.path, (status.st_size, status.st_mtime_ns))

    def _find(self, content: "_Content", block: Block, row: int) -> int:
        name = _plain(block.image(row))
        found = content.find(name)
        if found is None:
            found = content.find(recording(name))
        if found == _SEVERAL:
            raise ReprogramError(
                f"the image {shown(block.image(row))} in {block.place(row)} could be several of labels {str(self.path)!r}; "
                "give answers with the whole paths, or a table with file names that differ"
            )
        return -1 if found is None else found


@dataclass
class _Content:
    """The rows of a table, and by which names they are found."""

    names: list[str] = field(default_factory=list)
    labels: list[str] = field(default_factory=list)
    splits: list[str] = field(default_factory=list)
    has_splits: bool = False
    in_order: bool = False
    counted: list[int] = field(default_factory=list)
    exact: dict[str, int] = field(default_factory=dict)
    ends: dict[str, int] = field(default_factory=dict)
    stems: dict[str, int] = field(default_factory=dict)

    def add(self, path: Path, number: int, name: str, label: str, split: str) -> None:
        """Add a row; one without a label is only counted where rows go by their order."""
        if not self.in_order and (not label or not name.strip()):
            return
        place = len(self.labels)
        if not self.in_order:
            plain = _plain(name)
            before = self.exact.get(plain)
            if before is not None:
                if self.labels[before] != label:
                    raise ReprogramError(
                        f"row {number} of labels {str(path)!r} gives {shown(name)} the label {shown(label)}, but a row "
                        f"before it gives {shown(self.labels[before])}; keep one of them"
                    )
                return
            self.exact[plain] = place
            parts = plain.split("/")
            for start in range(max(1, len(parts) - _DEEPEST), len(parts)):
                _add_once(self.ends, "/".join(parts[start:]), place)
            stem, dot, _ = parts[-1].rpartition(".")
            if dot and stem:
                _add_once(self.stems, stem, place)
        for column, value in ((self.names, name), (self.labels, label), (self.splits, split)):
            column.append(value)
        if label:
            self.counted.append(place)

    def find(self, name: str) -> int | None:
        """The row of an image; `_SEVERAL` where it could be several."""
        if name in self.exact:
            return self.exact[name]
        parts = name.split("/")
        for start in range(max(1, len(parts) - _DEEPEST), len(parts)):
            if (found := self.exact.get("/".join(parts[start:]))) is not None:
                return found
        if name in self.ends:
            return self.ends[name]
        # an answer that is called by its own file, IMG_7.json, has lost the suffix of its image
        return None if "." in parts[-1] else self.stems.get(parts[-1])


def _add_once(places: dict[str, int], name: str, place: int) -> None:
    places[name] = _SEVERAL if name in places else place


@lru_cache(maxsize=4)
def _content(path: Path, state: tuple[int, int]) -> _Content:  # noqa: ARG001  # tells it from what was there before
    """The table at a path, of which the state is its size and the time of its last change."""
    text = read_list(path, "labels", _REMEDY)
    first = text.partition("\n")[0]
    rows = csv.reader(io.StringIO(text, newline=""), delimiter="\t" if "\t" in first and "," not in first else ",")
    try:
        header = [name.strip() for name in next(rows, [])]
        lowered = [name.lower() for name in header]
        image = next((lowered.index(name) for name in IMAGE_COLUMNS if name in lowered), None)
        places = {name: lowered.index(name) for name in ("label", "split", "begin", "end") if name in lowered}
        if "label" not in places:
            held = ", ".join(map(short, header[:8])) or "nothing"
            raise ReprogramError(f"labels {str(path)!r} has the columns {held}, but image and label are expected; {_REMEDY}")
        check_once(path, header, [header[place] for place in (*places.values(), *([] if image is None else [image]))])
        content = _Content(has_splits="split" in places, in_order=image is None)
        for number, row in enumerate(rows, start=1):
            if not row:
                continue
            if len(row) != len(header):
                raise ReprogramError(
                    f"row {number} of labels {str(path)!r} has {len(row)} cells, but its header has {len(header)}; mend it"
                )
            cells = {name: row[place].strip() for name, place in places.items()}
            name = "" if image is None else row[image].strip()
            if len(name) > LONGEST_NAME or len(cells["label"]) > LONGEST_NAME:
                raise ReprogramError(
                    f"row {number} of labels {str(path)!r} has a name of more than {LONGEST_NAME} letters; write plain names"
                )
            if cells.get("begin") and cells.get("end"):
                name = f"{name}#{_seconds(path, number, cells['begin'])}-{_seconds(path, number, cells['end'])}"
            content.add(path, number, name, cells["label"], cells.get("split", ""))
    except csv.Error as error:
        raise ReprogramError(f"labels {str(path)!r} cannot be read ({first_line(error)}); {_REMEDY}") from None
    return content


def _seconds(path: Path, number: int, text: str) -> str:
    """A time as the windows of recordings are called."""
    try:
        return f"{float(text):.10g}"
    except ValueError:
        raise ReprogramError(
            f"row {number} of labels {str(path)!r} has the time {shown(text)}, but seconds are expected; mend it"
        ) from None


def images_meant(block: Block) -> Iterator[tuple[int, str]]:
    """The row of the table and the image, of each row of a block that has a label."""
    return ((truth, recording(block.image(row))) for row, truth in enumerate(block.truths or ()) if truth >= 0)


def recording(name: str) -> str:
    """What a part of a recording is a part of; any other image is itself.

    >>> recording("night/dawn.wav#0-3"), recording("IMG_7.JPG")
    ('night/dawn.wav', 'IMG_7.JPG')
    """
    found = _WINDOW.match(name)
    return name if found is None else found[1]


def _plain(name: str) -> str:
    r"""A path as paths are compared.

    >>> _plain("./site1\\IMG_7.JPG")
    'site1/IMG_7.JPG'
    """
    return "/".join(part for part in name.replace("\\", "/").split("/") if part not in ("", "."))
