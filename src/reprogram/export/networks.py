"""The frozen part of a model as an ONNX graph: written by torch's exporter, or read from the model's own ONNX file."""

import contextlib
import hashlib
import io
import logging
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from torch import nn

from reprogram.errors import ReprogramError, extra_missing, first_line
from reprogram.export.trunk import Trunk
from reprogram.sources.black_box import BlackBox
from reprogram.sources.frozen import Frozen

OPSET, IR = 18, 10
#: Names of a network's one input and one output.
CANVAS, FEATURES = "model/canvas", "model/features"
_LARGEST = 2**31 - 2**20  # bytes: an ONNX file is one message of less than 2 GiB, and ours adds to it
_PREFIX = "model/"


def import_onnx() -> Any:
    """The package onnx with what we need of it, or the sentence that says how to install it."""
    try:
        import onnx
        import onnx.checker
        import onnx.compose
        import onnx.helper
        import onnx.numpy_helper
        import onnx.version_converter
        import onnxscript  # noqa: F401  # torch's exporter needs it
    except ModuleNotFoundError as error:
        raise extra_missing(str(error.name), "onnx", "an ONNX file") from None
    return onnx


def network(frozen: Frozen, trunk: Trunk, side: int) -> Any:
    """The trunk of a model as an ONNX `ModelProto` from `CANVAS` (n, 3, side, side) to `FEATURES` (n, d)."""
    if trunk.module is None:
        return _from_file(frozen, side)
    size = sum(tensor.nbytes for tensor in (*trunk.module.parameters(), *trunk.module.buffers()))
    if size > _LARGEST:
        raise ReprogramError(
            f"{frozen.name} has weights of {size / 2**30:.1f} GiB, but an ONNX file holds less than 2; choose --format torch"
        )
    return traced(trunk.module, frozen.name, side)


