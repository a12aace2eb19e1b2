"""The whole audit: of arrays, of shards however they are cut, of images; what it says and what it writes."""

import json

import numpy as np
import pyarrow.parquet
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from command import SMALL, here
from reprogram import Reprogrammed, audit_data, audit_files, audit_logits, load_data, load_frozen, make_mapping
from reprogram.audit.classes import confusions, small_classes
from reprogram.errors import ReprogramError
from reprogram.programs import NoProgram
from reprogram.text import read_csv

HOSTILE = ['=HYPERLINK("x")', "line\nend", "\x1b[31mred", 'caf\u00e9, "quoted"', "'+1"]


def arrays(n=120, seed=0, errors=6):
    draw = np.random.default_rng(seed)
    truth = draw.permutation(n) % 3
    logits = draw.normal(size=(n, 8)).astype(np.float32) + 4 * np.eye(8, dtype=np.float32)[truth]
    labels = truth.copy()
    labels[:errors] = (labels[:errors] + 1) % 3
    return logits, np.array(["ant", "bee", "cat"])[labels]


def test_injected_errors_are_told_first_with_their_number():
    logits, labels = arrays(n=600, errors=60)
    found = audit_logits(logits, labels)
    assert {row.place for row in found.suspicious(40)} <= set(range(60))
    low, high = found.interval
    assert low <= 60 <= high
    assert found.summary()[0].startswith(f"about {found.wrong:.0f} of 600 labels look wrong")
    first = next(found.suspicious(1))
    assert first.differs
    assert first.wrong > 0.95
    assert first.sure > 0.9
    assert first.reasons_for[0].amount > 0


def test_clean_labels_are_called_clean():
    logits, labels = arrays(n=600, errors=0)
    found = audit_logits(logits, labels)
    assert found.wrong < 3
    assert found.summary()[0].startswith("no sign of wrong labels among 600")


def test_other_splits_are_judged_by_train_and_one_split_can_be_asked_for():
    logits, labels = arrays()
    splits = ["train"] * 90 + ["Validation"] * 10 + ["test"] * 20
    found = audit_logits(logits, labels, splits=splits)
    assert {row.split: row.judged for row in found.suspicious() if row.split != "train"} == {
        "val": "mapping of train",
        "test": "mapping of train",
    }
    assert any("30 labels of other splits" in line for line in found.summary())
    only = audit_logits(logits, labels, splits=splits, split="test")
    assert len(only) == 20
    assert {row.split for row in only.suspicious()} == {"test"}
    one = {row.place: row.wrong for row in found.suspicious()}
    assert all(one[row.place] == row.wrong for row in only.suspicious())


@pytest.mark.parametrize("suffix", [".csv", ".jsonl", ".parquet"])
def test_what_is_written_holds_every_label_and_names_as_they_are(suffix, tmp_path):
    logits, labels = arrays(n=30, errors=2)
    logits[29] = logits[28]
    names = [HOSTILE[i % 5] + str(i) for i in range(30)]
    sources = [HOSTILE[i % 5] for i in range(8)]
    path = tmp_path / f"found{suffix}"
    found = audit_logits(logits, [f"={label}" for label in labels], names=names, source_labels=sources)
    found.save(path)
    if suffix == ".csv":
        rows = read_csv(path)
        raw = path.read_text()
        assert "\n=" not in raw
        assert ",=" not in raw
    elif suffix == ".jsonl":
        rows = [json.loads(line) for line in path.read_text().splitlines()]
        assert "\x1b" not in path.read_text()
    else:
        rows = pyarrow.parquet.read_table(path).to_pylist()
    expected = list(found.suspicious())
    assert [row["image"] for row in rows] == [row.name for row in expected]
    assert [row["label"] for row in rows] == [row.given for row in expected]
    assert [float(row["wrong"]) for row in rows] == pytest.approx([row.wrong for row in expected], rel=1e-4, abs=1e-9)
    twins = {row["image"]: row["duplicate"] for row in rows if row["duplicate"]}
    assert twins == {names[28]: names[29], names[29]: names[28]}
    with pytest.raises(ReprogramError, match=r"none of \.csv, \.jsonl, \.parquet"):
        found.save(tmp_path / "found.txt")


