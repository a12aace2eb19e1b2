"""The page as a text: what is in it, how large it is, what is said, and what happens to mistakes."""

import json
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from command import here
from conftest import draw_folder
from reprogram.errors import ReprogramError
from reprogram.mappings.making import make_mapping
from reprogram.report import write_report
from reprogram.report.outline import outline
from reprogram.report.packing import by_likeness, packed
from reprogram.report.page import summary_html
from reprogram.report.words import accuracies, passages
from reprogram.report.worries import worries
from reprogram.report.write import report_text
from reprogram.run.outcomes import Outcomes
from reprogram.run.record import RunRecord, read_run
from reprogram.scores import accuracy_interval

from .conftest import HOSTILE


def embedded(text):
    return json.loads(re.search(r'<script id="data" type="application/json">(.*?)</script>', text, flags=re.DOTALL)[1])


@pytest.fixture(scope="module")
def text(run):
    return report_text([read_run(run[0])])


def titles(record):
    return {worry.title: worry for worry in worries(record)}


def test_fit_writes_the_report_and_prints_its_path(run):
    folder, printed = run
    assert f"report {folder / 'report.html'}" in printed.splitlines()
    assert (folder / "report.html").read_text() == write_report(folder, folder / "report.html").read_text()


def test_a_report_is_the_same_whenever_it_is_made(run, text):
    assert report_text([read_run(run[0])]) == text


def test_nothing_outside_is_named_and_the_policy_allows_nothing(text):
    assert re.findall(r"(?:src|href)=\"?([^\" >]*)", text.split("<script")[0]) == ["#content"]
    policy = re.search(r'Content-Security-Policy" content="([^"]*)"', text)[1]
    assert policy.startswith("default-src &#x27;none&#x27;; style-src &#x27;sha256-")
    assert "unsafe" not in policy
    assert "http" not in text.replace("http://www.w3.org/2000/svg", "").replace("http-equiv", "")


def test_the_numbers_of_the_summary_are_those_of_the_run(run, text):
    result = read_run(run[0]).result
    for name in ("selected", "last", "best_on_test"):
        assert f"<dt>{100 * result['accuracy'][name]:.1f} %</dt>" in text
    assert f"{result['parameters']['free']:,} numbers were trained" in text
    assert "λ 1" in text


def test_the_payload_holds_the_confusion_and_j(run, text):
    content, record = embedded(text)["runs"][0], read_run(run[0])
    assert content["test"]["right"] == record.test.confusion.diagonal().tolist()
    assert content["joint"]["entries"] == np.count_nonzero(record.joint)
    assert content["training"] == [29, 29, 29]
    assert len(content["pictures"]["classes"]) == 3


def test_without_images_no_picture_of_the_data_is_there(run):
    content = embedded(report_text([read_run(run[0])], images=False))["runs"][0]["pictures"]
    assert content["classes"] == {}
    assert content["canvases"] == []
    assert {one["image"] for one in content["right"] + content["wrong"]} == {None}


def test_hostile_names_cannot_leave_the_data(hostile):
    page = report_text([read_run(hostile)])
    assert page.count("<script") == page.count("</script>") == 2
    assert "\u202e" not in page
    assert "alert(1)</script>" not in page
    assert HOSTILE[0] in embedded(page)["runs"][0]["classes"]


def test_data_that_are_gone_are_a_note_and_no_error(tmp_path):
    data = draw_folder(tmp_path / "data", per_class=6)
    small = ("--model", "timm:test_resnet", "--no-pretrained", "--canvas", "64", "--program", "none", "--mapping", "blm")
    here("fit", data, *small, "--no-cache", "--out", tmp_path / "run")
    data.rename(tmp_path / "elsewhere")
    content = embedded(write_report(tmp_path / "run").read_text())["runs"][0]["pictures"]
    assert "cannot be loaded" in content["notes"][0]
    assert content["wrong"] == []


def test_a_report_that_fails_does_not_fail_the_fit(shapes, tmp_path, monkeypatch):
    def broken(*_, **__):
        raise RuntimeError("no such luck")

    monkeypatch.setattr("reprogram.cli.report.write_report", broken)
    small = ("--model", "timm:test_resnet", "--no-pretrained", "--canvas", "64", "--program", "none", "--mapping", "blm")
    done = here("fit", shapes, *small, "--out", tmp_path / "run")
    assert "note: the report could not be written (no such luck)" in done.stdout


