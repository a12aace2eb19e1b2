"""Answers as tools and services write them: the same rows as from our own format, and one sentence for what is wrong."""

import json

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import written
from hostile import memory_below
from reprogram.answers.fit import fit_files
from reprogram.answers.labels import LabelSets
from reprogram.answers.shards import find_shards, read_blocks
from reprogram.errors import ReprogramError

NAMES = ["Eurasian Wren", "tench, Tinca tinca", "<script>alert(1)</script>", "é" * 300, "=1+1", "a;b", 'say "hi"', "7"]
SCORES = [0.0, 0.0312, 0.125, 0.5, 0.8121, 1.0]


def rows_of(path):
    """(image, labels, scores) of every row, scores as fractions."""
    rows = []
    for block in read_blocks(path):
        for row in range(block.rows):
            scale = 100 if block.percent else 1
            scores = [round(score / scale, 9) for score in block.top_scores[row]]
            rows.append((block.images[row] if block.images else None, block.top_labels[row], scores))
    return rows


@st.composite
def answers_of_recordings(draw):
    """Answers, their labels different and the best first."""
    answers = []
    for place in range(draw(st.integers(1, 5))):
        names = draw(st.lists(st.sampled_from(NAMES), max_size=4, unique=True))
        scores = sorted(draw(st.lists(st.sampled_from(SCORES), min_size=len(names), max_size=len(names))), reverse=True)
        answers.append((f"night/rec {place % 2}.wav#{3 * place}-{3 * place + 3}", list(zip(names, scores, strict=True))))
    return answers


@pytest.mark.parametrize("name", written.FORMATS)
@settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(answers=answers_of_recordings())
def test_each_format_gives_the_rows_of_our_own(name, answers, tmp_path):
    file, write, names_images, holds_empty = written.FORMATS[name]
    answers = [(image, pairs) for image, pairs in answers if pairs or holds_empty]
    (tmp_path / "own.jsonl").write_text(written.own(answers))
    (tmp_path / file).write_text(write(answers))
    expected = rows_of(tmp_path / "own.jsonl")
    found = rows_of(tmp_path / file)
    assert [row[1:] for row in found] == [row[1:] for row in expected]
    assert [row[0] for row in found] == [row[0] if names_images else None for row in expected]


PLAIN = [
    (f"night/rec {place % 4}.wav#{place}-{place + 1}", [("Wren" if place % 3 else "Robin", 0.75), (f"x{place % 5}", 0.25)])
    for place in range(24)
]


@pytest.mark.parametrize("name", written.FORMATS)
def test_a_mapping_is_the_same_from_each_format_with_a_table_of_labels(name, tmp_path):
    file, write, names_images, _ = written.FORMATS[name]
    labels = [("cat", "dog", "owl")[place % 3] for place in range(24)]
    lines = [
        json.loads(line) | {"label": label} for line, label in zip(written.own(PLAIN).splitlines(), labels, strict=True)
    ]
    (tmp_path / "own.jsonl").write_text("\n".join(map(json.dumps, lines)))
    (tmp_path / file).write_text(write(PLAIN))
    table = [f"{image},{label}" if names_images else label for (image, _), label in zip(PLAIN, labels, strict=True)]
    (tmp_path / "table.csv").write_text("\n".join(["image,label" if names_images else "label", *table]))
    expected = fit_files(tmp_path / "own.jsonl", "blm+", holdout=0)
    found = fit_files(tmp_path / file, "blm+", labels=tmp_path / "table.csv", holdout=0)
    assert found.labels.source_labels == expected.labels.source_labels
    assert found.samples.tolist() == [8, 8, 8]
    assert (found.mapping.omega - expected.mapping.omega).abs().max() < 1e-12
    assert found.notes[0].startswith("24 of 24 answers have a label in table.csv")
    said = [block.predictions.labels for block in found.predict_files(tmp_path / file)]
    assert said == [block.predictions.labels for block in expected.predict_files(tmp_path / "own.jsonl")]


