"""The same numbers from a frozen network, faster.

`accelerate(frozen, program)` prepares, once, what `frozen(program(images))` computes:

- the network as a graph with its batch norms folded into convolutions, channels-last (`network`, `folding`);
- for a padding program, *shared-frame execution* (`windows`, `rules`, `schedule`): outside the image all samples have the
  same canvas, so the outer part of every early activation is computed once for a batch and only a growing patch per sample;
- the first convolution's gradient, summed over the samples before its backward pass and not after it (`carriers`).

All of it is exact up to rounding, gradients included. What is prepared is checked against the module on a batch; whatever
cannot be exported, folded or verified runs as the plain module, and `Accelerated.describe` says what was chosen and why.
Every choice follows from shapes and weights, never from a measured time, so a run stays a function of its settings.
"""

import weakref

import torch
from torch import Tensor

from reprogram.acceleration.builder import best_schedule
from reprogram.acceleration.folding import fold_batch_norm, lay_out_channels_last
from reprogram.acceleration.network import ExportError, Network, export_network
from reprogram.acceleration.schedule import Schedule
from reprogram.acceleration.windows import Box, Span, Window
from reprogram.programs.base import Program
from reprogram.programs.padding import Padding
from reprogram.programs.watermark import Watermark
from reprogram.sources.frozen import Frozen

__all__ = ["Accelerated", "accelerate"]
# A subclass may place images otherwise than the parts of it that are used here say.
_KNOWN_PROGRAMS = (Padding, Watermark)


class Accelerated:
    """f_pre(f_in(x)) for one frozen model under one program; made by `accelerate`.

    Attributes:
        frozen: the model, which is never changed.
        program: the program, whose θ is read anew at every call.
        schedule: how the network is run; None for the module as it is.
        folded: how many batch norms were folded.
    """

    def __init__(self, frozen: Frozen, program: Program, schedule: Schedule | None, folded: int, reason: str = "") -> None:
        self.frozen, self.program, self.schedule, self.folded, self.reason = frozen, program, schedule, folded, reason
        self._weights = _weights(frozen)

    def __call__(self, images: Tensor) -> Tensor:
        """Map images (N, C, H, W) in [0, 1], or uint8, to source logits (N, k_S); gradients flow to θ."""
        if self.schedule is None:
            return self.frozen(self.program(images))  # type: ignore[no-any-return]
        return self.frozen.head(self._trunk(self.schedule, images))

    def _trunk(self, schedule: Schedule, images: Tensor) -> Tensor:
        if schedule.windowed:
            assert isinstance(self.program, Padding)
            return schedule.run(*map(self._laid_out, (self.program.frame(), self.program.inside(images))))
        carrier = self.program.carrier() if type(self.program) in _KNOWN_PROGRAMS else None
        if carrier is None or images.requires_grad:
            return schedule.run(self._laid_out(self.program(images)), None)
        with torch.no_grad():
            canvas = self._laid_out(self.program(images))
        return schedule.run(canvas, self._laid_out(carrier))

    def fits(self, frozen: Frozen, program: Program) -> bool:
        """Whether this is still the preparation of that model, with its weights where they were, under that program."""
        return frozen is self.frozen and program is self.program and _weights(frozen) == self._weights

    def describe(self) -> str:
        """What was chosen, in one line."""
        if self.schedule is None:
            return f"the module as it is ({self.reason})"
        parts = [f"{self.folded} batch norms folded, channels-last" if self.folded else "channels-last"]
        if self.schedule.framed:
            share = f"{self.schedule.framed} of {self.schedule.operators} operators"
            parts.append(f"shared frame in {share}, up to {self.schedule.last}")
        elif isinstance(self.program, Padding) and not self.reason:
            parts.append("no shared frame, as it would not pay")
        return ", ".join(parts) + (f" ({self.reason})" if self.reason else "")

    def _laid_out(self, pixels: Tensor) -> Tensor:
        dtype = next(iter(self.frozen.module.parameters()), pixels).dtype
        return pixels.to(dtype).contiguous(memory_format=torch.channels_last)


