"""Every figure: of a real run, of hostile names, of two classes and of many; as file, as data, in axes of others."""

import csv
import io
import itertools
import xml.etree.ElementTree as ElementTree

import numpy as np
import pytest
import torch
from matplotlib.figure import Figure

from command import here
from reprogram.errors import ReprogramError
from reprogram.figures import FIGURES, draw_figure, plot_of
from reprogram.figures.clusters import alike_order, diagonal_order
from reprogram.figures.drawing import as_csv, lacking, rendered
from reprogram.mappings.making import make_mapping
from reprogram.mappings.predictions import Contribution
from reprogram.programs.padding import Padding
from reprogram.run import gather_examples, read_run
from reprogram.run.examples import Example, Examples, OnCanvas, SourceLogit
from reprogram.run.history import NO_HISTORY
from reprogram.run.outcomes import Outcomes
from reprogram.run.record import RunRecord
from reprogram.text import read_csv

HOSTILE = ("$\\frac{1}{0}$ $", "<script>alert(1)</script>-->", "[red]\u202egpj\nnew \x1b[31m", "x" * 300, "=1+1", "猫&\"'")


def made(classes, k_source, tmp_path, seed=0):
    """A record of everything, with these classes."""
    rng = np.random.default_rng(seed)
    k = len(classes)
    sources = [f"{HOSTILE[number % len(HOSTILE)]} {number}" for number in range(k_source)]
    mapping = make_mapping("blm", sources, classes)
    logits = torch.from_numpy(rng.normal(size=(20 * k, k_source))).float()
    labels = torch.arange(20 * k) % k
    logits[torch.arange(20 * k), labels % k_source] += 2
    mapping.estimate(mapping.count(logits, labels))
    program = Padding(32, 16)
    with torch.no_grad():
        program.theta.copy_(torch.from_numpy(rng.normal(size=tuple(program.theta.shape))))
    right = rng.random(6 * k) < 0.6
    truth = np.arange(6 * k) % k
    said = np.where(right, truth, rng.integers(0, k, 6 * k))
    test = Outcomes(tuple(classes), tuple(f"{n}.jpg" for n in range(6 * k)), truth, said, rng.uniform(1 / k, 1, 6 * k))
    epochs = tuple(
        {
            "epoch": number,
            "loss": 1 / (number + 1) if number else None,
            "accuracy": {"train": None, "val": 0.5, "test": 0.4 + 0.01 * number},
            "mapping_change": 0.5,
            "seconds": 1.0,
            "images_per_second": None,
        }
        for number in range(4)
    )
    history = NO_HISTORY
    for number in range(1, 4):
        history = history.with_epoch(number, program)
    pixels = rng.integers(0, 255, (20, 30, 3)).astype(np.uint8)
    top = tuple(SourceLogit(name, 3.0 - place, 0.1) for place, name in enumerate(sources[:5]))
    reasons = tuple(Contribution(name, 0.5 - 0.2 * place, 2.0) for place, name in enumerate(sources[:5]))

    def example(label, predicted):
        return Example("a.jpg", "test", label, pixels, predicted, 0.9, reasons, top)

    examples = Examples(
        {name: (Example("a.jpg", "train", name, pixels),) * 2 for name in classes},
        tuple(example(name, name) for name in classes[:4]),
        tuple(example(classes[0], classes[-1]) for _ in range(4)),
        (OnCanvas("a.jpg", classes[0], pixels, pixels),) * 3,
    )
    result = {"selected_epoch": 2, "chance": 1 / k}
    record = RunRecord(
        tmp_path / HOSTILE[0],
        "run",
        mapping,
        {},
        program.requires_grad_(False),
        epochs=epochs,
        result=result,
        test=test,
        history=history,
    )
    return record, examples


@pytest.fixture(scope="module")
def hostile(tmp_path_factory):
    return made(HOSTILE[:2], 9, tmp_path_factory.mktemp("hostile"))


@pytest.fixture(scope="module")
def many(tmp_path_factory):
    names = [f"{HOSTILE[number % 6]} {number}" for number in range(100)]
    return made(names, 120, tmp_path_factory.mktemp("many"))


def drawn(name, material, **options):
    plot = plot_of(name)
    given = (material[0], material[1]) if plot.kind.examples else (material[0],)
    return plot(*given, **options)


