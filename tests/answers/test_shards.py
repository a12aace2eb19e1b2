"""Shards of answers: every format gives the same rows in blocks, and a bad file is named with its row."""

import csv
import itertools
import json
import os
import subprocess
import sys
import tracemalloc
import zipfile

import numpy as np
import pyarrow
import pyarrow.parquet
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from hostile import special_files
from reprogram import ReprogramError
from reprogram.answers.block import make_block
from reprogram.answers.holdout import HoldOutRule
from reprogram.answers.labels import LabelSets, rank_weights
from reprogram.answers.registry import READERS, register_reader
from reprogram.answers.shards import find_shards, read_blocks
from reprogram.answers.survey import Survey, survey_shard

NAMES = ["tench, Tinca", "hen", "crane"]
LOGITS = np.random.default_rng(0).normal(size=(11, 3))
LABELS = ["cat", "dog", "cat", "dog", "cat", "dog", "cat", "dog", "cat", "dog", "dog"]
IMAGES = [f"{row}.jpg" for row in range(11)]
ANSWERS = [[("Tabby", 0.9), ("Fur", 0.5)], [], [("Snout", None)], [("Fur", 0.25), ("Snout", 0.125), ("Tabby", 0.0625)]]


def write_logits(path):
    """The same eleven rows in the format that the suffix asks for."""
    if path.suffix == ".npz":
        np.savez(path, logits=LOGITS, label=LABELS, image=IMAGES)
    elif path.suffix == ".parquet":
        table = {"logits": pyarrow.array(list(LOGITS)), "label": LABELS, "image": IMAGES, "other": range(11)}
        pyarrow.parquet.write_table(pyarrow.table(table), path, row_group_size=4)
    elif path.suffix == ".jsonl":
        rows = ({"logits": list(z), "label": y, "image": i} for z, y, i in zip(LOGITS, LABELS, IMAGES, strict=True))
        path.write_text("\n".join(map(json.dumps, rows)))
    else:
        with path.open("w", newline="") as file:
            writer = csv.writer(file, delimiter="\t" if path.suffix == ".tsv" else ",")
            writer.writerow(["image", "logit_1", "logit_0", "logit_2", "label"])
            writer.writerows([i, z[1], z[0], z[2], y] for z, y, i in zip(LOGITS, LABELS, IMAGES, strict=True))
    return path


@pytest.mark.parametrize("suffix", ["npz", "csv", "tsv", "parquet", "jsonl"])
def test_every_format_gives_the_same_logits(suffix, tmp_path):
    blocks = list(read_blocks(write_logits(tmp_path / f"a.{suffix}")))
    np.testing.assert_array_equal(np.concatenate([block.logits for block in blocks]), LOGITS)
    assert [label for block in blocks for label in block.labels] == LABELS
    assert [image for block in blocks for image in block.images] == IMAGES
    (only_labels,) = read_blocks(tmp_path / f"a.{suffix}", logits=False)
    assert only_labels.logits is None
    assert only_labels.k_source == 3


def write_answers(path):
    labels = [[name for name, _ in answer] for answer in ANSWERS]
    scores = [[score for _, score in answer] for answer in ANSWERS]
    truth = ["cat", 1, "cat", "dog"]
    if path.name == "services.jsonl":
        rows = [
            {"label": "cat", "labels": [{"name": "Tabby", "score": 0.9}, {"name": "Fur", "score": 0.5}]},
            {"label": 1, "labelAnnotations": None},
            {"label": "cat", "Labels": ["Snout"]},
            {
                "label": "dog",
                "tags": [
                    {"description": "Fur", "confidence": 0.25},
                    {"Name": "Snout", "Confidence": 0.125},
                    {"label": "Tabby", "probability": 0.0625},
                ],
            },
        ]
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    elif path.suffix == ".jsonl":
        rows = zip(truth, labels, scores, strict=True)
        lines = [json.dumps({"label": y, "topk_labels": names, "topk_scores": numbers}) for y, names, numbers in rows]
        path.write_text("\n".join(lines) + "\n\n")
    elif path.suffix == ".parquet":
        table = {"label": [str(y) for y in truth], "topk_labels": labels, "topk_scores": scores}
        pyarrow.parquet.write_table(pyarrow.table(table), path)
    elif path.suffix == ".npz":
        padded = np.array([names + [""] * (3 - len(names)) for names in labels])
        numbers = np.array([[np.nan if n is None else n for n in row] + [np.nan] * (3 - len(row)) for row in scores])
        np.savez(path, topk_labels=padded, topk_scores=numbers, labels=np.array([str(y) for y in truth]))
    elif path.name == "joined.csv":
        path.write_text("label,topk_labels,topk_scores\ncat,Tabby|Fur,0.9|0.5\n1,,\ncat,Snout,\n"
                        "dog,Fur|Snout|Tabby,0.25|0.125|0.0625\n")  # fmt: skip
    else:
        with path.open("w", newline="") as file:
            writer = csv.writer(file)
            writer.writerow(["label", "topk_labels", "topk_scores"])
            writer.writerows([y, json.dumps(a), json.dumps(b)] for y, a, b in zip(truth, labels, scores, strict=True))
    return path


