"""The Open Inference Protocol: tensors and encoded images in, tensors out."""

import base64
import json

import numpy as np
import pytest

from reprogram.reprogrammed import Reprogrammed
from serving import CANVAS, picture

PIXELS = np.random.default_rng(0).integers(0, 255, (2, 3, CANVAS, CANVAS), dtype=np.uint8)


def ask(server, tensor, **more):
    return server("POST", "/v2/models/birds/infer", {"inputs": [{"name": "image", **tensor}], **more})


def by_name(said):
    return {one["name"]: one for one in said["outputs"]}


@pytest.fixture(scope="module")
def expected(made_tasks, small):
    model = Reprogrammed.load(made_tasks / "birds", small)
    return model.predict(np.ascontiguousarray(PIXELS.transpose(0, 2, 3, 1)))


@pytest.mark.parametrize("layout", ["first", "last", "nested"])
@pytest.mark.parametrize("kind", ["UINT8", "FP32"])
def test_tensors_are_classified(server, expected, kind, layout):
    array = PIXELS if kind == "UINT8" else (PIXELS / 255).astype(np.float32)
    array = array.transpose(0, 2, 3, 1) if layout == "last" else array
    data = array.tolist() if layout == "nested" else array.ravel().tolist()
    status, said = ask(server, {"datatype": kind, "shape": list(array.shape), "data": data}, id="mine")
    assert status == 200
    assert (said["model_name"], said["id"]) == ("birds", "mine")
    found = by_name(said)
    assert found["label"]["data"] == expected.labels
    assert found["probabilities"]["shape"] == [2, 3]
    assert found["probabilities"]["data"] == pytest.approx(expected.probabilities.flatten().tolist(), abs=1e-5)


def test_encoded_images_are_classified_with_evidence(server):
    content = picture(1)
    tensor = {"datatype": "BYTES", "shape": [1], "data": [base64.b64encode(content).decode()]}
    outputs = [{"name": "label"}, {"name": "evidence"}, {"name": "set"}]
    _, said = ask(server, tensor, outputs=outputs, parameters={"coverage": 0.9})
    found = by_name(said)
    _, plain = server.predict("birds", ("a", content), coverage=0.9)
    (row,) = plain["predictions"]
    assert found["label"]["data"] == [row["label"]]
    assert json.loads(found["evidence"]["data"][0]) == row["evidence"]
    assert json.loads(found["set"]["data"][0]) == row["set"]


SMALL = {"datatype": "UINT8", "shape": [1, 3, 2, 2], "data": [0] * 12}
WRONG = {
    "no inputs": ({}, None, "inputs"),
    "two inputs": ({"inputs": [SMALL, SMALL]}, None, "one tensor"),
    "no shape": (None, {**SMALL, "shape": "big"}, "shape"),
    "a shape of nothing": (None, {**SMALL, "shape": [0, 3, 2, 2], "data": []}, "whole numbers from 1"),
    "a huge shape": (None, {**SMALL, "shape": [2**30, 3, 2**30, 2**30]}, "12 numbers were sent"),
    "a shape beyond floating point": (None, {**SMALL, "shape": [2**31 - 1] * 8}, "12 numbers were sent"),
    "images beyond floating point": (None, {**SMALL, "datatype": "BYTES", "shape": [2**31 - 1] * 8}, "12 images were sent"),
    "a hundred sides": (None, {**SMALL, "shape": [1] * 99 + [12]}, "100 sides"),
    "no data": (None, {**SMALL, "data": None}, "data"),
    "texts": (None, {**SMALL, "data": ["a"] * 12}, "numbers"),
    "ragged": (None, {**SMALL, "data": [[1], [2, 3]]}, "numbers"),
    "too large": (None, {**SMALL, "data": [256] * 12}, "0 to 255"),
    "another kind": (None, {**SMALL, "datatype": "INT64"}, "INT64"),
    "a list for a kind": (None, {**SMALL, "datatype": ["UINT8"]}, "['UINT8']"),
    "not in range": (None, {**SMALL, "datatype": "FP32", "data": [7.5] * 12}, "pixels in [0, 1]"),
    "three sides": (None, {**SMALL, "shape": [3, 2, 2]}, "(N, 3, H, W)"),
    "an output": ({"inputs": [SMALL], "outputs": [{"name": "colour"}]}, None, "'colour'"),
    "a set without coverage": ({"inputs": [SMALL], "outputs": [{"name": "set"}]}, None, "coverage"),
}


@pytest.mark.parametrize("case", WRONG)
def test_a_wrong_tensor_is_one_sentence(server, case):
    whole, tensor, words = WRONG[case]
    body = whole if tensor is None else {"inputs": [tensor]}
    status, said = server("POST", "/v2/models/birds/infer", body)
    assert (status, list(said)) == (422, ["error"])
    assert words in said["error"]
