"""What `auto` means: a function of the network and of what the device has in hardware."""

import pytest
import torch
from torch import nn

from reprogram import fit, make_mapping
from reprogram.acceleration import precision as module
from reprogram.acceleration.precision import Chosen, choose_precision, network_line
from reprogram.programs.base import NoProgram
from reprogram.reprogrammed import Reprogrammed
from reprogram.sources import BlackBox, Frozen
from training.test_loop import small_data


@pytest.fixture
def hardware(monkeypatch):
    """A processor with bf16."""
    monkeypatch.setattr(module, "in_hardware", lambda device, precision: True)


def frozen(*layers, width=16):
    ends = nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(width, 12)
    return Frozen(nn.Sequential(nn.Conv2d(3, width, 3), *layers, *ends), input_size=16)


class Unexportable(nn.Module):
    def forward(self, x):
        return x * (2 if float(x.detach().mean()) > 1e30 else 1)


def test_wide_layers_gain(hardware):
    chosen = choose_precision(frozen(nn.Conv2d(16, 16, 3)), 16)
    assert chosen == Chosen("bf16", "100 % of its multiplications are in wide layers")
    assert network_line("as it is", chosen) == f"network: as it is, in bf16 ({chosen.why})"


def test_matrices_are_layers_too(hardware):
    patches = nn.Sequential(nn.Flatten(), nn.Linear(3 * 64, 32), nn.ReLU(), nn.Linear(32, 9))
    assert choose_precision(Frozen(patches, input_size=8), 8).precision == "bf16"


def test_narrow_and_depthwise_layers_do_not(hardware):
    depthwise = frozen(*(nn.Conv2d(8, 8, 5, padding=2, groups=8) for _ in range(9)), width=8)
    for net in (frozen(nn.Conv2d(4, 4, 3), width=4), depthwise):
        chosen = choose_precision(net, 16)
        assert chosen.precision == "fp32"
        assert chosen.why.startswith("only ")
        assert "multiplications are in wide layers" in chosen.why


def test_without_hardware_it_is_full_precision(monkeypatch):
    monkeypatch.setattr(module, "in_hardware", lambda device, precision: False)
    assert choose_precision(frozen(nn.Conv2d(16, 16, 3)), 16) == Chosen("fp32", "this cpu has no bf16 in hardware")


@pytest.mark.parametrize("said", ["fp32", "bf16", "fp16"])
def test_what_was_said_stays(said):
    chosen = choose_precision(frozen(), 16, said)
    assert (chosen.precision, chosen.why) == (said, "")
    assert network_line("x", chosen) == ("network: x" if said == "fp32" else f"network: x, in {said}")


def test_strided_depthwise_layers_need_a_graph(hardware):
    strided = nn.Conv2d(16, 16, 3, stride=2, groups=16)
    wide = nn.Conv2d(16, 16, 3)
    assert choose_precision(frozen(wide, strided), 16).precision == "bf16"
    assert "cannot be prepared" in choose_precision(frozen(wide, strided), 16, preparing=False).why
    assert "cannot be prepared" in choose_precision(frozen(wide, strided, Unexportable()), 16).why
    assert choose_precision(frozen(wide, Unexportable()), 16).precision == "bf16"


def test_what_only_answers_is_asked_as_ever(hardware):
    asked = []

    def answer(pixels):
        asked.append(len(pixels))
        return [[0.2, 0.8]] * len(pixels)

    source = BlackBox(answer, labels=["a", "b"], input_size=16)
    asked.clear()
    assert choose_precision(source, 16) == Chosen("fp32", "the model only answers")
    assert not asked  # each answer may cost money


def test_a_canvas_that_is_refused_is_somebody_elses_error(hardware):
    net = Frozen(nn.Sequential(nn.Flatten(), nn.Linear(3 * 64, 9)), input_size=8)
    assert choose_precision(net, 9) == Chosen("fp32", "its multiplications are not to be seen")


def test_the_rule_is_the_same_in_inference_mode_and_under_autocast(hardware):
    net = frozen(nn.Conv2d(16, 16, 3))
    with torch.inference_mode(), torch.autocast("cpu", torch.bfloat16):
        assert choose_precision(net, 16).precision == "bf16"


def test_fit_tells_what_auto_is_and_the_model_keeps_it(hardware, told):
    net = frozen(nn.Conv2d(16, 16, 3))
    model = Reprogrammed(NoProgram(12), net, make_mapping("blm", net.labels, small_data().classes))
    fit(model, small_data(), epochs=1, batch_size=60, precision="auto", progress=told)
    assert model.precision == "bf16"
    (line,) = [line for line in told.lines if line.startswith("network: ")]
    assert line.endswith("in bf16 (100 % of its multiplications are in wide layers)")


@pytest.fixture
def told():
    from reprogram.progress import Progress

    class Told(Progress):
        def __init__(self):
            self.lines = []

        def say(self, line):
            self.lines.append(line)

    return Told()
