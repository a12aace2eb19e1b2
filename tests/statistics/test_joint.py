import io
import os
import pickle
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st
from safetensors.torch import save_file

import oracle
import reprogram
from reprogram.errors import ReprogramError
from reprogram.statistics.joint import JointStatistics

fast = settings(deadline=None, derandomize=True, max_examples=60)
pytestmark = pytest.mark.filterwarnings("ignore:most samples have the same logit")  # ties are what is tested here
KINDS = ("counts", "probabilities")


def empty(kind, k_source, k_target, top_k=1):
    return JointStatistics(kind, k_source, k_target, top_k)


@st.composite
def streams(draw):
    """A stream of samples and empty statistics to count it with. Half of the streams are full of equal logits."""
    k_source, k_target = draw(st.integers(1, 7)), draw(st.integers(1, 4))
    n = draw(st.integers(0, 12))
    generator = torch.Generator().manual_seed(draw(st.integers(0, 10_000)))
    if draw(st.booleans()):
        logits = torch.randint(-2, 3, (n, k_source), generator=generator).double()
    else:
        logits = 6 * torch.randn(n, k_source, generator=generator, dtype=torch.float64)
    targets = torch.tensor(draw(st.lists(st.integers(0, k_target - 1), min_size=n, max_size=n)), dtype=torch.int64)
    kind = draw(st.sampled_from(KINDS))
    top_k = draw(st.integers(1, k_source)) if kind == "probabilities" else 1
    return empty(kind, k_source, k_target, top_k), logits, targets


def like(statistics):
    return JointStatistics(**statistics.config())


def assert_same(left, right):
    """Integers must agree exactly, sums of probabilities to 1e-12."""
    assert left.matrix.dtype == right.matrix.dtype
    assert torch.equal(left.samples, right.samples)
    if left.kind == "counts":
        assert torch.equal(left.matrix, right.matrix)
    else:
        torch.testing.assert_close(left.matrix, right.matrix, rtol=0, atol=1e-12)


# ---- what the numbers are


@fast
@given(streams())
def test_matrix_is_the_one_of_algorithms_4_and_8(stream):
    statistics, logits, targets = stream
    statistics.update(logits, targets)
    if not len(targets):
        expected = np.zeros((statistics.k_source, statistics.k_target))
    elif statistics.kind == "counts":
        expected = oracle.frequency_matrix(logits.tolist(), targets.tolist(), statistics.k_target)
    else:
        expected = oracle.aggregation_matrix(logits.tolist(), targets.tolist(), statistics.k_target, statistics.top_k)
    np.testing.assert_allclose(statistics.matrix.numpy(), expected, rtol=0, atol=1e-12)
    assert statistics.samples.tolist() == [int((targets == t).sum()) for t in range(statistics.k_target)]
    assert statistics.n == len(targets)


def test_the_paper_s_cat_and_dogs():
    cat, dog = 0, 1
    statistics = JointStatistics.counts(3, 2).update(torch.eye(3)[[0, 0, 1, 2]], torch.tensor([dog, dog, dog, cat]))
    assert statistics.joint().tolist() == [[0, 1 / 2], [0, 1 / 4], [1 / 4, 0]]
    assert statistics.joint().dtype == torch.float64


def test_joint_of_nothing_is_zero():
    assert JointStatistics.counts(3, 2).joint().tolist() == [[0, 0]] * 3


def test_probabilities_are_not_renormalised_after_the_top_k():
    logits = torch.tensor([[0.5, 0.3, 0.2]], dtype=torch.float64).log()
    column = JointStatistics.probabilities(3, 1, top_k=2).update(logits, torch.tensor([0])).matrix[:, 0]
    torch.testing.assert_close(column, torch.tensor([0.5, 0.3, 0.0], dtype=torch.float64))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("tied", [[1, 1, 1, 1, 1, 1], [0, 3, 3, 0, 3, 3], [3, 2, 2, 2, 2, 1]])
def test_among_equal_logits_the_lowest_index_wins(kind, tied):
    statistics = empty(kind, 6, 1, top_k=1 if kind == "counts" else 2)
    statistics.update(torch.tensor([tied]).float(), torch.tensor([0]))
    chosen = set(statistics.matrix[:, 0].nonzero().flatten().tolist())
    assert chosen == oracle.top_labels(tied, statistics.top_k)


