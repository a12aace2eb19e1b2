"""Networks of some hundred numbers, reprogrammed with random mappings, whose exports take no time."""

import torch
from torch import nn

from reprogram.mappings.making import make_mapping
from reprogram.programs import make_program
from reprogram.reprogrammed import Reprogrammed
from reprogram.sources import Frozen, Texts, VisionLanguage

CLASSES = ("ant", "bee", "cat")
LABELS = [f"label {index}" for index in range(7)]


def seeded(make, seed=0):
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return make()


def body(width):
    return [nn.Conv2d(3, width, 3, stride=2), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten()]


def classifier(canvas=16, seed=0):
    """Ends in a linear layer of 7 source labels."""
    net = seeded(lambda: nn.Sequential(*body(5), nn.Linear(5, 7)), seed)
    net[-1].weight.data *= 20  # so that probabilities differ from image to image
    return Frozen(net, mean=(0.4, 0.5, 0.6), std=(0.2, 0.3, 0.25), input_size=canvas, labels=LABELS)


def squashed(canvas=16):
    """Ends in something else than a linear layer."""
    net = seeded(lambda: nn.Sequential(*body(5), nn.Linear(5, 7), nn.Tanh()))
    net[-2].weight.data *= 20
    return Frozen(net, input_size=canvas, labels=LABELS)


def clip(canvas=16, seed=0):
    """An image tower and random text embeddings of two templates."""
    tower = seeded(lambda: nn.Sequential(*body(6)))
    texts = Texts(list(CLASSES), ["a {}", "one {}"])
    embeddings = torch.randn(len(texts), 6, generator=torch.Generator().manual_seed(seed))
    return VisionLanguage(tower, embeddings, texts, logit_scale=3.0, input_size=canvas)


def images(count, size, seed=3):
    source = torch.Generator().manual_seed(seed)
    coarse = torch.rand(count, 3, 3, 3, generator=source)
    smooth = nn.functional.interpolate(coarse, (size, size), mode="bilinear", align_corners=False)
    return ((smooth + 0.1 * torch.rand(count, 3, size, size, generator=source)) / 1.1 * 255).round().to(torch.uint8)


def reprogrammed(frozen, program="padding", mapping="blm", canvas=16, **settings):
    """A model with a random program whose mapping is estimated from random images."""
    own = {"image_size": 9} if program == "padding" else {}
    made = make_program(program, canvas, **own)
    for parameter in made.parameters():
        parameter.data = torch.randn(parameter.shape, generator=torch.Generator().manual_seed(1))
    span = {"span": frozen.span} if mapping == "gaussian" else {}
    model = Reprogrammed(made, frozen, make_mapping(mapping, frozen.labels, CLASSES, **span, **settings))
    if model.mapping.statistics is not None:
        seen, targets = images(60, made.image_size), torch.arange(60) % 3
        seen[targets == 1] //= 2
        seen[targets == 2, 0] //= 3
        with torch.no_grad():
            logits = model.source_logits(seen)
        model.mapping.estimate(model.mapping.count(logits, targets))
    return model.eval()
