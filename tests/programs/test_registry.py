"""A program of somebody else's package: one settings class, one `Program`, one line that registers it."""

import json

import pytest

from command import reprogram
from plugin import install, python
from reprogram.errors import ReprogramError
from reprogram.programs.base import NoProgram
from reprogram.programs.registry import PROGRAMS, ProgramKind, register_program
from reprogram.programs.settings import ProgramSettings

SETTINGS = """
from pydantic import Field
from reprogram.programs.registry import register_program
from reprogram.programs.settings import ProgramSettings


class StripeSettings(ProgramSettings):
    my_width: int = Field(2, ge=1, description="Width of the stripe.")


register_program("mine", "stripe_program:Stripe", StripeSettings, "a trainable stripe on the left")
"""
PROGRAM = """
import torch
from reprogram.programs.base import Program


class Stripe(Program):
    name = "mine"

    def __init__(self, canvas, my_width, interpolation="bilinear"):
        super().__init__(canvas, canvas, interpolation)
        self.my_width = my_width
        mask = torch.zeros(canvas, canvas, dtype=torch.bool)
        mask[:, :my_width] = True
        self._make_theta(mask)

    def place(self, images):
        return self._normalise(images) + self._on_canvas(self.theta)

    def own_settings(self):
        return {"my_width": self.my_width}
"""


@pytest.fixture
def installed(tmp_path):
    """An environment in which a package with a program of its own is installed."""
    environment = install(tmp_path / "site", "stripe", SETTINGS)
    (tmp_path / "site" / "stripe_program.py").write_text(PROGRAM)
    return environment


def test_a_program_from_outside_is_like_a_built_in_one(installed, shapes, tmp_path):
    """Its setting is a flag, its value reaches the class and the artefact, and the artefact is read back."""
    flags = ("--model", "timm:test_resnet", "--no-pretrained", "--canvas", 32, "--epochs", 1, "--batch-size", 32)
    fit = ("fit", shapes, "--program", "mine", *flags)
    reprogram(*fit, "--my-width", 3, "--mapping", "blm", "--out", tmp_path / "run", env=installed)
    assert json.loads((tmp_path / "run" / "config.json").read_text())["my_width"] == 3
    program = json.loads((tmp_path / "run" / "artefact" / "artefact.json").read_text())["program"]
    assert program == {"name": "mine", "canvas": 32, "interpolation": program["interpolation"], "my_width": 3}
    result = json.loads((tmp_path / "run" / "result.json").read_text())
    assert result["parameters"]["free"] == 3 * 3 * 32
    accuracy = f"{100 * result['accuracy']['selected']:.1f} %"
    assert accuracy in reprogram("evaluate", tmp_path / "run", env=installed).stdout
    assert "--my-width INT" in reprogram("fit", "--help", env=installed).stdout
    for flags, words in (
        (("--program", "mine", "--my-width", 0), "--my-width 0 was given, but it should be greater than or equal to 1"),
        (("--program", "padding", "--my-width", 3), "program 'padding' does not use my_width; leave it out, or choose one"),
    ):
        refused = reprogram("fit", *flags, cwd=tmp_path, env=installed, check=False)
        assert (refused.returncode, refused.stdout) == (2, "")
        assert words in refused.stderr


def test_make_program_knows_it_and_its_default(installed):
    code = (
        "from reprogram import make_program\n"
        "print([make_program('mine', 8, **given).free_parameters for given in ({}, {'my_width': 1}, {'my_width': None})])"
    )
    assert python(code, installed) == "[48, 24, 48]\n"


def test_a_plugin_that_cannot_be_imported_is_named(installed, tmp_path):
    (tmp_path / "site" / "stripe.py").write_text("import nowhere_to_be_found")
    done = reprogram("fit", "--mapping", "blmm", env=installed, cwd=tmp_path, check=False)
    assert done.returncode == 2
    assert "the plugin 'stripe' (stripe) cannot be imported (ModuleNotFoundError" in done.stderr
    assert done.stderr.count("\n") == 1


def test_a_setting_named_like_a_flag_of_fit_is_refused(installed, tmp_path):
    (tmp_path / "site" / "stripe.py").write_text(SETTINGS.replace("my_width", "epochs"))
    done = reprogram("fit", env=installed, cwd=tmp_path, check=False)
    assert done.returncode == 2
    assert "a plugin has a setting 'epochs', which is the name of another flag" in done.stderr


def test_a_name_can_be_taken_once():
    with pytest.raises(ReprogramError, match="program 'padding' is registered already"):
        register_program("padding", NoProgram, ProgramSettings, "mine")


def test_a_record_names_its_class_or_holds_it():
    assert PROGRAMS["none"].load() is NoProgram
    assert ProgramKind("x", "", NoProgram, ProgramSettings).load() is NoProgram