def test_ties_over_a_thousand_labels():
    logits = torch.zeros(3, 1000)
    statistics = JointStatistics.probabilities(1000, 1, top_k=15).update(logits, torch.zeros(3, dtype=torch.int64))
    assert statistics.matrix[:, 0].nonzero().flatten().tolist() == list(range(15))


def test_huge_logits_do_not_overflow():
    logits = torch.tensor([[3e4, 2e4, -3e4]], dtype=torch.float32)
    column = JointStatistics.probabilities(3, 1, top_k=3).update(logits, torch.tensor([0])).matrix[:, 0]
    assert column.tolist() == [1, 0, 0]


# ---- laws of the stream


@fast
@given(streams(), st.randoms(use_true_random=False), st.lists(st.integers(1, 5), max_size=12))
def test_order_and_chunking_do_not_matter(stream, shuffler, chunk_sizes):
    statistics, logits, targets = stream
    order = list(range(len(targets)))
    shuffler.shuffle(order)
    pieces = like(statistics)
    while order:
        size = chunk_sizes.pop() if chunk_sizes else len(order)
        piece, order = order[:size], order[size:]
        pieces.update(logits[piece], targets[piece])
    assert_same(pieces, statistics.update(logits, targets))


@fast
@given(streams(), st.integers(0, 12))
def test_merged_parts_equal_one_stream(stream, cut):
    statistics, logits, targets = stream
    first = like(statistics).update(logits[:cut], targets[:cut])
    second = like(statistics).update(logits[cut:], targets[cut:])
    before = second.matrix.clone()
    assert_same(first.merge(second), statistics.update(logits, targets))
    assert torch.equal(second.matrix, before), "merging must not change what is merged in"


@fast
@given(streams(), st.randoms(use_true_random=False), st.integers(0, 12))
def test_subtract_undoes(stream, shuffler, cut):
    statistics, logits, targets = stream
    order = list(range(len(targets)))
    shuffler.shuffle(order)
    gone, kept = order[:cut], order[cut:]
    removed = like(statistics).update(logits[gone], targets[gone])
    assert_same(statistics.update(logits, targets).subtract(removed), like(statistics).update(logits[kept], targets[kept]))
    assert (statistics.matrix >= 0).all()


@fast
@given(streams())
def test_a_class_with_all_samples_subtracted_has_exactly_zero_evidence(stream):
    statistics, logits, targets = stream
    first = targets == 0
    backwards = like(statistics)
    for i in reversed(first.nonzero().flatten().tolist()):
        backwards.update(logits[[i]], targets[[i]])
    statistics.update(logits, targets).subtract(backwards)
    assert statistics.matrix[:, 0].abs().sum() == 0
    assert statistics.samples[0] == 0