@pytest.mark.parametrize("name", ["services.jsonl", "lists.jsonl", "a.parquet", "a.npz", "joined.csv", "lists.csv"])
def test_every_format_gives_the_same_answers(name, tmp_path):

    (block,) = read_blocks(write_answers(tmp_path / name))
    assert block.labels == ["cat", "1", "cat", "dog"]
    assert block.top_labels == [[label for label, _ in answer] for answer in ANSWERS]
    expected = [[np.nan if score is None else score for _, score in answer] for answer in ANSWERS]
    for found, wanted in zip(block.top_scores, expected, strict=True):
        np.testing.assert_array_equal(found, wanted)


def test_source_labels_may_be_numbers_and_minus_one_is_none(tmp_path):
    np.savez(tmp_path / "a.npz", topk_labels=[[2, 0], [1, -1]], topk_scores=[[0.5, 0.25], [0.5, 0]], label=[0, 1])
    (block,) = read_blocks(tmp_path / "a.npz")
    rows = LabelSets(("a", "b", "c"), ("x", "y")).rows(block)
    assert rows.indices.tolist() == [[2, 0], [1, -1]]
    assert rows.targets.tolist() == [0, 1]
    collected = LabelSets(("3", "zebra"), ("x", "y"), sources_numbered=False, classes_numbered=False)
    assert collected.rows(block, strict=False).indices.tolist() == [[-1, -1], [-1, -1]]  # there, 1 would be a name


def test_source_labels_of_one_name_stay_two_labels(tmp_path):
    """ImageNet has two cranes: a number means one of them, the name alone means the first."""
    sets = LabelSets(("hen", "crane", "cock", "crane"), ("x", "y"))
    np.savez(tmp_path / "a.npz", topk_labels=[[3, 0], [1, 3]], topk_scores=[[0.5, 0.25], [0.5, 0.1]], label=[0, 1])
    (block,) = read_blocks(tmp_path / "a.npz")
    rows = sets.rows(block)
    assert rows.indices.tolist() == [[3, 0], [1, 3]]
    assert (rows.unseen.tolist(), rows.shared.tolist()) == ([0, 0], [0, 0])
    (tmp_path / "a.jsonl").write_text(json.dumps({"label": "x", "topk_labels": ["crane", "hen", "3"]}))
    rows = sets.rows(next(read_blocks(tmp_path / "a.jsonl")))
    assert (rows.indices.tolist(), rows.shared.tolist()) == ([[1, 0, 3]], [1])


def test_a_format_from_outside(tmp_path, monkeypatch):
    """A reader that another package registers is used like those that are built in."""
    monkeypatch.setattr(READERS, "_records", dict(READERS._records))

    def read_words(path, *, logits=True):
        rows = [line.split() for line in path.read_text().splitlines()]
        raw = {"label": [row[0] for row in rows], "topk_labels": [row[1:] for row in rows]}
        yield make_block(path, 1, len(rows), raw)

    register_reader(".words", read_words)
    (tmp_path / "a.WORDS").write_text("cat Tabby Fur\ndog Snout\n")
    (path,) = find_shards(tmp_path)
    (block,) = read_blocks(path)
    assert block.top_labels == [["Tabby", "Fur"], ["Snout"]]
    assert survey_shard({}, path).labels == {"cat": 1, "dog": 1}
    for suffix, message in ((".words", "registered already"), ("words", "like '.npz'"), (".Words", "lower case")):
        with pytest.raises(ReprogramError, match=message):
            register_reader(suffix, read_words)


def test_the_readers_are_known_without_torch():
    code = "import sys; from reprogram.answers.registry import READERS; print(len(READERS), 'torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["8", "False"]


def test_named_columns_are_brought_to_the_order_of_the_source_labels(tmp_path):
    path = tmp_path / "a.csv"
    path.write_text('label,"logits:tench, Tinca",logits:crane,logits:hen\ncat,1,3,2\n\ndog,4,6,5\n')
    survey = survey_shard({}, path)
    assert survey.columns == (NAMES[0], "crane", "hen")
    sets = LabelSets(tuple(NAMES), ("cat", "dog"))
    blocks = list(read_blocks(path))
    assert torch.cat([sets.rows(block).logits for block in blocks]).tolist() == [[1, 2, 3], [4, 5, 6]]
    assert [block.first_row for block in blocks] == [1, 3]


