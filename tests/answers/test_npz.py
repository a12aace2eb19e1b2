"""Archives of arrays: what they declare is checked before it is believed, and each lie is one sentence."""

import struct
import zipfile

import numpy as np
import pytest

from hostile import memory_below, npy, npz
from reprogram.answers.block import BLOCK_VALUES
from reprogram.answers.shards import read_blocks
from reprogram.answers.survey import survey_shard
from reprogram.errors import ReprogramError

LOGITS = np.arange(6.0).reshape(3, 2)
LABELS = np.array(["x", "y", "x"])
DEFLATED = zipfile.ZIP_DEFLATED


def lied(path, **header):
    """A sound archive but for what its logits say of themselves."""
    return npz(path, logits=npy(LOGITS, **header), label=LABELS)


def twice(path):
    npz(path, logits=LOGITS, label=LABELS)
    with zipfile.ZipFile(path, "a") as archive, pytest.warns(UserWarning, match="Duplicate"):
        archive.writestr("logits.npy", npy(LOGITS))
    return path


def patched(path, offset, value):
    """A sound archive with another number in the central directory's first entry."""
    npz(path, logits=LOGITS, label=LABELS)
    content = bytearray(path.read_bytes())
    at = content.index(b"PK\x01\x02") + offset
    content[at : at + len(value)] = value
    path.write_bytes(content)
    return path


def zeros(path, **arrays):
    return npz(path, DEFLATED, **arrays)


HOSTILE = {
    # sizes
    "a gigantic array": (lambda p: lied(p, shape=(10**9, 2)), "ends too early"),
    "more than any memory": (lambda p: lied(p, shape=(10**17, 4)), "ends too early"),
    "a product that overflows": (lambda p: lied(p, shape=(2**32, 2**32)), "ends too early"),
    "a number of 30 digits": (lambda p: lied(p, shape=(10**30, 2)), "has the shape"),
    "a gigantic text": (lambda p: npz(p, logits=LOGITS, label=npy(LABELS, descr="<U500000000")), "ends too early"),
    "a type too large": (lambda p: npz(p, logits=LOGITS, label=npy(LABELS, descr="<U999999999")), "cannot be read"),
    "rows of nothing": (lambda p: npz(p, topk_labels=npy(np.zeros(0), shape=(10**12, 0))), "10+ rows hold nothing"),
    "texts of nothing": (
        lambda p: npz(p, topk_labels=npy(np.zeros(0), descr="<U0", shape=(10**12, 2))),
        "10+ rows hold nothing",
    ),
    "logits of nothing": (lambda p: npz(p, logits=npy(np.zeros(0), shape=(10**12, 0))), "no logit"),
    "a negative shape": (lambda p: lied(p, shape=(-3, 2)), "what a plain array says"),
    "a long header": (lambda p: lied(p, version=2, length=2**32 - 1), "header of 4294967295 bytes"),
    "a header that is no end": (lambda p: lied(p, length=60_000), "header of 60000 bytes"),
    "more than one row may take": (
        lambda p: zeros(p, logits=LOGITS[:1], label=np.zeros(1, "<U5000000")),
        "rows takes 20000000 bytes",
    ),
    "columns of zeros": (
        lambda p: zeros(p, logits=npy(np.zeros((8_500_000, 1), "f8"), shape=(4_250_000, 2), fortran=True)),
        "column after column",
    ),
    "more logits than any model": (lambda p: zeros(p, logits=np.zeros((1, BLOCK_VALUES + 1), "i1")), "logits per row"),
    "more labels than any answer": (lambda p: zeros(p, topk_labels=np.zeros((1, 100_001), "i1")), "100001 labels"),
    "bytes behind the array": (lambda p: npz(p, logits=npy(LOGITS) + b"more", label=LABELS), "is longer than the array"),
    # archives
    "a member twice": (twice, "twice"),
    "an encrypted member": (lambda p: patched(p, 8, b"\1\0"), "is encrypted"),
    "a size that is too large": (lambda p: patched(p, 24, struct.pack("<I", 10**9)), "claims 1000000000 bytes"),
    "a size of 64 bits that is missing": (lambda p: patched(p, 24, b"\xff" * 4), "cannot be read"),
    "a method with a large window": (lambda p: npz(p, zipfile.ZIP_LZMA, logits=LOGITS, label=LABELS), "packed by a method"),
    "another method": (lambda p: npz(p, zipfile.ZIP_BZIP2, logits=LOGITS, label=LABELS), "packed by a method"),
    "an entry beyond the end": (lambda p: patched(p, 42, struct.pack("<I", 10**8)), "cannot be read"),
    # headers
    "brackets without end": (lambda p: lied(p, header="{'descr': " + "(" * 9000), "what a plain array says"),
    "a quote without end": (lambda p: lied(p, header="{'descr': '<f8, 'shape': (3, 2)}"), "what a plain array says"),
    "code for a header": (lambda p: lied(p, header="__import__('os').abort()"), "what a plain array says"),
    "no shape": (lambda p: lied(p, header="{'descr': '<f8', 'fortran_order': False, }"), "what a plain array says"),
    "a record type": (
        lambda p: lied(p, header="{'descr': [('a', '<f8')], 'fortran_order': False, 'shape': (3, 2)}"),
        "plain",
    ),
    "another format": (lambda p: lied(p, version=9), "no array in the format"),
    "no array": (lambda p: npz(p, logits=b"hello", label=LABELS), "ends too early"),
    # contents
    "dates": (lambda p: npz(p, logits=LOGITS, label=np.zeros(3, "M8[s]")), "what a plain array says"),
    "complex numbers": (lambda p: npz(p, logits=LOGITS.astype(complex), label=LABELS), "numbers are expected"),
    "numbers that are no characters": (
        lambda p: npz(p, logits=LOGITS, label=npy(np.array([7, 2**31, 8], "<u4"), descr="<U1")),
        "no characters",
    ),
    "half a character": (
        lambda p: npz(p, logits=LOGITS, label=npy(np.array([7, 0xD800, 8], "<u4"), descr="<U1")),
        "row 2 of .* half a character",
    ),
    "bytes that are no text": (
        lambda p: npz(p, logits=LOGITS, label=np.array([b"x", b"\xff", b"x"])),
        "row 2 of .* not UTF-8",
    ),
    "a name without end": (
        lambda p: npz(p, logits=LOGITS, label=np.array(["x", "y" * 5000, "x"])),
        "row 2 of .* 5000 letters",
    ),
}


