"""How sure the model of a fit may be: measured at its end, on images that it was not made from, or on each without it."""

from functools import partial
from typing import Any

from torch import Tensor

from reprogram.data.dataset import DataSet
from reprogram.mappings.certainty import measure_certainty
from reprogram.progress import Progress
from reprogram.ranks import ALONE, Ranks
from reprogram.reprogrammed import Reprogrammed
from reprogram.training.kept import KeptLogits, keep_logits, logit_blocks
from reprogram.training.settings import TrainingSettings


def certify(
    model: Reprogrammed,
    data: DataSet,
    sizes: dict[str, int],
    settings: TrainingSettings,
    kept: KeptLogits | None,
    seen: Tensor | None,
    progress: Progress,
    ranks: Ranks = ALONE,
) -> None:
    """Measure how sure the model may be and hang it on its mapping.

    Where something was trained, its training images have shaped the program, which no leaving out undoes: validation images
    are taken, if there are any. Where nothing was trained, each training image, or each group of them, is judged by the
    mapping without it; of several views of each image, by that of the centre ones.

    Args:
        model: as the fit leaves it.
        data: decoded.
        sizes: the side that each split was decoded to.
        settings: of the fit; `calibration` none measures nothing.
        kept: the logits of the training images, where they are at hand.
        seen: the logits of all validation images, where they are.
        progress: where to show progress.
        ranks: the processes that share the images out; each then measures the same.
    """
    mapping = model.mapping
    mapping.certainty = None
    if settings.calibration == "none" or not settings.views:  # 0: no image shall tell anything
        return
    how: dict[str, Any] = {"batch_size": settings.batch_size, "progress": progress, "ranks": ranks}
    how |= {"precision": settings.precision, "what": "measuring how sure it may be"}
    options: dict[str, Any] = {"log_probabilities": model.frozen.log_probabilities}
    if model.trainable and data.val is not None and len(data.val):
        if seen is None:
            held = keep_logits(model, data.val, **how, pixels=sizes["val"]).blocks
        else:
            held = partial(logit_blocks, seen, data.val.labels, data.val.group_numbers())
        measure_certainty(mapping, held, held_out=True, what="validation images", **options)
    elif not mapping.learned:
        if kept is None or not kept.whole:
            kept = keep_logits(model, data.train, **how, pixels=sizes["train"])
        measure_certainty(mapping, kept.blocks, **options)
    if mapping.certainty is not None:
        progress.say(str(mapping.certainty))
        for note in mapping.certainty.notes:
            progress.say(f"note: {note}")
