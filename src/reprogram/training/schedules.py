"""The learning rate over the steps of a fit."""

import math

from reprogram.training.settings import Schedule


def learning_rate_factor(schedule: Schedule, epoch: int, step: int, epochs: int, steps: int) -> float:
    """What the learning rate is multiplied by at a step of an epoch (both from 0).

    `multistep` drops to a tenth at epochs floor(0.5·E) and floor(0.72·E); `cosine` falls to 0 over all steps; `onecycle`
    rises in equal steps to 1 over a fifth of all steps, and falls from there.

    >>> [learning_rate_factor("multistep", epoch, 0, 200, 10) for epoch in (99, 100, 143, 144)]
    [1.0, 0.1, 0.1, 0.01]
    """
    if schedule == "multistep":
        passed = sum(0 < milestone <= epoch for milestone in (epochs // 2, 18 * epochs // 25))
        return (1.0, 0.1, 0.01)[passed]
    done, total = epoch * steps + step, epochs * steps
    if schedule == "onecycle":
        warm = max(1, total // 5)
        if done < warm:
            return (done + 1) / warm
        done, total = done - warm + 1, total - warm + 1
    return 1.0 if schedule == "constant" else (1 + math.cos(math.pi * done / total)) / 2