def test_an_answer_without_all_scores_is_weighed_by_rank(tmp_path):
    path = tmp_path / "a.jsonl"
    path.write_text(json.dumps({"label": "x", "topk_labels": ["a", "new", "b"], "topk_scores": [0.9, None, 0.1]}))
    rows = LabelSets(("a", "b"), ("x", "y")).rows(next(read_blocks(path)))
    assert rows.probabilities.tolist() == [rank_weights(3)]
    assert rows.indices.tolist() == [[0, -1, 1]]
    assert (rows.unscored.tolist(), rows.unseen.tolist()) == ([True], [1])


def test_percentages_are_refused_unless_said_so(tmp_path):
    path = tmp_path / "a.jsonl"
    path.write_text(json.dumps({"label": "x", "labels": [{"Name": "a", "Confidence": 97.5}]}))
    block = next(read_blocks(path))
    with pytest.raises(ReprogramError, match=r"row 1 of .*a.jsonl' has the score 97.5, .* --scores percent"):
        LabelSets(("a",), ("x", "y")).rows(block)
    assert LabelSets(("a",), ("x", "y"), percent=True).rows(block).probabilities.tolist() == [[0.975]]


def test_big_arrays_are_streamed(tmp_path):
    """Twenty thousand rows of 500 logits are 40 MB; reading them takes a fraction of that."""
    np.savez(tmp_path / "a.npz", logits=np.zeros((20_000, 500), np.float32), label=np.zeros(20_000, np.int64))
    tracemalloc.start()
    rows = sum(block.rows for block in read_blocks(tmp_path / "a.npz"))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert rows == 20_000
    assert peak < 25e6


def test_an_array_in_column_order_is_read_too(tmp_path):
    np.savez(tmp_path / "a.npz", logits=np.asfortranarray(LOGITS), label=LABELS)
    np.testing.assert_array_equal(next(read_blocks(tmp_path / "a.npz")).logits, LOGITS)


def test_shards_are_found_by_path_folder_and_pattern(tmp_path, monkeypatch):
    for name in ("b.npz", "a.npz", "c.csv", "manifest.json", ".hidden.npz"):
        (tmp_path / name).touch()
    names = [tmp_path / name for name in ("a.npz", "b.npz", "c.csv")]
    assert find_shards(tmp_path) == names
    assert find_shards([tmp_path / "b.npz", f"{tmp_path}/*.npz"]) == [names[1], names[0]]
    monkeypatch.setenv("HOME", str(tmp_path))
    assert find_shards("~/*.npz") == names[:2]
    assert find_shards(["~/c.csv", "~"]) == [names[2], *names[:2]]
    for wrong in (tmp_path / "none", f"{tmp_path}/*.parquet", tmp_path / "manifest.json", []):
        with pytest.raises(ReprogramError):
            find_shards(wrong)


@settings(max_examples=30, deadline=None)
@given(st.floats(0.05, 0.9), st.integers(0, 5), st.lists(st.integers(1, 10), max_size=3))
def test_the_held_out_rows_do_not_depend_on_the_sharding(tmp_path_factory, share, seed, cuts):
    folder = tmp_path_factory.mktemp("cut")
    edges = [0, *sorted(set(cuts)), 11]
    for images in (True, False):
        rule, sides = HoldOutRule("share", share, seed), {}
        for number, (start, stop) in enumerate([(0, 11), *itertools.pairwise(edges)]):
            extra = {"image": IMAGES[start:stop]} if images else {}
            np.savez(folder / f"{number}.npz", logits=LOGITS[start:stop], label=LABELS[start:stop], **extra)
            for block in read_blocks(folder / f"{number}.npz"):
                for row, side in enumerate(rule.sides(block, 0)[1]):
                    assert sides.setdefault(tuple(block.logits[row]), side) == side


def test_surveys_merge_and_refuse_other_forms(tmp_path):
    first, second = (survey_shard({}, write_logits(tmp_path / f"{i}.npz")) for i in range(2))
    total = Survey(first.path)
    total.merge(first)
    total.merge(second)
    assert (total.rows, total.labels) == (22, {"cat": 10, "dog": 12})
    assert LabelSets.collect(total).classes == ("cat", "dog")
    with pytest.raises(ReprogramError, match=r"3 logits per row, but .* top-K answers"):
        total.merge(survey_shard({}, write_answers(tmp_path / "a.jsonl")))


