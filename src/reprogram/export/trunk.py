"""A frozen model cut in two: what is computed for every image, and a last linear layer that ω is folded into.

    target logits = (features · W₀ + b₀) · W + b = features · (W₀ W) + (b₀ W + b)

so that the k_S source logits are never computed. W₀ is the last linear layer of a classifier, the text embeddings of a
CLIP, or nothing where a model ends in something else: then its logits are the features.
"""

import hashlib
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from reprogram.errors import ReprogramError
from reprogram.mappings.base import Mapping
from reprogram.mappings.top_k import TopKGaussianMapping
from reprogram.reprogrammed import Reprogrammed
from reprogram.sources.black_box import BlackBox
from reprogram.sources.frozen import Frozen, module_fingerprint
from reprogram.sources.last_layer import ImageEmbedding, last_linear, without_layer
from reprogram.sources.vision_language import VisionLanguage


@dataclass(frozen=True)
class Trunk:
    """The part of a frozen model that is exported as it is.

    Attributes:
        module: normalised canvases (N, 3, C, C) to features (N, d) float32; None where the model is an ONNX file itself.
        weight: W₀ (d, k_S) float64; None where features are source logits.
        bias: b₀ (k_S,) float64, with `weight`.
        key: SHA-256 that identifies `module`.
        folds: how the source logits were done without, in words.
    """

    module: nn.Module | None
    weight: Tensor | None
    bias: Tensor | None
    key: str
    folds: str


@dataclass(frozen=True)
class Head:
    """Features to calibrated target logits: features · weight + bias, (d, k_T) and (k_T,) float32."""

    weight: Tensor
    bias: Tensor


class _Features(nn.Module):
    """A module in its own precision, and float32 behind it."""

    def __init__(self, module: nn.Module, dtype: torch.dtype) -> None:
        super().__init__()
        self.module, self.dtype = module, dtype

    def forward(self, canvas: Tensor) -> Tensor:
        return self.module(canvas.to(self.dtype)).float()  # type: ignore[no-any-return]


def cut(model: Reprogrammed, *, fold: bool = True) -> Trunk:
    """Cut the frozen part of a model, which stays as it is; the pieces are on the CPU.

    Args:
        model: whose frozen part is meant.
        fold: whether its last linear layer is to be cut off, if it has one; without, features are source logits.
    """
    frozen = model.frozen
    kind = linear_kind(model.mapping)
    if isinstance(frozen, BlackBox):
        return Trunk(
            None, None, None, _key(frozen, frozen.fingerprint, "source logits"), "no: the model is a file of its own"
        )
    dtype = next(frozen.module.parameters(), frozen.mean).dtype
    if fold and kind == "affine" and isinstance(frozen, VisionLanguage):
        weight = frozen.scale * frozen.text.double().cpu().T
        module: nn.Module = ImageEmbedding(frozen.module.image_tower, dtype)
        key = _key(frozen, module_fingerprint(frozen.module.image_tower), "embeddings")
        return Trunk(module.eval(), weight, weight.new_zeros(weight.shape[1]), key, "into the text embeddings")
    name = last_linear(frozen, model.program.canvas) if fold and kind == "affine" else None
    if name is None:
        key = _key(frozen, frozen.fingerprint, "source logits")
        return Trunk(_Features(frozen.module, dtype).eval(), None, None, key, "no: the source logits are computed")
    layer = frozen.module.get_submodule(name)
    assert isinstance(layer, nn.Linear)
    weight = layer.weight.detach().double().cpu().T
    bias = weight.new_zeros(weight.shape[1]) if layer.bias is None else layer.bias.detach().double().cpu()
    shell = without_layer(frozen.module, name)
    key = _key(frozen, frozen.fingerprint, "features")
    return Trunk(_Features(shell, dtype).eval(), weight, bias, key, f"into the last linear layer, {name}")


def linear_kind(mapping: Mapping) -> str:
    """`affine`, or `top-k` for gaussian+, which is affine in what it makes of the logits; others are refused."""
    family = type(mapping)
    if family.forward is Mapping.forward and family.inputs is Mapping.inputs:
        return "affine"
    if family is TopKGaussianMapping:
        return "top-k"
    raise ReprogramError(
        f"mapping {mapping.name!r} is no affine function of the logits, and how to export it is not known; choose one that "
        "is, such as gaussian"
    )


def folded(mapping: Mapping, trunk: Trunk) -> Head:
    """The mapping, with its temperature and the model's last layer, as one linear layer."""
    with torch.no_grad():
        affine = mapping.affine.to(torch.device("cpu")).to(torch.float64)
        omega = affine.omega if affine.scale is None else affine.omega / affine.scale[:, None]
        offset = omega.new_zeros(omega.shape[1]) if affine.bias is None else affine.bias
        shift = affine.shift
        if trunk.weight is not None and trunk.bias is not None:
            shift = -trunk.bias if shift is None else shift - trunk.bias
        if shift is not None:  # subtracted in double precision before it is multiplied: both may be large and alike
            offset = offset - shift @ omega
        weight = omega if trunk.weight is None else trunk.weight @ omega
        temperature = temperature_of(mapping)
        return Head((weight / temperature).float().contiguous(), (offset / temperature).float().contiguous())


def temperature_of(mapping: Mapping) -> float:
    """What the target logits are divided by before the softmax; 1 where nothing was measured on logits."""
    certainty = mapping.certainty
    return 1.0 if certainty is None or certainty.answers is not None else certainty.temperature


def _key(frozen: Frozen, fingerprint: str, part: str) -> str:
    """What identifies a trunk and how its input is normalised."""
    numbers = torch.cat([frozen.mean.flatten(), frozen.std.flatten()]).cpu().numpy().tobytes().hex()
    return hashlib.sha256(f"{fingerprint} {numbers} {part}".encode()).hexdigest()