def test_rekognition_runs_to_a_hundred_without_being_told(tmp_path):
    pairs = [("Cat", 0.9871), ("Pet", 0.004)]
    (tmp_path / "IMG_1.JPG.json").write_text(json.dumps(written.rekognition_response(pairs)))
    (block,) = read_blocks(tmp_path / "IMG_1.JPG.json")
    assert block.images == ["IMG_1.JPG"]
    sets = LabelSets(("Cat", "Pet"), ("x", "y"))
    for same in (sets, LabelSets(("Cat", "Pet"), ("x", "y"), percent=True)):
        assert same.rows(block, strict=False).probabilities.tolist() == [pytest.approx([0.9871, 0.004])]
    fractions = {"image": "a", "Labels": [{"Name": "Cat", "Confidence": 0.9}]}  # divided by somebody before
    (tmp_path / "b.json").write_text(json.dumps(fractions))
    (block,) = read_blocks(tmp_path / "b.json")
    assert sets.rows(block, strict=False).probabilities.tolist() == [[0.9]]


def test_one_answer_is_called_by_its_file(tmp_path):
    for name, content in (
        ("a.json", {"labelAnnotations": [{"description": "Cat", "score": 0.5}]}),
        ("b.json", [{"label": "Cat", "score": 0.5}]),
        ("c.json", {"predictions": [{"label": "Cat", "score": 0.5}]}),
        ("d.json", {"image": "d", "topk_labels": ["Cat"], "topk_scores": [0.5]}),
    ):
        (tmp_path / name).write_text(json.dumps(content, indent=2))
        assert rows_of(tmp_path / name) == [(name[0], ["Cat"], [0.5])]


def test_values_one_after_another_and_lists_of_answers_are_rows(tmp_path):
    one = {"image": "a", "labels": [{"name": "Cat", "score": 0.5}]}
    two = {"filepath": "b", "classifications": {"classes": ["Dog", "Cat"], "scores": [0.1, 0.2]}}
    expected = [("a", ["Cat"], [0.5]), ("b", ["Cat", "Dog"], [0.2, 0.1])]
    for name, text in (
        ("a.json", f"{json.dumps(one, indent=1)}\n\n{json.dumps(two)}"),
        ("b.json", json.dumps([one, two])),
        ("c.jsonl", f"{json.dumps(one)}\n{json.dumps(two)}"),
    ):
        (tmp_path / name).write_text(text)
        assert rows_of(tmp_path / name) == expected


def test_megadetector_counts_the_surest_detection_or_nothing(tmp_path):
    def image(*detections, **more):
        return {
            "file": "a",
            "detections": [dict(zip(("category", "conf"), pair, strict=True)) for pair in detections],
            **more,
        }

    images = [
        image(("1", 0.1)), image(("1", 0.3), ("2", 0.9)), image(("1", 0.19)), image(failure=None),
        {"file": "b", "detections": None, "failure": "Failure image access"}, {"file": "c", "failure": "x"},
    ]  # fmt: skip
    images[1]["detections"][0]["classifications"] = [["0", 0.7], ["1", 0.3]]
    content = {"images": images, "detection_categories": {"1": "animal", "2": "person"}}
    (tmp_path / "a.json").write_text(json.dumps(content | {"classification_categories": {"0": "fox", "1": "elk"}}))
    assert [row[1:] for row in rows_of(tmp_path / "a.json")] == [([], []), (["person"], [0.9]), *[([], [])] * 4]
    content["info"] = {"detector_metadata": {"typical_detection_threshold": 0.15}}
    images[1]["detections"].pop()
    content["classification_categories"] = {"0": "fox", "1": "fox"}  # two species may have one name
    (tmp_path / "a.json").write_text(json.dumps(content))
    rows = [row[1:] for row in rows_of(tmp_path / "a.json")]
    assert rows[:3] == [([], []), (["fox (0)", "fox (1)"], [0.7, 0.3]), (["animal"], [0.19])]


