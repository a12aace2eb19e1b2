"""A mapping by its name."""

from collections.abc import Sequence
from typing import Any

from torch import Tensor

from reprogram.mappings.base import Mapping
from reprogram.mappings.registry import MAPPINGS


def make_mapping(
    name: str,
    source_labels: Sequence[str],
    classes: Sequence[str],
    *,
    seed: int = 0,
    span: Tensor | None = None,
    weighted: bool = False,
    **settings: Any,
) -> Mapping:
    """Build a mapping by its name.

    Args:
        name: rlm, flm, ilm, blm, blm+, gaussian, gaussian+, linear, sigmoid, none, ensemble, or one that was registered.
        source_labels: the k_S names on the frozen model's side.
        classes: the k_T names on the task's side.
        seed: of the random choice, or of the learned mapping's start.
        span: orthonormal columns (k_S, r) that span the logits, `frozen.span`.
        weighted: whether samples may carry weights.
        settings: what the mapping can be told; `reprogram.mappings.registry.MAPPINGS[name].settings` documents it.

    >>> make_mapping("blm+", [f"source {i}" for i in range(50)], ["cat", "dog"]).weights.shape
    torch.Size([50, 2])
    >>> make_mapping("blm", ["tabby", "beagle"], ["cat", "dog"], top_ratio=0.3)
    Traceback (most recent call last):
    ...
    reprogram.errors.ReprogramError: mapping 'blm' does not use top_ratio; leave it out, or choose one that does: blm+
    """
    family = MAPPINGS[name]
    mapping: Mapping = family.load()(
        name, MAPPINGS.read(name, settings), source_labels, classes, seed=seed, span=span, weighted=weighted
    )
    return mapping
