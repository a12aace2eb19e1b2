"""The classification data sets of torchvision, by the name of their class."""

import inspect
from pathlib import Path
from typing import Any

from reprogram.data.arrays import from_dataset, from_datasets
from reprogram.data.dataset import DataSet
from reprogram.errors import ReprogramError, first_line, unknown

_UNSAFE = {"LSUN"}  # it unpickles a file of the current folder, and a pickle from elsewhere can run any code
_SPLITS = {"train": ("train", "trainval"), "val": ("val", "valid"), "test": ("test",)}


def load_torchvision(name: str, root: Path, download: bool = False, split_seed: int | None = 0) -> DataSet:
    """Load a data set of `torchvision.datasets`.

    Sets with a training and a test part keep them; one without parts, such as `ImageFolder`, is split by `split_seed`.

    Args:
        name: of the class, for example `MNIST`, in any case.
        root: what the class takes as its root.
        download: let torchvision fetch what is missing.
        split_seed: of the split where the data set has none.
    """
    from reprogram.sources.load import import_torchvision

    sets = import_torchvision().datasets
    known = [key for key in sets.__all__ if inspect.isclass(getattr(sets, key)) and _is_map_style(getattr(sets, key))]
    name = next((key for key in known if key.lower() == name.lower()), name)
    if name not in known:
        raise unknown("torchvision data set", name, known)
    if name in _UNSAFE:
        raise ReprogramError(
            f"data 'torchvision:{name}' is refused, because its class runs what a file in the current folder says; "
            "copy its images into class folders and give that folder"
        )
    _turn_ghostscript_off()
    maker = getattr(sets, name)
    parameters = inspect.signature(maker).parameters
    given: dict[str, Any] = {"root": root} if "root" in parameters else {}
    if "download" in parameters:
        given["download"] = download
    needed = [
        key
        for key, parameter in parameters.items()
        if parameter.default is parameter.empty
        and parameter.kind not in (parameter.VAR_KEYWORD, parameter.VAR_POSITIONAL)
        and key not in ("root", "train", *(() if "train" in parameters else ("split",)))
    ]
    if needed:
        raise ReprogramError(
            f"data 'torchvision:{name}' cannot be loaded by its name alone, because its class wants {', '.join(needed)}; "
            "build it in Python and give it to reprogram.data.arrays.from_datasets"
        )

    def make(**part: Any) -> Any:
        try:
            return maker(**given, **part)
        except Exception as error:  # its classes raise whatever a damaged file leads them into
            if isinstance(error, ValueError) and "for argument split" in str(error):
                raise  # this set does not know that name of a part; see _first
            fetch = ", or let torchvision fetch them with --download" if "download" in parameters and not download else ""
            raise ReprogramError(
                f"data 'torchvision:{name}' cannot be loaded from {str(root)!r} ({first_line(error)}); put its files "
                f"there{fetch}"
            ) from None

    if "train" in parameters:
        return from_datasets(make(train=True), make(train=False), name=name)
    if "split" not in parameters:
        return from_dataset(make(), split_seed=split_seed, name=name)
    parts = {key: _first(make, words) for key, words in _SPLITS.items()}
    if parts["train"] is None:
        raise ReprogramError(f"data 'torchvision:{name}' has no split called train; build it in Python and give its parts")
    if parts["test"] is None:
        return from_dataset(parts["train"], split_seed=split_seed, name=name)
    return from_datasets(parts["train"], parts["test"], parts["val"], name=name)


def _turn_ghostscript_off() -> None:
    """Torchvision opens images of every kind, and PIL would hand PostScript to another program, by whatever name."""
    from PIL import EpsImagePlugin

    EpsImagePlugin.gs_binary = False


def _is_map_style(kind: Any) -> bool:
    return hasattr(kind, "__getitem__") and hasattr(kind, "__len__")


def _first(make: Any, words: tuple[str, ...]) -> Any:
    """The part under the first name that the class knows; torchvision raises a ValueError for the others."""
    for word in words:
        try:
            return make(split=word)
        except ReprogramError:  # itself a ValueError: the part has this name, but its files are not there
            raise
        except ValueError:
            continue
    return None
