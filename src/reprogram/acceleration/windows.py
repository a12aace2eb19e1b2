"""Where the per-sample patch lies on a map, how operators move it, and how patch and shared map are put together."""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor


@dataclass(frozen=True)
class Span:
    """A half-open interval of places along one axis."""

    start: int
    stop: int

    def __len__(self) -> int:
        return max(0, self.stop - self.start)

    def __and__(self, other: "Span") -> "Span":
        start = max(self.start, other.start)
        return Span(start, max(start, min(self.stop, other.stop)))

    def __or__(self, other: "Span") -> "Span":
        return Span(min(self.start, other.start), max(self.stop, other.stop))

    def within(self, other: "Span") -> bool:
        """Whether the other span has all places of this one."""
        return other.start <= self.start and self.stop <= other.stop

    def shifted(self, offset: int) -> "Span":
        """The same interval, counted from another origin."""
        return Span(self.start + offset, self.stop + offset)


@dataclass(frozen=True)
class Box:
    """A rectangle of places: rows and columns."""

    rows: Span
    cols: Span

    @property
    def area(self) -> int:
        """How many places it has."""
        return len(self.rows) * len(self.cols)

    def __and__(self, other: "Box") -> "Box":
        return Box(self.rows & other.rows, self.cols & other.cols)

    def __or__(self, other: "Box") -> "Box":
        return Box(self.rows | other.rows, self.cols | other.cols)

    def within(self, other: "Box") -> bool:
        """Whether the other box has all places of this one."""
        return self.rows.within(other.rows) and self.cols.within(other.cols)

    def ring(self, hole: "Box") -> list["Box"]:
        """The places of this box outside a hole in it, as at most four boxes.

        >>> [part.area for part in Box(Span(0, 5), Span(0, 5)).ring(Box(Span(1, 3), Span(0, 4)))]
        [5, 10, 2]
        """
        if not hole.area:
            return [self] if self.area else []
        parts = (
            Box(Span(self.rows.start, hole.rows.start), self.cols),
            Box(Span(hole.rows.stop, self.rows.stop), self.cols),
            Box(hole.rows, Span(self.cols.start, hole.cols.start)),
            Box(hole.rows, Span(hole.cols.stop, self.cols.stop)),
        )
        return [part for part in parts if part.area]

    def of(self, tensor: Tensor, axis: int, origin: "Box | None" = None) -> Tensor:
        """These places of a tensor whose rows are at `axis` and which starts at the corner of `origin`."""
        top, left = (0, 0) if origin is None else (origin.rows.start, origin.cols.start)
        rows = tensor.narrow(axis, self.rows.start - top, len(self.rows))
        return rows.narrow(axis + 1, self.cols.start - left, len(self.cols))


@dataclass(frozen=True)
class Window:
    """An activation of which only a box differs between samples.

    Attributes:
        box: where the samples differ; the patch (N, C, h, w) holds these places.
        whole: all places of the map, from 0; the shared map (1, C, H, W) holds them, its values in the box mean nothing.
        axis: the dimension of the rows: 2 for (N, C, H, W), 1 for (N, H, W, C).
    """

    box: Box
    whole: Box
    axis: int = 2

    @property
    def share(self) -> float:
        """The part of the map that differs between samples."""
        return self.box.area / self.whole.area