@pytest.mark.parametrize("probability", [0.6, 0.9])
def test_subtract_survives_the_rounding_of_a_long_stream(probability):
    """Equal summands all round the same way, so a long stream and its merged parts differ by about 1e-12 of their size."""
    n, parts = 100_000, 100
    logits = torch.tensor([[1 - probability, probability]], dtype=torch.float64).log().expand(n, -1)
    targets = torch.zeros(n, dtype=torch.int64)
    kept = JointStatistics.probabilities(2, 1, top_k=1).update(torch.tensor([[1.0, 0.0]]), targets[:1])
    whole = like(kept).merge(kept).update(logits, targets)
    removed = like(kept)
    for _ in range(parts):
        removed.merge(like(kept).update(logits[: n // parts], targets[: n // parts]))
    assert_same(whole.subtract(removed), kept)


@fast
@given(streams(), st.randoms(use_true_random=False))
def test_permuting_target_labels_permutes_columns(stream, shuffler):
    statistics, logits, targets = stream
    places = list(range(statistics.k_target))
    shuffler.shuffle(places)
    places = torch.tensor(places)
    renamed = like(statistics).update(logits, places[targets])
    statistics.update(logits, targets)
    assert torch.equal(renamed.matrix[:, places], statistics.matrix)
    assert torch.equal(renamed.samples[places], statistics.samples)


@fast
@given(streams(), st.randoms(use_true_random=False))
def test_permuting_source_labels_permutes_rows(stream, shuffler):
    statistics, logits, targets = stream
    logits = logits + 1e-3 * torch.arange(statistics.k_source)  # ties are settled by index, so there must be none
    places = list(range(statistics.k_source))
    shuffler.shuffle(places)
    renamed = like(statistics).update(logits[:, places], targets)
    statistics.update(logits, targets)
    torch.testing.assert_close(renamed.matrix, statistics.matrix[places], rtol=0, atol=1e-12)


@fast
@given(streams(), st.integers(0, 3), st.sampled_from([torch.int64, torch.int32]))
def test_true_top_k_answers_count_like_the_logits(stream, surplus, dtype):
    statistics, logits, targets = stream
    length = min(statistics.top_k + surplus, statistics.k_source)
    probabilities, indices = logits.softmax(1).sort(dim=1, descending=True, stable=True)
    if statistics.kind == "probabilities":
        order = logits.sort(dim=1, descending=True, stable=True).indices
        probabilities, indices = logits.softmax(1).gather(1, order), order
    answers = like(statistics).update_top_k(indices[:, :length].to(dtype), probabilities[:, :length], targets)
    assert_same(answers, statistics.update(logits, targets))


def test_answers_may_be_short_and_counts_need_no_probabilities():
    indices, targets = torch.tensor([[4, 2], [3, -1], [-1, -1]]), torch.tensor([0, 1, 1])
    counts = JointStatistics.counts(5, 2).update_top_k(indices, None, targets)
    assert counts.matrix.nonzero().tolist() == [[3, 1], [4, 0]]
    assert counts.samples.tolist() == [1, 2]
    probabilities = torch.tensor([[0.25, 0.5], [0.75, float("nan")], [0.0, 0.0]])
    sums = JointStatistics.probabilities(5, 2, top_k=3).update_top_k(indices, probabilities, targets)
    assert sums.matrix.T.tolist() == [[0, 0, 0.5, 0, 0.25], [0, 0, 0, 0.75, 0]]


def test_answers_are_ranked_by_their_probabilities_whatever_their_order():
    indices, probabilities = torch.tensor([[1, 2, 0]]), torch.tensor([[0.1, 0.6, 0.3]], dtype=torch.float64)
    best = JointStatistics.counts(3, 1).update_top_k(indices, probabilities, torch.tensor([0]))
    assert best.matrix[:, 0].tolist() == [0, 0, 1]
    best_two = JointStatistics.probabilities(3, 1, top_k=2).update_top_k(indices, probabilities, torch.tensor([0]))
    assert best_two.matrix[:, 0].tolist() == [0.3, 0, 0.6]


@pytest.mark.parametrize("dtype", [torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64])
def test_labels_of_any_integer_type_are_labels(dtype):
    indices, targets = torch.tensor([[1, 2], [3, 0]]), torch.tensor([0, 2])
    probabilities = torch.tensor([[0.5, 0.25], [0.75, 0.25]])
    expected = JointStatistics.probabilities(4, 3, top_k=2).update_top_k(indices, probabilities, targets)
    found = JointStatistics.probabilities(4, 3, top_k=2).update_top_k(indices.to(dtype), probabilities, targets.to(dtype))
    assert_same(found, expected)


@pytest.mark.parametrize("kind", KINDS)
def test_empty_batches_change_nothing(kind):
    statistics = empty(kind, 4, 3)
    nobody = torch.zeros(0, dtype=torch.int64)
    statistics.update(torch.zeros(0, 4), nobody)
    statistics.update_top_k(torch.zeros(0, 2, dtype=torch.int64), torch.zeros(0, 2), nobody)
    assert statistics.n == 0
    assert statistics.matrix.sum() == 0


def test_reset_forgets_everything():
    statistics = JointStatistics.counts(3, 2).update(torch.eye(3), torch.tensor([0, 1, 1])).reset()
    assert statistics.n == 0
    assert statistics.matrix.sum() == 0


# ---- traps of the protocol


@fast
@given(streams(), st.integers(0, 3))
def test_trap_2_absent_classes_keep_their_column(stream, absent):
    """Counting classes from the labels seen shifts or drops columns; here the number of classes is always the given one."""
    statistics, logits, targets = stream
    absent = min(absent, statistics.k_target - 1)
    seen = targets != absent
    statistics.update(logits[seen], targets[seen])
    assert statistics.matrix.shape == (statistics.k_source, statistics.k_target)
    assert statistics.matrix[:, absent].sum() == 0
    for target in set(targets[seen].tolist()):
        alone = like(statistics).update(logits[targets == target], targets[targets == target])
        torch.testing.assert_close(statistics.matrix[:, target], alone.matrix[:, target], rtol=0, atol=1e-12)


def test_trap_2_first_middle_and_last_class_absent():
    targets = torch.tensor([1, 3, 3])
    statistics = JointStatistics.counts(3, 6).update(torch.eye(3), targets)
    assert statistics.matrix.tolist() == [[0, 1, 0, 0, 0, 0], [0, 0, 0, 1, 0, 0], [0, 0, 0, 1, 0, 0]]
    assert statistics.samples.tolist() == [0, 1, 0, 2, 0, 0]


@pytest.mark.parametrize("kind", KINDS)
def test_trap_5_memory_does_not_grow_with_the_samples(kind):
    """A straightforward implementation keeps all logits; everything this object holds is in its serialised form."""
    statistics = empty(kind, 50, 4, top_k=1 if kind == "counts" else 7)

    def held():
        buffer = io.BytesIO()
        torch.save(statistics, buffer)
        return len(buffer.getvalue()), len(pickle.dumps(statistics))

    logits, targets = torch.randn(200, 50, requires_grad=True), torch.arange(200) % 4
    before = held()
    for _ in range(20):
        statistics.update(logits, targets)
    assert statistics.n == 4000
    assert held() == before
    tensors = [value for value in (*vars(statistics).values(), *statistics.buffers()) if isinstance(value, torch.Tensor)]
    assert sum(tensor.untyped_storage().nbytes() for tensor in tensors) <= 8 * (50 * 4 + 3 * 4)
    assert all(tensor.grad_fn is None for tensor in tensors), "a graph would keep every batch alive"


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
def test_trap_6_half_precision_logits_give_full_precision_sums(dtype):
    """Summed in half precision, counts stop at 2048 and probabilities lose all but three digits."""
    n = 5000
    logits = torch.randn(n, 8, generator=torch.Generator().manual_seed(0)).to(dtype)
    logits[:, 0] = 2.5
    targets = torch.zeros(n, dtype=torch.int64)
    sums = JointStatistics.probabilities(8, 2, top_k=8).update(logits, targets)
    assert sums.matrix.dtype == torch.float64
    assert sums.samples.dtype == torch.int64
    exact = np.exp(logits.double().numpy())
    exact = (exact / exact.sum(1, keepdims=True)).sum(0)
    np.testing.assert_allclose(sums.matrix[:, 0].numpy(), exact, rtol=1e-12)
    counts = JointStatistics.counts(8, 2).update(torch.eye(8, dtype=dtype)[torch.zeros(n, dtype=torch.int64)], targets)
    assert counts.matrix.dtype == torch.int64
    assert counts.matrix[0, 0] == n


def test_trap_6_half_precision_answers_of_an_api_too():
    probabilities = torch.full((5000, 1), 0.1, dtype=torch.float16)
    zeros = torch.zeros(5000, dtype=torch.int64)
    sums = JointStatistics.probabilities(3, 1, top_k=1).update_top_k(zeros[:, None], probabilities, zeros)
    np.testing.assert_allclose(sums.matrix[0, 0], 5000 * float(probabilities[0, 0]), rtol=1e-12)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    "cast", [lambda m: m.half(), lambda m: m.to(torch.bfloat16), lambda m: m.float(), lambda m: m.to("cpu", torch.float16)]
)
def test_trap_6_casting_the_module_or_its_parent_does_not_change_the_sums(kind, cast):
    logits = torch.randn(40, 5, generator=torch.Generator().manual_seed(1))
    statistics = empty(kind, 5, 3).update(logits, torch.arange(40) % 3)
    before, dtype = statistics.matrix.clone(), statistics.matrix.dtype
    assert cast(statistics) is statistics
    cast(torch.nn.ModuleList([statistics]))
    assert statistics.matrix.dtype == dtype
    assert statistics.samples.dtype == torch.int64
    assert torch.equal(statistics.matrix, before)


def test_statistics_are_buffers_and_nothing_is_trained():
    statistics = JointStatistics.counts(3, 2)
    assert list(statistics.state_dict()) == ["matrix", "samples", "counted", "rounding"]
    assert list(statistics.parameters()) == []


# ---- storage


@fast
@given(streams())
@example((JointStatistics.counts(1, 1), torch.zeros(1, 1), torch.tensor([0])))
def test_save_and_load_round_trip_to_the_bit(tmp_path_factory, stream):
    statistics, logits, targets = stream
    path = tmp_path_factory.mktemp("statistics") / "j.safetensors"
    statistics.reset().update(logits, targets).save(path)
    loaded = JointStatistics.load(path)
    assert loaded.config() == statistics.config()
    assert loaded.matrix.dtype == statistics.matrix.dtype
    assert loaded.matrix.numpy().tobytes() == statistics.matrix.numpy().tobytes()
    assert torch.equal(loaded.samples, statistics.samples)
    assert_same(loaded.update(logits, targets), statistics.update(logits, targets))


def write_text(path):
    path.write_text("counts")


def write_nothing(path):
    path.write_bytes(b"")


def write_foreign_safetensors(path):
    save_file({"matrix": torch.zeros(3, 2), "samples": torch.zeros(2)}, path)


def write_wrong_shape(path):
    config = '{"kind": "counts", "k_source": 4, "k_target": 2, "top_k": 1}'
    save_file({"matrix": torch.zeros(3, 2), "samples": torch.zeros(2)}, path, metadata={"joint_statistics": config})


def write_pickle(path):
    torch.save(JointStatistics.counts(3, 2), path)


def write_no_file(path):
    pass


@pytest.mark.parametrize(
    "write", [write_text, write_nothing, write_foreign_safetensors, write_wrong_shape, write_pickle, write_no_file]
)
def test_loading_a_foreign_file_is_refused_by_its_name(tmp_path, write):
    path = tmp_path / "foreign.safetensors"
    write(path)
    with pytest.raises(ReprogramError, match=r"foreign\.safetensors' does not hold joint statistics"):
        JointStatistics.load(path)


# ---- mistakes


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("logits", "targets", "message"),
    [
        (torch.zeros(2, 4), torch.tensor([0, 1]), r"\(2, 4\).*\(N, 5\)"),
        (torch.zeros(5), torch.tensor([0]), r"\(5,\).*\(N, 5\)"),
        (torch.zeros(2, 5, 1), torch.tensor([0, 1]), r"\(2, 5, 1\)"),
        (torch.zeros(2, 5), torch.tensor([0, 1, 2]), r"\(3,\).*2 integer labels"),
        (torch.zeros(2, 5), torch.tensor([[0], [1]]), r"\(2, 1\).*2 integer labels"),
        (torch.zeros(2, 5), torch.tensor([0.0, 1.0]), r"torch\.float32.*2 integer labels"),
        (torch.zeros(2, 5), torch.tensor([0, 3]), r"from 0 to 3.*0 to 2"),
        (torch.zeros(2, 5), torch.tensor([-1, 2]), r"from -1 to 2.*0 to 2"),
        (torch.tensor([[0, 0, float("nan"), 0, 0]]), torch.tensor([0]), r"NaN or infinity"),
        (torch.tensor([[0, 0, float("inf"), 0, 0]]), torch.tensor([0]), r"NaN or infinity"),
        (torch.tensor([[0, 0, float("-inf"), 0, 0]], dtype=torch.float16), torch.tensor([0]), r"NaN or infinity"),
    ],
)
def test_a_wrong_batch_is_refused_and_nothing_counted(kind, logits, targets, message):
    statistics = empty(kind, 5, 3)
    with pytest.raises(ReprogramError, match=message):
        statistics.update(logits, targets)
    assert statistics.n == 0
    assert statistics.matrix.sum() == 0


HALVES = torch.full((2, 2), 0.5)


@pytest.mark.parametrize(
    ("indices", "probabilities", "targets", "message"),
    [
        (torch.tensor([0, 1]), None, torch.tensor([0, 1]), r"\(2,\) and None"),
        (torch.tensor([[0, 1], [2, 3]]), HALVES[:1], torch.tensor([0, 1]), r"\(2, 2\) and \(1, 2\)"),
        (torch.tensor([[0, 5], [2, 3]]), HALVES, torch.tensor([0, 1]), r"from 0 to 5.*0 to 4"),
        (torch.tensor([[0, -2], [2, 3]]), HALVES, torch.tensor([0, 1]), r"from -2 to 3.*0 to 4"),
        (torch.tensor([[0.0, 1.0], [2.0, 3.0]]), HALVES, torch.tensor([0, 1]), r"float32"),
        (torch.tensor([[0, 1], [2, 3]]), 4 * HALVES, torch.tensor([0, 1]), r"outside \[0, 1\]"),
        (torch.tensor([[0, 1], [2, 3]]), -HALVES, torch.tensor([0, 1]), r"outside \[0, 1\]"),
        (torch.tensor([[0, 1], [2, 3]]), float("nan") * HALVES, torch.tensor([0, 1]), r"outside \[0, 1\]"),
        (torch.tensor([[0, 1], [2, 3]]), HALVES, torch.tensor([0, 3]), r"from 0 to 3.*0 to 2"),
        (torch.tensor([[0, 1], [2, 3]]), HALVES, torch.tensor([0.0, 1.0]), r"torch\.float32"),
        (torch.tensor([[0, 1], [2, 3]]), None, torch.tensor([0, 1]), r"no probabilities were given"),
    ],
)
def test_wrong_answers_are_refused_and_nothing_counted(indices, probabilities, targets, message):
    statistics = JointStatistics.probabilities(5, 3, top_k=2)
    with pytest.raises(ReprogramError, match=message):
        statistics.update_top_k(indices, probabilities, targets)
    assert statistics.n == 0
    assert statistics.matrix.sum() == 0


@pytest.mark.parametrize("combine", ["merge", "subtract"])
@pytest.mark.parametrize(
    "other",
    [
        JointStatistics.counts(4, 3),
        JointStatistics.probabilities(4, 2, top_k=2),
        JointStatistics.probabilities(4, 3, top_k=1),
        JointStatistics.probabilities(5, 3, top_k=2),
    ],
)
def test_unlike_statistics_are_not_combined(combine, other):
    statistics = JointStatistics.probabilities(4, 3, top_k=2).update(torch.eye(4), torch.tensor([0, 1, 2, 2]))
    before = statistics.matrix.clone()
    with pytest.raises(ReprogramError, match="cannot be combined") as caught:
        getattr(statistics, combine)(other)
    assert str(other.config()) in str(caught.value)
    assert str(statistics.config()) in str(caught.value)
    assert torch.equal(statistics.matrix, before)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("logits", "targets"),
    [
        (torch.eye(3)[[0, 0]], torch.tensor([0, 0])),  # more samples of a class than there are
        (torch.eye(3)[[2]], torch.tensor([0])),  # as many samples, but of another source label
    ],
)
def test_what_was_not_counted_is_not_subtracted(kind, logits, targets):
    statistics = empty(kind, 3, 2).update(torch.eye(3)[[0, 1]], torch.tensor([0, 1]))
    before, samples = statistics.matrix.clone(), statistics.samples.clone()
    with pytest.raises(ReprogramError, match="do not contain all samples that are to be subtracted"):
        statistics.subtract(empty(kind, 3, 2).update(logits, targets))
    assert torch.equal(statistics.matrix, before)
    assert torch.equal(statistics.samples, samples)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: JointStatistics.counts(0, 3), "k_S = 0"),
        (lambda: JointStatistics.counts(3, 0), "k_T = 0"),
        (lambda: JointStatistics.probabilities(3, 2, top_k=0), "top_k = 0.*k_S = 3"),
        (lambda: JointStatistics.probabilities(3, 2, top_k=4), "top_k = 4.*k_S = 3"),
    ],
)
def test_impossible_sizes_are_refused(make, message):
    with pytest.raises(ReprogramError, match=message):
        make()


