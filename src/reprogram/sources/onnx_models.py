"""`onnx:FILE`: a classifier as an ONNX file, answered by onnxruntime and therefore a black box without gradients.

What the file says about itself is believed: the input's shape, the outputs' number, a Softmax at the end, and the metadata
properties `mean`, `std`, `labels` (JSON lists), `input_size` (a number) and `outputs` (`logits` or `probabilities`). What
the user says (`OnnxOptions`) goes before the metadata. Of several outputs the first one with two dimensions counts.
"""

import hashlib
import importlib
import json
import math
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path, PurePosixPath, PureWindowsPath
from types import ModuleType
from typing import Any, get_args

import numpy as np
import torch

from reprogram.child import tried_in_child
from reprogram.errors import ReprogramError, extra_missing, first_line
from reprogram.names import read_names
from reprogram.sources.black_box import BlackBox
from reprogram.sources.declared import MOST_SIDE
from reprogram.sources.frozen import Frozen
from reprogram.sources.registry import missing_file
from reprogram.sources.request import Request
from reprogram.sources.settings import OnnxOptions, Outputs

_PRECISIONS = {"tensor(float)": np.float32, "tensor(float16)": np.float16, "tensor(double)": np.float64}
_MOST_BATCH, _MOST_OUTPUTS = 4096, 10_000_000
Array = np.ndarray[Any, Any]


def load_onnx(request: Request[OnnxOptions]) -> Frozen:
    """Load a classifier from an ONNX file."""
    path, options = request.weights or request.path or Path(request.architecture), request.options
    if not path.is_file():
        raise missing_file(request.source, path)
    if not request.pretrained:
        raise ReprogramError(
            f"{request.name} cannot have random weights, because an ONNX file is its weights; leave --no-pretrained out"
        )
    runtime, onnx = _import("onnxruntime"), _import("onnx")
    content = path.read_bytes()
    graph = _parse(onnx, content, path)
    external = _external_files(onnx, graph, path)
    tried_in_child("reprogram.sources.walks:walk_onnx", path, "onnx file", "export the model again")
    session = _Session(runtime, content, path, external=external)
    facts = _Facts(session.metadata, path)
    given = None if options.labels is None else read_names(options.labels, "labels")
    labels = facts.labels() if given is None else given
    return BlackBox(
        session,
        labels=labels,
        mean=options.mean or facts.channels("mean", 0.0),
        std=options.std or facts.channels("std", 1.0),
        input_size=_input_size(options.input_size, session, facts, path),
        outputs=options.outputs or facts.outputs() or _ending(graph, session.output),
        name=request.name,
        fingerprint=session.fingerprint,
        parameters=sum(math.prod(tensor.dims) for tensor in graph.initializer),
        k_source=session.k_source,
        label_source="labels in the metadata of the ONNX file" if labels is not None and given is None else None,
        # Weights stay None: the file itself is where a moved file was found.
        spec={"name": f"{request.source}:{path.resolve()}", "weights": None, **({} if given is None else {"labels": given})},
    )


def _import(package: str) -> ModuleType:
    try:
        return importlib.import_module(package)
    except ModuleNotFoundError:
        raise extra_missing(package, "onnx") from None


def _parse(onnx: ModuleType, content: bytes, path: Path) -> Any:
    """The graph in the file, without the weights that lie outside of it."""
    try:
        model = onnx.load_model_from_string(content)
        external = onnx.TensorProto.EXTERNAL
        if any(t.data_location == external for f in model.functions for node in f.node for t in _node_tensors(node)):
            raise ValueError("a function of it keeps a constant in another file")
        graph = model.graph
    except Exception as error:
        raise _unreadable(path, error) from None
    if not graph.node:
        raise ReprogramError(f"{str(path)!r} holds no ONNX network; export the model again")
    return graph


