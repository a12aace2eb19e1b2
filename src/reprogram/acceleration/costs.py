"""What an operator costs, in floating point operations that the processor could have done in the same time.

A static model: it only has to tell where a patch stops to pay, and must say the same on every run. A byte that goes through
memory is charged as `_PER_BYTE` operations, about the ratio of both speeds on processors of today.
"""

import math

from torch import Tensor
from torch.fx import Node

from reprogram.acceleration.folding import CONVOLUTIONS
from reprogram.acceleration.network import arguments, aten, shape
from reprogram.acceleration.windows import Box, Window

_PER_BYTE = 8.0
_BYTES = 4


def dense_cost(node: Node, weights: dict[Node, Tensor]) -> float:
    """One sample's cost of an operator on whole maps."""
    moved = math.prod(shape(node)) + sum(
        math.prod(shape(source)) for source in node.all_input_nodes if source not in weights
    )
    return operations(node, weights) + _PER_BYTE * _BYTES * moved


def operations(node: Node, weights: dict[Node, Tensor]) -> float:
    """The multiplications and additions of one sample, of the operators that are made of them."""
    if node.target in CONVOLUTIONS or node.target is aten.linear.default:
        weight = arguments(node)["weight"]
        if weight in weights:
            return 2.0 * math.prod(shape(node)) * math.prod(weights[weight].shape[1:])
    return 0.0


def surround_cost(node: Node, window: Window, region: Box) -> float:
    """One sample's cost of putting the patch of an activation into its surroundings."""
    per_place = math.prod(shape(node)) / window.whole.area
    return _PER_BYTE * _BYTES * per_place * (region.area + window.box.area)
