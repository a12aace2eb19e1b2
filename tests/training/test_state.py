"""What a checkpoint must agree with, and the small acts of the loop."""

import pytest
import torch

from reprogram import ReprogramError, fit
from reprogram.data.dataset import ArraySplit, DataSet
from reprogram.files import read_tensors, write_tensors
from reprogram.programs.base import NoProgram
from reprogram.programs.padding import Padding
from reprogram.programs.watermark import Watermark
from reprogram.training import state
from reprogram.training.result import Diverged
from reprogram.training.state import pixel_sizes
from sides import build, small_data, small_frozen, without_times

FIT = {"epochs": 2, "batch_size": 30}


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory):
    """The checkpoint of a finished fit of blm+ with a border."""
    path = tmp_path_factory.mktemp("checkpoint") / "state.safetensors"
    fit(build("blm+", folds=0), small_data(), checkpoint=str(path), **FIT)
    return path


def replaced(data):
    """One training image by another of the same shape, label and name."""
    images = data.train.images.clone()
    images[7] = images[7].flip(2)
    return DataSet(data.name, data.classes, train=ArraySplit(images, data.train.labels), test=data.test, val=data.val)


@pytest.mark.parametrize(
    ("model", "words"),
    [
        (lambda: build("ilm"), "mapping name = 'blm+', but now it is 'ilm'"),
        (lambda: build("blm"), "mapping name = 'blm+', but now it is 'blm'"),
        (lambda: build("flm"), "mapping name = 'blm+', but now it is 'flm'"),
        (lambda: build("gaussian"), "mapping name = 'blm+', but now it is 'gaussian'"),
        (lambda: build("linear"), "mapping name = 'blm+', but now it is 'linear'"),
        (lambda: build("blm+", folds=0, smoothing=7), "mapping smoothing = 1.0, but now it is 7.0"),
        (lambda: build("blm+", folds=0, top_ratio="all"), "mapping top_ratio = 0.15, but now it is 'all'"),
        (lambda: build("blm+", folds=0, refresh="fresh"), "mapping refresh = 'reuse', but now it is 'fresh'"),
        (lambda: build("blm+", folds=3), "mapping folds = 0, but now it is 3"),
        (lambda: build("blm+", folds=0, program=Padding(24, 10)), "program image_size = 12, but now it is 10"),
        (lambda: build("blm+", folds=0, program=Padding(30, 12)), "program canvas = 24, but now it is 30"),
        (lambda: build("blm+", folds=0, program=Watermark(24)), "program name = 'padding', but now it is 'watermark'"),
        (lambda: build("blm+", folds=0, program=NoProgram(24)), "program name = 'padding', but now it is 'none'"),
        (lambda: build("blm+", small_frozen(11), folds=0), "was made with other source"),
    ],
)
def test_a_checkpoint_of_another_model_is_refused_in_one_sentence(checkpoint, model, words):
    model = model()
    before, stored = {key: value.clone() for key, value in model.state_dict().items()}, checkpoint.read_bytes()
    with pytest.raises(ReprogramError) as caught:
        fit(model, small_data(), checkpoint=checkpoint, **FIT)
    assert words in str(caught.value)
    assert "continue it as it was, or start anew elsewhere" in str(caught.value)
    assert "\n" not in str(caught.value)
    assert all(torch.equal(before[key], value) for key, value in model.state_dict().items()), "the model was not touched"
    assert checkpoint.read_bytes() == stored


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"lr": 0.3}, "settings lr = 0.05, but now it is 0.3"),
        ({"seed": 4}, "settings seed = 0, but now it is 4"),
        ({"batch_size": 20}, "settings batch_size = 30, but now it is 20"),
        ({"augment": "crop"}, "settings augment = 'none', but now it is 'crop'"),
        ({"augment": "trivial"}, "settings augment = 'none', but now it is 'trivial'"),
        ({"schedule": "onecycle"}, "settings schedule = 'multistep', but now it is 'onecycle'"),
        ({"loss_temperature": "auto"}, "settings loss_temperature = 'none', but now it is 'auto'"),
        ({"loss_temperature": 2}, "settings loss_temperature = 'none', but now it is 2.0"),
        ({"average": 0.5}, r"settings average = 0\.0, but now it is 0\.5"),
        ({"patience": 3}, "settings patience = None, but now it is 3"),
    ],
)
def test_a_checkpoint_of_another_training_is_refused(checkpoint, changed, words):
    with pytest.raises(ReprogramError, match=words):
        fit(build("blm+", folds=0), small_data(), checkpoint=checkpoint, **{**FIT, **changed})


