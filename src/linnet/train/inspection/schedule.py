"""`InspectSchedule`: what `--inspect` asks for, and at which steps."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache

from linnet.errors import UsageError, suggestion

# What can be looked at, and what each tells of.
GROUPS: Mapping[str, str] = {
    "taps": "activations",
    "gram": "similarity of activations",
    "grads": "gradients",
    "drift": "distance from the first weights",
    "regions": "time by part of the model",
    "ops": "time by operation",
}
_ALL = "all"
_TIMES, _LEAST = 50, 10  # by default so often in a run, and not more often than every so many steps
_EXAMPLE = "write it like taps,grads,drift@100"


@dataclass(frozen=True)
class InspectSchedule:
    """Which groups are looked at, and the steps between two looks at each; None: it follows from the run's length."""

    every: Mapping[str, int | None]

    @classmethod
    @lru_cache(maxsize=16)
    def parse(cls, text: str) -> InspectSchedule:
        """Read what people write: names after commas, `@` and steps behind one or several of them, or `all`.

        Steps count for the names before them that have none: `taps@50,grads,drift@500` looks at gradients every 500.
        """
        every: dict[str, int | None] = {}
        waiting: list[str] = []  # names that no steps were given for yet
        for word in text.split(","):
            name, at, steps = word.strip().partition("@")
            names = tuple(GROUPS) if name == _ALL else (name,)
            if not name:
                raise UsageError(f"`inspect` {text!r} has an empty name; {_EXAMPLE}")
            for group in names:
                if group not in GROUPS:
                    raise UsageError(f"`inspect`: there is no {group!r}{suggestion(group, (*GROUPS, _ALL))}")
                if group in every:
                    raise UsageError(f"`inspect` {text!r} names {group} twice; name it once")
                every[group] = None
            waiting += names
            if at:
                every |= dict.fromkeys(waiting, _steps(steps, text))
                waiting = []
        return cls(every)

    def due(self, step: int, *, first: int, last: int) -> frozenset[str]:
        """The groups that are looked at in a step: the first of a run, the last, and every so many between.

        `first`: the step before the run's own first one, 0 unless it is a fork.
        """
        if step in (first + 1, last):
            return frozenset(self.every)
        usual = max(_LEAST, (last - first) // _TIMES)
        return frozenset(group for group, every in self.every.items() if step % (every or usual) == 0)

    def looks(self, group: str, *, first: int, last: int, done: int = 0) -> int:
        """How often a group is looked at after the steps that are done."""
        if group not in self.every:
            return 0
        every = self.every[group] or max(_LEAST, (last - first) // _TIMES)
        edges = {first + 1, last} - {step for step in (first + 1, last) if step % every == 0 or step <= done}
        return max(0, last // every - done // every) + len(edges)


def look_bytes(group: str, layers: int, heads: int) -> int:
    """About how many bytes of events a look at a group writes, by layers, and heads of queries, keys and values."""
    of_layer = {"taps": 5_300, "gram": 24_000, "grads": 1_500 + 320 * heads, "drift": 1_100 + 260 * heads}
    of_layer |= {"regions": 2_900, "ops": 0}
    besides = {"taps": 2_000, "drift": 30_000, "ops": 400}
    return min(of_layer[group] * layers, 260_000 if group == "gram" else 1 << 62) + besides.get(group, 0)


def _steps(text: str, whole: str) -> int:
    try:
        steps = int(text)
    except ValueError:
        steps = 0
    if steps < 1:
        raise UsageError(f"`inspect` {whole!r}: behind @ stand the steps between two looks, 1 or more; {_EXAMPLE}")
    return steps
