"""The mappings by name: for each its class, its settings and, where `auto` can choose it, how it is judged.

A mapping of your own is one file: a settings class, a subclass of `reprogram.mappings.base.Mapping`, and a call of
`register_mapping`. The command line, `reprogram map`, `LabelMapper`, saving and loading know it from there.
"""

from dataclasses import dataclass
from typing import Any

from reprogram.errors import ReprogramError
from reprogram.mappings import settings as s
from reprogram.mappings.settings import MappingSettings
from reprogram.registry import SettingsRegistry, imported

AUTO = "auto"
_RESERVED = {"name", "source_labels", "classes", "seed", "span", "weighted"}


@dataclass(frozen=True)
class Family:
    """A named mapping.

    Attributes:
        name: what it is called.
        summary: what it is, in a few words.
        mapping: its class, a subclass of `Mapping`, or "module:Class".
        settings: its settings, a subclass of `MappingSettings`.
        scorer: how `auto` judges its settings on samples that they were not estimated from, a `Scorer` (see
            `reprogram.mappings.scorers`) or "module:Class"; None where `auto` does not consider it.
    """

    name: str
    summary: str
    mapping: Any
    settings: type[MappingSettings]
    scorer: Any = None

    def load(self) -> Any:
        """The class."""
        return imported(self.mapping)


MAPPINGS: SettingsRegistry[Family] = SettingsRegistry("mapping")


def register_mapping(name: str, mapping: Any, settings: type[MappingSettings], summary: str, *, scorer: Any = None) -> None:
    """Make a mapping known by a name; the arguments are those of `Family`."""
    if name == AUTO:
        raise ReprogramError(f"a mapping cannot be called {AUTO!r}, which means that one is chosen; give it another name")
    if taken := sorted(_RESERVED & set(settings.model_fields)):
        raise ReprogramError(f"mapping {name!r} has a setting {taken[0]!r}, which every mapping is told; rename it")
    MAPPINGS.register(name, Family(name, summary, mapping, settings, scorer))


def _built_in(name: str, where: str, settings: type[MappingSettings], summary: str, scorer: str | None = None) -> None:
    judge = None if scorer is None else f"reprogram.mappings.scorers:{scorer}"
    register_mapping(name, f"reprogram.mappings.{where}", settings, summary, scorer=judge)


_built_in("rlm", "assignment:RandomMapping", s.NormalizedSettings, "random one-to-one")
_built_in("flm", "assignment:OneToOneMapping", s.OnceSettings, "greedy one-to-one, once", "OneToOneScorer")
_built_in("ilm", "assignment:OneToOneMapping", s.OneToOneSettings, "greedy one-to-one")
_built_in("blm", "bayesian:BayesMapping", s.BayesSettings, "Bayes on counts", "BayesScorer")
_built_in("blm+", "bayesian:TopKBayesMapping", s.TopKBayesSettings, "Bayes on top-K", "TopKBayesScorer")
_built_in("gaussian", "gaussians:GaussianMapping", s.GaussianSettings, "Bayes with normal densities", "GaussianScorer")
register_mapping(
    "gaussian+",
    "reprogram.mappings.top_k:TopKGaussianMapping",
    s.TopKGaussianSettings,
    "Bayes with normal densities on top-K answers",
    scorer="reprogram.mappings.top_k:TopKGaussianScorer",
)
_built_in("linear", "learned:LearnedMapping", s.NormalizedSettings, "a weight matrix learned by gradient, no bias")
_built_in("sigmoid", "learned:SigmoidMapping", s.NormalizedSettings, "the same, squashed by a sigmoid")
_built_in("none", "named:SameLabelsMapping", s.NormalizedSettings, "source labels as they are, where the label sets agree")
_built_in("ensemble", "named:EnsembleMapping", s.NormalizedSettings, "the mean of each class's texts, zero-shot (CLIP)")
