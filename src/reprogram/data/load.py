"""A data set: classes + splits of (image, label). `load_data` makes one from a name, a folder, a file or arrays."""

import os
from pathlib import Path
from typing import Any

from reprogram.data.dataset import ArraySplit, DataSet, FileSplit, Split
from reprogram.data.decode import Decoding
from reprogram.data.folders import load_folder, load_labelled
from reprogram.data.registry import LoadOptions, check_data_spec, find_format, given_path
from reprogram.errors import ReprogramError
from reprogram.registry import imported

__all__ = ["ArraySplit", "DataSet", "Decoding", "FileSplit", "Split", "load_data", "load_labelled"]


def load_data(
    spec: Any,
    *,
    split_seed: int | None = 0,
    root: str | Path = "data",
    download: bool = False,
    group: str | None = None,
    groups: Any = None,
) -> DataSet:
    """Load a labelled data set.

    Args:
        spec: one of
            `digits`; an image folder, with `train/`, `test/` and perhaps `val/` of class folders, or class folders alone;
            a `.csv`, `.tsv` or `.parquet` table with the columns path, label and perhaps split; a `.npz` file of arrays;
            `paper:<name>`, one of the paper's twelve sets under `root`; `hf:<name>`, through the `datasets` library;
            `torchvision:<Name>`, under `root`; a text of a format that was registered from outside; a tuple (images,
            labels) of arrays or tensors; or a dictionary of `torch.utils.data.Dataset` objects with the keys train, test
            and perhaps val.
        split_seed: decides which images are set aside for testing, where the data bring no split of their own. It
            belongs to the data, not to a run: runs with other seeds are measured on the same images.
        root: the folder that holds `paper:` and `torchvision:` sets.
        download: whether torchvision may fetch what is not under `root`.
        group: where the groups of the images stand, such as the videos that they are frames of, so that no group is
            divided: the name of a column of a table, of an array of an `.npz` file, or of a column of `hf:` data; for
            folders (and tables) a pattern such as `{group}_*.jpg` or `{group}/*`, see `GroupPattern`.
        groups: the same for arrays, a name or number for each image; for a dictionary of data sets, one such list for each.
    """
    if groups is not None and (isinstance(spec, DataSet) or not isinstance(spec, (tuple, dict))):
        raise ReprogramError(
            f"groups were given for data of type {type(spec).__name__}, but only arrays and dictionaries of data sets take "
            "them; name a column or a pattern with group, or use Split.with_groups"
        )
    if group is not None and not isinstance(spec, (str, os.PathLike)):
        raise ReprogramError(f"group {group!r} was given for data in memory; give a list of groups with groups")
    if isinstance(spec, DataSet):
        return spec
    if isinstance(spec, tuple):
        from reprogram.data.arrays import from_arrays

        return from_arrays(*spec, split_seed=split_seed, groups=groups)
    if isinstance(spec, dict):
        from reprogram.data.arrays import from_datasets

        return from_datasets(**spec, groups=groups)
    if not isinstance(spec, (str, os.PathLike)):
        raise ReprogramError(
            f"data are a {type(spec).__name__}, but a path, a name, a tuple (images, labels) or a dictionary of data sets "
            "is expected"
        )
    text = os.fspath(spec)
    check_data_spec(text, root, group)
    loaded: DataSet = imported(find_format(text).load)(text, LoadOptions(Path(root), split_seed, download, group))
    return loaded


def from_folder(spec: str, options: LoadOptions) -> DataSet:
    """Load an image folder."""
    return load_folder(given_path(spec), options.split_seed, options.group)


def from_table(spec: str, options: LoadOptions) -> DataSet:
    """Load a table of images."""
    from reprogram.data.tables import load_table

    return load_table(given_path(spec), options.split_seed, options.group)


def from_npz(spec: str, options: LoadOptions) -> DataSet:
    """Load a file of arrays."""
    from reprogram.data.arrays import load_npz

    return load_npz(given_path(spec), options.split_seed, options.group)


def from_digits(_spec: str, _options: LoadOptions) -> DataSet:
    """Load scikit-learn's digits, whose split is always the same."""
    from reprogram.data.digits import load_digits

    return load_digits()


def from_hub(spec: str, options: LoadOptions) -> DataSet:
    """Load a data set of the `datasets` library."""
    from reprogram.data.hub import load_hub

    return load_hub(spec.partition(":")[2], options.split_seed, options.group)


def from_torchvision(spec: str, options: LoadOptions) -> DataSet:
    """Load a data set of torchvision."""
    from reprogram.data.torchvision_sets import load_torchvision

    return load_torchvision(spec.partition(":")[2], options.root, options.download, options.split_seed)


def from_paper(spec: str, options: LoadOptions) -> DataSet:
    """Load one of the paper's data sets."""
    from reprogram.data.paper import load_paper

    return load_paper(spec.partition(":")[2], options.root)
