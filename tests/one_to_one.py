"""What tests of mappings share: label names, J with all its oddities, and what a one-to-one ω must be."""

import torch
from hypothesis import strategies as st

from reprogram.errors import ignore_evidence_warnings

SOURCE = [f"source {index}" for index in range(12)]


def spread(n=60, seed=0):
    """Logits (n, 12) whose columns lie apart, and targets of three classes, evenly."""
    generator = torch.Generator().manual_seed(seed)
    offsets = 4 * torch.randn(12, generator=generator)
    return 2 * torch.randn(n, 12, generator=generator) + offsets, torch.arange(n) % 3


def quiet(rule, *args, **kwargs):
    """Call a rule where classes without evidence are expected and not the point."""
    with ignore_evidence_warnings():
        return rule(*args, **kwargs)


@st.composite
def evidence_matrices(draw, least_source=1, most_source=7, most_target=7):
    """J with many equal and many zero entries, as integers or as fractions."""
    rows, columns = draw(st.integers(least_source, most_source)), draw(st.integers(1, most_target))
    cells = draw(st.lists(st.integers(0, 4), min_size=rows * columns, max_size=rows * columns))
    matrix = torch.tensor(cells).view(rows, columns)
    return matrix.double() * 0.1 if draw(st.booleans()) else matrix


def chosen(omega):
    """The source label of each class of a one-to-one ω, checked to be one-to-one."""
    assert omega.dtype == torch.float32
    assert set(omega.unique().tolist()) <= {0.0, 1.0}
    assert omega.sum(0).tolist() == [1] * omega.shape[1]
    assert omega.sum(1).max() <= 1
    return omega.argmax(0).tolist()
