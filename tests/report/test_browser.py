"""The page in a real browser: it draws, answers, computes what Python computes, and asks nothing of any network."""

from dataclasses import replace

import numpy as np
import pytest

from reprogram.mappings import bayes
from reprogram.references import run_reference
from reprogram.report import write_report
from reprogram.report.write import report_text
from reprogram.run.config import FitConfig
from reprogram.run.record import read_run
from reprogram.scores import accuracy_interval

from .conftest import HOSTILE

SMALL_REFERENCE = {"model": "timm:test_resnet", "pretrained": False, "canvas": 32, "batch_size": 16, "epochs": 2, "lr": 0.02}


class Opened:
    """A page, and whatever went wrong in it."""

    def __init__(self, page, path):
        self.page, self.wrong, self.asked = page, [], []
        page.on("console", lambda message: self.wrong.append(message.text))
        page.on("pageerror", lambda error: self.wrong.append(str(error)))
        page.on("dialog", lambda dialog: (self.wrong.append(dialog.message), dialog.dismiss()))
        page.on("request", lambda request: self.asked.append(request.url))
        page.goto(path.as_uri())
        page.wait_for_selector("section#classes svg, section#classes table")

    def check(self, path):
        assert self.wrong == []
        assert [url for url in self.asked if not url.startswith("data:")] == [path.as_uri()]


@pytest.fixture(scope="module")
def paths(run, hostile, shapes, tmp_path_factory):
    folder = tmp_path_factory.mktemp("pages")
    return {
        "run": write_report(run[0], folder / "run.html"),
        "hostile": write_report(hostile, folder / "hostile.html"),
        "both": write_report([run[0], hostile], folder / "both.html"),
        "reference": reference(run[0], shapes, folder),
        "unfinished": unfinished(run[0], folder / "unfinished.html"),
    }


def reference(run, shapes, folder):
    """A run beside a reference, which has no mapping."""
    config = FitConfig.read({**SMALL_REFERENCE, "data": str(shapes)})
    run_reference("finetune-linear", config, folder / "linear")
    return write_report([run, folder / "linear"], folder / "reference.html")


def unfinished(run, path):
    """A run that goes on: before its first epoch was no loss, and nothing is selected. Its images are in groups."""
    record = read_run(run)
    first = {"epoch": 0, "loss": None, "accuracy": {"train": None, "val": 0.25, "test": 0.5}, "mapping_change": 1.0}
    result = {**record.result, "groups": {"effective_test_images": 0.5 * record.result["images"]["test"]}}
    grouped = replace(record, epochs=(first, *record.epochs), result=result)
    text = report_text([replace(grouped, result=None, test=None), grouped], images=False)
    path.write_text(text)
    return path


@pytest.fixture
def opened(browser, paths, request):
    """Open one of the pages; at the end nothing may have gone wrong in it."""
    pages = []

    def open_page(name, width=1280, **options):
        context = browser.new_context(viewport={"width": width, "height": 900}, **options)
        found = Opened(context.new_page(), paths[name])
        pages.append((context, found, paths[name]))
        return found.page

    yield open_page
    for context, found, path in pages:
        found.check(path)
        context.close()


@pytest.mark.parametrize("name", ["run", "hostile", "both", "reference"])
def test_nothing_scrolls_sideways_on_a_phone(name, opened):
    page = opened(name, width=390)
    assert page.evaluate("document.documentElement.scrollWidth") == 390
    assert page.evaluate(
        "[...document.querySelectorAll('.card, .scroll, .head')].every(x => x.getBoundingClientRect().right <= 390)"
    )


def test_every_part_is_there_and_the_charts_are_drawn(opened):
    page = opened("run")
    parts = page.eval_on_selector_all("section.part[id]", "nodes => nodes.map(node => node.id)")
    assert parts == ["classes", "confusion", "sure", "mapping", "program", "training", "answers", "made"]
    for part in ("confusion", "sure", "mapping", "training"):
        assert page.locator(f"#{part} svg").count() >= 1
    assert page.locator("#program img").count() >= 3
    assert page.evaluate("[...document.images].every(image => image.complete && image.naturalWidth > 0)")


