"""tyro splits the arguments, the schema says what they may be, and a mistake is one sentence."""

from typing import Annotated, Literal

import pytest
import tyro
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from pydantic import Field

from command import here
from reprogram.cli.arguments import parse, read, spell
from reprogram.cli.table import COMMANDS
from reprogram.errors import ReprogramError
from reprogram.settings import Settings


class Bake(Settings):
    """Bake a cake."""

    cake: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="CAKE")] = Field(description="Which cake.")
    layers: int = Field(3, ge=1, description="How many.")
    oven_heat: float | None = Field(None, description="In degrees.")
    kind: Literal["round", "square"] = Field("round", description="Its shape.")
    cool: bool = Field(True, description="Let it cool.")
    guests: Annotated[list[str], tyro.conf.Positional, tyro.conf.arg(metavar="GUEST")] = Field(
        default_factory=list, description="Who comes."
    )


def given_by(*arguments, **further):
    return parse(Bake, arguments, "reprogram bake", further)


def test_only_what_stands_there_is_given():
    assert given_by("plum") == {"cake": "plum", "guests": []}
    assert given_by("plum", "--layers", "4", "--no-cool") == {"cake": "plum", "layers": "4", "cool": False, "guests": []}
    assert given_by("plum", "--cool")["cool"] is True
    assert given_by("--oven-heat", "180", "plum", "anna", "ben")["guests"] == ["anna", "ben"]
    assert given_by("plum", "--oven_heat=180")["oven_heat"] == "180"


def test_values_are_read_by_the_schema():
    assert read(Bake, given_by("plum", "--layers", "4", "--oven-heat", "1e2")) == Bake(cake="plum", layers=4, oven_heat=100)


def test_negative_numbers_are_values():
    assert given_by("plum", "--oven-heat", "-5")["oven_heat"] == "-5"


def test_further_fields_are_flags_too():
    from pydantic.fields import FieldInfo

    field = FieldInfo(annotation=int, default=2, description="Of others.")
    assert parse(Bake, ["plum", "--my-width", "3"], "reprogram bake", {"my_width": field})["my_width"] == "3"


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ([], "CAKE is missing, but reprogram bake needs it; add it (see reprogram bake --help)"),
        (["plum", "--layer", "3"], "flag --layer is not known; did you mean '--layers'? (see reprogram bake --help)"),
        (["plum", "--layer=3"], "flag --layer is not known; did you mean '--layers'?"),
        (["plum", "--no-coool"], "flag --no-coool is not known; did you mean '--no-cool'?"),
        (["plum", "--layers"], "--layers needs a value; write --layers INT"),
        (["plum", "--layers", "--cool"], "--layers needs a value; write --layers INT"),
        (["plum", "--kind"], "--kind needs a value; write --kind round|square"),
        (["plum", "--cool=yes"], "--cool takes no value, but 'yes' was given; write --cool or --no-cool"),
        (["plum", "--no-cool=1"], "--cool takes no value, but '1' was given"),
    ],
)
def test_a_mistake_in_the_words_is_one_sentence(arguments, words):
    with pytest.raises(ReprogramError) as caught:
        given_by(*arguments)
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["plum", "--layers", "many"], "--layers many was given, but it should be an integer"),
        (["plum", "--layers", "0"], "--layers 0 was given, but it should be greater than or equal to 1"),
        (["plum", "--kind", "oval"], "--kind oval was given, but it should be 'round' or 'square'"),
        (["plum", "--oven-heat", "nan"], "--oven-heat nan was given, but it should be a finite number"),
    ],
)
def test_a_mistake_in_a_value_is_told_as_it_was_written(arguments, words):
    with pytest.raises(ReprogramError) as caught:
        read(Bake, given_by(*arguments))
    assert words in str(caught.value)


def test_help_names_the_kinds_and_the_defaults(capsys):
    with pytest.raises(SystemExit) as left:
        given_by("--help")
    assert left.value.code == 0
    printed = " ".join(capsys.readouterr().out.split())
    for words in ("Bake a cake.", "--layers INT", "(default: 3)", "--kind round|square", "--cool", "--no-cool", "CAKE"):
        assert words in printed


def test_a_flag_is_spelled_as_on_the_command_line():
    assert spell("oven_heat", 3) == "--oven-heat 3"


@hypothesis_settings(deadline=None, derandomize=True, max_examples=60)
@given(
    st.sampled_from(sorted(COMMANDS)),
    st.lists(
        st.one_of(
            st.text(max_size=6),
            st.sampled_from(["--epochs", "--mapping", "--out", "-1", "--", "-x", "--=", "=", "--no-cache", "--cache=", "-"]),
        ),
        max_size=4,
    ),
)
def test_whatever_is_typed_is_read_or_refused_in_one_sentence(verb, arguments):
    command, refused, code = COMMANDS[verb], "", 0
    try:
        parse(command.schema, arguments, f"reprogram {verb}", command.further())
    except ReprogramError as error:
        refused = str(error)
    except SystemExit as left:
        code = left.code
    assert len(refused.splitlines()) <= 1 + sum(len(argument.splitlines()) for argument in arguments)
    assert code == 0  # help


@pytest.mark.parametrize("word", ["--tyro-print-completion", "--tyro-write-completion=x", "--tyro_print_completion"])
def test_flags_of_the_parser_itself_are_none_of_ours(word):
    done = here("datasets", word, "nothing", check=False)
    assert done.returncode == 2
    assert "was not expected" in done.stderr
