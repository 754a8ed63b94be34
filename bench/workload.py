"""What every benchmark logs: five scalars a step, with all their digits."""

import math
import random
from collections.abc import Iterator

NAMES = ("loss", "lr", "grad_norm", "tokens_per_s", "acc")
Row = tuple[float, float, float, float, float]

_PERIOD = 4096  # a power of two, so that picking a row in a timed loop is one `&`


def rows() -> list[Row]:
    """The same `_PERIOD` rows each time; `pick` walks round them."""
    noise = random.Random(20260531)
    return [
        (
            2.0 + 8.0 * math.exp(-step / 900) + noise.gauss(0, 0.05),
            3e-4 * (0.1 + 0.45 * (1 + math.cos(math.pi * step / _PERIOD))),
            abs(noise.gauss(1.0, 0.3)),
            noise.gauss(41_000, 900),
            min(1.0, step / _PERIOD * noise.random()),
        )
        for step in range(_PERIOD)
    ]


SPIKES = frozenset(random.Random(20).sample(range(1, 1_000_001), 20))  # steps of `spiked`
SPIKE = 100.25  # among losses of 2 to 10; no number like it is sent for anything else


def spiked(steps: int) -> Iterator[tuple[int, float]]:
    """(step, loss) for steps 1 to `steps`; those of `SPIKES` stand out for a single step."""
    for step, row in walk(steps):
        yield step, SPIKE if step in SPIKES else row[0]


def walk(steps: int) -> Iterator[tuple[int, Row]]:
    """(step, row) for steps 1 to `steps`."""
    table = rows()
    for step in range(1, steps + 1):
        yield step, table[step & (_PERIOD - 1)]
