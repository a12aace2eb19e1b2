"""From labelled images to a classifier in one call: what `reprogram fit` does, for Python."""

from dataclasses import replace
from pathlib import Path
from typing import Any

from reprogram.data.dataset import DataSet
from reprogram.data.load import load_data
from reprogram.errors import ReprogramError
from reprogram.mappings.settings import PriorMatrix
from reprogram.progress import Progress
from reprogram.ranks import ALONE, Ranks
from reprogram.run.build import IN_MEMORY, prepare
from reprogram.run.config import FitConfig
from reprogram.run.folder import run_fit
from reprogram.run.paths import located
from reprogram.run.steps import Book, carry_out
from reprogram.training.result import FitResult


def fit_data(
    data: Any,
    *,
    out: str | Path | None = None,
    resume: bool = False,
    progress: Progress | None = None,
    ranks: Ranks = ALONE,
    **settings: Any,
) -> FitResult:
    """Turn a frozen model into a classifier of these images, with sensible choices for whatever is not said.

    Args:
        data: all that `load_data` takes: a folder, a table, a name, arrays, a `DataSet`.
        out: a run folder to fill, as `reprogram fit --out` does; by default nothing is written.
        resume: continue the run in `out`.
        progress: where to show progress; silent by default.
        ranks: the processes that carry it out together and all call this; see `joined`.
        settings: the fields of `FitConfig` and the settings of the mapping, the program and the model source: the flags of
            `reprogram fit`, with `_` for `-`.

    Returns:
        The result; its `model` predicts, explains and saves.

    >>> result = fit_data("digits", program="none", mapping="gaussian", canvas=32)
    >>> result.accuracy["last"] > 0.8, len(result.model.classes)
    (True, 10)
    """
    named = isinstance(data, (str, Path))
    config = FitConfig.read({"data": str(data) if named else IN_MEMORY, **settings})
    config = located(config) if named else config
    loaded: DataSet | None = None if named else load_data(data, split_seed=config.split_seed, group=config.group)
    if resume and out is None:
        raise ReprogramError("resume was given without out; name the run folder that is to be continued")
    if out is not None:
        if isinstance(config.extras.get("prior"), PriorMatrix):
            raise ReprogramError(
                "an array was given as prior, but a run folder remembers only where a prior is; write it to a file with "
                "np.savez(path, prior=array), and give that path"
            )
        return run_fit(config, Path(out), data=loaded, resume=resume, progress=progress, ranks=ranks)
    progress = progress or Progress()
    prepared = prepare(config, loaded, progress, ranks=ranks)
    result = carry_out(prepared, Book(), progress)
    return replace(result, skipped=prepared.skipped)
