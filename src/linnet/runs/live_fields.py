"""`run.config` and `run.summary`: fields of `run.json` that a program changes while its run goes on."""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Callable, Iterator, Mapping, MutableMapping
from typing import Any

log = logging.getLogger("linnet")


class LiveFields(MutableMapping[str, Any]):
    """A mapping whose changes reach `run.json`, atomically and at most once a second; none of them raises.

    run.summary["best_accuracy"] = 0.97
    run.config.update(vars(args))

    `put` takes the whole new content and may refuse it by raising.
    """

    def __init__(self, get: Callable[[], Mapping[str, Any]], put: Callable[[dict[str, Any]], None]) -> None:
        self._get, self._put = get, put

    def __getitem__(self, name: str) -> Any:
        return self._get()[name]

    def __iter__(self) -> Iterator[str]:
        return iter(tuple(self._get()))

    def __len__(self) -> int:
        return len(self._get())

    def __setitem__(self, name: str, value: Any) -> None:
        self._put({**self._get(), str(name): value})

    def __delitem__(self, name: str) -> None:
        self._put({key: value for key, value in self._get().items() if key != name})

    def update(self, given: object = None, /, **values: Any) -> None:
        """Set several at once: from a mapping, a dataclass, argparse's result, or as keyword arguments.

        W&B's `allow_val_change` is understood and not needed.
        """
        values.pop("allow_val_change", None)
        self._put({**self._get(), **fields_of(given), **values})

    def __repr__(self) -> str:
        return repr(dict(self._get()))


def fields_of(given: object) -> dict[str, Any]:
    """Settings in whatever form a program has them: a mapping, a dataclass, the result of argparse."""
    if given is None:
        return {}
    if isinstance(given, Mapping):
        return {str(name): value for name, value in given.items()}
    if dataclasses.is_dataclass(given):
        return {field.name: getattr(given, field.name) for field in dataclasses.fields(given)}
    try:
        return dict(vars(given))
    except TypeError:
        log.warning("a config of type %s is not understood and left out", type(given).__name__)
        return {}
