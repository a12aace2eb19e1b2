"""f_out as a module: a mapping with its two label sets, what it was estimated from, and all that can be done with it.

A family of mappings is a subclass: it says which statistics it needs (`empty_statistics`) and how these become an affine
function of the logits (`solve`). Everything else, from folds to saving, is here.
"""

import copy
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Self

import torch
from torch import Tensor, nn

from reprogram.errors import ReprogramError, ignore_evidence_warnings, unknown
from reprogram.mappings.affine import Affine, checked_scores, shares_of
from reprogram.mappings.asked import Asked
from reprogram.mappings.class_labels import check_label_sets, check_seed
from reprogram.mappings.explain import Explanation, TextEncoder, explain_weights
from reprogram.mappings.predictions import Predictions, checked_count, strongest_contributions
from reprogram.mappings.settings import MappingSettings, Refresh
from reprogram.statistics.answers import TopK
from reprogram.statistics.base import Statistics

if TYPE_CHECKING:
    from reprogram.mappings.certainty import Certainty

_BLOCK = 4096


class Mapping(nn.Module, ABC):
    """Source logits (N, k_S) → target logits (N, k_T): an affine function with its label sets.

    Args:
        name: what the registry calls it.
        settings: the settings of its family.
        source_labels: the k_S names on the frozen model's side; two labels may have one name.
        classes: the k_T names on the task's side, all different.
        seed: of whatever is drawn.
        span: (k_S, r) orthonormal columns that all logits are combinations of, where the source model knows them.
        weighted: whether samples may carry weights.

    Attributes:
        statistics: what the mapping was estimated from; None if it needs no data.
        omega: (k_S, k_T) float32, the weights; uniform before the first `estimate`. A learned mapping has none.
        shift: (k_S,) subtracted from the source logits; None for the paper's mappings.
        scale: (k_S,) that they are divided by after that; None for the paper's mappings.
        bias: (k_T,) added at the end; None for the paper's mappings.
        certainty: how sure it may be, as `measure_certainty` has found; None if that was never measured.
    """

    #: Whether it classifies well whatever its columns mean; others read classes off the largest logits.
    general: ClassVar[bool] = False
    #: Whether a gradient trains it, so that it has no statistics to be changed by.
    learned: ClassVar[bool] = False
    statistics: Statistics | None
    omega: Tensor
    shift: Tensor | None
    scale: Tensor | None
    bias: Tensor | None

    def __init__(
        self,
        name: str,
        settings: MappingSettings,
        source_labels: Sequence[str],
        classes: Sequence[str],
        *,
        seed: int = 0,
        span: Tensor | None = None,
        weighted: bool = False,
    ) -> None:
        super().__init__()
        check_label_sets(source_labels, classes)
        check_seed(seed)
        self.name, self.settings, self.seed, self.span, self.weighted = name, settings, seed, span, weighted
        self.source_labels, self.classes = copy.copy(source_labels), tuple(classes)
        self.statistics = self.empty_statistics()
        self._fold_parts: list[Affine] = []
        self.certainty: Certainty | None = None
        for part, values in vars(self.start()).items():
            self.register_buffer(part, values)

    @abstractmethod
    def empty_statistics(self) -> Statistics | None:
        """What has to be counted for this mapping, with nothing counted yet; None if it needs no data."""

    @abstractmethod
    def start(self) -> Affine:
        """The mapping before anything was counted; it has the parts that `solve` gives."""

    @abstractmethod
    def solve(self, statistics: Statistics) -> Affine:
        """The mapping of these statistics, in float32."""

    @property
    def takes_answers(self) -> bool:
        """Whether answers that name only their best labels are enough for it."""
        return False

    @property
    def k_source(self) -> int:
        """How many source labels there are."""
        return len(self.source_labels)

    @property
    def k_target(self) -> int:
        """How many classes there are."""
        return len(self.classes)

    @property
    def refresh(self) -> Refresh:
        """When it is estimated in training."""
        return getattr(self.settings, "refresh", "never")

    @property
    def folds(self) -> int:
        """In training, by how many folds samples are scored by a mapping that does not know them; 0: none."""
        return getattr(self.settings, "folds", 0)

    @property
    def weights(self) -> Tensor:
        """ω, (k_S, k_T) float32: what the normalised logits are multiplied with."""
        return self.omega

    @property
    def affine(self) -> Affine:
        """The whole mapping as one affine function."""
        return Affine(self.weights, self.shift, self.scale, self.bias)

    def inputs(self, logits: Tensor) -> Tensor:
        """What the affine function is applied to, (N, k_S): the source logits themselves, unless a family says otherwise."""
        return logits

    def forward(self, logits: Tensor, folds: Tensor | None = None) -> Tensor:
        """Map source logits (N, k_S) in any precision to target logits (N, k_T) in float32.

        With the `folds` (N,) of training samples, each is scored by the mapping that was estimated without its fold.
        """
        inputs = self.inputs(logits)
        if folds is None or not self._fold_parts:
            return self.affine.to(torch.float32)(inputs)  # also where the enclosing model was cast to another precision
        scores = torch.stack([part(inputs) for part in self._fold_parts])
        return scores[folds.to(scores.device), torch.arange(len(logits), device=scores.device)]

    def new_statistics(self) -> Statistics:
        """Empty statistics of the right kind, on the right device, to be filled and handed to `estimate` or `learn`."""
        if self.statistics is None:
            raise ReprogramError(
                f"mapping {self.name!r} is not estimated from data, so nothing can be counted for it; choose another one"
            )
        return self.statistics.empty().to(self.weights.device)

    def count(
        self, logits: Tensor, targets: Tensor, weights: Tensor | None = None, *, log_probabilities: bool = False
    ) -> Statistics:
        """New statistics of these samples: logits (N, k_S), class numbers (N,) and perhaps sample weights (N,).

        `log_probabilities` says that the logits are logarithms of probabilities; see `Statistics.update`.
        """
        statistics = self.new_statistics()
        for start in range(0, len(logits), _BLOCK):
            part = slice(start, start + _BLOCK)
            each = None if weights is None else weights[part]
            statistics.update(logits[part], targets[part], each, log_probabilities=log_probabilities)
        return statistics

    @torch.no_grad()
    def estimate(self, *parts: Statistics) -> float:
        """Replace the mapping by the one of these statistics and keep a copy of them; return the change of ω.

        Without any, the mapping is estimated anew from the statistics that it holds. Given those of several folds, it keeps
        their sum and, for `forward(logits, folds)`, the mappings without each. The change is the mean over classes of the
        absolute difference of the columns, over their absolute sums: 0 is none, 1 is disjoint. What is refused changes
        nothing.
        """
        assert self.statistics is not None
        total = self.statistics
        if parts:
            total = self.statistics.empty()  # apart: ours may be among them
            for part in parts:
                total.merge(part)
        found, before = self.solve(total).checked(self.name), self.weights.detach().clone()
        others = (total.copy().subtract(part) for part in parts if len(parts) > 1)
        without = [self.solve(rest).checked(self.name).to(before.device) for rest in others]
        if parts:
            self.statistics.reset().merge(total)
        for name in ("omega", "shift", "scale", "bias"):
            if (buffer := getattr(self, name)) is not None:
                buffer.copy_(getattr(found, name))
        self._fold_parts = without
        self.certainty = None if self.certainty is None else self.certainty.aged()
        sizes = (self.weights.abs().sum(0) + before.abs().sum(0)).clamp_min(1e-30)
        return float(((self.weights - before).abs().sum(0) / sizes).mean())

    def learn(self, statistics: Statistics) -> Self:
        """Add samples; the result equals a mapping that was given all of them at once."""
        self.estimate(self._own_statistics("learn more").copy().merge(statistics))
        return self

    def forget(self, statistics: Statistics) -> Self:
        """Take samples out again; the result equals a mapping that never saw them."""
        self.estimate(self._own_statistics("forget").copy().subtract(statistics))
        return self

    def with_class(self, name: str, statistics: Statistics | None = None) -> "Mapping":
        """This mapping with one class more, of which `statistics` (of the new mapping's shape) hold the samples, if any."""
        if name in self.classes:
            raise ReprogramError(f"class {name!r} is already known; add samples to it instead")
        fresh = self.with_classes([*self.classes, name])
        return fresh if statistics is None else fresh.learn(statistics)

    def without_class(self, name: str, statistics: Statistics | None = None) -> "Mapping":
        """This mapping as if a class had never been there.

        Args:
            name: the class.
            statistics: of its samples; a mapping whose statistics are not kept apart by class needs them.
        """
        if name not in self.classes:
            raise unknown("class", name, self.classes)
        if len(self.classes) < 2:
            raise ReprogramError(f"class {name!r} is the last one and cannot be removed; fit a new mapping instead")
        left = self.statistics
        if left is not None and statistics is not None:
            left = left.copy().subtract(statistics)
        elif left is not None and left.shares(self.classes.index(name)):
            raise ReprogramError(
                f"mapping {self.name!r} needs the samples of class {name!r} to take them out of what all classes share; "
                "give their logits, too"
            )
        return self._for_classes([other for other in self.classes if other != name], left)

    def with_classes(self, classes: Sequence[str]) -> "Mapping":
        """This mapping for other classes: what is known about the kept ones stays, new ones have no evidence yet.

        Nothing about the kept classes is counted again. K stays what it was.
        """
        return self._for_classes(classes, self.statistics)

    def _for_classes(self, classes: Sequence[str], statistics: Statistics | None) -> "Mapping":
        """The same kind of mapping for other classes, of these statistics about the present ones."""
        if self.learned:
            raise ReprogramError(f"mapping {self.name!r} is learned and cannot change its classes; fit it again")
        fresh = type(self)(
            self.name,
            self.fixed_settings(),
            self.source_labels,
            classes,
            seed=self.seed,
            span=self.span,
            weighted=self.weighted,
        )
        if statistics is not None:
            places = {name: index for index, name in enumerate(self.classes)}
            fresh.statistics = statistics.with_classes([places.get(name) for name in fresh.classes])
            with ignore_evidence_warnings():
                fresh.estimate()
        fresh.certainty = None if self.certainty is None else self.certainty.aged()
        return fresh.to(self.weights.device)

    def fixed_settings(self) -> MappingSettings:
        """The settings, with what follows from the number of classes fixed as it is now."""
        return self.settings

    @torch.no_grad()
    def predict(self, logits: Tensor, *, evidence: int = 0, precise: bool = False, **asked: Any) -> Predictions:
        """Classify source logits (N, k_S) and name, for each sample, the source labels that decided it.

        Args:
            logits: of a model with these source labels.
            evidence: how many source labels to name.
            precise: compute in float64.
            asked: `calibration`, `coverage`, `per_class`, `strict` and `unlike`; see `Asked`.
        """
        wanted = Asked.read(asked)
        if logits.ndim != 2 or logits.shape[1] != self.k_source:
            raise ReprogramError(f"logits have shape {tuple(logits.shape)}, but (N, {self.k_source}) is expected")
        affine = self.affine.to(torch.float64 if precise else torch.float32)
        inputs = self.inputs(logits.to(affine.omega.device, affine.omega.dtype))
        scores = checked_scores(affine(inputs))
        said = Predictions.of(self.honest(scores, wanted).softmax(1), self.classes, indices=scores.argmax(1))
        if checked_count(evidence, least=0):
            inputs = affine.normalised(inputs)
            reasons = strongest_contributions(self.source_labels, affine.omega, inputs, said.indices, evidence)
            said = replace(said, evidence=reasons)
        return self._with_more(said, wanted, logits)

    def honest(self, scores: Tensor, asked: Asked | None = None) -> Tensor:
        """Target logits (N, k_T) at the temperature that was measured for logits, unless none was, or shall be used."""
        raw = asked is not None and asked.calibration == "none"
        return scores if raw or self.certainty is None else self.certainty.calibrated(scores)

    @torch.no_grad()
    def predict_answers(
        self, indices: Tensor, probabilities: Tensor, frequencies: Tensor | None = None, **asked: Any
    ) -> Predictions:
        """Classify answers that name only their best labels; see `answer_shares`.

        Args:
            indices: (N, K) source labels of each answer, −1 marks an empty place.
            probabilities: (N, K) their probabilities.
            frequencies: (k_T,) of the classes, which decide where nothing in an answer speaks for any; else the samples'.
            asked: as for `predict`.
        """
        wanted = Asked.read(asked)
        if not self.takes_answers:
            why = f"mapping {self.name!r} needs all logits, but top-K answers were given"
            raise ReprogramError(f"{why}; fit one with gaussian+ or blm+")
        answers = TopK.of(indices, probabilities, self.k_source)
        shares, guessed = (part.cpu() for part in self.answer_shares(self.affine, answers))
        sure = None if wanted.calibration == "none" else self.certainty
        honest = shares if sure is None else sure.calibrated_shares(shares)
        if frequencies is None and self.statistics is not None:
            frequencies = self.statistics.samples
        return self._with_more(Predictions.of_answers(shares, honest, guessed, frequencies, self.classes), wanted, answers)

    def answer_values(self, answers: TopK) -> Tensor:
        """What each label of answers counts, (N, K): its probability, unless a family says otherwise."""
        return answers.probabilities

    def answer_shares(self, affine: Affine, answers: TopK) -> tuple[Tensor, Tensor]:
        """What answers say by this affine function: shares (N, k_T) float64 of sum 1, and where (N,) they say nothing.

        score_t = Σ_k p_k · ω[s_k, t], scaled to sum 1, unless a family says otherwise.
        """
        return shares_of(affine, answers)

    def _with_more(self, said: Predictions, asked: Asked, inputs: Tensor | TopK) -> Predictions:
        from reprogram.mappings.certainty import with_more

        return with_more(self, said, asked, inputs) if asked.more else said

    def explain(self, count: int = 3, *, encoder: TextEncoder | None = None) -> Explanation:
        """Name the source labels of the largest |weight| for each class; see `Explanation`."""
        return explain_weights(self.weights.detach(), self.source_labels, self.classes, count, encoder)

    def _repr_html_(self) -> str:
        """What a notebook shows."""
        from reprogram.mappings.cards import mapping_card

        return mapping_card(self)

    def config(self) -> dict[str, Any]:
        """Everything but labels and tensors that is needed to build this mapping again, as plain JSON values."""
        return {"name": self.name, "seed": self.seed, "weighted": self.weighted, **self.settings.model_dump()}

    def save(self, folder: str | Path, **sections: Any) -> None:
        """Write the mapping with its label sets and statistics as a folder of JSON and safetensors.

        Args:
            folder: one that does not exist, or holds an artefact, which is replaced.
            sections: what else belongs to it, as plain JSON values.
        """
        from reprogram.mappings.artefact import save_mapping

        save_mapping(self, Path(folder), sections)

    @staticmethod
    def load(folder: str | Path) -> "Mapping":
        """Read what `save` wrote, or the mapping of a saved `Reprogrammed` or of a run."""
        from reprogram.mappings.artefact import load_mapping

        return load_mapping(Path(folder))[0]

    def _own_statistics(self, what: str) -> Statistics:
        if self.learned:
            raise ReprogramError(f"mapping {self.name!r} is learned by gradient and cannot {what}; fit it again")
        if self.statistics is None:
            raise ReprogramError(
                f"mapping {self.name!r} has no statistics, so it cannot {what}; only mappings estimated from data can"
            )
        return self.statistics
