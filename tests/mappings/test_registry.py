"""A mapping of somebody else's package: one file with its settings, its class and one line that registers it."""

import json

import numpy as np
import pytest

from command import reprogram
from plugin import install, python
from reprogram.errors import ReprogramError
from reprogram.mappings.assignment import OneToOneMapping
from reprogram.mappings.registry import MAPPINGS, Family, register_mapping
from reprogram.mappings.settings import MappingSettings

MINE = '''
from pydantic import Field
from reprogram.mappings import LinearMapping, register_mapping
from reprogram.mappings.settings import NormalizedSettings


class MineSettings(NormalizedSettings):
    my_setting: int = Field(1, ge=1, description="The power of the counts.")
    smoothing: float = Field(0.5, ge=0, description="Not what others have by default.")


class Mine(LinearMapping):
    """Columns of counts to a power, scaled to sum 1."""

    def empty_statistics(self):
        return self.joint_statistics()

    def rule(self, statistics):
        powers = (statistics.matrix.double() + self.settings.smoothing) ** self.settings.my_setting
        return powers / powers.sum(0)


register_mapping("mine", Mine, MineSettings, "powers of counts")
'''
IN_PYTHON = """
import json, sys
import numpy as np, torch
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV
from torch import nn
import reprogram

rng = np.random.default_rng(0)
y = np.arange(120) % 3
logits = rng.normal(size=(120, 6)) + 2 * np.eye(6)[y]
mapping = reprogram.make_mapping("mine", [f"s{i}" for i in range(6)], ["a", "b", "c"], my_setting=3)
mapping.estimate(mapping.count(torch.from_numpy(logits), torch.from_numpy(y)))
counts = np.zeros((6, 3))
np.add.at(counts, (logits.argmax(1), y), 1)
expected = (counts + 0.5) ** 3
np.testing.assert_allclose(mapping.weights, expected / expected.sum(0), rtol=1e-5)
assert reprogram.make_mapping("mine", ["s"], ["a"]).settings.my_setting == 1

mapper = reprogram.LabelMapper("mine", my_setting=3).fit(logits, y)
np.testing.assert_array_equal(mapper.weights_, mapping.weights)
assert mapper.get_params()["my_setting"] == 3
assert repr(mapper) == "LabelMapper(method='mine', my_setting=3)"
again = clone(mapper).fit(logits, y)
assert again.mapping_.settings.smoothing == 0.5, "the default of the mapping, not that of another one"
np.testing.assert_array_equal(again.weights_, mapper.weights_)
other = clone(mapper).set_params(method="blm").fit(logits, y)
assert other.mapping_.settings.smoothing == 1
search = GridSearchCV(reprogram.LabelMapper("mine"), {"my_setting": np.arange(1, 4)}, cv=2, error_score="raise")
search.fit(logits, y)
assert [params["my_setting"] for params in search.cv_results_["params"]] == [1, 2, 3]

module = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(3, 6))
frozen = reprogram.Frozen(module, input_size=8, labels=[f"s{i}" for i in range(6)])
model = reprogram.Reprogrammed(reprogram.make_program("none", canvas=8), frozen, mapping)
model.save("model")
images = torch.rand(4, 3, 8, 8)
assert torch.equal(reprogram.Reprogrammed.load("model", frozen=frozen)(images), model(images))
mapper.save("mapper")
np.testing.assert_array_equal(reprogram.LabelMapper.load("mapper").predict_proba(logits), mapper.predict_proba(logits))
assert reprogram.LabelMapper.load("mapper").my_setting == 3
for folder in ("model", "mapper"):
    loaded = reprogram.Mapping.load(folder)
    assert type(loaded).__name__ == "Mine" and loaded.settings == mapping.settings
    assert torch.equal(loaded.weights, mapping.weights)
grown = mapping.with_class("d")
assert grown.settings == mapping.settings and grown.classes == ("a", "b", "c", "d")
for wrong in ({"my_setting": 0}, {"shrinkage": 0.1}):
    try:
        reprogram.make_mapping("mine", ["s"], ["a"], **wrong)
    except reprogram.ReprogramError as error:
        print(error)
"""


@pytest.fixture
def installed(tmp_path):
    return install(tmp_path / "site", "my_mappings", MINE)


def test_a_mapping_from_outside_is_like_a_built_in_one_in_python(installed, tmp_path):
    assert python(IN_PYTHON, installed, cwd=tmp_path).splitlines() == [
        "my_setting = 0 was given, but it should be greater than or equal to 1; change that value",
        "mapping 'mine' does not use shrinkage; leave it out, or choose one that does: gaussian, gaussian+",
    ]


