"""How many more labels, from files of answers: the rows are read once, and what they hold is kept on disk."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from typing_extensions import override

from reprogram.answers.counting import Plan, sided_rows
from reprogram.answers.fit import Scores
from reprogram.answers.holdout import HoldOutRule
from reprogram.answers.labels import LabelSets, Rows
from reprogram.answers.manifest import manifest_beside
from reprogram.answers.mapping import AnswerMapping
from reprogram.answers.parallel import Workers
from reprogram.answers.shards import Files, find_shards
from reprogram.answers.survey import Survey, survey_shards
from reprogram.errors import ReprogramError, ignore_evidence_warnings
from reprogram.mappings.base import Mapping
from reprogram.mappings.forecasting import LEVEL, Forecast, forecast, forecast_by
from reprogram.mappings.learning_curve import Learner
from reprogram.mappings.registry import AUTO, MAPPINGS
from reprogram.mappings.spool import Spool
from reprogram.progress import Progress

_BLOCK = 4096
#: What a forecast is about where no mapping is named: of logits, and of top-K answers.
_DEFAULTS = ("gaussian", "gaussian+")


def forecast_files(
    files: Files,
    mapping: str | None = None,
    *,
    classes: Sequence[str] | None = None,
    source_labels: Sequence[str] | None = None,
    scores: Scores = "fraction",
    factors: Sequence[float] = (2, 4),
    level: float = LEVEL,
    draws: int | None = None,
    seed: int = 0,
    progress: Progress | None = None,
    **settings: Any,
) -> Forecast:
    """Forecast what more rows would bring; see `reprogram.forecast`, and `fit_files` for the files.

    Args:
        files: shards of logits or of top-K answers. Rows of the split test are left out.
        mapping: by default `gaussian` for logits, `blm+` for top-K answers.
        classes: the target classes in order; by default those in the manifest beside the shards, or all labels, sorted.
        source_labels: the source labels in order; by default those in the manifest or header, or of all answers, sorted.
        scores: whether scores of top-K answers run from 0 to 1 or to 100.
        factors: how many times the rows to look at.
        level: how often an interval is to hold the truth.
        draws: how many sequences of nested parts.
        seed: of these.
        progress: where to show progress.
        settings: of the mapping.
    """
    shards = find_shards(files)
    progress = progress or Progress()
    manifest = manifest_beside(shards) or {}
    checksums = {name: str(facts["sha256"]) for name, facts in manifest.get("shards", {}).items()}
    with Workers() as here:
        survey = survey_shards(shards, here, progress, checksums)
    labels = LabelSets.collect(
        survey,
        source_labels if source_labels is not None else manifest.get("source_labels"),
        classes if classes is not None else manifest.get("classes"),
        percent=scores == "percent",
        log_probabilities=bool(manifest.get("log_probabilities")),
    )
    settings = {name: value for name, value in settings.items() if value is not None}
    name = mapping or _DEFAULTS[survey.k_source is None]
    plan = Plan(labels, {"name": name, "seed": seed, **settings}, HoldOutRule("none"), survey.starts)
    how: dict[str, Any] = {"factors": factors, "level": level, "draws": draws, "seed": seed}
    if survey.test_rows == survey.rows:
        raise ReprogramError(f"all {survey.rows} rows name the split test, so none is left to forecast from; give others")
    if survey.k_source is None:
        return _of_answers(plan, shards, survey, progress, how)
    progress.say("measuring the learning curve")
    chosen = name if name == AUTO else plan.make()
    return forecast(
        lambda: _logits(plan, shards),
        chosen,
        classes=labels.classes,
        log_probabilities=labels.log_probabilities,
        **how,
        **(settings if name == AUTO else {}),
    )


def _logits(plan: Plan, shards: Sequence[Path]) -> Iterator[tuple[Tensor, Tensor]]:
    for rows in _kept(plan, shards):
        assert rows.logits is not None
        yield rows.logits, rows.targets


def _kept(plan: Plan, shards: Sequence[Path]) -> Iterator[Rows]:
    """All rows but those of the split test."""
    for path in shards:
        for rows, kept, _ in sided_rows(plan, path):
            if bool(kept.any()):
                yield rows.where(kept)


def _of_answers(plan: Plan, shards: Sequence[Path], survey: Survey, progress: Progress, how: dict[str, Any]) -> Forecast:
    name = plan.mapping["name"]
    if name == AUTO:
        raise ReprogramError(
            f"mapping 'auto' needs all logits, but {str(survey.path)!r} holds top-K answers; choose blm or blm+"
        )
    fields = MAPPINGS[name].settings.model_fields
    if "top_k" in fields and not {"top_k", "top_ratio"} & plan.mapping.keys() and survey.longest:
        plan.mapping["top_k"] = survey.longest  # as `fit_files`: all labels of an answer count
    mapping = plan.make()
    if not mapping.takes_answers or mapping.learned:
        raise ReprogramError(
            f"mapping {name!r} with these options needs all logits, but {str(survey.path)!r} holds top-K answers; "
            "choose blm or blm+ without --normalize"
        )
    width = max(survey.longest, 1)
    with Spool() as spool:
        for rows in _kept(plan, shards):
            assert rows.indices is not None
            assert rows.probabilities is not None
            beyond = (0, width - rows.indices.shape[1])
            spool.add("indices", torch.nn.functional.pad(rows.indices, beyond, value=-1))
            spool.add("probabilities", torch.nn.functional.pad(rows.probabilities, beyond))
            spool.add("targets", rows.targets)
        columns = [spool.tensor(column) for column in ("indices", "probabilities", "targets")]
        progress.say("measuring the learning curve")
        return forecast_by(AnswerLearner(mapping, plan.labels, *columns), mapping, **how)


class AnswerLearner(Learner):
    """A mapping that takes top-K answers, with such answers.

    Args:
        mapping: whose samples do not count.
        labels: its label sets.
        indices: (n, K) source labels, −1 in empty places.
        probabilities: (n, K) of these.
        targets: (n,) class numbers.
    """

    def __init__(self, mapping: Mapping, labels: LabelSets, indices: Tensor, probabilities: Tensor, targets: Tensor) -> None:
        self.mapping, self.labels = mapping, labels
        self.indices, self.probabilities, self.targets = indices, probabilities, targets
        self.k_target = mapping.k_target
        self.start()

    @override
    def start(self) -> None:
        self._statistics = self.mapping.new_statistics()
        self._fitted: AnswerMapping | None = None

    @override
    def learn(self, rows: Tensor) -> None:
        for part in rows.split(_BLOCK):
            counted: Any = self._statistics
            counted.update_top_k(self.indices[part], self.probabilities[part], self.targets[part])
        self._fitted = None

    @override
    def right(self, rows: Tensor) -> Tensor:
        if self._fitted is None:
            with ignore_evidence_warnings():
                self.mapping.estimate(self._statistics)
            self._fitted = AnswerMapping(self.mapping, self.labels, self._statistics.samples.cpu())
        found = [torch.zeros(0, dtype=torch.bool)]
        for part in rows.split(_BLOCK):
            nothing = torch.zeros(len(part), dtype=torch.int64)
            answers = Rows(
                self.targets[part], None, self.indices[part], self.probabilities[part], nothing.bool(), nothing, nothing
            )
            found.append(self._fitted.predict_rows(answers).indices == self.targets[part])
        return torch.cat(found)
