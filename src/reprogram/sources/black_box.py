"""A source model that only answers: any Python callable, an ONNX session, a service behind a network."""

import hashlib
from collections.abc import Callable, Sequence
from typing import Any, get_args

import numpy as np
import torch
from torch import Tensor, nn

from reprogram.errors import ReprogramError, unknown
from reprogram.images.pictures import ChannelValues, Interpolation
from reprogram.sources.frozen import Frozen
from reprogram.sources.registry import BLACK_BOX
from reprogram.sources.settings import Outputs

_ABSENT = 1e-12  # probability of a label that an answer leaves out
Answerer = Callable[["np.ndarray[Any, Any]"], Any]


class BlackBox(Frozen):
    """A frozen classifier without gradients: its labels can be mapped, but no program can be trained through it.

    Args:
        call: maps a float32 array (N, 3, S, S), normalised by `mean` and `std`, to N rows of k_S numbers: an array, a tensor
            or nested lists.
        k_source: how many source labels it has. Where neither this nor `labels` is given, it is asked about one black image.
        labels: the names of the source labels, in the order of the answer.
        mean: per-channel mean of its input normalisation; by default it is handed pixels in [0, 1].
        std: per-channel deviation of the same.
        input_size: the side S.
        interpolation: how images are brought to that side.
        outputs: what it answers with. Of `probabilities` the logarithm is taken, and `log_probabilities` says so; a row may
            add up to less than 1, as the answer of a service that names only its best labels does, and is not stretched to
            1. A label with probability 0 counts as 1e-12, or as the smallest number in its row if that is even smaller: next
            to nothing as evidence, the last in every ranking, and no outlier among logits as the logarithm of float32's
            smallest number (-87) would be.
        name: how messages call it; by default the name of the callable.
        fingerprint: SHA-256 that identifies what computes the answers. A callable has no bytes that could be compared, so by
            default only its name, k_S and `outputs` are hashed: a changed function of the same name goes unnoticed.
        parameters: how many frozen numbers it has, if known.
        label_source: where the label names come from, in words.
        spec: how `load_frozen` can make it again; nothing for a callable, which has to be handed over when an artefact is
            loaded: `Reprogrammed.load(folder, frozen=BlackBox(...))`.

    >>> box = BlackBox(lambda pixels: pixels.mean((2, 3)), labels=["red", "green", "blue"], input_size=8, name="colours")
    >>> box.logits(torch.ones(2, 3, 20, 30)).tolist(), box.differentiable
    ([[1.0, 1.0, 1.0], [1.0, 1.0, 1.0]], False)
    """

    kind = BLACK_BOX
    differentiable = False
    module: "_Answers"

    def __init__(
        self,
        call: Answerer,
        *,
        k_source: int | None = None,
        labels: Sequence[str] | None = None,
        mean: ChannelValues = (0.0, 0.0, 0.0),
        std: ChannelValues = (1.0, 1.0, 1.0),
        input_size: int = 224,
        interpolation: Interpolation = "bilinear",
        outputs: Outputs = "logits",
        name: str | None = None,
        fingerprint: str | None = None,
        parameters: int = 0,
        label_source: str | None = None,
        spec: dict[str, Any] | None = None,
    ) -> None:
        if not callable(call):
            raise ReprogramError(
                f"a {type(call).__name__} was given as a black box, but a callable is expected; wrap it in one"
            )
        if outputs not in get_args(Outputs):
            raise unknown("kind of outputs", str(outputs), get_args(Outputs))
        own_name = str(name or getattr(call, "__qualname__", type(call).__qualname__))
        known = k_source if k_source is not None else (None if labels is None else len(labels))
        super().__init__(
            _Answers(call, own_name, outputs, known),
            mean=mean,
            std=std,
            input_size=input_size,
            labels=labels,
            interpolation=interpolation,
            label_source=label_source,
            spec=spec,
        )
        self.module.k_source = self.k_source
        self.log_probabilities = outputs == "probabilities"
        self._parameters_known = parameters
        self._fingerprint = fingerprint or hashlib.sha256(f"{own_name} {self.k_source} {outputs}".encode()).hexdigest()

    @property
    def name(self) -> str:
        """The name that `load_frozen` knows it by, or the name of the callable."""
        return str(self.spec.get("name") or self.module.name)

    @property
    def parameter_count(self) -> int:
        """How many frozen numbers the model has; 0 where nobody can count them."""
        return self._parameters_known

    @property
    def fingerprint(self) -> str:
        """What identifies the model; for a callable its name alone, see the class."""
        return self._fingerprint

    def _count_outputs(self) -> int:
        return super()._count_outputs() if self.module.k_source is None else self.module.k_source


