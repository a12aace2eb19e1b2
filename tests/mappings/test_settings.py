"""What the mappings can be told: values of the wrong type or range are one sentence, and None is the default."""

import numpy as np
import pytest

from reprogram.errors import ReprogramError
from reprogram.mappings.registry import MAPPINGS
from reprogram.mappings.settings import BayesSettings, GaussianSettings, MappingSettings, TopKBayesSettings

NAN, INFINITE = float("nan"), float("inf")
WRONG = [
    ("blm", "smoothing", -1, "greater than or equal to 0"),
    ("blm", "smoothing", -1e-9, "greater than or equal to 0"),
    ("blm", "smoothing", NAN, "a finite number"),
    ("blm", "smoothing", INFINITE, "a finite number"),
    ("blm", "smoothing", "much", "a number"),
    ("blm", "smoothing", [1.0], "a number"),
    ("blm+", "top_ratio", 0.0, "greater than 0 or 'all'"),
    ("blm+", "top_ratio", -0.15, "greater than 0 or 'all'"),
    ("blm+", "top_ratio", NAN, "a finite number or 'all'"),
    ("blm+", "top_ratio", INFINITE, "a finite number or 'all'"),
    ("blm+", "top_ratio", "most", "a number or 'all'"),
    ("blm+", "top_k", 0, "greater than or equal to 1"),
    ("blm+", "top_k", 2.5, "an integer"),
    ("gaussian", "shrinkage", 0.0, "greater than 0 or 'oas'"),
    ("gaussian", "shrinkage", 1.5, "less than or equal to 1 or 'oas'"),
    ("gaussian", "shrinkage", -1.0, "greater than 0 or 'oas'"),
    ("gaussian", "shrinkage", NAN, "a finite number or 'oas'"),
    ("gaussian", "shrinkage", "ledoit", "a number or 'oas'"),
    ("gaussian", "priors", "perhaps", "a boolean"),
    ("ilm", "optimal", 3, "a boolean"),
    ("ilm", "normalize", "center", "'none', 'centre' or 'standardise'"),
    ("ilm", "refresh", "often", "'never', 'fresh', 'reuse' or 'after'"),
    ("ilm", "folds", -1, "greater than or equal to 0"),
    ("ilm", "folds", 1, r"0 \(none\) or at least 2"),
    ("gaussian", "folds", 1, r"0 \(none\) or at least 2"),
]


@pytest.mark.parametrize(("mapping", "setting", "value", "wanted"), WRONG)
def test_an_impossible_value_is_one_sentence(mapping, setting, value, wanted):
    with pytest.raises(ReprogramError, match=wanted) as caught:
        MAPPINGS.read(mapping, {setting: value})
    sentence = str(caught.value)
    assert sentence.startswith(f"{setting} = {value!r} was given, but ")
    assert "\n" not in sentence


@pytest.mark.parametrize("mapping", MAPPINGS)
def test_none_and_nothing_are_the_default(mapping):
    settings = MAPPINGS[mapping].settings
    assert MAPPINGS.read(mapping, dict.fromkeys(settings.model_fields)) == MAPPINGS.read(mapping, {}) == settings()
    assert all(field.description for field in settings.model_fields.values()), "each is a flag, which needs help"


@pytest.mark.parametrize("mapping", MAPPINGS)
def test_settings_of_others_are_refused_with_those_who_take_them(mapping):
    """An ablation that did not happen must not be believed to have happened."""
    for setting in MAPPINGS.setting_names() - set(MAPPINGS[mapping].settings.model_fields):
        takers = [name for name, family in MAPPINGS.items() if setting in family.settings.model_fields]
        with pytest.raises(ReprogramError) as caught:
            MAPPINGS.read(mapping, {setting: 1})
        assert str(caught.value) == (
            f"mapping {mapping!r} does not use {setting}; leave it out, or choose one that does: {', '.join(takers)}"
        )
        assert MAPPINGS.read(mapping, {setting: None}) == MAPPINGS[mapping].settings(), "None says nothing"


def test_texts_of_numbers_and_numpy_s_numbers_are_numbers():
    """The command line has texts, searches over settings have numpy's scalars."""
    assert BayesSettings.read({"smoothing": "0.5"}).smoothing == 0.5
    assert TopKBayesSettings.read({"top_ratio": "0.15", "top_k": "3"}).model_dump(include={"top_ratio", "top_k"}) == {
        "top_ratio": 0.15,
        "top_k": 3,
    }
    assert TopKBayesSettings.read({"top_ratio": "all"}).top_ratio == "all"
    for value in (np.int64(3), np.float32(3), np.array(3)):
        read = BayesSettings.read({"smoothing": value}).smoothing
        assert (read, type(read)) == (3, float)
    assert type(TopKBayesSettings.read({"top_k": np.uint8(3)}).top_k) is int
    assert GaussianSettings.read({"priors": np.bool_(True)}).priors is True
    assert GaussianSettings.read({"shrinkage": np.str_("oas")}).shrinkage == "oas"


def test_what_auto_tries_is_possible():
    for name, family in MAPPINGS.items():
        for setting, values in family.settings.grid().items():
            assert len(set(values)) == len(values) > 1
            for value in values:
                assert getattr(MAPPINGS.read(name, {setting: value}), setting) == value


def test_what_matters_without_training_leaves_out_when_and_from_what():
    for family in MAPPINGS.values():
        assert not {"refresh", "folds"} & set(family.settings.without_training())
    assert MappingSettings.without_training() == []
    assert TopKBayesSettings.without_training() == ["normalize", "smoothing", "top_ratio", "top_k"]
    assert GaussianSettings.without_training() == ["shrinkage", "priors", "prior", "prior_weight"]


def test_the_published_defaults():
    assert (BayesSettings().smoothing, TopKBayesSettings().top_ratio, BayesSettings().normalize) == (1, 0.15, "none")
    assert MAPPINGS["flm"].settings().refresh == "never"
    assert (MAPPINGS["gaussian"].settings().folds, MAPPINGS["blm"].settings().folds) == (5, 0)
