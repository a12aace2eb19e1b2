"""The choice of a mapping for a model is the one that its logits give."""

import torch
from torch import nn

from reprogram import Frozen, Reprogrammed, make_mapping
from reprogram.data import ArraySplit
from reprogram.mappings.selection import select
from reprogram.programs import NoProgram
from reprogram.training.choice import select_from
from reprogram.training.kept import keep_logits

CLASSES = ("red", "green", "blue")


def test_the_choice_is_that_of_the_logits_of_the_training_images():
    with torch.random.fork_rng():
        torch.manual_seed(0)
        frozen = Frozen(nn.Sequential(nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Linear(12, 9)), input_size=8)
        images, labels = 0.4 * torch.rand(45, 3, 8, 8), torch.arange(45) % 3
    images[torch.arange(45), labels] += 0.1
    model = Reprogrammed(NoProgram(8), frozen, make_mapping("blm", frozen.labels, CLASSES))
    kept = keep_logits(model, ArraySplit(images, labels), batch_size=7)
    found = select_from(kept.blocks, model, 45, methods=["gaussian", "blm"], grid={"smoothing": [1]})
    with torch.no_grad():
        logits = model.source_logits(images)
    expected = select((logits, labels), 3, methods=["gaussian", "blm"], grid={"smoothing": [1]})
    assert [row.to_json() for row in found.table] == [row.to_json() for row in expected.table]
    assert {row.candidate.mapping for row in found.table} == {"gaussian", "blm"}
