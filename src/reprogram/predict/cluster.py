"""The same rows from many machines: a Ray cluster whose workers load the model themselves and classify some batches each."""

import functools
import itertools
import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from reprogram.answers.parallel import Workers
from reprogram.devices import choose_device
from reprogram.files.tables import Row
from reprogram.predict.rows import Wanted
from reprogram.predict.stream import predicted
from reprogram.predict.words import Meant
from reprogram.reprogrammed import Reprogrammed

_TOGETHER = 256  # images of one task, at least: what a task costs besides is small against them


@dataclass(frozen=True)
class Model:
    """What a worker loads.

    Attributes:
        folder: run or artefact folder, which all machines see under this path, as they do the images.
        weights: the source model's weights file, if that has moved.
        device: where it computes.
        passes: how many images there are at least, all workers together: by this they prepare it alike.
    """

    folder: str
    weights: str | None
    device: str
    passes: int


def predicted_by(workers: Workers, model: Model, images: Iterable[Meant], wanted: Wanted) -> Iterator[list[Row]]:
    """The rows of one batch after the other, as `predicted` gives them; the batches are the same ones."""
    shared = (model, wanted.model_dump_json(), os.getcwd())  # noqa: PTH109  # paths may be relative
    for batches in workers.map(_classified, shared, _tasks(images, wanted.batch_size)):
        yield from batches


def _tasks(images: Iterable[Meant], batch_size: int) -> Iterator[list[Meant]]:
    source, size = iter(images), batch_size * max(1, _TOGETHER // batch_size)
    while task := list(itertools.islice(source, size)):
        yield task


def _classified(shared: tuple[Model, str, str], task: list[Meant]) -> list[list[Row]]:
    model, wanted, folder = shared
    there = [image if image.problem else Meant(str(Path(folder, image.path))) for image in task]
    # one process decodes, so that a picture that ends its decoder does not end the worker, and what it holds
    found = list(predicted(_loaded(model), there, Wanted.model_validate_json(wanted), 1))
    names = iter(image.path for image in task)
    return [[{**row, "image": next(names)} for row in rows] for rows in found]


@functools.lru_cache(1)
def _loaded(model: Model) -> Reprogrammed:
    """The model, which a worker keeps from one task to the next."""
    loaded = Reprogrammed.load(model.folder, weights=model.weights).to(choose_device(model.device))
    loaded.accelerate(model.passes)
    return loaded
