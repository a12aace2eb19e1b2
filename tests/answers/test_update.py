"""A mapping that was changed equals one that was fitted so at once: integers exactly, sums to 1e-12."""

import json
import shutil

import numpy as np
import pytest
import torch

from reprogram.answers.fit import fit_files
from reprogram.answers.mapping import AnswerMapping
from reprogram.answers.parallel import Workers
from reprogram.answers.update import update_mapping
from reprogram.errors import EvidenceWarning, ReprogramError
from sealed import forge

K_SOURCE = 10
METHODS = {
    "blm": {},
    "ilm": {},
    "blm+": {"top_k": 3},
    "blm+ standardised": {"top_k": 3, "normalize": "standardise"},
    "gaussian": {},
    "gaussian+": {"top_k": 4, "weighting": "log"},
}


def rows(seed, classes, count=40):
    rng = np.random.default_rng(seed)
    labels = rng.choice(classes, count)
    centres = {"ant": 0, "bee": 1, "cow": 2, "dog": 3}
    return rng.normal(size=(count, K_SOURCE)) + 2 * np.eye(K_SOURCE)[[centres[label] for label in labels]], labels


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """Two shards that share classes, one of them with a class of its own in the middle."""
    root = tmp_path_factory.mktemp("update")
    parts = {"old": rows(0, ["ant", "bee", "dog"]), "new": rows(1, ["ant", "cow", "dog"])}
    for name, (logits, labels) in parts.items():
        np.savez(root / f"{name}.npz", logits=logits, label=labels)
    logits, labels = (np.concatenate(part) for part in zip(*parts.values(), strict=True))
    for name in ("ant", "bee", "cow", "dog"):
        np.savez(root / f"only-{name}.npz", logits=logits[labels == name], label=labels[labels == name])
        np.savez(root / f"not-{name}.npz", logits=logits[labels != name], label=labels[labels != name])
    return root


def same(one, other):
    assert one.labels == other.labels
    assert torch.equal(one.samples, other.samples)
    states = one.mapping.state_dict(), other.mapping.state_dict()
    assert list(states[0]) == list(states[1])
    for key, value in states[0].items():
        if key in ("statistics.rounding", "statistics.removed"):  # what sums may be off by, which a subtraction adds to
            continue
        if value.is_floating_point():
            close = 1e-12 if value.dtype == torch.float64 else 1e-5
            scale = float(value.abs().max())
            torch.testing.assert_close(value, states[1][key], rtol=close, atol=close * scale)
        else:
            assert torch.equal(value, states[1][key])


def fitted(path, case):
    return fit_files(path, case.split()[0], holdout=0, **METHODS[case])


@pytest.mark.parametrize("case", METHODS)
def test_adding_equals_one_fit_of_everything_and_forgetting_undoes_it(case, files):
    old, whole = fitted(files / "old.npz", case), fitted([files / "old.npz", files / "new.npz"], case)
    before = {key: value.clone() for key, value in old.mapping.state_dict().items()}
    added, change = update_mapping(old, add=files / "new.npz")
    same(added, whole)
    assert added.labels.classes == ("ant", "bee", "cow", "dog")
    assert len(change.record["add"].pop("sha256")) == 64
    assert change.record == {"add": {"from": f"shard {str(files / 'new.npz')!r}", "samples": 40, "new_classes": ["cow"]}}
    assert change.after == dict(zip(added.labels.classes, whole.samples.tolist(), strict=True))
    assert all(torch.equal(value, before[key]) for key, value in old.mapping.state_dict().items())  # it is another one
    with pytest.warns(EvidenceWarning, match="cow"):
        undone, _ = update_mapping(added, forget=files / "new.npz")
    same(update_mapping(undone, remove=["cow"])[0], old)
    assert len(undone.updates) == 2


