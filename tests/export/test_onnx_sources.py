"""A model that is an ONNX file itself is merged into the export, whatever its layout, precision, age and kind of answer."""

import numpy as np
import pytest

import nets
from reprogram.errors import ReprogramError
from reprogram.export import export_run, load_exported
from reprogram.reprogrammed import Reprogrammed
from reprogram.sources.load import load_frozen
from serving import make_task
from tiny_onnx import onnx_of_means

PADDED = {"name": "padding", "canvas": 8, "image_size": 6}


@pytest.fixture(autouse=True)
def quickly(monkeypatch):
    """No child tries what we wrote ourselves."""
    monkeypatch.setattr("reprogram.export.session.tried_in_child", lambda *_: None)


def made(folder, mapping="blm", program=PADDED, *, outputs="logits", **options):
    """The artefact of a task on such a file."""
    frozen = load_frozen(f"onnx:{onnx_of_means(folder / 'model.onnx', **options)}", outputs=outputs)
    return make_task(folder / "task", frozen, ["a", "b", "c"], mapping=mapping, program=program, sets=False)


def difference(task, exported):
    """Of probabilities, from the live model."""
    model = Reprogrammed.load(task)
    pixels = nets.images(20, model.program.image_size, seed=3)
    live = model.predict(pixels).probabilities.numpy()
    found = load_exported(exported).probabilities(np.ascontiguousarray(pixels.permute(0, 2, 3, 1).numpy()))
    assert np.ptp(live, axis=0).max() > 1e-3, "probabilities that are all alike compare nothing"
    return float(np.abs(live - found).max())


@pytest.mark.parametrize("form", ["onnx", "onnx-adapter"])
@pytest.mark.parametrize(
    "options",
    [{}, {"opset": 13}, {"channels_last": True}, {"half": True}, {"softmax": True, "outputs": "probabilities"}],
    ids=str,
)
def test_every_kind_of_file_says_what_it_says_live(tmp_path, form, options):
    task = made(tmp_path, **options)
    export_run(task, tmp_path / "out", format=form, images=8)
    assert difference(task, tmp_path / "out") <= 1e-4


@pytest.mark.parametrize("mapping", ["gaussian", "gaussian+"])
def test_other_mappings_under_a_watermark(tmp_path, mapping):
    task = made(tmp_path, mapping, {"name": "watermark", "canvas": 8})
    export_run(task, tmp_path / "out", images=8)
    assert difference(task, tmp_path / "out") <= 1e-4


def test_a_fixed_batch_is_refused(tmp_path):
    task = made(tmp_path, batch=4)
    with pytest.raises(ReprogramError, match="takes exactly 4 images at a time"):
        export_run(task, tmp_path / "out", images=8)
    assert not (tmp_path / "out").exists()


def test_it_is_no_torch_program(tmp_path):
    with pytest.raises(ReprogramError, match="use --format onnx"):
        export_run(made(tmp_path), tmp_path / "out", format="torch", images=8)


def test_another_file_in_its_place_is_refused(tmp_path):
    task = made(tmp_path)
    onnx_of_means(tmp_path / "model.onnx", channels_last=True)
    with pytest.raises(ReprogramError):
        export_run(task, tmp_path / "out", images=8)
    assert not (tmp_path / "out").exists()
