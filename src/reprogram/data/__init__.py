"""A data set: classes + splits of (image, label). `load_data` makes one from a name or a folder."""

from pathlib import Path

from reprogram.data.dataset import ArraySplit, DataSet, FileSplit, Split
from reprogram.data.digits import load_digits
from reprogram.data.folders import load_folder, load_labelled
from reprogram.errors import ReprogramError, nearest

__all__ = ["BUNDLED_DATA", "ArraySplit", "DataSet", "FileSplit", "Split", "load_data", "load_labelled"]

BUNDLED_DATA = {"digits": "1,797 handwritten digits of 8×8 pixels, 10 classes, inside scikit-learn (no download)"}


def load_data(spec: str | Path, *, seed: int = 0) -> DataSet:
    """Load a labelled data set.

    Args:
        spec: `digits`, or a folder. A folder holds `train/`, `test/` and perhaps `val/` with one folder per class in each;
            or it holds the class folders themselves and is split by the seed.
        seed: of that split; a folder with its own splits does not depend on it.
    """
    if spec == "digits":
        return load_digits()
    path = Path(spec)
    if not path.is_dir():
        raise ReprogramError(
            f"data {str(spec)!r} is neither a folder nor a bundled set{nearest(str(spec), BUNDLED_DATA)} "
            f"(give the path of an image folder, or {', '.join(BUNDLED_DATA)})"
        )
    return load_folder(path, seed)
