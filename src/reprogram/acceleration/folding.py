"""Batch norm folded into the convolution before it: the same function with fewer passes over memory."""

import torch
from torch import Tensor

from reprogram.acceleration.network import Network, arguments, aten

CONVOLUTIONS = {aten.conv2d.default, aten.conv2d.padding}


def fold_batch_norm(network: Network) -> int:
    """Fold every batch norm that directly follows a convolution, in place of the graph; weights become new tensors.

    γ·(w∗x + b − μ)/√(σ² + ε) + β = (s·w)∗x + (b − μ)·s + β with s = γ/√(σ² + ε), computed in float64.

    Returns:
        How many were folded.
    """
    folded = 0
    for node in network.operators:
        if node.target is not aten.batch_norm.default:
            continue
        norm = arguments(node)
        source = norm["input"]
        if source.target not in CONVOLUTIONS or len(source.users) > 1 or norm["training"]:
            continue
        conv = arguments(source)
        known = [conv["weight"], conv["bias"], *(norm[name] for name in ("weight", "bias", "running_mean", "running_var"))]
        if any(part is not None and part not in network.weights for part in known) or norm["running_var"] is None:
            continue
        weight, bias, gamma, beta, mean, variance = (None if part is None else network.weights[part] for part in known)
        assert weight is not None
        assert mean is not None
        assert variance is not None
        scale = (variance.double() + norm["eps"]).rsqrt() * _or(gamma, 1.0)
        shifted = (_or(bias, 0.0) - mean.double()) * scale + _or(beta, 0.0)
        with network.graph.inserting_before(source):
            new_weight, new_bias = (network.graph.create_node("get_attr", f"folded_{folded}_{part}") for part in "wb")
        network.weights[new_weight] = (weight.double() * scale.view(-1, 1, 1, 1)).to(weight.dtype)
        network.weights[new_bias] = shifted.to(weight.dtype)
        rest = [conv[name] for name in ("stride", "padding", "dilation", "groups")]
        source.args, source.kwargs = (conv["input"], new_weight, new_bias, *rest), {}
        node.replace_all_uses_with(source)
        folded += 1
    network.drop_unused()
    return folded


def lay_out_channels_last(network: Network) -> None:
    """Store the weights of convolutions channels-last; values stay, and weights that already lie so are shared."""
    for node, weight in network.weights.items():
        if weight.ndim == 4 and any(user.target in CONVOLUTIONS for user in node.users):
            network.weights[node] = weight.contiguous(memory_format=torch.channels_last)


def _or(value: Tensor | None, default: float) -> Tensor | float:
    return default if value is None else value.double()
