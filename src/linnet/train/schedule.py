"""The learning rate of each step: a pure function, so that a resumed run finds it again."""

from __future__ import annotations

import math

from linnet.train.settings import TrainSettings


def learning_rate(settings: TrainSettings, step: int) -> float:
    """The rate of a step, counted from 0: a linear rise, then constant, a cosine, or a plateau and a fall (wsd)."""
    top, least, warmup, steps = settings.lr, settings.least_lr, settings.warmup_steps, settings.steps
    if step < warmup:
        return top * (step + 1) / warmup
    if settings.schedule == "constant":
        return top
    if settings.schedule == "cosine":
        if steps <= warmup:
            return least
        progress = min(1.0, (step - warmup) / (steps - warmup))
        return least + 0.5 * (top - least) * (1 + math.cos(math.pi * progress))
    falling = max(1, round(settings.decay * steps))
    progress = max(0.0, min(1.0, (step - (steps - falling)) / falling))
    return top + (least - top) * progress
