"""A model on any number of image files: paths in, rows out, one after the other."""

from typing import TYPE_CHECKING

from reprogram.lazy import lazy_names

if TYPE_CHECKING:
    from reprogram.predict.paths import meant_images as meant_images
    from reprogram.predict.stream import predict_paths as predict_paths

_WHERE = {
    "meant_images": "reprogram.predict.paths",
    "predict_paths": "reprogram.predict.stream",
}
__getattr__, __dir__, __all__ = lazy_names(__name__, _WHERE)
