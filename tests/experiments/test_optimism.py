"""What best on test adds, run by run."""

import numpy as np
import pytest
from scipy import stats

from grids import grid, outcome
from reprogram.experiments.optimism import optimism


def test_the_excess_is_paired_and_over_data_sets():
    runs = grid()
    found = {(one.level, one.above): one for one in optimism(runs, "mapping")}
    assert set(found) == {(level, above) for level in ("blm", "blm+", "ilm") for above in ("selected", "last")}
    for (level, above), one in found.items():
        units = [
            np.mean(
                [
                    run.accuracy["best_on_test"] - run.accuracy[above]
                    for run in runs
                    if (run.labels["data"], run.labels["mapping"]) == (data, level)
                ]
            )
            for data in "abcd"
        ]
        low, high = stats.t.interval(0.95, 3, np.mean(units), stats.sem(units))
        assert one.excess.mean == pytest.approx(np.mean(units))
        assert one.excess.interval == pytest.approx((max(low, 0), high))
        assert (one.runs, one.left_out, one.excess.over) == (12, 0, "data")
        assert one.excess.chance is None  # an excess that cannot be negative is no question of its sign


def test_runs_without_validation_are_left_out_of_one_and_not_of_the_other():
    runs = [outcome({"mapping": "p"}, seed, None, last=0.5, best=0.5 + 0.01 * seed) for seed in range(3)]
    selected, last = optimism(runs, "mapping")
    assert (selected.runs, selected.left_out, selected.excess.mean) == (0, 3, None)
    assert (last.runs, last.left_out, last.excess.over) == (3, 0, "seeds")
    assert last.excess.mean == pytest.approx(0.01)
    assert last.excess.interval[0] == 0.0  # it cannot be below
