"""Tables of answers that nobody means well with; Parquet is read by a child process first."""

import json

import numpy as np
import pyarrow
import pyarrow.parquet
import pytest

from hostile import memory_below
from reprogram.answers.shards import read_blocks
from reprogram.answers.survey import survey_shard
from reprogram.errors import ReprogramError
from reprogram.files.foreign import LARGEST_ROW

BAD = {
    "a column of 5,000 digits": (f"label,logit_{'1' * 5000}\nx,1\n", "holds label, 'logit_111.*one of logits"),
    "a column twice": ("label,logit_0,label\nx,1,y\n", "has 2 columns label, but one is expected"),
    "a logit twice": ("label,logit_0,logit_1,logit_0\nx,1,2,3\n", "has 2 columns logit_0, but one is expected"),
    "a logit twice, written in two ways": ("label,logit_0,logit_00\nx,1,2\n", "has 2 columns logit_0"),
    "a cell without end": (f"label,logit_0\nx,{'1' * 140_000}\n", r"cannot be read \(field larger than"),
    "a name without end": (f"label,logit_0\nx,1\n{'y' * 5000},2\n", "row 2 of .* 5000 letters"),
    "a score without end": (f"label,topk_labels,topk_scores\nx,a,{'z' * 5000}\n", "row 1 of .* has the score 'zzz"),
    "a split without end": (f"label,split,logit_0\nx,{'t' * 4000},2\n", "row 1 of .* has the split 'ttt"),
    "a logit that is a word without end": (f"label,logit_0\nx,{'z' * 5000}\n", "row 1 of .* is no number"),
    "numbers beyond all numbers in a cell": (
        f'label,topk_labels,topk_scores\nx,a,"[{"9" * 400}]"\n',
        "row 1 of .* the score 999",
    ),
    "lists in a list": ('label,topk_labels\nx,"[[1], [2]]"\n', r"row 1 of .* the source label \[1\], which is no name"),
    "a score that is infinite": ("label,logit_0\nx,1e999\n", "row 1 of .* NaN or infinity"),
    "nothing": ("", "holds nothing"),
    "zero bytes": ("\0" * 100, "but one of logits"),
    "UTF-16": ("label,logit_0\nx,1\n".encode("utf-16"), "UTF-16"),
    "no letters": (b"label,logit_0\n\xff,1\n", "not UTF-8"),
}


@pytest.mark.parametrize("case", BAD)
@pytest.mark.parametrize("suffix", ["csv", "tsv"])
def test_a_hostile_table_is_one_sentence(case, suffix, tmp_path):
    content, message = BAD[case]
    path = tmp_path / f"a.{suffix}"
    content = content if isinstance(content, bytes) else content.encode()
    path.write_bytes(content.replace(b",", b"\t") if suffix == "tsv" and b'"' not in content else content)
    if suffix == "tsv" and b'"' in content:
        message = "is expected"  # one column, by another name
    with pytest.raises(ReprogramError, match=message) as raised:
        list(read_blocks(path)) and survey_shard({}, path)
    assert path.name in str(raised.value)
    assert "\n" not in str(raised.value)
    assert len(str(raised.value)) < 600


@pytest.mark.parametrize("start", [b"label,logit_0\nx,1\n", b'label,logit_0\nx,1\n"', b"label,logit_0\n" + b'"\n",' * 10])
def test_a_row_of_gigabytes_is_not_read(start, tmp_path):
    """Neither a line without an end, nor a quote that is never closed."""
    path = tmp_path / "a.csv"
    path.write_bytes(start)
    with path.open("ab") as file:
        file.truncate(2**32)
    with memory_below(8 * LARGEST_ROW), pytest.raises(ReprogramError, match=r"longer than 16 MiB|field larger"):
        list(read_blocks(path))


def test_a_row_of_many_quoted_lines_has_an_end(tmp_path):
    path = tmp_path / "a.csv"
    with path.open("w") as file:
        file.write("label,logit_0\n")
        for _ in range(60):
            file.write(f'"{"a" * 100_000}\n{"b" * 30_000}",' * 10)
    with memory_below(8 * LARGEST_ROW), pytest.raises(ReprogramError, match=r"row 1 of shard .* longer than 16 MiB"):
        list(read_blocks(path))


