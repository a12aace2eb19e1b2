"""`reprogram map` and `reprogram logits` as a person types them."""

import csv
import json

import numpy as np
import pyarrow.parquet
import pytest

from command import reprogram
from reprogram.cli.main import main

SMALL = ("--model", "timm:test_resnet", "--no-pretrained", "--canvas", "64", "--batch-size", "16")


@pytest.fixture(scope="module")
def place(shapes, tmp_path_factory):
    """A folder with shards of logits and of a service's answers."""
    root = tmp_path_factory.mktemp("map")
    reprogram("logits", "--data", shapes, "--out", "shards", "--shard-size", 40, *SMALL, cwd=root)
    rng = np.random.default_rng(0)
    lines = []
    for row in range(60):
        kind = row % 2
        names = [("Tabby", "Fur"), ("Beagle", "Fur")][kind]
        scores = rng.uniform(0.5, 1, 2).round(3).tolist()
        labels = [{"name": n, "score": s} for n, s in zip(names, scores, strict=True)]
        lines.append(json.dumps({"image": f"{row}.jpg", "label": ["cat", "dog"][kind], "labels": labels}))
    (root / "answers.jsonl").write_text("\n".join(lines))
    (root / "strange.jsonl").write_text('{"label": "cat", "results": [{"name": "Tabby"}]}')
    (root / "new.jsonl").write_text('{"image": "x.jpg", "labels": [{"name": "Tabby"}, {"name": "Lamp"}]}\n{"labels": []}\n')
    return root


def test_from_images_to_predictions(place, shapes, monkeypatch, capsys):
    """The accuracy on held-out rows is that of fitting the same model without a program."""
    printed = reprogram("map", "shards", "--mapping", "blm", "--out", "m", cwd=place).stdout
    assert {path.name for path in (place / "m").iterdir()} == {"artefact.json", "artefact.safetensors", "labels.csv"}
    held = json.loads((place / "m" / "artefact.json").read_text())["held_out"]
    assert f"accuracy on 30 held-out rows: {100 * held['accuracy']:.1f} % (95 % interval" in printed
    flags = ("--program", "none", "--mapping", "blm", "--val-fraction", 0, "--out", "run")
    monkeypatch.chdir(place)
    assert main(list(map(str, ("fit", "--data", shapes, *flags, *SMALL)))) == 0
    assert json.loads((place / "run" / "result.json").read_text())["accuracy"]["last"] == pytest.approx(held["accuracy"])
    for name in ("p.csv", "p.jsonl", "p.parquet"):
        assert main(["map", "predict", "m", "shards/test*.npz", "--out", name]) == 0
        assert f"{100 * held['accuracy']:.1f} %" in capsys.readouterr().out
    rows = list(csv.DictReader((place / "p.csv").read_text().splitlines()))
    objects = [json.loads(line) for line in (place / "p.jsonl").read_text().splitlines()]
    table = pyarrow.parquet.read_table(place / "p.parquet").to_pylist()
    assert [row["predicted"] for row in rows] == [row["predicted"] for row in objects] == [row["predicted"] for row in table]
    assert sum(row["predicted"] == row["label"] for row in rows) == held["correct"]


def test_logits_under_the_program_of_a_run(place, shapes, monkeypatch):
    monkeypatch.chdir(place)
    flags = ("fit", "--data", shapes, "--program", "none", "--mapping", "blm", "--out", "other", *SMALL)
    assert main(list(map(str, flags))) == 0
    assert main(["logits", "--run", "other", "--split", "test", "--batch-size", "16", "--out", "of-run"]) == 0
    manifest = json.loads((place / "of-run" / "manifest.json").read_text())
    assert manifest["splits"] == {"test": 30}
    plain = json.loads((place / "shards" / "manifest.json").read_text())
    assert manifest["shards"]["test-00000.npz"] == plain["shards"]["test-00000.npz"]  # the run has no program


def test_answers_of_a_service(place, monkeypatch, capsys):
    monkeypatch.chdir(place)
    assert main(["map", "answers.jsonl", "--mapping", "blm+", "--top-k", "2", "--out", "pets"]) == 0
    printed = capsys.readouterr().out
    assert "3 source labels -> 2 classes" in printed
    assert "then estimated from all rows" in printed
    assert main(["map", "predict", "pets", "new.jsonl"]) == 0
    printed = capsys.readouterr()
    assert printed.out.splitlines() == [
        "image,label,predicted,share,by_frequency,unseen_labels",
        "x.jpg,,cat,0.999543,False,1",
        "new.jsonl:2,,cat,0.5,True,0",
    ]
    assert "1 of them had no usable label" in printed.err
    assert main(["map", "predict", "pets", "new.jsonl", "--calibration", "none", "--coverage", "0.9"]) == 0
    printed = capsys.readouterr()
    assert printed.out.splitlines() == [
        "image,label,predicted,share,by_frequency,unseen_labels,set",
        "x.jpg,,cat,1.0,False,1,cat",
        "new.jsonl:2,,cat,0.5,True,0,cat|dog",
    ]
    assert "prediction sets for 90.0 %: 1.50 classes on average" in printed.err
    assert main(["map", "predict", "pets", "new.jsonl", "--unlike", "0.01"]) == 2
    assert "only mapping 'gaussian'" in capsys.readouterr().err


def test_an_existing_mapping_is_not_replaced_unless_told(place, monkeypatch, capsys):
    monkeypatch.chdir(place)
    assert main(["map", "answers.jsonl", "--mapping", "blm", "--out", "twice"]) == 0
    before = (place / "twice" / "artefact.json").read_bytes()
    assert main(["map", "answers.jsonl", "--mapping", "blm+", "--out", "twice"]) == 2
    assert "--replace" in capsys.readouterr().err
    assert (place / "twice" / "artefact.json").read_bytes() == before
    assert main(["map", "answers.jsonl", "--mapping", "blm+", "--out", "twice", "--replace"]) == 0
    assert (place / "twice" / "artefact.json").read_bytes() != before


