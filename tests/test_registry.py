"""What can be called by a name: unknown and taken names, settings of others, and plugins that cannot be imported."""

import math
from dataclasses import dataclass

import pytest

from command import reprogram
from plugin import install, python
from reprogram.errors import ReprogramError
from reprogram.registry import Registry, SettingsRegistry, imported
from reprogram.settings import Settings


class Sweet(Settings):
    sugar: int = 1


class Sour(Settings):
    lemon: int = 2
    sugar: int = 0


@dataclass(frozen=True)
class Drink:
    settings: type[Settings]


@pytest.fixture
def drinks():
    registry = SettingsRegistry("drink")
    registry.register("tea", Drink(Sweet))
    registry.register("lemonade", Drink(Sour))
    return registry


def test_records_stand_in_the_order_of_their_registration(drinks):
    assert (list(drinks), len(drinks), "tea" in drinks, "coffee" in drinks) == (["tea", "lemonade"], 2, True, False)
    assert drinks["tea"].settings is Sweet
    assert drinks.get("tea") is drinks["tea"]
    assert drinks.setting_names() == {"sugar", "lemon"}


def test_an_unknown_name_gets_the_nearest(drinks):
    with pytest.raises(ReprogramError) as caught:
        drinks["lemonad"]
    assert str(caught.value) == "drink 'lemonad' is not known; did you mean 'lemonade'? (known: tea, lemonade)"
    with pytest.raises(ReprogramError, match="drink 'tae' is not known"):
        drinks.read("tae", {})


def test_a_name_is_taken_once(drinks):
    with pytest.raises(ReprogramError, match="drink 'tea' is registered already; give yours another name"):
        drinks.register("tea", Drink(Sour))
    assert drinks["tea"].settings is Sweet


def test_settings_belong_to_their_record(drinks):
    assert drinks.read("tea", {"sugar": "3"}) == Sweet(sugar=3)
    assert drinks.read("lemonade", {"lemon": None, "sugar": 5}) == Sour(sugar=5), "None takes the default"
    assert drinks.read("tea", {"lemon": None}) == Sweet()
    for name, given, sentence in (
        ("tea", {"lemon": 1}, "drink 'tea' does not use lemon; leave it out, or choose one that does: lemonade"),
        ("tea", {"suger": 1}, "setting 'suger' is not known; did you mean 'sugar'? (known: lemon, sugar)"),
        ("tea", {"sugar": "much"}, "sugar = 'much' was given, but it should be an integer; change that value"),
    ):
        with pytest.raises(ReprogramError) as caught:
            drinks.read(name, given)
        assert str(caught.value) == sentence
    with pytest.raises(ReprogramError, match=r"^--sugar much was given"):
        drinks.read("tea", {"sugar": "much"}, lambda name, value: f"--{name} {value}")


def test_references_are_imported_when_asked():
    assert imported("math:floor") is math.floor
    assert imported(math.floor) is math.floor


# ---- plugins

LOOK = """
from reprogram.errors import ReprogramError
from reprogram.mappings.registry import MAPPINGS
from reprogram.programs.registry import PROGRAMS
for table in (MAPPINGS, PROGRAMS, MAPPINGS):
    try:
        print(len(table))
    except ReprogramError as error:
        print(error)
"""
BROKEN = {
    "a module that is missing": ("import nowhere_to_be_found", "ModuleNotFoundError: No module named 'nowhere_to_be_found'"),
    "a mistake": ("1 / 0", "ZeroDivisionError: division by zero"),
    "what is no Python": ("def", "SyntaxError: "),
    "a message of many lines": ("raise OSError('one\\ntwo')", "OSError: one"),
}
HALF = """
from reprogram.mappings.registry import register_mapping
from reprogram.mappings.settings import MappingSettings
register_mapping("half", "nowhere:Half", MappingSettings, "")
import nowhere_to_be_found
"""
TAKEN = """
from reprogram.mappings.registry import register_mapping
from reprogram.mappings.settings import MappingSettings
register_mapping("blm", "nowhere:Mine", MappingSettings, "")
"""


@pytest.mark.parametrize("case", BROKEN)
def test_a_plugin_that_cannot_be_imported_is_named_wherever_one_looks(case, tmp_path):
    source, reason = BROKEN[case]
    printed = python(LOOK, install(tmp_path, "broken", source)).splitlines()
    assert len(printed) == 3
    for line in printed:
        assert line.startswith(f"the plugin 'broken' (broken) cannot be imported ({reason}")
        assert line.endswith("; mend or uninstall the package that brings it")


def test_a_plugin_that_breaks_half_way_is_told_the_same_every_time(tmp_path):
    printed = python(LOOK, install(tmp_path, "half", HALF)).splitlines()
    assert len(set(printed)) == 1
    assert "ModuleNotFoundError" in printed[0]


def test_a_plugin_that_takes_a_name_twice_is_named(tmp_path):
    for line in python(LOOK, install(tmp_path, "greedy", TAKEN)).splitlines():
        assert "'greedy'" in line
        assert "mapping 'blm' is registered already; give yours another name" in line


def test_an_entry_point_to_nothing_is_named(tmp_path):
    printed = python(LOOK, install(tmp_path, "empty", "", entry="empty:register"))
    assert "the plugin 'empty' (empty:register) cannot be imported (AttributeError" in printed


def test_the_command_line_says_it_in_one_sentence(tmp_path):
    done = reprogram("fit", "--data", "digits", env=install(tmp_path / "site", "broken", "1 / 0"), cwd=tmp_path, check=False)
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1)
    assert "the plugin 'broken' (broken) cannot be imported (ZeroDivisionError" in done.stderr


def test_a_plugin_is_imported_once_and_only_when_somebody_looks(tmp_path):
    env = install(tmp_path, "shy", "print('imported')")
    code = "import reprogram.mappings.registry as r; print('before'); len(r.MAPPINGS); len(r.MAPPINGS); 'blm' in r.MAPPINGS"
    assert python(code, env) == "before\nimported\n"


def test_a_plugin_may_look_into_the_tables_itself(tmp_path):
    source = "from reprogram.mappings.registry import MAPPINGS\nprint(sorted(MAPPINGS)[0], MAPPINGS['blm'].name)"
    assert python("import reprogram; reprogram.make_mapping('blm', ['a'], ['b'])", install(tmp_path, "curious", source)) == (
        "blm blm\n"
    )


def test_an_empty_table_is_a_mapping_like_any_other():
    registry = Registry("thing")
    assert (dict(registry), len(registry)) == ({}, 0)
    with pytest.raises(ReprogramError, match=r"thing 'x' is not known \(known: \)"):
        registry["x"]
