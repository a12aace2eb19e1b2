"""The models of the references: a new last layer behind the features of the source model, or behind a trained copy of it.

They are a `Reprogrammed` without a program whose source gives features in place of labels, so that whatever trains,
evaluates and checks a `Reprogrammed` does the same with them.
"""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn
from typing_extensions import override

from reprogram.acceleration.precision import Chosen, choose_precision
from reprogram.devices import Precision
from reprogram.errors import ReprogramError
from reprogram.mappings.affine import Affine
from reprogram.mappings.learned import LearnedMapping
from reprogram.mappings.settings import NormalizedSettings
from reprogram.programs.base import make_program
from reprogram.reprogrammed import Reprogrammed
from reprogram.sources.frozen import Frozen
from reprogram.sources.last_layer import ImageEmbedding, Penultimate, penultimate


class Head(LearnedMapping):
    """A last linear layer: features (N, d) to target logits (N, k_T), with a bias; weights start as those of `linear`.

    `shift` and `scale` normalise the features, where a method has set them.
    """

    bias: Tensor

    def __init__(self, features: Sequence[str], classes: Sequence[str], seed: int) -> None:
        super().__init__("head", NormalizedSettings(), features, classes, seed=seed)
        self.bias = nn.Parameter(torch.zeros(self.k_target))

    @torch.no_grad()
    def fill(self, affine: Affine) -> None:
        """Take these weights; W (d, k_T), bias (k_T,), and what normalises the features (d,)."""
        self.matrix.copy_(affine.omega)
        if affine.bias is not None:
            self.bias.copy_(affine.bias)
        for name in ("shift", "scale"):
            values = getattr(affine, name)
            self.register_buffer(name, None if values is None else values.to(self.matrix))


class Unfrozen(Frozen):
    """A copy of a source network whose weights are trained.

    It stays in evaluation mode: batch norms keep the statistics of the source model and learn their scale and shift,
    dropout is off. So the network is the same function of its weights in training and in use, whatever the batch.
    """

    def __init__(self, module: nn.Module, source: Frozen, labels: Sequence[str]) -> None:
        if isinstance(module, ImageEmbedding):
            module.dtype = torch.float32  # what it hands to its tower, whose weights become that, too
        super().__init__(module.float(), **_described(source), labels=labels)
        self.add_module("trained", self.module)
        for parameter in self.module.parameters():
            parameter.requires_grad_(parameter.is_floating_point())


class ReferenceModel(Reprogrammed):
    """A source model with a new last layer, which alone is trained, or with all its weights.

    Args:
        source: the source model, which stays as it is to the bit.
        classes: the target classes.
        canvas: side of the square that it receives.
        whole: whether all weights are trained, of a copy.
        seed: of the new layer.

    Attributes:
        source: the source model.
        layer: the name of the last layer in the source network.

    Raises:
        ReprogramError: the source model gives no features.
    """

    def __init__(self, source: Frozen, classes: Sequence[str], canvas: int, *, whole: bool, seed: int) -> None:
        cut = _cut(source, canvas, shared=not whole)
        labels = [f"feature {number}" for number in range(cut.width)]
        if whole:
            frozen: Frozen = Unfrozen(cut.module, source, labels)
        else:
            frozen = Frozen(cut.module, **_described(source), labels=labels)
        program = make_program("none", canvas, interpolation=source.program_interpolation)
        super().__init__(program, frozen, Head(labels, classes, seed))
        object.__setattr__(self, "source", source)  # beside it, not in it: no optimiser and no file finds its weights
        self.layer, self.whole = cut.layer, whole

    source: Frozen

    @property
    @override
    def moves(self) -> bool:
        return self.whole

    @override
    def trained(self) -> tuple[list[nn.Parameter], list[nn.Parameter]]:
        head = list(self.mapping.parameters())
        return ([weight for weight in self.frozen.parameters() if weight.requires_grad], head) if self.whole else (head, [])

    @override
    def choose_precision(self, precision: Precision) -> Chosen:
        return choose_precision(self.frozen, self.program.canvas, precision, preparing=not self.whole)

    @override
    def accelerate(self, passes: int | None = None) -> str:
        return "the module as it is (its weights are trained)" if self.whole else super().accelerate(passes)

    def weights(self) -> dict[str, Tensor]:
        """What was learned, by the names that it has in a network of the source's kind with as many outputs as classes.

        That of a new last layer, `weight` (k_T, d) and `bias` (k_T,); of a network that was trained, of all layers.
        """
        weight, bias = (part.detach() for part in self.mapping.affine.folded())
        own = {f"{self.layer}.weight": weight.T.contiguous(), f"{self.layer}.bias": bias}
        if not self.whole:
            return own
        network = self.frozen.module
        inner = getattr(network, "tower", network)  # that of a CLIP stands in something that normalises
        return {**inner.state_dict(), **own}


def _cut(source: Frozen, canvas: int, *, shared: bool) -> Penultimate:
    if not source.differentiable:
        raise ReprogramError(
            f"{source.name} only answers: it gives neither features nor gradients, so no reference can be trained on it; "
            "use reprogram fit, whose mappings need its answers alone"
        )
    found = penultimate(source, canvas, shared=shared)
    if found is None:
        raise ReprogramError(
            f"{source.name} does not end in a linear layer, so its penultimate features are not known; name another --model"
        )
    return found


def _described(source: Frozen) -> dict[str, Any]:
    return {
        "mean": source.mean,
        "std": source.std,
        "input_size": source.input_size,
        "interpolation": source.interpolation,
        "spec": source.spec,
    }