def test_blocks_of_long_rows_are_short(tmp_path):
    """Rows of a megabyte each are not held by the thousand, whatever they hold."""
    path = tmp_path / "a.csv"
    columns = [f"topk_labels,{','.join(f'other {number}' for number in range(9))}", *["a|b" + f",{'z' * 120_000}" * 9] * 40]
    path.write_text("".join(f"{label},{row}\n" for label, row in zip(["label", *"xy" * 20], columns, strict=True)))
    rows = [block.rows for block in read_blocks(path)]
    assert sum(rows) == 40
    assert max(rows) <= 16


def parquet(path, table, **options):
    pyarrow.parquet.write_table(pyarrow.table(table), path, **options)
    return path


def damaged(path):
    parquet(path, {"label": ["x", "y"] * 50, "logits": [[1.0, 2.0]] * 100})
    content = bytearray(path.read_bytes())
    content[8:40] = b"\xff" * 32
    path.write_bytes(content)
    return path


def twice(path):
    columns = [pyarrow.array([[1.0]]), pyarrow.array(["x"]), pyarrow.array(["y"])]
    return parquet(path, pyarrow.Table.from_arrays(columns, names=["logits", "label", "label"]))


def no_text(path):
    """Bytes that are no UTF-8 in a column that says it holds texts."""
    texts = pyarrow.Array.from_buffers(
        pyarrow.string(), 2, [None, pyarrow.py_buffer(np.array([0, 1, 2], "i4")), pyarrow.py_buffer(b"x\xff")]
    )
    return parquet(path, {"label": texts, "logits": [[1.0], [2.0]]})


PARQUET = {
    "damaged": (damaged, "cannot be read|damaged"),
    "cut": (lambda p: p.write_bytes(damaged(p).read_bytes()[:-20]) and p, "cannot be read"),
    "empty": (lambda p: p.touch() or p, "cannot be read"),
    "a column twice": (twice, "2 columns label"),
    "no text": (no_text, "cannot be read"),
    "many labels in few bytes": (
        lambda p: parquet(p, {"label": ["x"], "topk_labels": [["a"] * 100_001]}),
        "100001 labels, but 100000 are the most",
    ),
    "many logits in few bytes": (
        lambda p: parquet(p, {"label": ["x"], "logits": [np.zeros(2_000_001, "i1")]}),
        "2000001 logits per row",
    ),
    "objects for labels": (lambda p: parquet(p, {"label": [{"a": 1}], "logits": [[1.0]]}), "row 1 of .* which is no name"),
}


@pytest.mark.parametrize("case", PARQUET)
def test_a_hostile_parquet_file_is_one_sentence(case, tmp_path):
    make, message = PARQUET[case]
    path = make(tmp_path / "a.parquet")
    with pytest.raises(ReprogramError, match=message) as raised:
        list(read_blocks(path))
    assert "a.parquet" in str(raised.value)
    assert "\n" not in str(raised.value)


def test_long_answers_in_parquet_are_cut_into_blocks(tmp_path):
    path = parquet(tmp_path / "a.parquet", {"label": ["x", "y"] * 20, "topk_labels": [["a"] * 80_000, ["b"]] * 20})
    blocks = list(read_blocks(path))
    assert [label for block in blocks for label in block.labels] == ["x", "y"] * 20
    assert max(block.rows for block in blocks) <= 25


def test_a_parquet_file_is_tried_by_a_child_first(tmp_path, monkeypatch):
    """What crashes its reader crashes there: here, a reader of our own that does."""
    from reprogram.answers.registry import READERS, Reader

    monkeypatch.setattr(READERS, "_records", {".parquet": Reader(".parquet", json.loads, "os:abort")})
    (tmp_path / "a.parquet").touch()
    with pytest.raises(ReprogramError, match=r"shard '.*a.parquet'"):
        list(read_blocks(tmp_path / "a.parquet"))
