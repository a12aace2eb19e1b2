"""Labels judged by mappings that do not know them: suspicious labels, duplicates, classes that are hard to tell apart."""

from typing import TYPE_CHECKING

from reprogram.lazy import lazy_names

if TYPE_CHECKING:
    from reprogram.audit.api import audit_data as audit_data
    from reprogram.audit.api import audit_files as audit_files
    from reprogram.audit.api import audit_logits as audit_logits
    from reprogram.audit.classes import ClassSize as ClassSize
    from reprogram.audit.classes import Confusion as Confusion
    from reprogram.audit.duplicates import Duplicate as Duplicate
    from reprogram.audit.report import Audit as Audit
    from reprogram.audit.report import Suspicion as Suspicion

_WHERE = {
    "Audit": "reprogram.audit.report",
    "audit_data": "reprogram.audit.api",
    "audit_files": "reprogram.audit.api",
    "audit_logits": "reprogram.audit.api",
    "ClassSize": "reprogram.audit.classes",
    "Confusion": "reprogram.audit.classes",
    "Duplicate": "reprogram.audit.duplicates",
    "Suspicion": "reprogram.audit.report",
}
__getattr__, __dir__, __all__ = lazy_names(__name__, _WHERE)
