"""Choose the fastest way of running a frozen model under a program that gives the numbers of the module."""

import itertools
import weakref
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial

import torch
from torch import Tensor

from reprogram.acceleration.builder import best_schedule
from reprogram.acceleration.folding import fold_batch_norm, lay_out_channels_last
from reprogram.acceleration.network import ExportError, Network, export_network
from reprogram.acceleration.schedule import Schedule
from reprogram.acceleration.verification import Verification
from reprogram.acceleration.windows import Box, Span, Window
from reprogram.programs.base import Program
from reprogram.sources.frozen import Frozen

__all__ = ["Accelerated", "accelerate", "weight_places", "worth_preparing"]

_WORTH = 4_000_000  # pixels: less than that runs faster than a network is prepared


class Accelerated:
    """f_pre(f_in(x)) for one frozen model under one program; made by `accelerate`.

    Attributes:
        frozen: the model, which is never changed.
        program: the program, whose θ is read anew at every call.
        schedule: how the network is run; None for the module as it is.
        folded: how many batch norms were folded.
        reason: why nothing faster was chosen; empty where nothing faster was tried.
        carried: whether the gradient of θ goes through the program's carrier.
    """

    def __init__(
        self,
        frozen: Frozen,
        program: Program,
        schedule: Schedule | None,
        folded: int,
        reason: str = "",
        carried: bool = False,
    ) -> None:
        self.frozen, self.program, self.schedule, self.folded, self.reason = frozen, program, schedule, folded, reason
        self.carried = carried
        self._places, self._checksum = weight_places(frozen), None if schedule is None else _checksum(frozen)

    def __call__(self, images: Tensor) -> Tensor:
        """Map images (N, C, H, W) in [0, 1], or uint8, to source logits (N, k_S); gradients flow to θ."""
        if self.schedule is None or self._misread(len(images)):
            return self.frozen(self.program(images))  # type: ignore[no-any-return]
        return self.frozen.head(_run(self.schedule, self.carried, _dtype(self.frozen), self.program, images))

    def features(self, images: Tensor) -> Tensor:
        """Map images to what `Frozen.from_features` makes source logits of."""
        if self.schedule is None or self._misread(len(images)):
            return self.frozen.features(self.program(images))
        return self.frozen.features_of(_run(self.schedule, self.carried, _dtype(self.frozen), self.program, images))

    def _misread(self, batch: int) -> bool:
        """Whether torch could take the gradient of a batch norm in the wrong layout.

        Strides of a dimension of size one mean nothing, but torch 2.13 reads from them whether one image is channels-last,
        and reads input and gradient of a batch norm, or of an instance norm, as of one layout when they are of two.
        """
        return batch == 1 and self.schedule is not None and self.schedule.normalises and torch.is_grad_enabled()

    def fits(self, frozen: Frozen, program: Program, *, thoroughly: bool = False) -> bool:
        """Whether this is still the preparation of that model, with its weights where they were, under that program.

        Args:
            frozen: the model.
            program: the program.
            thoroughly: read all weights, too. Without it only what can be asked at every call is seen: weights that were
                moved, replaced or written to. What is written through `tensor.data`, torch does not count as written.
        """
        if frozen is not self.frozen or program is not self.program or weight_places(frozen) != self._places:
            return False
        return not thoroughly or self.schedule is None or _checksum(frozen) == self._checksum

    def describe(self) -> str:
        """What was chosen, in one line."""
        if self.schedule is None:
            return f"the module as it is ({self.reason})"
        parts = [f"{self.folded} batch norms folded, channels-last" if self.folded else "channels-last"]
        if self.schedule.framed:
            share = f"{self.schedule.framed} of {self.schedule.operators} operators"
            parts.append(f"shared frame in {share}, up to {self.schedule.last}")
        elif _window(self.program) is not None and not self.reason:
            parts.append("no shared frame, as it would not pay")
        return ", ".join(parts) + (f" ({self.reason})" if self.reason else "")


def _run(schedule: Schedule, carried: bool, dtype: torch.dtype | None, program: Program, images: Tensor) -> Tensor:
    """What the trunk makes of images under a program, by the steps of a schedule."""

    def laid_out(pixels: Tensor) -> Tensor:
        return pixels.to(dtype or pixels.dtype).contiguous(memory_format=torch.channels_last)

    if schedule.windowed:
        return schedule.run(laid_out(program.shared_canvas()), laid_out(program.inside(images)))
    carrier = program.carrier() if carried and not images.requires_grad else None
    if carrier is None:
        return schedule.run(laid_out(program(images)), None)
    with torch.no_grad():
        canvas = laid_out(program(images))
    return schedule.run(canvas, laid_out(carrier))


def can_be_prepared(frozen: Frozen, canvas: int) -> bool:
    """Whether a graph of the model can be had, which `accelerate` needs; the graph is kept for it."""
    if not frozen.differentiable or type(frozen).forward is not Frozen.forward:
        return False
    try:
        with torch.inference_mode(False), torch.autocast(frozen.mean.device.type, enabled=False):
            _prepare(frozen, canvas)
    except Exception:  # as in `accelerate`
        return False
    return True


