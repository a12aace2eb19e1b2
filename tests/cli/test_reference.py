"""`reprogram reference`: a method in place of program and mapping; and what the other verbs make of its folder."""

import json
import shutil

import pytest

import sealed
from command import SMALL, here
from reprogram.cli.checks import check_reference
from reprogram.report import write_report


@pytest.fixture(scope="module")
def done(shapes, tmp_path_factory):
    """A finished one of two epochs, and what was printed."""
    folder = tmp_path_factory.mktemp("reference") / "linear"
    printed = here("reference", "finetune-linear", shapes, "--epochs", 2, "--out", folder, *SMALL)
    return folder, printed.stdout


def test_it_ends_with_the_lines_of_a_run(done, shapes):
    folder, printed = done
    told = sealed.content(folder / "result.json")
    assert f"finetune-linear of timm:test_resnet on {shapes.name} (3 classes" in printed
    assert "epoch 2/2" in printed
    for line in ("last epoch", "selected on validation (epoch", "best on test", "95 % interval of the saved model"):
        assert line in printed
    assert f"{100 * told['accuracy']['best_on_test']:.1f} %" in printed
    assert f"run folder {folder}" in printed
    assert "reprogram predict" not in printed
    assert (folder / "report.html").is_file()
    assert all(line.startswith("ok") for line in here("verify", folder).stdout.splitlines()[:-1])


def test_it_can_be_continued_and_repeated_by_its_file(done, tmp_path):
    folder = shutil.copytree(done[0], tmp_path / "run")
    here("reference", "finetune-linear", "--resume", "--out", folder, "--epochs", 3)
    assert sealed.content(folder / "result.json")["epochs"] == 3
    here("reference", "finetune-linear", "--config", folder / "config.json", "--out", tmp_path / "again")
    assert sealed.content(tmp_path / "again" / "config.json") == sealed.content(folder / "config.json")


def test_settings_of_a_method_stand_in_its_file(shapes, tmp_path):
    here("reference", "probe", shapes, *SMALL, "--strength", "0.5", "--shots", 8, "--out", tmp_path / "run")
    config = sealed.content(tmp_path / "run" / "config.json")
    assert config["reference_settings"] == config["given"]["reference_settings"] == {"strength": 0.5}
    plan = check_reference({"method": "probe", "config": str(tmp_path / "run" / "config.json")})
    assert (plan.settings, plan.fit.config.shots) == ({"strength": 0.5}, 8)
    plan = check_reference({"method": "probe", "resume": True, "out": str(tmp_path / "run")})
    assert plan.settings == {}  # those of the run count


def test_without_out_the_folder_is_named_by_data_and_method(shapes, tmp_path):
    here("reference", "probe", shapes, *SMALL, "--shots", 4, "--fraction", 0.5, check=False, cwd=tmp_path)
    here("reference", "probe", shapes, *SMALL, "--shots", 4, cwd=tmp_path)
    assert [path.name for path in (tmp_path / "runs").iterdir()] == [f"{shapes.name}-probe"]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["reference"], ["METHOD is missing"]),
        (["reference", "prob"], ["'prob'", "did you mean 'probe'"]),
        (["reference", "probe", "nowhere"], ["nowhere"]),
        (["reference", "probe", "{shapes}", "--mapping", "blm"], ["--mapping"]),
        (["reference", "probe", "{shapes}", "--augment", "flip"], ["--augment flip", "looks at every image once"]),
        (["reference", "finetune-full", "{shapes}", "--strength", "1"], ["does not use strength"]),
        (["reference", "probe", "{shapes}", "--strength", "-1"], ["--strength -1", "greater than 0"]),
        (["reference", "probe", "--resume", "--out", "{done}"], ["holds the reference finetune-linear"]),
        (["reference", "probe", "--resume", "--out", "{run}"], ["holds a run of reprogram fit"]),
        (["fit", "--resume", "--out", "{done}"], ["reprogram reference finetune-linear --resume"]),
        (["evaluate", "{done}"], ["the reference finetune-linear", "reprogram report"]),
        (["predict", "{done}", "{image}"], ["the reference finetune-linear", "has no mapping"]),
        (["export", "{done}"], ["the reference finetune-linear", "has no mapping"]),
        (["serve", "{done}"], ["finetune-linear"]),
        (["update", "{done}", "--remove", "disc"], ["the reference finetune-linear"]),
        (["figure", "{done}", "mapping", "--out", "x.png"], ["it is a reference, which has no mapping"]),
    ],
)
def test_mistakes_are_one_sentence(arguments, words, done, run, shapes, tmp_path):
    image = next((shapes / "test" / "disc").iterdir())
    given = [word.format(shapes=shapes, done=done[0], run=run[0], image=image) for word in arguments]
    found = here(*given, cwd=tmp_path, check=False)
    assert found.returncode == 2, found.stdout
    assert found.stderr.count("\n") == 1
    assert all(word in found.stderr for word in words), found.stderr
    assert not list(tmp_path.iterdir())


def test_a_reference_is_a_row_among_runs(done, run, tmp_path, monkeypatch):
    monkeypatch.setenv("COLUMNS", "120")
    text = here("report", run[0], done[0], "--text").stdout
    rows = [line for line in text.splitlines() if line.startswith((f" {run[0].name} ", f" {done[0].name} "))]
    told = [sealed.content(folder / "result.json") for folder in (run[0], done[0])]
    assert "finetune-linear" in rows[1]
    for row, one in zip(rows, told, strict=True):
        assert f"{one['parameters']['free']:,}" in row
        assert f"{100 * one['accuracy']['last']:.1f}" in row
    page = write_report([run[0], done[0]], tmp_path / "both.html").read_text()
    assert "2 runs side by side" in page
    assert "reference <b><bdi>finetune-linear</bdi></b>" in page


def test_a_figure_of_what_it_has(done, tmp_path):
    here("figure", done[0], "confusion", "--out", tmp_path / "x.csv")
    assert (tmp_path / "x.csv").read_text().count("\n") > 3
    here("figure", done[0], "epochs", "--out", tmp_path / "y.csv")
    listed = here("figure", done[0]).stdout
    assert "reliability" in listed


def test_the_page_of_one(done):
    page = (done[0] / "report.html").read_text()
    head, _, data = page.partition('<script id="data" type="application/json">')
    payload = json.loads(data.partition("</script>")[0])["runs"][0]
    assert payload["weights"] is payload["joint"] is payload["matrix"] is None
    assert payload["kind"] == "reference"
    assert len(payload["epochs"]["epoch"]) == 2
    assert len(payload["test"]["n"]) == 3
    assert payload["pictures"]["classes"]
    assert payload["pictures"]["right"] or payload["pictures"]["wrong"]
    assert "This is a reference to compare reprogramming with, finetune-linear: a new last layer" in head
    assert "What the mapping says" not in head
    assert "numbers were trained, beside" in head
    assert not {"program", "mapping"} & {name for name, _ in payload["facts"]}
