"""What a mapping has learned, in words: the source labels that speak for each class, and whether their names agree."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from reprogram.errors import NonFiniteError
from reprogram.mappings.predictions import checked_count
from reprogram.sources.vision_language import TextEncoder, label_similarity

__all__ = ["ClassLabel", "Explanation", "TextEncoder", "explain_weights"]


@dataclass(frozen=True)
class ClassLabel:
    """A source label of a class: its weight in ω, and how alike the two names are where that is known."""

    source: str
    weight: float
    similarity: float | None = None


@dataclass(frozen=True)
class Explanation:
    """A mapping in words.

    Attributes:
        classes: for each class its source labels of the largest |weight|, the largest first; a weight of 0 says nothing and
            is left out.
        agreement: mean over the classes of the rank correlation (−1 to 1) between the weights of all source labels and the
            likeness of their names with the class name; None without a text encoder.
    """

    classes: dict[str, list[ClassLabel]]
    agreement: float | None = None

    def __str__(self) -> str:
        lines = []
        for name, labels in self.classes.items():
            lines.append(name)
            for label in labels:
                alike = "" if label.similarity is None else f"  (likeness {label.similarity:.2f})"
                lines.append(f"    {label.weight:.3f}  {label.source}{alike}")
        if self.agreement is not None:
            lines.append(f"agreement of weights and names: {self.agreement:+.2f}")
        return "\n".join(lines)


@torch.no_grad()
def explain_weights(
    weights: Tensor, source_labels: Sequence[str], classes: Sequence[str], count: int = 3, encoder: TextEncoder | None = None
) -> Explanation:
    """Name the source labels that speak for or against each class.

    Args:
        weights: ω (k_S, k_T).
        source_labels: k_S names.
        classes: k_T names.
        count: how many source labels for each class.
        encoder: a text encoder, `load_text_encoder("openclip:ViT-B-32/openai")`. With it, the likeness of the names is told
            as well, for the labels of any source model: where weights and names agree, the mapping follows the meaning.

    >>> explained = explain_weights(torch.tensor([[0.2, 1.0], [-0.8, 0.0]]), ["tabby", "beagle"], ["cat", "dog"], 2)
    >>> [(label.source, round(label.weight, 1)) for label in explained.classes["cat"]], len(explained.classes["dog"])
    ([('beagle', -0.8), ('tabby', 0.2)], 1)
    """
    count = checked_count(count, least=1)
    weights = weights.float().cpu()
    if not bool(weights.isfinite().all()):
        raise NonFiniteError("the weights hold NaN or infinity, but finite numbers are expected; make the mapping again")
    likeness = None if encoder is None else label_similarity(encoder, source_labels, classes)
    strongest = weights.abs().topk(min(count, len(weights)), dim=0).indices
    alike = [[None] * len(strongest)] * len(classes) if likeness is None else likeness.gather(0, strongest).T.tolist()
    columns = zip(classes, strongest.T.tolist(), weights.gather(0, strongest).T.tolist(), alike, strict=True)
    named = {
        name: [
            ClassLabel(source_labels[row], weight, similarity)
            for row, weight, similarity in zip(rows, values, similarities, strict=True)
            if weight != 0
        ]
        for name, rows, values, similarities in columns
    }
    return Explanation(named, None if likeness is None else float(_rank_correlation(weights, likeness).mean()))


def _rank_correlation(first: Tensor, second: Tensor) -> Tensor:
    """Spearman's correlation of each pair of columns, with the mean rank for equal values; 0 where a column is constant.

    >>> weights, likeness = torch.tensor([[1.0, 5], [2, 5], [9, 5]]), torch.tensor([[0.1, 1], [0.2, 2], [0.3, 3]])
    >>> _rank_correlation(weights, likeness).round(decimals=6).tolist()
    [1.0, 0.0]
    """
    centred = [ranks - ranks.mean(0) for ranks in (_ranks(first), _ranks(second))]
    scale = centred[0].norm(dim=0) * centred[1].norm(dim=0)
    product: Tensor = (centred[0] * centred[1]).sum(0) / scale.where(scale > 0, 1)
    return product


def _ranks(values: Tensor) -> Tensor:
    ranks = torch.empty(values.shape, dtype=torch.float64)
    for column in range(values.shape[1]):
        _, place, count = values[:, column].unique(return_inverse=True, return_counts=True)
        last = count.cumsum(0).double()
        ranks[:, column] = (last - (count - 1) / 2)[place]
    return ranks