def outside(figure):
    """Texts that reach beyond the picture."""
    figure.draw_without_rendering()
    whole = figure.bbox
    for text in figure.findobj(lambda one: hasattr(one, "get_window_extent") and hasattr(one, "get_text")):
        if text.get_visible() and text.get_text().strip("−0123456789. %"):  # numbers beyond an axis are not drawn
            box = text.get_window_extent()
            if box.x0 < whole.x0 - 2 or box.x1 > whole.x1 + 2 or box.y0 < whole.y0 - 2 or box.y1 > whole.y1 + 2:
                yield text.get_text()


@pytest.mark.filterwarnings("ignore:.*[Gg]lyph.*missing")
@pytest.mark.parametrize("name", FIGURES)
def test_hostile_names_are_inert_and_nothing_is_cut_off(name, hostile):
    figure = drawn(name, hostile)
    assert list(outside(figure)) == []
    tree = ElementTree.fromstring(rendered(figure, ".svg"))
    kinds = {element.tag.rpartition("}")[2] for element in tree.iter()}
    assert not kinds & {"script", "text", "foreignObject", "a", "style-src"}
    links = [value for element in tree.iter() for key, value in element.attrib.items() if key.endswith("href")]
    assert all(link.startswith(("#", "data:image/png;base64,")) for link in links)


@pytest.mark.filterwarnings("ignore:.*[Gg]lyph.*missing")
@pytest.mark.parametrize("name", ["labels", "mapping", "confusion", "classes"])
def test_a_hundred_classes_fit(name, many):
    figure = drawn(name, many, dark=True)
    assert list(outside(figure)) == []
    assert max(figure.get_size_inches()) <= 16


@pytest.mark.parametrize("name", FIGURES)
def test_every_figure_has_its_data(name, hostile):
    plot = plot_of(name)
    rows = plot.rows(hostile[0], hostile[1])
    assert rows
    assert len({tuple(row) for row in rows}) == 1
    table = list(csv.reader(io.StringIO(as_csv(rows), newline="")))
    assert len(table) == len(rows) + 1
    assert not any(cell.startswith(("=", "+", "@")) for line in table[1:] for cell in line)


def test_the_data_are_those_of_the_run(run, tmp_path):
    record = read_run(run[0])
    path, _ = draw_figure("confusion", record, tmp_path / "c.csv")
    rows = read_csv(path)
    right = sum(int(row["images"]) for row in rows if row["class"] == row["predicted"])
    assert right == int(record.test.right.sum())
    assert sum(int(row["images"]) for row in rows) == 30
    path, _ = draw_figure("labels", record, tmp_path / "l.csv", examples=Examples({}))
    first = read_csv(path)[0]
    assert first["source_label"] == record.mapping.explain(1).classes[first["class"]][0].source
    joint = plot_of("joint").rows(record)
    assert sum(row["images"] for row in joint) == record.joint.sum() == 87
    epochs = plot_of("epochs").rows(record)
    assert [row["loss"] for row in epochs] == [one["loss"] for one in record.epochs]


@pytest.mark.parametrize("suffix", [".png", ".svg", ".pdf"])
def test_the_same_run_gives_the_same_bytes(suffix, run, tmp_path):
    record = read_run(run[0])
    contents = [draw_figure("classes", record, tmp_path / f"{n}{suffix}")[0].read_bytes() for n in range(2)]
    assert contents[0] == contents[1]
    assert not any(word in contents[0] for word in (b"2026", b"CreationDate", b"dc:date"))


def test_real_images_are_shown(run, tmp_path):
    record = read_run(run[0])
    examples = gather_examples(record)
    for name in ("program-on-image", "labels", "evidence", "logits"):
        figure = plot_of(name)(record, examples)
        assert sum(len(ax.images) for ax in figure.axes) >= 6
    frames = plot_of("program-epochs")(record)
    assert [ax.get_title(loc="left") for ax in frames.axes if ax.images] == ["epoch 1", "epoch 2", "epoch 3"]


@pytest.mark.parametrize("name", ["confusion", "epochs", "labels"])
def test_axes_of_others_are_used(name, hostile):
    figure = Figure()
    left, right = figure.subplots(1, 2)
    assert drawn(name, hostile, ax=left) is figure
    box = right.get_position()
    assert all(ax is right or ax.get_position().x1 <= box.x0 + 0.05 for ax in figure.axes)
    free = Figure()
    drawn(name, hostile, ax=free.add_axes((0.1, 0.1, 0.4, 0.8)))
    assert len(free.axes) >= 1


