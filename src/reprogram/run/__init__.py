"""A run: its one schema, its defaults, its folder."""

from typing import TYPE_CHECKING

from reprogram.lazy import lazy_names

if TYPE_CHECKING:
    from reprogram.run.config import FitConfig as FitConfig
    from reprogram.run.defaults import Facts as Facts
    from reprogram.run.defaults import resolve as resolve
    from reprogram.run.examples import Examples as Examples
    from reprogram.run.examples import gather_examples as gather_examples
    from reprogram.run.folder import run_fit as run_fit
    from reprogram.run.folder import stored_config as stored_config
    from reprogram.run.one_call import fit_data as fit_data
    from reprogram.run.record import RunRecord as RunRecord
    from reprogram.run.record import read_run as read_run

_WHERE = {
    "Examples": "reprogram.run.examples",
    "Facts": "reprogram.run.defaults",
    "fit_data": "reprogram.run.one_call",
    "FitConfig": "reprogram.run.config",
    "gather_examples": "reprogram.run.examples",
    "read_run": "reprogram.run.record",
    "resolve": "reprogram.run.defaults",
    "run_fit": "reprogram.run.folder",
    "RunRecord": "reprogram.run.record",
    "stored_config": "reprogram.run.folder",
}
__getattr__, __dir__, __all__ = lazy_names(__name__, _WHERE)
