"""A table of labels beside answers that have none: which answer has which label, and what is refused."""

import json

import numpy as np
import pytest

import written
from command import here
from reprogram.answers.fit import fit_files
from reprogram.answers.mapping import AnswerMapping
from reprogram.answers.parallel import Workers
from reprogram.answers.shards import read_blocks
from reprogram.answers.truth import LabelTable
from reprogram.answers.update import update_mapping
from reprogram.errors import ReprogramError
from reprogram.names import short_names

PHOTOS = [
    (f"/data/{site}/IMG_{place}.JPG", [("fox" if place % 2 else "elk", 0.75), (site, 0.25)])
    for site in ("ridge", "waterhole")
    for place in range(6)
]


def table(path, rows, header="image,label"):
    path.write_text("\n".join([header, *rows]))
    return path


def labels_of(path, labels, **options):
    """{image: label} of the rows that a table names."""
    found = {}
    for block in read_blocks(path, labels=LabelTable.read(labels), **options):
        found |= {block.image(row): block.labels[row] for row in range(block.rows)}
    return found


@pytest.fixture
def answers(tmp_path):
    path = tmp_path / "predictions.json"
    path.write_text(written.speciesnet(PHOTOS))
    return path


def test_an_image_is_known_by_the_end_of_its_path(answers, tmp_path):
    rows = ["/data/ridge/IMG_0.JPG,a", r".\ridge\IMG_1.JPG,b", "waterhole/IMG_0.JPG,c", "old/disk/data/ridge/IMG_2.JPG,d"]
    rows += ["elsewhere/IMG_3.JPG,e", "idge/IMG_4.JPG,f", "ridge/IMG_5.JPG,", ",g"]
    found = labels_of(answers, table(tmp_path / "t.csv", rows))
    expected = {"/data/ridge/IMG_0.JPG": "a", "/data/ridge/IMG_1.JPG": "b", "/data/ridge/IMG_2.JPG": "d"}
    assert found == {**expected, "/data/waterhole/IMG_0.JPG": "c"}
    everything = labels_of(answers, tmp_path / "t.csv", others=True)
    assert everything == {image: found.get(image, "") for image, _ in PHOTOS}


def test_rows_keep_their_numbers_where_others_are_left_out(answers, tmp_path):
    labels = LabelTable.read(table(tmp_path / "t.csv", ["ridge/IMG_4.JPG,a", "waterhole/IMG_1.JPG,b"]))
    (block,) = read_blocks(answers, labels=labels)
    assert [block.number(row) for row in range(block.rows)] == [5, 8]
    assert block.place(1).startswith("row 8 of ")
    assert block.top_labels == [["elk", "ridge"], ["fox", "waterhole"]]


def test_a_name_that_could_be_two_images_is_refused(answers, tmp_path):
    with pytest.raises(ReprogramError, match=r"'IMG_1.JPG' of labels .* could be '/data/ridge/IMG_1.JPG' or '/data/water"):
        fit_files(answers, "blm", labels=table(tmp_path / "t.csv", ["IMG_1.JPG,a", "ridge/IMG_2.JPG,b"]))
    fit_files(answers, "blm", labels=table(tmp_path / "u.csv", ["ridge/IMG_1.JPG,a", "ridge/IMG_2.JPG,b"]), holdout=0).save(
        tmp_path / "m"
    )
    with pytest.raises(ReprogramError, match=r"could be '/data/ridge/IMG_1.JPG' or"):
        list(AnswerMapping.load(tmp_path / "m").predict_files(answers, tmp_path / "t.csv"))
    (tmp_path / "short.json").write_text(written.speciesnet([("IMG_1.JPG", [("fox", 0.5)])]))
    with pytest.raises(ReprogramError, match="could be several of labels"):
        labels_of(tmp_path / "short.json", table(tmp_path / "t.csv", ["a/IMG_1.JPG,x", "b/IMG_1.JPG,y"]))