class _Answers(nn.Module):
    """The callable as a module: tensors in, checked logits out."""

    def __init__(self, call: Answerer, name: str, outputs: Outputs, k_source: int | None) -> None:
        super().__init__()
        self.call, self.name, self.outputs, self.k_source = call, name, outputs, k_source

    def forward(self, x: Tensor) -> Tensor:
        if x.requires_grad and torch.is_grad_enabled():
            raise ReprogramError(
                f"{self.name} gives no gradients, so only --program none can be fitted with it; "
                "choose that, or a model that torch runs"
            )
        # A copy: what the callable does to its array must not reach the caller's images.
        answer = self._as_tensor(self.call(x.detach().float().cpu().contiguous().numpy().copy()))
        expected = (len(x), answer.shape[1] if self.k_source is None and answer.ndim == 2 else self.k_source)
        if tuple(answer.shape) != expected:
            width = "k_S" if self.k_source is None else self.k_source
            raise ReprogramError(
                f"{self.name} answers {len(x)} images with shape {tuple(answer.shape)}, but ({len(x)}, {width}) is "
                "expected; return one row per image and one column per source label"
            )
        if not answer.isfinite().all():
            raise ReprogramError(
                f"{self.name} answers with NaN or infinity, but finite {self.outputs} are expected; mend it"
            )
        if self.outputs == "probabilities":
            self._check_probabilities(answer)
            answer = answer.clamp_max(1)  # rounding of the answerer's own
            answer = _log(answer)
        return answer.to(x.device)

    def _as_tensor(self, answer: Any) -> Tensor:
        try:
            with np.errstate(over="ignore"):  # what becomes infinite is refused as such
                tensor = answer.detach() if isinstance(answer, Tensor) else torch.from_numpy(_real(answer))
            if tensor.is_complex():
                raise TypeError
        except (TypeError, ValueError, OverflowError):
            raise ReprogramError(
                f"{self.name} answers with a {type(answer).__name__} that is no table of numbers, but N rows of k_S numbers "
                "are expected; return an array"
            ) from None
        return tensor.float().cpu()

    def _check_probabilities(self, answer: Tensor) -> None:
        low, high = float(answer.min()) if answer.numel() else 0.0, float(answer.sum(1).max()) if len(answer) else 0.0
        if low < -1e-6 or high > 1.01:
            raise ReprogramError(
                f"{self.name} answers with values down to {low:g} and rows that add up to {high:g}, but probabilities are "
                "expected; take outputs='logits'"
            )


def _real(answer: Any) -> "np.ndarray[Any, Any]":
    """A table as float32, or `TypeError` if its numbers are complex."""
    table = np.asarray(answer)
    if table.dtype.kind == "c":
        raise TypeError
    return np.array(table, dtype=np.float32)


def _log(probabilities: Tensor) -> Tensor:
    """The logarithm of probabilities (N, k_S), with a place below all others for those that are 0."""
    given = probabilities > 0
    smallest = probabilities.where(given, torch.inf).amin(1, keepdim=True) if probabilities.shape[1] else probabilities
    return probabilities.where(given, smallest.clamp_max(_ABSENT)).log()
