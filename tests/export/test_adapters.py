"""Adapter files are read as onnxruntime reads them, and whatever is wrong with one is a sentence."""

import numpy as np
import onnxruntime
import pytest

from reprogram.errors import ReprogramError
from reprogram.export.adapters import parse_adapter, read_adapter, write_adapter

ARRAYS = {
    "weight": np.arange(12, dtype=np.float32).reshape(4, 3),
    "bias": np.array([0.5, -1, 2], np.float32),
    "pattern": np.ones((3, 2, 2), np.float32),
}


def test_what_is_written_is_read_by_us_and_by_onnxruntime(tmp_path):
    write_adapter(tmp_path / "a", ARRAYS)
    write_adapter(tmp_path / "b", dict(reversed(ARRAYS.items())))
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()
    theirs = onnxruntime.AdapterFormat.read_adapter(str(tmp_path / "a")).get_parameters()
    ours = read_adapter(tmp_path / "a")
    assert ours.keys() == theirs.keys() == ARRAYS.keys()
    for name, array in ARRAYS.items():
        assert np.array_equal(ours[name], array)
        assert np.array_equal(theirs[name].numpy(), array)
    with pytest.raises(ReprogramError, match="does not exist"):
        read_adapter(tmp_path / "c")


def test_every_truncation_and_every_changed_byte_is_bearable(tmp_path):
    write_adapter(tmp_path / "a", ARRAYS)
    content = (tmp_path / "a").read_bytes()
    refused = 0
    for length in range(len(content.rstrip(b"\0"))):
        with pytest.raises(ReprogramError, match="export it again"):
            parse_adapter(content[:length])
    for place in range(len(content)):
        for value in (0, 255, content[place] ^ 128):
            try:
                parse_adapter(content[:place] + bytes([value]) + content[place + 1 :])
            except ReprogramError as error:
                refused += "\n" not in str(error)
    assert refused > 100


def test_numbers_must_be_finite(tmp_path):
    write_adapter(tmp_path / "a", {"bias": np.array([np.nan], np.float32)})
    with pytest.raises(ReprogramError, match=r"'bias' .* NaN or infinity"):
        read_adapter(tmp_path / "a")
