from hypothesis import given
from hypothesis import strategies as st

from reprogram.files import lines_of, sealed_line, sealed_text
from reprogram.files.seals import is_sealed


@given(st.lists(st.text("abcdef0123456789", max_size=8), max_size=5))
def test_sealed_lines_come_back(lines):
    assert lines_of(sealed_text(lines)) == lines


def test_every_flipped_bit_of_sealed_lines_is_noticed():
    text = sealed_text(["ab", "cd", ""]).encode()
    for place in range(8 * len(text)):
        changed = bytearray(text)
        changed[place // 8] ^= 1 << place % 8
        assert lines_of(changed.decode("utf-8", "replace")) is None


def test_one_line_is_sealed_like_a_file():
    line = sealed_line({"epoch": 1, "loss": None})
    assert line.count("\n") == 1
    assert is_sealed(line)
    assert not is_sealed(line.replace("1", "2", 1))
    assert not is_sealed(line.rstrip())
