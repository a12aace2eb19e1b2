"""What the built-in mappings can be told, one class for each name: fields, defaults, limits, help, and what `auto` tries.

They stand apart from the mappings' own modules so that arguments can be checked before torch is imported. A mapping that
another package brings may keep its settings in the same file as its class.
"""

from collections.abc import Sequence
from typing import Annotated, Any, Literal

from pydantic import Field, field_serializer, field_validator

from reprogram.settings import Settings

LARGEST_SMOOTHING = 1e100
Refresh = Literal["never", "fresh", "reuse", "after"]
Normalize = Literal["none", "centre", "standardise"]
TopRatio = Annotated[float, Field(gt=0)] | Literal["all"]
Weighting = Literal["sqrt", "log", "rank", "presence"]
Shrinkage = Annotated[float, Field(gt=0, le=1)] | Literal["oas"]
#: Chosen on the sets of docs/results/shots.md: 63 samples of each of 10 classes, 20 of each of 100.
PRIOR_WEIGHT = 200.0
#: What `prior` may say: nothing, what the names tell, the texts of a model that has such, or a matrix that was handed over.
PRIORS = ("none", "names", "texts", "matrix")


_TOP_K = "K itself: how many source labels count per sample."


class MappingSettings(Settings):
    """Base of all mappings' settings."""

    @property
    def smooth(self) -> bool:
        """Whether target logits follow every small change of the source logits, so that programs can be trained through."""
        return True

    @classmethod
    def grid(cls) -> dict[str, tuple[Any, ...]]:
        """The values that `auto` tries, for each setting that names any.

        >>> GaussianSettings.grid()
        {'shrinkage': ('oas', 0.1, 0.3, 0.6)}
        """
        return {name: tuple(facts["tried"]) for name, facts in cls._facts().items() if "tried" in facts}

    @classmethod
    def without_training(cls) -> list[str]:
        """The settings that matter where nothing is trained: on fixed logits or answers.

        >>> BayesSettings.without_training()
        ['normalize', 'smoothing']
        """
        return [name for name, facts in cls._facts().items() if not facts.get("only_in_training")]

    @classmethod
    def _facts(cls) -> dict[str, Any]:
        return {name: field.json_schema_extra or {} for name, field in cls.model_fields.items()}


def tried(values: Sequence[Any]) -> dict[str, Any]:
    """For a field's `json_schema_extra`: the values that `auto` tries."""
    return {"tried": list(values)}


ONLY_IN_TRAINING: dict[str, Any] = {"only_in_training": True}


class PriorMatrix:
    """A prior that was handed over instead of named: target logits are z · values before any sample.

    Args:
        values: (k_S, k_T) numbers.
        source_labels: the names of the rows; by default those of the mapping, in its order.
        classes: the names of the columns; by default those of the mapping, in its order.
    """

    def __init__(
        self, values: Any, source_labels: Sequence[str] | None = None, classes: Sequence[str] | None = None
    ) -> None:
        self.values = values
        self.source_labels = None if source_labels is None else tuple(source_labels)
        self.classes = None if classes is None else tuple(classes)

    def __repr__(self) -> str:
        return f"<prior of shape {tuple(getattr(self.values, 'shape', ()))}>"


class NormalizedSettings(MappingSettings):
    """Of mappings that multiply the source logits with ω and nothing else."""

    normalize: Normalize = Field(
        "none",
        description="Centre or standardise the source logits before the mapping; none as published.",
        json_schema_extra=tried(("none", "centre", "standardise")),
    )


class EstimatedSettings(MappingSettings):
    """Of mappings that are estimated from statistics: when, and from which samples."""

    refresh: Refresh = Field(
        "reuse",
        description="Estimate the mapping once (never again), by a fresh pass before each epoch, from the outputs of the "
        "epoch just trained (reuse), or by a fresh pass after each epoch, so that it fits the program that is kept (after).",
        json_schema_extra=ONLY_IN_TRAINING,
    )
    folds: int = Field(
        0,
        ge=0,
        description="In training, score images by a mapping estimated without their fold, of so many; 0 uses all for all.",
        json_schema_extra=ONLY_IN_TRAINING,
    )

    @field_validator("folds")
    @classmethod
    def _not_one_fold(cls, folds: int) -> int:
        if folds == 1:
            raise ValueError("0 (none) or at least 2")
        return folds


