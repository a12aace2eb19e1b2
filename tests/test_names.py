"""Lists of names as people write them, and as nobody should."""

import json

import pytest

from hostile import special_files
from reprogram.errors import ReprogramError
from reprogram.names import first_twice, read_names


@pytest.mark.parametrize(
    ("content", "names"),
    [
        (b"cat\n\n dog \r\n", ["cat", "dog"]),
        (b"\xef\xbb\xbfcat\ndog", ["cat", "dog"]),
        (b' ["cat", 3, "d\\u00f6g"]', ["cat", "3", "dög"]),
        ("[1, 0]".encode("utf-8-sig"), ["1", "0"]),
        (b"", []),
    ],
)
def test_files_of_names(content, names, tmp_path):
    (tmp_path / "names").write_bytes(content)
    assert read_names(str(tmp_path / "names"), "--classes") == names


def test_many_names_with_commas_are_no_path():
    """A text longer than any file name may be is still a list."""
    assert read_names(",".join(["crane"] * 100), "--classes") == ["crane"] * 100
    assert read_names("~nobody-here, dog", "--classes") == ["~nobody-here", "dog"]


BAD = {
    "UTF-16": ("cat\ndog".encode("utf-16"), "UTF-16"),
    "not UTF-8": (b"cat\n\xff", "not UTF-8"),
    "no list": (b'["cat"', "cannot be read"),
    "deep": (b"[" * 100_000, "cannot be read"),
    "a number of 5,000 digits": (b"[" + b"9" * 5000 + b"]", "cannot be read"),
    "a list of lists": (b'[["cat"]]', "JSON list of names"),
    "truth values": (b"[true, false]", "JSON list of names"),
    "numbers that are not whole": (b"[1.5]", "JSON list of names"),
    "half a character": (b'["cat", "\\ud800"]', r"name 2 of --classes '.*names' is '\\ud800', which holds half"),
    "an empty name": (b'["cat", " "]', "name 2 of --classes .* is empty"),
    "a name without end": (json.dumps(["a" * 10_000]).encode(), "name 1 of --classes .* has 10000 letters"),
}


@pytest.mark.parametrize("case", BAD)
def test_a_bad_file_is_one_sentence(case, tmp_path):
    content, message = BAD[case]
    (tmp_path / "names").write_bytes(content)
    with pytest.raises(ReprogramError, match=message) as raised:
        read_names(str(tmp_path / "names"), "--classes")
    assert "names" in str(raised.value)
    assert "\n" not in str(raised.value)


def test_what_is_neither_a_file_nor_names(tmp_path):
    for path in special_files(tmp_path):
        with pytest.raises(ReprogramError, match="neither a file nor names"):
            read_names(str(path), "--classes")
    for given, message in (("~nobody-here", "not known here"), ("a\0b", "zero byte"), ("a" * 5000, "neither a file")):
        with pytest.raises(ReprogramError, match=message) as raised:
            read_names(given, "--classes")
        assert len(str(raised.value)) < 300
    with pytest.raises(ReprogramError, match="name 2 of --classes 'cat,,dog' is empty"):
        read_names("cat,,dog", "--classes")


def test_a_double_is_found_among_very_many():
    """In time that grows with the list, not with its square."""
    names = [str(number) for number in range(200_000)]
    assert first_twice([*names, "7"]) == "7"
    assert first_twice(names) is None