def _external_files(onnx: ModuleType, graph: Any, path: Path) -> list[Path]:
    """The files beside the model that hold weights of it, as exporters write them for larger models."""
    external = onnx.TensorProto.EXTERNAL
    if any(tensor.data_location == external for tensor in _inner_tensors(graph)):
        # onnxruntime would look for it in the current folder
        raise ReprogramError(
            f"{str(path)!r} keeps a constant in another file, but only weights may lie beside it; export the model again"
        )
    names = {
        entry.value
        for tensor in graph.initializer
        if tensor.data_location == external
        for entry in tensor.external_data
        if entry.key == "location"
    }
    for name in names:
        if "\0" in name or PureWindowsPath(name).anchor or PurePosixPath(name).is_absolute() or ".." in Path(name).parts:
            raise ReprogramError(
                f"{str(path)!r} keeps weights in {name[:80]!r}, which is not beside it; export the model again"
            )
    files = [path.parent / name for name in sorted(names)]
    for file in files:
        if not file.is_file():
            raise ReprogramError(
                f"{str(path)!r} keeps weights in {file.name[:80]!r}, which is missing; put it beside the file"
            )
    return files


def _inner_tensors(graph: Any) -> Iterator[Any]:
    """All tensors in a graph but its own weights: in its nodes, and in the graphs inside these."""
    for sparse in graph.sparse_initializer:
        yield from (sparse.values, sparse.indices)
    for node in graph.node:
        yield from _node_tensors(node)


def _node_tensors(node: Any) -> Iterator[Any]:
    for attribute in node.attribute:
        yield from (attribute.t, *attribute.tensors)
        for sparse in (attribute.sparse_tensor, *attribute.sparse_tensors):
            yield from (sparse.values, sparse.indices)
        for inner in (attribute.g, *attribute.graphs):
            yield from inner.initializer
            yield from _inner_tensors(inner)


def _unreadable(path: Path, error: Exception) -> ReprogramError:
    return ReprogramError(f"{str(path)!r} cannot be read as ONNX ({first_line(error)}); export the model again")


class _Session:
    """onnxruntime's session as a callable from (N, 3, S, S) to (N, k_S), with the file's own batch size and layout."""

    def __init__(self, runtime: ModuleType, content: bytes, path: Path, external: list[Path]) -> None:
        digest = hashlib.sha256(content)
        for file in external:
            digest.update(file.read_bytes())
        self.fingerprint = digest.hexdigest()
        options = runtime.SessionOptions()
        options.log_severity_level = 4  # what goes wrong becomes a sentence of ours
        options.intra_op_num_threads = torch.get_num_threads()  # one setting for all that computes
        try:
            # From the very bytes that were hashed, except where weights lie in other files, which only a path leads to.
            self.session = runtime.InferenceSession(
                str(path) if external else content, options, providers=runtime.get_available_providers()
            )
            self.metadata: dict[str, str] = self.session.get_modelmeta().custom_metadata_map
            inputs, outputs = self.session.get_inputs(), self.session.get_outputs()
            for one in (*inputs, *outputs):
                repr((one.name, one.type, one.shape))  # names that are no Unicode are noticed here
        except Exception as error:
            raise _unreadable(path, error) from None
        shape = inputs[0].shape if len(inputs) == 1 else []
        self.channels_last = len(shape) == 4 and shape[3] == 3 and shape[1] != 3
        sides = shape[1:3] if self.channels_last else shape[2:4]
        fixed = {side for side in sides if isinstance(side, int)}
        if len(shape) != 4 or 3 not in (shape[1], shape[3]) or len(fixed) > 1 or inputs[0].type not in _PRECISIONS:
            found = ", ".join(f"{one.name} {one.type} {one.shape}" for one in inputs)
            raise ReprogramError(
                f"{str(path)!r} takes {found}, but one input of square RGB images (N, 3, S, S) in floating point is "
                "expected; export the model that way"
            )
        tables = [output for output in outputs if len(output.shape) == 2]
        if not tables:
            found = ", ".join(f"{one.name} {one.shape}" for one in outputs)
            raise ReprogramError(f"{str(path)!r} answers with {found}, but (N, k_S) is expected; export a classifier")
        self.input, self.dtype, self.output = inputs[0].name, _PRECISIONS[inputs[0].type], tables[0].name
        self.k_source = tables[0].shape[1] if isinstance(tables[0].shape[1], int) else None
        self.side: int | None = fixed.pop() if fixed else None
        self.batch: int | None = shape[0] if isinstance(shape[0], int) else None
        if (self.side or 1) > MOST_SIDE or not 0 < (self.batch or 1) <= _MOST_BATCH or (self.k_source or 1) > _MOST_OUTPUTS:
            raise ReprogramError(
                f"{str(path)!r} takes {shape} and answers with {tables[0].shape}, but images of at most {MOST_SIDE} pixels, "
                f"{_MOST_BATCH} at a time, and at most {_MOST_OUTPUTS:,} outputs are expected; export the model again"
            )

    def __call__(self, pixels: Array) -> Array:
        if self.side not in (None, pixels.shape[2]):
            raise ReprogramError(f"images of side {pixels.shape[2]} were given, but the ONNX file takes only {self.side}")
        pixels = pixels.transpose(0, 2, 3, 1) if self.channels_last else pixels
        step = self.batch or max(1, len(pixels))
        chunks = [self._run(pixels[start : start + step]) for start in range(0, len(pixels), step)]
        return np.concatenate(chunks) if chunks else np.empty((0, self.k_source or 0), np.float32)

    def _run(self, pixels: Array) -> Array:
        count = len(pixels)
        if self.batch is not None and count < self.batch:  # the file knows one batch size alone
            pixels = np.concatenate([pixels, np.zeros((self.batch - count, *pixels.shape[1:]), pixels.dtype)])
        try:
            answer: Array = self.session.run([self.output], {self.input: np.ascontiguousarray(pixels, dtype=self.dtype)})[0]
        except Exception as error:  # onnxruntime's own types, which have no common base
            shape = tuple(pixels.shape)
            raise ReprogramError(
                f"the ONNX file cannot answer images of shape {shape} ({first_line(error)}); "
                "give the input size that it takes"
            ) from error
        return answer[:count]