@torch.inference_mode(False)  # folded weights that were made in inference mode could never carry a gradient
def accelerate(frozen: Frozen, program: Program) -> Accelerated:
    """Prepare a frozen model under a program; the module and its weights stay as they are.

    >>> from torch import nn
    >>> layers = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten())
    >>> accelerate(Frozen(layers, input_size=64), Padding(64, 8)).describe()
    '1 batch norms folded, channels-last, shared frame in 2 of 4 operators, up to relu at 62 px'
    """
    if not frozen.differentiable:
        return Accelerated(frozen, program, None, 0, "it only answers")
    if type(frozen).forward is not Frozen.forward:
        return Accelerated(frozen, program, None, 0, f"{type(frozen).__name__} has a forward of its own")
    weight = next(frozen.module.parameters(), program.mean)
    if weight.dtype not in (torch.float32, torch.float64):
        return Accelerated(frozen, program, None, 0, f"in {weight.dtype} nothing could be verified")
    try:
        return _best(frozen, program)
    except ExportError as error:
        return Accelerated(frozen, program, None, 0, f"it cannot be exported: {error}")
    except Exception as error:  # nobody's training shall end because it could not be made faster
        return Accelerated(frozen, program, None, 0, f"it cannot be prepared: {type(error).__name__}")


def _best(frozen: Frozen, program: Program) -> Accelerated:
    """The fastest of what gives the numbers of the module: folded with a shared frame, without, and not folded."""
    window = _window(program)
    reason = ""
    for fold in (True, False):
        network, folded = _prepared(frozen, program.canvas, fold)
        if folded or not fold:
            best = best_schedule(network, window)
            for schedule in (best, best_schedule(network, None)) if best.framed else (best,):
                if _agrees(frozen, program, schedule, window):
                    return Accelerated(frozen, program, schedule, folded, reason)
                reason = "what is faster gave other numbers"
    return Accelerated(frozen, program, None, 0, reason)


_networks: "weakref.WeakKeyDictionary[Frozen, dict[object, tuple[Network, int]]]" = weakref.WeakKeyDictionary()


def _prepared(frozen: Frozen, canvas: int, fold: bool) -> tuple[Network, int]:
    """The graph for a canvas and how many batch norms are folded in it, kept for as long as the frozen model lives."""
    known = _networks.setdefault(frozen, {})
    key = (canvas, fold, _weights(frozen))
    if key not in known:
        network = export_network(frozen.trunk, canvas)
        folded = fold_batch_norm(network) if fold else 0
        lay_out_channels_last(network)
        known[key] = (network, folded)
    return known[key]


def _weights(frozen: Frozen) -> tuple[object, ...]:
    """What changes when weights are moved to another device or type, or written to."""
    tensors = (*frozen.module.parameters(), *frozen.module.buffers())
    return tuple(
        (tensor.data_ptr(), 0 if tensor.is_inference() else tensor._version, tensor.dtype, tensor.device)
        for tensor in tensors
    )


def _window(program: Program) -> Window | None:
    if type(program) is not Padding or program.image_size == program.canvas:
        return None
    place = Span(program.before, program.before + program.image_size)
    return Window(Box(place, place), Box(Span(0, program.canvas), Span(0, program.canvas)))


@torch.no_grad()
def _agrees(frozen: Frozen, program: Program, schedule: Schedule, window: Window | None) -> bool:
    """Whether the steps answer a batch of noise as the module does, up to the rounding of a deep network."""
    weight = next(frozen.module.parameters(), program.mean)
    noise = torch.randn(2, 3, program.canvas, program.canvas, generator=torch.Generator().manual_seed(0))
    noise = noise.to(weight.device, weight.dtype).contiguous(memory_format=torch.channels_last)
    inputs: list[Tensor | None] = [noise, None]
    if schedule.windowed and window is not None:
        patch = window.box.of(noise, window.axis).clone()
        noise[1] = noise[0]
        window.box.of(noise, window.axis).copy_(patch)
        inputs = [noise[:1], patch]
    expected, found = frozen.trunk(noise), schedule.run(*inputs)
    scale = float(expected.abs().max().nan_to_num(0.0))
    tolerance = 2**10 * torch.finfo(weight.dtype).eps * max(scale, 1e-30)
    return found.shape == expected.shape and bool(((found - expected).abs() <= tolerance).all())
