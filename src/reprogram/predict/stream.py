"""Paths → rows, as a stream: processes decode the next images while the model classifies those before."""

import itertools
import math
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import numpy as np
import torch

from reprogram.files.tables import Row
from reprogram.mappings.asked import Asked
from reprogram.mappings.predictions import Predictions
from reprogram.predict.decode import Decoded, Decoder
from reprogram.predict.paths import meant_images
from reprogram.predict.rows import Wanted, rows_of
from reprogram.predict.words import Meant
from reprogram.reprogrammed import Reprogrammed
from reprogram.threads import granted_cpus

_TOGETHER = 16  # images that a process is asked for at once
_WORTH_PROCESSES = 256  # images: fewer are decoded before processes have started
_PREPARED = 2**22  # pixels: as many images are looked at before a model is prepared for many


def predict_paths(
    model: Reprogrammed,
    words: str | Path | Iterable[str | Path],
    *,
    evidence: int = 3,
    top: int = 0,
    batch_size: int = 64,
    workers: int | None = None,
    **asked: Any,
) -> Iterator[Row]:
    """Classify image files, any number of them, one row after the other; nothing holds them all.

    A row has `image`, `label`, `probability`, `top`, `evidence`, `set`, `p_typical` and `none_of_these` as far as they are
    asked for, and `error`: an image that cannot be read has an error and nothing else.

    Args:
        model: what classifies.
        words: files, folders and patterns, as `reprogram.predict.meant_images` takes them; one or many.
        evidence: source labels to name for each image.
        top: classes to name with their probabilities, the likeliest first.
        batch_size: images that go through the model at once.
        workers: processes that decode; by default as many as there are cores, for few images none. A script that has them
            must start its work under `if __name__ == "__main__"`.
        asked: `coverage`, `unlike` and more, as for `Reprogrammed.predict`.
    """
    words = [words] if isinstance(words, (str, Path)) else words
    wanted = Wanted.read({"evidence": evidence, "top": top, "batch_size": batch_size, "asked": Asked.read(asked)})
    ready = prepared(model, meant_images(words))
    for rows in predicted(model, ready.images, wanted, ready.workers if workers is None else workers):
        yield from rows


class Prepared:
    """Images that wait, and what their number decides: by the first ones, so that a continued run decides the same.

    Attributes:
        images: all of them, once.
        workers: processes that are worth starting.
        passes: how many images there are at least.
    """

    def __init__(self, images: Iterator[Meant], canvas: int) -> None:
        enough = max(_WORTH_PROCESSES, _PREPARED // canvas**2 + 1)
        first = list(itertools.islice(images, enough))
        self.images, self.passes = itertools.chain(first, images), len(first)
        self.workers = 0 if self.passes < _WORTH_PROCESSES else granted_cpus()


def prepared(model: Reprogrammed, images: Iterator[Meant]) -> Prepared:
    """Look at the first images, and prepare the model if there are many."""
    found = Prepared(images, model.program.canvas)
    model.accelerate(found.passes)
    return found


def predicted(model: Reprogrammed, images: Iterable[Meant], wanted: Wanted, workers: int) -> Iterator[list[Row]]:
    """The rows of one batch after the other; which images share a batch depends on their places alone."""
    ahead = max(2, math.ceil(2 * workers * _TOGETHER / wanted.batch_size) + 1)
    waiting: deque[tuple[list[Meant], list[Future[Decoded]]]] = deque()
    with Decoder(workers, model.program.image_size, model.program.interpolation) as decoder:
        for batch in _batches(images, wanted.batch_size):
            paths = [image.path for image in batch if image.problem is None]
            parts = [paths[start : start + _TOGETHER] for start in range(0, len(paths), _TOGETHER)]
            waiting.append((batch, [decoder.submit(part) for part in parts]))
            if len(waiting) > ahead:
                yield _classified(model, *waiting.popleft(), wanted)
        while waiting:
            yield _classified(model, *waiting.popleft(), wanted)


def _batches(images: Iterable[Meant], size: int) -> Iterator[list[Meant]]:
    source = iter(images)
    while batch := list(itertools.islice(source, size)):
        yield batch


@torch.no_grad()
def _classified(model: Reprogrammed, batch: list[Meant], parts: Sequence["Future[Decoded]"], wanted: Wanted) -> list[Row]:
    decoded = [part.result() for part in parts]
    told = iter([problem for part in decoded for problem in part.problems])
    problems = [next(told) if image.problem is None else image.problem for image in batch]
    good = [part.pixels if not any(part.problems) else part.pixels[[not one for one in part.problems]] for part in decoded]
    pixels = torch.from_numpy(np.concatenate(good)) if good else torch.empty(0)
    if len(pixels):
        logits = model.source_logits(pixels).float()
        said = model.mapping.predict(logits, evidence=wanted.evidence, **wanted.asked.model_dump())
    else:
        said = Predictions.together((), len(model.classes))
    return list(rows_of([image.path for image in batch], problems, said, model.classes, wanted))
