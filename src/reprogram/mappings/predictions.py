"""What a mapping says about samples, and which source labels made it say so: one class for images, logits and answers."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from numbers import Integral, Number
from typing import Any

import torch
from torch import Tensor

from reprogram.errors import ReprogramError


@dataclass(frozen=True)
class Contribution:
    """One source label's part in a prediction: its weight in ω, its logit, and their product."""

    source: str
    weight: float
    logit: float

    @property
    def product(self) -> float:
        """Weight × logit; over all source labels these add up to the target logit, less the bias of a Gaussian mapping."""
        return self.weight * self.logit


@dataclass(frozen=True)
class Predictions:
    """What was said about N samples.

    Attributes:
        labels: N class names.
        indices: (N,) their numbers.
        probabilities: (N, k_T): softmax of the target logits or, for top-K answers, each class's share of the scores; both
            at the temperature that was measured for the mapping, unless that was not asked for.
        evidence: for each sample, the source labels that decided it, the largest |weight × logit| first; empty if not asked.
        guessed: (N,) whether nothing in an answer spoke for any class, so that the most frequent one was taken.
        sets: for each sample the classes that may be true, at the coverage that was asked for; None if none was.
        typicality: (N,) the share of training samples that are as strange or stranger; None if that was not asked.
        unlike: (N,) whether a sample is none of the classes: too strange; None if that was not asked.
    """

    labels: list[str]
    indices: Tensor
    probabilities: Tensor
    evidence: list[list[Contribution]]
    guessed: Tensor
    sets: list[tuple[str, ...]] | None = None
    typicality: Tensor | None = None
    unlike: Tensor | None = None

    def __len__(self) -> int:
        return len(self.labels)

    @property
    def confidence(self) -> Tensor:
        """(N,) the probability of the predicted class."""
        return self.probabilities.gather(1, self.indices[:, None]).flatten()

    def likeliest(self, count: int, rows: slice = slice(None)) -> tuple[Tensor, Tensor]:
        """Numbers and probabilities of the `count` likeliest classes of some samples; the first is what was said.

        Among equals the first one comes first, as in `labels`: `topk` would take any of them.

        >>> Predictions.of(torch.full((1, 4), 0.25), "abcd").likeliest(2)[0].tolist()
        [[0, 1]]
        """
        shares = self.probabilities[rows]
        ranked = shares.scatter(1, self.indices[rows, None], torch.inf)
        places = ranked.argsort(dim=1, descending=True, stable=True)[:, :count]
        return places, shares.gather(1, places)

    @classmethod
    def of(
        cls,
        probabilities: Tensor,
        classes: Sequence[str],
        evidence: list[list[Contribution]] | None = None,
        guessed: Tensor | None = None,
        indices: Tensor | None = None,
    ) -> "Predictions":
        """The most probable class of each row (N, k_T), if `indices` (N,) do not tell it; among equals the first one.

        Results live on the CPU.
        """
        probabilities = probabilities.cpu()
        indices = probabilities.argmax(1) if indices is None else indices.cpu()
        return cls(
            [classes[index] for index in indices.tolist()],
            indices,
            probabilities,
            evidence or [[] for _ in range(len(indices))],
            torch.zeros(len(indices), dtype=torch.bool) if guessed is None else guessed.cpu(),
        )

    @classmethod
    def of_answers(
        cls, shares: Tensor, honest: Tensor, guessed: Tensor, frequencies: Tensor | None, classes: Sequence[str]
    ) -> "Predictions":
        """Of top-K answers: the class of the largest share.

        Args:
            shares: (N, k_T) of the classes.
            honest: (N, k_T) the same, to be told as probabilities.
            guessed: (N,) where nothing in an answer speaks for any class: frequencies decide there.
            frequencies: (k_T,) of the classes, on any scale; equal if None.
            classes: their names.
        """
        rates = torch.ones(len(classes)).double() if frequencies is None else frequencies.double().cpu()
        rates = rates / rates.sum().clamp_min(1e-300)
        best, told = (part.where(~guessed[:, None], rates) for part in (shares, honest))
        return cls.of(told, classes, guessed=guessed, indices=best.argmax(1))

    @classmethod
    def together(cls, parts: Iterable["Predictions"], k_target: int) -> "Predictions":
        """The predictions of several batches, one after the other."""
        said = list(parts)
        found = [cls.of(torch.empty(0, k_target), ()), *said]
        sets = [part.sets for part in said if part.sets is not None]
        typical = [part.typicality for part in said if part.typicality is not None]
        unlike = [part.unlike for part in said if part.unlike is not None]
        return cls(
            [label for part in found for label in part.labels],
            torch.cat([part.indices for part in found]),
            torch.cat([part.probabilities for part in found]),
            [reasons for part in found for reasons in part.evidence],
            torch.cat([part.guessed for part in found]),
            [each for part in sets for each in part] if sets else None,
            torch.cat(typical) if typical else None,
            torch.cat(unlike) if unlike else None,
        )


def strongest_contributions(
    source_labels: Sequence[str], weights: Tensor, inputs: Tensor, best: Tensor, count: int
) -> list[list[Contribution]]:
    """For each sample, up to `count` source labels with the largest |weight × input| for its class.

    Args:
        source_labels: k_S names.
        weights: ω (k_S, k_T).
        inputs: (N, k_S) what ω was multiplied with.
        best: (N,) the class of each sample.
        count: how many.
    """
    columns = weights.T[best.to(weights.device)]
    order = (columns * inputs).abs().topk(min(count, inputs.shape[1]), dim=1).indices
    rows = zip(order.tolist(), columns.gather(1, order).tolist(), inputs.gather(1, order).tolist(), strict=True)
    # a weight of 0 has decided nothing
    return [
        [Contribution(source_labels[i], weight, logit) for i, weight, logit in zip(*row, strict=True) if weight != 0]
        for row in rows
    ]


def checked_count(count: Any, least: int) -> int:
    """How many source labels to name, numpy's whole numbers among what is taken; or an error.

    >>> checked_count([1, 2], least=1)
    Traceback (most recent call last):
    ...
    reprogram.errors.ReprogramError: a list was given, but a whole number of source labels from 1 on is expected
    """
    if isinstance(count, bool) or not isinstance(count, Integral) or count < least:
        given = repr(count) if count is None or isinstance(count, (str, Number)) else f"a {type(count).__name__}"
        raise ReprogramError(f"{given} was given, but a whole number of source labels from {least} on is expected")
    return int(count)
