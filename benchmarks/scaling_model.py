"""The model of `scaling.py`: what a batch makes the processor do, and constants that turn it into seconds."""

import math
import statistics
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.nn import functional as F
from torch.utils._python_dispatch import TorchDispatchMode

from reprogram import Frozen, Reprogrammed, load_frozen, make_mapping
from reprogram.programs import Padding, Watermark

NAMES = {"lite0": "bundled:efficientnet_lite0", "resnet18": "torchvision:resnet18"}
TITLES = {"lite0": "EfficientNet-Lite0", "resnet18": "ResNet-18"}
ACTS = ("training step", "pass")
NETWORK = ("GFLOP", "GB", "operator")
PER_SAMPLE: dict[str, Callable[[int, int], Sequence[float]]] = {
    "blm": lambda s, t: (1, s),
    "blm+": lambda s, t: (1, s, math.sqrt(s * max(1, 15 * t // 100))),  # found by trying: what sorting out the top K takes
    "gaussian": lambda s, t: (s, s**2),
}
PER_ESTIMATE: dict[str, Callable[[int, int], Sequence[float]]] = {
    "blm": lambda s, t: (1, s * t),
    "blm+": lambda s, t: (1, s * t),
    "gaussian": lambda s, t: (1, s**2, s**2 * t, s**3),
}
TERMS = {
    "blm": ("1, k_S", "1, k_S·k_T"),
    "blm+": ("1, k_S, √(k_S·K)", "1, k_S·k_T"),
    "gaussian": ("k_S, k_S²", "1, k_S², k_S²·k_T, k_S³"),
}
Row = dict[str, Any]


class Counting(TorchDispatchMode):
    """Counts what is computed: operations of convolutions and products, bytes read and written, operators."""

    def __init__(self) -> None:
        super().__init__()
        self.work = [0.0, 0.0, 0.0]

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        found = func(*args, **kwargs or {})
        name = func.name().split("::")[1].split(".")[0]
        if func.is_view or name in ("empty", "empty_like", "detach", "_unsafe_view"):
            return found
        tensors = [value for value in (*args, found) if isinstance(value, torch.Tensor)]
        tensors += [value for value in found if isinstance(value, torch.Tensor)] if isinstance(found, tuple) else []
        self.work[1] += sum(value.numel() * value.element_size() for value in tensors) / 1e9
        self.work[2] += 1
        if name == "convolution":
            self.work[0] += 2e-9 * found.numel() * args[1][0].numel()
        elif name == "convolution_backward":
            self.work[0] += 2e-9 * args[0].numel() * args[2][0].numel() * sum(args[-1][:2])
        elif name in ("mm", "addmm"):
            left, right = args[-2:]
            self.work[0] += 2e-9 * left.numel() * right.shape[1]
        return found


class Model:
    """A model of random weights under a program, and what is timed of it."""

    def __init__(self, frozen: Frozen, canvas: int, image: int, prepared: bool = True) -> None:
        program = Padding(canvas, image) if image < canvas else Watermark(canvas)
        self.image, self.model = image, Reprogrammed(program, frozen, make_mapping("rlm", frozen.labels, list("abcdefghij")))
        if prepared:
            self.model.accelerate()
        self.optimizer = torch.optim.Adam(self.model.program.parameters(), lr=0.01)
        self.counted: dict[str, list[list[float]]] = {}

    def acts(self, batch: int) -> dict[str, Callable[[], None]]:
        """A training step and a pass, on one batch of noise."""
        images, labels = torch.rand(batch, 3, self.image, self.image), torch.arange(batch) % 10

        def step() -> None:
            loss = F.cross_entropy(self.model(images), labels)
            self.optimizer.zero_grad(set_to_none=True)
            loss.backward()
            self.optimizer.step()

        def only_pass() -> None:
            with torch.no_grad():
                self.model.source_logits(images)

        return dict(zip(ACTS, (step, only_pass), strict=True))

    def work(self, act: str, batch: int) -> list[float]:
        """GFLOP, GB and operators of a batch, from those of two small ones."""
        if act not in self.counted:
            self.counted[act] = [_counted(self.acts(size)[act]) for size in (2, 4)]
        two, four = self.counted[act]
        return [a + (b - a) / 2 * (batch - 2) for a, b in zip(two, four, strict=True)]


def _counted(act: Callable[[], None]) -> list[float]:
    act()  # what is made once
    with Counting() as counting:
        act()
    return counting.work


def least_squares(features: Sequence[Sequence[float]], seconds: Sequence[float]) -> list[float]:
    """Constants ≥ 0 that make the relative errors small: a term that would get a negative one is left out."""
    rows = torch.tensor(features, dtype=torch.float64) / torch.tensor(seconds, dtype=torch.float64)[:, None]
    used = list(range(rows.shape[1]))
    while True:
        scale = rows[:, used].norm(dim=0)
        ones = torch.ones(len(rows), 1, dtype=torch.float64)
        found = (torch.linalg.lstsq(rows[:, used] / scale, ones).solution[:, 0] / scale).tolist()
        if min(found) >= 0:
            return [dict(zip(used, found, strict=True)).get(place, 0.0) for place in range(rows.shape[1])]
        used.pop(found.index(min(found)))


def product(constants: Sequence[float], features: Sequence[float]) -> float:
    return sum(constant * feature for constant, feature in zip(constants, features, strict=True))


class Costs:
    """The constants, and what they say."""

    def __init__(self, content: Row) -> None:
        network = [row for row in content["network"] if not row["held_out"]]
        self.network = {
            name: {
                act: least_squares(
                    *zip(*((r["work"], r["seconds"]) for r in network if (r["model"], r["act"]) == (name, act)), strict=True)
                )
                for act in ACTS
            }
            for name in NAMES
        }
        counted = [row for row in content["statistics"] if not row["held_out"]]
        self.mapping = {
            (kind, what): least_squares(
                *zip(
                    *((terms[kind](r["k_source"], r["k_target"]), r[what]) for r in counted if r["mapping"] == kind),
                    strict=True,
                )
            )
            for kind in PER_SAMPLE
            for what, terms in (("sample", PER_SAMPLE), ("estimate", PER_ESTIMATE))
        }
        compared = content.get("threads", [])
        self.threads = "two threads" if compared else "one thread"
        self.ratio = {act: statistics.median([r["ratio"] for r in compared if r["act"] == act] or [1.0]) for act in ACTS}
        self.models: dict[tuple[str, int, int], Model] = {}

    def part(self, kind: str, what: str, k_source: int, k_target: int) -> float:
        """Seconds of a sample's statistics, or of an estimate."""
        terms = PER_SAMPLE if what == "sample" else PER_ESTIMATE
        return product(self.mapping[kind, what], terms[kind](k_source, k_target))

    def images(self, name: str, canvas: int, image: int, batch: int, count: int, act: str) -> float:
        """Seconds of so many images in batches, on one thread."""
        if (name, canvas, image) not in self.models:
            self.models[name, canvas, image] = Model(load_frozen(NAMES[name], pretrained=False), canvas, image)
        model, constants = self.models[name, canvas, image], self.network[name][act]
        whole, rest = divmod(count, batch)
        seconds = whole * product(constants, model.work(act, batch)) if whole else 0.0
        return seconds + (product(constants, model.work(act, rest)) if rest else 0.0)

    def epoch(self, row: Row, k_source: int = 1000) -> float:
        """Seconds of an epoch on one thread, without validation and test."""
        place = (row["model"], row["canvas"], row["image"], row["batch"], row["n"])
        seconds = self.images(*place, "training step")
        if row["refresh"] == "fresh":
            seconds += self.images(*place, "pass")
        kind, k_target = row["mapping"], row["k_target"]
        return (
            seconds
            + row["n"] * self.part(kind, "sample", k_source, k_target)
            + (1 + make_mapping(kind, list("abc"), list("de")).folds) * self.part(kind, "estimate", k_source, k_target)
        )
