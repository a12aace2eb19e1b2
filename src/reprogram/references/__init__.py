"""What reprogramming is compared with: the same images and the same source model, a layer or all of it trained."""

from typing import TYPE_CHECKING

from reprogram.lazy import lazy_names

if TYPE_CHECKING:
    from reprogram.references.folder import run_reference as run_reference
    from reprogram.references.logistic import Logistic as Logistic
    from reprogram.references.logistic import fit_logistic as fit_logistic
    from reprogram.references.registry import REFERENCES as REFERENCES
    from reprogram.references.registry import Reference as Reference

_WHERE = {
    "fit_logistic": "reprogram.references.logistic",
    "Logistic": "reprogram.references.logistic",
    "Reference": "reprogram.references.registry",
    "REFERENCES": "reprogram.references.registry",
    "run_reference": "reprogram.references.folder",
}
__getattr__, __dir__, __all__ = lazy_names(__name__, _WHERE)