def test_test_shards_of_the_folder_itself_are_measured_on_and_not_fitted(place, monkeypatch, capsys):
    monkeypatch.chdir(place)
    assert main(["map", "shards", "--test", "shards/test-*.npz", "--mapping", "blm", "--out", "apart"]) == 0
    printed = capsys.readouterr().out
    assert "96 rows:" in printed
    assert "accuracy on 30 held-out rows" in printed
    assert "estimated from all rows" not in printed


def test_labels_of_no_class_are_told(place, monkeypatch, capsys):
    monkeypatch.chdir(place)
    assert main(["map", "answers.jsonl", "--mapping", "blm", "--out", "told"]) == 0
    labels = ["emu", "cat", "emu", "elk", "", "ant", "asp"]
    lines = [json.dumps({"label": label, "labels": ["Tabby"]}) for label in labels]
    (place / "labelled.jsonl").write_text("\n".join(lines))
    assert main(["map", "predict", "told", "labelled.jsonl"]) == 0
    printed = capsys.readouterr().err
    assert "5 rows have a label that is no class of the mapping: 'emu', 'elk', 'ant' ..." in printed
    assert "100.0 % (95 % interval" in printed  # of the one cat


def test_the_home_folder_is_understood_without_a_shell(place, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(place))
    (place / "classes.txt").write_text("cat\ndog\n")
    words = ["map", "~/answers.jsonl", "--mapping", "blm", "--out", "~/at-home", "--classes", "~/classes.txt"]
    assert main(words) == 0
    assert main(["map", "predict", "~/at-home", "~/new.jsonl", "--out", "~/at-home.csv"]) == 0
    assert (place / "at-home.csv").exists()
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("words", [["map"], ["map", "predict"], ["logits"], ["update"]], ids=" ".join)
def test_the_flags_are_explained(words, capsys):
    with pytest.raises(SystemExit, match="0"):
        main([*words, "--help"])
    assert "--out" in capsys.readouterr().out
    assert main([]) == 0
    assert f"  {words[0]} " in capsys.readouterr().out


MISTAKES = {
    "no files": (["map"], "no shard was given"),
    "no such files": (["map", "none/*.npz"], "no shard matches"),
    "other mapping": (["map", "answers.jsonl", "--mapping", "blmm"], "did you mean 'blm'"),
    "logits needed": (["map", "answers.jsonl", "--mapping", "gaussian"], "needs all logits"),
    "percent": (["map", "answers.jsonl", "--scores", "percent"], "the highest is"),
    "classes": (["map", "answers.jsonl", "--classes", "cat,bird"], "has the label 'dog'"),
    "classes file": (["map", "answers.jsonl", "--classes", "missing.txt"], "neither a file nor names"),
    "taken folder": (["map", "answers.jsonl", "--out", "."], "exists already"),
    "no artefact": (["map", "answers.jsonl", "--out", ".", "--replace"], "exists and is not an artefact"),
    "taken folder, auto": (["map", "shards", "--mapping", "auto", "--out", "."], "exists already"),
    "all is test": (["map", "shards", "--test", "shards"], "none is left to fit"),
    "unknown key": (["map", "strange.jsonl"], "holds label, results, but one of"),
    "unknown setting": (["map", "answers.jsonl", "--mapping", "blm", "--shrinkage", "0.5"], "does not use shrinkage"),
    "setting of no mapping": (["map", "answers.jsonl", "--shrinkage", "0.5"], "mapping auto chooses it"),
    "odd predictions": (["map", "predict", "shards", "answers.jsonl", "--out", "x.txt"], "none of .csv, .jsonl, .parquet"),
    "address": (["map", "answers.jsonl", "--address", "auto"], "only the ray engine"),
    "no mapping": (["map", "predict", "nothing", "answers.jsonl"], "is not a folder"),
    "no such mapping": (["map", "predict", "shards", "answers.jsonl"], "neither a run nor a mapping"),
    "no data": (["logits", "--data", "nothing", "--out", "x"], "neither a folder"),
    "no model": (["logits", "--model", "nothing", "--out", "x"], "source:name"),
    "no out": (["logits"], "out is missing"),
}


@pytest.mark.parametrize("case", MISTAKES)
def test_a_mistake_is_one_sentence_and_nothing_is_written(case, place, monkeypatch, capsys):
    monkeypatch.chdir(place)
    before = sorted(place.rglob("*"))
    words, message = MISTAKES[case]
    assert main(words) == 2
    printed = capsys.readouterr().err
    assert message in printed
    assert len(printed.strip().splitlines()) == 1
    assert sorted(place.rglob("*")) == before


def test_predictions_that_cannot_be_finished_leave_no_file(place, monkeypatch, capsys):
    monkeypatch.chdir(place)
    assert main(["map", "answers.jsonl", "--mapping", "blm", "--out", "whole"]) == 0
    (place / "bad.jsonl").write_text('{"labels": []}\n{"labels": [{"name": "Tabby", "score": 7}]}\n')
    capsys.readouterr()
    assert main(["map", "predict", "whole", "bad.jsonl"]) == 2
    assert capsys.readouterr().out == ""
    for out in ("q.csv", "q.parquet"):
        assert main(["map", "predict", "whole", "bad.jsonl", "--out", out]) == 2
        assert "row 2 of 'bad.jsonl' has the score 7" in capsys.readouterr().err
        assert not (place / out).exists()
    assert main(["map", "predict", "whole", "new.jsonl", "--out", "q.txt"]) == 2
    (place / "bad.jsonl").unlink()
