"""A mapping in words: one ranking, by |weight|, wherever it is told."""

import csv

import numpy as np
import pytest
import torch
from torch import nn

import reprogram
from reprogram.errors import ReprogramError
from reprogram.mappings.explain import _rank_correlation


@pytest.fixture
def model():
    """Four source labels, two classes, and a mapping of which every number is known."""
    module = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(3, 4))
    frozen = reprogram.Frozen(module, input_size=8, labels=["tabby, cat", "wolf", "car", "boat"])
    mapping = reprogram.make_mapping("linear", frozen.labels, ["Cat", "dog"])
    with torch.no_grad():
        mapping.matrix.copy_(torch.tensor([[0.9, 0.1], [0.2, 0.8], [-0.5, 0.0], [0.0, -0.3]]))
    return reprogram.Reprogrammed(reprogram.make_program("none", canvas=8), frozen, mapping)


def test_the_strongest_source_labels_are_named(model):
    explained = model.explain(count=2)
    assert explained == model.mapping.explain(2)
    assert [(label.source, round(label.weight, 3)) for label in explained.classes["Cat"]] == [
        ("tabby, cat", 0.9),
        ("car", -0.5),
    ]
    assert str(explained).splitlines() == [
        "Cat",
        "    0.900  tabby, cat",
        "    -0.500  car",
        "dog",
        "    0.800  wolf",
        "    -0.300  boat",
    ]
    named = [label.source for label in model.explain(count=99).classes["dog"]]
    assert named == ["wolf", "boat", "tabby, cat"], "a weight of 0 says nothing"


@pytest.mark.parametrize("count", [0, -1, 2.5, "3", None, True, np.zeros((2, 4)), torch.zeros(5)])
def test_how_many_must_be_a_whole_number(model, count):
    with pytest.raises(ReprogramError, match="a whole number of source labels from 1 on is expected") as caught:
        model.explain(count)
    assert "\n" not in str(caught.value)


def test_how_many_may_be_numpy_s(model):
    assert model.explain(np.int64(2)) == model.explain(2)


def test_names_are_compared_in_the_default_template(model):
    asked = []

    def encoder(texts):
        asked.append(list(texts))
        return nn.functional.normalize(torch.tensor([[float("cat" in t or "tabby" in t), 0.5] for t in texts]), dim=1)

    explained = model.explain(count=1, encoder=encoder)
    assert asked[0][:2] == ["This is a photo of a tabby.", "This is a photo of a wolf."]
    assert asked[1] == ["This is a photo of a cat.", "This is a photo of a dog."]
    assert explained.classes["Cat"][0].similarity == pytest.approx(1)
    assert explained.agreement is not None
    assert -1 <= explained.agreement <= 1
    assert "(likeness 1.00)" in str(explained)
    assert "agreement of weights and names: " in str(explained)


def test_people_and_programs_read_one_ranking(tmp_path):
    """The Gaussian mapping has weights of both signs: labels.csv, explain and LabelMapper.explain must agree."""
    rng = np.random.default_rng(0)
    labels = np.array(["ant", "bee", "cat"])[np.arange(90) % 3]
    logits = rng.normal(size=(90, 8)) + 2 * rng.normal(size=(3, 8))[np.arange(90) % 3]
    mapper = reprogram.LabelMapper("gaussian", source_labels=[f"source {i}" for i in range(8)]).fit(logits, labels)
    mapper.save(tmp_path / "mapper")
    with (tmp_path / "mapper" / "labels.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    for column, (name, explained) in enumerate(mapper.explain(8).items()):
        sizes = np.abs(mapper.weights_[:, column])
        ranked = [f"source {i}" for i in np.argsort(-sizes, kind="stable")]
        assert any(weight < 0 for _, weight in explained)
        assert [source for source, _ in explained] == ranked
        assert [row["source_label"] for row in rows if row["class"] == name] == ranked
        assert [label.source for label in mapper.mapping_.explain(8).classes[name]] == ranked
        assert [float(row["weight"]) for row in rows if row["class"] == name] == pytest.approx(
            [weight for _, weight in explained], rel=1e-5
        )


def test_rank_correlation_is_that_of_scipy():
    from scipy.stats import spearmanr

    torch.manual_seed(0)
    first, second = torch.randint(5, (20, 3)).double(), torch.randn(20, 3).double()
    expected = [spearmanr(first[:, column], second[:, column]).statistic for column in range(3)]
    assert _rank_correlation(first, second).tolist() == pytest.approx(expected)
