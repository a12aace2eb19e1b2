"""Source labels that are texts: every class name in every template, for models that compare images with texts."""

from collections.abc import Sequence
from pathlib import Path

import torch
from torch import Tensor

from reprogram.errors import ReprogramError, shown
from reprogram.files.foreign import is_text, read_list
from reprogram.names import LONGEST_NAME, first_twice, plain_name

DEFAULT_TEMPLATE = "This is a photo of a {}."


class Texts(list[str]):
    """All texts of a model, template by template: text number template · k_T + class.

    It is the list of the texts, and knows what they were made of, so that the classes' own texts can be found again.

    Args:
        classes: k_T class names, in the order of their numbers; `plain_name` goes into the texts.
        templates: texts with `{}` in the place of the class name.
        embeddings: (k_S, d) of the texts, of length 1 each, where they are known; `ensemble` needs them.

    >>> texts = Texts(["Cat", "sea_lion"], ["a photo of a {}.", "a drawing of a {}."])
    >>> len(texts), texts[1], texts[2]
    (4, 'a photo of a sea lion.', 'a drawing of a cat.')
    """

    def __init__(self, classes: Sequence[str], templates: Sequence[str], embeddings: Tensor | None = None) -> None:
        self.classes, self.templates = tuple(classes), checked_templates(templates)
        if not self.classes or isinstance(classes, str):
            raise ReprogramError(f"classes {shown(classes)} were given, but a list of at least one class name is expected")
        names = [plain_name(name) for name in self.classes]
        twice = first_twice(names)
        if twice is not None:
            raise ReprogramError(f"two classes are both {twice!r} in a text, where classes must differ; rename one of them")
        super().__init__(template.replace("{}", name) for template in self.templates for name in names)
        self._lengths: Tensor | None = None
        if embeddings is not None:
            means = embeddings.detach().cpu().view(len(self.templates), len(self.classes), -1).mean(0, dtype=torch.float64)
            self._lengths = means.norm(dim=1)

    @property
    def embedded(self) -> bool:
        """Whether the embeddings are known, so that there is an `ensemble`."""
        return self._lengths is not None

    def rows(self, classes: Sequence[str]) -> Tensor:
        """(templates, len(classes)) int64: where the texts of these classes stand, in the order of the templates."""
        places = {plain_name(name): index for index, name in enumerate(self.classes)}
        missing = [name for name in classes if plain_name(name) not in places]
        if missing:
            raise ReprogramError(
                f"no text was made for class {missing[0]!r} ({len(missing)} of {len(classes)}); "
                "load the model with classes=data.classes"
            )
        columns = torch.tensor([places[plain_name(name)] for name in classes])
        return torch.arange(len(self.templates))[:, None] * len(self.classes) + columns

    def zero_shot(self, classes: Sequence[str]) -> Tensor:
        """ω (k_S, k_T) of no mapping at all: each class has its text in the default template, or in the first one."""
        first = self.templates.index(DEFAULT_TEMPLATE) if DEFAULT_TEMPLATE in self.templates else 0
        omega = torch.zeros(len(self), len(classes))
        omega[self.rows(classes)[first], torch.arange(len(classes))] = 1
        return omega

    def ensemble(self, classes: Sequence[str]) -> Tensor:
        """ω (k_S, k_T) of the usual zero-shot classifier: the mean of a class's text embeddings, scaled to length 1.

        The cosine with that mean is a weighted sum of the cosines with its parts, so it is a mapping: each text of class c
        weighs 1/(templates · length of the mean of c). A column sums to more than 1, as the mean is shorter than its parts.
        """
        if self._lengths is None:
            raise ReprogramError("these texts have no embeddings, but the ensemble needs them; take frozen.labels")
        rows = self.rows(classes)
        weights = 1 / (len(self.templates) * self._lengths[rows[0] % len(self.classes)])
        omega = torch.zeros(len(self), len(classes))
        omega[rows, torch.arange(len(classes))] = weights.float()
        return omega


def checked_templates(templates: Sequence[str]) -> tuple[str, ...]:
    """The templates, each with one place for the class name, none twice."""
    checked = (templates,) if isinstance(templates, str) else tuple(templates)
    for template in checked:
        if not isinstance(template, str) or template.count("{}") != 1 or not is_text(template):
            raise ReprogramError(
                f"template {shown(template)} was given, but a text with one {{}} for the class name is expected; "
                f"write for example {DEFAULT_TEMPLATE!r}"
            )
        if len(template) > LONGEST_NAME:
            raise ReprogramError(f"a template of {len(template)} letters was given, but {LONGEST_NAME} are the most; cut it")
    if len(set(checked)) != len(checked) or not checked:
        raise ReprogramError(f"{len(checked)} templates were given, but one or more different ones are expected")
    return checked


def read_templates(path: Path) -> tuple[str, ...]:
    """The templates in a text file, one per line; empty lines do not count."""
    lines = read_list(path, "templates file", "write one template per line, in UTF-8").splitlines()
    return checked_templates([line.strip() for line in lines if line.strip()])
