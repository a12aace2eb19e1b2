"""The one artefact format: what is written is read again to the bit, and what is damaged or something else is refused."""

import csv
import itertools

import pytest
import torch
from torch import nn

import sealed
from one_to_one import SOURCE
from reprogram.errors import ReprogramError
from reprogram.files import write_sealed
from reprogram.mappings import artefact
from reprogram.mappings.artefact import FILES, load_mapping
from reprogram.mappings.base import Mapping
from reprogram.mappings.making import make_mapping
from reprogram.mappings.registry import MAPPINGS
from reprogram.programs.base import make_program
from reprogram.reprogrammed import Reprogrammed
from reprogram.sources.frozen import Frozen
from reprogram.text import read_csv

CLASSES = ["source 3", "source 1", "source 4"]


def drawn(n=45):
    generator = torch.Generator().manual_seed(0)
    targets = torch.arange(n) % 3
    return torch.randn(n, 12, generator=generator) + 4 * torch.eye(12)[targets], targets


def estimated(name, **settings):
    mapping = make_mapping(name, SOURCE, CLASSES, **settings)
    if mapping.statistics is not None:
        mapping.estimate(mapping.count(*drawn()))
    return mapping


VARIANTS = {
    **{name: {} for name in MAPPINGS if name != "ensemble"},
    "blm": {"smoothing": 0.25, "normalize": "standardise", "weighted": True, "refresh": "fresh", "folds": 3},
    "blm+": {"top_k": 4},
    "gaussian": {"shrinkage": 0.2, "priors": True, "seed": 7},
    "linear": {"normalize": "centre", "seed": 3},
}


@pytest.mark.parametrize("name", VARIANTS)
def test_a_mapping_comes_back_to_the_bit(name, tmp_path):
    mapping = estimated(name, **VARIANTS[name])
    mapping.save(tmp_path / "mapping")
    assert {entry.name for entry in (tmp_path / "mapping").iterdir()} == set(FILES)
    again = Mapping.load(tmp_path / "mapping")
    assert type(again) is type(mapping)
    assert again.config() == mapping.config()
    assert (list(again.source_labels), again.classes) == (SOURCE, tuple(CLASSES))
    assert again.state_dict().keys() == mapping.state_dict().keys()
    for key, value in mapping.state_dict().items():
        assert torch.equal(again.state_dict()[key], value)
    logits, targets = drawn()
    assert torch.equal(again(logits), mapping(logits))
    if name in ("blm", "blm+", "gaussian"):  # goes on where it stopped
        for each in (again, mapping):
            each.learn(each.count(2 * logits, targets))
        assert torch.equal(again.weights, mapping.weights)


def test_labels_are_listed_for_people(tmp_path):
    mapping = estimated("blm")
    mapping.save(tmp_path / "mapping")
    with (tmp_path / "mapping" / "labels.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    explained = mapping.explain(10).classes
    assert [row["class"] for row in rows] == [name for name, labels in explained.items() for _ in labels]
    assert [row["source_label"] for row in rows] == [label.source for labels in explained.values() for label in labels]
    assert [row["rank"] for row in rows if row["class"] == CLASSES[0]] == [
        str(rank + 1) for rank in range(len(explained[CLASSES[0]]))
    ]


def test_no_listed_label_is_a_formula_and_all_come_back(tmp_path):
    source = ["=1+1", "'-tis", "a\rb", "\ud800", *SOURCE[4:]]
    mapping = make_mapping("rlm", source, ["@x", "é\udce9", "\t"])
    mapping.save(tmp_path / "mapping")
    with (tmp_path / "mapping" / "labels.csv").open(errors="surrogateescape", newline="", encoding="utf-8") as file:
        cells = [cell for row in csv.DictReader(file) for name, cell in row.items() if name != "weight"]
    assert not [cell for cell in cells if cell[:1] in tuple("=+-@\t\r")]
    listed = {row["class"]: row["source_label"] for row in read_csv(tmp_path / "mapping" / "labels.csv")}
    explained = {name: labels[0].source for name, labels in mapping.explain(1).classes.items()}
    assert listed == {name: label.replace("\ud800", "\ufffd") for name, label in explained.items()}


def test_sections_stand_beside_the_mapping(tmp_path):
    estimated("blm").save(tmp_path / "mapping", held_out={"correct": 9, "n": 10})
    mapping, content = load_mapping(tmp_path / "mapping")
    assert content["held_out"] == {"correct": 9, "n": 10}
    assert mapping.name == "blm"


def test_an_artefact_is_replaced_and_nothing_else_is(tmp_path):
    estimated("blm").save(tmp_path / "mapping")
    estimated("blm", smoothing=9.0).save(tmp_path / "mapping")
    assert Mapping.load(tmp_path / "mapping").settings.smoothing == 9.0
    (tmp_path / "mapping" / "notes.txt").write_text("mine")
    with pytest.raises(ReprogramError, match="exists and is not an artefact; save to a folder that does not exist yet"):
        estimated("blm").save(tmp_path / "mapping")
    assert (tmp_path / "mapping" / "notes.txt").read_text() == "mine"
    (tmp_path / "file").write_text("mine")
    with pytest.raises(ReprogramError, match="exists and is not an artefact"):
        estimated("blm").save(tmp_path / "file")


def frozen():
    torch.manual_seed(0)
    return Frozen(nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(3, 12)), input_size=8, labels=SOURCE)


