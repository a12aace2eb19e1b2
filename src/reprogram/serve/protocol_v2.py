"""The Open Inference Protocol, version 2, so that clients of KServe, Triton and MLServer can ask the tasks.

A task is a model. Its input is a tensor of pixels, UINT8 or FP32 in [0, 1], or BYTES that are encoded images in base64. Its
outputs are `label`, `probability` and `probabilities`, and as extensions `evidence`, `set` and `p_typical`.
"""

import math
from typing import Any

import numpy as np

from reprogram.images.decoding import Pixels
from reprogram.serve.answers import rows_of
from reprogram.serve.batching import Job
from reprogram.serve.bodies import Options, from_base64, read_options
from reprogram.serve.limits import Limits, Refusal
from reprogram.serve.pictures import decoded, from_array
from reprogram.serve.service import Service
from reprogram.serve.tasks import Task, Way
from reprogram.text import json_text

EXTENSIONS = ["evidence", "prediction_sets"]
_KINDS = {"UINT8": np.uint8, "FP32": np.float32}
_OUTPUTS = ("label", "probability", "probabilities", "evidence", "set", "p_typical")
_MOST_SIDES = 8  # of a tensor: numpy knows no more than 64, and an image has no more than 4
_ALWAYS = ("label", "probability", "probabilities")


def metadata(task: Task, name: str) -> dict[str, Any]:
    """What `GET /v2/models/{name}` says."""
    size, classes = task.way.image_size, len(task.mapping.classes)
    return {
        "name": name,
        "versions": ["1"],
        "platform": "reprogram",
        "inputs": [
            {"name": "image", "datatype": "UINT8", "shape": [-1, 3, size, size]},
            {"name": "image", "datatype": "FP32", "shape": [-1, 3, size, size]},
            {"name": "image", "datatype": "BYTES", "shape": [-1]},
        ],
        "outputs": [
            {"name": "label", "datatype": "BYTES", "shape": [-1]},
            {"name": "probability", "datatype": "FP32", "shape": [-1]},
            {"name": "probabilities", "datatype": "FP32", "shape": [-1, classes]},
            {"name": "evidence", "datatype": "BYTES", "shape": [-1]},
        ],
        "parameters": {"classes": list(task.mapping.classes)},
    }


async def infer(service: Service, name: str, content: dict[str, Any]) -> dict[str, Any]:
    """What `POST /v2/models/{name}/infer` answers."""
    parameters = content.get("parameters", {})
    if not isinstance(parameters, dict):
        raise Refusal(422, "parameters is no object; send an object, or leave it out")
    wanted = _wanted(content.get("outputs"))
    known = {key: value for key, value in parameters.items() if key in Options.model_fields}
    options = read_options({"evidence": 3 if "evidence" in wanted else 0, **known})
    task = await service.task(name, options)
    given = content.get("inputs")
    if not isinstance(given, list) or len(given) != 1 or not isinstance(given[0], dict):
        raise Refusal(422, "inputs is no list of one tensor; send the images as one tensor")
    images = await service.aside(lambda: read_tensor(given[0], task.way, service.limits))
    job = await service.answered(task, images, options)
    asked = {"id": content["id"]} if isinstance(content.get("id"), str) else {}
    return {"model_name": name, "model_version": "1", **asked, "outputs": _outputs(job, wanted)}


def _wanted(given: Any) -> list[str]:
    if given is None:
        return list(_ALWAYS)
    names = [one.get("name") if isinstance(one, dict) else None for one in given] if isinstance(given, list) else [None]
    for name in names:
        if name not in _OUTPUTS:
            raise Refusal(422, f"an output {str(name)[:100]!r} was asked for, but there are {', '.join(_OUTPUTS)}")
    return [str(name) for name in names]


def read_tensor(given: dict[str, Any], way: Way, limits: Limits) -> list[Pixels]:
    """The images (3, S, S) of an input tensor of the protocol."""
    kind, shape, data = given.get("datatype"), given.get("shape"), given.get("data")
    if not isinstance(shape, list) or not all(type(side) is int and 0 < side < 2**31 for side in shape):
        raise Refusal(422, "the shape of the tensor is no list of whole numbers from 1 on; send those")
    if len(shape) > _MOST_SIDES:
        raise Refusal(422, f"a shape of {len(shape):,} sides was sent, but (N, 3, H, W) is expected; reshape it")
    if not isinstance(data, list):
        raise Refusal(422, "data is no list; send the numbers of the tensor in JSON")
    if kind == "BYTES":
        if len(data) != math.prod(shape):
            raise Refusal(422, f"{len(data):,} images were sent with the shape {shape[:5]}; send as many as it says")
        if len(data) > limits.images:
            raise Refusal(
                413, f"{len(data):,} images were sent, but at most {limits.images:,} are taken at once; send fewer"
            )
        named = ((str(number), one) for number, one in enumerate(data, start=1))
        return [decoded(from_base64(text, f"image {name}"), name, way, limits) for name, text in named]
    if not isinstance(kind, str) or kind not in _KINDS:
        raise Refusal(422, f"a tensor of {str(kind)[:50]} was sent, but UINT8, FP32 and BYTES are read; convert it")
    try:
        numbers = np.array(data, dtype=np.float64).ravel()
    except (ValueError, TypeError, OverflowError):
        raise Refusal(422, "data holds something else than numbers, or lists of other lengths; send numbers") from None
    if (
        kind == "UINT8"
        and numbers.size
        and not bool(((numbers >= 0) & (numbers <= 255) & (numbers == np.floor(numbers))).all())
    ):
        raise Refusal(422, "data of UINT8 holds numbers that are not whole or not in 0 to 255; send FP32, or scale them")
    if numbers.size != math.prod(shape):
        raise Refusal(422, f"{numbers.size:,} numbers were sent with the shape {shape[:5]}; send as many as it says")
    return from_array(numbers.astype(_KINDS[kind]).reshape(shape), way, limits)


def _outputs(job: Job, wanted: list[str]) -> list[dict[str, Any]]:
    rows, n = rows_of(job, 1), len(job.images)
    found = []
    for name in wanted:
        if name == "probabilities":
            shares = [part.said.probabilities[part.start : part.stop].flatten().tolist() for part in job.parts]
            data = [value for values in shares for value in values]
            found.append({"name": name, "datatype": "FP32", "shape": [n, len(job.task.mapping.classes)], "data": data})
        elif name in ("label", "probability"):
            kind = "BYTES" if name == "label" else "FP32"
            found.append({"name": name, "datatype": kind, "shape": [n], "data": [row[name] for row in rows]})
        elif name == "p_typical":
            values = [row.get(name) for row in rows]
            if None in values:
                raise Refusal(422, "p_typical was asked for, but no parameter unlike was given; give it, such as 0.01")
            found.append({"name": name, "datatype": "FP64", "shape": [n], "data": values})
        else:  # as JSON, because images differ in how many there are
            if name == "set" and rows and "set" not in rows[0]:
                raise Refusal(422, "set was asked for, but no parameter coverage was given; give it, such as 0.9")
            found.append({"name": name, "datatype": "BYTES", "shape": [n], "data": [json_text(row[name]) for row in rows]})
    return found
