"""A small frozen network, and images whose class is the side that is bright: enough for a training of a second."""

import torch
from torch import nn

from reprogram import Frozen, Reprogrammed, make_mapping
from reprogram.data.dataset import ArraySplit, DataSet
from reprogram.programs.padding import Padding

CLASSES = ("left", "right", "none")


@torch.no_grad()
def small_frozen(k_source: int = 12, kind: type[Frozen] = Frozen) -> Frozen:
    with torch.random.fork_rng():
        torch.manual_seed(3)
        network = nn.Sequential(
            nn.Conv2d(3, 8, 5, stride=2), nn.BatchNorm2d(8), nn.Tanh(), nn.Dropout(0.5),
            nn.AdaptiveAvgPool2d(4), nn.Flatten(), nn.Linear(128, k_source),
        )  # fmt: skip
        network[1].running_mean.uniform_(-0.1, 0.1)
        # spread the answers over the source labels, as a trained model's are
        images = Padding(24, 12)(small_data().train.images)
        logits = network.eval()(images)
        network[6].weight.data *= 3 / logits.std(0)[:, None]
        network[6].bias.data = -(logits.mean(0) - network[6].bias) * 3 / logits.std(0)
    return kind(network, input_size=24)


def small_data(n: int = 60, seed: int = 0, val: bool = True, signal: float = 0.6) -> DataSet:
    draw = torch.Generator().manual_seed(seed)

    def split(count: int) -> ArraySplit:
        labels = torch.arange(count) % 3
        images = torch.rand(count, 3, 12, 12, generator=draw) * 0.3
        images[labels == 0, 0, :, :6] += signal
        images[labels == 1, 1, :, 6:] += signal
        return ArraySplit(images, labels)

    return DataSet("sides", CLASSES, train=split(n), test=split(30), val=split(15) if val else None)


def build(mapping: str = "blm+", frozen: Frozen | None = None, program=None, **settings) -> Reprogrammed:
    frozen = frozen or small_frozen()
    program = program or Padding(24, 12)
    return Reprogrammed(program, frozen, make_mapping(mapping, frozen.labels, CLASSES, **settings))


def without_times(records):
    return [{k: v for k, v in record.items() if k not in ("seconds", "images_per_second")} for record in records]


class StopError(Exception):
    """Somebody ends a fit."""


def stop_after_two(records, epochs):
    if len(records) == 2:
        raise StopError
