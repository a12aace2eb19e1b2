"""What every mapping is in the end: an affine function of the source logits."""

from dataclasses import dataclass

import torch
from torch import Tensor

from reprogram.errors import NonFiniteError
from reprogram.statistics.answers import TopK


@dataclass(frozen=True)
class Affine:
    """Target logits = ((z − shift) / scale) · ω + bias, where each part but ω may be left out."""

    omega: Tensor
    shift: Tensor | None = None
    scale: Tensor | None = None
    bias: Tensor | None = None

    def normalised(self, logits: Tensor) -> Tensor:
        """What ω is multiplied with: source logits (N, k_S), centred and scaled, in ω's precision."""
        logits = logits.to(self.omega.dtype)
        if self.shift is not None:
            logits = logits - self.shift
        return logits if self.scale is None else logits / self.scale

    def __call__(self, logits: Tensor) -> Tensor:
        """Map source logits (N, k_S) in any precision to target logits (N, k_T) in ω's precision."""
        with torch.autocast(logits.device.type, enabled=False):
            product = self.normalised(logits) @ self.omega
            return product if self.bias is None else product + self.bias

    def to(self, place: torch.device | torch.dtype) -> "Affine":
        """The same on another device or in another precision."""
        parts = (self.omega, self.shift, self.scale, self.bias)
        return Affine(*(None if part is None else part.to(place) for part in parts))  # type: ignore[arg-type]

    def checked(self, name: str) -> "Affine":
        """The same, or an error where a number of this mapping is not finite, or where it divides by 0."""
        parts = [part for part in (self.omega, self.shift, self.scale, self.bias) if part is not None]
        whole = all(bool(part.isfinite().all()) for part in parts)
        if not whole or (self.scale is not None and not bool(self.scale.all())):
            raise NonFiniteError(
                f"the weights of mapping {name!r} leave the range of float32, as of logits that hardly differ or of sample "
                "weights far from 1; scale the logits or the weights, or bring settings such as shrinkage nearer to their "
                "defaults"
            )
        return self

    def folded(self) -> tuple[Tensor, Tensor]:
        """W (k_S, k_T) and b (k_T,), with target logits = z·W + b: what can be folded into a model's last layer."""
        whole = self.to(torch.float64)
        weight = whole.omega if whole.scale is None else whole.omega / whole.scale[:, None]
        offset = weight.new_zeros(weight.shape[1]) if whole.bias is None else whole.bias
        if whole.shift is not None:
            offset = offset - whole.shift @ weight
        return weight.float(), offset.float()


def checked_scores(scores: Tensor) -> Tensor:
    """Target logits (N, k_T) as they are, or an error where they are not finite: what is largest would mean nothing."""
    if bad := int((~scores.isfinite()).any(1).sum()):
        raise NonFiniteError(
            f"the scores of {bad} of {len(scores)} samples are NaN or infinite, but finite numbers are expected; check the "
            "logits, which hold such numbers or are too large for this mapping, and the mapping itself"
        )
    return scores


def shares_of(affine: Affine, answers: TopK) -> tuple[Tensor, Tensor]:
    """Σ_k p_k · ω[s_k, t] of answers scaled to sum 1, (N, k_T) float64, and where (N,) that sum is 0; ω ≥ 0 and no more."""
    weights = affine.omega.detach().double()
    if not bool(weights.isfinite().all() and answers.probabilities.isfinite().all()):
        raise NonFiniteError("the weights or the answers hold NaN or infinity, but finite numbers are expected")
    scores = answers.to(weights.device).times(weights)
    total = scores.sum(1, keepdim=True)
    return scores / total.where(total > 0, 1), total[:, 0] <= 0
