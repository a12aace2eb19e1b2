"""What is asked of a loader, and how a loader says that it cannot be had."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from torch import Tensor

from reprogram.errors import ReprogramError
from reprogram.errors import first_line as first_line
from reprogram.progress import Progress
from reprogram.sources.black_box import Outputs
from reprogram.sources.weights import read_weights

Templates = str | Path | Sequence[str]


@dataclass(frozen=True)
class Request:
    """A model to load.

    Attributes:
        source: the part of the name before the colon.
        architecture: the part behind it.
        pretrained: trained weights, or random ones.
        weights: a file of the user's own.
        input_size: for files that leave it open.
        outputs: what a black box answers with, where its file does not say it.
        offline: nothing may be fetched.
        classes: the class names that go into the texts of a model that compares images with texts.
        templates: the texts that they go into: a name, a file or the templates themselves.
        progress: where a long job is shown.
    """

    source: str
    architecture: str
    pretrained: bool = True
    weights: Path | None = None
    input_size: int | None = None
    outputs: Outputs | None = None
    offline: bool = False
    classes: Sequence[str] | None = None
    templates: Templates | None = None
    progress: Progress | None = None

    @property
    def name(self) -> str:
        """The whole name, as the user wrote it."""
        return f"{self.source}:{self.architecture}"

    def state(self) -> dict[str, Tensor] | None:
        """The state dict in the user's own weights file."""
        return None if self.weights is None else read_weights(self.weights)


def extra_missing(package: str, extra: str = "models") -> ReprogramError:
    """The error for a package that is not installed."""
    return ReprogramError(f"{package} is not installed, but this model needs it; run: pip install 'reprogram[{extra}]'")


def unavailable(name: str, error: Exception, pretrained: bool) -> ReprogramError:
    """The error for a model that its zoo cannot hand out."""
    if pretrained:
        return ReprogramError(
            f"the trained weights of {name} could not be fetched ({first_line(error)}); connect to the network, "
            "give a file with --weights, or take random weights with --no-pretrained"
        )
    return ReprogramError(f"model {name} cannot be built ({first_line(error)}); choose another one")