@pytest.mark.parametrize("change", [replaced, lambda data: small_data(n=61)], ids=["an image replaced", "an image more"])
def test_other_images_are_refused(checkpoint, change):
    with pytest.raises(ReprogramError, match="was made with other data; continue it as it was"):
        fit(build("blm+", folds=0), change(small_data()), checkpoint=checkpoint, **FIT)


def test_the_same_images_from_elsewhere_continue(checkpoint):
    data = small_data()
    named = ArraySplit(data.train.images, data.train.labels, [f"moved/{i}" for i in range(60)])
    moved = DataSet("another name", data.classes, train=named, test=data.test, val=data.val)
    assert len(fit(build("blm+", folds=0), moved, checkpoint=checkpoint, **FIT).records) == 2


def test_fewer_epochs_than_a_checkpoint_has_are_refused(checkpoint):
    with pytest.raises(ReprogramError, match="has 2 epochs, but epochs = 1 was given"):
        fit(build("blm+", folds=0), small_data(), checkpoint=checkpoint, **{**FIT, "epochs": 1})


def test_more_epochs_continue_the_records(tmp_path):
    """The epochs that are there stay as they are, and the new ones follow with the schedule of the new total."""
    path, data = tmp_path / "state.safetensors", small_data(val=False)
    short = fit(build("blm"), data, checkpoint=path, epochs=2, batch_size=30, schedule="constant")
    longer = build("blm")
    result = fit(longer, data, checkpoint=path, epochs=5, batch_size=30, schedule="constant")
    assert result.records[:2] == short.records
    assert [record["epoch"] for record in result.records] == [1, 2, 3, 4, 5]
    whole = build("blm")
    at_once = fit(whole, data, epochs=5, batch_size=30, schedule="constant")
    assert without_times(result.records) == without_times(at_once.records)
    assert all(torch.equal(tensor, longer.state_dict()[key]) for key, tensor in whole.state_dict().items())


