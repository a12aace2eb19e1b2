"""A frozen module as a flat graph of operators with constant weights, for one size of canvas.

The graph comes from `torch.export`: unlike symbolic tracing it follows Python control flow over shapes (the "same" padding
of many zoos), it flattens every zoo's own layer classes to the same few operators, and it fails loudly.
"""

import operator
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.fx import Graph, Node

aten = torch.ops.aten
_VIEWS = {
    aten.alias.default,
    aten.chunk.default,
    aten.detach.default,
    aten.expand.default,
    aten.flatten.using_ints,
    aten.permute.default,
    aten.reshape.default,
    aten.select.int,
    aten.slice.Tensor,
    aten.split.Tensor,
    aten.squeeze.dim,
    aten.transpose.int,
    aten.unbind.int,
    aten.unsqueeze.default,
    aten.view.default,
    operator.getitem,
}
_CREATORS = {getattr(aten, name).default for name in ("ones", "zeros", "full", "arange", "scalar_tensor", "linspace")}
IDENTITIES = {aten.dropout.default, aten.dropout_.default, aten.feature_dropout.default, aten.alias.default}


class ExportError(Exception):
    """The module cannot be brought into a graph; the text says why. Callers then run it as it is."""


@dataclass
class Network:
    """The operators of a module in evaluation mode, for batches of any size of one canvas.

    Attributes:
        graph: the operators; every node of it carries the shape of its value in `meta["val"]`.
        weights: the value of each constant node.
        image: the node of the input, (N, 3, S, S).
        output: the node of the logits, (N, k_S).
    """

    graph: Graph
    weights: dict[Node, Tensor]
    image: Node
    output: Node

    @property
    def operators(self) -> list[Node]:
        """The nodes that compute something, in order."""
        return [node for node in self.graph.nodes if node.op == "call_function" and node not in self.weights]

    def copy(self) -> "Network":
        """The same network in a graph of its own, which may be changed; the weights are shared."""
        graph = Graph()
        made: dict[Node, Node] = {}
        graph.output(graph.graph_copy(self.graph, made))
        weights = {made[node]: weight for node, weight in self.weights.items()}
        return Network(graph, weights, made[self.image], made[self.output])

    def drop_unused(self) -> None:
        """Remove operators and weights that nothing reads any more."""
        for node in reversed(list(self.graph.nodes)):
            if node is not self.image and node is not self.output and node.op != "output" and not node.users:
                self.weights.pop(node, None)
                self.graph.erase_node(node)


def export_network(module: nn.Module, canvas: int) -> Network:
    """Read the graph of a module that maps (N, 3, canvas, canvas) to logits; neither it nor its weights are changed.

    Raises:
        ExportError: `torch.export` cannot follow the module, the module fixes the batch size, or it writes into a tensor
            in a way that a graph of values does not show.
    """
    weight = next(module.parameters(), torch.empty(0))
    blank = torch.zeros(2, 3, canvas, canvas, device=weight.device, dtype=weight.dtype)
    try:
        with warnings.catch_warnings(), torch.no_grad():
            warnings.simplefilter("ignore")
            batch = torch.export.Dim("batch", min=1, max=1 << 20)
            program = torch.export.export(module, (blank,), dynamic_shapes=({0: batch},))
    except Exception as error:  # whatever an exotic module raises inside the exporter, it can still be run as it is
        raise ExportError(f"torch.export: {type(error).__name__}") from error
    if not _in_place_is_harmless(program.graph):
        raise ExportError("it writes into a tensor that it reads again")
    return _read(program)


def _read(program: torch.export.ExportedProgram) -> Network:
    graph, signature = program.graph, program.graph_signature
    names = {**signature.inputs_to_parameters, **signature.inputs_to_buffers, **signature.inputs_to_lifted_tensor_constants}
    values = {**program.constants, **program.state_dict}
    weights: dict[Node, Tensor] = {}
    images = []
    for node in graph.nodes:
        if node.op == "placeholder" and node.name in names:
            weights[node] = values[names[node.name]].detach()
        elif node.op == "placeholder":
            images.append(node)
        elif node.op not in ("call_function", "output"):
            raise ExportError(f"a node of kind {node.op}")
    ends = next(node for node in graph.nodes if node.op == "output").args[0]
    if len(images) != 1 or not isinstance(ends, Sequence) or len(ends) != 1 or signature.buffers_to_mutate:
        raise ExportError("more than one input or output, or state that changes")
    network = Network(graph, weights, images[0], ends[0])
    for node in network.operators:
        _simplify(network, node)
    network.drop_unused()
    return network


def _simplify(network: Network, node: Node) -> None:
    """Compute what depends on weights alone; skip what does nothing in evaluation mode."""
    if node.target in IDENTITIES and isinstance(node.args[0], Node):
        if node is network.output:
            network.output = node.args[0]
        node.replace_all_uses_with(node.args[0])
    elif (node.all_input_nodes or node.target in _CREATORS) and all(
        source in network.weights for source in node.all_input_nodes
    ):
        args, kwargs = torch.fx.node.map_arg((node.args, node.kwargs), lambda source: network.weights[source])
        with torch.no_grad():
            value = node.target(*args, **kwargs)  # type: ignore[operator]
        if isinstance(value, Tensor):
            network.weights[node] = value


def _in_place_is_harmless(graph: Graph) -> bool:
    """Whether every operator that writes into its input may be read as one that makes a new tensor."""
    for node in graph.nodes:
        if node.op == "call_function" and node.target not in IDENTITIES and _writes_input(node):
            written = node.args[0]
            if not isinstance(written, Node) or written.op != "call_function":
                return False
            if len(written.users) > 1 or written.target in _VIEWS:
                return False
    return True


def _writes_input(node: Node) -> bool:
    """Whether an operator writes into its first argument, such as `relu_`."""
    return isinstance(node.target, torch._ops.OpOverload) and node.target._schema.is_mutable


def arguments(node: Node) -> dict[str, Any]:
    """All arguments of an operator by name, with the defaults of those that the graph leaves out."""
    assert isinstance(node.target, torch._ops.OpOverload)
    expected = node.target._schema.arguments
    given = dict(zip((argument.name for argument in expected), node.args, strict=False))
    return {argument.name: argument.default_value for argument in expected} | given | node.kwargs


def shape(node: Node) -> tuple[int, ...]:
    """The shape of one sample's value, (C, H, W) or the like; empty for anything but a tensor with a batch."""
    value = node.meta.get("val")
    if not isinstance(value, Tensor) or value.ndim == 0 or not all(isinstance(size, int) for size in value.shape[1:]):
        return ()
    return tuple(value.shape[1:])
