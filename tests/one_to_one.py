"""What tests of one-to-one mappings share."""

import torch

SOURCE = [f"source {index}" for index in range(12)]


def chosen(omega):
    """The source label of each class of a one-to-one ω, checked to be one-to-one."""
    assert omega.dtype == torch.float32
    assert set(omega.unique().tolist()) <= {0.0, 1.0}
    assert omega.sum(0).tolist() == [1] * omega.shape[1]
    assert omega.sum(1).max() <= 1
    return omega.argmax(0).tolist()
