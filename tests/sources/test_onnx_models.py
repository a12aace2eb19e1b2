import hashlib
import json
import sys

import numpy as np
import onnx
import pytest
import torch
from onnx import TensorProto, helper, numpy_helper

from reprogram import ReprogramError, Reprogrammed, make_mapping
from reprogram.programs.base import make_program
from reprogram.sources.load import describe_model, load_frozen

WEIGHT = np.arange(15, dtype=np.float32).reshape(3, 5) / 10


def write(path, *, shape=("n", 3, 8, 8), outputs=5, dtype=TensorProto.FLOAT, ending=None, metadata=None, external=False):
    """Mean of each channel, then a linear layer of 5 outputs, then `ending`."""
    axes = [1, 2] if shape[-1] == 3 else [2, 3]
    nodes = [
        helper.make_node("ReduceMean", ["images", "axes"], ["means"], keepdims=0),
        helper.make_node("MatMul", ["means", "weight"], ["logits"]),
    ]
    if ending:
        nodes.append(helper.make_node(ending, ["logits"], ["answer"], axis=1))
    rows = WEIGHT[: 1 if shape[1] == 1 else 3]
    weight = numpy_helper.from_array(rows.astype(helper.tensor_dtype_to_np_dtype(dtype)), "weight")
    graph = helper.make_graph(
        nodes,
        "colours",
        [helper.make_tensor_value_info("images", dtype, shape)],
        [helper.make_tensor_value_info("answer" if ending else "logits", dtype, [shape[0], outputs])],
        [weight, numpy_helper.from_array(np.array(axes), "axes")],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=10)
    helper.set_model_props(model, metadata or {})
    options = {"save_as_external_data": True, "location": "weights.bin", "size_threshold": 80} if external else {}
    onnx.save(model, path, **options)
    return path


def expected(images, mean=0.0, std=1.0):
    return ((images - mean) / std).mean((2, 3)) @ torch.from_numpy(WEIGHT)


def test_an_onnx_file_is_a_black_box(tmp_path):
    path = write(tmp_path / "colours.onnx")
    frozen = load_frozen(f"onnx:{path}")
    images = torch.rand(4, 3, 8, 8)
    torch.testing.assert_close(frozen.logits(images), expected(images))
    assert (frozen.k_source, frozen.input_size, frozen.differentiable) == (5, 8, False)
    assert frozen.labels == [f"label {index}" for index in range(5)]
    assert frozen.fingerprint == hashlib.sha256(path.read_bytes()).hexdigest()
    assert frozen.parameter_count == 17  # 15 weights, and the two axes
    assert frozen.logits(torch.rand(2, 3, 30, 20)).shape == (2, 5)
    assert frozen(torch.empty(0, 3, 8, 8)).shape == (0, 5)
    with pytest.raises(ReprogramError, match=r"colours\.onnx gives no gradients"):
        frozen(images.requires_grad_())


def test_the_files_metadata_are_believed(tmp_path):
    metadata = {
        "mean": "[0.5, 0.5, 0.5]",
        "std": "[0.25, 0.25, 0.25]",
        "labels": json.dumps(list("abcde")),
        "input_size": "16",
    }
    path = write(tmp_path / "colours.onnx", shape=("n", 3, "h", "w"), metadata=metadata)
    frozen = load_frozen(f"onnx:{path}")
    images = torch.rand(2, 3, 16, 16)
    torch.testing.assert_close(frozen.logits(images), expected(images, 0.5, 0.25))
    assert (frozen.labels, frozen.input_size) == (list("abcde"), 16)
    assert frozen.label_source == "labels in the metadata of the ONNX file"


def test_what_the_user_says_goes_before_the_metadata(tmp_path, monkeypatch):
    metadata = {"mean": "[9, 9, 9]", "std": "[9, 9, 9]", "labels": json.dumps(list("abcde")), "outputs": "probabilities"}
    path = write(tmp_path / "colours.onnx", shape=("n", 3, "h", "w"), metadata={**metadata, "input_size": "16"})
    said = {"mean": [0.5] * 3, "std": (0.25, 0.25, 0.25), "labels": list("vwxyz"), "outputs": "logits", "input_size": 8}
    frozen = load_frozen(f"onnx:{path}", **said)
    images = torch.rand(2, 3, 8, 8)
    torch.testing.assert_close(frozen.logits(images), expected(images, 0.5, 0.25))
    assert (frozen.labels, frozen.input_size, frozen.label_source) == (list("vwxyz"), 8, "given by the caller")
    again = load_frozen(**json.loads(json.dumps(frozen.spec)))
    assert torch.equal(again.logits(images), frozen.logits(images))
    assert again.labels == frozen.labels
    described = describe_model(f"onnx:{path}", **said)
    assert (described["labels"], described["normalisation"]["mean"]) == (list("vwxyz"), [0.5] * 3)