class _Facts:
    """What the metadata properties of the file say."""

    def __init__(self, metadata: dict[str, str], path: Path) -> None:
        self.metadata, self.path = metadata, path

    def channels(self, key: str, default: float) -> list[float]:
        values = self._json(key)
        if values is None:
            return [default] * 3
        if isinstance(values, list) and len(values) == 3 and all(type(value) in (int, float) for value in values):
            with suppress(OverflowError):
                numbers = [float(value) for value in values]
                if all(map(math.isfinite, numbers)):
                    return numbers
        raise self._wrong(key, "a JSON list of three numbers")

    def labels(self) -> list[str] | None:
        names = self._json("labels")
        if names is None or (isinstance(names, list) and all(isinstance(name, str) for name in names)):
            return names
        raise self._wrong("labels", "a JSON list of names")

    def input_size(self) -> int | None:
        side = self._json("input_size")
        if side is None or (type(side) is int and 0 < side <= MOST_SIDE):
            return side
        raise self._wrong("input_size", f"a whole number from 1 to {MOST_SIDE}")

    def outputs(self) -> Outputs | None:
        kind = self.metadata.get("outputs", "").strip('"')
        for known in get_args(Outputs):
            if kind == known:
                return known  # type: ignore[no-any-return]
        if not kind:
            return None
        raise self._wrong("outputs", "logits or probabilities")

    def _json(self, key: str) -> Any:
        try:
            return json.loads(self.metadata.get(key, "null"))
        except (ValueError, RecursionError):
            raise self._wrong(key, "JSON") from None

    def _wrong(self, key: str, expected: str) -> ReprogramError:
        return ReprogramError(
            f"the metadata of {str(self.path)!r} give {key} as {self.metadata[key][:60]!r}, but {expected} is expected; "
            "mend it"
        )


def _input_size(asked: int | None, session: _Session, facts: _Facts, path: Path) -> int:
    if session.side is not None and asked not in (None, session.side):
        raise ReprogramError(f"input_size = {asked} was given, but {str(path)!r} takes only {session.side}; leave it out")
    return session.side or asked or facts.input_size() or 224


def _ending(graph: Any, output: str) -> Outputs:
    """A network whose last step is a Softmax answers with probabilities."""
    makers = {name: node.op_type for node in graph.node for name in node.output}
    return "probabilities" if makers.get(output) == "Softmax" else "logits"
