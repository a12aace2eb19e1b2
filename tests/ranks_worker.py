"""What one of several processes does in the tests of `reprogram.ranks`; the test does the same alone and compares.

Networks compute in float64, and θ follows sgd: so rounding decides nothing, neither the best label of an image nor, as with
Adam's first steps, the sign of a gradient that is nearly 0.
"""

import json
import sys
import time
from pathlib import Path

import torch
from safetensors.torch import save_file
from torch import nn

from reprogram import Frozen, fit
from reprogram.errors import NonFiniteError, ReprogramError
from reprogram.mappings.settings import PriorMatrix
from reprogram.programs.base import NoProgram
from reprogram.ranks import LostRank, joined
from reprogram.training.choice import select_from
from reprogram.training.evaluation import evaluate
from reprogram.training.kept import keep_logits
from reprogram.training.result import Diverged
from sides import build, small_data, small_frozen, without_times

#: 61 images in batches of 20: the last batch is smaller than the number of processes.
HOW = {"batch_size": 20, "optimizer": "sgd", "lr": 5.0, "augment": "crop"}
TRAINED = {
    "blm": {},
    "blm+": {},
    "ilm": {"refresh": "fresh"},
    "gaussian": {"folds": 3},
    "linear": {},
}


#: Trained through the prepared network, as a longer training is.
PREPARED = "ilm"


class Poisoned(Frozen):
    """Answers with infinity to one kind of image, as a network that overflows."""

    def forward(self, x):
        logits = super().forward(x)
        sick = (x[:, :, 6:18, 6:18].mean((1, 2, 3)) > 0.9)[:, None]
        return logits.masked_fill(sick & (torch.arange(logits.shape[1]) == 0), -torch.inf)


def data_of(signal=0.6):
    return small_data(n=61, signal=signal)


def poisoned_data():
    """One image, of the last process, is of the kind that makes the network overflow."""
    data = data_of()
    data.train.images[59] = 1.0
    return data


def state_of(model):
    mapping = model.mapping
    tensors = {f"program {name}": part for name, part in model.program.named_parameters()}
    tensors |= {"weights": mapping.weights}
    if mapping.statistics is not None:
        tensors |= {f"statistics {name}": part for name, part in mapping.statistics.named_buffers()}
    return {name: part.detach().clone().contiguous() for name, part in tensors.items()}


def trained(name, ranks, **more):
    model = build(name, small_frozen(), **TRAINED[name]).double()
    if name == PREPARED:
        model.accelerate = lambda passes: type(model).accelerate(model)
    easy = name != "gaussian"  # which has nothing left to learn from easy images
    result = fit(model, data_of(0.6 if easy else 0.02), **{**HOW, "epochs": 2, **more}, ranks=ranks)
    return result, model


def told(result, model):
    said = {"records": without_times(result.records), "accuracy": result.accuracy, "selected": result.selected_epoch}
    certainty = model.mapping.certainty
    said["temperature"] = None if certainty is None else certainty.temperature
    said["reliability"] = None if result.test.honest is None else result.test.honest.to_json()
    tensors = {"predicted": result.test.predicted, "confidence": result.test.confidence}
    return said, {**state_of(model), **tensors}


def untrained(ranks):
    model = build("gaussian", small_frozen(), NoProgram(24)).double()
    return fit(model, data_of(), **HOW, ranks=ranks), model


def chosen(ranks):
    model, train = build("blm", small_frozen()).double(), data_of().train
    kept = keep_logits(model, train, batch_size=20, ranks=ranks)
    found = select_from(kept.blocks, model, len(train), ranks=ranks)
    return {"choice": found.choice.to_json(), "table": [row.to_json() for row in found.table]}


def covered(ranks):
    model = build("gaussian", small_frozen(), NoProgram(24)).double()
    fit(model, data_of(), **HOW, ranks=ranks)
    found = evaluate(model, data_of().test, batch_size=7, coverage=0.8, ranks=ranks)
    return {"covered": found.covered.tolist(), "sizes": found.set_sizes.tolist()}


def diverged(ranks):
    model = build("blm", small_frozen(kind=Poisoned), refresh="fresh").double()
    try:
        fit(model, poisoned_data(), epochs=2, **{**HOW, "augment": "none"}, ranks=ranks)
    except Diverged as error:
        return str(error)
    return "went on"


