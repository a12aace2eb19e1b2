"""What each operator does to an activation of which only a window differs between samples.

A rule looks at an operator whose inputs are such activations and answers with a `Framing`: the operator is then computed
once on the shared map, and per sample on the patch with the surroundings that it reads. An operator without a rule, or
whose rule answers None, gets whole maps. So an operator that nobody thought of costs speed and never a wrong number.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor
from torch.fx import Node

from reprogram.acceleration.network import arguments, aten, shape
from reprogram.acceleration.windows import Box, Sliding, Span, Window


@dataclass(frozen=True)
class Framing:
    """How an operator is computed on a window.

    Attributes:
        window: of its output.
        region: the places of its inputs that the patch of the output is computed from.
        target: the operator for the patch; None hands the patch on as it is.
        changed: arguments that differ for the patch, such as no padding, as the region brings it along.
        fill: what the operator sees outside the map.
    """

    window: Window
    region: Box
    target: Callable[..., Any] | None
    changed: dict[str, Any] = field(default_factory=dict)
    fill: float = 0.0


Windows = dict[Node, Window]
Rule = Callable[[Node, Windows, dict[Node, Tensor]], Framing | None]


def pair(value: Any) -> tuple[int, int]:
    """The number for rows and the one for columns, from an argument that may give one for both."""
    numbers = [value] if isinstance(value, int) else list(value)
    return (numbers[0], numbers[-1])


def _slide(node: Node, window: Window, axes: tuple[Sliding, Sliding]) -> tuple[Window, Box]:
    height, width = shape(node)[-2:]
    box = Box(axes[0].touched(window.box.rows, height), axes[1].touched(window.box.cols, width))
    region = Box(axes[0].needed(box.rows), axes[1].needed(box.cols))
    return Window(box, Box(Span(0, height), Span(0, width))), region


def _convolution(node: Node, windows: Windows, weights: dict[Node, Tensor]) -> Framing | None:
    given = arguments(node)
    source, weight = given["input"], given["weight"]
    if source not in windows or weight not in weights or windows[source].axis != 2 or len(shape(node)) != 3:
        return None
    kernel, dilation, stride = weights[weight].shape[2:], pair(given["dilation"]), pair(given["stride"])
    if given["padding"] == "same":
        before = tuple(d * (k - 1) // 2 for k, d in zip(kernel, dilation, strict=True))
    else:
        before = (0, 0) if given["padding"] == "valid" else pair(given["padding"])
    rows, cols = (Sliding(kernel[i], stride[i], before[i], dilation[i]) for i in (0, 1))
    return Framing(*_slide(node, windows[source], (rows, cols)), aten.conv2d.default, {"padding": [0, 0]})


def _pooling(fill: float) -> Rule:
    def rule(node: Node, windows: Windows, _: dict[Node, Tensor]) -> Framing | None:
        given = arguments(node)
        source = given["self"]
        if windows[source].axis != 2 or len(shape(node)) != 3:
            return None
        kernel, before, dilation = pair(given["kernel_size"]), pair(given["padding"]), pair(given.get("dilation", 1))
        stride = pair(given["stride"]) if given["stride"] else kernel
        rows, cols = (Sliding(kernel[i], stride[i], before[i], dilation[i]) for i in (0, 1))
        window, region = _slide(node, windows[source], (rows, cols))
        changed: dict[str, Any] = {"padding": [0, 0], "ceil_mode": False}
        # What an average divides by at the border depends on several options; inside the map it is just the kernel.
        if fill == 0 and not region.within(windows[source].whole):
            return None
        return Framing(window, region, node.target, changed, fill)  # type: ignore[arg-type]

    return rule


def _pointwise(node: Node, windows: Windows, weights: dict[Node, Tensor]) -> Framing | None:
    """The same for every place: activations, batch norm, arithmetic with a number or a per-channel weight."""
    (source,) = {source for source in node.all_input_nodes if source in windows} or (None,)
    if (
        source is None
        or node.args[0] is not source
        or any(s is not source and s not in weights for s in node.all_input_nodes)
    ):
        return None
    return Framing(windows[source], windows[source].box, functional(node))


def _arithmetic(node: Node, windows: Windows, weights: dict[Node, Tensor]) -> Framing | None:
    """Statistics and products of activations and weights: the samples differ where they differ in any of the inputs."""
    framed = [windows[source] for source in node.all_input_nodes if source in windows]
    axis, whole = framed[0].axis, framed[0].whole
    if any(window.axis != axis or window.whole != whole for window in framed):
        return None
    for source in node.all_input_nodes:
        if source in windows:
            continue
        if source not in weights:  # differs between samples everywhere
            return None
        size = (1,) * 4 + tuple(weights[source].shape)
        if size[-4] != 1 or size[-4 + axis] != 1 or size[-3 + axis] != 1:
            return None
    box = framed[0].box
    for window in framed[1:]:
        box = box | window.box
    return Framing(Window(box, whole, axis), box, functional(node))


def _concatenation(node: Node, windows: Windows, weights: dict[Node, Tensor]) -> Framing | None:
    sources, dim = node.args[0], arguments(node)["dim"] % 4
    if any(source not in windows for source in node.all_input_nodes):
        return None
    axis = windows[node.all_input_nodes[0]].axis
    if dim == 0 or dim in (axis, axis + 1) or not isinstance(sources, (list, tuple)):
        return None
    return _arithmetic(node, windows, weights)


def _permutation(node: Node, windows: Windows, _: dict[Node, Tensor]) -> Framing | None:
    given = arguments(node)
    window = windows[given["self"]]
    order = [dim % 4 for dim in given["dims"]]
    if len(order) != 4 or order[0] != 0:
        return None
    axis = order.index(window.axis)
    if axis == 3 or order[axis + 1] != window.axis + 1:
        return None
    return Framing(Window(window.box, window.whole, axis), window.box, functional(node))


def _over_channels(node: Node, windows: Windows, weights: dict[Node, Tensor]) -> Framing | None:
    """Operators over the last dimension, which are the same for every place if that holds the channels."""
    given = arguments(node)
    if windows.get(given["input"], None) is None or windows[given["input"]].axis != 1:
        return None
    if len(given.get("normalized_shape", [0])) != 1:
        return None
    return _pointwise(node, windows, weights)


def _padding(node: Node, windows: Windows, _: dict[Node, Tensor]) -> Framing | None:
    given = arguments(node)
    window, widths = windows[given["self"]], list(given["pad"])
    if len(widths) != 4 or min(widths) < 0 or window.axis != 2 or given.get("mode", "constant") != "constant":
        return None
    left, _, top, _ = widths
    height, width = shape(node)[-2:]
    box = Box(window.box.rows.shifted(top), window.box.cols.shifted(left))
    return Framing(Window(box, Box(Span(0, height), Span(0, width))), window.box, None)


def global_mean(node: Node, windows: Windows) -> tuple[Node, bool] | None:
    """If the operator is the mean over all places: its input, and whether it keeps the two dimensions."""
    given = arguments(node)
    source = given["self"]
    if source not in windows:
        return None
    if node.target is aten.adaptive_avg_pool2d.default:
        return (source, True) if windows[source].axis == 2 and tuple(given["output_size"]) == (1, 1) else None
    axis = windows[source].axis
    places = sorted(dim % 4 for dim in given["dim"] or ()) == [axis, axis + 1]
    return (source, bool(given["keepdim"])) if places and given["dtype"] is None else None


PADDINGS = {aten.pad.default, aten.constant_pad_nd.default}
GLOBAL_MEANS = {aten.adaptive_avg_pool2d.default, aten.mean.dim}
_ACTIVATIONS = (
    "clamp",
    "clamp_min",
    "elu",
    "gelu",
    "hardsigmoid",
    "hardswish",
    "hardtanh",
    "leaky_relu",
    "mish",
    "relu",
    "relu6",
    "sigmoid",
    "silu",
    "tanh",
)
_FUNCTIONAL = {getattr(aten, f"{name}_").default: getattr(aten, name).default for name in _ACTIVATIONS if name != "gelu"} | {
    getattr(aten, f"{name}_").Tensor: getattr(aten, name).Tensor for name in ("add", "sub", "mul", "div")
}


def functional(node: Node) -> Callable[..., Any]:
    """The operator in the form that makes a new tensor."""
    return _FUNCTIONAL.get(node.target, node.target)  # type: ignore[no-any-return]


RULES: dict[Any, Rule] = (
    {getattr(aten, name).default: _pointwise for name in (*_ACTIVATIONS, "batch_norm", "clone", "contiguous")}
    | dict.fromkeys(_FUNCTIONAL, _pointwise)
    | {getattr(aten, name).Tensor: _arithmetic for name in ("add", "sub", "mul", "div")}
    | {getattr(aten, f"{name}_").Tensor: _arithmetic for name in ("add", "sub", "mul", "div")}
    | {
        aten.conv2d.default: _convolution,
        aten.conv2d.padding: _convolution,
        aten.max_pool2d.default: _pooling(float("-inf")),
        aten.avg_pool2d.default: _pooling(0.0),
        aten.cat.default: _concatenation,
        aten.permute.default: _permutation,
        aten.linear.default: _over_channels,
        aten.layer_norm.default: _over_channels,
    }
    | dict.fromkeys(PADDINGS, _padding)
)