def test_a_point_of_a_chart_tells_its_own_epoch_and_value(opened, run):
    page = opened("unfinished")
    epochs = read_run(run[0]).epochs
    told = page.eval_on_selector_all("#training title", "nodes => nodes.map(node => node.textContent)")
    loss = [text for text in told if text.startswith("training loss")]
    assert [text.partition(":")[0] for text in loss] == [f"training loss, epoch {one['epoch']}" for one in epochs]
    assert [float(text.rpartition(" ")[2]) for text in loss] == pytest.approx([one["loss"] for one in epochs], rel=5e-3)
    assert "validation, epoch 0: 25.0\u00a0%" in told


def test_of_a_run_that_goes_on_no_epoch_is_marked(opened):
    page = opened("unfinished")
    assert page.locator("#training line.ideal").count() == 1
    page.select_option("#run-picker", "0")
    assert page.locator("#training svg").count() > 0
    assert page.locator("#training line.ideal").count() == 0
    assert "dashed" not in page.locator("#training .lead").inner_text()


def test_the_interval_of_what_is_left_counts_groups(opened, run):
    test = read_run(run[0]).test
    low, high = accuracy_interval(0.5 * test.right.sum(), 0.5 * len(test))
    told = opened("unfinished").locator("#abstain-told").inner_text().replace("\u00a0", " ")
    assert told.endswith(f"lies between {100 * low:.1f} % and {100 * high:.1f} %.")


def test_a_class_is_picked(opened):
    page = opened("run")
    page.select_option("#class-picker", label="stripes")
    assert page.locator("#class-detail h3").first.inner_text() == "stripes"
    page.get_by_role("button", name="disc", exact=True).click()
    assert page.locator("#class-detail h3").first.inner_text() == "disc"
    assert page.locator("#class-picker option:checked").inner_text() == "disc"


def test_tables_sort_and_search(opened, run):
    page = opened("run")
    right = {name: score.accuracy for name, score in read_run(run[0]).test.per_class().items()}
    names = lambda: page.eval_on_selector_all(  # noqa: E731
        "#class-table tbody tr", "rows => rows.filter(row => !row.hidden).map(row => row.cells[0].textContent)"
    )
    heading = page.locator("#class-table th button", has_text="accuracy")
    heading.click()
    assert [right[name] for name in names()] == sorted(right.values(), reverse=True)
    heading.click()
    assert [right[name] for name in names()] == sorted(right.values())
    assert page.locator("#class-table th[aria-sort=ascending]").inner_text().startswith("accuracy")
    page.get_by_label("Search classes").fill("sQua")
    assert names() == ["square"]
    page.get_by_label("Search classes").fill("")
    assert len(names()) == 3


def test_the_slider_gives_the_accuracy_and_the_coverage_of_what_is_left(opened, run):
    page, test = opened("run"), read_run(run[0]).test
    for least in (0, 400, 700, 1000):
        page.locator("#abstain").fill(str(least))
        kept = np.round(test.confidence * 1e6) >= 1000 * least
        right = int((test.right & kept).sum())
        expected = [f"{100 * kept.mean():.1f}\xa0%", str(kept.sum())]
        assert [page.locator(f"#abstain-{name}").inner_text() for name in ("coverage", "answers")] == expected
        share = f"{100 * right / kept.sum():.1f}\xa0%" if kept.any() else "–"
        assert page.locator("#abstain-accuracy").inner_text() == share
        interval = page.evaluate(f"reprogramReport.wilson({right}, {int(kept.sum())})")
        assert interval == pytest.approx(accuracy_interval(right, int(kept.sum())), abs=1e-12)


@pytest.mark.parametrize("name", ["run", "hostile"])  # counts of blm, probabilities of blm+
@pytest.mark.parametrize("smoothing", [0.0, 0.25, 1.0, 40.0])
def test_weights_for_another_smoothing_are_those_of_python(name, smoothing, opened, run, hostile):
    page = opened(name)
    record = read_run(run[0] if name == "run" else hostile)
    page.locator("#smoothing-value").fill(str(smoothing))
    assert f"λ = {smoothing:g}" in page.locator("#smoothing-told").inner_text()
    omega = bayes(record.mapping.statistics, smoothing).numpy()
    joint = record.joint
    shown = page.evaluate(
        "() => { const run = reprogramReport.report.runs[0]; return run.joint.labels.map(label => "
        "run.classes.map((_, column) => reprogramReport.omega(run.labels[label], column))); }"
    )
    rows = np.flatnonzero(joint.any(1))
    assert np.abs(np.array(shown) - omega[rows]).max() < 1e-6
    assert omega[~joint.any(1)].max(initial=0) == 0
    page.locator("#smoothing-back").click()
    assert "as in the run" in page.locator("#smoothing-told").inner_text()


