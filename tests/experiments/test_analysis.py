"""The words: what was found, and what cannot be said with so few seeds and data sets."""

import pytest

from grids import grid, outcome
from reprogram.errors import ReprogramError
from reprogram.experiments.analysis import analyse, findings, pair_sentence
from reprogram.experiments.outcomes import Failure
from reprogram.experiments.pairs import compare_pair
from reprogram.experiments.ranks import rank


def said(runs, **options):
    return " ".join(analyse(runs, "mapping", **options).notes)


def test_few_data_sets_cannot_be_significant_and_it_is_said():
    notes = said(grid())
    assert "Differences are judged over 4 data sets, each the mean of its seeds" in notes
    assert "cannot give a probability below 0.125" in notes
    assert "no pair can be called significant at 0.05" in notes
    assert "reaches 4.3 standard errors to each side" in notes
    assert "rests on 4 blocks" in notes
    many = said(grid(data=tuple("abcdefghijkl")))
    assert "cannot give" not in many
    assert "rough" not in many


def test_one_data_set_speaks_for_itself_alone():
    assert "holds for this data set, not for others" in said(grid(data=("a",)))


def test_one_seed_and_seeds_that_change_nothing():
    assert "There is one seed, so intervals tell of test images alone" in said(grid(seeds=(0,)))
    same = [outcome({"data": "a", "mapping": name}, seed, 0.5) for name in "pq" for seed in range(2)]
    assert "In 2 cells all seeds gave the same accuracy" in said(same)
    assert "there is no interval and no test" in said(same)


def test_what_fell_back_failed_or_has_no_partner_is_counted():
    runs = grid()
    runs[0] = outcome(runs[0].labels, runs[0].seed, None, last=0.5)
    notes = said(runs[:-1], failures=[Failure("f", runs[-1].labels, runs[-1].seed, "diverged")])
    assert "In 1 of 35 runs there were no validation images" in notes
    assert "1 run failed, without any number" in notes
    assert "2 runs in these comparisons had no partner" in notes


def test_blocks_of_the_same_data_set_are_not_independent():
    assert "The 8 blocks of the ranks are of 4 data sets only" in said(grid(program=("none", "padding")))


def test_a_comparison_reads_the_same_from_both_sides():
    runs = grid()
    one = pair_sentence(compare_pair(runs, "mapping", "blm", "ilm"))
    assert one == pair_sentence(compare_pair(runs, "mapping", "ilm", "blm"))
    assert "over 4 data sets; ahead on" in one


def test_findings_tell_order_pairs_and_optimism():
    runs = grid(mapping=tuple("abcdef"))
    found = findings(analyse(runs, "mapping"), most=3)
    ranks = rank(runs, "mapping")
    order = sorted("abcdef", key=lambda level: ranks.average["abcdef".index(level)])
    assert found[0].startswith(f"By average rank over 4 blocks: {order[0]} (")
    assert found[1].startswith("Friedman's test: χ² = ")
    for sentence, other in zip(found[2:5], order[1:], strict=False):  # the best against those that follow it
        assert {sentence.split()[0], sentence.split(" ahead of ")[1][0]} == {order[0], other}
    assert found[5].startswith("Of 15 pairs, 15 can be judged: ")
    assert "and 0 with a probability below 0.05 after Holm's correction" in found[5]
    assert [sentence.rpartition(" above ")[2] for sentence in found[6:]] == ["selected.", "last."]


def test_an_excess_that_all_methods_share_is_told_once():
    runs = [outcome({"mapping": name}, 0, 0.1 * place, best=0.1 * place + 0.03) for place, name in enumerate("pqr")]
    assert findings(analyse(runs, "mapping"))[-1] == "Best on test is +3.0 points above last."


def test_nothing_finished_is_an_error():
    with pytest.raises(ReprogramError, match="no run is finished"):
        analyse([], "mapping")
