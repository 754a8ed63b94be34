"""What can be wrong with a corpus, said so that its owner can act."""

from __future__ import annotations

from linnet.errors import LinnetError


class DataError(LinnetError):
    """A corpus that cannot be read, prepared or trained on as asked."""

    def __init__(self, problem: str) -> None:
        super().__init__(" ".join(problem.split()))


def reason(error: OSError) -> str:
    """What the system said, in its own words."""
    return error.strerror or str(error)
