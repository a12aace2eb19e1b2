"""Whole ONNX graphs, node by node: from uint8 images to probabilities, around a network that was exported before."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from reprogram.errors import ReprogramError, first_line
from reprogram.export.networks import CANVAS, IR, OPSET, import_onnx
from reprogram.export.networks import FEATURES as FOUND
from reprogram.export.settings import BIAS, FEATURES, IMAGES, LOGITS, METADATA, PATTERN, PROBABILITIES, WEIGHT
from reprogram.export.trunk import Head
from reprogram.mappings.top_k import TopKGaussianMapping
from reprogram.programs.base import NoProgram, Program
from reprogram.programs.padding import Padding
from reprogram.programs.watermark import Watermark
from reprogram.text import json_text

Array = np.ndarray[Any, Any]


def is_pattern(program: Program) -> bool:
    """Whether a program is a pattern on the normalised canvas around or on the image, so that θ can be exchanged."""
    return type(program) in (NoProgram, Padding, Watermark)


@torch.no_grad()
def pattern_of(program: Program) -> Tensor | None:
    """What a program adds to (image on a black canvas − mean) / std, (3, canvas, canvas); None for no program."""
    if type(program) is Padding:
        return (program.border().double() / program.std.double()).float().cpu()
    return program.pattern().cpu() if type(program) is Watermark else None


class Graph:
    """Nodes and constants that become a graph around a network."""

    def __init__(self, network: Any) -> None:
        self.onnx = import_onnx()
        self.network = network
        self.nodes: list[Any] = []
        self.constants: list[Any] = []
        self._count = 0

    def constant(self, name: str, values: Any, dtype: Any = np.float32) -> str:
        """A constant, by its name."""
        array = values.detach().cpu().numpy() if isinstance(values, Tensor) else np.asarray(values)
        self.constants.append(self.onnx.numpy_helper.from_array(np.ascontiguousarray(array.astype(dtype)), name))
        return name

    def add(self, operator: str, inputs: Sequence[str], output: str | None = None, **attributes: Any) -> str:
        """A node; gives the name of its output."""
        self._count += 1
        output = output or f"{operator.lower()}_{self._count}"
        self.nodes.append(
            self.onnx.helper.make_node(operator, list(inputs), [output], name=f"step_{self._count}", **attributes)
        )
        return output

    def pixels(self) -> str:
        """`images` (n, S, S, 3) uint8 as (n, 3, S, S) in [0, 1]."""
        levels = self.add("Cast", [IMAGES], to=self.onnx.TensorProto.FLOAT)
        shares = self.add("Div", [levels, self.constant("white", 255.0)])
        return self.add("Transpose", [shares], perm=[0, 3, 1, 2])

    def normalised(self, pixels: str, program: Program, output: str) -> None:
        """(pixels − mean) / std."""
        centred = self.add("Sub", [pixels, self.constant("mean", program.mean)])
        self.add("Div", [centred, self.constant("std", program.std)], output)

    def run_network(self) -> None:
        """The network's own nodes and weights."""
        self.nodes += list(self.network.graph.node)
        self.constants += list(self.network.graph.initializer)

    def top_k_values(self, logits: str, mapping: TopKGaussianMapping) -> str:
        """What gaussian+ makes of source logits (n, k_S): a function of log p for the best labels, 0 for the others."""
        k_source = mapping.k_source
        count = min(mapping.settings.top_k or k_source, k_source)
        logs = self.add("LogSoftmax", [logits], axis=1)
        number = self.constant("top_k", [count], np.int64)
        self.nodes.append(self.onnx.helper.make_node("TopK", [logits, number], ["top_values", "top_labels"], axis=1))
        best = self.add("GatherElements", [logs, "top_labels"], axis=1)
        weighting = mapping.settings.weighting
        if weighting == "sqrt":
            values = self.add("Exp", [self.add("Div", [best, self.constant("two", 2.0)])])
        elif weighting == "log":
            part = self.add("Div", [best, self.constant("log_floor", math.log(1e-3))])
            values = self.add("Relu", [self.add("Sub", [self.constant("one", 1.0), part])])
        else:
            ranks = np.arange(1, count + 1) if weighting == "rank" else np.ones(count)
            nothing = self.add("Mul", [best, self.constant("nothing", 0.0)])
            values = self.add("Add", [nothing, self.constant("by_rank", 1 / np.sqrt(ranks))])
        blank = self.add("Mul", [logs, self.constant("blank", 0.0)])
        return self.add("ScatterElements", [blank, "top_labels", values], axis=1)

    def answer(self, features: str, *, named: bool) -> None:
        """Target logits, features · weight + bias, and their softmax."""
        self.add("Add", [self.add("MatMul", [features, WEIGHT]), BIAS], LOGITS)
        self.add("Softmax", [LOGITS], PROBABILITIES, axis=1)
        if named:
            self.add("Identity", [features], FEATURES)

    def proto(
        self, inputs: Sequence[tuple[str, str, Sequence[Any]]], outputs: Sequence[tuple[str, Sequence[Any]]], facts: Any
    ) -> Any:
        """The finished model, with what is known of it in its metadata."""
        onnx, make = self.onnx, self.onnx.helper.make_tensor_value_info
        types = {"uint8": onnx.TensorProto.UINT8, "float32": onnx.TensorProto.FLOAT}
        graph = onnx.helper.make_graph(
            self.nodes,
            METADATA,
            [make(name, types[dtype], list(shape)) for name, dtype, shape in inputs],
            [make(name, types["float32"], list(shape)) for name, shape in outputs],
            self.constants,
        )
        opsets = {one.domain: one.version for one in self.network.opset_import}
        opsets[""] = max(opsets.pop("ai.onnx", OPSET), opsets.get("", OPSET))
        model = onnx.helper.make_model(
            graph,
            opset_imports=[onnx.helper.make_opsetid(domain, version) for domain, version in sorted(opsets.items())],
            ir_version=max(IR, self.network.ir_version),
            producer_name="reprogram",
            functions=list(self.network.functions),
        )
        onnx.helper.set_model_props(model, {key: _text(value) for key, value in facts.items()})
        try:
            onnx.checker.check_model(model)
        except Exception as error:
            raise ReprogramError(
                f"the model makes no valid ONNX graph ({first_line(error)}); choose another model"
            ) from None
        return model


