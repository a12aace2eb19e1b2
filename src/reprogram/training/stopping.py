"""When validation has seen enough of a training."""

from collections.abc import Callable
from typing import Any

Enough = Callable[[list[dict[str, Any]]], bool]


def enough_after(patience: int, start: float | None = None) -> Enough:
    """End when the best validation accuracy is `patience` measured epochs old.

    Args:
        patience: how many measured epochs may bring nothing better.
        start: an accuracy from before the first epoch, which has to be exceeded, too.

    >>> records = [{"accuracy": {"val": value}} for value in (0.7, 0.9, 0.8, 0.9, 0.9)]
    >>> [enough_after(2, 0.8)(records[:epochs]) for epochs in (2, 3, 4, 5)]
    [False, False, True, True]
    >>> [enough_after(2)(records[:epochs]) for epochs in (1, 2, 3, 4)]
    [False, False, False, True]
    """

    def enough(records: list[dict[str, Any]]) -> bool:
        best, age = start, 0
        values = [record["accuracy"]["val"] for record in records]
        for value in values:
            if value is not None:
                best, age = (value, 0) if best is None or value > best else (best, age + 1)
        return age >= patience and bool(values) and values[-1] is not None

    return enough