@pytest.mark.parametrize("name", ["ant", "cow"])
@pytest.mark.parametrize("case", METHODS)
def test_a_removed_class_was_never_there(case, name, files):
    both = [files / "old.npz", files / "new.npz"]
    whole, without = fitted(both, case), fitted(files / f"not-{name}.npz", case)
    options = {"samples": both} if case.startswith("gaussian") else {}
    removed, change = update_mapping(whole, remove=[name], **options)
    same(removed, without)
    assert change.record == {"remove": [name]}
    if case.startswith("gaussian"):
        with pytest.raises(ReprogramError, match=rf"needs all samples of class '{name}' .* --samples"):
            update_mapping(whole, remove=[name])
        with pytest.raises(ReprogramError, match=f"samples of class '{name}', but the mapping was given"):
            update_mapping(whole, remove=[name], samples=files / "new.npz" if name == "ant" else files / "old.npz")


def test_processes_count_the_same(files):
    old = fitted(files / "old.npz", "blm+")
    with Workers("local", processes=2) as workers:
        both, _ = update_mapping(old, add=[files / "new.npz", files / "only-dog.npz"], workers=workers)
    same(both, update_mapping(old, add=[files / "new.npz", files / "only-dog.npz"])[0])


def answer_line(label, *pairs):
    return json.dumps({"label": label, "labels": [{"name": name, "score": score} for name, score in pairs]}) + "\n"


def test_new_source_labels_and_longer_answers_join(tmp_path):
    """Where labels and K were those of the files, they are those of all files."""
    first = answer_line("cat", ("Tabby", 0.9), ("Fur", 0.5)) + answer_line("dog", ("Snout", 0.8), ("Fur", 0.1))
    second = answer_line("bird", ("Beak", 0.7), ("Wing", 0.6), ("Sky", 0.25)) + answer_line("cat", ("Claw", 0.5))
    (tmp_path / "one.jsonl").write_text(first)
    (tmp_path / "two.jsonl").write_text(second)
    one, two = tmp_path / "one.jsonl", tmp_path / "two.jsonl"
    old, whole = fit_files(one, "blm+", holdout=0), fit_files([one, two], "blm+", holdout=0)
    assert (old.mapping.statistics.top_k, whole.mapping.statistics.top_k) == (2, 3)
    added, _ = update_mapping(old, add=two)
    same(added, whole)
    fixed, _ = update_mapping(fit_files(one, "blm+", holdout=0, top_k=2), add=two)
    same(fixed, fit_files([one, two], "blm+", holdout=0, top_k=2))
    named = ["Tabby", "Fur", "Snout", "Beak"]
    given, _ = update_mapping(fit_files(one, "blm+", holdout=0, top_k=2, source_labels=named), add=two)
    same(given, fit_files([one, two], "blm+", holdout=0, top_k=2, source_labels=named))
    with pytest.warns(EvidenceWarning, match="bird"):
        undone, _ = update_mapping(added, forget=two)
    places = [added.labels.source_labels.index(label) for label in old.labels.source_labels]
    assert torch.equal(undone.mapping.statistics.matrix[places][:, [1, 2]], old.mapping.statistics.matrix)
    assert undone.mapping.statistics.matrix.sum() == old.mapping.statistics.matrix.sum()


@pytest.mark.parametrize("options", [{}, {"top_k": 2, "weighting": "sqrt", "shrinkage": "oas"}])
def test_new_source_labels_join_those_of_gaussian_plus(options, tmp_path):
    first = answer_line("cat", ("Tabby", 0.9), ("Fur", 0.5)) + answer_line("dog", ("Snout", 0.8), ("Fur", 0.1))
    first += answer_line("cat", ("Tabby", 0.4), ("Snout", 0.2)) + answer_line("dog", ("Snout", 0.6), ("Collar", 0.3))
    second = answer_line("bird", ("Beak", 0.7), ("Wing", 0.6), ("Sky", 0.25)) + answer_line("cat", ("Claw", 0.5))
    one, two = tmp_path / "one.jsonl", tmp_path / "two.jsonl"
    one.write_text(first)
    two.write_text(second)
    old, whole = (fit_files(files, "gaussian+", holdout=0, **options) for files in (one, [one, two]))
    added, _ = update_mapping(old, add=two)
    same(added, whole)
    assert added.mapping.settings == whole.mapping.settings
    with pytest.warns(EvidenceWarning, match="bird"):
        undone, _ = update_mapping(added, forget=two)
    places = [added.labels.source_labels.index(label) for label in old.labels.source_labels]
    torch.testing.assert_close(
        undone.mapping.statistics.within[places][:, places], old.mapping.statistics.within, rtol=1e-12, atol=1e-12
    )
    with pytest.raises(ReprogramError, match="give them with --samples"):
        update_mapping(whole, remove=["bird"])
    birds = tmp_path / "birds.jsonl"
    birds.write_text(second.splitlines()[0])
    removed, _ = update_mapping(whole, remove=["bird"], samples=birds)
    assert removed.labels.classes == ("cat", "dog")
    assert removed.predict([["Tabby"], ["Collar"]]).labels == ["cat", "dog"]