def test_failed_responses_of_a_batch_are_empty_answers(tmp_path):
    (tmp_path / "v.json").write_text(json.dumps({"responses": [{"error": {"code": 3, "message": "bad"}}, {}]}))
    assert rows_of(tmp_path / "v.json") == [(None, [], []), (None, [], [])]


def test_other_json_and_text_in_a_folder_is_no_shard(tmp_path):
    (tmp_path / "predictions.json").write_text(written.speciesnet(PLAIN))
    (tmp_path / "a.txt").write_text(written.birdnet_raven(PLAIN))
    for name, content in (
        ("classes.json", '["cat", "dog"]'), ("manifest.json", '{"logits": 1}'), ("readme.txt", "label\tnothing\n"),
        ("bad.json", b"\xff\xff"), ("bad.txt", b"\xff\xff"),
    ):  # fmt: skip
        (tmp_path / name).write_bytes(content if isinstance(content, bytes) else content.encode())
    assert [path.name for path in find_shards(tmp_path)] == ["a.txt", "predictions.json"]
    assert [path.name for path in find_shards(f"{tmp_path}/*.json")] == ["predictions.json"]


ITEM = {"filepath": "a", "classifications": {"classes": ["x"], "scores": [0.5]}}
IMAGE = {"file": "a", "detections": [{"category": "1", "conf": 0.9, "classifications": [["0", 0.5]]}]}
NAMED = {"detection_categories": {"1": "animal"}, "classification_categories": {"0": "fox"}, "info": {}}
BAD = {
    "NaN": ('{"predictions": [{"filepath": "a", "classifications": {"classes": ["x"], "scores": [NaN]}}]}', "NaN is not"),
    "a text for a score": ({"predictions": [ITEM | {"classifications": {"classes": ["x"], "scores": ["y"]}}]}, "score 'y'"),
    "more scores": ({"predictions": [ITEM | {"classifications": {"classes": ["x"], "scores": [1, 2]}}]}, "1 labels but 2"),
    "classes that are none": ({"predictions": [ITEM | {"classifications": {"classes": 3}}]}, "lists classes and scores"),
    "classifications that are none": ({"predictions": [ITEM | {"classifications": [1]}]}, "lists classes and scores"),
    "a class that is a list": ({"predictions": [ITEM | {"classifications": {"classes": [[1]]}}]}, "which is no name"),
    "a name without end": ({"predictions": [ITEM | {"filepath": "x" * 5000}]}, "5000 letters"),
    "half a character": ('{"predictions": [{"filepath": "\\ud800", "classifications": null}]}', "half a character"),
    "a number for an image": ({"predictions": [ITEM, 3]}, "row 2 of .* is a int"),
    "two lists": ({"predictions": [ITEM], "images": [IMAGE]}, "has predictions and images"),
    "the list twice": ('{"images": [], "images": []}', "has images and images"),
    "depth": ('{"predictions": [' + "[" * 100_000, "nested too deeply"),
    "some depth": ('{"a": ' + "[" * 70 + "]" * 70 + "}", "nested more than 64"),
    "depth of keys": ('{"a":' * 100_000, "nested too deeply"),
    "an end too early": ('{"predictions": [{"filepath": "a"}, ', "ends before its end"),
    "half a value": ('{"predictions": [{"filepath": "a"', "is no JSON"),
    "a colon too few": ('{"predictions" [1]}', ": is missing at letter 16"),
    "a comma too few": ('[[] []]', ", is missing at letter 5"),
    "a key that is none": ("{1: 2}", "a key is no text"),
    "a long number": ("[" + "1" * 5000 + "]", "is no JSON"),
    "words": ("hello", "is no JSON"),
    "a number": ("3", "row 1 of .* is a int"),
    "labels without names": ([{"score": 0.5}], "name is expected under one of"),
    "an unknown kind": ({**NAMED, "images": [IMAGE | {"detections": [{"conf": 1, "category": "9"}]}]}, "has the detection"),
    "an unknown class": (
        {**NAMED, "images": [{"file": "a", "detections": [{"conf": 1, "classifications": [["7", 1]]}]}]},
        "has the classification",
    ),
    "no categories": ({"images": [IMAGE]}, "has the classification"),
    "categories that are none": ({**NAMED, "classification_categories": [1], "images": [IMAGE]}, "an object is expected"),
    "detections that are none": ({**NAMED, "images": [IMAGE | {"detections": 3}]}, "a list is expected"),
    "a detection that is none": ({**NAMED, "images": [IMAGE | {"detections": [3]}]}, "the number conf is expected"),
    "a sureness that is none": ({**NAMED, "images": [IMAGE | {"detections": [{"conf": True}]}]}, "number conf is expected"),
    "an image that is none": ({**NAMED, "images": [[1]]}, "object with file and detections"),
    "a response that is none": ({"responses": [3]}, "row 1 of .* is a int"),
    "nothing known": ({"a": 1, "b": 2}, "holds a, b, but one of logits"),
}  # fmt: skip


