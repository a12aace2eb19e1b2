"""The base of all settings: immutable, no unknown names, and a mistake is one sentence."""

from typing import Literal

import numpy as np
import pydantic
import pytest
from pydantic import Field, field_validator

from reprogram.errors import ReprogramError
from reprogram.settings import Settings, expectation


class Kettle(Settings):
    litres: float = Field(1.0, gt=0, le=9)
    cups: int | None = Field(None, ge=1)
    heat: Literal["low", "high"] = "low"
    lid: bool = True
    tea: str = "green"
    shelf: float | Literal["top"] = "top"

    @field_validator("tea")
    @classmethod
    def _no_coffee(cls, tea):
        if tea == "coffee":
            raise ReprogramError("coffee was given, but tea is expected; choose another drink")
        return tea


class Needy(Settings):
    name: str


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ({"litres": 0}, "litres = 0 was given, but it should be greater than 0; change that value"),
        ({"litres": 10}, "litres = 10 was given, but it should be less than or equal to 9; change that value"),
        ({"cups": 2**63}, "cups = 9223372036854775808 was given, but an integer below 2^63 is expected; change that value"),
        ({"cups": str(2**70)}, f"cups = {2**70} was given, but an integer below 2^63 is expected; change that value"),
        ({"litres": "lots"}, "litres = 'lots' was given, but it should be a number; change that value"),
        ({"litres": float("nan")}, "litres = nan was given, but it should be a finite number; change that value"),
        ({"cups": "x"}, "cups = 'x' was given, but it should be an integer; change that value"),
        ({"heat": "mid"}, "heat = 'mid' was given, but it should be 'low' or 'high'; change that value"),
        ({"lid": "ajar"}, "lid = 'ajar' was given, but it should be a boolean; change that value"),
        ({"tea": 3}, "tea = 3 was given, but it should be a string; change that value"),
        ({"shelf": "low"}, "shelf = 'low' was given, but it should be a number or 'top'; change that value"),
        ({"tea": "coffee"}, "coffee was given, but tea is expected; choose another drink"),
        ({"litre": 2}, "setting 'litre' is not known; did you mean 'litres'? (known: litres, cups, heat, lid, tea, shelf)"),
    ],
)
def test_a_mistake_is_one_sentence(given, sentence):
    with pytest.raises(ReprogramError) as caught:
        Kettle.read(given)
    assert str(caught.value) == sentence


@pytest.mark.parametrize("given", [3, None, "litres", [1], [("litres", 3)]])
def test_what_is_no_table_is_one_sentence(given):
    with pytest.raises(ReprogramError) as caught:
        Kettle.read(given)
    assert "\n" not in str(caught.value)


def test_of_several_mistakes_the_first_is_told_in_the_words_of_the_caller():
    with pytest.raises(ReprogramError, match=r"^--litres 0 was given"):
        Kettle.read({"litres": 0, "heat": "mid"}, spell=lambda name, value: f"--{name} {value}")


def test_a_value_that_must_be_given():
    with pytest.raises(ReprogramError, match="name is missing; give it a value"):
        Needy.read({})


def test_settings_do_not_change():
    kettle = Kettle.read({"litres": 2})
    with pytest.raises(pydantic.ValidationError):
        kettle.litres = 3
    assert kettle == Kettle(litres=2)
    assert hash(kettle) == hash(Kettle(litres=2))


def test_numpy_scalars_are_plain_values_and_arrays_are_refused():
    given = {"litres": np.float16(2), "cups": np.int8(3), "lid": np.bool_(False), "tea": np.str_("black"), "heat": "high"}
    kettle = Kettle.read(given)
    assert kettle == Kettle(litres=2.0, cups=3, lid=False, tea="black", heat="high")
    assert [type(getattr(kettle, name)) for name in ("litres", "cups", "lid", "tea")] == [float, int, bool, str]
    assert Kettle(litres=np.array(4)).litres == 4, "a 0-dimensional array is a number, too"
    for array in (np.array([1, 2]), np.zeros((30, 30)), np.exp):
        with pytest.raises(ReprogramError, match="it should be a number") as caught:
            Kettle.read({"litres": array})
        assert "\n" not in str(caught.value)
        assert len(str(caught.value)) < 200


def test_texts_are_read_as_the_command_line_has_them():
    assert Kettle.read({"litres": "2", "cups": "3", "lid": "false", "shelf": "1.5"}) == Kettle(
        litres=2, cups=3, lid=False, shelf=1.5
    )


@pytest.mark.parametrize(
    ("message", "wanted"),
    [
        ("Input should be a valid integer, unable to parse string as an integer", "an integer"),
        ("Input should be a valid boolean, unable to interpret input", "a boolean"),
        ("Input should be greater than 0", "greater than 0"),
        ("Input should be 'a' or 'b'", "'a' or 'b'"),
    ],
)
def test_pydantic_s_words_become_ours(message, wanted):
    assert expectation(message) == wanted


@pytest.mark.parametrize("number", [2**63, -(2**63), "9223372036854775808", 10**400])
def test_whole_numbers_that_nothing_can_count_with_are_refused(number):
    class Pot(Settings):
        spoons: int = 1

    assert Pot.read({"spoons": 2**63 - 1}).spoons == 2**63 - 1
    with pytest.raises(ReprogramError, match=r"^spoons = .* was given, but .*") as caught:
        Pot.read({"spoons": number})
    assert len(str(caught.value)) < 250


def test_hostile_names_and_values_are_shown_in_part():
    for values in ({"x" * 5000: 1}, {"tea": ["y" * 5000]}, {"two\nlines": 1}, {"heat": "z\n" * 5000}, {"litres": "\ud800"}):
        with pytest.raises(ReprogramError) as caught:
            Kettle.read(values)
        assert "\n" not in str(caught.value)
        assert len(str(caught.value)) < 500