def test_a_mapping_from_outside_is_like_a_built_in_one_on_the_command_line(installed, tmp_path):
    """Its setting is a flag of fit and of map, and reaches the artefact."""
    small = ("--model", "timm:test_resnet", "--no-pretrained", "--canvas", 32)
    fit = ("fit", "--data", "digits", *small, "--program", "none", "--mapping", "mine")
    reprogram(*fit, "--my-setting", 2, "--out", "run", env=installed, cwd=tmp_path)
    described = json.loads((tmp_path / "run" / "artefact" / "artefact.json").read_text())["mapping"]
    assert (described["name"], described["my_setting"], described["smoothing"]) == ("mine", 2, 0.5)
    assert json.loads((tmp_path / "run" / "config.json").read_text())["my_setting"] == 2
    assert "test" in reprogram("evaluate", "run", env=installed, cwd=tmp_path).stdout
    for verb in ("fit", "map"):
        assert "--my-setting INT" in reprogram(verb, "--help", env=installed).stdout
    refused = reprogram(*fit, "--my-setting", 0, "--out", "other", env=installed, cwd=tmp_path, check=False)
    assert (refused.returncode, refused.stdout) == (2, "")
    assert "--my-setting 0 was given, but it should be greater than or equal to 1" in refused.stderr
    assert not (tmp_path / "other").exists()


def test_a_mapping_from_outside_is_estimated_from_answers(installed, tmp_path):
    rng = np.random.default_rng(0)
    targets = np.arange(90) % 3
    logits = (rng.normal(size=(90, 6)) + 3 * np.eye(6)[targets]).astype(np.float32)
    np.savez(tmp_path / "answers.npz", logits=logits, label=np.array(["ant", "bee", "cat"])[targets])
    flags = ("--mapping", "mine", "--my-setting", 2, "--smoothing", 0.25, "--out", "mapping")
    reprogram("map", "answers.npz", *flags, env=installed, cwd=tmp_path)
    described = json.loads((tmp_path / "mapping" / "artefact.json").read_text())["mapping"]
    assert (described["name"], described["my_setting"], described["smoothing"]) == ("mine", 2, 0.25)
    reprogram("map", "predict", "mapping", "answers.npz", "--out", "said.csv", env=installed, cwd=tmp_path)
    assert (tmp_path / "said.csv").exists()


def test_without_the_package_its_artefact_says_what_is_missing(installed, tmp_path):
    code = "import reprogram; reprogram.make_mapping('mine', ['s'], ['a']).save('mapping')"
    python(code, installed, cwd=tmp_path)
    from reprogram.mappings.base import Mapping

    with pytest.raises(ReprogramError, match="mapping 'mine' is not known"):
        Mapping.load(tmp_path / "mapping")


# ---- the table


def test_the_table_has_the_paper_s_mappings_and_ours():
    assert list(MAPPINGS) == [
        "rlm",
        "flm",
        "ilm",
        "blm",
        "blm+",
        "gaussian",
        "gaussian+",
        "linear",
        "sigmoid",
        "none",
        "ensemble",
    ]
    assert len(MAPPINGS) == 11
    assert "blm+" in MAPPINGS
    assert "auto" not in MAPPINGS
    assert {name for name, family in MAPPINGS.items() if family.scorer is not None} == {
        "flm",
        "blm",
        "blm+",
        "gaussian",
        "gaussian+",
    }
    assert {name for name, family in MAPPINGS.items() if family.load().learned} == {"linear", "sigmoid"}
    assert {name for name, family in MAPPINGS.items() if family.load().general} == {"linear", "gaussian", "gaussian+"}


def test_names_can_be_taken_once_and_auto_never():
    with pytest.raises(ReprogramError, match="mapping 'blm' is registered already; give yours another name"):
        register_mapping("blm", OneToOneMapping, MappingSettings, "mine")
    with pytest.raises(ReprogramError, match="a mapping cannot be called 'auto'"):
        register_mapping("auto", OneToOneMapping, MappingSettings, "mine")


def test_a_record_names_its_class_or_holds_it():
    assert MAPPINGS["flm"].load() is OneToOneMapping
    assert Family("x", "", OneToOneMapping, MappingSettings).load() is OneToOneMapping


def test_a_setting_of_another_mapping_names_its_takers():
    with pytest.raises(ReprogramError, match=r"mapping 'rlm' does not use smoothing; .* choose one that does: blm, blm\+$"):
        MAPPINGS.read("rlm", {"smoothing": 1})
