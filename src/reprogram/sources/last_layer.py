"""A frozen model without its last layer: what it makes of an image before it names labels."""

import copy
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from reprogram.sources.frozen import Frozen
from reprogram.sources.vision_language import VisionLanguage


class ImageEmbedding(nn.Module):
    """A CLIP's image embeddings (N, d), of length 1, in float32.

    Args:
        tower: the image tower.
        dtype: of its weights.
    """

    def __init__(self, tower: nn.Module, dtype: torch.dtype) -> None:
        super().__init__()
        self.tower, self.dtype = tower, dtype

    def forward(self, canvas: Tensor) -> Tensor:
        """Map normalised canvases (N, 3, S, S) to embeddings (N, d)."""
        found = self.tower(canvas.to(self.dtype))
        return F.normalize((found[0] if isinstance(found, tuple) else found).float(), dim=1)


@dataclass(frozen=True)
class Penultimate:
    """What is left of a model without its last layer.

    Attributes:
        module: normalised canvases (N, 3, S, S) to features (N, d).
        layer: the name of the layer that was taken away; `head` where the model has none of its own, as a CLIP.
        width: d.
    """

    module: nn.Module
    layer: str
    width: int


def penultimate(frozen: Frozen, canvas: int, *, shared: bool = True) -> Penultimate | None:
    """Take the last linear layer off a model, which itself stays as it is; a CLIP gives its image embeddings.

    Args:
        frozen: the model.
        canvas: the side of the squares that it will be given.
        shared: whether the result uses the weights of the model; else it has copies of them.

    Returns:
        None where the model has no features to give: one that only answers, or that ends in something else.
    """
    if not frozen.differentiable:
        return None
    if isinstance(frozen, VisionLanguage):
        dtype = next(frozen.module.parameters(), frozen.mean).dtype
        tower = frozen.module.image_tower
        return Penultimate(ImageEmbedding(tower if shared else copy.deepcopy(tower), dtype), "head", frozen.text.shape[1])
    name = last_linear(frozen, canvas)
    if name is None:
        return None
    layer = frozen.module.get_submodule(name)
    assert isinstance(layer, nn.Linear)
    return Penultimate(without_layer(frozen.module, name, shared=shared), name, layer.in_features)


@torch.no_grad()
def last_linear(frozen: Frozen, canvas: int) -> str | None:
    """The name of the linear layer whose output is the model's; None if there is no such layer."""
    calls: dict[str, list[tuple[Tensor, Tensor]]] = {}
    hooks = [
        layer.register_forward_hook(lambda _, given, found, name=name: calls.setdefault(name, []).append((given[0], found)))
        for name, layer in frozen.module.named_modules()
        if isinstance(layer, nn.Linear) and name
    ]
    try:
        answer = frozen(torch.zeros(2, 3, canvas, canvas, device=frozen.mean.device))
    finally:
        for hook in hooks:
            hook.remove()
    for name, seen in calls.items():
        if len(seen) != 1 or seen[0][0].ndim != 2:
            continue
        given, found = seen[0]
        layer = frozen.module.get_submodule(name)
        assert isinstance(layer, nn.Linear)
        same = found is answer or (found.data_ptr() == answer.data_ptr() and found.shape == answer.shape)
        if same and torch.equal(F.linear(given, layer.weight, layer.bias), answer):
            return name
    return None


def without_layer(module: nn.Module, name: str, *, shared: bool = True) -> nn.Module:
    """A copy of a module in which a layer gives what it is given; all others share their weights with it, or have copies."""
    layer = module.get_submodule(name)
    memo = {id(tensor): tensor for tensor in (*module.parameters(), *module.buffers())} if shared else {}
    shell = copy.deepcopy(module, memo)
    assert type(shell.get_submodule(name)) is type(layer)
    shell.set_submodule(name, nn.Identity())
    return shell
