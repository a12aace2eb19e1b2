"""Whether what was prepared gives the numbers of the module and the gradient of its program, before anybody relies on it.

A module may have a backward pass of its own (rounding that lets gradients through, a reversed gradient, a part without
gradients, a hook) that a graph of its operators does not show: forward it agrees, and θ would be trained with another
gradient. So plain and prepared are run forward and backward on a few batches of noise.

Outputs are compared up to the rounding of a deep network. Gradients in float32 are not that close: where rounding puts one
activation on the other side of a kink such as that of a ReLU, they are off by 1e-3 and more, plain or not, and which batches
meet one is chance. So a gradient that is close, but not as close as rounding, is accepted if the module's own operators, as
they were exported and nothing done to them, give the gradient of the module: what rounds alike meets no other kinks.
"""

import copy
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor
from torch.nn import functional as F

from reprogram.acceleration.builder import make_schedule
from reprogram.acceleration.network import Network
from reprogram.programs.base import Program
from reprogram.sources.frozen import Frozen

_TRIALS = 3
_BATCH = 2
_ROUNDING = 1e-4  # relative, of gradients in float32 that met no kink; 2e-6 is usual
_KINKS = 2e-2  # relative, of those that did
_EXACT = 1e-6  # relative, of the same operators in the same order
# A backward pass that clips large gradients, or drops small ones, is not proportional to what it is given. Powers of two
# change no digit of one that is.
_SCALES = (2.0**-10, 2.0**10)

Run = Callable[[Program, Tensor], Tensor]  # (program, images) -> what the trunk returns


@dataclass(frozen=True)
class _Trial:
    """A batch, and what the module makes of it.

    Attributes:
        program: a copy of the program, with noise on θ.
        images: (N, 3, image_size, image_size).
        wanted: what the gradient is taken of: θ, or the images if there is no θ.
        weights: those of the outputs in the sum that is differentiated.
        output: what the module's trunk returns.
        gradients: one for each of the scales, scaled back.
    """

    program: Program
    images: Tensor
    wanted: list[Tensor]
    weights: Tensor
    output: Tensor
    gradients: list[Tensor]


class Verification:
    """The module's outputs and gradients on a few batches, computed when they are needed, to hold others against.

    Args:
        frozen: the model; neither it nor anything of it is changed.
        program: the program; copies of it are used.
        network: the module's graph as it was exported.
    """

    def __init__(self, frozen: Frozen, program: Program, network: Network) -> None:
        self.frozen, self.program, self.network = frozen, program, network
        self._trials: dict[int, _Trial] = {}

    @torch.enable_grad()
    def objection(self, run: Run) -> str:
        """What is wrong with a way to run program and trunk; empty if nothing is."""
        wrong = False
        for seed in range(_TRIALS):
            trial = self._trial(seed)
            found = run(trial.program, trial.images)
            if found.shape != trial.output.shape or not _close(found.detach(), trial.output):
                return "what is faster gave other numbers"
            (gradient,) = _gradients(found, trial.wanted, [trial.weights])
            error = max(_distance(gradient, expected) for expected in trial.gradients)
            if error <= _ROUNDING or (error <= _KINKS and self._exported_exactly):
                if trial.gradients[0].any():
                    return ""
            else:
                wrong = True
        return "what is faster gave another gradient" if wrong else ""

    def _trial(self, seed: int) -> _Trial:
        if seed not in self._trials:
            draw = torch.Generator().manual_seed(seed)
            device = next(self.frozen.module.parameters(), torch.empty(0)).device
            program = copy.deepcopy(self.program)
            wanted: list[Tensor] = [theta.requires_grad_() for theta in program.parameters() if theta.numel()]
            with torch.no_grad():
                for theta in wanted:
                    theta += torch.randn(theta.shape, generator=draw).to(theta)
            # Coarse and fine, so that the images differ in their means as well as in their details
            size = [program.image_size] * 2
            coarse = F.interpolate(torch.rand(_BATCH, 3, 4, 4, generator=draw), size, mode="bilinear")
            images = ((coarse + torch.rand(_BATCH, 3, *size, generator=draw)) / 2).to(device)
            wanted = wanted or [images.requires_grad_()]
            output = self.frozen.trunk(self._canvas(program, images))
            weights = torch.randn(output.shape, generator=draw).to(output)
            gradients = _gradients(output, wanted, [scale * weights for scale in _SCALES])
            gradients = [gradient / scale for gradient, scale in zip(gradients, _SCALES, strict=True)]
            self._trials[seed] = _Trial(program, images, wanted, weights, output.detach(), gradients)
        return self._trials[seed]

    @cached_property
    def _exported_exactly(self) -> bool:
        """Whether the operators of the module's graph, as they are, give its gradient."""
        trial, schedule = self._trial(0), make_schedule(self.network)
        output = schedule.run(self._canvas(trial.program, trial.images), None)
        (gradient,) = _gradients(output, trial.wanted, [trial.weights])
        if all(_distance(gradient, expected) <= _EXACT for expected in trial.gradients):
            return True
        try:  # it may round otherwise than its graph does; in float64 that is too little for another kink
            trunk, schedule = copy.deepcopy(self.frozen.trunk).double(), schedule.to(torch.float64)
            canvas = self._canvas(trial.program, trial.images).detach().double().requires_grad_()
            weights = [trial.weights.double()]
            ours, theirs = (
                _gradients(output, [canvas], weights)[0] for output in (schedule.run(canvas, None), trunk(canvas))
            )
        except Exception:  # it insists on another type somewhere
            return False
        return _distance(ours, theirs) <= _EXACT

    def _canvas(self, program: Program, images: Tensor) -> Tensor:
        """What the module receives of a batch."""
        canvas: Tensor = program(images)
        return canvas.to(next(self.frozen.module.parameters(), canvas).dtype)


def _close(found: Tensor, expected: Tensor) -> bool:
    scale = float(expected.abs().max().nan_to_num(0.0))
    tolerance = 2**10 * torch.finfo(expected.dtype).eps * max(scale, 1e-30)
    return bool(((found - expected).abs() <= tolerance).all())


def _gradients(output: Tensor, wanted: list[Tensor], weights: list[Tensor]) -> list[Tensor]:
    """For each of the weights, the gradient of the weighted sum of the outputs, as one vector; nothing keeps a `grad`."""
    if not output.requires_grad:
        return [torch.cat([part.new_zeros(part.numel()) for part in wanted])] * len(weights)
    return [
        torch.cat(
            [part.flatten() for part in torch.autograd.grad(output, wanted, each, retain_graph=True, materialize_grads=True)]
        )
        for each in weights
    ]


def _distance(found: Tensor, expected: Tensor) -> float:
    """The norm of the difference, relative to that of what is expected; infinite where there is no number."""
    difference = float((found - expected).double().norm())
    scale = float(expected.double().norm())
    if difference == 0:
        return 0.0
    return difference / scale if scale > 0 and difference < float("inf") else float("inf")