def test_classes_that_were_given_keep_their_numbers(files):
    old = fit_files(files / "old.npz", "blm", holdout=0, classes=["dog", "bee", "ant"])
    added, _ = update_mapping(old, add=files / "new.npz")
    assert added.labels.classes == ("dog", "bee", "ant", "cow")
    assert added.samples.tolist() == [fitted([files / "old.npz", files / "new.npz"], "blm").samples[i] for i in (3, 1, 0, 2)]


def test_test_rows_do_not_enter(files, tmp_path):
    logits, labels = rows(5, ["ant", "bee"], 8)
    np.savez(tmp_path / "a.npz", logits=logits, label=labels, split=["test", "train"] * 4)
    np.savez(tmp_path / "b.npz", logits=logits[1::2], label=labels[1::2])
    old = fitted(files / "old.npz", "blm+")
    same(update_mapping(old, add=tmp_path / "a.npz")[0], update_mapping(old, add=tmp_path / "b.npz")[0])


def test_what_was_measured_is_that_of_the_mapping_before(files, tmp_path):
    old = fit_files(files / "old.npz", "blm")
    added, _ = update_mapping(old, add=files / "new.npz")
    assert added.held_out is None
    added.save(tmp_path / "m")
    (record,) = AnswerMapping.load(tmp_path / "m").updates
    assert record["held_out_before"] == json.loads(json.dumps(old.held_out.to_json()))


def test_a_label_mapper_stays_one(files, tmp_path):
    pytest.importorskip("sklearn")
    from reprogram.mappings.label_mapper import LabelMapper

    logits, labels = rows(0, ["ant", "bee", "dog"])
    numbers = np.unique(labels, return_inverse=True)[1]
    np.savez(tmp_path / "more.npz", logits=logits[:6], label=numbers[:6] + 8)
    for kinds, add, expected in (
        (labels, files / "only-cow.npz", ["ant", "bee", "cow", "dog"]),
        (labels, None, ["ant", "bee"]),
        (numbers, tmp_path / "more.npz", [0, 1, 2, *sorted(set((numbers[:6] + 8).tolist()))]),
    ):
        LabelMapper("blm").fit(logits, kinds).save(tmp_path / "m")
        saved = AnswerMapping.load(tmp_path / "m")
        updated, _ = update_mapping(saved, add=add) if add else update_mapping(saved, remove=["dog"])
        updated.save(tmp_path / "m", replace=True)
        mapper = LabelMapper.load(tmp_path / "m")
        assert mapper.classes_.tolist() == expected
        assert mapper.predict(logits).shape == (40,)
    with pytest.raises(ReprogramError, match="labels of this LabelMapper are of type"):
        update_mapping(AnswerMapping.load(tmp_path / "m"), add=files / "only-cow.npz")