# ---- several processes

WORKER = """
import sys
import torch
from reprogram.statistics.joint import JointStatistics

rank, init, out = int(sys.argv[1]), sys.argv[2], sys.argv[3]
torch.distributed.init_process_group("gloo", init_method=init, rank=rank, world_size=2)
logits = torch.randn(30, 6, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
targets = torch.arange(30) % 4
mine = slice(0, 11) if rank == 0 else slice(11, 30)
for kind, top_k in (("counts", 1), ("probabilities", 2)):
    part = JointStatistics(kind, 6, 4, top_k).update(logits[mine], targets[mine])
    part.all_reduce().save(f"{out}/{kind}-{rank}.safetensors")
torch.distributed.destroy_process_group()
"""


def test_all_reduce_over_two_processes_equals_one_stream(tmp_path):
    script = tmp_path / "worker.py"
    script.write_text(WORKER)
    source = str(Path(reprogram.__file__).parents[1])
    environment = os.environ | {
        "PYTHONPATH": os.pathsep.join([source, *filter(None, [os.environ.get("PYTHONPATH")])]),
        "OMP_NUM_THREADS": "1",
        "GLOO_SOCKET_IFNAME": "lo" if sys.platform == "linux" else "",
    }
    command = [sys.executable, str(script)]
    workers = [
        subprocess.Popen(
            [*command, str(rank), f"file://{tmp_path}/rendezvous", str(tmp_path)],
            env={key: value for key, value in environment.items() if value},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for rank in range(2)
    ]
    deadline = time.monotonic() + 60
    try:
        for worker in workers:
            output, _ = worker.communicate(timeout=max(1, deadline - time.monotonic()))
            assert worker.returncode == 0, output
    finally:
        for worker in workers:
            worker.kill()
            worker.wait()
    logits = torch.randn(30, 6, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    for kind, top_k in (("counts", 1), ("probabilities", 2)):
        whole = JointStatistics(kind, 6, 4, top_k).update(logits, torch.arange(30) % 4)
        for rank in range(2):
            assert_same(JointStatistics.load(tmp_path / f"{kind}-{rank}.safetensors"), whole)


def test_all_reduce_alone_does_nothing():
    statistics = JointStatistics.counts(3, 2).update(torch.eye(3), torch.tensor([0, 1, 1]))
    before = statistics.matrix.clone()
    assert torch.equal(statistics.all_reduce().matrix, before)


# ---- weights and log-probabilities


def test_the_joint_distribution_of_weighted_samples_sums_to_one():
    statistics = JointStatistics.counts(3, 2, weighted=True)
    statistics.update(torch.eye(3), torch.tensor([0, 1, 1]), torch.full((3,), 0.5))
    assert (statistics.n, statistics.weight) == (3, 1.5)
    assert statistics.joint().sum().item() == pytest.approx(1.0, rel=1e-15)


def test_log_probabilities_below_one_are_not_renormalised():
    """An answer of 0.5 and 0.2 leaves 0.3 to labels that were not named: Eq. 8 adds up 0.5 and 0.2."""
    statistics = JointStatistics.probabilities(3, 1, top_k=2)
    answer = torch.tensor([[0.5, 0.2, 1e-30]], dtype=torch.float64).log()
    statistics.update(answer, torch.tensor([0]), log_probabilities=True)
    torch.testing.assert_close(statistics.matrix.flatten(), torch.tensor([0.5, 0.2, 0.0], dtype=torch.float64))


def test_log_probabilities_that_sum_to_one_count_like_logits():
    logits = torch.randn(20, 6, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    targets = torch.arange(20) % 3
    expected = JointStatistics.probabilities(6, 3, top_k=4).update(logits, targets)
    found = JointStatistics.probabilities(6, 3, top_k=4).update(logits.log_softmax(1), targets, log_probabilities=True)
    assert_same(found, expected)


@pytest.mark.parametrize("kind", KINDS)
def test_logits_are_no_log_probabilities(kind):
    with pytest.raises(ReprogramError, match=r"log-probabilities up to 2\.5 were given"):
        empty(kind, 2, 1).update(torch.tensor([[-1.0, 2.5]]), torch.tensor([0]), log_probabilities=True)