def whole_graph(
    network: Any, program: Program, head: Head, facts: Mapping[str, Any], mapping: TopKGaussianMapping | None = None
) -> Any:
    """One file from uint8 images to probabilities.

    Args:
        network: the frozen part; it takes pixels in [0, 1] where the program is within it.
        program: what is folded into constants.
        head: the last layer.
        facts: the metadata.
        mapping: gaussian+, which stands between source logits and the last layer; None for all that is affine.
    """
    graph, size = Graph(network), program.image_size
    pixels = graph.pixels()
    if not is_pattern(program):
        graph.add("Identity", [pixels], CANVAS)
    else:
        if isinstance(program, Padding):
            ahead, behind = program.before, program.after
            widths = graph.constant("border", [0, 0, ahead, ahead, 0, 0, behind, behind], np.int64)
            pixels = graph.add("Pad", [pixels, widths, graph.constant("black", 0.0)])
        pattern = pattern_of(program)
        graph.normalised(pixels, program, CANVAS if pattern is None else "normalised")
        if pattern is not None:
            graph.add("Add", ["normalised", graph.constant(PATTERN, pattern[None])], CANVAS)
    graph.run_network()
    features = FOUND if mapping is None else graph.top_k_values(FOUND, mapping)
    graph.constant(WEIGHT, head.weight)
    graph.constant(BIAS, head.bias)
    graph.answer(features, named=False)
    k_target = len(head.bias)
    return graph.proto(
        [(IMAGES, "uint8", ("n", size, size, 3))], [(PROBABILITIES, ("n", k_target)), (LOGITS, ("n", k_target))], facts
    )


def backbone_graph(network: Any, program: Program, width: int, facts: Mapping[str, Any]) -> Any:
    """Everything but what belongs to a task: θ (as `pattern`), ω with the last layer (`weight`), and `bias` are inputs.

    Images of any size up to the canvas are put into its middle as `Padding` puts them there, so that padding, watermark and
    no program share the file.
    """
    graph, canvas = Graph(network), program.canvas
    pixels = graph.pixels()
    side = graph.add("Shape", [pixels], start=2, end=3)
    room = graph.add("Sub", [graph.constant("side", [canvas], np.int64), side])
    behind = graph.add("Div", [room, graph.constant("two_sides", [2], np.int64)])
    ahead = graph.add("Sub", [room, behind])
    none = graph.constant("no_side", [0, 0], np.int64)
    widths = graph.add("Concat", [none, ahead, ahead, none, behind, behind], axis=0)
    graph.normalised(graph.add("Pad", [pixels, widths, graph.constant("black", 0.0)]), program, "normalised")
    # all that a task brings has a default, because onnxruntime wants what an adapter brings to be no input that is required
    graph.constant(PATTERN, np.zeros((3, 1, 1)))
    graph.constant(WEIGHT, np.zeros((width, 1)))
    graph.constant(BIAS, np.zeros(1))
    square = graph.constant("canvas", [-1, 3, canvas, canvas], np.int64)
    graph.add("Reshape", [graph.add("Add", ["normalised", PATTERN]), square], CANVAS)
    graph.run_network()
    graph.answer(FOUND, named=True)
    inputs = [
        (IMAGES, "uint8", ("n", "size", "size", 3)),
        (WEIGHT, "float32", (width, "classes")),
        (BIAS, "float32", ("classes",)),
        (PATTERN, "float32", (3, "height", "width")),
    ]
    outputs = [(PROBABILITIES, ("n", "classes")), (LOGITS, ("n", "classes")), (FEATURES, ("n", width))]
    return graph.proto(inputs, outputs, facts)


def serialized(model: Any) -> bytes:
    """The bytes of a model, the same each time."""
    content: bytes = model.SerializeToString(deterministic=True)
    return content


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json_text(value, ascii_only=True)
