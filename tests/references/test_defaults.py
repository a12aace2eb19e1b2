"""What a reference takes of a run's configuration, and its defaults."""

import pytest

from reprogram.errors import ReprogramError
from reprogram.references.defaults import resolve_reference, shared_config
from reprogram.references.registry import REFERENCES
from reprogram.run.config import FitConfig
from reprogram.run.defaults import Facts

FACTS = Facts(input_size=64, native_size=20, published_batch=64)


@pytest.mark.parametrize(
    ("name", "lr", "augment"), [("probe", 0.05, "none"), ("finetune-linear", 1e-3, "none"), ("finetune-full", 1e-4, "crop")]
)
def test_defaults(name, lr, augment):
    found = resolve_reference(name, FitConfig(), FACTS)
    assert (found.lr, found.augment, found.canvas, found.epochs, found.val_fraction) == (lr, augment, 64, 20, 0.1)
    assert resolve_reference(name, found, Facts(input_size=32, flip_safe=True)) == found


def test_a_mirrored_image_is_taken_where_it_keeps_its_class():
    assert resolve_reference("finetune-full", FitConfig(), Facts(input_size=64, flip_safe=True)).augment == "flip"


@pytest.mark.parametrize("name", REFERENCES)
def test_what_was_given_stays(name):
    given = {"lr": 0.5, "epochs": 3, "batch_size": 7, "shots": 4, "seed": 9, "canvas": 40, "precision": "bf16", "data": "x"}
    found = resolve_reference(name, FitConfig(**given), FACTS)
    assert {key: getattr(found, key) for key in given} == given


def test_the_paper_says_how_long_and_not_how_fast():
    found = resolve_reference("finetune-linear", FitConfig(protocol="paper"), FACTS)
    assert (found.epochs, found.batch_size, found.val_fraction, found.calibration) == (200, 64, 0.0, "none")
    assert found.lr == 1e-3
    assert resolve_reference("finetune-linear", FitConfig(protocol="paper", lr=0.01), FACTS).lr == 0.01


@pytest.mark.parametrize(
    ("name", "given", "words"),
    [
        ("probe", {"mapping": "blm+"}, "mapping = 'blm\\+' was given, but reference 'probe' has neither"),
        ("probe", {"program": "padding"}, "neither a program nor a mapping"),
        ("finetune-full", {"mapping": "blm", "smoothing": 2.0}, "neither a program nor a mapping"),
        ("finetune-full", {"views": 4}, "views = 4 was given"),
        ("finetune-linear", {"shots": 0}, "at least 1 shot"),
        ("probe", {"augment": "flip"}, "augment = 'flip' was given, but reference 'probe' looks at every image once"),
        ("prob", {}, "did you mean 'probe'"),
    ],
)
def test_what_a_reference_cannot_do(name, given, words):
    with pytest.raises(ReprogramError, match=words):
        shared_config(name, FitConfig(**given))


def test_neither_program_nor_mapping_may_be_said_in_words():
    assert shared_config("probe", FitConfig(program="none", mapping="auto", seed=3)).given == {"seed": 3}


def test_a_setting_of_another_method_is_refused():
    with pytest.raises(ReprogramError, match=r"reference 'finetune-full' does not use strength.*probe"):
        REFERENCES.read("finetune-full", {"strength": 1.0})