@pytest.mark.parametrize("damage", ["cut", "another kind", "no origin", "odd header", "a list", "epochs", "records"])
def test_a_damaged_checkpoint_is_one_sentence(checkpoint, tmp_path, damage):
    path, content = tmp_path / "state.safetensors", checkpoint.read_bytes()
    if damage == "cut":
        path.write_bytes(content[: len(content) // 2])
    elif damage == "another kind":
        path.write_text("not a safetensors file")
    else:
        tensors, header = read_tensors(checkpoint, "checkpoint")
        records = header["records"]
        forged = {
            "no origin": {},
            "odd header": {**header, "optimizers": {}},
            "a list": [header],
            "epochs": {**header, "records": [*records, records[0]]},
            "records": {**header, "records": [{**records[0], "loss": "low"}]},
        }
        write_tensors(path, tensors, forged[damage])
    with pytest.raises(ReprogramError, match="checkpoint") as caught:
        fit(build("blm+", folds=0), small_data(), checkpoint=path, **FIT)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("damage", ["missing", "NaN", "shape", "type", "more", "slot", "number"])
def test_forged_tensors_of_a_checkpoint_are_one_sentence_and_change_nothing(checkpoint, tmp_path, damage):
    tensors, header = read_tensors(checkpoint, "checkpoint")
    theta, average = tensors["model/program.theta"], "optimizer/program/0/exp_avg"
    assert average in tensors
    forged = {
        "missing": {key: value for key, value in tensors.items() if key != "selected/program.theta"},
        "NaN": {**tensors, average: tensors[average] * torch.nan},
        "shape": {**tensors, "model/program.theta": theta[:, 1:]},
        "type": {**tensors, "model/program.theta": theta.double()},
        "more": {**tensors, "model/x": theta.clone()},
        "slot": {**tensors, "optimizer/program/0/step_size": theta.clone()},
        "number": {**tensors, "optimizer/program/7/exp_avg": theta.clone()},
    }[damage]
    write_tensors(tmp_path / "state.safetensors", forged, header)
    model = build("blm+", folds=0)
    before = {key: tensor.clone() for key, tensor in model.state_dict().items()}
    with pytest.raises(ReprogramError, match=r"checkpoint .*; take it from a backup, or start anew elsewhere$"):
        fit(model, small_data(), checkpoint=tmp_path / "state.safetensors", **FIT)
    assert all(torch.equal(tensor, before[key]) for key, tensor in model.state_dict().items())


def test_training_images_leave_room_for_crops_and_others_do_not():
    program = Watermark(24)
    assert pixel_sizes(program, "none") == {"train": 24, "val": 24, "test": 24}
    cropped = pixel_sizes(program, "crop")
    assert cropped["train"] > 24
    assert cropped["val"] == cropped["test"] == 24
    assert pixel_sizes(program, "trivial") == pixel_sizes(program, "trivial-flip") == pixel_sizes(program, "none")


@pytest.mark.parametrize("damage", ["missing", "NaN", "shape", "temperature", "negative"])
def test_forged_numbers_of_averaging_and_of_the_temperature_are_refused(tmp_path, damage):
    path, how = tmp_path / "state.safetensors", {**FIT, "average": 0.5, "loss_temperature": "auto"}
    fit(build("blm"), small_data(), checkpoint=path, **how)
    tensors, header = read_tensors(path, "checkpoint")
    moving = tensors["moving/program.theta"]
    assert header["loss_temperature"] > 0
    if damage == "missing":
        del tensors["moving/program.theta"]
    elif damage == "NaN":
        tensors["moving/program.theta"] = moving * torch.nan
    elif damage == "shape":
        tensors["moving/program.theta"] = moving[:, 1:]
    else:
        header["loss_temperature"] = "hot" if damage == "temperature" else -1.0
    write_tensors(path, tensors, header)
    model = build("blm")
    with pytest.raises(ReprogramError, match=r"checkpoint .*; take it from a backup, or start anew elsewhere$"):
        fit(model, small_data(), checkpoint=path, **how)
    assert not model.program.theta.any()


@pytest.mark.parametrize("mapping", ["blm", "blm+", "gaussian"])
@pytest.mark.parametrize(
    ("limit", "most", "looks"),
    [
        ("_TOGETHER", 1024, 1),
        ("_TOGETHER", 10, 6),
        ("_TOGETHER", 11, 4),
        ("_MOST_LOGITS", 20 * 12, 3),
        ("_MOST_LOGITS", 1, 12),
    ],
)
def test_batches_that_are_counted_together_give_what_single_ones_give(mapping, limit, most, looks, monkeypatch):
    """Twelve batches of five images each, in so many looks at their numbers."""
    seen = []
    kind = type(build(mapping).mapping.new_statistics())
    update = kind.update

    def looking(self, logits, *rest, **more):
        seen.append(len(logits))
        return update(self, logits, *rest, **more)

    def fitted():
        return fit(build(mapping, folds=0), small_data(), epochs=2, batch_size=5)

    with monkeypatch.context() as patch:
        patch.setattr(state, "_TOGETHER", 1)
        single = fitted()
    monkeypatch.setattr(state, limit, most)
    monkeypatch.setattr(kind, "update", looking)
    together = fitted()
    assert (len(seen), sum(seen)) == (3 * looks, 3 * 60)  # the first pass and two epochs
    assert [record["accuracy"] for record in single.records] == [record["accuracy"] for record in together.records]
    for key, value in single.model.state_dict().items():
        assert torch.allclose(value, together.model.state_dict()[key], rtol=1e-4, atol=1e-6), key


def test_numbers_that_are_not_finite_are_found_in_batches_that_wait():
    frozen = small_frozen()
    with torch.no_grad():
        next(frozen.module.parameters()).fill_(torch.nan)
    with pytest.raises(Diverged, match="NaN or infinity"):
        fit(build("blm", frozen), small_data(), epochs=2, batch_size=5)
