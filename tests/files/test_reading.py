import json
import os
import struct

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel

from reprogram.errors import ReprogramError
from reprogram.files import (
    fitting,
    parse_json,
    read_bytes,
    read_json,
    read_sealed,
    read_tensors,
    write_sealed,
    write_tensors,
)

plain = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**60), 2**60) | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=10,
)


@given(st.dictionaries(st.text(max_size=8).filter(lambda key: key != "sha256"), plain, max_size=4))
def test_sealed_content_comes_back(tmp_path_factory, content):
    path = tmp_path_factory.mktemp("sealed") / "x.json"
    write_sealed(path, content)
    assert read_sealed(path, "file") == content


def flips(data):
    for place in range(8 * len(data)):
        changed = bytearray(data)
        changed[place // 8] ^= 1 << place % 8
        yield bytes(changed)


def test_every_flipped_bit_of_a_sealed_file_is_refused(tmp_path):
    path = tmp_path / "x.json"
    write_sealed(path, {"number": 1e-05, "text": "caf\udce9 é \x1b", "list": [1, 2.5, None, True], "empty": {}})
    content = path.read_bytes()
    for changed in flips(content):
        path.write_bytes(changed)
        with pytest.raises(ReprogramError, match=r"thing '.*x\.json'.*; take it from a backup, or make it again"):
            read_sealed(path, "thing")


def test_every_flipped_bit_of_tensors_is_refused(tmp_path):
    path = tmp_path / "x.safetensors"
    write_tensors(path, {"a": torch.arange(6.0).reshape(2, 3), "b": torch.tensor([1, -1])}, {"é": [1e-05, "\x1f"]})
    for changed in flips(path.read_bytes()):
        path.write_bytes(changed)
        with pytest.raises(ReprogramError, match=r"thing '.*x\.safetensors'.*; take it from a backup, or make it again"):
            read_tensors(path, "thing")


def test_cut_and_lengthened_files_are_refused(tmp_path):
    write_sealed(tmp_path / "x.json", {"a": 1})
    write_tensors(tmp_path / "x.safetensors", {"a": torch.ones(3)})
    for path, read in ((tmp_path / "x.json", read_sealed), (tmp_path / "x.safetensors", read_tensors)):
        content = path.read_bytes()
        for changed in (*(content[:length] for length in range(len(content))), content + b" ", content + b"\n"):
            path.write_bytes(changed)
            with pytest.raises(ReprogramError, match="make it again"):
                read(path, "thing")


@pytest.mark.parametrize("text", ["[" * 100_000, '{"a":' * 5000, "[" * 65 + "1" + "]" * 65, '{"a":' * 70 + "1" + "}" * 70])
def test_deep_json_is_refused(text):
    with pytest.raises(ReprogramError, match=r"the words \((nested|Expecting)"):
        parse_json(text, "the words", "shorten them")


@pytest.mark.parametrize(
    "text", ["NaN", "[Infinity]", '{"a": -Infinity}', "1e999", "-1e999", "1" * 5000, "", "{", "\x00", '"\x01"']
)
def test_what_is_no_json_is_refused(text):
    with pytest.raises(ReprogramError, match=r"^the words \(.*\); write them anew$"):
        parse_json(text, "the words", "write them anew")


def test_numbers_of_others_may_be_beyond_floating_point_where_that_is_checked_later():
    assert parse_json("[1e999]", "", "", finite=False) == [float("inf")]


def test_depth_64_and_many_values_pass():
    assert parse_json("[" * 64 + "]" * 64, "", "") is not None
    assert len(parse_json(json.dumps(list(range(100_000))), "", "")) == 100_000


def test_reading_what_is_not_there_or_not_right(tmp_path):
    (tmp_path / "bad").write_text("{")
    for read in (read_json, read_sealed, read_tensors, read_bytes):
        with pytest.raises(ReprogramError, match=r"thing '.*missing' does not exist; check the path"):
            read(tmp_path / "missing", "thing")
    for read in (read_json, read_sealed, read_tensors):
        with pytest.raises(ReprogramError, match="thing"):
            read(tmp_path / "bad", "thing")
    with pytest.raises(ReprogramError, match=r"is no plain file|is a folder"):
        read_bytes(tmp_path, "thing")
    with pytest.raises(ReprogramError, match="holds a zero byte"):
        read_bytes(tmp_path / "a\0b", "thing")


def test_a_pipe_does_not_hang(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(ReprogramError, match=r"is no plain file|is a folder"):
        read_json(tmp_path / "pipe", "thing")


def test_sizes_are_checked_before_reading(tmp_path):
    with (tmp_path / "big").open("wb") as file:
        file.truncate(2**40)  # takes no room
    with pytest.raises(ReprogramError, match=r"has 1,099,511,627,776 bytes, but at most 67,108,864 are read"):
        read_json(tmp_path / "big", "thing")


def test_tensors_that_are_declared_but_not_there_take_no_memory(tmp_path):
    header = json.dumps({"a": {"dtype": "F32", "shape": [2**40], "data_offsets": [0, 2**42]}}).encode()
    (tmp_path / "x").write_bytes(struct.pack("<Q", len(header)) + header)
    with pytest.raises(ReprogramError, match="damaged or of another kind"):
        read_tensors(tmp_path / "x", "thing")


def test_a_file_without_a_seal_is_refused(tmp_path):
    (tmp_path / "x.json").write_text('{"a": 1}\n')
    with pytest.raises(ReprogramError, match="carries no SHA-256"):
        read_sealed(tmp_path / "x.json", "thing")
    from safetensors.torch import save_file

    save_file({"a": torch.ones(2)}, tmp_path / "x.safetensors")
    with pytest.raises(ReprogramError, match="damaged or of another kind"):
        read_tensors(tmp_path / "x.safetensors", "thing")


class Form(BaseModel):
    count: int


def test_the_form_is_checked_after_the_seal(tmp_path):
    write_sealed(tmp_path / "x.json", {"count": "many"})
    with pytest.raises(ReprogramError, match=r"expected form \(count: Input should be a valid integer"):
        read_sealed(tmp_path / "x.json", "thing", Form)


@pytest.mark.parametrize(
    ("tensors", "message"),
    [
        ({}, "lacks the tensor 'a'"),
        ({"a": torch.ones(2), "b": torch.ones(1)}, "has a tensor 'b'"),
        ({"a": torch.ones(3)}, r"is float32 \(3,\), but float32 \(2,\) is expected"),
        ({"a": torch.ones(2, dtype=torch.float64)}, r"is float64 \(2,\), but float32"),
    ],
)
def test_tensors_must_fit_what_they_are_for(tensors, message):
    with pytest.raises(ReprogramError, match=message):
        fitting(tensors, {"a": torch.zeros(2)}, "the file")


@pytest.mark.parametrize("value", [float("nan"), float("-inf")])
@pytest.mark.parametrize("kind", [torch.float32, torch.bfloat16, torch.float64])
def test_numbers_that_are_none_are_refused(tmp_path, value, kind):
    write_tensors(tmp_path / "x", {"a": torch.tensor([1.0, value], dtype=kind)})
    with pytest.raises(ReprogramError, match=r"the tensor 'a' of thing '.*' holds NaN or infinity; take it"):
        read_tensors(tmp_path / "x", "thing")


def test_a_header_without_end_and_a_file_of_holes_are_not_read(tmp_path):
    for size, length in ((2**30, 2**31), (2, 2**40)):
        with (tmp_path / "x").open("wb") as file:
            file.write(struct.pack("<Q", size) + b"{}")
            file.truncate(length)  # takes no room
        with pytest.raises(ReprogramError, match="damaged or of another kind"):
            read_tensors(tmp_path / "x", "thing")
