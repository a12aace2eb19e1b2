"""Logits that are kept until the end of a fit."""

import errno
import os

import pytest
import torch

from reprogram.ranks import ALONE
from reprogram.training.certainty import KeptLogits


def kept(n=5):
    table = KeptLogits(n, 3)
    table.add(torch.arange(3.0 * n).view(n, 3), torch.arange(n))
    return table.complete(ALONE)


def test_rows_and_blocks_are_what_was_added():
    table = kept()
    assert table.rows(torch.tensor([4, 0])).tolist() == [[12.0, 13.0, 14.0], [0.0, 1.0, 2.0]]
    ((logits, labels),) = table.blocks()
    assert torch.equal(logits, torch.arange(15.0).view(5, 3))
    assert labels.tolist() == [0, 1, 2, 3, 4]


def test_a_full_disk_is_an_error_before_anything_is_written(monkeypatch):
    def full(*_):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "posix_fallocate", full, raising=False)
    with pytest.raises(OSError, match="No space left"):
        kept()


@pytest.mark.parametrize("code", [errno.EOPNOTSUPP, errno.EINVAL])
def test_a_file_system_that_reserves_nothing_is_used_without(monkeypatch, code):
    def unknown(*_):
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(os, "posix_fallocate", unknown, raising=False)
    assert kept().rows(torch.tensor([1])).tolist() == [[3.0, 4.0, 5.0]]


def test_a_system_without_such_a_call_is_used_without(monkeypatch):
    monkeypatch.delattr(os, "posix_fallocate", raising=False)
    assert kept().rows(torch.tensor([1])).tolist() == [[3.0, 4.0, 5.0]]