def test_several_runs_and_text(run, hostile, tmp_path, monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")
    done = here("report", run[0], hostile, "--out", tmp_path / "both.html")
    assert done.stdout == f"report {tmp_path / 'both.html'}\n"
    assert len(embedded((tmp_path / "both.html").read_text())["runs"]) == 2
    table = here("report", run[0], hostile, "--text").stdout
    assert run[0].name in table
    assert f"{100 * read_run(run[0]).result['accuracy']['last']:.1f}" in table
    assert not (tmp_path / "report.html").exists()


def test_the_text_of_one_run_fits_a_terminal(run, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    first, *table = here("report", run[0], "--text").stdout.splitlines()
    assert "model timm:test_resnet" in first
    assert "all runs" not in first
    assert sum(run[0].name in line for line in table) == 1
    assert not any("sel." in line for line in table)  # it is the saved model


def test_the_text_of_very_different_runs_folds_no_word(run, tmp_path, monkeypatch):
    """What is too wide for the terminal stands under the table, once for each run."""
    long = tmp_path / "a-run-with-quite-a-long-name"
    words = ("--model", "timm:test_vit", "--no-pretrained", "--program", "none", "--mapping", "blm", "--no-cache")
    here("fit", "digits", "--shots", 2, *words, "--out", long)
    monkeypatch.setenv("COLUMNS", "80")
    _, *lines = here("report", run[0], long, "--text").stdout.splitlines()
    assert max(map(len, lines[:-2])) <= 80
    rows = [line.split() for line in lines[:-2] if line.split()[:1] in (["1"], ["2"])]
    assert ["blm" in row for row in rows] == [True, True]  # one line each
    assert lines[-2].startswith(f"1: {run[0].name}, model timm:test_resnet")
    assert lines[-1].startswith(f"2: {long.name}, model timm:test_vit")
    monkeypatch.setenv("COLUMNS", "200")
    assert "1: " not in here("report", run[0], long, "--text").stdout


def test_the_picture_in_the_documentation_shows_the_orange_that_it_speaks_of():
    path = Path(__file__).parents[2] / "docs" / "report" / "summary.png"
    red, _, blue = np.moveaxis(np.asarray(Image.open(path).convert("RGB")).astype(int), 2, 0)
    assert ((red > 150) & (red - blue > 90)).any()
    assert path.stat().st_size < 150_000


def test_without_validation_nothing_is_called_selected(run):
    record = read_run(run[0])
    told = replace(outline(record), selected=None, last=0.5, best_on_test=0.5)
    three = accuracies(record, told)
    assert "no validation images" in three[0].meaning
    page = summary_html(0, told, three, [], worries(record), None)
    assert "All three agree" not in page
    assert "Those that there are agree." in page


def test_what_was_not_measured_is_no_reason_for_calm(run, hostile):
    assert "Nothing was measured here" in titles(read_run(run[0] / "artefact"))
    assert "Few rows were held out" in titles(read_run(hostile))


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["report"], ["RUN"]),
        (["report", "nowhere"], ["'nowhere'", "run folder"]),
        (["report", "{run}", "--out", "{run}"], ["is a folder", "report.html"]),
        (["report", "{run}", "--text", "--out", "x.html"], ["--text", "x.html"]),
        (["report", "{run}", "--out", "page.txt"], ["'page.txt'", ".html"]),
        (["report", "{shapes}"], ["neither a run nor a mapping"]),
    ],
)
def test_mistakes_are_one_sentence(arguments, words, run, shapes, tmp_path):
    done = here(*(word.format(run=run[0], shapes=shapes) for word in arguments), cwd=tmp_path, check=False)
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1
    assert all(word in done.stderr for word in words), done.stderr
    assert not list(tmp_path.iterdir())


def test_no_run_at_all():
    with pytest.raises(ReprogramError, match="no run was given"):
        write_report([])


def outcomes(labels, predicted, confidence=0.6, classes=("a", "b")):
    labels, predicted = np.array(labels), np.array(predicted)
    sure = np.full(len(labels), confidence, dtype=float)
    return Outcomes(classes, tuple(f"{n}.png" for n in range(len(labels))), labels, predicted, sure)


def invented(counts=((5, 5), (5, 5)), test=None, val=0.5, selected=0.5, **more):
    """A record of numbers that were never measured."""
    mapping = make_mapping("blm", ["x", "y"], ["a", "b"])
    statistics = mapping.new_statistics()
    for source in range(2):
        for target in range(2):
            n = counts[source][target]
            statistics.update(torch.eye(2)[[source] * n], torch.tensor([target] * n)) if n else None
    mapping.estimate(statistics)
    result = {
        "interval_95": [0.6, 0.7], "chance": 0.5, "accuracy": {"selected": selected}, "selected_epoch": 1, "notes": [],
        "images": {"train": 20, "val": 400, "test": 400}, "steps": [], "skipped": [], **more,
    }  # fmt: skip
    epoch = {"epoch": 1, "accuracy": {"train": 0.5, "val": val, "test": selected}, "loss": 1.0, "mapping_change": 0.0}
    content = {"mapping": {"name": "blm", "smoothing": 1.0}}
    return RunRecord("folder", "run", mapping, content, epochs=(epoch,), result=result, test=test)