def test_the_slider_of_the_smoothing_moves_the_bars(opened):
    page = opened("hostile")
    before = page.locator("#class-detail .bars .v").all_inner_texts()
    page.locator("#smoothing").focus()
    for _ in range(30):
        page.keyboard.press("ArrowRight")
    assert page.locator("#class-detail .bars .v").all_inner_texts() != before
    assert float(page.locator("#smoothing-value").input_value()) > 1


def test_hostile_names_are_text(opened):
    page = opened("hostile")
    assert page.evaluate("[document.querySelectorAll('main script').length, document.querySelectorAll('img').length]") == [
        0,
        0,
    ]
    shown = page.eval_on_selector_all("#class-table tbody tr", "rows => rows.map(row => row.cells[0].textContent)")
    assert sorted(shown) == sorted(
        [
            *HOSTILE[:2],
            "שלום \\u202egnp.exe",
            HOSTILE[3].replace("\n", "\\n"),
            HOSTILE[4],
            HOSTILE[5].replace("\u2028", "\\u2028"),
        ]
    )
    for text in shown:
        page.get_by_label("Search classes").fill(text.split()[0])
    page.select_option("#class-picker", index=3)


def test_the_keyboard_reaches_everything(opened):
    page = opened("run")
    wanted = page.evaluate(
        "() => [...document.querySelectorAll('a[href], button, select, input, summary, [tabindex=\"0\"]')]"
        ".filter(node => node.checkVisibility()).length"
    )
    page.evaluate("window.reached = new Set()")
    for _ in range(wanted + 5):
        page.keyboard.press("Tab")
        page.evaluate("reached.add(document.activeElement)")
    missed = page.evaluate(
        "() => [...document.querySelectorAll('a[href], button, select, input, summary, [tabindex=\"0\"]')]"
        ".filter(node => node.checkVisibility() && !reached.has(node)).map(node => node.outerHTML.slice(0, 80))"
    )
    assert missed == []
    page.locator("#confusion svg").focus()
    page.keyboard.press("ArrowDown")
    page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowRight")
    assert "was taken for" in page.locator("#confusion .readout").inner_text()
    outline = page.evaluate("getComputedStyle(document.activeElement).outlineStyle")
    assert outline == "solid"


def test_light_and_dark(opened):
    page = opened("run", color_scheme="dark")
    ground = "getComputedStyle(document.body).backgroundColor"
    dark = page.evaluate(ground)
    page.locator("#theme").click()
    light = page.evaluate(ground)
    assert sum(map(int, dark[4:-1].split(","))) < 150 < 600 < sum(map(int, light[4:-1].split(",")))
    page.locator("#theme").click()
    page.emulate_media(media="print")
    assert page.evaluate(ground) == "rgb(255, 255, 255)"
    assert not page.locator("header.top").is_visible()


def test_several_runs_stand_side_by_side(opened, run, hostile):
    page = opened("both")
    assert page.locator("table.runs tbody tr").count() == 2
    assert page.locator("article.summary:visible").count() == 1
    page.select_option("#run-picker", index=1)
    assert page.locator("article.summary:visible h1").inner_text() == hostile.name
    assert page.locator("#training").count() == 0
    page.locator("table.runs button.link", has_text=run[0].name).click()
    assert page.locator("article.summary:visible h1").inner_text() == run[0].name
    assert page.locator("#training").count() == 1


def test_the_summary_can_be_read_without_a_script(browser, paths):
    context = browser.new_context(java_script_enabled=False)
    page = context.new_page()
    page.goto(paths["run"].as_uri())
    text = page.locator("main").inner_text()
    assert "Three test accuracies" in text
    assert "What to worry about" in text
    context.close()


def test_a_reference_has_all_parts_but_those_of_a_mapping(opened):
    page = opened("reference")
    page.select_option("#run-picker", "1")
    shown = page.evaluate("[...document.querySelectorAll('#run > section')].map(part => part.id)")
    assert shown == ["classes", "confusion", "sure", "training", "answers", "made"]
    heads = page.evaluate("[...document.querySelectorAll('#class-table th')].map(cell => cell.textContent.trim())")
    assert not any("strongest" in head for head in heads)
    page.click("#class-table tbody tr:nth-child(2) button")
    assert "of 10 test images right" in page.inner_text("#class-detail")
    page.select_option("#run-picker", "0")
    assert page.locator("section#mapping").count() == 1
