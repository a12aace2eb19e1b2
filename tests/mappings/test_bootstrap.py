"""Resamples of a table that is never held as a whole."""

import pytest
import torch

from reprogram.mappings.bootstrap import Bootstrap


def flags(n, seed=0, columns=3):
    return torch.rand(n, columns, generator=torch.Generator().manual_seed(seed)) < torch.tensor([0.3, 0.5, 0.9])[:columns]


def resampled(rows, sizes, **options):
    bootstrap = Bootstrap(len(rows), rows.shape[1], **options)
    for part in rows.split(sizes):
        bootstrap.add(part)
    return bootstrap


@pytest.mark.parametrize("n", [1, 50, 4096, 4097, 9000])
def test_every_resample_draws_n_rows_and_blocks_do_not_matter(n):
    rows = torch.cat([flags(n), torch.ones(n, 1, dtype=torch.bool)], dim=1)
    whole = resampled(rows, n, resamples=60)
    assert torch.equal(whole.totals, rows.sum(0))
    assert (whole.sums[:, 3] == n).all()
    for size in (max(n // 2, 1), 1000):
        assert torch.equal(resampled(rows, size, resamples=60).sums, whole.sums)


def test_few_rows_are_drawn_like_from_the_whole_table():
    rows = flags(200)
    generator = torch.Generator().manual_seed(0)
    drawn = torch.randint(200, (100, 200), generator=generator)
    assert torch.equal(resampled(rows, 64, resamples=100).sums, rows.double()[drawn].sum(1))


def test_many_rows_spread_as_a_bootstrap_does():
    """Means, variances and covariances of the sums are those of n draws with replacement: n · (p_ab − p_a·p_b)."""
    rows = flags(20_000)
    rows[:, 1] |= rows[:, 0]  # so that columns depend on each other
    rows[:10_000, 2] = True  # and the chunks differ
    sums = resampled(rows, 700, resamples=2000).sums
    shares = rows.double()
    expected = shares.T @ shares / 20_000 - torch.outer(shares.mean(0), shares.mean(0))
    found = sums.T.cov() / 20_000
    spread = expected.diagonal().sqrt()
    torch.testing.assert_close(sums.mean(0) / 20_000, shares.mean(0), rtol=0, atol=3e-4)
    assert ((found - expected).abs() / torch.outer(spread, spread)).max() < 0.12


def test_memory_holds_no_more_than_a_chunk_of_rows():
    bootstrap = Bootstrap(50_000, 3, resamples=20)
    for part in flags(50_000).split(1500):
        bootstrap.add(part)
        assert sum(map(len, bootstrap._waiting)) < 4096
