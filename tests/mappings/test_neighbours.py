"""The hint at missing groups: given for repeated views, not for classes that are all alike, nor for few samples."""

import numpy as np
import pytest
import torch

from reprogram.mappings.neighbours import missing_groups, near_share, spread_places


def drawn(seed=0, n=400):
    """Ten classes, one of them with hardly any spread."""
    rng = np.random.default_rng(seed)
    classes = np.arange(n) % 10
    spread = np.where(classes == 0, 0.05, 1.0)[:, None]
    return torch.from_numpy(3 * rng.normal(size=(10, 30))[classes] + spread * rng.normal(size=(n, 30))).float()


def test_views_are_hinted_at_and_new_samples_are_not():
    samples = drawn()
    assert missing_groups(samples[:300], samples[300:]) is None
    views = samples.repeat_interleave(4, 0) + 0.1 * torch.randn(1600, 30, generator=torch.Generator().manual_seed(0))
    order = torch.randperm(1600, generator=torch.Generator().manual_seed(1))
    hint = missing_groups(views[order[:1300]], views[order[1300:]], "images")
    assert "% of the images measured on look like views" in hint
    assert "--group" in hint


@pytest.mark.parametrize(("fitted", "measured"), [(39, 100), (100, 39), (0, 0)])
def test_of_few_samples_nothing_is_said(fitted, measured):
    samples = drawn()
    assert missing_groups(samples[:fitted], samples[:measured]) is None


def test_constant_features_say_nothing_and_a_common_offset_changes_nothing():
    samples = drawn(1)
    assert near_share(torch.ones(60, 4), torch.ones(60, 4)) == 0
    wide = torch.cat([samples, torch.full((400, 1), 7e4)], 1) + 1000
    assert near_share(wide[:300], wide[300:]) == pytest.approx(near_share(samples[:300], samples[300:]), abs=0.01)


def test_places_are_spread_over_all():
    assert spread_places(1000, 7).tolist()[::3] == [0, 500, 999]
    assert len(spread_places(100_000, 8192).unique()) == 8192
