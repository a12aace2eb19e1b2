"""Densities by a Cholesky factor are those by eigenvectors, and are left to these where rounding would show."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from reprogram.mappings import densities
from reprogram.mappings.densities import GaussianFit, by_eigenvectors, by_factor
from reprogram.mappings.gaussians import gaussian, gaussian_of
from reprogram.statistics.gaussian import GaussianStatistics

fast = settings(deadline=None, derandomize=True, max_examples=40)


def counted(seed, n, k_source, k_target, *, scale=1.0, constant=0, between=0, weighted=False):
    """Statistics of logits whose first columns are constant, and whose next ones differ between classes alone."""
    rng = np.random.default_rng(seed)
    labels = np.arange(n) % k_target
    logits = rng.normal(size=(n, k_source)) * scale + rng.normal(size=(k_target, k_source))[labels]
    logits[:, :constant] = 3.0
    logits[:, constant : constant + between] = labels[:, None]
    weights = torch.from_numpy(rng.uniform(0.5, 2, n)) if weighted else None
    statistics = GaussianStatistics(k_source, k_target + 1)  # the last class is absent
    return statistics.update(torch.from_numpy(logits.astype(np.float32)), torch.from_numpy(labels), weights)


@fast
@given(
    seed=st.integers(0, 999),
    n=st.integers(12, 80),
    k_source=st.integers(4, 30),
    k_target=st.integers(2, 4),
    shrinkage=st.sampled_from(["oas", 0.01, 0.5, 1.0]),
    constant=st.integers(0, 1),
    between=st.integers(0, 1),
    weighted=st.booleans(),
)
def test_both_ways_agree(seed, n, k_source, k_target, shrinkage, constant, between, weighted):
    statistics = counted(seed, n, k_source, k_target, constant=constant, between=between, weighted=weighted)
    about = torch.from_numpy(np.random.default_rng(seed).normal(size=(k_source, k_target + 1)))
    quick = by_factor(statistics, shrinkage, about)
    assert quick is not None
    mean, found = quick
    fit = GaussianFit.of(statistics)
    expected = by_eigenvectors(fit, shrinkage, about)
    torch.testing.assert_close(mean, fit.mean)
    torch.testing.assert_close(found.samples, expected.samples)
    for name in ("means", "precise", "about"):
        there = fit.basis @ getattr(expected, name)
        torch.testing.assert_close(getattr(found, name), there, rtol=1e-8, atol=1e-8 * float(there.abs().max()))
    torch.testing.assert_close(found.spread, expected.spread, rtol=1e-8, atol=1e-10)


@pytest.mark.parametrize("prior", [None, torch.eye(6, 4, dtype=torch.float64)], ids=["no prior", "prior"])
@pytest.mark.parametrize("priors", [False, True])
def test_the_mapping_is_the_same_by_both(prior, priors):
    statistics = counted(0, 40, 6, 3)
    quick = gaussian(statistics, priors=priors, prior=prior)
    slow = gaussian_of(GaussianFit.of(statistics), priors=priors, prior=prior)
    for one, other in zip(quick, slow, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize(
    ("statistics", "shrinkage"),
    [
        (counted(0, 40, 6, 3), 1e-9),  # of the sample covariance nearly all
        (counted(0, 3, 6, 3), "oas"),  # one sample of each class: nothing spreads
        (GaussianStatistics(3, 2), "oas"),  # nothing was counted
    ],
    ids=["hardly shrunk", "no spread", "empty"],
)
def test_what_is_nearly_singular_is_left_to_eigenvectors(statistics, shrinkage):
    assert by_factor(statistics, shrinkage) is None
    omega, _, bias = gaussian(statistics, shrinkage)
    assert omega.isfinite().all()
    assert bias.isfinite().all()


def test_a_training_decomposes_nothing(monkeypatch):
    def refuse(matrix):
        raise AssertionError("an eigendecomposition")

    monkeypatch.setattr(densities, "_eigen", refuse)
    gaussian(counted(0, 40, 20, 3))
