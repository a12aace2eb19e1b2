"""Files of others: a pipe is refused at once, a row has an end, and what can be no path is none."""

import os

import pytest

from hostile import memory_below, special_files
from reprogram.errors import ReprogramError
from reprogram.files.foreign import (
    LARGEST_LIST,
    LARGEST_ROW,
    Lines,
    absolute,
    expanded,
    is_file,
    is_folder,
    listed,
    opened,
    opened_text,
    read_list,
)


def test_what_is_no_plain_file_is_refused_without_waiting(tmp_path):
    for path in (*special_files(tmp_path), tmp_path, tmp_path / "none", tmp_path / ("a" * 300)):
        assert not is_file(path)
        message = rf"^shard '.*{path.name}' .*(no plain file|does not exist|cannot be read)"
        with pytest.raises(ReprogramError, match=message), opened(path, "shard", "write it again"):
            pass


def test_a_file_that_becomes_a_pipe_after_it_was_looked_at(tmp_path, monkeypatch):
    """The look at the path is not the last one: what was opened is looked at, too."""
    path, other = tmp_path / "a", tmp_path / "b"
    os.mkfifo(path)
    other.touch()
    stat = type(path).stat
    monkeypatch.setattr(type(path), "stat", lambda self, **how: stat(other if self == path else self, **how))
    with pytest.raises(ReprogramError, match="no plain file"), opened(path, "shard", "write it again"):
        pass


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("cat".encode("utf-16"), "it is in UTF-16"),
        (b"cat\n\xff", "byte 0xff is not UTF-8"),
        (b"\xc3", "byte 0xc3 is not UTF-8"),
    ],
)
def test_other_letters_than_utf_8(tmp_path, content, message):
    (tmp_path / "a").write_bytes(content)
    with pytest.raises(ReprogramError, match=f"{message}.*; save it in UTF-8"):
        read_list(tmp_path / "a", "names", "save it in UTF-8")


def test_a_byte_order_mark_is_no_letter(tmp_path):
    (tmp_path / "a").write_bytes(b"\xef\xbb\xbfcat")
    assert read_list(tmp_path / "a", "names", "") == "cat"


def test_a_list_has_an_end(tmp_path):
    with (tmp_path / "a").open("wb") as file:
        file.truncate(20 * LARGEST_LIST)
    with memory_below(6 * LARGEST_LIST), pytest.raises(ReprogramError, match=r"more than 64 MiB"):
        read_list(tmp_path / "a", "names", "")


def test_a_row_has_an_end(tmp_path):
    """A line of gigabytes is left where it is."""
    path = tmp_path / "a"
    path.write_bytes(b"one\ntwo\n")
    with path.open("ab") as file:
        file.truncate(100 * LARGEST_ROW)
    with memory_below(5 * LARGEST_ROW), opened_text(path, "shard", "") as text:
        lines = Lines(text, path, "shard")
        assert [(next(lines), lines.end_row()) for _ in range(2)] == [("one\n", 4), ("two\n", 4)]
        with pytest.raises(ReprogramError, match=r"row 2 of shard '.*a' is longer than 16 MiB"):
            next(lines)


def test_what_can_be_no_path_is_none(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    assert expanded("~/a") == tmp_path / "a"
    for wrong, message in (("~nobody-here/a", "a user that is not known"), ("a\0b", "zero byte")):
        with pytest.raises(ReprogramError, match=f"--out .*{message}"):
            expanded(wrong, "--out")
    for text in ("a" * 300, "a\0b", "a/" * 3000):
        assert not is_file(text)
        assert not is_folder(text)
    (tmp_path / "loop").symlink_to("loop")
    assert absolute(tmp_path / "loop").name == "loop"


def test_a_folder_that_cannot_be_listed(tmp_path):
    assert listed(tmp_path) == []
    with pytest.raises(ReprogramError, match=r"folder '.*none' cannot be read"):
        listed(tmp_path / "none")