def shard(path, logits, labels, names, splits):
    np.savez(path, logits=logits, label=labels, image=np.array(names), split=np.array(splits))


@settings(max_examples=6, deadline=None)
@given(st.lists(st.integers(1, 59), max_size=3, unique=True))
def test_how_rows_are_cut_into_shards_changes_nothing(tmp_path_factory, cuts):
    folder = tmp_path_factory.mktemp("shards")
    logits, labels = arrays(n=60)
    names, splits = [f"{i}.jpg" for i in range(60)], ["train"] * 50 + ["test"] * 10
    for number, part in enumerate(np.split(np.arange(60), sorted(cuts))):
        place = slice(part[0], part[-1] + 1)
        shard(folder / f"{number}.npz", logits[place], labels[place], names[place], splits[place])
    one, other = audit_files(folder), audit_logits(logits, labels, names=names, splits=splits)
    assert [row.name for row in one.suspicious()] == [row.name for row in other.suspicious()]
    torch.testing.assert_close(one.judged.wrong, other.judged.wrong)
    assert [row.suggested for row in one.suspicious()] == [row.suggested for row in other.suspicious()]


def answers_file(path, n=90, errors=5):
    draw = np.random.default_rng(0)
    truth = draw.permutation(n) % 3
    words = ["Tabby", "Whiskers", "Snout", "Beagle", "Pond", "Bill"]
    lines = []
    for row in range(n):
        scores = draw.random(6) * 0.3
        scores[2 * truth[row] : 2 * truth[row] + 2] += 0.6
        best = np.argsort(-scores)[:3]
        label = ["cat", "dog", "duck"][(truth[row] + (row < errors)) % 3]
        named = [{"name": words[i], "score": round(float(scores[i]), 4)} for i in best]
        lines.append(json.dumps({"image": f"{row}.jpg", "label": label, "labels": named}))
    path.write_text("\n".join(lines))


def test_answers_of_a_service_are_audited(tmp_path):
    answers_file(tmp_path / "answers.jsonl")
    found = audit_files(tmp_path / "answers.jsonl", mapping="blm+")
    assert {row.name for row in found.suspicious(5)} == {f"{i}.jpg" for i in range(5)}
    first = next(found.suspicious(1))
    assert {reason.source for reason in first.reasons_for} <= {"Tabby", "Whiskers", "Snout", "Beagle", "Pond", "Bill"}
    with pytest.raises(ReprogramError, match="needs all logits, but top-K answers were given"):
        audit_files(tmp_path / "answers.jsonl", mapping="gaussian")


def test_the_best_mapping_can_be_chosen():
    logits, labels = arrays()
    found = audit_logits(logits, labels, mapping="auto")
    assert any(note.startswith("chosen ") for note in found.notes)
    assert {row.place for row in found.suspicious(6)} == set(range(6))


def test_confusions_count_both_directions():
    given_ = torch.tensor([0] * 40 + [1] * 40 + [2] * 40)
    said = given_.clone()
    said[:12], said[40:44], said[80] = 1, 0, 0
    (pair,) = confusions(("x", "y", "z"), given_, said)
    assert (pair.first, pair.second) == ("x", "y")
    assert (pair.forth.correct, pair.forth.n, pair.back.correct, pair.back.n) == (12, 40, 4, 40)


