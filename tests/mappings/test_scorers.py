"""Each scorer against brute force: what a candidate gives to samples that it was not estimated from."""

import itertools

import pytest
import torch

from reprogram.errors import ignore_evidence_warnings
from reprogram.mappings.assignment import one_to_one
from reprogram.mappings.bayesian import bayes
from reprogram.mappings.gaussians import gaussian
from reprogram.mappings.registry import MAPPINGS
from reprogram.mappings.scorers import FOLDS, Candidate
from reprogram.registry import imported
from reprogram.statistics.gaussian import GaussianStatistics
from reprogram.statistics.joint import JointStatistics, top_count

K_SOURCE, K_TARGET, N = 7, 3, 24


def drawn(seed=0):
    generator = torch.Generator().manual_seed(seed)
    targets = torch.arange(N) % K_TARGET
    logits = 2 * torch.randn(N, K_SOURCE, generator=generator) + 3 * torch.eye(K_SOURCE)[targets]
    return logits, targets, torch.arange(N) // K_TARGET % FOLDS


def scored(name, grid, blocks=1, **options):
    """The candidates of a family with their tables (N, k_T), gathered and scored in several blocks."""
    family = MAPPINGS[name]
    scorer = imported(family.scorer)(family, K_SOURCE, K_TARGET, grid, **options)
    parts = list(zip(*(part.tensor_split(blocks) for part in drawn()), strict=True))
    for part in parts:
        scorer.gather(*part)
    tables = [torch.cat(rows) for rows in zip(*(list(scorer.scores(*part)) for part in parts), strict=True)]
    return dict(zip(map(str, scorer.candidates), tables, strict=True)), scorer


def normalised(logits, counted, normalize):
    mean, deviation = counted.moments_of_logits()
    if normalize == "none":
        return logits.double()
    return (logits.double() - mean) / (deviation.where(deviation > 0, 1) if normalize == "standardise" else 1)


@pytest.mark.parametrize("name", ["blm", "blm+"])
def test_bayes(name):
    grid = {"smoothing": (0.5, 10.0), "normalize": ("none", "centre", "standardise")}
    if name == "blm+":
        grid["top_ratio"] = (0.5, 1.0)  # K = 1 and 3 of three classes
    found, scorer = scored(name, grid, blocks=3)
    assert len(found) == (6 if name == "blm" else 12)
    logits, targets, _ = drawn()
    for candidate in scorer.candidates:
        chosen = candidate.settings
        kind, top_k = ("counts", 1) if name == "blm" else ("probabilities", top_count(chosen["top_ratio"], 3, 7))
        for i in range(N):
            others = torch.arange(N) != i
            counted = JointStatistics(kind, K_SOURCE, K_TARGET, top_k, moments=True).update(logits[others], targets[others])
            omega = bayes(counted, chosen["smoothing"]).double()
            expected = normalised(logits[i], counted, chosen["normalize"]) @ omega
            torch.testing.assert_close(found[str(candidate)][i], expected, rtol=1e-5, atol=1e-5)


def test_gaussian_with_and_without_priors():
    found, scorer = scored("gaussian", {"shrinkage": ("oas", 0.3), "priors": (False, True)}, blocks=3)
    assert len(found) == 4
    logits, targets, _ = drawn()
    for candidate in scorer.candidates:
        for i in range(N):
            others = torch.arange(N) != i
            counted = GaussianStatistics(K_SOURCE, K_TARGET).update(logits[others], targets[others])
            omega, mean, bias = gaussian(counted, **candidate.settings)
            expected = (logits[i].double() - mean) @ omega + bias
            torch.testing.assert_close(found[str(candidate)][i], expected, rtol=1e-8, atol=1e-8)


def test_one_to_one_on_folds():
    found, scorer = scored("flm", {"normalize": ("none", "centre", "standardise"), "optimal": (False, True)}, blocks=4)
    logits, targets, folds = drawn()
    for candidate, fold in itertools.product(scorer.candidates, range(FOLDS)):
        others = folds != fold
        counted = JointStatistics.counts(K_SOURCE, K_TARGET, moments=True).update(logits[others], targets[others])
        with ignore_evidence_warnings():
            omega = one_to_one(counted, optimal=candidate.settings["optimal"]).double()
        expected = normalised(logits[~others], counted, candidate.settings["normalize"]) @ omega
        torch.testing.assert_close(found[str(candidate)][~others], expected, rtol=1e-9, atol=1e-9)


def test_settings_that_are_not_in_the_grid_stay_at_their_defaults():
    found, _ = scored("blm", {})
    same, _ = scored("blm", {"smoothing": (1.0,), "normalize": ("none",)})
    torch.testing.assert_close(found["blm"], same["blm (smoothing 1, normalize none)"])


def test_log_probabilities_are_not_renormalised():
    """Answers that leave half of the probability unsaid: by Eq. 8 every sample adds half as much."""
    logits, targets, folds = drawn()
    answers = logits.log_softmax(1) + torch.tensor(0.5).log()
    family = MAPPINGS["blm+"]
    grid = {"top_ratio": ("all",), "smoothing": (0.5,)}
    scorer = imported(family.scorer)(family, K_SOURCE, K_TARGET, grid, log_probabilities=True)
    scorer.gather(answers, targets, folds)
    (found,) = scorer.scores(answers, targets, folds)
    others = torch.arange(N) != 0
    whole = JointStatistics.probabilities(K_SOURCE, K_TARGET, K_SOURCE).update(logits[others], targets[others])
    expected = answers[0].double() @ bayes(whole.matrix / 2, 0.5).double()
    torch.testing.assert_close(found[0], expected, rtol=1e-5, atol=1e-5)


def test_a_scorer_says_why_it_cannot_try():
    one, covariance = MAPPINGS["flm"], MAPPINGS["gaussian"]
    crowded = imported(one.scorer)(one, 3, 4, {})
    assert (crowded.obstacle, crowded.candidates) == ("4 classes do not find a label each among 3", [])
    large = imported(covariance.scorer)(covariance, 9000, 4, {})
    assert (large.obstacle, large.candidates) == ("its covariance of 9000 source labels is too large", [])
    span = torch.linalg.qr(torch.randn(9000, 5, generator=torch.Generator().manual_seed(0)))[0]
    assert imported(covariance.scorer)(covariance, 9000, 4, {}, span=span).obstacle is None


@pytest.mark.parametrize(
    ("name", "grid", "expected"),
    [
        ("gaussian", {"shrinkage": ("oas", 0.1)}, {"shrinkage": "oas"}),
        ("gaussian", {"shrinkage": (0.3, 0.1)}, {"shrinkage": 0.3}),
        ("blm", {"smoothing": (0.01, 1.0), "normalize": ("centre",)}, {"smoothing": 1.0, "normalize": "centre"}),
    ],
)
def test_the_default_is_the_family_s_own_where_the_grid_has_it(name, grid, expected):
    family = MAPPINGS[name]
    assert imported(family.scorer)(family, K_SOURCE, K_TARGET, grid).default() == Candidate(name, expected)