@pytest.mark.parametrize("case", BAD)
def test_a_hostile_document_is_one_sentence(case, tmp_path):
    content, message = BAD[case]
    path = tmp_path / "a.json"
    path.write_text(content if isinstance(content, str) else json.dumps(content))
    with pytest.raises(ReprogramError, match=message) as raised:
        list(read_blocks(path))
    assert "a.json" in str(raised.value)
    assert "\n" not in str(raised.value)
    assert len(str(raised.value)) < 500


HEADER = "Start (s),End (s),Scientific name,Common name,Confidence,File\n"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            HEADER + "0,3,A,Wren,0.5,a.wav\n3,6,A,Wren,0.5,a.wav\n0,3,A,Robin,0.5,a.wav\n",
            "row 3 of .* goes back to the window",
        ),
        (HEADER + "0,3,A,Wren,nan,a.wav\n", "row 1 of .* has the confidence 'nan'"),
        (HEADER + "zero,3,A,Wren,0.5,a.wav\n", "row 1 of .* has the time 'zero'"),
        (HEADER + "0,3,A,Wren,0.5,my,file.wav\n", "row 1 of .* has 7 cells, but its header has 6"),
        (HEADER + '0,3,A,Wren,0.5,"a\n', "row 1 of .* has 5|cannot be read|goes back|cells"),
        (HEADER.replace("File", "Confidence"), "2 columns Confidence"),
    ],
)
def test_a_hostile_table_of_birdnet_is_one_sentence(text, message, tmp_path):
    (tmp_path / "a.csv").write_text(text)
    if '"a\n' in text:  # a quote that is never closed ends with the file
        assert rows_of(tmp_path / "a.csv") == [("a#0-3", ["Wren"], [0.5])]
        return
    with pytest.raises(ReprogramError, match=message):
        list(read_blocks(tmp_path / "a.csv"))


def test_a_recording_that_a_table_does_not_name_is_called_by_the_file(tmp_path):
    (tmp_path / "dawn.BirdNET.results.csv").write_text("start,end,common_name,confidence\n0,3,Wren,0.5\n0,3,Wren,0.75\n")
    assert rows_of(tmp_path / "dawn.BirdNET.results.csv") == [("dawn#0-3", ["Wren"], [0.75])]


def test_a_long_list_of_images_takes_little_memory(tmp_path):
    path = tmp_path / "a.json"
    label = f"{written.UUID};mammalia;carnivora;felidae;panthera;leo;lion"
    answers = [(f"images/site/{place:06}.jpg", [(f"{label}{k}", 0.2) for k in range(5)]) for place in range(12_000)]
    path.write_text(written.speciesnet(answers))
    assert path.stat().st_size > 9 * 2**20
    with memory_below(9 * 2**20):
        assert sum(block.rows for block in read_blocks(path)) == 12_000


def test_a_part_without_end_is_not_read(tmp_path):
    path = tmp_path / "a.json"
    path.write_text('{"predictions": [{"filepath": "')
    with path.open("ab") as file:
        file.truncate(2**32)
    with memory_below(200 * 2**20), pytest.raises(ReprogramError, match=r"is no JSON|more than 16 MiB"):
        list(read_blocks(path))
