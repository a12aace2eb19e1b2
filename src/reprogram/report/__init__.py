"""One light HTML page for a run or for many: a summary in plain words, and charts that are drawn in the page."""

from typing import TYPE_CHECKING

from reprogram.lazy import lazy_names

if TYPE_CHECKING:
    from reprogram.report.write import write_report as write_report

_WHERE = {"write_report": "reprogram.report.write"}
__getattr__, __dir__, __all__ = lazy_names(__name__, _WHERE)
