"""What `reprogram export` wrote, at work: onnxruntime and numpy, no torch.

    backbone = Backbone("tasks/backbone.onnx")                    # one session in memory
    tasks = [load_exported(folder, backbone) for folder in ("tasks/birds", "tasks/boats")]
    tasks[0].probabilities(pixels)                                # uint8 (N, S, S, 3) -> (N, k_T)

A folder of `--format onnx` needs no backbone.
"""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from pydantic import BaseModel, ConfigDict, Field

from reprogram.child import tried_in_child
from reprogram.errors import ReprogramError, first_line
from reprogram.export.adapters import Array, import_onnxruntime, parse_adapter
from reprogram.export.settings import (
    ADAPTER,
    BACKBONE,
    BIAS,
    FEATURES,
    IMAGES,
    LOGITS,
    METADATA,
    MODEL,
    PATTERN,
    PROBABILITIES,
    VERSION,
    WEIGHT,
)
from reprogram.files import read_bytes
from reprogram.files.foreign import expanded
from reprogram.files.listings import Listing, read_listing

_MOST_BYTES = 2**31  # of an ONNX file, which can be no larger
_AGAIN = "export it again"


class _Input(BaseModel):
    size: int = Field(ge=1, le=8192)
    interpolation: str


class _Source(BaseModel):
    key: str
    canvas: int = Field(ge=1, le=8192)


class _Stored(Listing):
    """What of an export is relied on here."""

    model_config = ConfigDict(extra="allow", strict=True)

    version: int
    format: str
    labels: list[str] = Field(min_length=1)
    input: _Input
    source: _Source
    backbone: dict[str, str] | None


class Session:
    """An ONNX file in onnxruntime.

    Args:
        path: the file.
        threads: how many compute one answer; by default as many as onnxruntime likes.
        expected: the SHA-256 that the file must have, if it is known.

    Attributes:
        sha256: of the file.
        metadata: what the file says of itself.
    """

    def __init__(self, path: str | Path, *, threads: int | None = None, expected: str | None = None) -> None:
        runtime = import_onnxruntime()
        self.path = expanded(path)
        content = read_bytes(self.path, "ONNX file", _MOST_BYTES)
        self.sha256 = hashlib.sha256(content).hexdigest()
        if expected not in (None, self.sha256):
            raise ReprogramError(f"{str(self.path)!r} has changed since it was exported (its SHA-256 differs); {_AGAIN}")
        tried_in_child("reprogram.sources.walks:walk_onnx", self.path, "ONNX file", _AGAIN)
        options = runtime.SessionOptions()
        options.log_severity_level = 4  # what goes wrong becomes a sentence of ours
        if threads is not None:
            options.intra_op_num_threads = threads
        try:
            self._session = runtime.InferenceSession(content, options, providers=["CPUExecutionProvider"])
            found = json.loads(self._session.get_modelmeta().custom_metadata_map[METADATA])
            self.metadata: dict[str, Any] = dict(found)
            names = [one.name for one in self._session.get_inputs()]
        except Exception as error:  # onnxruntime's own types have no common base, and hostile metadata raise others
            raise ReprogramError(
                f"{str(self.path)!r} is no ONNX file of reprogram export ({first_line(error)}); {_AGAIN}"
            ) from None
        if self.metadata.get("version") != VERSION or names != [IMAGES]:
            raise ReprogramError(f"{str(self.path)!r} was exported by another version of reprogram; {_AGAIN}")

    def run(self, outputs: list[str], feeds: Mapping[str, Array]) -> list[Array]:
        """Some outputs for these inputs."""
        try:
            return list(self._session.run(outputs, dict(feeds)))
        except Exception as error:
            raise ReprogramError(f"{str(self.path)!r} cannot answer ({first_line(error)}); {_AGAIN}") from error


class Backbone(Session):
    """One frozen model that serves any number of tasks: everything but θ, ω and the classes.

    Attributes:
        key: what identifies model and canvas; a task belongs to the backbone of the same key.
        canvas: the side of the square that the model receives.
        width: how many numbers `features` has.
    """

    def __init__(self, path: str | Path, *, threads: int | None = None, expected: str | None = None) -> None:
        super().__init__(path, threads=threads, expected=expected)
        facts = self.metadata
        if not isinstance(facts.get("key"), str) or not all(
            isinstance(facts.get(name), int) for name in ("canvas", "width")
        ):
            raise ReprogramError(f"{str(self.path)!r} is no backbone; give the one of --format onnx-adapter")
        self.key, self.canvas, self.width = str(facts["key"]), int(facts["canvas"]), int(facts["width"])

    def features(self, pixels: Array, pattern: Array | None = None) -> Array:
        """What the model makes of images (N, S, S, 3) uint8 under a program, (N, width); any task's head reads it.

        Tasks of the same program (or of none, and the same image size) can share one pass.
        """
        feeds = {IMAGES: _checked(pixels, None, self.canvas)}
        return self.run([FEATURES], feeds if pattern is None else {**feeds, PATTERN: pattern})[0]


