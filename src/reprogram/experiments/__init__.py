"""Grids of runs: a recipe becomes cells, each cell a run folder named by its content, finished runs become tables."""

from typing import TYPE_CHECKING

from reprogram.lazy import lazy_names

if TYPE_CHECKING:
    from reprogram.experiments.analysis import Analysis as Analysis
    from reprogram.experiments.analysis import analyse as analyse
    from reprogram.experiments.analysis import findings as findings
    from reprogram.experiments.comparison import Status as Status
    from reprogram.experiments.comparison import compare as compare
    from reprogram.experiments.figures import methods_drawing as methods_drawing
    from reprogram.experiments.figures import numeric_drawing as numeric_drawing
    from reprogram.experiments.outcomes import Failure as Failure
    from reprogram.experiments.outcomes import Outcome as Outcome
    from reprogram.experiments.outcomes import outcome_of as outcome_of
    from reprogram.experiments.pairs import compare_pair as compare_pair
    from reprogram.experiments.published import PublishedNumber as PublishedNumber
    from reprogram.experiments.published import PublishedTable as PublishedTable
    from reprogram.experiments.published import published_table as published_table
    from reprogram.experiments.recipe import Recipe as Recipe
    from reprogram.experiments.recipe import read_recipe as read_recipe
    from reprogram.experiments.reproduction import Reproduction as Reproduction
    from reprogram.experiments.reproduction import reproduce as reproduce
    from reprogram.experiments.settings import Plan as Plan
    from reprogram.experiments.tables import Results as Results
    from reprogram.experiments.tables import long_csv as long_csv
    from reprogram.experiments.tables import results as results
    from reprogram.experiments.tables import write_tables as write_tables

_WHERE = {
    "analyse": "reprogram.experiments.analysis",
    "Analysis": "reprogram.experiments.analysis",
    "compare": "reprogram.experiments.comparison",
    "compare_pair": "reprogram.experiments.pairs",
    "Failure": "reprogram.experiments.outcomes",
    "findings": "reprogram.experiments.analysis",
    "long_csv": "reprogram.experiments.tables",
    "methods_drawing": "reprogram.experiments.figures",
    "numeric_drawing": "reprogram.experiments.figures",
    "Outcome": "reprogram.experiments.outcomes",
    "outcome_of": "reprogram.experiments.outcomes",
    "Plan": "reprogram.experiments.settings",
    "published_table": "reprogram.experiments.published",
    "PublishedNumber": "reprogram.experiments.published",
    "PublishedTable": "reprogram.experiments.published",
    "read_recipe": "reprogram.experiments.recipe",
    "Recipe": "reprogram.experiments.recipe",
    "reproduce": "reprogram.experiments.reproduction",
    "Reproduction": "reprogram.experiments.reproduction",
    "results": "reprogram.experiments.tables",
    "Results": "reprogram.experiments.tables",
    "Status": "reprogram.experiments.comparison",
    "write_tables": "reprogram.experiments.tables",
}
__getattr__, __dir__, __all__ = lazy_names(__name__, _WHERE)