def disagreed(ranks):
    """The last process has an image less, as where a copy of a folder is not complete."""
    try:
        fit(build("blm", small_frozen()), small_data(n=61 - (ranks.rank == ranks.size - 1)), **HOW, epochs=1, ranks=ranks)
    except ReprogramError as error:
        return str(error)
    return "went on"


def primitives(ranks):
    """Sums, rows, words and errors; what each process has differs by its rank."""
    rank, size = ranks.rank, ranks.size
    found = {"sum": ranks.sum(torch.tensor([rank + 1.0, 10.0 * rank])).tolist()}
    rows = ranks.rows(10, 4)
    parts = [part * 2 for part in ranks.batches(torch.arange(10), 4)]
    found["doubled"] = ranks.gather(parts, torch.empty(0, dtype=torch.int64)).tolist()
    found["flags"] = ranks.gather([torch.tensor([rank == 1])], torch.empty(0, dtype=torch.bool)).tolist()
    found["rows"] = ranks.gather([torch.tensor([[rows.start, rows.stop]])], torch.empty(0, 2, dtype=torch.int64)).tolist()
    values, tensors = ranks.told(lambda: ({"said": f"by {rank}", "none": None}, {"t": torch.arange(3.0).view(3, 1)}))
    found["told"] = [values, tensors["t"].tolist()]
    theta = nn.Parameter(torch.full((2, 2), float(rank)).T)
    ranks.align([theta])
    found["aligned"] = theta.tolist()
    (theta * (rank + 1)).sum().backward()
    idle = nn.Parameter(torch.zeros(1))
    ranks.sum_gradients([theta, idle])
    found["gradients"] = [theta.grad.tolist(), idle.grad.tolist()]
    ranks.agree({"data": "a", "settings": [None, 0.1], "prior": PriorMatrix(torch.eye(2))})
    try:
        ranks.agree({"data": "a", "settings": {"seed": 0}, "source model": "b" if rank < size - 1 else "c"})
    except ReprogramError as error:
        found["disagreed"] = str(error)
    with ranks.held():
        if rank == size - 1:
            raise NonFiniteError(f"rank {rank} has met infinity, but finite numbers are expected")
    try:
        ranks.settle()
    except NonFiniteError as error:
        found["settled"] = error.found
    ranks.settle()
    return found


def in_turn(ranks, folder):
    with ranks.in_turn():
        there = (folder / "filled").exists()
        time.sleep(0.3)
        (folder / "filled").touch()
    return [] if ranks.rank == 0 and not there else [there]


def some(folder, names=("blm", "blm+")):
    """The exchange itself, and trainings whose checkpoints stay in the folder."""
    with joined() as ranks:
        found = {"primitives": primitives(ranks), "turn": in_turn(ranks, folder)}
        for name in names:
            fits(folder, found, ranks, name, lambda name=name: trained(name, ranks, checkpoint=folder / name))
        if set(names) == set(TRAINED):
            # what one process has begun, and that nobody has
            fits(folder, found, ranks, "continued", lambda: trained("blm", ranks, checkpoint=folder / "begun"))
            fits(folder, found, ranks, "untrained", lambda: untrained(ranks))
            found |= {
                "chosen": chosen(ranks),
                "covered": covered(ranks),
                "diverged": diverged(ranks),
                "other": disagreed(ranks),
            }
        (folder / f"{ranks.rank}.json").write_text(json.dumps(found))


def fits(folder, found, ranks, name, work):
    found[name], tensors = told(*work())
    save_file(tensors, folder / f"{name}-{ranks.rank}.safetensors")


def main(folder):
    some(folder, tuple(TRAINED))


def hang(folder):
    """The last process answers no more; the others say so."""
    with joined() as ranks:
        if ranks.rank == ranks.size - 1:
            time.sleep(600)
        try:
            ranks.sum(torch.zeros(1))
        except LostRank as error:
            (folder / f"lost-{ranks.rank}").write_text(str(error))
            raise SystemExit(3) from None


if __name__ == "__main__":
    {"main": main, "some": some, "hang": hang}[sys.argv[1]](Path(sys.argv[2]))