def test_parts_of_recordings_are_named_alone_or_together(tmp_path):
    path = tmp_path / "a.BirdNET.results.csv"
    path.write_text(written.birdnet_csv([(f"n/{name}.wav#{t}-{t + 3}", [("Wren", 0.5)]) for name in "ab" for t in (0, 3)]))
    rows = ["a.wav,0,3.0,one", "n/a.wav,3,6,two", "b.wav,,,three"]
    found = labels_of(path, table(tmp_path / "t.csv", rows, "image,begin,end,label"))
    assert found == {"n/a.wav#0-3": "one", "n/a.wav#3-6": "two", "n/b.wav#0-3": "three", "n/b.wav#3-6": "three"}
    fit_files(path, "blm", labels=tmp_path / "t.csv", holdout=0)  # one row of the table may mean all parts
    assert labels_of(path, table(tmp_path / "t.csv", ["a.wav#3-6,x"])) == {"n/a.wav#3-6": "x"}


def test_a_file_of_predictions_with_labels_filled_in_is_a_table(answers, tmp_path):
    (tmp_path / "hf.json").write_text(written.hugging_face(PHOTOS))
    labels = table(tmp_path / "t.csv", [f"ridge/IMG_{place}.JPG,{'ab'[place % 2]}" for place in range(6)])
    fit_files(answers, "blm+", labels=labels, holdout=0).save(tmp_path / "m")
    here("map", "predict", str(tmp_path / "m"), str(tmp_path / "hf.json"), "--out", str(tmp_path / "p.csv"))
    filled = (
        (tmp_path / "p.csv").read_text().replace("hf.json:3,,", "hf.json:3,dog,").replace("hf.json:5,,", "hf.json:5,cat,")
    )
    (tmp_path / "p.csv").write_text(filled)
    found = labels_of(tmp_path / "hf.json", tmp_path / "p.csv")
    assert [(image.rpartition(":")[2], label) for image, label in found.items()] == [("3", "dog"), ("5", "cat")]


def test_answers_in_files_of_their_own_have_lost_the_suffix_of_the_image(tmp_path):
    (tmp_path / "IMG_7.json").write_text(json.dumps(written.rekognition_response([("Cat", 0.5)])))
    rows = ["x/IMG_7.JPG,a", "x/IMG_71.JPG,b"]
    assert labels_of(tmp_path / "IMG_7.json", table(tmp_path / "t.csv", rows)) == {"IMG_7": "a"}


@pytest.mark.parametrize("suffix", ["npz", "csv", "jsonl"])
def test_the_other_formats_take_labels_too(suffix, tmp_path):
    path, logits = tmp_path / f"a.{suffix}", np.arange(24.0).reshape(8, 3) % 5
    names = [f"{row}.png" for row in range(8)]
    if suffix == "npz":
        np.savez(path, logits=logits, image=np.array(names))
    elif suffix == "csv":
        rows = [f"{name},{','.join(map(str, row))}" for name, row in zip(names, logits.tolist(), strict=True)]
        table(path, rows, "image,logit_0,logit_1,logit_2")
    else:
        path.write_text(
            "\n".join(json.dumps({"image": n, "logits": r}) for n, r in zip(names, logits.tolist(), strict=True))
        )
    labels = table(
        tmp_path / "t.csv", [f"{row}.png,{'ab'[row % 2]},{'test' if row == 6 else 'train'}" for row in range(1, 7)]
    )
    labels.write_text(labels.read_text().replace("image,label", "image,label,split"))
    fitted = fit_files(path, "gaussian", labels=labels)
    assert fitted.samples.tolist() == [2, 3]
    assert fitted.held_out.score.n == 1
    assert "6 of 8 answers have a label in t.csv; the others are left out" in fitted.notes


def test_a_table_changes_nothing_but_where_labels_stand(answers, tmp_path):
    """Two files, two processes, added later: the same mapping as from one file with its labels in it."""
    labels = table(
        tmp_path / "t.csv", [f"{image},{'ab'[place % 2]}" for place, (image, _) in enumerate(PHOTOS) if place != 3]
    )
    parts = []
    for number, part in enumerate((PHOTOS[:5], PHOTOS[5:])):
        parts.append(tmp_path / f"{number}.json")
        parts[-1].write_text(written.speciesnet(part))
    whole = fit_files(answers, "blm", labels=labels, holdout=0)
    with Workers(processes=2) as workers:
        assert fit_files(parts, "blm", labels=labels, holdout=0, workers=workers).mapping.omega.equal(whole.mapping.omega)
    begun = fit_files(parts[0], "blm", labels=labels, holdout=0)
    updated, _ = update_mapping(begun, add=parts[1], labels=labels)
    assert updated.mapping.omega.equal(whole.mapping.omega)
    with pytest.raises(ReprogramError, match="was added before"):
        update_mapping(updated, add=parts[1], labels=labels)


