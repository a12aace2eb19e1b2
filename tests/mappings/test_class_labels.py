"""Labels of any type as class names and numbers."""

import numpy as np
import pytest

from reprogram.errors import ReprogramError
from reprogram.mappings.class_labels import SavedLabels, class_names, class_numbers, class_place, with_label


@pytest.mark.parametrize(
    ("classes", "y"),
    [
        (np.array(["cat", "ant", "bee"]), np.array(["bee", "bee", "cat", "ant"])),
        (np.array(["cat", "ant", "bee"]), np.array(["bee", "bee", "cat", "ant"], dtype=object)),
        (np.array([3, 1, 2], np.uint8), np.array([2, 2, 3, 1])),
        (np.array([3, 1, 2]), np.array([2.0, 2.0, 3.0, 1.0])),
    ],
)
def test_numbers_are_places_among_the_classes_in_any_order(classes, y):
    assert class_numbers(classes, y).tolist() == [2, 2, 0, 1]


def test_an_unknown_label_is_named_with_the_known_ones():
    with pytest.raises(ReprogramError, match="label 'owl' was given, but the classes are ant, bee; add it with add_class"):
        class_numbers(np.array(["ant", "bee"]), np.array(["ant", "owl"]))
    with pytest.raises(ReprogramError, match=r"label 7 was given, but the classes are 0, 1, 2, 3, 4 \.\.\.; add it"):
        class_numbers(np.arange(6), np.array([0, 7, 8]))


def test_names_are_what_python_prints():
    assert class_names(np.array([True, False])) == ["True", "False"]
    assert class_names(np.array([1.0, 2.5])) == ["1.0", "2.5"]
    assert class_names(np.array([2**63], np.uint64)) == ["9223372036854775808"]


def test_places_are_found_by_value_and_kind():
    classes = np.array([3, 1, 2], np.uint8)
    assert [class_place(classes, label) for label in (3, np.int64(2), 300, -1)] == [0, 2, None, None]
    assert [class_place(classes, label) for label in (3.0, "3", True, None, [3])] == [None] * 5


def test_one_label_more_widens_the_type_where_it_must():
    assert with_label(np.array(["b", "a"]), "c").tolist() == ["a", "b", "c"]
    assert with_label(np.array([1, 2], np.int8), 200).dtype == np.int16
    assert with_label(np.array([1, 2], np.int64), 3).dtype == np.int64
    for classes, label in ((np.array([1, 2]), "a"), (np.array([True, False]), 2), (np.array([2**63], np.uint64), -1)):
        with pytest.raises(ReprogramError, match="was given, but the classes are of type"):
            with_label(classes, label)
    with pytest.raises(ReprogramError, match="class 2 is already known"):
        with_label(np.array([1, 2]), 2)


@pytest.mark.parametrize(
    "classes", [np.array([True, False]), np.array([1, 2], np.int8), np.array([1.0, 2.0]), np.array(["a", "bc"])]
)
def test_saved_labels_come_back_in_their_type(classes):
    saved = SavedLabels(labels=classes.tolist(), dtype=classes.dtype.str)
    again = SavedLabels.model_validate_json(saved.model_dump_json()).classes()
    assert again.dtype == classes.dtype
    assert again.tolist() == classes.tolist()
