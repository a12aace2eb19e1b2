"""What rules take as J, and that they leave it as it was."""

import pytest
import torch

from reprogram.errors import ReprogramError
from reprogram.mappings.assignment import one_to_one
from reprogram.mappings.bayesian import bayes
from reprogram.statistics.joint import JointStatistics


@pytest.mark.parametrize("rule", [bayes, one_to_one, lambda j: one_to_one(j, optimal=True)])
@pytest.mark.parametrize("dtype", [torch.int64, torch.float64])
def test_rules_do_not_change_their_evidence(rule, dtype):
    matrix = torch.tensor([[5, 4], [4, 3], [0, 1]], dtype=dtype)
    statistics = JointStatistics("counts" if dtype == torch.int64 else "probabilities", 3, 2)
    statistics.matrix.copy_(matrix)
    rule(matrix)
    rule(statistics)
    assert matrix.tolist() == [[5, 4], [4, 3], [0, 1]]
    assert torch.equal(statistics.matrix, matrix)


@pytest.mark.parametrize("rule", [bayes, one_to_one])
@pytest.mark.parametrize(
    "matrix",
    [
        torch.ones(3),
        torch.ones(3, 2, 1),
        torch.tensor([[1.0, float("nan")]]),
        torch.tensor([[1.0, float("inf")]]),
        -torch.eye(3),
    ],
)
def test_what_is_not_evidence_is_refused(rule, matrix):
    with pytest.raises(ReprogramError, match=r"J of shape.*finite numbers"):
        rule(matrix)