def test_mistakes_are_one_sentence(files, tmp_path):
    old = fitted(files / "old.npz", "blm")
    (tmp_path / "a.jsonl").write_text(answer_line("ant", ("label 0", 0.5)))
    np.savez(tmp_path / "short.npz", logits=np.zeros((2, 3)), label=["ant", "bee"])
    cases = [
        (old, {"forget": files / "new.npz"}, "has the class 'cow', which the mapping does not have"),
        (old, {"forget": files / "only-ant.npz"}, "do not contain all samples"),
        (old, {"remove": ["ants"]}, "did you mean 'ant'"),
        (old, {"remove": ["ant", "bee", "dog"]}, "last one and cannot be removed"),
        (old, {"add": tmp_path / "short.npz"}, "3 logits per row, but the mapping has 10"),
        (fitted(files / "old.npz", "gaussian"), {"add": tmp_path / "a.jsonl"}, "needs all logits"),
        (fit_files(files / "old.npz", "rlm", holdout=0), {"add": files / "new.npz"}, "not estimated from samples"),
    ]
    for saved, change, message in cases:
        with pytest.raises(ReprogramError, match=message) as raised:
            update_mapping(saved, **change)
        assert "\n" not in str(raised.value)
    fewer, _ = update_mapping(fit_files(files / "old.npz", "rlm", holdout=0), remove=["bee"])
    assert (fewer.labels.classes, fewer.samples.tolist()) == (("ant", "dog"), [int(old.samples[i]) for i in (0, 2)])


SECTIONS = {
    "samples of another kind": {"answers": {"samples": [{}, 1, 2]}},
    "samples that are texts": {"answers": {"samples": ["a", "b", "c"]}},
    "samples beyond all numbers": {"answers": {"samples": [10**400, 1, 2]}},
    "too few samples": {"answers": {"samples": [1]}},
    "answers that are a list": {"answers": [1]},
    "a score that is a list": {"held_out": [1]},
    "a score without parts": {"held_out": {"correct": 1}},
    "notes that are a number": {"notes": 3},
    "updates that are a number": {"updates": [3]},
}


@pytest.mark.parametrize("case", SECTIONS)
def test_a_mapping_whose_sections_are_forged_is_refused(case, files, tmp_path):
    fitted(files / "old.npz", "blm").save(tmp_path / "m")
    forge(tmp_path / "m" / "artefact.json", **SECTIONS[case])
    with pytest.raises(ReprogramError, match=str(tmp_path / "m")) as raised:
        AnswerMapping.load(tmp_path / "m")
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize(
    "section",
    [{}, [], {"dtype": "<U3"}, {"labels": ["ant"]}, {"dtype": "(", "labels": []}, {"dtype": 3, "labels": [1]},
     {"dtype": "<U3", "labels": 3}, "text"],
)  # fmt: skip
def test_a_forged_label_mapper_is_refused(section, files, tmp_path):
    fitted(files / "old.npz", "blm").save(tmp_path / "m")
    forge(tmp_path / "m" / "artefact.json", label_mapper=section)
    with pytest.raises(ReprogramError, match="LabelMapper cannot be read"):
        update_mapping(AnswerMapping.load(tmp_path / "m"), remove=["ant"])


def test_a_class_of_more_digits_than_a_number_has(files, tmp_path):
    fitted(files / "old.npz", "blm").save(tmp_path / "m")
    forge(tmp_path / "m" / "artefact.json", label_mapper={"dtype": "<i8", "labels": ["ant", "bee", "dog"]})
    np.savez(tmp_path / "a.npz", logits=np.zeros((2, K_SOURCE)), label=["9" * 4000] * 2)
    with pytest.raises(ReprogramError, match=r"class '999.* are of type <i8"):
        update_mapping(AnswerMapping.load(tmp_path / "m"), add=tmp_path / "a.npz")


def test_samples_are_not_added_twice(files, tmp_path):
    """A command that was killed when it had done its work is given again; what was taken out may come back."""
    once, _ = update_mapping(fitted(files / "old.npz", "blm"), add=files / "new.npz")
    shutil.copy(files / "new.npz", tmp_path / "by another name.npz")
    with pytest.raises(ReprogramError, match=r"by another name.npz' was added before, and would count twice"):
        update_mapping(once, add=tmp_path / "by another name.npz")
    with pytest.warns(EvidenceWarning, match="cow"):
        without, _ = update_mapping(once, forget=files / "new.npz")
    again, _ = update_mapping(without, add=files / "new.npz")
    assert torch.equal(again.samples, once.samples)
    with pytest.raises(ReprogramError, match="was added before"):
        update_mapping(again, add=files / "new.npz")
