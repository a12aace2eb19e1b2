"""How much a ranking depends on the samples it was made with, by resampling them: in one pass, whatever their number."""

import torch
from torch import Tensor

_CHUNK = 4096  # rows that are resampled together
_AT_ONCE = 50  # resamples, so that their table stays small


class Bootstrap:
    """Column sums of resamples with replacement of a table of n rows, which is never held as a whole.

    Each resample draws n of the n rows. How many fall into a chunk of rows is binomial given what the chunks before have
    taken, and within a chunk each row is as likely: the same distribution as drawing from the whole table at once, and up to
    4,096 rows the same draws. What is drawn depends on the number of a row alone, not on the blocks that rows come in.

    Args:
        n: how many rows there will be.
        columns: how many columns.
        resamples: how often to draw.
        seed: of the draws.

    Attributes:
        n: the same.
        totals: (columns,) int64, the sums over the rows themselves.
        sums: (resamples, columns) float64, the sums over each resample.

    >>> bootstrap = Bootstrap(n=3, columns=2, resamples=100)
    >>> bootstrap.add(torch.tensor([[True, False], [True, True]]))
    >>> bootstrap.add(torch.tensor([[True, False]]))
    >>> bootstrap.totals.tolist(), bootstrap.sums[:, 0].unique().tolist(), bool(bootstrap.sums[:, 1].std() > 0)
    ([3, 1], [3.0], True)
    """

    def __init__(self, n: int, columns: int, resamples: int = 1000, seed: int = 0) -> None:
        self.n = n
        self.totals = torch.zeros(columns, dtype=torch.int64)
        self.sums = torch.zeros(resamples, columns, dtype=torch.float64)
        self._rows_left = n
        self._draws_left = torch.full((resamples,), float(n), dtype=torch.float64)
        self._waiting: list[Tensor] = []
        self._generator = torch.Generator().manual_seed(seed)

    def add(self, rows: Tensor) -> None:
        """Take in rows of flags (N, columns)."""
        self.totals += rows.sum(0)
        self._waiting.append(rows)
        while (waiting := sum(map(len, self._waiting))) >= min(_CHUNK, self._rows_left) > 0:
            whole = torch.cat(self._waiting)
            chunk, rest = whole[:_CHUNK], whole[_CHUNK:]
            assert waiting <= self._rows_left, "more rows than announced"
            self._waiting = [rest]
            self._draw(chunk.float())

    def _draw(self, chunk: Tensor) -> None:
        size = len(chunk)
        taken = self._draws_left  # the last chunk takes all draws that are left, to the exact number
        if size < self._rows_left:
            share = torch.full_like(taken, size / self._rows_left)
            taken = torch.binomial(taken, share, generator=self._generator)
        self._rows_left -= size
        self._draws_left = self._draws_left - taken
        for start in range(0, len(taken), _AT_ONCE):
            count = taken[start : start + _AT_ONCE, None]
            drawn = torch.randint(size, (len(count), int(count.max())), generator=self._generator)
            counts = (torch.arange(drawn.shape[1]) < count).float()
            times = torch.zeros(len(count), size).scatter_add_(1, drawn, counts)  # whole numbers, exact in float32
            self.sums[start : start + _AT_ONCE] += times @ chunk
