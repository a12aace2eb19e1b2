"""A data set: classes + splits of (image, label). `load_data` makes one from a name, a folder, a file or arrays."""

from dataclasses import replace
from pathlib import Path
from typing import Any

from reprogram.data.cache import decode_data
from reprogram.data.dataset import ArraySplit, DataSet, EncodedSplit, FileSplit, Split
from reprogram.data.digits import load_digits
from reprogram.data.folders import load_folder, load_labelled
from reprogram.errors import ReprogramError, nearest
from reprogram.files import cache_folder

__all__ = [
    "BUNDLED_DATA",
    "ArraySplit",
    "DataSet",
    "EncodedSplit",
    "FileSplit",
    "Split",
    "cache_folder",
    "decode_data",
    "load_data",
    "load_labelled",
]

BUNDLED_DATA = {"digits": "1,797 handwritten digits of 8×8 pixels, 10 classes, inside scikit-learn (no download)"}


def load_data(spec: Any, *, seed: int = 0, root: str | Path = "data") -> DataSet:
    """Load a labelled data set.

    Args:
        spec: one of
            `digits`; an image folder, with `train/`, `test/` and perhaps `val/` of class folders, or class folders alone;
            a `.csv`, `.tsv` or `.parquet` table with the columns path, label and perhaps split; a `.npz` file of arrays;
            `paper:<name>`, one of the paper's twelve sets under `root`; `hf:<name>`, through the `datasets` library;
            `torchvision:<Name>`, under `root`; a tuple (images, labels) of arrays or tensors; or a dictionary of
            `torch.utils.data.Dataset` objects with the keys train, test and perhaps val.
        seed: of the split where the data bring none.
        root: the folder that holds `paper:` and `torchvision:` sets.
    """
    if isinstance(spec, DataSet):
        return spec
    if isinstance(spec, (tuple, dict)):
        from reprogram.data.arrays import from_arrays, from_datasets

        return from_arrays(*spec, seed=seed) if isinstance(spec, tuple) else from_datasets(**spec)
    source, _, name = str(spec).partition(":")
    if spec == "digits":
        return load_digits()
    if source == "paper":
        from reprogram.data.paper import load_paper

        data, differences = load_paper(name, Path(root))
        return replace(data, notes=tuple(differences))
    if source == "hf":
        from reprogram.data.hub import load_hub

        return load_hub(name, seed=seed)
    if source == "torchvision":
        from reprogram.data.torchvision_sets import load_torchvision

        return load_torchvision(name, Path(root), seed=seed)
    path = Path(spec)
    if path.is_dir():
        return load_folder(path, seed)
    if path.is_file() and path.suffix.lower() in (".csv", ".tsv", ".parquet"):
        from reprogram.data.tables import load_table

        return load_table(path, seed)
    if path.is_file() and path.suffix.lower() == ".npz":
        from reprogram.data.arrays import load_npz

        return load_npz(path, seed)
    raise ReprogramError(
        f"data {str(spec)!r} is neither a folder, a .csv, .parquet or .npz file, nor a known set"
        f"{nearest(str(spec), BUNDLED_DATA)} (see: reprogram datasets)"
    )
