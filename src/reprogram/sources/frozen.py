"""f_pre: a trained classifier that stays exactly as it is, with what is needed to feed it and to read its answer."""

import hashlib
import itertools
from collections.abc import Callable, Sequence
from typing import Any, Self

import torch
from torch import Tensor, nn

from reprogram.errors import ReprogramError
from reprogram.images.pictures import ChannelValues, Interpolation, as_rgb, channel_values, resize
from reprogram.sources.memory import PassMemory
from reprogram.sources.registry import CLASSIFIER, Kind

NUMBERED = "numbered: the file carries no names"


class Frozen(nn.Module):
    """A classifier whose weights nobody may change: module + normalisation + input size + source label names.

    The module is switched to evaluation, its parameters stop asking for gradients, and it is held beside this object
    instead of registered in it. So `parameters()` and `state_dict()` are empty, no optimiser and no artefact can ever
    contain a source weight, and `train()` on an enclosing module does not reach its batch-norm statistics. `to(device)`
    moves it all the same.

    Args:
        module: any `nn.Module` that maps (N, 3, S, S) to logits (N, k_S).
        mean: per-channel mean of its input normalisation, for pixels in [0, 1].
        std: per-channel deviation of the same.
        input_size: the side S that it was trained for.
        labels: its k_S source label names; numbered where nobody knows them.
        interpolation: how images are brought to `input_size`.
        label_source: where the label names come from, in words.
        spec: how `load_frozen` can make it again (written into artefacts); empty for a module of the user's own.

    Attributes:
        differentiable: whether gradients reach its input, which is what training a program needs; False for a `BlackBox`.
        log_probabilities: whether its logits are logarithms of probabilities, exp(logit) being the probability itself, also
            where those of an answer add up to less than 1.
        short_features: whether `features` are shorter than the logits, so that keeping them instead is worth it.
        kind: what goes with models of its kind: default program, the paper's training.
        memory: what it has said before, for runs that share their first passes; None remembers nothing.

    >>> frozen = Frozen(nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(3, 5)), input_size=8)
    >>> frozen.logits(torch.rand(2, 3, 20, 30)).shape, frozen.labels[4], list(frozen.parameters())
    (torch.Size([2, 5]), 'label 4', [])
    """

    mean: Tensor
    std: Tensor
    differentiable: bool = True
    log_probabilities: bool = False
    short_features: bool = False
    kind: Kind = CLASSIFIER
    memory: PassMemory | None = None

    def __init__(
        self,
        module: nn.Module,
        *,
        mean: ChannelValues = (0.0, 0.0, 0.0),
        std: ChannelValues = (1.0, 1.0, 1.0),
        input_size: int = 224,
        labels: Sequence[str] | None = None,
        interpolation: Interpolation = "bilinear",
        label_source: str | None = None,
        spec: dict[str, Any] | None = None,
    ) -> None:
        super().__init__()
        object.__setattr__(self, "module", module.eval().requires_grad_(False))
        self.register_buffer("mean", channel_values(mean), persistent=False)
        self.register_buffer("std", channel_values(std), persistent=False)
        if not bool(self.mean.isfinite().all() and self.std.isfinite().all() and (self.std != 0).all()):
            raise ReprogramError(
                f"mean {mean} and std {std} were given, but finite numbers are expected, and no deviation of 0; "
                "give those that the model was trained with"
            )
        self.to(next(module.parameters(), self.mean).device)
        self.input_size, self.interpolation = input_size, interpolation
        self.spec = dict(spec or {})
        self.k_source = self._count_outputs()
        self.labels = list(labels) if labels is not None else [f"label {index}" for index in range(self.k_source)]
        self.label_source = label_source or (NUMBERED if labels is None else "given by the caller")
        if len(self.labels) != self.k_source:
            raise ReprogramError(
                f"{len(self.labels)} source labels were given for a model with {self.k_source} outputs; "
                "give one name for each output, in their order"
            )

    module: nn.Module

    def forward(self, x: Tensor) -> Tensor:
        """Map what a program returns, (N, 3, S, S) and already normalised, to logits (N, k_S). Gradients flow to x."""
        weight = next(self.module.parameters(), x)
        return self.module(x.to(weight.dtype))  # type: ignore[no-any-return]

    @property
    def trunk(self) -> nn.Module:
        """The part of the module that takes the time and can be prepared; `head` makes logits of its output."""
        return self.module

    def head(self, output: Tensor) -> Tensor:
        """Map what `trunk` returned to logits (N, k_S)."""
        return output

    def features(self, x: Tensor) -> Tensor:
        """The shortest description (N, d) of normalised images that `from_features` makes logits of: here the logits."""
        return self(x)  # type: ignore[no-any-return]

    def features_of(self, output: Tensor) -> Tensor:
        """Map what `trunk` returned to what `features` gives."""
        return self.head(output)

    def from_features(self, features: Tensor) -> Tensor:
        """Map what `features` returned to logits (N, k_S)."""
        return features

    @property
    def span(self) -> Tensor | None:
        """An orthonormal basis (k_S, r) of all logit vectors that the model can give, where they are known to be fewer."""
        return None

    @property
    def default_program(self) -> str:
        """The name of the program that suits it."""
        return self.kind.default_program

    @property
    def program_interpolation(self) -> Interpolation:
        """How a program should resize images: bilinearly, as published, whatever the model's own way is."""
        return "bilinear"

    @property
    def paper_training(self) -> dict[str, Any]:
        """What the paper's training of such a model has beside its training of a classifier."""
        return dict(self.kind.paper_training)

    def normalised(self, pixels: Tensor) -> Tensor:
        """Map RGB pixels (N, 3, S, S) in [0, 1] to what `forward` takes: (pixels - mean) / std for each channel."""
        return (pixels - self.mean) / self.std

    @torch.no_grad()
    def logits(self, images: Tensor) -> Tensor:
        """Map images (N, C, H, W) in [0, 1], or uint8, of any size to source logits (N, k_S): resize, normalise, run."""
        pixels = resize(as_rgb(images.to(self.mean.device)), self.input_size, self.interpolation)
        return self(self.normalised(pixels))  # type: ignore[no-any-return]

    @property
    def name(self) -> str:
        """The name that `load_frozen` knows it by, or the class name of the user's own module."""
        return str(self.spec.get("name") or type(self.module).__name__)

    @property
    def parameter_count(self) -> int:
        """How many frozen numbers the model has."""
        return sum(parameter.numel() for parameter in self.module.parameters())

    @property
    def fingerprint(self) -> str:
        """SHA-256 over the architecture as printed and the names, shapes and bytes of all weights and buffers."""
        return module_fingerprint(self.module)

    def train(self, mode: bool = True) -> Self:
        """Stay in evaluation mode, whatever the enclosing module does."""
        return super().train(False)

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Self:
        self.module._apply(fn)
        super()._apply(fn, recurse)  # type: ignore[no-untyped-call]
        return self

    @torch.no_grad()
    def _count_outputs(self) -> int:
        weight = next(self.module.parameters(), self.mean)
        blank = torch.zeros(1, 3, self.input_size, self.input_size, device=weight.device, dtype=weight.dtype)
        output = self.module(blank)
        if not isinstance(output, Tensor) or output.ndim != 2:
            found = f"shape {tuple(output.shape)}" if isinstance(output, Tensor) else f"a {type(output).__name__}"
            raise ReprogramError(
                f"the model answers an image with {found}, but logits (N, k_S) are expected; "
                "wrap it in a module that returns them"
            )
        return output.shape[1]


def module_fingerprint(module: nn.Module) -> str:
    """SHA-256 over a module as printed and the names, shapes and bytes of all its weights and buffers."""
    digest = hashlib.sha256(repr(module).encode())
    named = (module.named_parameters(remove_duplicate=False), module.named_buffers(remove_duplicate=False))
    for key, tensor in itertools.chain(*named):
        digest.update(f"{key} {tensor.dtype} {tuple(tensor.shape)}\n".encode())
        digest.update(tensor.detach().cpu().contiguous().flatten().view(torch.uint8).numpy().data)
    return digest.hexdigest()
