"""What all statistics have in common: counting with weights, taking samples out again, and what cannot be combined."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from reprogram.errors import ReprogramError
from reprogram.statistics.gaussian import GaussianStatistics
from reprogram.statistics.joint import JointStatistics

fast = settings(deadline=None, derandomize=True, max_examples=30)
K_SOURCE, K_TARGET = 6, 4
WEIGHTED = {
    "counts": lambda: JointStatistics.counts(K_SOURCE, K_TARGET, moments=True, weighted=True),
    "probabilities": lambda: JointStatistics.probabilities(K_SOURCE, K_TARGET, 3, moments=True, weighted=True),
    "gaussian": lambda: GaussianStatistics(K_SOURCE, K_TARGET),
}
PLAIN = {
    "counts": lambda: JointStatistics.counts(K_SOURCE, K_TARGET, moments=True),
    "probabilities": lambda: JointStatistics.probabilities(K_SOURCE, K_TARGET, 3, moments=True),
    "gaussian": lambda: GaussianStatistics(K_SOURCE, K_TARGET),
}
kinds = pytest.mark.parametrize("kind", sorted(WEIGHTED))


def drawn(seed, n=200):
    """Logits, targets and weights of n samples; every class has at least one."""
    generator = torch.Generator().manual_seed(seed)
    targets = torch.cat([torch.arange(K_TARGET), torch.randint(0, K_TARGET, (n - K_TARGET,), generator=generator)])
    logits = 3 * torch.randn(n, K_SOURCE, generator=generator)
    return logits, targets, torch.rand(n, generator=generator, dtype=torch.float64)


def counted(statistics):
    """What samples add to; `removed` remembers what was taken out, so it differs where nothing else does."""
    return {name: part for name, part in statistics.named_buffers() if name != "removed"}


def of_class(statistics, number):
    """Everything that is kept for one class alone."""
    return {
        name: part[..., number]
        for name, part in statistics.named_buffers()
        if part.shape[-1] == K_TARGET and name != "within"
    }


@kinds
def test_a_forgotten_class_is_exactly_empty_in_whatever_order_its_samples_go(kind):
    for trial in range(50):
        logits, targets, weights = drawn(trial, 60)
        whole = WEIGHTED[kind]().update(logits, targets, weights)
        order = torch.randperm(60, generator=torch.Generator().manual_seed(trial))
        order = order[targets[order] == trial % K_TARGET]
        gone = WEIGHTED[kind]()
        for part in order.split(7):
            gone.update(logits[part], targets[part], weights[part])
        whole.subtract(gone)
        for name, part in of_class(whole, trial % K_TARGET).items():
            assert not part.any(), (trial, name)
        rest = targets != trial % K_TARGET
        expected = WEIGHTED[kind]().update(logits[rest], targets[rest], weights[rest])
        for name, part in counted(whole).items():
            torch.testing.assert_close(part, expected.get_buffer(name), rtol=1e-10, atol=1e-10)


@kinds
def test_shares_that_sum_to_one_can_be_forgotten(kind):
    for trial in range(100):
        logits, targets, weights = drawn(trial)
        weights = weights / weights.sum()
        order = torch.randperm(200, generator=torch.Generator().manual_seed(trial))
        gone, kept = order[:150], order[150:]
        left = WEIGHTED[kind]().update(logits, targets, weights)
        left.subtract(WEIGHTED[kind]().update(logits[gone], targets[gone], weights[gone]))
        expected = WEIGHTED[kind]().update(logits[kept], targets[kept], weights[kept])
        assert torch.equal(left.counted, torch.bincount(targets[kept], minlength=K_TARGET))
        for name, part in counted(left).items():
            torch.testing.assert_close(part, expected.get_buffer(name), rtol=1e-9, atol=1e-12)


@kinds
@fast
@given(
    seed=st.integers(0, 9999),
    n=st.integers(4, 60),
    cut=st.integers(0, 60),
    size=st.sampled_from([1e-12, 1e-3, 1.0, 1e6]),
    chunk=st.integers(1, 20),
)
def test_forgetting_in_pieces_undoes_counting(kind, seed, n, cut, size, chunk):
    logits, targets, weights = drawn(seed, n)
    weights = size * weights
    order = torch.randperm(n, generator=torch.Generator().manual_seed(seed))
    left = WEIGHTED[kind]().update(logits, targets, weights)
    for part in order[:cut].split(chunk):
        left.subtract(WEIGHTED[kind]().update(logits[part], targets[part], weights[part]))
    kept = order[cut:]
    expected = WEIGHTED[kind]().update(logits[kept], targets[kept], weights[kept])
    assert torch.equal(left.counted, expected.counted)
    for name, part in counted(left).items():
        if name == "rounding":  # says how far the others may be off
            continue
        scale = float(WEIGHTED[kind]().update(logits, targets, weights).get_buffer(name).abs().max())
        if name in ("within", "spread"):  # of single samples it is rounding and nothing else
            scale = float((weights[:, None] * logits.double().square()).sum())
        torch.testing.assert_close(part, expected.get_buffer(name), rtol=0, atol=1e-11 * scale)
    for number in (expected.counted == 0).nonzero().flatten().tolist():
        assert not any(part.any() for part in of_class(left, number).values())


@kinds
def test_more_samples_than_there_are_cannot_be_forgotten(kind):
    logits, targets, weights = drawn(0, 20)
    for make, given_weights in ((PLAIN[kind], None), (WEIGHTED[kind], weights)):
        whole = make().update(logits, targets, given_weights)
        before = {name: part.clone() for name, part in whole.named_buffers()}
        twice = make().merge(whole).merge(whole)
        with pytest.raises(ReprogramError, match="do not contain all samples"):
            whole.subtract(twice)
        for name, part in whole.named_buffers():
            assert torch.equal(part, before[name])


@kinds
@pytest.mark.parametrize("factor", [0.5, 0.99999, 1.00001, 2.0])
def test_samples_are_forgotten_with_the_weights_that_they_had(kind, factor):
    """All samples of a class go, but with other weights: something is left of it, or missing, that never was a sample."""
    logits, targets, weights = drawn(0, 40)
    whole = WEIGHTED[kind]().update(logits, targets, weights)
    first = targets == 0
    other = WEIGHTED[kind]().update(logits[first], targets[first], factor * weights[first])
    with pytest.raises(ReprogramError, match="do not contain all samples"):
        whole.subtract(other)


@kinds
def test_samples_of_no_weight_are_not_there(kind):
    logits, targets, weights = drawn(1, 30)
    weights[::3] = 0
    there = weights > 0
    whole = WEIGHTED[kind]().update(logits, targets, weights)
    assert (whole.n, whole.weight) == (20, pytest.approx(float(weights.sum()), rel=1e-12))
    whole.subtract(WEIGHTED[kind]().update(logits[there], targets[there], weights[there]))
    assert all(not part.any() for part in whole.buffers())


@kinds
def test_a_light_sample_beside_heavy_ones_leaves_no_negative_weight(kind):
    logits, targets, weights = drawn(2, 12)
    targets[:] = 1
    weights[0] = 1e-30
    whole = WEIGHTED[kind]().update(logits, targets, weights)
    for i in range(11, 0, -1):
        whole.subtract(WEIGHTED[kind]().update(logits[[i]], targets[[i]], weights[[i]]))
    assert whole.counted.tolist() == [0, 1, 0, 0]
    assert (whole.samples >= 0).all()


@kinds
@pytest.mark.parametrize("dtype", [torch.uint8, torch.int16, torch.int32, torch.int64])
def test_targets_of_any_integer_type(kind, dtype):
    logits, targets, _ = drawn(3, 30)
    expected = PLAIN[kind]().update(logits, targets)
    found = PLAIN[kind]().update(logits, targets.to(dtype))
    for name, part in expected.named_buffers():
        assert torch.equal(found.get_buffer(name), part)


@kinds
def test_the_number_of_samples_is_saved(kind, tmp_path):
    whole = WEIGHTED[kind]().update(*drawn(4, 30))
    whole.save(tmp_path / "statistics.safetensors")
    again = type(whole).load(tmp_path / "statistics.safetensors")
    assert (again.n, again.weight) == (whole.n, whole.weight) == (30, float(whole.samples.sum()))


@kinds
@pytest.mark.parametrize("size", [1.0, 1e13, 1e14, 1e15, 1e17, 1e30, 1e99])
def test_weights_of_any_size_can_be_taken_out_in_any_order(kind, size):
    """Large sums of float64 are whole numbers, but not exact ones."""
    for trial in range(30):
        logits, targets, weights = drawn(trial, 60)
        whole = WEIGHTED[kind]().update(logits, targets, weights * size)
        order = torch.randperm(60, generator=torch.Generator().manual_seed(trial))
        for part in order.split(17):
            whole.subtract(WEIGHTED[kind]().update(logits[part], targets[part], weights[part] * size))
        assert all(not part.any() for part in counted(whole).values())


def test_whole_weights_are_taken_out_exactly_beside_far_heavier_ones():
    weights = torch.tensor([2.0**48, 1.0, 2.0**48 - 5], dtype=torch.float64)
    whole = WEIGHTED["gaussian"]().update(torch.eye(6)[:3], torch.zeros(3, dtype=torch.int64), weights)
    whole.subtract(WEIGHTED["gaussian"]().update(torch.eye(6)[[2, 0]], torch.zeros(2, dtype=torch.int64), weights[[2, 0]]))
    assert whole.samples.tolist() == [1, 0, 0, 0]
