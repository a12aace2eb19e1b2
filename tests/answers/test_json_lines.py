"""JSON lines of answers that nobody means well with."""

import json

import pytest

from hostile import memory_below
from reprogram.answers.block import BLOCK_VALUES
from reprogram.answers.labels import LabelSets
from reprogram.answers.shards import read_blocks
from reprogram.answers.survey import survey_shard
from reprogram.errors import ReprogramError
from reprogram.files.foreign import LARGEST_ROW

BAD = {
    "a logit beyond all numbers": ({"logits": [1, 10**400]}, "row 2 of .* a logit that is no number"),
    "a negative one": ({"logits": [1, -(10**400)]}, "row 2 of .* a logit that is no number"),
    "a score beyond all numbers": ({"topk_labels": ["a"], "topk_scores": [10**400]}, "row 2 of .* has the score 1000"),
    "a list for a label": ({"label": ["x"], "topk_labels": ["a"]}, r"row 2 of .* has the label \['x'\], which is no name"),
    "an object for a name": ({"topk_labels": [{"a": 1}]}, "row 2 of .* has the source label .* which is no name"),
    "half a character": ({"image": "\ud800", "topk_labels": []}, "row 2 of .* has the image .* half a character"),
    "a label without end": ({"label": "x" * 5000, "topk_labels": []}, "row 2 of .* 5000 letters"),
    "keys without end": ({"x" * 5000: 1}, "holds label, 'xxx.* is expected"),
    "an answer without end": ({"topk_labels": ["a"] * 100_001}, "100001 labels, but 100000 are the most"),
    "keys of a label without end": ({"labels": [{"x" * 5000: 1}]}, "row 2 .* holds a label with the keys 'xxx"),
}


@pytest.mark.parametrize("case", BAD)
def test_a_hostile_row_is_one_sentence(case, tmp_path):
    row, message = BAD[case]
    first = {"label": "x", "logits": [1, 2]} if "logits" in row else {"label": "x", "topk_labels": ["a"]}
    path = tmp_path / "a.jsonl"
    path.write_text("\n".join(map(json.dumps, (first, {"label": "y", **row}))))
    with pytest.raises(ReprogramError, match=message) as raised:
        list(read_blocks(path))
    assert "a.jsonl" in str(raised.value)
    assert "\n" not in str(raised.value)
    assert len(str(raised.value)) < 600


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b'{"label": "x", "logits": [' + b"1" * 5000 + b"]}", "row 1 of .* is no JSON"),
        (b'{"a":' * 100_000, "row 1 of .* is no JSON"),
        (b'{"label": "x", "logits": [1]}\n\xff', "not UTF-8"),
        ('{"label": "x", "logits": [1]}'.encode("utf-16"), "UTF-16"),
        (b'{"label": "x", "logits": [1]}\0', "row 1 of .* is no JSON"),
    ],
)
def test_a_hostile_text_is_one_sentence(content, message, tmp_path):
    (tmp_path / "a.jsonl").write_bytes(content)
    with pytest.raises(ReprogramError, match=message):
        list(read_blocks(tmp_path / "a.jsonl"))


def test_a_line_of_gigabytes_is_not_read(tmp_path):
    path = tmp_path / "a.jsonl"
    path.write_text('{"label": "x", "logits": [1]}\n')
    with path.open("ab") as file:
        file.truncate(2**32)
    with memory_below(5 * LARGEST_ROW), pytest.raises(ReprogramError, match=r"row 1 of shard .* longer than 16 MiB"):
        list(read_blocks(path))


def test_one_long_answer_does_not_make_all_others_long(tmp_path):
    """Rows become a table as wide as their longest answer, so they are cut into blocks of so many places."""
    path = tmp_path / "a.jsonl"
    rows = [{"label": "xy"[row % 2], "topk_labels": ["a", "b"]} for row in range(1000)]
    rows[500]["topk_labels"] = [str(number) for number in range(90_000)]
    path.write_text("\n".join(map(json.dumps, rows)))
    blocks = list(read_blocks(path))
    assert sum(block.rows for block in blocks) == 1000
    assert [block.first_row for block in blocks] == [1 + sum(b.rows for b in blocks[:i]) for i in range(len(blocks))]
    assert max(block.rows * max(map(len, block.top_labels)) for block in blocks) <= BLOCK_VALUES
    assert [label for block in blocks for label in block.labels] == [row["label"] for row in rows]


def test_a_mapping_of_more_numbers_than_fit_is_refused_before_it_is_made(tmp_path):
    path = tmp_path / "a.jsonl"
    lines = (json.dumps({"label": f"c{row}", "topk_labels": [f"{row}/{k}" for k in range(20)]}) for row in range(5000))
    path.write_text("\n".join(lines))
    with pytest.raises(ReprogramError, match="100000 source labels and 5000 classes, for which a mapping"):
        LabelSets.collect(survey_shard({}, path))


def test_labels_of_thousands_of_digits_are_names(tmp_path):
    path = tmp_path / "a.jsonl"
    path.write_text("\n".join(json.dumps({"label": digit * 4000, "topk_labels": ["9" * 4000]}) for digit in "12"))
    assert LabelSets.collect(survey_shard({}, path)).classes == ("1" * 4000, "2" * 4000)