@dataclass(frozen=True)
class Sliding:
    """How an operator slides along one axis: output o reads inputs o·stride − before + dilation·(0 … kernel − 1)."""

    kernel: int
    stride: int = 1
    before: int = 0
    dilation: int = 1

    def touched(self, span: Span, outputs: int) -> Span:
        """The outputs that read any place of a span; at least one, as a patch cannot be empty."""
        reach = self.dilation * (self.kernel - 1)
        first = -((reach - span.start - self.before) // self.stride)
        last = (span.stop - 1 + self.before) // self.stride
        first = min(max(first, 0), outputs - 1)
        return Span(first, max(first, min(last, outputs - 1)) + 1)

    def needed(self, outputs: Span) -> Span:
        """The inputs that these outputs read; it may reach beyond the map."""
        start = outputs.start * self.stride - self.before
        return Span(start, start + (len(outputs) - 1) * self.stride + self.dilation * (self.kernel - 1) + 1)


def add_up(values: Tensor, dtype: torch.dtype | None = None) -> Tensor:
    """The sum over the samples, (1, C, H, W), of channels-last values (N, C, H, W)."""
    # Summed in the order of memory: along the first dimension of (N, C, H, W) torch is twenty times slower.
    return values.permute(0, 2, 3, 1).sum(0, keepdim=True, dtype=dtype).permute(0, 3, 1, 2)


def surround(shared: Tensor, patch: Tensor, window: Window, region: Box, fill: float = 0.0) -> Tensor:
    """Each sample's values on a region: its own in the window's box, the shared ones around, `fill` outside the map.

    Args:
        shared: (1, C, H, W).
        patch: (N, C, h, w).
        window: where the patch lies.
        region: the places that are wanted.
        fill: what operators see outside the map: their padding.
    """
    if region.within(window.box):
        return region.of(patch, window.axis, window.box)
    return _Surround.apply(shared, patch, window, region, fill)  # type: ignore[no-any-return,no-untyped-call]


def framed_mean(shared: Tensor, patch: Tensor, window: Window, keep: bool) -> Tensor:
    """The mean over all places of every sample's map, (N, C) or with the two dimensions kept: ring and patch added up."""
    dims = (window.axis, window.axis + 1)
    total = patch.sum(dims, keepdim=keep)
    for part in window.whole.ring(window.box):
        total = total + part.of(shared, window.axis).sum(dims, keepdim=keep)
    return total / window.whole.area


class _Surround(torch.autograd.Function):
    """One copy forward; backward a view for the patch, and sums over the samples for the ring of the shared map."""

    @staticmethod
    def forward(ctx: Any, shared: Tensor, patch: Tensor, window: Window, region: Box, fill: float) -> Tensor:
        ctx.window, ctx.region, ctx.shared, ctx.patch = window, region, (shared.shape, shared.dtype), patch.shape
        axis = window.axis
        size = list(patch.shape)
        size[axis : axis + 2] = len(region.rows), len(region.cols)
        layout = torch.channels_last if axis == 2 else torch.contiguous_format
        out = torch.empty(size, dtype=patch.dtype, device=patch.device, memory_format=layout)
        visible = region & window.whole
        inner = visible & window.box
        for part in region.ring(visible):
            part.of(out, axis, region).fill_(fill)
        for part in visible.ring(inner):
            part.of(out, axis, region).copy_(part.of(shared, axis))
        if inner.area:
            inner.of(out, axis, region).copy_(inner.of(patch, axis, window.box))
        return out

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, Tensor | None, None, None, None]:
        window, region, axis = ctx.window, ctx.region, ctx.window.axis
        visible = region & window.whole
        inner = visible & window.box
        to_shared = to_patch = None
        if ctx.needs_input_grad[0]:
            size, dtype = ctx.shared
            layout = torch.channels_last if axis == 2 else torch.contiguous_format
            to_shared = torch.empty(size, dtype=dtype, device=grad.device, memory_format=layout).zero_()
            for part in visible.ring(inner):
                ring = part.of(grad, axis, region)
                part.of(to_shared, axis).copy_(add_up(ring) if axis == 2 else ring.sum(0, keepdim=True))
        if ctx.needs_input_grad[1]:
            if inner == window.box:
                to_patch = inner.of(grad, axis, region)
            else:
                to_patch = grad.new_zeros(ctx.patch)
                if inner.area:
                    inner.of(to_patch, axis, window.box).copy_(inner.of(grad, axis, region))
        return to_shared, to_patch, None, None, None