def test_small_classes_are_those_below_ten_or_a_fifth_of_the_median():
    given_ = torch.tensor([1, 1])
    found = small_classes(("a", "b", "c", "d"), torch.tensor([200, 2, 30, 180]), given_, torch.tensor([1, 0]))
    assert [(one.name, one.examples) for one in found] == [("b", 2)]
    found = small_classes(("a", "b", "c", "d"), torch.tensor([400, 2, 30, 180]), given_, torch.tensor([1, 0]))
    assert [one.name for one in found] == ["b"]
    assert str(found[0].score).startswith("50.0 %")


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ({"labels": ["a"] * 20}, "have 1 classes, but at least 2"),
        ({"splits": ["test"] * 20}, "fewer than 2 rows are of the split train"),
        ({"splits": ["trial"] * 20}, "has the split 'trial'"),
        ({"split": "val"}, "have no val split"),
        ({"mapping": "linear"}, "not estimated from statistics"),
        ({"mapping": "nothing"}, "mapping 'nothing'"),
        ({"names": ["a"]}, "1 names were given for 20 rows"),
        ({"mapping": "auto", "shrinkage": 0.5}, "'auto' chooses shrinkage by itself"),
    ],
)
def test_mistakes_are_told_in_one_sentence(arguments, sentence):
    logits = np.random.default_rng(0).normal(size=(20, 4))
    with pytest.raises(ReprogramError, match=sentence):
        audit_logits(logits, **{"labels": ["a", "b"] * 10, **arguments})


def test_images_are_audited_from_python(shapes):
    frozen = load_frozen("timm:test_resnet", pretrained=False)
    data = load_data(shapes)
    found = audit_data(data, frozen, canvas=64)
    assert len(found) == 126
    split = data.train
    model = Reprogrammed(NoProgram(64), frozen, make_mapping("gaussian", frozen.labels, data.classes))
    pixels = split.pixels(64)
    logits = torch.cat([model.source_logits(part) for part in pixels.split(32)])
    alone = audit_logits(logits, split.labels.numpy(), classes=data.classes, names=split.names)
    train = found.splits == 0
    assert [found.names[place] for place in train.nonzero().flatten().tolist()] == split.names
    assert found.judged.suggested[train].tolist() == alone.judged.suggested.tolist()
    with pytest.raises(ReprogramError, match="has one of its own"):
        audit_data(data, model, canvas=32)


def test_the_command_shows_tables_and_writes_all_labels(shapes, tmp_path):
    out = tmp_path / "suspicious.csv"
    small = [word for word in SMALL if word not in ("--lr", "0.05")]
    done = here("audit", shapes, *small, "--out", out, "--top", 5)
    rows = read_csv(out)
    assert len(rows) == 126
    assert {row["split"] for row in rows} == {"train", "test"}
    assert {row["judged"] for row in rows if row["split"] == "test"} == {"mapping of train"}
    assert "labels" in done.stdout
    assert f"all 126 labels, the most suspicious first: {out}" in done.stdout
    assert "judged by gaussian" in done.stdout


def test_the_command_audits_shards_and_a_run(run, tmp_path):
    folder, _ = run
    logits, labels = arrays()
    shard(tmp_path / "s.npz", logits, labels, [f"=cmd{i}\x1b" for i in range(120)], ["train"] * 120)
    done = here("audit", tmp_path / "s.npz", "--mapping", "blm+", "--top-k", 2)
    assert "judged by blm+" in done.stdout
    assert "\x1b" not in done.stdout
    done = here("audit", "--run", folder, "--split", "test", "--no-duplicates")
    assert "judged by gaussian" in done.stdout
    assert "labels of other splits were judged by the mapping of train" in done.stdout


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ((), "no data were given to audit"),
        (("nowhere",), "neither a folder or file that is there"),
        (("digits", "--out", "x.txt"), "none of .csv, .jsonl, .parquet"),
        (("digits", "--mapping", "gausian"), "gausian"),
        (("digits", "--shrinkage", "0.5"), "belongs to a mapping"),
        (("digits", "--mapping", "blm", "--shrinkage", "0.5"), "does not use"),
        (("digits", "photos"), "one set at a time"),
    ],
)
def test_a_mistake_on_the_command_line_is_one_sentence(arguments, sentence):
    done = here("audit", *arguments, check=False)
    assert done.returncode == 2
    assert sentence in done.stderr
    assert done.stderr.count("\n") == 1
