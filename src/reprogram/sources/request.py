"""What is asked of a loader, and how a loader says that it cannot be had."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Generic, TypeVar

from torch import Tensor

from reprogram.errors import ReprogramError, first_line
from reprogram.progress import Progress
from reprogram.sources.settings import SourceOptions
from reprogram.sources.weights import read_weights

Options = TypeVar("Options", bound=SourceOptions)


@dataclass(frozen=True)
class Request(Generic[Options]):
    """A model to load.

    Attributes:
        source: the part of the name before the colon.
        architecture: the part behind it.
        options: what this source takes besides.
        path: the path in the name, where it is one.
        pretrained: trained weights, or random ones.
        weights: a file of the user's own.
        seed: of random weights.
        offline: nothing may be fetched.
        classes: the class names that go into the texts of a model that compares images with texts.
        progress: where a long job is shown.
    """

    source: str
    architecture: str
    options: Options
    path: Path | None = None
    pretrained: bool = True
    weights: Path | None = None
    seed: int = 0
    offline: bool = False
    classes: Sequence[str] | None = None
    progress: Progress | None = None

    @property
    def name(self) -> str:
        """The whole name, as the user wrote it."""
        return f"{self.source}:{self.architecture}"

    def state(self) -> dict[str, Tensor] | None:
        """The state dict in the user's own weights file."""
        return None if self.weights is None else read_weights(self.weights)


def unavailable(name: str, error: Exception, pretrained: bool) -> ReprogramError:
    """The error for a model that its zoo cannot hand out."""
    if pretrained:
        return ReprogramError(
            f"the trained weights of {name} could not be fetched ({first_line(error)}); connect to the network, "
            "give a file with --weights, or take random weights with --no-pretrained"
        )
    return ReprogramError(f"model {name} cannot be built ({first_line(error)}); choose another one")
