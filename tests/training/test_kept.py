"""Logits that are kept on disk, and whom they serve."""

import errno
import os
import re
import tempfile

import pytest
import torch
from torch import nn

from reprogram import fit
from reprogram.acceleration.accelerate import Accelerated
from reprogram.errors import ReprogramError
from reprogram.programs.base import NoProgram
from reprogram.programs.padding import Padding
from reprogram.programs.watermark import Watermark
from reprogram.ranks import ALONE
from reprogram.sources.texts import Texts
from reprogram.sources.vision_language import VisionLanguage
from reprogram.training.kept import KeptLogits, conditions, keep_logits
from sides import build, small_data, small_frozen

HOW = {"batch_size": 16, "precision": "fp32"}


def kept(n=5):
    table = KeptLogits(n, 3)
    table.add(torch.arange(3.0 * n).view(n, 3), torch.arange(n))
    return table.complete(ALONE)


def test_rows_and_blocks_are_what_was_added():
    table = kept()
    assert table.rows(torch.tensor([4, 0])).tolist() == [[12.0, 13.0, 14.0], [0.0, 1.0, 2.0]]
    ((logits, labels),) = table.blocks()
    assert torch.equal(logits, torch.arange(15.0).view(5, 3))
    assert labels.tolist() == [0, 1, 2, 3, 4]


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EDQUOT, errno.EFBIG])
def test_a_full_disk_is_an_error_before_anything_is_written(monkeypatch, tmp_path, code):
    def full(*_):
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(os, "posix_fallocate", full, raising=False)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    with pytest.raises(ReprogramError, match=rf"no room in '{re.escape(str(tmp_path))}'; make room there, or .* by TMPDIR"):
        kept()
    assert not list(tmp_path.iterdir())


def test_the_file_has_no_name_that_could_stay(monkeypatch, tmp_path):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    table = kept()
    assert not list(tmp_path.iterdir())
    assert table.rows(torch.tensor([1])).tolist() == [[3.0, 4.0, 5.0]]


@pytest.mark.parametrize("code", [errno.EOPNOTSUPP, errno.EINVAL])
def test_a_file_system_that_reserves_nothing_is_used_without(monkeypatch, code):
    def unknown(*_):
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(os, "posix_fallocate", unknown, raising=False)
    assert kept().rows(torch.tensor([1])).tolist() == [[3.0, 4.0, 5.0]]


def test_a_system_without_such_a_call_is_used_without(monkeypatch):
    monkeypatch.delattr(os, "posix_fallocate", raising=False)
    assert kept().rows(torch.tensor([1])).tolist() == [[3.0, 4.0, 5.0]]


def test_half_numbers_come_back_as_they_were():
    table = KeptLogits(2, 3)
    table.add(torch.ones(2, 3, dtype=torch.bfloat16) / 3, torch.arange(2))
    found = table.complete().rows(torch.tensor([1]))
    assert found.dtype == torch.bfloat16
    assert torch.equal(found, torch.ones(1, 3, dtype=torch.bfloat16) / 3)


def test_what_is_let_go_serves_nobody():
    model = build(program=Watermark(24))
    table = keep_logits(model, small_data().train, **HOW)
    assert table.serves(conditions(model, small_data().train, pixels=24, **HOW))
    table.drop()
    assert not table.serves(conditions(model, small_data().train, pixels=24, **HOW))


@pytest.mark.parametrize(
    ("program", "how", "serves"),
    [
        (Watermark(24), {}, True),
        (Watermark(24, frame=3), {}, True),
        (NoProgram(24), {}, True),
        (NoProgram(24, "bicubic"), {}, False),
        (Padding(24, 12), {}, False),
        (Watermark(24), {"pixels": 25}, False),
        (Watermark(24), {"batch_size": 20}, False),
        (Watermark(24), {"precision": "bf16"}, False),
    ],
)
def test_logits_serve_where_a_pass_would_give_the_same(program, how, serves):
    frozen = small_frozen()
    table = keep_logits(build(frozen=frozen, program=NoProgram(24)), small_data().train, **HOW)
    model = build(frozen=frozen, program=program)
    assert table.serves(conditions(model, small_data().train, **{"pixels": 24, **HOW, **how})) == serves


