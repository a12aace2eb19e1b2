"""Mappings and estimators as notebooks show them."""

import numpy as np
import pytest
import sklearn
import torch
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer
from sklearn.utils import estimator_html_repr

from card_reader import Card
from reprogram.mappings.label_mapper import LabelMapper, LabelMapperCV
from reprogram.mappings.making import make_mapping

NAMES = ["<script>alert(1)</script>", "[red]", "\u202egpj\n", "n" * 300]
TARGETS = np.arange(60) % 4
LOGITS = np.random.default_rng(0).normal(size=(60, 6)) + 4 * np.eye(6)[TARGETS]
SOURCES = ["tabby, tabby cat", "<b>", "wren\udcff", "s" * 300, "five", "six"]


@pytest.fixture
def mapping():
    made = make_mapping("blm", SOURCES, NAMES, smoothing=2.5)
    made.estimate(made.count(torch.from_numpy(LOGITS), torch.from_numpy(TARGETS)))
    return made


def test_a_mapping_says_what_it_is(mapping):
    read = Card(mapping._repr_html_())
    assert "6 source labels → 4 classes" in read.words
    assert "smoothing 2.5" in read.words
    assert "60" in read.words
    strongest = mapping.explain(1).classes[NAMES[0]][0]
    assert f"tabby {strongest.weight:.3g}" in read.text
    assert "note:" not in read.text


def test_a_mapping_without_samples_says_so(mapping):
    empty = make_mapping("gaussian", SOURCES, NAMES)
    assert "nothing was counted yet" in Card(empty._repr_html_()).words
    more = mapping.with_classes([*NAMES, "new"])
    assert "no samples of new" in Card(more._repr_html_()).words


@pytest.mark.parametrize("name", ["rlm", "linear", "sigmoid"])
def test_every_kind_of_mapping_has_a_card(name):
    assert name in Card(make_mapping(name, SOURCES, NAMES)._repr_html_()).words


def test_many_classes_are_counted():
    made = make_mapping("rlm", [f"s{i}" for i in range(200)], [f"c{i}" for i in range(100)])
    read = Card(made._repr_html_())
    assert "... " in read.words
    assert "and 94 more classes" in read.words


def test_a_fitted_estimator_shows_what_it_found():
    labels = np.array(NAMES)[TARGETS]
    mapper = LabelMapper("blm", source_labels=[*SOURCES[:5], "six"], smoothing=3).fit(LOGITS, labels)
    read = Card(mapper._repr_html_())
    assert "LabelMapper" in read.words
    assert "LabelMapper(method='blm', smoothing=3)" in read.words
    assert mapper.source_labels[0] == SOURCES[0]  # the card has left it alone
    assert mapper._repr_mimebundle_() == {"text/plain": repr(mapper), "text/html": mapper._repr_html_()}
    chosen = LabelMapperCV(methods=("blm", "gaussian")).fit(LOGITS, TARGETS)
    assert str(chosen.selection_)[:20] in Card(chosen._repr_html_()).text


def test_scikit_learn_keeps_its_ways():
    """What is not fitted shows its parameters as all estimators do, a pipeline is a diagram, and text can be asked for."""
    mapper = LabelMapper("blm")
    assert "rp-card" not in mapper._repr_html_()
    assert "sk-container" in mapper._repr_html_()
    assert "sk-container" in estimator_html_repr(make_pipeline(FunctionTransformer(), mapper).fit(LOGITS, TARGETS))
    with sklearn.config_context(display="text"):
        assert not hasattr(mapper, "_repr_html_")
        assert list(mapper.fit(LOGITS, TARGETS)._repr_mimebundle_()) == ["text/plain"]
