"""A data set: classes and splits of (image, label)."""

from typing import TYPE_CHECKING

from reprogram.lazy import lazy_names

if TYPE_CHECKING:
    from reprogram.data.dataset import ArraySplit as ArraySplit
    from reprogram.data.dataset import DataSet as DataSet
    from reprogram.data.dataset import FileSplit as FileSplit
    from reprogram.data.dataset import Split as Split
    from reprogram.data.decode import Decoding as Decoding
    from reprogram.data.load import load_data as load_data
    from reprogram.data.registry import DataFormat as DataFormat
    from reprogram.data.registry import register_format as register_format

_WHERE = {
    "ArraySplit": "reprogram.data.dataset",
    "DataFormat": "reprogram.data.registry",
    "DataSet": "reprogram.data.dataset",
    "Decoding": "reprogram.data.decode",
    "FileSplit": "reprogram.data.dataset",
    "load_data": "reprogram.data.load",
    "register_format": "reprogram.data.registry",
    "Split": "reprogram.data.dataset",
}
__getattr__, __dir__, __all__ = lazy_names(__name__, _WHERE)
