"""What a mapping has learned, in words: the source labels that speak for each class, and whether their names agree."""

from dataclasses import dataclass

import torch
from torch import Tensor

from reprogram.reprogrammed import Reprogrammed
from reprogram.sources.vision_language import TextEncoder, label_similarity


@dataclass(frozen=True)
class Speaker:
    """A source label that speaks for a class: its weight in ω, and how alike the two names are where that is known."""

    source: str
    weight: float
    similarity: float | None = None


@dataclass(frozen=True)
class Explanation:
    """A mapping in words.

    Attributes:
        classes: for each class its strongest source labels, the largest |weight| first.
        agreement: mean over the classes of the rank correlation (−1 to 1) between the weights of all source labels and the
            likeness of their names with the class name; None without a text encoder.
    """

    classes: dict[str, list[Speaker]]
    agreement: float | None = None

    def __str__(self) -> str:
        lines = []
        for name, speakers in self.classes.items():
            lines.append(name)
            for speaker in speakers:
                alike = "" if speaker.similarity is None else f"  (likeness {speaker.similarity:.2f})"
                lines.append(f"    {speaker.weight:.3f}  {speaker.source}{alike}")
        if self.agreement is not None:
            lines.append(f"agreement of weights and names: {self.agreement:+.2f}")
        return "\n".join(lines)


@torch.no_grad()
def explain(model: Reprogrammed, *, count: int = 3, encoder: TextEncoder | None = None) -> Explanation:
    """Name the source labels that speak for each class.

    Args:
        model: its mapping is explained.
        count: how many source labels for each class.
        encoder: a text encoder, `load_text_encoder("openclip:ViT-B-32/openai")`. With it, the likeness of the names is told
            as well, for the labels of any source model: where weights and names agree, the mapping follows the meaning.
    """
    weights = model.mapping.weights.float().cpu()
    labels = model.frozen.labels
    likeness = None if encoder is None else label_similarity(encoder, labels, model.classes)
    strongest = weights.abs().topk(min(count, len(labels)), dim=0).indices
    classes = {
        name: [
            Speaker(labels[row], float(weights[row, column]), None if likeness is None else float(likeness[row, column]))
            for row in strongest[:, column].tolist()
        ]
        for column, name in enumerate(model.classes)
    }
    return Explanation(classes, None if likeness is None else float(_rank_correlation(weights, likeness).mean()))


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
