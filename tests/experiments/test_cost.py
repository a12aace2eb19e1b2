"""What a recipe would cost: the images that are counted, the measurement, and what it is scaled by."""

import pytest

from reprogram.data.paper_sets import PAPER
from reprogram.experiments import cost
from reprogram.experiments.cost import Kind, Speed, Timing, estimate, gpu_hours, kind_of, measure, measured, work_of
from reprogram.experiments.grid import expand
from reprogram.experiments.items import item_recipe
from reprogram.progress import Progress

SMALL = Kind("timm:test_resnet", "padding", 32)


def first(name, **labels):
    cells = expand(item_recipe(name))
    return next(cell for cell in cells if all(cell.labels[axis] == label for axis, label in labels.items()))


def test_the_images_of_a_run():
    entry = PAPER["flowers102"]
    seen = 200 * (entry.test + entry.val)
    by_mapping = {name: work_of(first("table1", mapping=name)) for name in ("rlm", "flm", "blm", "deep")}
    assert {work.trained for work in by_mapping.values()} == {200 * entry.train}
    assert by_mapping["rlm"].passed == by_mapping["deep"].passed == seen
    assert by_mapping["flm"].passed == seen + entry.train
    assert by_mapping["blm"].passed == seen + 200 * entry.train
    assert work_of(first("table8", method="BLM, 100 epochs")).passed == 100 * (entry.test + entry.val) + entry.train
    assert work_of(first("table6")).trained == pytest.approx(0.7 * 200 * entry.train)
    assert work_of(first("table8", method="finetuning, linear")).trained == 0
    assert work_of(first("table8", method="finetuning, fully")).trained == 200 * entry.train


def test_what_a_measurement_is_of():
    assert kind_of(first("table1", data="paper:svhn")).image_size == 32
    assert kind_of(first("table1")).image_size == 128
    assert kind_of(first("table2")) == Kind("torchvision:resnet18.IMAGENET1K_V1", "watermark", 224)
    assert kind_of(first("table8", method="finetuning, fully")).program == "watermark"


def test_hours_on_a_gpu_are_those_of_the_paper_where_it_tells_them():
    entry = PAPER["flowers102"]
    ilm = first("table8", method="ILM", model="ResNet-18")
    extra = (200 * entry.val + entry.train) / (200 * (3 * entry.train + entry.test))  # which the paper did not have
    assert gpu_hours(ilm) == pytest.approx(12.04 / 60 * (1 + extra))
    assert round(sum(map(gpu_hours, expand(item_recipe("table1"))))) == 863  # docs/paper.md tells it


def test_an_estimate_adds_up(monkeypatch):
    speed = Speed(Timing(2.56, 0.02), Timing(0.256, 0.005), 11_000_000)
    monkeypatch.setattr(cost, "measured", lambda kinds, progress, budget: dict.fromkeys(kinds, speed))
    cells = expand(item_recipe("table2", ["eurosat"], [0]))
    work = [work_of(cell) for cell in cells]
    found = estimate(cells)
    seconds = sum(each.trained * 0.03 + each.passed * 0.006 for each in work)
    assert found.core_hours == pytest.approx(seconds / 3600)
    assert found.gpu_hours == pytest.approx(sum(map(gpu_hours, cells)))
    assert (found.runs, len(found.speeds)) == (4, 1)


def test_measuring_a_model(monkeypatch, tmp_path):
    monkeypatch.setenv("REPROGRAM_CACHE", str(tmp_path / "cache"))
    said = []
    progress = Progress()
    monkeypatch.setattr(progress, "say", said.append)
    found = measured([SMALL], progress, budget=1.0)[SMALL]
    assert found.step.per_image(16) > 0
    assert 0 < found.forward.per_image(16) < 10
    assert found.parameters > 1000
    assert measured([SMALL], progress) == {SMALL: found}  # the second time it is known
    assert said == [f"measuring {SMALL}"]
    (tmp_path / "cache" / "speeds.json").write_text("damaged")
    measured([SMALL], progress, budget=1.0)
    assert len(said) == 2


def test_a_large_network_is_timed_on_half_the_canvas(monkeypatch):
    seen = []
    plain = cost._model
    monkeypatch.setattr(cost, "_LARGE", 10)
    monkeypatch.setattr(cost, "_model", lambda kind, frozen, scale: seen.append(scale) or plain(kind, frozen, scale))
    assert measure(SMALL, 0.0).step.image > 0
    assert seen == [2]