def bad_npz(path, **arrays):
    np.savez(path / "a.npz", **arrays)
    return path / "a.npz"


def bad_text(path, name, text):
    (path / name).write_text(text)
    return path / name


def bad_object(path):
    np.savez(path / "a.npz", logits=LOGITS, label=np.array(LABELS, dtype=object))
    return path / "a.npz"


def cut_short(path):
    file = write_logits(path / "whole.npz")
    with zipfile.ZipFile(file) as whole, zipfile.ZipFile(path / "a.npz", "w") as cut:
        for name in whole.namelist():
            cut.writestr(name, whole.read(name)[:-4])
    return path / "a.npz"


def with_nan(path):
    return bad_npz(path, logits=np.where(np.arange(33).reshape(11, 3) == 7, np.nan, LOGITS), label=LABELS)


def damaged(path):
    """An archive whose compressed bytes are spoilt in the middle."""
    file = path / "a.npz"
    np.savez_compressed(file, logits=LOGITS, label=LABELS)
    content = bytearray(file.read_bytes())
    content[60:90] = bytes(30)
    file.write_bytes(content)
    return file


def unlabelled_parquet(path):
    pyarrow.parquet.write_table(pyarrow.table({"logits": pyarrow.array(list(LOGITS))}), path / "a.parquet")
    return path / "a.parquet"


BAD = {
    "no answers": (lambda p: bad_npz(p, label=LABELS), "holds label, but one of logits, topk_labels"),
    "both answers": (lambda p: bad_npz(p, label=LABELS, logits=LOGITS, topk_labels=[["a"]] * 11), "but only one of logits"),
    "other lengths": (lambda p: bad_npz(p, label=LABELS[:5], logits=LOGITS), "different numbers of rows"),
    "flat logits": (lambda p: bad_npz(p, label=LABELS, logits=LOGITS[:, 0]), r"\(rows, k\) is expected"),
    "text logits": (lambda p: bad_npz(p, label=LABELS, logits=LOGITS.astype(str)), "numbers are expected"),
    "a pickle": (bad_object, "Python objects"),
    "cut short": (cut_short, "ends too early"),
    "no archive": (lambda p: bad_text(p, "a.npz", "hello"), "cannot be read"),
    "NaN": (with_nan, r"row 3 of .* NaN or infinity"),
    "no label column": (lambda p: bad_npz(p, logits=LOGITS), "row 1 of .* has no label"),
    "empty label": (lambda p: bad_text(p, "a.csv", "label,logit_0\ncat,1\n,2\n"), "row 2 of .* has no label"),
    "short row": (lambda p: bad_text(p, "a.csv", "label,logit_0\ncat,1\ndog\n"), "row 2 of .* has 1 cells"),
    "word for a logit": (lambda p: bad_text(p, "a.csv", "label,logit_0\ncat,1\ndog,x\n"), "row 2 of .* no number"),
    "gap in logits": (lambda p: bad_text(p, "a.csv", "label,logit_0,logit_2\ncat,1,1\n"), "no column logit_1"),
    "broken list": (lambda p: bad_text(p, "a.csv", 'label,topk_labels\ncat,"[1,"\n'), "row 1 of .* no JSON list"),
    "odd scores": (
        lambda p: bad_text(p, "a.csv", "label,topk_labels,topk_scores\ncat,a|b,0.1|0.2|0.3\n"),
        "2 labels but 3 scores",
    ),
    "word for a score": (
        lambda p: bad_text(p, "a.csv", "label,topk_labels,topk_scores\ncat,a,high\n"),
        "score 'high', but a number",
    ),
    "no JSON": (lambda p: bad_text(p, "a.jsonl", '{"label": "a", "labels": []}\n{"label"\n'), "row 2 of .* is no JSON"),
    "no object": (lambda p: bad_text(p, "a.jsonl", "3\n"), "row 1 of .* is a int"),
    "a list of numbers": (lambda p: bad_text(p, "a.jsonl", "[1]\n"), "row 1 of .* is no list of labels with names"),
    "no names": (
        lambda p: bad_text(p, "a.jsonl", '{"label": "a", "labels": [{"score": 1}]}\n'),
        "row 1 .* keys score, .* one of name, label",
    ),
    "unknown list": (
        lambda p: bad_text(p, "a.jsonl", '{"label": "a", "results": []}\n'),
        "holds label, results, but one of logits, .* labels, tags, labelAnnotations, predictions is expected",
    ),
    "unknown column": (
        lambda p: bad_text(p, "a.csv", "label,z0,z1\ncat,1,2\n"),
        "holds label, z0, z1, but one of .* logit_0 ... or logits:<source label>",
    ),
    "no label in CSV": (lambda p: bad_text(p, "a.csv", "logit_0\n1\n"), "row 1 of .* has no label"),
    "no label in Parquet": (unlabelled_parquet, "row 1 of .* has no label"),
    "no label in JSON": (lambda p: bad_text(p, "a.jsonl", '{"logits": [1]}\n'), "row 1 of .* has no label"),
    "deep JSON": (lambda p: bad_text(p, "a.jsonl", "[" * 100_000), "row 1 of .* is no JSON"),
    "deep list": (lambda p: bad_text(p, "a.csv", f"label,topk_labels\ncat,{'[' * 100_000}\n"), "row 1 of .* no JSON"),
    "damaged compressed archive": (damaged, "cannot be read"),
    "mixed forms": (
        lambda p: bad_text(p, "a.jsonl", '{"label": 1, "logits": [1]}\n{"label": 1, "labels": []}\n'),
        "row 2 .* holds topk_labels, but the rows before hold logits",
    ),
    "ragged logits": (
        lambda p: bad_text(p, "a.jsonl", '{"label": 1, "logits": [1, 2]}\n{"label": 1, "logits": [1]}\n'),
        "row 2 of .* has 1 logits, but its first row has 2",
    ),
    "unknown split": (
        lambda p: bad_text(p, "a.csv", "label,split,logit_0\ncat,train,1\ndog,later,2\n"),
        "row 2 of .* has the split 'later'",
    ),
    "no parquet": (lambda p: bad_text(p, "a.parquet", "hello"), "cannot be read"),
}