def test_what_is_missing_is_one_sentence(tmp_path):
    mapping = make_mapping("linear", ["tabby", "beagle"], ["cat", "dog"])
    mapping.save(tmp_path / "learned")
    record = read_run(tmp_path / "learned")
    having = {name for name, kind in FIGURES.items() if lacking(kind, record) is None}
    assert having == {"labels", "mapping", "mappings"}
    for name in having:
        assert rendered(plot_of(name)(record), ".png").startswith(b"\x89PNG")
    for name in FIGURES.keys() - having:
        with pytest.raises(ReprogramError, match="has no figure"):
            draw_figure(name, record, tmp_path / "x.png")
    assert not (tmp_path / "x.png").exists()


def test_a_mapping_that_was_never_estimated_and_one_of_zeros(tmp_path):
    make_mapping("blm", ["a", "b", "c"], ["x", "y"]).save(tmp_path / "blank")
    record = read_run(tmp_path / "blank")
    assert plot_of("mapping")(record).axes
    with pytest.raises(ReprogramError, match="nothing was counted"):
        plot_of("joint")(record)


def test_several_runs_are_compared_only_where_that_means_something(hostile, many):
    one, other = hostile[0], many[0]
    assert {row["mapping"] for row in plot_of("mappings").rows([one, one])} == {"blm"}
    with pytest.raises(ReprogramError, match="different source labels"):
        plot_of("mappings")([one, other])
    with pytest.raises(ReprogramError, match="shows one run, but 2 were given"):
        plot_of("confusion")([one, one])
    with pytest.raises(ReprogramError, match="room for 6"):
        plot_of("mappings")([one] * 7)


def test_images_that_are_gone_are_said(run, tmp_path):
    record = read_run(run[0])
    gone = Examples({}, notes=("the images cannot be loaded any more",))
    with pytest.raises(ReprogramError, match="cannot be loaded any more"):
        plot_of("evidence")(record, gone)
    assert plot_of("labels")(record, gone).axes


def test_alike_things_stand_together():
    rng = np.random.default_rng(0)
    groups = rng.random((30, 3))
    columns = np.concatenate([groups + 0.01 * rng.random((30, 3)) for _ in range(4)], axis=1)  # 0,3,6,9 are alike
    order = [place % 3 for place in alike_order(columns)]
    assert sum(one != other for one, other in itertools.pairwise(order)) == 2
    assert sorted(alike_order(np.zeros((3, 5)))) == [0, 1, 2, 3, 4]
    assert alike_order(np.ones((3, 1))) == [0]
    assert diagonal_order(np.eye(4)[[2, 0, 3, 1]]) == [1, 3, 0, 2]


def test_the_command_draws_and_lists(run, tmp_path):
    folder, _ = run
    done = here("figure", folder, "reliability", "--out", tmp_path / "deep" / "r.png", "--dark")
    assert (tmp_path / "deep" / "r.png").read_bytes().startswith(b"\x89PNG")
    assert "r.png" in done.stdout
    listed = here("figure", folder).stdout
    assert "draw one: reprogram figure" in listed
    assert "confusion --out confusion.png" in listed
    assert "…" not in listed  # our own words are read to the end
    only = here("figure", folder / "artefact").stdout
    assert "mapping --out mapping.png" in only  # which an artefact has, and no confusion
    assert all(name in listed for name in FIGURES)
    assert "no:" not in listed
    drawn = here("figure", folder, folder, "mappings", "--out", tmp_path / "m.csv").stdout
    assert "m.csv" in drawn
    shown = here("figure", folder, "labels", "--classes", "disc", "--out", tmp_path / "l.csv")
    assert {row["class"] for row in read_csv(tmp_path / "l.csv")} == {"disc"}, shown.stdout


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ((), "no run was given"),
        (("RUN", "confusio", "--out", "x.png"), "did you mean 'confusion'"),
        (("RUN", "confusion"), "--out confusion.png"),
        (("RUN", "confusion", "--out", "x.gif"), ".png, .svg, .pdf, .csv"),
        (("RUN", "confusion", "--out", "."), "written as"),
        (("RUN", "RUN", "confusion", "--out", "x.png"), "shows one run"),
        (("RUN", "RUN"), "no figure was named"),
        (("RUN", "--out", "x.png"), "no figure was named"),
        (("nowhere", "confusion", "--out", "x.png"), "nowhere"),
        (("RUN", "confusion", "--classes", "disc", "--out", "x.png"), "goes with labels"),
        (("RUN", "labels", "--classes", "dsc", "--out", "x.png"), "did you mean 'disc'"),
    ],
)
def test_mistakes_are_one_sentence(words, said, run, tmp_path):
    done = here("figure", *(run[0] if word == "RUN" else word for word in words), cwd=tmp_path, check=False)
    assert done.returncode == 2
    assert said in done.stderr
    assert done.stderr.count("\n") == 1
    assert list(tmp_path.iterdir()) == []
