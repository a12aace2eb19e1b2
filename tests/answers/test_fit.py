"""Mappings from files of answers: the sharding and the place of work do not matter, and predictions follow the formula."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch

import sealed
from reprogram.answers.block import make_block
from reprogram.answers.fit import fit_files
from reprogram.answers.labels import rank_weights
from reprogram.answers.mapping import AnswerMapping
from reprogram.answers.parallel import Workers
from reprogram.answers.shards import read_blocks
from reprogram.errors import EvidenceWarning, ReprogramError
from reprogram.files import write_sealed
from reprogram.mappings.making import make_mapping
from reprogram.mappings.selection import Candidate, Scored, Selection, select
from reprogram.scores import Score
from reprogram.statistics.answers import TopK
from reprogram.statistics.gaussian import GaussianStatistics
from reprogram.statistics.joint import JointStatistics

N, K_SOURCE, CLASSES = 240, 12, ["ant", "bee", "cow"]
SIZES = (1, 60, 2, 100, 7, 30, 40)
METHODS = {
    "blm": {},
    "blm+": {"top_k": 4},
    "blm+ standardised": {"top_k": 4, "normalize": "standardise"},
    "gaussian": {},
    "gaussian+": {"top_k": 4},
    "rlm": {},
}


def rows(seed=0):
    rng = np.random.default_rng(seed)
    targets = rng.integers(0, 3, N)
    logits = rng.normal(size=(N, K_SOURCE)) + 2 * np.eye(3, K_SOURCE)[targets]
    return logits, targets


def write(folder, sizes):
    """The same rows, cut into shards of these sizes and of different formats."""
    folder.mkdir()
    logits, targets = rows()
    start = 0
    for number, size in enumerate(sizes):
        part, labels = logits[start : start + size], [CLASSES[t] for t in targets[start : start + size]]
        if number % 3 == 1:
            lines = [json.dumps({"label": y, "logits": z.tolist()}) for z, y in zip(part, labels, strict=True)]
            (folder / f"{number}.jsonl").write_text("\n".join(lines))
        else:
            np.savez(folder / f"{number}.npz", logits=part, label=labels)
        start += size
    assert start == N
    return folder


def same(one, other):
    """Integers exactly, floats to 1e-12, and the same outcome."""
    assert one.held_out == other.held_out
    assert one.labels == other.labels
    assert torch.equal(one.samples, other.samples)
    states = one.mapping.state_dict(), other.mapping.state_dict()
    assert list(states[0]) == list(states[1])
    for key, value in states[0].items():
        if key.startswith("statistics.") and value.dtype == torch.float64:
            torch.testing.assert_close(value, states[1][key], rtol=1e-12, atol=1e-12)
        elif value.is_floating_point():
            torch.testing.assert_close(value, states[1][key], rtol=1e-6, atol=1e-7)
        else:
            assert torch.equal(value, states[1][key])


@pytest.fixture(scope="module")
def shards(tmp_path_factory):
    root = tmp_path_factory.mktemp("shards")
    return write(root / "one", [N]), write(root / "seven", SIZES)


@pytest.mark.parametrize("case", METHODS)
def test_the_sharding_does_not_matter(case, shards, tmp_path):
    one, seven = (fit_files(folder, case.split()[0], **METHODS[case]) for folder in shards)
    same(one, seven)
    assert 20 < one.held_out.score.n < 80
    seven.save(tmp_path / "saved")
    same(one, AnswerMapping.load(tmp_path / "saved"))


@pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::DeprecationWarning", "ignore::FutureWarning")
def test_statistics_agree_wherever_they_are_gathered(shards, tmp_path):
    """One shard, seven uneven ones, seven in two processes, seven on a real Ray, and seven saved, loaded and merged."""
    ray = pytest.importorskip("ray")
    one, seven = shards
    logits, targets = (torch.from_numpy(part) for part in rows())
    with Workers("local", processes=2) as processes, Workers("ray", processes=1) as cluster:
        for name, options in (("blm+", {"top_k": 4}), ("gaussian", {})):
            whole = fit_files(one, name, **options)
            same(whole, fit_files(seven, name, workers=processes, **options))
            same(whole, fit_files(seven, name, workers=cluster, **options))
            total = whole.mapping.new_statistics()
            for number, part in enumerate(logits.split(list(SIZES))):
                start = sum(SIZES[:number])
                fresh = whole.mapping.new_statistics().update(part, targets[start : start + len(part)])
                fresh.save(tmp_path / f"{name}-{number}")
                total.merge(type(fresh).load(tmp_path / f"{name}-{number}"))
            assert isinstance(total, GaussianStatistics if name == "gaussian" else JointStatistics)
            for key, value in total.state_dict().items():
                torch.testing.assert_close(value, whole.mapping.statistics.state_dict()[key], rtol=1e-12, atol=1e-12)
        assert ray.is_initialized()
    assert not ray.is_initialized()  # the engine ends the cluster that it started


def test_the_held_out_rows_are_not_in_the_mapping_they_measure(shards):
    logits, targets = (torch.from_numpy(part) for part in rows())
    saved = fit_files(shards[0], "blm", holdout=0.3)
    assert saved.mapping.statistics.n == N  # the saved one is estimated from all rows
    again = fit_files(shards[0], "blm", holdout=0.3, seed=1)
    assert again.held_out != saved.held_out
    nothing = fit_files(shards[0], "blm", holdout=0)
    assert nothing.held_out is None
    whole = make_mapping("blm", [f"label {i}" for i in range(K_SOURCE)], CLASSES)
    whole.estimate(whole.new_statistics().update(logits, targets))
    assert torch.equal(nothing.mapping.weights, whole.weights)
    assert torch.equal(saved.mapping.weights, whole.weights)
    apart = fit_files(shards[0], "blm", test=shards[1])  # the same rows in other files
    right = int((whole.predict(logits, precise=True).indices == targets).sum())
    assert (apart.held_out.score.n, apart.held_out.score.correct) == (N, right)
    assert apart.mapping.statistics.n == N


def test_rows_of_the_split_test_never_enter(tmp_path):
    logits, targets = rows()
    split = ["test" if row % 4 == 0 else "train" for row in range(N)]
    np.savez(tmp_path / "a.npz", logits=logits, label=targets, split=split)
    np.savez(tmp_path / "b.npz", logits=logits[:9], label=targets[:9])
    plain = fit_files(tmp_path / "a.npz", "blm")
    assert (plain.held_out.score.n, plain.held_out.refitted) == (60, False)
    assert plain.labels.classes == ("0", "1", "2")
    for options, measured in (({"holdout": 0.3}, None), ({"holdout": 0}, 0), ({"test": tmp_path / "b.npz"}, 9)):
        saved = fit_files(tmp_path / "a.npz", "blm", **options)
        assert torch.equal(saved.mapping.statistics.matrix, plain.mapping.statistics.matrix)
        assert saved.notes == ("60 rows of the split test were left out",)
        found = 0 if saved.held_out is None else saved.held_out.score.n
        assert 20 < found < 90 if measured is None else found == measured
    np.savez(tmp_path / "c.npz", logits=logits, label=targets, split=["test"] * N)
    for options in ({}, {"holdout": 0.3}, {"test": tmp_path / "b.npz"}):
        with pytest.raises(ReprogramError, match="all 240 rows name the split test"):
            fit_files(tmp_path / "c.npz", "blm", **options)


def noise_shards(folder, *, split):
    """600 training rows and 300 test rows of pure noise, 10 classes, as `reprogram logits` lays them out."""
    rng = np.random.default_rng(3)
    folder.mkdir()
    for name, count in (("train-00000", 300), ("train-00001", 300), ("test-00000", 300)):
        columns = {"split": [name.split("-")[0]] * count} if split else {}
        labels = rng.integers(0, 10, count)
        np.savez(folder / f"{name}.npz", logits=rng.normal(size=(count, 1000)), label=labels, **columns)
    return folder


@pytest.mark.parametrize("split", [True, False])
@pytest.mark.parametrize("method", ["blm", "gaussian"])
def test_test_shards_inside_the_folder_are_not_fitted(split, method, tmp_path, monkeypatch):
    """Of pure noise nothing can be learned: what is far above chance has seen the answers."""
    folder = noise_shards(tmp_path / "noise", split=split)
    (tmp_path / "link").symlink_to(folder)
    monkeypatch.chdir(folder)
    for test in (f"{folder}/test-*.npz", "test-00000.npz", "../link/test-00000.npz", Path("../noise/test-00000.npz")):
        saved = fit_files(folder, method, test=test)
        assert saved.mapping.statistics.n == saved.samples.sum() == 600
        assert saved.held_out.score.n == 300
        assert saved.held_out.score.accuracy < 0.2


def test_auto_chooses_by_leave_one_out(shards):
    saved = fit_files(shards[1], "auto")
    assert saved.mapping.name in ("blm", "blm+", "gaussian", "gaussian+", "flm")
    assert saved.notes[0].startswith(f"chosen {saved.mapping.name}")
    assert saved.held_out.score.accuracy > 0.7


def answered(path, n=120, seed=0):
    """Answers of two or three labels, of which the first tells the class most of the time."""
    rng = np.random.default_rng(seed)
    lines = []
    for row in range(n):
        target = row % 3
        liked = rng.random(9) + 0.8 * np.eye(3, 9)[target]
        names = [f"s{label}" for label in np.argsort(-liked)[: 2 + row % 2]]
        lines.append(
            json.dumps({"label": CLASSES[target], "topk_labels": names, "topk_scores": [0.6, 0.3, 0.1][: len(names)]})
        )
    path.write_text("\n".join(lines))
    return path


def test_auto_chooses_by_answers_and_is_the_default(tmp_path, monkeypatch):
    path = answered(tmp_path / "answers.jsonl")
    saved, default = fit_files(path, "auto", holdout=0), fit_files(path, holdout=0)
    same(saved, default)
    assert saved.notes[0].startswith(f"chosen {saved.mapping.name}")
    assert "by leave-one-out on 120 samples" in saved.notes[0]
    rows = saved.labels.rows(next(read_blocks(path)))
    answers = TopK.of(rows.indices, rows.probabilities, len(saved.labels.source_labels))
    choice = select((answers, rows.targets), 3).choice
    kept = {name: value for name, value in choice.settings.items() if name != "top_ratio"}
    assert choice.mapping == saved.mapping.name
    assert kept.items() <= saved.mapping.config().items()
    monkeypatch.setattr("reprogram.answers.fit.MOST_CHOSEN_FROM", 100)
    assert fit_files(path, holdout=0).mapping.name == "gaussian+"
    many = fit_files(write(tmp_path / "logits", [N]), holdout=0)
    assert many.mapping.name == "gaussian"
    assert "gaussian was taken for 240 rows; --mapping auto" in many.notes[0]


def test_whole_answers_count_where_auto_says_all(tmp_path, monkeypatch):
    """K of blm+ is then the longest answer, and grows with later ones."""
    path = answered(tmp_path / "answers.jsonl", 40)
    choice = Candidate("blm+", {"top_ratio": "all", "smoothing": 1.0, "normalize": "none"})
    selection = Selection([Scored(choice, Score(30, 40), "leave-one-out")], 1.0, None, None)
    monkeypatch.setattr("reprogram.answers.fit.select", lambda *_, **__: selection)
    saved = fit_files(path, "auto", holdout=0)
    assert saved.whole_answers
    assert saved.mapping.statistics.top_k == 3
    same(saved, fit_files(path, "blm+", holdout=0))


ANSWERS = [
    ("cat", [("Tabby", 0.9), ("Fur", 0.5)]),
    ("dog", [("Snout", 0.8), ("Fur", 0.6)]),
    ("dog", [("Collar", None), ("Snout", None)]),
    ("cat", [("Fur", 0.7), ("Tabby", 0.7)]),
    ("dog", []),
]


@pytest.fixture
def answers(tmp_path):
    lines = [
        json.dumps({"label": label, "labels": [{"name": name, "score": score} for name, score in answer]})
        for label, answer in ANSWERS
    ]
    (tmp_path / "answers.jsonl").write_text("\n".join(lines))
    return tmp_path / "answers.jsonl"


def test_top_k_answers_are_counted_and_classified_as_documented(answers):
    saved = fit_files(answers, "blm+", holdout=0, top_k=2)
    assert saved.labels.source_labels == ("Collar", "Fur", "Snout", "Tabby")
    first, second = rank_weights(2)
    expected = [[0, first], [0.5 + 0.7, 0.6], [0, 0.8 + second], [0.9 + 0.7, 0]]
    torch.testing.assert_close(saved.mapping.statistics.matrix, torch.tensor(expected, dtype=torch.float64))
    assert saved.notes == ("1 answers lack scores and were weighed by rank",)
    omega = saved.mapping.weights.double()
    given = [[("Fur", 0.5), ("Tabby", 0.25), ("Sofa", 0.9)], ["Collar", "Fur"], ["Sofa"], []]
    found = saved.predict(given, calibration="none")
    scores = [0.5 * omega[1] + 0.25 * omega[3], first * omega[0] + second * omega[1]]
    for row, score in enumerate(scores):
        torch.testing.assert_close(found.probabilities[row], score / score.sum())
    assert found.labels == ["cat", "dog", "dog", "dog"]  # the last two by frequency: three dogs, two cats
    assert found.guessed.tolist() == [False, False, True, True]
    honest = saved.predict(given)
    assert honest.labels == found.labels
    assert torch.equal(honest.probabilities[2:], found.probabilities[2:])
    assert bool((honest.probabilities[:2] > 0).all())
    assert fit_files(answers, "blm+", holdout=0, top_k=2, calibration="none").mapping.certainty is None
    block = make_block(Path("new"), 1, 2, {"topk_labels": [["Fur", "Sofa"], ["Fur"]]})
    assert saved.predict_block(block).unseen.tolist() == [1, 0]


def test_counts_take_the_best_known_label_of_each_answer(answers):
    saved = fit_files(answers, "blm", holdout=0)
    assert saved.mapping.statistics.matrix.tolist() == [[0, 1], [1, 0], [0, 1], [1, 0]]
    saved = fit_files(answers, "blm", holdout=0, source_labels=["Fur", "Snout"])
    assert saved.mapping.statistics.matrix.tolist() == [[2, 0], [0, 2]]
    assert "3 labels in answers are not among the source labels" in saved.notes[1]


def test_a_mapping_from_logits_reads_the_top_k_answers_of_the_same_model(shards):
    saved = fit_files(shards[0], "blm+", top_k=4, holdout=0)
    assert saved.predict([[(0, 0.9)], [("label 1", 0.9)]]).labels == ["ant", "bee"]
    assert fit_files(shards[0], "blm").predict(rows()[0][:5]).probabilities.shape == (5, 3)


def test_all_labels_of_an_answer_count_unless_told_otherwise(tmp_path):
    """The best label alone says nothing here; the third one says all."""
    rng = np.random.default_rng(0)
    lines = []
    for row in range(200):
        names = [f"thing {rng.integers(5)}", "fur", ("tail", "wing")[row % 2]]
        lines.append(json.dumps({"label": ("cat", "bird")[row % 2], "topk_labels": names, "topk_scores": [0.9, 0.5, 0.4]}))
    lines.append(json.dumps({"label": "cat", "topk_labels": ["a", "b", "c", "d"]}))
    path = tmp_path / "a.jsonl"
    path.write_text("\n".join(lines))
    saved = fit_files(path, "blm+")
    assert saved.mapping.statistics.top_k == 4
    assert saved.whole_answers
    assert saved.notes[0].startswith("K = 4, the longest answer")
    assert saved.held_out.score.accuracy == 1
    for options, top_k in (({"top_k": 2}, 2), ({"top_ratio": 0.15}, 1), ({"top_ratio": "all"}, 12), ({"top_k": None}, 4)):
        told = fit_files(path, "blm+", **options)
        assert (told.mapping.statistics.top_k, told.whole_answers) == (top_k, top_k == 4)
    assert not fit_files(path, "blm").whole_answers
    assert not fit_files(write(tmp_path / "logits", [N]), "blm+").whole_answers


def test_two_labels_of_one_name(tmp_path):
    """By number they are two labels; by name they are the first, and that is told; mapping `none` does not guess."""
    names = ["hen", "crane", "cock", "crane"]
    np.savez(tmp_path / "a.npz", topk_labels=[[1], [3], [3], [0]], label=["bird", "machine", "machine", "bird"])
    saved = fit_files(tmp_path / "a.npz", "blm", holdout=0, source_labels=names)
    assert saved.mapping.statistics.matrix.tolist() == [[1, 0], [1, 0], [0, 0], [0, 2]]
    assert saved.notes == ("4 answers lack scores and were weighed by rank",)
    assert saved.predict([[3], [1], ["3"]]).labels == ["machine", "bird", "machine"]
    (tmp_path / "a.jsonl").write_text('{"label": "bird", "labels": ["crane"]}\n{"label": "machine", "labels": ["hen"]}')
    saved = fit_files(tmp_path / "a.jsonl", "blm", holdout=0, source_labels=names)
    assert saved.mapping.statistics.matrix[1].tolist() == [1, 0]
    assert "2 answers lack scores" in saved.notes[0]
    assert "1 labels in answers have a name that several source labels have, such as 'crane' (1 and 3)" in saved.notes[1]
    np.savez(tmp_path / "b.npz", topk_labels=[[1], [3]], label=["crane", "hen"])
    with pytest.raises(ReprogramError, match="class 'crane' may be any of the source labels number 1 and 3"):
        fit_files(tmp_path / "b.npz", "none", holdout=0, source_labels=names)


def test_a_class_without_rows_is_warned_about(answers):
    with pytest.warns(EvidenceWarning, match="emu"):
        saved = fit_files(answers, "blm", holdout=0, classes=["cat", "dog", "emu"])
    assert saved.samples.tolist() == [2, 3, 0]


def test_mistakes_are_one_sentence(answers, shards, tmp_path):
    cases = [
        ((answers, "gaussian"), {}, "needs all logits"),
        ((answers, "blm"), {"normalize": "centre"}, "needs all logits"),
        ((answers, "linear"), {}, "learned by gradient"),
        ((answers, "blmm"), {}, "did you mean 'blm'"),
        ((answers, "blm"), {"classes": ["cat", "bird"]}, "row 2 of .*answers.jsonl' has the label 'dog'"),
        ((answers, "blm"), {"source_labels": ["Car", "Bus"]}, "no label of the answers"),
        ((answers, "blm"), {"scores": "percent"}, "the highest is 0.9"),
        ((answers, "blm"), {"holdout": 1.0}, "below 1"),
        ((answers, "blm"), {"holdout": 0.5, "test": shards[0]}, "both given"),
        ((answers, "blm"), {"test": answers}, "none is left to fit"),
        (([answers, shards[0]], "blm"), {}, "shards of one model"),
        ((shards[0], "blm"), {"source_labels": ["a", "b"]}, "2 source labels were given, but .* 12 logits"),
        ((shards[0], "blm"), {"classes": ["a", "b", "a"]}, "'a' more than once"),
        ((shards[0], "auto"), {"smoothing": 2.0}, "by itself"),
    ]
    for arguments, options, message in cases:
        with pytest.raises(ReprogramError, match=message) as raised:
            fit_files(*arguments, **options)
        assert "\n" not in str(raised.value)
    with pytest.raises(ReprogramError, match="neither a run nor a mapping"):
        AnswerMapping.load(tmp_path)
    (tmp_path / "mine.txt").touch()
    fitted = fit_files(answers, "blm", holdout=0)
    with pytest.raises(ReprogramError, match="exists already; choose another folder, or add --replace"):
        fitted.save(tmp_path)
    with pytest.raises(ReprogramError, match="exists and is not an artefact"):
        fitted.save(tmp_path, replace=True)


def test_a_damaged_mapping_is_refused(answers, tmp_path):
    saved = fit_files(answers, "blm")
    saved.save(tmp_path / "m")
    with pytest.raises(ReprogramError, match="exists already"):
        saved.save(tmp_path / "m")
    saved.save(tmp_path / "m", replace=True)
    file = tmp_path / "m" / "artefact.json"
    before = sealed.content(file)
    for change in (
        {"format": 99},
        {"classes": ["a"]},
        {"mapping": {"name": "linear", "seed": 0}},
        {"mapping": "blm"},
        {"answers": [1]},
        {"answers": {"samples": [1]}},
        {"held_out": {"correct": 1}},
        {"held_out": 7},
        {"notes": 7},
        {"updates": [1]},
    ):
        write_sealed(file, before | change)
        with pytest.raises(ReprogramError) as raised:
            AnswerMapping.load(tmp_path / "m")
        assert "\n" not in str(raised.value)


def test_one_artefact_for_all_who_read_mappings(answers, shards, tmp_path):
    """What was fitted to files is a plain mapping, and plain mappings take files."""
    pytest.importorskip("sklearn")
    from reprogram.mappings.base import Mapping
    from reprogram.mappings.label_mapper import LabelMapper

    logits, targets = rows()
    fitted = fit_files(shards[0], "blm", holdout=0)
    fitted.save(tmp_path / "files")
    assert torch.equal(Mapping.load(tmp_path / "files").weights, fitted.mapping.weights)
    mapper = LabelMapper.load(tmp_path / "files")
    assert mapper.predict(logits).tolist() == fitted.predict(logits).labels
    LabelMapper("blm").fit(logits, np.array(CLASSES)[targets]).save(tmp_path / "mapper")
    for folder in ("mapper", "run"):
        if folder == "run":
            (tmp_path / "run").mkdir()
            (tmp_path / "mapper").rename(tmp_path / "run" / "artefact")
        read = AnswerMapping.load(tmp_path / folder)
        assert (read.held_out, read.notes, read.samples.tolist()) == (None, (), fitted.samples.tolist())
        (block, *_) = read.predict_files(shards[0])
        assert block.predictions.labels == fitted.predict(logits).labels[: len(block.targets)]
        assert read.predict([["label 0"], [1], []]).labels[:2] == ["ant", "bee"]
    numbers = LabelMapper("blm").fit(logits, targets + 3)
    numbers.save(tmp_path / "numbers")
    read = AnswerMapping.load(tmp_path / "numbers")
    np.savez(tmp_path / "n.npz", logits=logits[:4], label=[3, 4, 5, 0])
    (block,) = read.predict_files(tmp_path / "n.npz")
    assert block.targets.tolist() == [0, 1, 2, -1]  # 0 is no class, and not the place of one


def test_rows_without_names_are_held_out_one_by_one(tmp_path):
    """Many images get the very same answer; with all its copies on one side, the other would know nothing of it."""
    rng = np.random.default_rng(0)
    path = tmp_path / "anonymous.jsonl"
    lines = []
    for _ in range(600):
        label = int(rng.integers(0, 3))
        answer = label if rng.random() < 0.8 else int(rng.integers(0, 3))
        lines.append(json.dumps({"label": f"class {label}", "topk_labels": [f"thing {answer}"]}))
    path.write_text("\n".join(lines))
    saved = fit_files(path, "blm")
    assert 80 < saved.held_out.score.n < 160
    assert saved.held_out.score.accuracy > 0.7
    for number, (start, stop) in enumerate(((0, 7), (7, 400), (400, 600))):
        (tmp_path / f"cut{number}.jsonl").write_text("\n".join(lines[start:stop]))
    cut = fit_files(sorted(tmp_path.glob("cut*.jsonl")), "blm")
    assert (cut.held_out.score.n, cut.held_out.score.correct) == (saved.held_out.score.n, saved.held_out.score.correct)
