import pytest
import torch
from torch import nn

import reprogram
from reprogram.mappings.explain import _rank_correlation


@pytest.fixture
def model():
    """Four source labels, two classes, and a mapping of which every number is known."""
    module = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(3, 4))
    frozen = reprogram.Frozen(module, input_size=8, labels=["tabby, cat", "wolf", "car", "boat"])
    mapping = reprogram.make_mapping("linear", frozen.labels, ["Cat", "dog"])
    with torch.no_grad():
        mapping.matrix.copy_(torch.tensor([[0.9, 0.1], [0.2, 0.8], [-0.5, 0.0], [0.0, -0.3]]))
    return reprogram.Reprogrammed(reprogram.Resize(8), frozen, mapping, ["Cat", "dog"])


def test_the_strongest_source_labels_are_named(model):
    told = reprogram.explain(model, count=2)
    assert [(speaker.source, round(speaker.weight, 3)) for speaker in told.classes["Cat"]] == [
        ("tabby, cat", 0.9),
        ("car", -0.5),
    ]
    assert str(told).splitlines() == [
        "Cat",
        "    0.900  tabby, cat",
        "    -0.500  car",
        "dog",
        "    0.800  wolf",
        "    -0.300  boat",
    ]
    assert len(reprogram.explain(model, count=99).classes["dog"]) == 4


def test_names_are_compared_in_the_default_template(model):
    asked = []

    def encoder(texts):
        asked.append(list(texts))
        return nn.functional.normalize(torch.tensor([[float("cat" in t or "tabby" in t), 0.5] for t in texts]), dim=1)

    told = reprogram.explain(model, count=1, encoder=encoder)
    assert asked[0][:2] == ["This is a photo of a tabby.", "This is a photo of a wolf."]
    assert asked[1] == ["This is a photo of a cat.", "This is a photo of a dog."]
    assert told.classes["Cat"][0].similarity == pytest.approx(1)
    assert told.agreement is not None
    assert -1 <= told.agreement <= 1


def test_rank_correlation_is_that_of_scipy():
    from scipy.stats import spearmanr

    torch.manual_seed(0)
    first, second = torch.randint(5, (20, 3)).double(), torch.randn(20, 3).double()
    expected = [spearmanr(first[:, column], second[:, column]).statistic for column in range(3)]
    assert _rank_correlation(first, second).tolist() == pytest.approx(expected)
