"""A run as files that need no `reprogram` and no torch: ONNX, ONNX Runtime adapters on one backbone, torch.export."""

from typing import TYPE_CHECKING

from reprogram.lazy import lazy_names

if TYPE_CHECKING:
    from reprogram.export.api import export_run as export_run
    from reprogram.export.session import Backbone as Backbone
    from reprogram.export.session import Exported as Exported
    from reprogram.export.session import load_exported as load_exported

_WHERE = {
    "Backbone": "reprogram.export.session",
    "export_run": "reprogram.export.api",
    "Exported": "reprogram.export.session",
    "load_exported": "reprogram.export.session",
}
__getattr__, __dir__, __all__ = lazy_names(__name__, _WHERE)