def test_the_mapping_of_a_model_can_be_had_alone_but_not_the_other_way_round(tmp_path):
    mapping = estimated("gaussian")
    Reprogrammed(make_program("padding", canvas=8, image_size=4), frozen(), mapping).save(tmp_path / "model")
    alone = Mapping.load(tmp_path / "model")
    assert torch.equal(alone(drawn()[0]), mapping(drawn()[0]))
    (tmp_path / "run").mkdir()
    (tmp_path / "model").rename(tmp_path / "run" / "artefact")
    assert torch.equal(Mapping.load(tmp_path / "run").weights, mapping.weights)
    mapping.save(tmp_path / "mapping")
    with pytest.raises(ReprogramError, match=r"is a mapping without a model; load it with reprogram\.Mapping\.load"):
        Reprogrammed.load(tmp_path / "mapping", frozen=frozen())


def test_a_mapping_in_coordinates_of_its_model_needs_the_model(tmp_path):
    span = torch.linalg.qr(torch.randn(12, 5, generator=torch.Generator().manual_seed(0), dtype=torch.float64)).Q
    mapping = make_mapping("gaussian", SOURCE, CLASSES, span=span)
    mapping.estimate(mapping.count(*drawn()))
    mapping.save(tmp_path / "mapping")
    with pytest.raises(ReprogramError, match=r"counts in coordinates of its model.*; load both with Reprogrammed\.load"):
        Mapping.load(tmp_path / "mapping")


def test_folders_that_hold_none(tmp_path):
    with pytest.raises(ReprogramError, match="is not a folder; give a run folder or an artefact folder"):
        Mapping.load(tmp_path / "nowhere")
    (tmp_path / "run" / "checkpoint").mkdir(parents=True)
    with pytest.raises(ReprogramError, match="is not finished; continue it with: reprogram fit --resume --out"):
        Mapping.load(tmp_path / "run")
    (tmp_path / "empty").mkdir()
    with pytest.raises(ReprogramError):
        Mapping.load(tmp_path / "empty")


DAMAGE = {
    "another format": {"format": 1},
    "no format": {"format": None},
    "no mapping": {"mapping": None},
    "a mapping that is a list": {"mapping": ["blm"]},
    "a mapping without a name": {"mapping": {"seed": 0}},
    "a name that is a number": {"mapping": {"name": 3}},
    "an unknown mapping": {"mapping": {"name": "blimey"}},
    "an unknown setting": {"mapping": {"name": "blm", "smothing": 3}},
    "an impossible setting": {"mapping": {"name": "blm", "smoothing": -3}},
    "another mapping": {"mapping": {"name": "gaussian"}},
    "a seed that is a text": {"mapping": {"name": "rlm", "seed": "x"}},
    "a seed that is a table": {"mapping": {"name": "linear", "seed": {}}},
    "a weighted that is a table": {"mapping": {"name": "blm", "weighted": {"a": 1}}},
    "no classes": {"classes": None},
    "classes that are a text": {"classes": "abc"},
    "classes that are a number": {"classes": 3},
    "classes that are lists": {"classes": [["a"], ["b"], ["c"]]},
    "fewer classes": {"classes": ["a", "b"]},
    "one class twice": {"classes": ["a", "b", "a"]},
    "classes that are numbers": {"classes": [1, 2, 3]},
    "no source labels": {"source_labels": None},
    "source labels that are a number": {"source_labels": 12},
    "source labels that are numbers": {"source_labels": list(range(12))},
    "fewer source labels": {"source_labels": ["a"]},
}


@pytest.mark.parametrize("case", DAMAGE)
def test_a_damaged_description_is_one_sentence(case, tmp_path):
    estimated("blm").save(tmp_path / "mapping")
    path = tmp_path / "mapping" / "artefact.json"
    content = {**sealed.content(path), **DAMAGE[case]}
    write_sealed(path, {key: value for key, value in content.items() if value is not None})
    with pytest.raises(ReprogramError) as caught:
        Mapping.load(tmp_path / "mapping")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("text", ["", "{", "[]", "3", "null", '"artefact"'])
def test_a_description_that_is_none_is_one_sentence(text, tmp_path):
    estimated("blm").save(tmp_path / "mapping")
    (tmp_path / "mapping" / "artefact.json").write_text(text)
    with pytest.raises(ReprogramError, match="artefact"):
        Mapping.load(tmp_path / "mapping")


def test_damaged_tensors_are_one_sentence(tmp_path):
    estimated("blm").save(tmp_path / "mapping")
    path = tmp_path / "mapping" / "artefact.safetensors"
    path.write_bytes(path.read_bytes()[:-8])
    with pytest.raises(ReprogramError, match="artefact"):
        Mapping.load(tmp_path / "mapping")


def test_an_artefact_that_is_replaced_while_it_is_read_is_the_old_or_the_new_one(tmp_path, monkeypatch):
    estimated("blm").save(tmp_path / "mapping")
    other = estimated("rlm")
    read = artefact.tensors_with_digest

    def late(*arguments):
        monkeypatch.setattr(artefact, "tensors_with_digest", read)
        other.save(tmp_path / "mapping")
        return read(*arguments)

    monkeypatch.setattr(artefact, "tensors_with_digest", late)
    assert Mapping.load(tmp_path / "mapping").name == "rlm"


def test_an_artefact_that_is_always_replaced_is_given_up(tmp_path, monkeypatch):
    estimated("blm").save(tmp_path / "mapping")
    read = artefact.read_description
    counter = itertools.count()
    monkeypatch.setattr(
        artefact, "read_description", lambda path: {**read(path), "reprogram": str(next(counter)), "files": {}}
    )
    with pytest.raises(ReprogramError, match="replaced faster than it can be read"):
        Mapping.load(tmp_path / "mapping")