BAD = {
    "no label": ("image,lable\na,b", "has the columns image, lable, but image and label are expected"),
    "nothing": ("", "has the columns nothing"),
    "no row": ("image,label\n", "has no row with a label"),
    "empty labels": ("image,label\na,\n", "has no row with a label"),
    "two labels": ("image,label\na,x\n./a,y", "row 2 of labels .* gives './a' the label 'y', but a row before it gives 'x'"),
    "two columns": ("image,label,label\na,x,y", "2 columns label"),
    "a cell too many": ("image,label\na,x,y", "row 1 of labels .* has 3 cells, but its header has 2"),
    "a name without end": (f"image,label\na,{'x' * 5000}", "more than 4096 letters"),
    "a cell without end": (f"image,label\na,{'x' * 200_000}", "cannot be read"),
    "no time": ("image,begin,end,label\na,x,y,z", "has the time 'x', but seconds"),
    "other images": ("image,label\na,x\nb,y", "none of the 12 answers, such as '/data/ridge/IMG_0.JPG', is among"),
    "too few in order": ("label\nx\ny", "has no column image and 2 rows, but .* has 12 answers"),
    "bytes": (b"image,label\n\xff,x", "not UTF-8"),
}  # fmt: skip


@pytest.mark.parametrize("case", BAD)
def test_a_wrong_table_is_one_sentence(case, answers, tmp_path, capsys):
    content, message = BAD[case]
    (tmp_path / "t.csv").write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(ReprogramError, match=message) as raised:
        fit_files(answers, "blm", labels=tmp_path / "t.csv")
    assert "\n" not in str(raised.value)
    assert len(str(raised.value)) < 500


def test_a_table_in_order_goes_with_one_file(answers, tmp_path):
    (tmp_path / "b.json").write_text(answers.read_text())
    labels = table(tmp_path / "t.csv", ["a", "b"] * 6, "label")
    with pytest.raises(ReprogramError, match="goes with one file in its order, but 2 were given"):
        fit_files([answers, tmp_path / "b.json"], "blm", labels=labels)
    assert list(labels_of(answers, labels).values()) == ["a", "b"] * 6
    assert list(labels_of(answers, table(tmp_path / "t.csv", ["a", '""', "c"] * 4, "label")).values()) == ["a", "c"] * 4


def test_test_files_without_a_label_measure_nothing(answers, tmp_path):
    (tmp_path / "test.json").write_text(written.speciesnet([("other.JPG", [("fox", 0.5)])]))
    labels = table(tmp_path / "t.csv", ["ridge/IMG_0.JPG,a", "ridge/IMG_1.JPG,b"])
    with pytest.raises(ReprogramError, match=r"no answer of the test files, such as .*test.json'?, has a label"):
        fit_files(answers, "blm", labels=labels, test=tmp_path / "test.json")


def test_the_command_line_says_what_was_matched(answers, tmp_path):
    labels = table(tmp_path / "t.csv", [f"ridge/IMG_{place}.JPG,{'ab'[place % 2]}" for place in range(9)])
    said = here("map", str(answers), "--labels", str(labels), "--holdout", "0", "--out", str(tmp_path / "m")).stdout
    assert "note: 6 of 12 answers have a label in t.csv; the others are left out; 3 of its 9 images are in no answer" in said
    assert AnswerMapping.load(tmp_path / "m").samples.tolist() == [3, 3]
    result = here("map", "predict", str(tmp_path / "m"), str(answers), "--labels", str(labels))
    assert result.stdout.count("\n") == 13
    assert "accuracy on the rows with a known label: 100.0 %" in result.stderr


def test_common_names_stand_for_taxonomies_where_they_can():
    lion, leo, big = f"{written.UUID};a;b;c;panthera;leo;lion", "1;a;b;c;panthera;leo;", "2;a;b;c;panthera;;"
    dog, other, blank = "3;a;b;c;canis;;dog", "4;a;b;c;lupus;;dog", "5;;;;;;blank"
    names = short_names([lion, leo, big, dog, other, blank, "crane", ";;;;;;", "a;b"])
    assert list(names.values()) == ["lion", "panthera leo", "panthera", dog, other, "blank", "crane", ";;;;;;", "a;b"]