def traced(module: nn.Module, name: str, side: int) -> Any:
    """A module (N, 3, side, side) → (N, d) by torch's exporter, without what it tells about the machine it ran on."""
    onnx = import_onnx()
    device = next(module.parameters(), torch.zeros(())).device
    example = torch.zeros(2, 3, side, side, device=device)
    batch = torch.export.Dim("n", min=1, max=2**20)
    try:
        with quiet(), torch.no_grad():
            program = torch.onnx.export(
                module,
                (example,),
                dynamo=True,
                verbose=False,
                opset_version=OPSET,
                dynamic_shapes=({0: batch},),
                input_names=["canvas"],
                output_names=["features"],
            )
            assert program is not None
            proto = program.model_proto
    except Exception as error:  # the exporter raises whatever a network leads it into
        reason = first_line(error.__cause__ or error)
        raise ReprogramError(
            f"{name} cannot be written as ONNX by torch's exporter ({reason}); choose another model, or serve it with torch"
        ) from None
    _anonymise(proto)
    return onnx.compose.add_prefix(proto, _PREFIX)


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Exporters print, warn and log about what is no business of a user."""
    level = logging.root.manager.disable
    with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        warnings.simplefilter("ignore")
        logging.disable(logging.CRITICAL)
        try:
            yield
        finally:
            logging.disable(level)


def _anonymise(proto: Any) -> None:
    """Take out names of files, stack traces and remarks: the same model gives the same bytes on any machine."""
    del proto.graph.value_info[:]
    proto.doc_string = proto.graph.doc_string = ""
    del proto.metadata_props[:], proto.graph.metadata_props[:]
    for node in proto.graph.node:
        node.doc_string = ""
        del node.metadata_props[:]
    for part in (*proto.graph.initializer, *proto.graph.input, *proto.graph.output):
        part.doc_string = ""
        del part.metadata_props[:]


def _from_file(frozen: Frozen, side: int) -> Any:
    """The graph of a model that is an ONNX file, with our names at its ends; probabilities become their logarithms."""
    onnx = import_onnx()
    source, _, name = frozen.name.partition(":")
    if not isinstance(frozen, BlackBox) or source != "onnx":
        raise ReprogramError(
            f"{frozen.name} is a callable and no network, so there is nothing to export; export its mapping with save()"
        )
    path = Path(name)
    try:
        proto = onnx.load(str(path))
        digest = hashlib.sha256(path.read_bytes())
        if any(tensor.HasField("data_location") and tensor.data_location for tensor in proto.graph.initializer):
            raise ValueError("weights of it lie in other files")
    except Exception as error:
        raise ReprogramError(f"{str(path)!r} cannot be merged into an export ({first_line(error)})") from None
    if digest.hexdigest() != frozen.fingerprint:
        raise ReprogramError(
            f"{str(path)!r} is not the file that the run was made with, or its weights lie in other files; give the file "
            "with --weights, as one"
        )
    try:
        if next((one.version for one in proto.opset_import if one.domain in ("", "ai.onnx")), OPSET) < OPSET:
            proto = onnx.version_converter.convert_version(proto, OPSET)
    except Exception as error:
        raise ReprogramError(
            f"{str(path)!r} cannot be brought to ONNX operator set {OPSET} ({first_line(error)}); export it anew with that"
        ) from None
    return _with_our_ends(onnx, proto, frozen, side)


def _with_our_ends(onnx: Any, proto: Any, frozen: BlackBox, side: int) -> Any:
    """Nodes before and behind a foreign network: its precision, layout and kind of answer."""
    session: Any = frozen.module.call
    batch, last, given, found = (getattr(session, key) for key in ("batch", "channels_last", "input", "output"))
    if batch is not None:
        raise ReprogramError(
            f"{frozen.name} takes exactly {batch} images at a time, but an export takes any number; export it with a "
            "dynamic batch"
        )
    if session.side not in (None, side):
        raise ReprogramError(f"{frozen.name} takes images of side {session.side} and not {side}")
    types = onnx.TensorProto
    dtype = {"float32": types.FLOAT, "float16": types.FLOAT16, "float64": types.DOUBLE}[session.dtype.__name__]
    proto = onnx.compose.add_prefix(proto, f"{_PREFIX}own/")
    given, found = f"{_PREFIX}own/{given}", f"{_PREFIX}own/{found}"
    graph, make = proto.graph, onnx.helper.make_node
    before = [
        make("Transpose", [CANVAS], [f"{CANVAS}/placed"], perm=[0, 2, 3, 1] if last else [0, 1, 2, 3]),
        make("Cast", [f"{CANVAS}/placed"], [given], to=dtype),
    ]
    behind = [make("Cast", [found], [f"{FEATURES}/float"], to=types.FLOAT)]
    if frozen.log_probabilities:  # as `BlackBox` has it: a place below all others for what is 0
        constants = {"zero": 0.0, "one": 1.0, "infinity": float("inf"), "absent": 1e-12}
        for key, value in constants.items():
            graph.initializer.append(onnx.helper.make_tensor(f"{FEATURES}/{key}", types.FLOAT, [], [value]))
        graph.initializer.append(onnx.helper.make_tensor(f"{FEATURES}/axis", types.INT64, [1], [1]))
        steps: tuple[tuple[str, list[str], str, dict[str, int]], ...] = (
            ("Min", ["float", "one"], "share", {}),
            ("Greater", ["share", "zero"], "given", {}),
            ("Where", ["given", "share", "infinity"], "present", {}),
            ("ReduceMin", ["present", "axis"], "smallest", {"keepdims": 1}),
            ("Min", ["smallest", "absent"], "floor", {}),
            ("Where", ["given", "share", "floor"], "positive", {}),
        )
        for operator, inputs, output, attributes in steps:
            names = [f"{FEATURES}/{one}" for one in inputs]
            behind.append(make(operator, names, [f"{FEATURES}/{output}"], **attributes))
        behind.append(make("Log", [f"{FEATURES}/positive"], [FEATURES]))
    else:
        behind.append(make("Identity", [f"{FEATURES}/float"], [FEATURES]))
    nodes = [*before, *graph.node, *behind]
    del graph.node[:], graph.input[:], graph.output[:], graph.value_info[:], proto.metadata_props[:]
    graph.node.extend(nodes)
    graph.input.append(onnx.helper.make_tensor_value_info(CANVAS, types.FLOAT, ["n", 3, side, side]))
    graph.output.append(onnx.helper.make_tensor_value_info(FEATURES, types.FLOAT, ["n", frozen.k_source]))
    return proto
