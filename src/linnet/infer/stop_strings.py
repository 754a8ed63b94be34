"""Texts at which a generation ends, found as the text comes, wherever its tokens begin and end."""

from __future__ import annotations

from collections.abc import Iterable

from linnet.errors import UsageError


class StopStrings:
    """Passes text on up to the first stop string that is complete in it; that string itself is not passed on.

    The end of the text that could become a stop string is held until it is known. `matched` is the one that was met.
    """

    def __init__(self, stops: Iterable[str]) -> None:
        self._stops = tuple(stops)
        if "" in self._stops:
            raise UsageError("a `stop` string is empty: give a text to stop at")
        self._held = ""
        self.matched: str | None = None

    def add(self, text: str) -> str:
        """Take some text more; what is certain to come before any stop string."""
        if self.matched is not None:
            return ""
        self._held += text
        ends = [(at + len(stop), at, stop) for stop in self._stops if (at := self._held.find(stop)) >= 0]
        if ends:
            _, at, self.matched = min(ends)  # the first that is complete, as if the text came letter by letter
            passed, self._held = self._held[:at], ""
            return passed
        cut = len(self._held) - max((_overlap(self._held, stop) for stop in self._stops), default=0)
        passed, self._held = self._held[:cut], self._held[cut:]
        return passed

    def finish(self) -> str:
        """The text that was held: nothing more comes."""
        passed, self._held = self._held, ""
        return passed


def _overlap(text: str, stop: str) -> int:
    """How many letters at the end of `text` are the beginning of `stop`, less than all of it."""
    longest = min(len(text), len(stop) - 1)
    return next((count for count in range(longest, 0, -1) if text.endswith(stop[:count])), 0)
