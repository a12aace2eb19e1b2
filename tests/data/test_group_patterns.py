"""Groups read off names: what a pattern means, what it refuses, and that no name can make it slow."""

import re
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from reprogram.data.group_patterns import GroupPattern
from reprogram.errors import ReprogramError


@pytest.mark.parametrize(
    ("pattern", "path", "group"),
    [
        ("{group}_*.jpg", "cats/tom_01.jpg", "tom"),
        ("{group}_*.jpg", "cats/my_tom_01.jpg", "my_tom"),
        ("{group}_*_*.jpg", "cats/my_tom_01.jpg", "my"),
        ("{group}_*.jpg", "cats/_01.jpg", None),  # a group is not empty
        ("{group}_*.jpg", "cats/tom_.jpg", "tom"),
        ("{group}_*.jpg", "cats/tom_01.png", None),
        ("*_{group}.jpg", "x_y.jpg", "y"),
        ("*_{group}.jpg", "x_y_.jpg", "y_"),
        ("frame*-{group}", "frame7-dusk", "dusk"),
        ("{group}/*", "cats/tom/1.jpg", "tom"),
        ("{group}/*", "1.jpg", None),
        ("{group}/{group}_*.ppm", "00001/00007_00002.ppm", "00001/00007"),
        ("{group}", "a/b.jpg", "b.jpg"),
        ("x/{group}", "y/b.jpg", None),
    ],
)
def test_what_a_pattern_reads(pattern, path, group):
    assert GroupPattern.read(pattern).group_of(path) == group


@given(
    parts=st.lists(st.sampled_from(["{group}", "*"]), min_size=1, max_size=4),
    texts=st.lists(st.text("ab_.", min_size=1, max_size=2), min_size=5, max_size=5),
    ends=st.tuples(st.booleans(), st.booleans()),
    name=st.text("ab_.", min_size=1, max_size=14).filter(lambda name: name not in (".", "..")),
)
@settings(deadline=None, derandomize=True, max_examples=120)
def test_it_fits_exactly_what_the_regular_expression_fits(parts, texts, ends, name):
    """Any name that can be read in some way is read; what each part takes is one of the ways."""
    if "{group}" not in parts:
        parts = ["{group}", *parts[1:]]
    texts = [texts[0] * ends[0], *texts[1 : len(parts)], texts[-1] * ends[1]]
    pattern = texts[0] + "".join(part + text for part, text in zip(parts, texts[1:], strict=True))
    found = GroupPattern.read(pattern).group_of(name)
    expected = "".join(
        [
            "(.+)" if piece == "{group}" else ".*" if piece == "*" else re.escape(piece)
            for piece in re.split(r"(\{group\}|\*)", pattern)
        ]
    )
    match = re.fullmatch(expected, name)
    assert (found is None) == (match is None)
    if match is not None and parts[0] == "{group}" and parts.count("{group}") == 1:
        assert found == match.group(1)  # the leftmost takes all it can


def test_no_name_makes_it_slow():
    pattern = GroupPattern.read("*a" * 100 + "{group}" + "b")
    started = time.perf_counter()
    assert pattern.group_of("a" * 255) is None
    assert pattern.group_of("a" * 255 + "b") is not None
    assert time.perf_counter() - started < 1


@pytest.mark.parametrize(
    ("pattern", "said"),
    [
        ("video", "has no {group}"),
        ("{group}*.jpg", "side by side"),
        ("{group}{group}", "side by side"),
        ("{video}_{group}", "brace"),
        ("{group}" + "x" * 600, "letters"),
    ],
)
def test_what_is_refused(pattern, said):
    with pytest.raises(ReprogramError, match=re.escape(said)):
        GroupPattern.read(pattern)


def test_what_does_not_fit_is_a_group_of_its_own_and_noted():
    pattern = GroupPattern.read("{group}_*")
    groups, notes = pattern.groups_of(["a_1", "a_2", "odd"], "folder 'x'")
    assert groups == ["a", "a", "odd"]
    assert len(notes) == 1
    assert "1 of 3 images do not fit" in notes[0]
    with pytest.raises(ReprogramError, match="fits no image of folder 'x', such as 'odd'"):
        pattern.groups_of(["odd"], "folder 'x'")