@dataclass(frozen=True)
class Exported:
    """A task that was exported.

    Attributes:
        classes: the k_T class names.
        image_size: the side S of the images that it takes.
        interpolation: how images are brought to that size; see docs/export.md.
        facts: all that `export.json` says.
        session: what computes.
        arrays: of an adapter, `weight` (width, k_T), `bias` (k_T,) and, if it has a program, `pattern` (3, canvas, canvas).
    """

    classes: tuple[str, ...]
    image_size: int
    interpolation: str
    facts: dict[str, Any]
    session: Session
    arrays: Mapping[str, Array]

    def logits(self, pixels: Array) -> Array:
        """Calibrated target logits (N, k_T) of images (N, S, S, 3) uint8: their softmax are the probabilities."""
        return self._run(LOGITS, pixels)

    def probabilities(self, pixels: Array) -> Array:
        """The probability of each class, (N, k_T) float32, of images (N, S, S, 3) uint8."""
        return self._run(PROBABILITIES, pixels)

    def from_features(self, features: Array) -> Array:
        """The probabilities (N, k_T) of an adapter's task by what `Backbone.features` has found under the same program."""
        scores = features @ self.arrays[WEIGHT] + self.arrays[BIAS]
        powers = np.exp(scores - scores.max(1, keepdims=True))
        shares: Array = powers / powers.sum(1, keepdims=True)
        return shares

    @property
    def pattern(self) -> Array | None:
        """What the program of an adapter's task puts on the canvas; None if there is none."""
        return self.arrays.get(PATTERN)

    def _run(self, output: str, pixels: Array) -> Array:
        return self.session.run([output], {IMAGES: _checked(pixels, self.image_size), **self.arrays})[0]


def load_exported(folder: str | Path, backbone: Backbone | None = None, *, threads: int | None = None) -> Exported:
    """Read a folder that `reprogram export` wrote with `--format onnx` or `onnx-adapter`, checked against its SHA-256.

    Args:
        folder: the folder.
        backbone: for an adapter, the backbone that is in memory already; by default the one that the folder names.
        threads: of a session that is begun here.

    Raises:
        ReprogramError: a file is missing or damaged, or the adapter belongs to another backbone.
    """
    place = expanded(folder)
    facts = read_listing(place, _Stored)
    if facts["version"] != VERSION:
        raise ReprogramError(f"{str(place)!r} was exported by another version of reprogram; {_AGAIN}")
    kind, files, source = facts["format"], facts["files"], facts["source"]
    arrays: dict[str, Array] = {}
    session: Session
    if kind == "onnx" and MODEL in files:
        session = Session(place / MODEL, threads=threads, expected=files[MODEL])
    elif kind == "onnx-adapter" and ADAPTER in files and facts["backbone"] is not None:
        if backbone is None:
            known = facts["backbone"]
            backbone = Backbone(place / known.get("path", BACKBONE), threads=threads, expected=known.get("sha256"))
        session = check_backbone(backbone, source["key"], str(place))
        arrays = _arrays(place / ADAPTER, files[ADAPTER], backbone, facts)
    else:
        raise ReprogramError(f"{str(place)!r} holds an export of format {kind!r}, but onnx or onnx-adapter is expected")
    size, interpolation = facts["input"]["size"], facts["input"]["interpolation"]
    return Exported(tuple(facts["labels"]), size, interpolation, facts, session, arrays)


def check_backbone(backbone: Backbone, key: str, task: str) -> Backbone:
    """The same, or an error if it is another model, or another canvas, than a task was made for."""
    if backbone.key != key:
        raise ReprogramError(
            f"{task!r} was made for the backbone {key[:12]}, but {str(backbone.path)!r} is {backbone.key[:12]}: another "
            "model, other weights, normalisation or canvas; give the backbone that was exported with it"
        )
    return backbone


def _arrays(path: Path, expected: str, backbone: Backbone, facts: dict[str, Any]) -> dict[str, Array]:
    """What the adapter holds, which must fit to the backbone and to the classes."""
    content = read_bytes(path, "adapter", _MOST_BYTES)
    if hashlib.sha256(content).hexdigest() != expected:
        raise ReprogramError(f"{str(path)!r} has changed since it was written (its SHA-256 differs); {_AGAIN}")
    arrays = parse_adapter(content, f"adapter {str(path)!r}")
    k_target, canvas = len(facts["labels"]), backbone.canvas
    shapes: dict[str, tuple[int, ...]] = {WEIGHT: (backbone.width, k_target), BIAS: (k_target,)}
    if PATTERN in arrays:
        shapes[PATTERN] = (3, canvas, canvas)
    found = {name: array.shape if array.dtype == np.float32 else array.dtype for name, array in arrays.items()}
    if found != shapes or facts["input"]["size"] > canvas:
        raise ReprogramError(f"adapter {str(path)!r} holds {found}, but {shapes} is expected; {_AGAIN}")
    return arrays


def _checked(pixels: Array, size: int | None, most: int | None = None) -> Array:
    """Images as they are fed, or an error."""
    shape: Any = getattr(pixels, "shape", ())
    dtype = getattr(pixels, "dtype", None)
    right = dtype == np.uint8 and len(shape) == 4 and shape[3] == 3 and shape[1] == shape[2]
    if not right or shape[1] != (size or shape[1]) or not 1 <= shape[1] <= (most or shape[1]):
        side = size or f"S <= {most}"
        raise ReprogramError(
            f"images are {dtype} {tuple(shape)}, but uint8 (N, {side}, {side}, 3) is expected; resize them as "
            "docs/export.md shows"
        )
    return np.ascontiguousarray(pixels)