@pytest.mark.parametrize(
    ("file", "content"),
    [("names.txt", "\ufeffcrane\ncrane\n\ttabby, cat\n\n\u00fc\n e\n"), ("names.json", None), (None, None)],
)
def test_labels_come_from_a_file_or_with_commas_between(tmp_path, monkeypatch, file, content):
    """Two labels of one name stay two labels."""
    names = ["crane", "crane", "tabby, cat", "\u00fc", "e"] if file else ["crane", "crane", "dog", "e", "f"]
    if file:
        (tmp_path / file).write_text(content or json.dumps(names))
    write(tmp_path / "colours.onnx")
    monkeypatch.chdir(tmp_path)
    frozen = load_frozen("onnx:colours.onnx", labels=file or "crane, crane,dog , e,f")
    assert frozen.labels == names
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    assert load_frozen(**frozen.spec).labels == names


@pytest.mark.parametrize("batch", ["n", 1, 3])
@pytest.mark.parametrize("size", [8, "s"])
def test_batches_and_sizes_of_any_kind(tmp_path, batch, size):
    path = write(tmp_path / "colours.onnx", shape=(batch, 3, size, size))
    frozen = load_frozen(f"onnx:{path}", input_size=8)
    images = torch.rand(4, 3, 8, 8)
    torch.testing.assert_close(frozen.logits(images), expected(images))
    if size == "s":
        assert load_frozen(f"onnx:{path}").input_size == 224


@pytest.mark.parametrize(
    ("dtype", "tolerance"), [(TensorProto.FLOAT16, 1e-2), (TensorProto.DOUBLE, 1e-6)], ids=["half", "double"]
)
def test_other_precisions(tmp_path, dtype, tolerance):
    images = torch.rand(2, 3, 8, 8)
    logits = load_frozen(f"onnx:{write(tmp_path / 'colours.onnx', dtype=dtype)}").logits(images)
    torch.testing.assert_close(logits, expected(images), rtol=tolerance, atol=tolerance)


def test_channels_may_come_last(tmp_path):
    images = torch.rand(2, 3, 8, 8)
    frozen = load_frozen(f"onnx:{write(tmp_path / 'colours.onnx', shape=('n', 8, 8, 3))}")
    torch.testing.assert_close(frozen.logits(images), expected(images))


def test_a_softmax_at_the_end_is_seen(tmp_path):
    images = torch.rand(2, 3, 8, 8)
    path = write(tmp_path / "colours.onnx", ending="Softmax")
    torch.testing.assert_close(load_frozen(f"onnx:{path}").logits(images), expected(images).log_softmax(1))
    torch.testing.assert_close(load_frozen(f"onnx:{path}", outputs="logits").logits(images), expected(images).softmax(1))
    path = write(tmp_path / "said.onnx", ending="Softmax", metadata={"outputs": "logits"})
    torch.testing.assert_close(load_frozen(f"onnx:{path}").logits(images), expected(images).softmax(1))


def test_weights_beside_the_file_are_read_and_are_part_of_the_fingerprint(tmp_path):
    path = write(tmp_path / "colours.onnx", external=True)
    frozen = load_frozen(f"onnx:{path}")
    images = torch.rand(2, 3, 8, 8)
    torch.testing.assert_close(frozen.logits(images), expected(images))
    content = bytearray((tmp_path / "weights.bin").read_bytes())
    content[6] ^= 1
    (tmp_path / "weights.bin").write_bytes(content)
    assert load_frozen(f"onnx:{path}").fingerprint != frozen.fingerprint
    (tmp_path / "weights.bin").unlink()
    with pytest.raises(ReprogramError, match=r"keeps weights in 'weights\.bin', which is missing"):
        load_frozen(f"onnx:{path}")


def test_an_artefact_finds_its_file_from_anywhere_and_notices_another_one(tmp_path, monkeypatch):
    write(tmp_path / "colours.onnx")
    monkeypatch.chdir(tmp_path)
    frozen = load_frozen("onnx:colours.onnx")
    assert frozen.name == f"onnx:{tmp_path / 'colours.onnx'}"
    program = make_program("none", canvas=8)
    model = Reprogrammed(program, frozen, make_mapping("rlm", frozen.labels, ["warm", "cold"]))
    model.save(tmp_path / "artefact")
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    images = torch.rand(2, 3, 8, 8)
    assert torch.equal(Reprogrammed.load(tmp_path / "artefact")(images), model(images))
    (tmp_path / "colours.onnx").rename(tmp_path / "moved.onnx")
    assert torch.equal(Reprogrammed.load(tmp_path / "artefact", weights=tmp_path / "moved.onnx")(images), model(images))
    write(tmp_path / "colours.onnx", ending="Softmax")
    with pytest.raises(ReprogramError, match="fingerprint"):
        Reprogrammed.load(tmp_path / "artefact")