def test_logits_do_not_serve_a_network_that_is_run_otherwise_or_a_program_that_was_trained():
    frozen = small_frozen()
    table = keep_logits(build(frozen=frozen, program=NoProgram(24)), small_data().train, **HOW)
    model = build(frozen=frozen, program=Watermark(24))
    with torch.no_grad():
        model.program.theta[0, 0] = 1e-3
    assert not table.serves(conditions(model, small_data().train, pixels=24, **HOW))
    model = build(frozen=frozen, program=Watermark(24))
    model.accelerate()
    assert not table.serves(conditions(model, small_data().train, pixels=24, **HOW))


class Bright(Watermark):
    def place(self, images):
        return 2 * super().place(images)


class Stamped(Watermark):
    def pattern(self):
        return super().pattern() + 0.5


class Dark(NoProgram):
    def place(self, images):
        return super().place(images / 3)


@pytest.mark.parametrize("kind", [Bright, Stamped, Dark])
def test_a_program_that_makes_its_own_canvases_is_not_taken_for_what_it_inherits_from(kind):
    frozen, train = small_frozen(), small_data().train
    for other in (NoProgram(24), Watermark(24)):
        table = keep_logits(build(frozen=frozen, program=other), train, **HOW)
        assert not table.serves(conditions(build(frozen=frozen, program=kind(24)), train, pixels=24, **HOW))
    table = keep_logits(build(frozen=frozen, program=kind(24)), train, **HOW)
    assert not table.serves(conditions(build(frozen=frozen, program=NoProgram(24)), train, pixels=24, **HOW))
    assert table.serves(conditions(build(frozen=frozen, program=kind(24)), train, pixels=24, **HOW))


def test_logits_do_not_serve_other_images_another_model_or_one_that_was_written_to():
    frozen, train = small_frozen(), small_data().train
    model = build(frozen=frozen, program=NoProgram(24))
    table = keep_logits(model, train, **HOW)
    assert table.serves(conditions(model, small_data().train, pixels=24, **HOW))  # the same, read again
    assert not table.serves(conditions(model, small_data(seed=1).train, pixels=24, **HOW))
    assert not table.serves(conditions(model, train.subset(torch.arange(60).flip(0)), pixels=24, **HOW))
    assert not table.serves(conditions(build(program=NoProgram(24)), train, pixels=24, **HOW))
    with torch.no_grad():
        frozen.module[6].bias += 1
    assert not table.serves(conditions(model, train, pixels=24, **HOW))


def test_a_fit_does_not_believe_logits_of_other_images():
    def first_mapping(**known):
        model = build("gaussian", frozen=frozen, program=Watermark(24))
        return fit(model, small_data(), epochs=1, **HOW, **known).model.mapping.omega

    frozen = small_frozen()
    others = keep_logits(build(frozen=frozen, program=NoProgram(24)), small_data(seed=1).train, **HOW)
    assert torch.equal(first_mapping(known=others), first_mapping())


def test_half_of_a_double_is_not_the_same():
    model = build(program=NoProgram(24)).double()
    table = keep_logits(model, small_data().train, **HOW)
    assert not table.serves(conditions(model, small_data().train, pixels=24, **HOW))


def test_features_are_kept_instead_of_more_logits_and_give_them_to_the_bit(monkeypatch):
    """Also through the prepared network."""
    seen = []
    features = Accelerated.features
    monkeypatch.setattr(Accelerated, "features", lambda self, x: (seen.append(len(x)), features(self, x))[1])
    tower = nn.Sequential(nn.Conv2d(3, 5, 5), nn.BatchNorm2d(5), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten())
    texts = Texts(["left", "right", "none"], ["a {}", "the {}", "no {}"])
    text = torch.randn(9, 5, generator=torch.Generator().manual_seed(0))
    frozen = VisionLanguage(tower, text, texts, logit_scale=1.0, input_size=24)
    model, train = build(frozen=frozen, program=Watermark(24)), small_data().train
    assert "folded" in model.accelerate()
    table = keep_logits(model, train, **HOW)
    assert sum(seen) == len(train)
    with torch.no_grad():
        expected = torch.cat([model.source_logits(batch) for batch in train.pixels(24).split(16)])
        ((logits, labels),) = table.blocks()
        assert torch.equal(logits, expected)
        assert torch.equal(table.rows(torch.arange(16, 32)), expected[16:32])
    assert torch.equal(labels, train.labels)
