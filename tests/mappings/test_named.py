"""Mappings by the names of the labels."""

import pytest

from one_to_one import chosen
from reprogram.errors import ReprogramError
from reprogram.mappings.making import make_mapping
from reprogram.mappings.named import same_labels


def test_same_labels_ignores_case_dashes_and_takes_synonyms():
    source = ["tench, Tinca tinca", "T-shirt, tee", "Great_White-Shark", "hen"]
    assert chosen(same_labels(source, ["HEN", "tinca_tinca", "great white shark", "t shirt"])) == [3, 0, 2, 1]
    assert chosen(same_labels(source, ["tench, tinca tinca"])) == [0]


@pytest.mark.parametrize(
    ("source", "name", "expected"),
    [
        (["Cardigan, Cardigan Welsh corgi", "cardigan"], "cardigan", 1),
        (["harmonica, mouth organ, harp, mouth harp", "harp"], "harp", 1),
        (["ruffed grouse, partridge, Bonasa umbellus", "partridge"], "Partridge", 1),
    ],
)
def test_the_very_same_name_wins_over_a_synonym_of_an_earlier_label(source, name, expected):
    assert chosen(same_labels(source, [name])) == [expected]


def test_same_labels_names_what_is_missing():
    with pytest.raises(ReprogramError, match=r"'zebra' \(2 of 3\) is not there"):
        same_labels(["cat", "dog"], ["dog", "zebra", "okapi"])
    with pytest.raises(ReprogramError, match="'zebra'"):
        make_mapping("none", ["cat", "dog"], ["zebra"])