def test_described(tmp_path):
    path = write(tmp_path / "colours.onnx", shape=("n", 3, "h", "w"))
    assert describe_model(f"onnx:{path}", input_size=32) == {
        "name": f"onnx:{path}",
        "classes": 5,
        "input_size": 32,
        "parameters": 17,
        "normalisation": {"mean": [0.0] * 3, "std": [1.0] * 3},
        "interpolation": "bilinear",
        "differentiable": False,
        "label_source": "numbered: the file carries no names",
        "labels": [f"label {index}" for index in range(5)],
    }


@pytest.mark.parametrize(
    ("made", "options", "message"),
    [
        ({}, {"pretrained": False}, "cannot have random weights"),
        ({}, {"input_size": 16}, r"input_size = 16 was given, but .* takes only 8"),
        ({}, {"labels": "nowhere.txt"}, "'nowhere.txt' is neither a file nor names with commas"),
        ({}, {"labels": "nowhere.json"}, "'nowhere.json' is neither a file nor names with commas"),
        ({}, {"labels": "a,b"}, "2 source labels were given for a model with 5 outputs"),
        ({}, {"mean": [1, 2]}, r"mean = \[1, 2\] was given, but three numbers are expected"),
        ({}, {"std": "half"}, "std = 'half' was given, but three numbers are expected, one for each channel"),
        ({}, {"std": [0.5, 0, 0.5]}, "std"),
        ({}, {"outputs": "odds"}, "outputs = 'odds' was given, but it should be 'logits' or 'probabilities'"),
        ({}, {"input_size": 0}, "input_size = 0 was given, but it should be greater"),
        ({}, {"templates": "default"}, "'onnx' does not use templates; leave it out, or choose one that does: openclip"),
        ({}, {"inputsize": 8}, "setting 'inputsize' is not known; did you mean 'input_size'"),
        ({"shape": ("n", 1, 8, 8)}, {}, "square RGB images"),
        ({"shape": ("n", 3, 8, 9)}, {}, "square RGB images"),
        ({"metadata": {"mean": "[1, 2]"}}, {}, r"give mean as '\[1, 2\]', but a JSON list of three numbers"),
        ({"metadata": {"std": "half"}}, {}, "give std as 'half', but JSON is expected"),
        ({"metadata": {"labels": '{"a": 1}'}}, {}, "a JSON list of names"),
        ({"metadata": {"labels": '["a"]'}}, {}, "1 source labels were given for a model with 5 outputs"),
        ({"metadata": {"outputs": "odds"}}, {}, "logits or probabilities"),
        ({"metadata": {"input_size": "-3"}, "shape": ("n", 3, "h", "w")}, {}, "a whole number from 1 to 8192"),
    ],
)
def test_files_that_do_not_fit_are_refused_in_a_sentence(tmp_path, made, options, message):
    path = write(tmp_path / "colours.onnx", **made)
    with pytest.raises(ReprogramError, match=message):
        load_frozen(f"onnx:{path}", **options)


@pytest.mark.parametrize("content", [b"", b"not a network", b"\x00" * 100])
def test_broken_files_are_named(tmp_path, content):
    (tmp_path / "broken.onnx").write_bytes(content)
    with pytest.raises(ReprogramError, match=r"broken\.onnx"):
        load_frozen(f"onnx:{tmp_path / 'broken.onnx'}")


def test_missing_files_and_packages_are_named(tmp_path, monkeypatch):
    with pytest.raises(ReprogramError, match=r"nowhere\.onnx' does not exist"):
        load_frozen(f"onnx:{tmp_path / 'nowhere.onnx'}")
    with pytest.raises(ReprogramError, match=r"'onnx:' names no model; write onnx:FILE"):
        load_frozen("onnx:")
    path = write(tmp_path / "colours.onnx")
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    with pytest.raises(ReprogramError, match=r"onnxruntime is not installed.*pip install 'reprogram\[onnx\]'"):
        load_frozen(f"onnx:{path}")


def test_a_canvas_that_the_file_cannot_take_is_named(tmp_path):
    frozen = load_frozen(f"onnx:{write(tmp_path / 'colours.onnx')}")
    with pytest.raises(ReprogramError, match="images of side 16 were given, but the ONNX file takes only 8"):
        frozen(torch.rand(1, 3, 16, 16))
