"""The settings of all mappings as parameters of an estimator."""

import inspect

import pytest

from reprogram.mappings.parameters import check_mapper_settings, mapper_settings, with_settings
from reprogram.mappings.registry import MAPPINGS


class Estimator:
    @with_settings
    def __init__(self, method="blm", *, seed=0, **settings):
        """What it takes."""
        self.given = (method, seed, settings)


def test_every_setting_stands_once_in_the_order_of_registration():
    names = mapper_settings()
    assert len(set(names)) == len(names)
    assert set(names) == {name for family in MAPPINGS.values() for name in family.settings.without_training()}
    assert names[0] == "normalize"


def test_a_signature_shows_settings_that_take_none_as_default():
    for seen in (inspect.signature(Estimator), inspect.signature(Estimator().__init__)):
        assert list(seen.parameters) == ["method", "seed", *mapper_settings()]
        assert seen.parameters["smoothing"].default is None
        assert seen.parameters["seed"].default == 0
    assert next(iter(inspect.signature(Estimator.__init__).parameters)) == "self"
    assert Estimator.__init__.__doc__ == "What it takes."


def test_it_is_called_as_before():
    assert Estimator("flm", seed=3, smoothing=2).given == ("flm", 3, {"smoothing": 2})
    assert Estimator().given == ("blm", 0, {})


def test_a_mapping_that_is_registered_later_is_seen(monkeypatch):
    before = set(inspect.signature(Estimator).parameters)
    monkeypatch.setattr(MAPPINGS, "_records", {"blm": MAPPINGS["blm"]})
    assert set(inspect.signature(Estimator).parameters) == {"method", "seed", "normalize", "smoothing"} < before


def test_an_unknown_name_is_python_s_error_with_the_nearest_name():
    check_mapper_settings(["smoothing", "top_k"])
    with pytest.raises(TypeError, match="setting 'topk' is not known; did you mean 'top_k'"):
        check_mapper_settings({"smoothing": 1, "topk": 3})