@pytest.mark.parametrize("case", BAD)
def test_a_bad_shard_is_one_sentence_with_file_and_row(case, tmp_path):
    make, message = BAD[case]
    path = make(tmp_path)
    with pytest.raises(ReprogramError, match=message) as raised:
        list(read_blocks(path)) and survey_shard({}, path)
    assert path.name in str(raised.value)
    assert "\n" not in str(raised.value)


def test_what_is_no_plain_file_is_no_shard(tmp_path):
    """A pipe that nobody writes to, a socket, a device, a link to itself: refused at once, or passed over in a folder."""
    (tmp_path / "odd").mkdir()
    for path in special_files(tmp_path / "odd"):
        named = path.rename(path.with_name(f"{path.name}.jsonl"))
        with pytest.raises(ReprogramError, match="no shard matches"):
            find_shards(named)
        with pytest.raises(ReprogramError, match="no plain file"):
            list(read_blocks(named))
    with pytest.raises(ReprogramError, match=r"holds no \.npz"):
        find_shards(tmp_path / "odd")


def test_links_that_lead_in_circles_are_not_followed(tmp_path):
    """Two links to the folder itself make more paths than can be counted."""
    (tmp_path / "deep" / "er").mkdir(parents=True)
    for name in ("a", "b", "c"):
        (tmp_path / name).symlink_to(tmp_path)
    shard = write_logits(tmp_path / "deep" / "er" / "a.npz")
    (tmp_path / ".hidden").mkdir()
    write_logits(tmp_path / ".hidden" / "b.npz")
    for pattern in ("**/*.npz", "**", "*/*/*.npz", "**/er/a.np?", "deep/**/a.npz"):
        assert find_shards(f"{tmp_path}/{pattern}") == [shard]


@pytest.mark.parametrize("word", ["a" * 5000, "a\0b", "~nobody-here/x", "*" * 5000, "a**b", "[", "**" * 100])
def test_words_that_name_nothing(word, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ReprogramError) as raised:
        find_shards(word)
    assert "\n" not in str(raised.value)
    assert len(str(raised.value)) < 400


@pytest.mark.parametrize("how", ["grown", "cut", "replaced", "gone"])
def test_a_shard_that_changes_while_it_is_read_is_refused(how, tmp_path):
    path = tmp_path / "a.csv"
    path.write_text("label,logit_0\n" + "x,1\ny,2\n" * 4000)
    blocks = read_blocks(path)
    next(blocks)
    if how == "grown":
        with path.open("a") as file:
            file.write("x,1\n")
    elif how == "cut":
        os.truncate(path, 40_000 - 40_000 % 4)
    elif how == "replaced":
        (tmp_path / "b.csv").write_text(path.read_text())
        (tmp_path / "b.csv").rename(path)
    else:
        path.unlink()
    with pytest.raises(ReprogramError, match=r"a.csv' was changed while it was read|cells, but its header"):
        list(blocks)
