"""Small things to make good inputs of: a frozen network, images, logits, and statistics of them."""

import torch
from torch import Tensor, nn

from reprogram import Frozen, make_mapping
from reprogram.data.dataset import ArraySplit, DataSet
from reprogram.mappings.base import Mapping

CLASSES = ("left", "right", "none")
LABELS = tuple(f"label {number}" for number in range(12))


def network() -> Frozen:
    """A frozen network of 12 labels."""
    torch.manual_seed(3)
    layers = nn.Sequential(nn.Conv2d(3, 4, 5, stride=4), nn.Tanh(), nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Linear(16, 12))
    return Frozen(layers, input_size=24, labels=list(LABELS))


def images(count: int = 24) -> DataSet:
    """Images of noise in three classes."""
    draw = torch.Generator().manual_seed(0)

    def split(number: int) -> ArraySplit:
        return ArraySplit(torch.rand(number, 3, 12, 12, generator=draw), torch.arange(number) % 3)

    return DataSet("noise", CLASSES, train=split(count), test=split(6), val=split(6))


def logits(count: int = 60) -> tuple[Tensor, Tensor]:
    """Answers of a model, and the classes that they belong to."""
    draw = torch.Generator().manual_seed(1)
    labels = torch.arange(count) % 3
    answers = torch.randn(count, len(LABELS), generator=draw)
    answers[torch.arange(count), labels] += 3
    return answers, labels


def estimated(name: str) -> Mapping:
    """A mapping by its name, estimated from such answers."""
    mapping = make_mapping(name, LABELS, CLASSES)
    if mapping.statistics is not None:
        statistics = mapping.new_statistics()
        statistics.update(*logits())
        mapping.estimate(statistics)
    return mapping
