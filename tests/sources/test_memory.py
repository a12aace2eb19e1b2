"""Remembered answers are those that would be computed, to the bit, and whatever they depend on is told apart."""

import shutil

import numpy as np
import pytest
import torch
from torch import nn

from reprogram.programs.base import make_program
from reprogram.run.build import prepare
from reprogram.run.config import FitConfig
from reprogram.sources.memory import PassMemory
from tiny_onnx import onnx_of_means


def counting(calls):
    net = nn.Linear(3, 5)

    def compute(images):
        calls.append(len(images))
        return net(images.float().mean((2, 3)))

    return compute


@pytest.fixture
def recalled(tmp_path):
    """Ask a memory once, and then with something else; tell whether the second answer was computed."""
    images, calls = torch.rand(4, 3, 16, 16), []
    compute = counting(calls)

    @torch.no_grad()
    def ask(fingerprint="a", program=("none", {}), images=images, how=""):
        name, settings = program
        made = make_program(name, settings.pop("canvas", 16), **settings)
        return PassMemory(tmp_path, fingerprint).recall(made, images, how, compute)

    first = ask()
    assert torch.equal(ask(), first)
    assert len(calls) == 1

    def computed(**other):
        before = len(calls)
        ask(**other)
        return len(calls) > before

    return computed, images


def test_whatever_the_answer_depends_on_is_told_apart(recalled):
    computed, images = recalled
    assert not computed()
    assert computed(fingerprint="b")
    assert computed(how="channels-last")
    assert computed(images=images.double())
    assert computed(images=images[:3])
    assert computed(images=images.roll(1, 0))
    assert computed(images=images.transpose(2, 3))
    assert computed(program=("none", {"canvas": 8}))
    assert computed(program=("none", {"interpolation": "bicubic"}))
    assert computed(program=("padding", {"image_size": 8}))
    assert not computed(program=("watermark", {}))  # which begins as the image alone
    with torch.autocast("cpu", torch.bfloat16):
        assert computed()
    assert not computed()


def test_a_damaged_file_is_computed_again(recalled, tmp_path):
    computed, _ = recalled
    (file,) = tmp_path.glob("*.safetensors")
    file.write_bytes(file.read_bytes()[:-3])
    assert computed()
    assert not computed()


def test_a_folder_that_is_gone_or_full_changes_nothing(recalled, tmp_path):
    computed, images = recalled
    shutil.rmtree(tmp_path)
    assert computed()
    full = PassMemory(tmp_path / "full", "a", most=10)
    with torch.no_grad():
        full.recall(make_program("none", 16), images, "", counting([]))
    assert not (tmp_path / "full").exists()


def test_answers_that_are_read_in_two_ways_are_told_apart(tmp_path, shapes):
    """An ONNX file is one model; whether its answers are probabilities is said beside it."""
    model = f"onnx:{onnx_of_means(tmp_path / 'model.onnx', softmax=True)}"

    def logits(outputs, memory):
        config = FitConfig(model=model, data=str(shapes), program="none", mapping="blm", canvas=8, outputs=outputs)
        found = prepare(config, memory=memory)
        with torch.no_grad():
            return found.model.source_logits(torch.full((2, 3, 8, 8), 0.5)).numpy()

    first = logits("logits", tmp_path / "shared")
    second = logits("probabilities", tmp_path / "shared")
    assert np.allclose(np.exp(second), first, rtol=1e-5)
    assert np.array_equal(second, logits("probabilities", None))
