"""From a network to its schedule, with as many operators as pays on shared map and patch."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor
from torch.fx import Node
from torch.fx.node import map_arg

from reprogram.acceleration.carriers import attach, convolve
from reprogram.acceleration.costs import dense_cost, surround_cost
from reprogram.acceleration.folding import CONVOLUTIONS
from reprogram.acceleration.framing import GLOBAL_MEANS, PADDINGS, RULES, Framing, functional, global_mean
from reprogram.acceleration.linear import linear
from reprogram.acceleration.network import Network, arguments, aten, shape
from reprogram.acceleration.schedule import Schedule, Step
from reprogram.acceleration.thin import convolve_thin, is_thin
from reprogram.acceleration.windows import Box, Window, framed_mean, surround

_NOMINAL_BATCH = 64  # over how many samples the cost model spreads what is computed once
_WORTH = 0.93  # of the dense cost: what looks like less of a gain is left alone
_IN_PLACE: dict[Any, Any] = {
    aten.relu.default: aten.relu_.default,
    aten.hardtanh.default: aten.hardtanh_.default,
    aten.add.Tensor: aten.add_.Tensor,
}
_FASTER: dict[Any, Callable[..., Any]] = {aten.linear.default: linear}  # what they return may be a view
# Their backward passes never look at their outputs, so the next operator may write into them.
_FORGETTING = {*CONVOLUTIONS, aten.add.Tensor, aten.batch_norm.default}

_NORMS = {aten.batch_norm.default, aten.instance_norm.default}


def best_schedule(network: Network, window: Window | None) -> Schedule:
    """The cheapest layout, by the cost model alone, so that it is the same on every run."""
    dense = make_schedule(network)
    if window is None:
        return dense
    tried = (make_schedule(network, window, limit / 20) for limit in range(4, 20))
    best = min(tried, key=lambda schedule: schedule.cost)
    return best if best.framed and best.cost < _WORTH * dense.cost else dense


def make_schedule(network: Network, window: Window | None = None, limit: float = 0.0) -> Schedule:
    """Lay out a network.

    Args:
        network: its operators.
        window: where the images lie on the canvas; None, if the whole canvas differs between samples.
        limit: operators run on shared map and patch while the patch takes at most this share of the map.
    """
    return _Builder(network, window, limit).build()


@dataclass(frozen=True)
class _Framed:
    """Where a windowed activation is kept: the slots of its shared map and of its patch."""

    shared: int
    patch: int
    window: Window


@dataclass
class _Builder:
    network: Network
    window: Window | None
    limit: float
    steps: list[Step] = field(default_factory=list)
    size: int = 0
    dense: dict[Node, int] = field(default_factory=dict)  # values on whole maps, and weights
    framed: dict[Node, _Framed] = field(default_factory=dict)  # values on shared map and patch
    regions: dict[tuple[Node, Box, float], int] = field(default_factory=dict)
    carriers: dict[Node, int] = field(default_factory=dict)  # canvases whose gradient is wanted as a sum alone
    pixels: set[Node] = field(default_factory=set)  # windowed values whose patch is the images themselves
    own: set[int] = field(default_factory=set)  # slots that a step has written anew
    cost: float = 0.0
    last: str = ""

    def build(self) -> Schedule:
        weights, multiplied = {}, set()
        for node, weight in self.network.weights.items():
            slot = self.dense[node] = self.slot()
            weights[slot] = weight
            if any(user.target in (*CONVOLUTIONS, aten.linear.default) for user in node.users):
                multiplied.add(slot)
        image, inputs = self.network.image, (self.slot(), self.slot())
        if self.window is None:
            self.dense[image], self.carriers[image] = inputs
        else:
            self.framed[image] = _Framed(*inputs, self.window)
            self.pixels.add(image)
        for node in self.network.operators:
            framing = self.framing(node)
            if framing is not None:
                self.add_framed(node, framing)
            elif not self.add_mean(node):
                self.add_dense(node)
        output = self.whole(self.network.output)
        self.set_lifetimes({output, *weights})
        windowed = self.window is not None
        return Schedule(
            steps=self.steps,
            weights=weights,
            multiplied=frozenset(multiplied),
            size=self.size,
            inputs=inputs,
            output=output,
            cost=self.cost,
            windowed=windowed,
            framed=len(self.framed) - windowed,
            operators=len(self.network.operators),
            last=self.last,
            normalises=any(node.target in _NORMS for node in self.network.operators),
        )

    def slot(self) -> int:
        self.size += 1
        return self.size - 1

    def step(self, run: Callable[[list[Any]], Any], reads: Iterable[int]) -> int:
        """Append a step and return the slot that it writes."""
        out = self.slot()
        self.steps.append(Step(run, frozenset(reads), out))
        return out

    def set_lifetimes(self, kept: set[int]) -> None:
        alive = set(kept)
        for step in reversed(self.steps):
            step.frees = tuple(sorted((step.reads | {step.writes}) - alive))
            alive |= step.reads | {step.writes}

    # ---- operators on shared map and patch

    def windows(self) -> dict[Node, Window]:
        return {source: form.window for source, form in self.framed.items()}

    def framing(self, node: Node) -> Framing | None:
        """How the operator runs on shared map and patch; None if it cannot or should not."""
        if node.target not in RULES or not any(source in self.framed for source in node.all_input_nodes):
            return None
        framing = RULES[node.target](node, self.windows(), self.network.weights)
        return framing if framing is not None and framing.window.share <= self.limit else None

    def add_framed(self, node: Node, framing: Framing) -> None:
        sources = [source for source in node.all_input_nodes if source in self.framed]
        if framing.target is not None and node.args[0] in self.pixels and node.target in CONVOLUTIONS:
            patch = self.convolve_images(node, framing)
        else:
            patches = {source: self.on_region(source, framing.region, framing.fill) for source in sources}
            if framing.target is None:
                (patch,) = patches.values()
                if sources[0] in self.pixels:
                    self.pixels.add(node)
            else:
                patch = self.call(node, framing.target, self.dense | patches, framing.changed)
        # Last, because it may write over its input's shared map, which the patches are surrounded by
        shared = self.call(node, functional(node), self.dense | {source: self.framed[source].shared for source in sources})
        self.framed[node] = _Framed(shared, patch, framing.window)
        self.cost += dense_cost(node, self.network.weights) * (framing.window.share + 1 / _NOMINAL_BATCH)
        self.last = f"{node.target.name().split('::')[1].split('.')[0]} at {framing.window.whole.rows.stop} px"  # type: ignore[union-attr]

    def convolve_images(self, node: Node, framing: Framing) -> int:
        """The first convolution on the patch: the images in it need no gradient, and the frame around them its sum."""
        given = arguments(node)
        form, region = self.framed[given["input"]], framing.region
        values, reads = self.convolution_values(node, padding=[0, 0])

        def run(slots: list[Any]) -> Tensor:
            shared, patch = slots[form.shared], slots[form.patch]
            if patch.requires_grad:
                return aten.conv2d(surround(shared, patch, form.window, region), *values(slots))  # type: ignore[no-any-return]
            canvas = surround(shared.detach(), patch, form.window, region)
            return convolve(canvas, surround(shared, patch[:1], form.window, region), *values(slots))

        out = self.step(run, {form.shared, form.patch, *reads})
        self.own.add(out)
        return out

    def add_mean(self, node: Node) -> bool:
        """The mean over all places, from the ring of the shared map and the patch."""
        if node.target not in GLOBAL_MEANS:
            return False
        found = global_mean(node, self.windows())
        if found is None:
            return False
        form, keep = self.framed[found[0]], found[1]

        def run(slots: list[Any]) -> Tensor:
            return framed_mean(slots[form.shared], slots[form.patch], form.window, keep)

        self.dense[node] = self.step(run, (form.shared, form.patch))
        self.cost += dense_cost(node, self.network.weights) * form.window.share
        return True

    def on_region(self, node: Node, region: Box, fill: float) -> int:
        """The slot of every sample's values on a region, put together where it is not there yet."""
        form = self.framed[node]
        if region == form.window.box:
            return form.patch
        key = (node, region, 0.0 if region.within(form.window.whole) else fill)
        if key not in self.regions:

            def run(slots: list[Any]) -> Tensor:
                return surround(slots[form.shared], slots[form.patch], form.window, region, fill)

            self.regions[key] = self.step(run, (form.shared, form.patch))
            self.cost += surround_cost(node, form.window, region)
        return self.regions[key]

    # ---- operators on whole maps

    def whole(self, node: Node) -> int:
        """The slot of the whole map of every sample."""
        if node not in self.dense:
            self.dense[node] = self.on_region(node, self.framed[node].window.whole, 0.0)
        return self.dense[node]

    def add_dense(self, node: Node) -> None:
        self.cost += dense_cost(node, self.network.weights)
        source = node.args[0] if node.args else None
        if isinstance(source, Node) and source in self.carriers and len(source.users) == 1:
            if node.target is aten.conv2d.default:
                self.dense[node] = self.convolve_canvas(node)
                return
            if node.target in PADDINGS:
                canvas, carrier = self.dense[source], self.carriers.pop(source)
                self.dense[node] = self.call(node, functional(node), {source: canvas})
                self.carriers[node] = self.call(node, _unless_none(functional(node)), {source: carrier})
                return
        for source in node.all_input_nodes:
            if source in self.carriers:
                self.attach_carrier(source)
        self.dense[node] = self.call(node, functional(node), {source: self.whole(source) for source in node.all_input_nodes})

    def convolve_canvas(self, node: Node) -> int:
        """The first convolution: the canvas needs its gradient as a sum over the samples alone."""
        source = arguments(node)["input"]
        canvas, carrier = self.dense[source], self.carriers[source]
        values, reads = self.convolution_values(node)
        out = self.step(lambda slots: convolve(slots[canvas], slots[carrier], *values(slots)), {canvas, carrier, *reads})
        self.own.add(out)
        return out

    def attach_carrier(self, node: Node) -> None:
        """Let any operator read the canvas with its gradient."""
        canvas, carrier = self.dense[node], self.carriers.pop(node)
        self.dense[node] = self.step(lambda slots: attach(slots[canvas], slots[carrier]), (canvas, carrier))

    # ---- calls

    def convolution_values(
        self, node: Node, **changed: Any
    ) -> tuple[Callable[[list[Any]], tuple[Any, ...]], frozenset[int]]:
        """What a convolution takes after its input, from the slots; and which slots that reads."""
        given = arguments(node) | changed
        weight, bias = self.dense[given["weight"]], None if given["bias"] is None else self.dense[given["bias"]]
        options = (given["stride"], given["padding"], given["dilation"], given["groups"])
        reads = frozenset((weight,) if bias is None else (weight, bias))
        return lambda slots: (slots[weight], None if bias is None else slots[bias], *options), reads

    def call(
        self, node: Node, target: Callable[..., Any], slots: dict[Node, int], changed: dict[str, Any] | None = None
    ) -> int:
        """Add the step that calls an operator on these slots; in place where nobody can notice."""
        args, kwargs = (node.args, dict(node.kwargs)) if not changed else ((), arguments(node) | changed)
        first = node.args[0] if node.args else None
        if (
            isinstance(first, Node)
            and functional(first) in _FORGETTING
            and len(first.users) == 1
            and shape(first) == shape(node)  # a smaller one is broadcast, and cannot hold the result
            and slots[first] in self.own
        ):
            target = _IN_PLACE.get(target, target)
        if node.target in CONVOLUTIONS and is_thin(node, self.network.weights):
            target = convolve_thin
        fresh = target not in _FASTER
        target = _FASTER.get(target, target)
        places: list[tuple[Any, bool]] = [(slots[part], True) if isinstance(part, Node) else (part, False) for part in args]
        named: list[tuple[str, Any, bool]] = [
            (name, slots[part], True) if isinstance(part, Node) else (name, part, False) for name, part in kwargs.items()
        ]

        def run(values: list[Any]) -> Any:
            return target(
                *[values[part] if is_slot else part for part, is_slot in places],
                **{name: values[part] if is_slot else part for name, part, is_slot in named},
            )

        def run_nested(values: list[Any]) -> Any:
            found, by_name = map_arg((args, kwargs), lambda source: values[slots[source]])
            return target(*found, **by_name)

        nested = any(isinstance(part, (list, tuple)) for part in args if _holds_nodes(part))
        out = self.step(run_nested if nested else run, (slots[source] for source in node.all_input_nodes))
        if fresh:
            self.own.add(out)
        return out


def _holds_nodes(part: Any) -> bool:
    found: list[Node] = []
    map_arg(part, found.append)
    return bool(found)


def _unless_none(target: Callable[..., Any]) -> Callable[..., Any]:
    def act(value: Tensor | None, *args: Any, **kwargs: Any) -> Any:
        return None if value is None else target(value, *args, **kwargs)

    return act