class OneToOneSettings(NormalizedSettings, EstimatedSettings):
    """Of ilm."""

    optimal: bool = Field(False, description="One-to-one mappings by exact assignment instead of greedily.")


class OnceSettings(OneToOneSettings):
    """Of flm: what ilm has, but estimated once."""

    refresh: Refresh = Field(
        "never", description=EstimatedSettings.model_fields["refresh"].description, json_schema_extra=ONLY_IN_TRAINING
    )


class BayesSettings(NormalizedSettings, EstimatedSettings):
    """Of blm."""

    smoothing: float = Field(
        1.0,
        ge=0,
        le=LARGEST_SMOOTHING,
        description="λ, the smoothing of Bayes' rule.",
        json_schema_extra=tried((0.01, 0.1, 1.0, 10.0, 100.0, 1000.0)),  # the paper's grid
    )


class TopKBayesSettings(BayesSettings):
    """Of blm+."""

    top_ratio: TopRatio = Field(
        0.15,
        description="α: K = α · classes source labels count per sample; or `all`.",
        json_schema_extra=tried((0.01, 0.05, 0.15, 0.5, 1.0)),  # the paper's grid
    )
    top_k: int | None = Field(None, ge=1, description=_TOP_K)


class DensitySettings(EstimatedSettings):
    """Of mappings of normal densities."""

    folds: int = Field(
        5, ge=0, description=EstimatedSettings.model_fields["folds"].description, json_schema_extra=ONLY_IN_TRAINING
    )
    shrinkage: Shrinkage = Field(
        "oas",
        description="Shrinkage of the covariance, above 0 and up to 1; oas computes it.",
        json_schema_extra=tried(("oas", 0.1, 0.3, 0.6)),
    )
    priors: bool = Field(False, description="Prefer frequent classes.")


class GaussianSettings(DensitySettings):
    """Of gaussian."""

    prior: Any = Field(
        "none",
        description="What is known before any sample: none; names (source labels called like the classes); texts (zero-shot "
        "for openclip:); or a .npz or .csv file with a matrix of source labels × classes.",
    )
    prior_weight: float = Field(
        PRIOR_WEIGHT,
        ge=0,
        le=1e9,
        description="How many samples the prior is worth, times the root of the number of classes; it is scaled to what the "
        "samples say of it before.",
    )

    @field_validator("prior", mode="before")
    @classmethod
    def _known_prior(cls, prior: Any) -> Any:
        if isinstance(prior, str):
            if prior not in PRIORS and not prior.lower().endswith((".npz", ".csv")):
                raise ValueError("none, names, texts, or a file that ends in .npz or .csv")
            return prior
        if isinstance(prior, PriorMatrix):
            return prior
        if not hasattr(prior, "shape") and not isinstance(prior, (list, tuple)):
            raise ValueError("none, names, texts, a file that ends in .npz or .csv, or an array of source labels × classes")
        return PriorMatrix(prior)

    @field_serializer("prior")
    def _named_prior(self, prior: Any) -> str:
        return "matrix" if isinstance(prior, PriorMatrix) else str(prior)


class TopKGaussianSettings(DensitySettings):
    """Of gaussian+."""

    top_k: int | None = Field(None, ge=1, description=_TOP_K)
    shrinkage: Shrinkage = Field(
        0.6,  # what answers leave of a covariance is sparse, and "oas" shrinks it too little
        description=DensitySettings.model_fields["shrinkage"].description,
        json_schema_extra=tried(("oas", 0.3, 0.6, 0.8)),
    )
    weighting: Weighting = Field(
        "log",
        description="What a label counts: the root of its probability, its logarithm above 0.001, 1 / √rank, or 1.",
        json_schema_extra=tried(("rank", "log", "sqrt", "presence")),
    )

    @property
    def smooth(self) -> bool:
        """As in all settings; ranks and the mere presence of a label change in steps alone."""
        return self.weighting not in ("rank", "presence")