def test_what_there_is_to_worry_about():
    good = [0] * 20 + [1] * 20
    assert [worry.level for worry in worries(invented(test=outcomes(good, good, 1.0)))] == ["fine"]
    with pytest.warns(UserWarning, match="no evidence"):
        assert "“\u2068b\u2069”" in titles(invented(((5, 0), (5, 0))))["1 class without evidence"].text
    assert "No better than chance" in titles(invented(interval_95=[0.49, 0.6]))
    assert "Few training images in 2 classes" in titles(invented(((1, 1), (1, 1))))
    wrong = titles(invented(test=outcomes(good, [0] * 40, 0.97)))
    assert {"Classes that are confused", "1 class never answered", "20 labels that may be wrong"} <= set(wrong)
    assert wrong["Confidence cannot be believed as it is"].level == "serious"
    assert "Few test images in every class" in titles(invented(test=outcomes([0, 1], [0, 1])))
    assert "Validation and test disagree" in titles(invented(val=0.9, selected=0.6))
    assert "Validation and test disagree" not in titles(invented(val=0.64, selected=0.6))
    noted = titles(invented(notes=["beware"], skipped=["x.png: broken"], stopped="the loss is infinite; lower --lr"))
    assert noted["Noted in the run"].text == "Beware."
    assert {"1 image left out", "The training was given up"} <= set(noted)


def test_the_example_of_few_test_images_is_a_class_with_few():
    labels = [0] * 30 + [1] * 4
    few = titles(invented(test=outcomes(labels, labels, 1.0, ("a", "b", "c"))))["Few test images in 2 classes"].text
    low, high = accuracy_interval(4, 4)
    assert f"that of “\u2068b\u2069”, for example, lies between {100 * low:.0f} % and {100 * high:.0f} %" in few


def test_images_of_one_group_do_not_make_validation_and_test_disagree():
    grouped = {"train": 5, "val": 20, "test": 20, "effective_test_images": 20.0}
    assert "Validation and test disagree" in titles(invented(val=0.75, selected=0.6))
    assert "Validation and test disagree" not in titles(invented(val=0.75, selected=0.6, groups=grouped))


def test_what_was_trained_is_not_said_to_be_computed(run):
    record = read_run(run[0])
    learned = replace(record, own_mapping=make_mapping("linear", record.source_labels, record.classes))
    assert "weights that are not 0; they were trained by gradients." in summary_of(learned)
    tried = {**record.result, "parameters": {"free": 0, "frozen": 7}}
    assert "Nothing was trained" not in summary_of(replace(record, result=tried))
    assert "was not kept; 7 numbers of the model stay frozen." in summary_of(replace(record, result=tried))


def summary_of(record):
    return " ".join(sentence.text for passage in passages(record, outline(record)) for sentence in passage.sentences)


def test_without_validation_nothing_was_selected(run):
    record = read_run(run[0])
    shares = {"last": 0.5, "selected": None, "best_on_test": 0.5}
    text = report_text([replace(record, result={**record.result, "accuracy": shares})], images=False)
    assert "there are no validation images to select an epoch by" in text
    assert "best on validation images" not in text
    assert "All three agree" not in text


def test_a_program_that_was_kept_image_by_image_is_not_said_to_bring_nothing(run):
    """The same shares that two samples would not tell apart: 8 images more of 100, and none fewer."""
    record = read_run(run[0])
    first = {**record.first["record"], "accuracy": {"train": None, "val": 0.8, "test": 0.8}}
    last = {**record.epochs[-1], "accuracy": {"train": 0.9, "val": 0.88, "test": 0.88}}
    images = {**record.result["images"], "val": 100}
    steps = [{"program": "none", "kept": False}, {"program": "padding", "kept": True, "better": 8, "worse": 0}]
    result = {**record.result, "images": images, "selected_epoch": last["epoch"]}
    given = replace(record, first={**record.first, "record": first}, epochs=(last,), result=result)
    nothing = "The program brought nothing that can be told from chance"
    assert nothing in titles(given)
    assert nothing not in titles(replace(given, result={**result, "steps": steps}))


def test_a_program_that_brought_nothing_is_told(run):
    record = read_run(run[0])
    best = {**record.first["record"], "accuracy": {"train": None, "val": 1.0, "test": 1.0}}
    told = titles(replace(record, first={**record.first, "record": best}))
    assert "The program brought nothing that can be told from chance" in told


def test_the_order_by_likeness_is_an_order_and_groups_what_is_alike():
    rng = np.random.default_rng(0)
    groups = rng.integers(0, 4, 40)
    order = by_likeness(np.eye(4)[groups] + 0.05 * rng.normal(size=(40, 4)))
    assert sorted(order) == list(range(40))
    changes = np.count_nonzero(np.diff(groups[order]))
    assert changes == 3


def test_numbers_are_packed_without_loss():
    assert packed(np.array([0, 127, 128, 2**40]), "varint") == "AH+AAYCAgICAIA=="
