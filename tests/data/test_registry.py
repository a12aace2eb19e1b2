"""Kinds of data by name: built in or from elsewhere, checked before anything heavy is imported."""

import subprocess
import sys
from pathlib import Path

import pytest
import torch

import reprogram
from conftest import draw_folder
from reprogram import ReprogramError, load_data
from reprogram.data import ArraySplit, DataSet
from reprogram.data.registry import (
    FORMATS,
    DataFormat,
    absolute_spec,
    begins_with,
    check_data_spec,
    ends_with,
    given_path,
    register_format,
)


@pytest.fixture
def blank(monkeypatch):
    """A format from outside: `blank:N` is N grey pictures; files named *.blank hold N."""

    def load(spec, options):
        count = int(spec.partition(":")[2] or Path(spec).read_text())
        split = ArraySplit(torch.rand(count, 1, 4, 4), torch.arange(count) % 2)
        return DataSet("blank", ("even", "odd"), train=split, test=split, notes=(f"seed {options.split_seed}",))

    monkeypatch.setattr(FORMATS, "_records", dict(FORMATS._records))
    register_format(DataFormat("blank", "blank:N", "grey pictures", begins_with("blank:"), load, prefix="blank:"))
    register_format(DataFormat("files", "FILE.blank", "the same", ends_with(".blank"), load, path=given_path))


def test_a_format_from_outside_is_one_of_ours(blank, tmp_path, monkeypatch):
    data = load_data("blank:6", split_seed=3)
    assert (data.name, len(data.train), data.notes) == ("blank", 6, ("seed 3",))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a.blank").write_text("4")
    assert len(load_data("a.blank").train) == 4
    assert absolute_spec("a.blank") == str(tmp_path / "a.blank")
    assert absolute_spec("blank:6") == "blank:6"
    with pytest.raises(ReprogramError, match=r"known: .*blank:N"):
        check_data_spec("nothing")
    with pytest.raises(ReprogramError, match="'digits' is registered already"):
        register_format(FORMATS["digits"])


def test_places_become_absolute_and_names_stay(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    draw_folder(tmp_path / "home" / "photos", per_class=1)
    (tmp_path / "saved").mkdir()
    here, home = tmp_path.resolve(), tmp_path.resolve() / "home"
    for spec, expected in {
        "home/photos": f"{home}/photos",
        "~/photos": f"{home}/photos",
        "t.csv": f"{here}/t.csv",
        "../x.npz": f"{here.parent}/x.npz",
        "hf:saved": f"hf:{here}/saved",
        "hf:~/photos": f"hf:{home}/photos",
    }.items():
        assert absolute_spec(spec) == expected
        assert absolute_spec(expected) == expected
    for name in ("digits", "hf:somebody/pets", "torchvision:MNIST", "paper:dtd", "nowhere"):
        assert absolute_spec(name) == name
    with pytest.raises(ReprogramError, match="too few images"):
        load_data("~/photos")


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("nowhere", "'nowhere' is neither a folder or file that is there"),
        ("digit", "did you mean 'digits'"),
        ("t.csv", "'t.csv' does not exist"),
        ("x.npz", "'x.npz' does not exist"),
        ("picture.jpg", "is a file of a kind that is not known"),
        ("paper:eurosta", "did you mean 'eurosat'"),
        ("paper:eurosat", "not under the data root 'none'"),
        ("hf:./saved", "'hf:./saved' does not exist"),
    ],
)
def test_what_cannot_be_is_said_at_once(tmp_path, monkeypatch, spec, message):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "picture.jpg").write_bytes(b"x")
    with pytest.raises(ReprogramError, match=message):
        check_data_spec(spec, "none")
    with pytest.raises(ReprogramError, match=message):
        load_data(spec, root="none")


def test_what_may_be_there_passes(tmp_path):
    draw_folder(tmp_path / "photos", per_class=1)
    for spec in (str(tmp_path / "photos"), "digits", "hf:somebody/pets", "torchvision:Anything", "paper:dtd"):
        check_data_spec(spec, tmp_path)


def test_other_objects_are_refused():
    with pytest.raises(ReprogramError, match="data are a int"):
        load_data(3)


def test_the_registry_is_known_without_torch():
    """A bare package stands in for `reprogram`, whose own import brings more."""
    code = f"""
import sys, types
package = types.ModuleType("reprogram")
package.__path__ = [{str(Path(reprogram.__file__).parent)!r}]
sys.modules["reprogram"] = package
import reprogram.data.registry as registry
assert registry.absolute_spec("digits") == "digits"
print([name for name in ("torch", "numpy", "PIL") if name in sys.modules])
"""
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.strip() == "[]"
