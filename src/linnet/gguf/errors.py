"""What can be wrong with a GGUF file, said so that its owner can act."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

from linnet.errors import LinnetError
from linnet.files import FileError


class GGUFError(LinnetError):
    """A GGUF file that cannot be read, or cannot be written as asked.

    The message is one line: the file, the place in it, what is wrong, what was expected and what was found.
    Each of them is also a field, so that a caller need not take the line apart.
    """

    def __init__(
        self,
        problem: str,
        place: str = "",
        expected: str = "",
        found: str = "",
        path: str | os.PathLike[str] | None = None,
    ) -> None:
        super().__init__(problem)
        self.problem = problem
        self.path = None if path is None else os.fspath(path)
        self.place = place
        self.expected = expected
        self.found = found

    def __str__(self) -> str:
        line = ": ".join(part for part in (self.path, self.place, self.problem) if part)
        if self.expected:
            line += f"; expected {self.expected}"
        if self.found:
            line += f"{',' if self.expected else ';'} found {self.found}"
        return " ".join(line.split())


@contextmanager
def file_errors_as_gguf() -> Iterator[None]:
    """Raise what the floor says of a file as a GGUFError, with the same words."""
    try:
        yield
    except FileError as error:
        raise GGUFError(error.problem, error.place, error.expected, error.strerror or "", path=error.filename) from None


def quoted(name: str | bytes) -> str:
    """A name out of a file, safe to print: escaped, and cut when somebody made it a page long."""
    text = name.decode("utf-8", "backslashreplace") if isinstance(name, bytes) else name
    return ascii(text if len(text) <= 80 else text[:77] + "...")