def _dtype(frozen: Frozen) -> torch.dtype | None:
    return next((weight.dtype for weight in frozen.module.parameters()), None)


def worth_preparing(passes: int, program: Program) -> bool:
    """Whether so many images repay the seconds that `accelerate` takes."""
    return passes * program.canvas**2 >= _WORTH


@torch.inference_mode(False)  # folded weights that were made in inference mode could never carry a gradient
def accelerate(frozen: Frozen, program: Program) -> Accelerated:
    """Prepare a frozen model under a program; the module and its weights stay as they are.

    >>> from torch import nn
    >>> from reprogram.programs.padding import Padding
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
    if any(part._backward_hooks or part._backward_pre_hooks for part in frozen.module.modules()):
        return Accelerated(frozen, program, None, 0, "hooks wait for its backward pass")
    try:
        with torch.autocast(weight.device.type, enabled=False):
            return _best(frozen, program)
    except ExportError as error:
        return Accelerated(frozen, program, None, 0, f"it cannot be exported: {error}")
    except Exception as error:  # nobody's training shall end because it could not be made faster
        return Accelerated(frozen, program, None, 0, f"it cannot be prepared: {type(error).__name__}")


def _best(frozen: Frozen, program: Program) -> Accelerated:
    """The fastest of what gives the numbers of the module: folded with a shared frame, without, and not folded."""
    prepared = _prepare(frozen, program.canvas)
    verification = Verification(frozen, program, prepared.exported)
    reason = ""
    for network, folded in prepared.networks():
        for schedule, carried in _candidates(network, program):
            objection = verification.objection(partial(_run, schedule, carried, _dtype(frozen)))
            if not objection:
                return Accelerated(frozen, program, schedule, folded, reason, carried)
            reason = objection
    return Accelerated(frozen, program, None, 0, reason)


def _candidates(network: Network, program: Program) -> Iterator[tuple[Schedule, bool]]:
    """The ways to run a network, the fastest first, and whether the gradient of θ goes through the carrier."""
    window = _window(program)
    schedule = best_schedule(network, window)
    if schedule.windowed:
        yield schedule, False
        schedule = best_schedule(network, None)
    if program.speaks_for_itself("carrier") and program.carrier() is not None:
        yield schedule, True
    yield schedule, False


def _window(program: Program) -> Window | None:
    """Where the canvases of a program differ, if it says so."""
    place = program.window() if program.speaks_for_itself("window") else None
    if place is None:
        return None
    rows, cols = (Span(*span) for span in place)
    return Window(Box(rows, cols), Box(Span(0, program.canvas), Span(0, program.canvas)))


@dataclass
class _Prepared:
    """The graphs of a frozen model for one canvas.

    Attributes:
        exported: the graph as it was exported; its weights are those of the module.
        laid_out: by whether batch norms are folded: the graph that is run, and how many are.
    """

    exported: Network
    laid_out: dict[bool, tuple[Network, int]] = field(default_factory=dict)

    def networks(self) -> Iterator[tuple[Network, int]]:
        """The folded graph, if there is anything to fold, and the one that is not."""
        for fold in (True, False):
            if fold not in self.laid_out:
                network = self.exported.copy()
                folded = fold_batch_norm(network) if fold else 0
                lay_out_channels_last(network)
                self.laid_out[fold] = (network, folded)
            if self.laid_out[fold][1] or not fold:
                yield self.laid_out[fold]


_known: "weakref.WeakKeyDictionary[Frozen, tuple[object, dict[int, _Prepared]]]" = weakref.WeakKeyDictionary()


def _prepare(frozen: Frozen, canvas: int) -> _Prepared:
    """The graphs for a canvas, kept for as long as the frozen model lives and its weights are what they were."""
    weights = (weight_places(frozen), _checksum(frozen))
    if frozen not in _known or _known[frozen][0] != weights:
        _known[frozen] = (weights, {})
    by_canvas = _known[frozen][1]
    if canvas not in by_canvas:
        by_canvas[canvas] = _Prepared(export_network(frozen.trunk, canvas))
    return by_canvas[canvas]


def weight_places(frozen: Frozen) -> tuple[object, ...]:
    """What changes when weights are moved to another device or type, or written to."""
    tensors = (*frozen.module.parameters(), *frozen.module.buffers())
    return tuple(
        (tensor.data_ptr(), 0 if tensor.is_inference() else tensor._version, tensor.dtype, tensor.device)
        for tensor in tensors
    )


def _checksum(frozen: Frozen) -> int:
    """A checksum over the bytes of all weights."""
    total = 0
    for tensor in itertools.chain(frozen.module.parameters(), frozen.module.buffers()):
        values = tensor.detach().cpu().contiguous().flatten()
        total = zlib.crc32(values.view(torch.uint8).numpy().data, total)
    return total