@pytest.mark.parametrize("case", HOSTILE)
def test_a_hostile_archive_is_one_sentence_and_little_memory(case, tmp_path):
    make, message = HOSTILE[case]
    path = make(tmp_path / "a.npz")
    with memory_below(40e6), pytest.raises(ReprogramError, match=message) as raised:
        survey_shard({}, path) and list(read_blocks(path))
    assert "a.npz" in str(raised.value)
    assert "\n" not in str(raised.value)
    assert len(str(raised.value)) < 500


def test_what_is_packed_well_is_read_in_blocks(tmp_path):
    """Two hundred megabytes of zeros in two hundred kilobytes are rows like others."""
    labels = np.tile(np.array(["x", "y"], "<U500"), 50_000)
    path = npz(tmp_path / "a.npz", DEFLATED, logits=np.zeros((100_000, 2), "f4"), label=labels)
    with memory_below(60e6):
        assert sum(block.rows for block in read_blocks(path)) == 100_000


def test_bytes_are_texts(tmp_path):
    """Labels of numpy's bytes are what they spell."""
    path = npz(tmp_path / "a.npz", logits=LOGITS, label=np.array([b"cat", "dög".encode(), b"cat"]))
    assert survey_shard({}, path).labels == {"cat": 2, "dög": 1}


def test_headers_as_other_programs_write_them(tmp_path):
    header = '{"shape": (3L, 2L), "fortran_order": False, "descr": "<f8"}'
    path = npz(tmp_path / "a.npz", logits=npy(LOGITS, header=header), label=LABELS)
    np.testing.assert_array_equal(next(read_blocks(path)).logits, LOGITS)


def test_an_answer_of_no_label_at_all(tmp_path):
    path = npz(tmp_path / "a.npz", topk_labels=np.zeros((3, 0), "<U3"), label=LABELS)
    assert next(read_blocks(path)).top_labels == [[], [], []]
