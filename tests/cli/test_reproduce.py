"""`reprogram reproduce`: lists, tells what it would take without any data, runs what is missing, compares."""

import csv
import json

import pytest

from grids import make_up
from replicas import write_coop
from reprogram.cli.main import main
from reprogram.experiments.folder import GridFolder
from reprogram.experiments.grid import expand
from reprogram.experiments.items import ITEMS, item_recipe
from reprogram.experiments.reproduction import reproduce


def run(capsys, *words):
    code = main(["reproduce", *map(str, words)])
    said = capsys.readouterr()
    return code, said.out, said.err


def test_without_a_name_it_lists_what_there_is(capsys):
    code, out, _ = run(capsys)
    assert code == 0
    assert [line.split()[0] for line in out.splitlines()] == list(ITEMS)


def test_a_dry_run_needs_no_data_and_writes_nothing(capsys, tmp_path, monkeypatch):
    monkeypatch.setenv("COLUMNS", "160")
    code, out, _ = run(
        capsys, "table6", "--datasets", "dtd", "--dry-run", "--data-root", tmp_path / "none", "--out", tmp_path / "runs"
    )
    assert code == 0
    assert "6 runs: 6 waiting" in out
    assert "get dtd: follow DATASETS.md" in out
    assert "weights: torchvision:resnet18.IMAGENET1K_V1, about 47 MB" in out
    assert "measured: torchvision:resnet18.IMAGENET1K_V1, padding around 128 px" in out
    assert "estimate for 6 runs:" in out
    assert "hours on one A100" in out
    assert "42.3" in out
    assert list(tmp_path.iterdir()) == []


def test_what_is_done_stands_beside_the_papers_numbers(capsys, tmp_path, monkeypatch):
    monkeypatch.setenv("COLUMNS", "160")
    write_coop(tmp_path / "data", "dtd")
    folder = GridFolder(tmp_path / "runs")
    (tmp_path / "runs").mkdir()
    folder.write_recipe(item_recipe("table2", ["dtd"]))
    for cell in expand(item_recipe("table2", ["dtd"])):
        make_up(
            folder,
            cell,
            {"ilm": 0.29, "blm": 0.5, "blm+": 0.4, "linear": 0.488}[cell.settings["mapping"]] + 0.001 * cell.seed,
        )
    code, out, err = run(capsys, "table2", "--datasets", "dtd", "--data-root", tmp_path / "data", "--out", tmp_path / "runs")
    assert code == 0, err
    rows = {words[1]: line for line in out.splitlines() if (words := line.split()) and words[0] == "dtd"}
    assert "29.0 ± 0.7" in rows["ilm"]
    assert "agrees" in rows["ilm"]
    assert "27.1 ± 0.1" in rows["ilm"]  # the last epoch
    assert "above" in rows["blm"]
    assert "+10.0" in rows["blm"]
    assert "below" in rows["blm+"]
    assert "2 agree, 1 above, 1 below" in out
    assert "Table 2" in out
    table = list(csv.DictReader((tmp_path / "runs" / "table2.csv").read_text().splitlines()))
    assert [row["verdict"] for row in table] == ["agrees", "above", "below", "agrees"]
    written = json.loads((tmp_path / "runs" / "table2.json").read_text())
    assert written["verdicts"] == {"agrees": 2, "above": 1, "below": 1}
    assert written["lines"][0]["paper"] == 29.0


def test_figure_5_tells_gains_by_the_number_of_classes(capsys, tmp_path, monkeypatch):
    monkeypatch.setenv("COLUMNS", "160")
    write_coop(tmp_path / "data", "dtd")
    folder = GridFolder(tmp_path / "runs")
    (tmp_path / "runs").mkdir()
    folder.write_recipe(item_recipe("figure5", ["dtd"]))
    for cell in expand(item_recipe("figure5", ["dtd"], [0])):
        make_up(folder, cell, {"ilm": 0.3, "blm": 0.35, "blm+": 0.32}[cell.settings["mapping"]])
    flags = ("--datasets", "dtd", "--seeds", 0, "--data-root", tmp_path / "data", "--out", tmp_path / "runs")
    code, out, _ = run(capsys, "figure5", *flags)
    assert code == 0
    gains = next(line.split() for line in out.splitlines() if line.split()[:1] == ["DTD"])
    assert gains == ["DTD", "47", "+6.7", "+5.0", "+8.6", "+2.0"]


def test_what_is_missing_is_carried_out_and_kept(tmp_path):
    write_coop(tmp_path / "data", "flowers102")
    changes = {"pretrained": False, "epochs": 1, "batch_size": 2, "canvas": 64, "cache": False}
    chosen = {"data_root": tmp_path / "data", "seeds": [0], "settings": changes}
    said = []
    found = reproduce("table6", tmp_path / "runs", **chosen, on_change=lambda status, cell: said.append(cell))
    assert found.missing == ["ucf101", "dtd", "oxfordpets", "cifar10"]  # left out, as they are not there
    done = [line for line in found.lines if line.done]
    assert [(line.data, line.verdict) for line in done] == [("paper:flowers102", "not printed")]  # of one epoch
    assert 0 <= done[0].ours["best_on_test"].mean <= 100
    assert set(done[0].ours) == {"best_on_test", "last", "selected"}  # CoOp's split brings validation images
    assert (tmp_path / "runs" / "table6.csv").is_file()
    assert len([cell for cell in said if cell is not None]) == 2  # it began, it ended
    again = reproduce("table6", tmp_path / "runs", **chosen, on_change=lambda status, cell: said.append(cell))
    assert len([cell for cell in said if cell is not None]) == 2
    assert [line.to_json() for line in again.lines] == [line.to_json() for line in found.lines]


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["tabel1"], "did you mean 'table1'"),
        (["table1", "--datasets", "flowers"], "did you mean 'flowers102'"),
        (["table5", "--datasets", "dtd"], "table5 has no run on dtd"),
        (["table1", "--seeds", "-1"], "--seeds -1"),
        (["table1", "--seeds", "1", "1"], "each counts once"),
        (["table1", "--address", "auto"], "goes with --engine ray"),
        (["table1", "--data-root", "nowhere"], "data 'paper:flowers102' is not under the data root"),
        (["table1", "--data-root", "nowhere", "--datasets", "svhn"], "put train_32x32.mat and test_32x32.mat"),
    ],
)
def test_a_mistake_is_one_sentence_and_leaves_nothing(capsys, tmp_path, monkeypatch, words, sentence):
    monkeypatch.chdir(tmp_path)
    code, out, err = run(capsys, *words)
    assert (code, out) == (2, "")
    assert sentence in err
    assert len(err.splitlines()) == 1
    assert list(tmp_path.iterdir()) == []
