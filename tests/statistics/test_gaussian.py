"""The Gaussian statistics: means and scatter about them, whatever the origin of the logits, the pieces and the processes."""

import itertools
import threading

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from reprogram.errors import ReprogramError
from reprogram.statistics.gaussian import GaussianStatistics

fast = settings(deadline=None, derandomize=True, max_examples=40)


def drawn(seed=0, n=50, k_source=5, k_target=3, offset=0.0):
    generator = torch.Generator().manual_seed(seed)
    logits = torch.randn(n, k_source, generator=generator, dtype=torch.float64)
    targets = torch.randint(0, k_target, (n,), generator=generator)
    return logits + 2 * torch.randn(k_target, k_source, generator=generator, dtype=torch.float64)[targets] + offset, targets


def scatter_within(logits, targets, weights):
    """Σ w (z − m_t)(z − m_t)ᵀ, class by class."""
    total = torch.zeros(logits.shape[1], logits.shape[1], dtype=torch.float64)
    for number in targets.unique().tolist():
        mine, weight = logits[targets == number], weights[targets == number]
        about = mine - (weight[:, None] * mine).sum(0) / weight.sum()
        total += (weight[:, None] * about).T @ about
    return total


@fast
@given(
    seed=st.integers(0, 9999),
    chunk=st.integers(1, 50),
    weighted=st.booleans(),
    offset=st.sampled_from([0.0, -7.0, 1e3]),
)
def test_the_scatter_is_the_one_about_the_class_means(seed, chunk, weighted, offset):
    logits, targets = drawn(seed, offset=offset)
    weights = torch.rand(50, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    weights = weights + 0.1 if weighted else torch.ones(50, dtype=torch.float64)
    statistics = GaussianStatistics(5, 3)
    for part in torch.arange(50).split(chunk):
        statistics.update(logits[part], targets[part], weights[part] if weighted else None)
    torch.testing.assert_close(statistics.within, scatter_within(logits, targets, weights), rtol=1e-11, atol=1e-10)


@pytest.mark.parametrize("offset", [1e5, -1e6])
def test_a_common_offset_of_the_logits_costs_no_precision(offset):
    """The squares of such logits take all digits of a float64; their deviations do not."""
    logits, targets = drawn()
    near = GaussianStatistics(5, 3).update(logits, targets)
    far = GaussianStatistics(5, 3)
    for part in torch.arange(50).split(8):
        piece = GaussianStatistics(5, 3).update(logits[part] + offset, targets[part])
        far.merge(piece)
    torch.testing.assert_close(far.within, near.within, rtol=1e-7, atol=1e-7)
    far.subtract(GaussianStatistics(5, 3).update(logits[:20] + offset, targets[:20]))
    rest = GaussianStatistics(5, 3).update(logits[20:], targets[20:])
    torch.testing.assert_close(far.within, rest.within, rtol=1e-7, atol=1e-7)


def test_weights_count_as_repetitions_in_all_sums():
    logits, targets = drawn()
    times = torch.arange(50) % 3
    repeated = GaussianStatistics(5, 3).update(logits.repeat_interleave(times, 0), targets.repeat_interleave(times))
    weighted = GaussianStatistics(5, 3).update(logits, targets, times.double())
    for name in ("samples", "sums", "within"):
        torch.testing.assert_close(weighted.get_buffer(name), repeated.get_buffer(name), rtol=1e-12, atol=1e-12)
    assert weighted.effective_size == repeated.effective_size == int(times.sum())


def test_the_effective_size_of_shares_is_kish_s():
    logits, targets = drawn()
    plain = GaussianStatistics(5, 3).update(logits, targets)
    shares = GaussianStatistics(5, 3).update(logits, targets, torch.full((50,), 1 / 50, dtype=torch.float64))
    assert (plain.effective_size, shares.effective_size) == (50, pytest.approx(50, rel=1e-12))
    uneven = torch.rand(50, generator=torch.Generator().manual_seed(0), dtype=torch.float64) / 50
    found = GaussianStatistics(5, 3).update(logits, targets, uneven).effective_size
    assert found == pytest.approx(float(uneven.sum() ** 2 / uneven.square().sum()), rel=1e-12)


def test_statistics_in_different_spans_are_not_combined(tmp_path):
    spans = [torch.linalg.qr(torch.randn(9, 4, generator=torch.Generator().manual_seed(s)))[0] for s in range(2)]
    logits, targets = drawn(k_source=9)
    one, other = (GaussianStatistics(4, 3, span=span).update(logits, targets) for span in spans)
    for unlike in (other, GaussianStatistics(4, 3)):
        for combine in (one.merge, one.subtract):
            with pytest.raises(ReprogramError, match="cannot be combined"):
                combine(unlike)
    one.save(tmp_path / "one.safetensors")
    again = GaussianStatistics.load(tmp_path / "one.safetensors")
    assert one.copy().merge(again).n == 100
    with pytest.raises(ReprogramError, match="cannot be combined"):
        other.merge(again)
    assert one.empty().merge(one.with_classes([2, 1, 0])).n == 50


class Ring:
    """Stands for `torch.distributed` among threads: `all_reduce` waits for all and leaves the sum with each."""

    def __init__(self, size):
        self.barrier, self.lock, self.parts = threading.Barrier(size), threading.Lock(), []

    def all_reduce(self, part, group=None):
        with self.lock:
            self.parts.append(part.clone())
        self.barrier.wait()
        part.copy_(torch.stack(self.parts).sum(0))
        if self.barrier.wait() == 0:
            self.parts.clear()
        self.barrier.wait()


@pytest.mark.parametrize("offset", [0.0, 1e5])
def test_all_reduce_equals_one_stream_wherever_the_ranks_have_their_means(offset, monkeypatch):
    logits, targets = drawn(offset=offset)
    logits[:20] += 3  # the ranks see different means
    targets[20:] = targets[20:].clamp_min(1)  # and one of them lacks a class
    parts = [GaussianStatistics(5, 3).update(logits[s], targets[s]) for s in (slice(0, 20), slice(20, 50))]
    ring = Ring(2)
    monkeypatch.setattr(torch.distributed, "is_initialized", lambda: True)
    monkeypatch.setattr(torch.distributed, "all_reduce", ring.all_reduce)
    threads = [threading.Thread(target=part.all_reduce) for part in parts]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    whole = GaussianStatistics(5, 3).update(logits, targets)
    for part in parts:
        for name, value in whole.named_buffers():
            torch.testing.assert_close(part.get_buffer(name), value, rtol=1e-9, atol=1e-7 if offset else 1e-12)


@fast
@given(seed=st.integers(0, 999), cuts=st.lists(st.integers(0, 40), max_size=5))
def test_chunks_merge_and_subtract_like_the_whole(seed, cuts):
    logits, targets = drawn(seed, 40, 6, 3)
    whole = GaussianStatistics(6, 3).update(logits, targets)
    edges = [0, *sorted(cuts), 40]
    parts = [GaussianStatistics(6, 3).update(logits[a:b], targets[a:b]) for a, b in itertools.pairwise(edges)]
    merged = GaussianStatistics(6, 3)
    for part in reversed(parts):
        merged.merge(part)
    rest = whole.copy().subtract(parts[0])
    expected = GaussianStatistics(6, 3).update(logits[edges[1] :], targets[edges[1] :])
    for name, value in whole.named_buffers():
        torch.testing.assert_close(merged.get_buffer(name), value, rtol=1e-12, atol=1e-12)
        if name != "removed":  # it remembers what was taken out
            torch.testing.assert_close(rest.get_buffer(name), expected.get_buffer(name), rtol=1e-10, atol=1e-9)


def test_save_load_and_the_kinds_do_not_mix(tmp_path):
    logits, targets = drawn(0, 20, 6, 3)
    whole = GaussianStatistics(6, 3).update(logits, targets)
    whole.save(tmp_path / "g.safetensors")
    again = GaussianStatistics.load(tmp_path / "g.safetensors")
    for name, value in whole.named_buffers():
        assert torch.equal(again.get_buffer(name), value)
    with pytest.raises(ReprogramError, match="cannot be combined"):
        whole.merge(GaussianStatistics(6, 4))
    with pytest.raises(ReprogramError, match="do not contain all samples"):
        GaussianStatistics(6, 3).update(logits[:3], targets[:3]).subtract(whole)
