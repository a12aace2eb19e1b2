"""Fuzz targets of what clients send to `reprogram serve`: JSON, forms, archives of artefacts, tensors."""

import base64
import io
import json
import random
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import numpy as np

from reprogram.errors import ReprogramError
from reprogram.serve.bodies import parsed, parts_of, read_images, read_options
from reprogram.serve.limits import Limits, Refusal
from reprogram.serve.onnx_tasks import OnnxWay
from reprogram.serve.pictures import decoded
from reprogram.serve.protocol_v2 import read_tensor
from reprogram.serve.store import unpacked
from reprogram.serve.tasks import Way
from reprogram.serve.torch_tasks import TorchWay
from soak.mutate import TEXT, Known, Mutator
from soak.structure import JSON, ZIPS
from soak.targets import BytesTarget, Target

_REFUSALS = (ReprogramError, Refusal)
_LIMITS = Limits(upload=2**20, pixels=2**16, images=8)
_FORM = "multipart/form-data; boundary=edge"
_ODD_SIDES: tuple[Any, ...] = (
    [2**31 - 1] * 40,
    [1] * 100,
    [1, 3, 2**31 - 1],
    [0],
    [-1, 3, 4, 4],
    [True],
    [1e400],
    [],
    [[1]],
)
_ODD_NUMBERS: tuple[Any, ...] = (1e300, -1e300, 1e-320, 256, -1, 10**400, None, "1", [1], {}, True)


class _TorchWay:
    """What a tensor has to be brought to, as a model in torch takes it."""

    image_size, interpolation = 8, "bilinear"
    fit = TorchWay.fit


class _OnnxWay(_TorchWay):
    """The same as an exported model takes it."""

    fit = OnnxWay.fit


_WAY, _OTHER_WAY = cast(Way, _TorchWay()), cast(Way, _OnnxWay())


def _picture() -> bytes:
    from PIL import Image

    content = io.BytesIO()
    Image.new("RGB", (6, 5), (9, 80, 200)).save(content, "PNG")
    return content.getvalue()


def _json_seeds(folder: Path) -> list[bytes]:
    image = base64.b64encode(_picture()).decode()
    contents: list[dict[str, Any]] = [
        {"image": image, "evidence": 2, "coverage": 0.9, "per_class": True},
        {"images": [image, f"data:image/png;base64,{image}"], "top": "3"},
    ]
    return [json.dumps(content).encode() for content in contents]


def _form_seeds(folder: Path) -> list[bytes]:
    image = b'--edge\r\nContent-Disposition: form-data; name="image"; filename="a.png"\r\n\r\n' + _picture() + b"\r\n"
    option = b'--edge\r\nContent-Disposition: form-data; name="top"\r\n\r\n2\r\n'
    return [image + b"--edge--\r\n", option + image + image + b"--edge--\r\n"]


def _zip_seeds(folder: Path) -> list[bytes]:
    made = []
    for inner, way in (("", zipfile.ZIP_STORED), ("run/", zipfile.ZIP_DEFLATED)):
        content = io.BytesIO()
        with zipfile.ZipFile(content, "w", way) as archive:
            for name in ("artefact.json", "artefact.safetensors", "labels.csv"):
                archive.writestr(inner + name, b"content of " + name.encode() + b" " * 400)
        made.append(content.getvalue())
    return made


def _tensor_seeds(folder: Path) -> list[bytes]:
    image = base64.b64encode(_picture()).decode()
    contents = [
        {"datatype": "UINT8", "shape": [1, 3, 2, 2], "data": list(range(12))},
        {"datatype": "FP32", "shape": [1, 2, 2, 3], "data": [[[[0.5] * 3] * 2] * 2]},
        {"datatype": "FP32", "shape": [2, 3, 8, 8], "data": [0.25] * 384},
        {"datatype": "BYTES", "shape": [2], "data": [image, image]},
    ]
    return [json.dumps(content).encode() for content in contents]


def _other_tensor(data: bytes, rng: random.Random, known: Known) -> bytes:
    """Put an odd side, shape, kind or number into a tensor, and nothing else."""
    try:
        content = json.loads(data)
        choice = rng.randrange(4)
        if choice == 0:
            content["shape"] = rng.choice(_ODD_SIDES)
        elif choice == 1:
            content["shape"] = [rng.choice((1, 2, 3, 4, 12, 64)) for _ in range(rng.randrange(6))]
        elif choice == 2:
            content["data"][rng.randrange(len(content["data"]))] = rng.choice(_ODD_NUMBERS)
        else:
            content["datatype"] = rng.choice(("UINT8", "FP32", "BYTES", "FP64", [], None))
        return json.dumps(content).encode()
    except (ValueError, KeyError, TypeError, RecursionError):
        return data


def _use(kind: str) -> Callable[[bytes], None]:
    def run(body: bytes) -> None:
        found = read_images(body, kind, _LIMITS)
        read_options(found.options)
        for name, content in found.files:
            assert tuple(decoded(content, name, _WAY, _LIMITS).shape) == (3, 8, 8)

    return run


def _use_form(body: bytes) -> None:
    """As images, and with what the header of the request says of the edge taken from the body itself."""
    head = body[2 : body.find(b"\r\n")].decode("latin-1")
    parts_of(body, f"multipart/form-data; boundary={head}")
    _use(_FORM)(body)


def _use_zip(body: bytes) -> None:
    files = unpacked(body, _LIMITS.upload)
    assert sum(map(len, files.values())) <= _LIMITS.upload
    assert set(files) <= {"artefact.json", "artefact.safetensors", "labels.csv"}


def _use_tensor(body: bytes) -> None:
    refused: list[Refusal] = []
    for way in (_WAY, _OTHER_WAY):
        try:
            images = read_tensor(parsed(body), way, _LIMITS)
        except Refusal as refusal:
            refused.append(refusal)
            continue
        for image in images:
            assert tuple(image.shape) == (3, 8, 8)
            assert bool(np.isfinite(image).all())
    if refused:
        raise refused[0]


_TENSORS: tuple[Mutator, ...] = (*(_other_tensor,) * 8, *JSON)
_FORM_WORDS = (b"--edge", b"--edge--", b"\r\n", b'filename="', b"filename*=utf-8''%00", b'name="', b"Content-Disposition:")
TARGETS: list[Target] = [
    BytesTarget("serve.json", _json_seeds, _use("application/json"), mutators=JSON, refusals=_REFUSALS),
    BytesTarget("serve.form", _form_seeds, _use_form, mutators=TEXT, dictionary=_FORM_WORDS, refusals=_REFUSALS),
    BytesTarget("serve.zip", _zip_seeds, _use_zip, mutators=ZIPS, dictionary=(b"../", b"artefact.json"), refusals=_REFUSALS),
    BytesTarget("serve.tensor", _tensor_seeds, _use_tensor, mutators=_TENSORS, refusals=_REFUSALS),
]
