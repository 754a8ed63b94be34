"""The errors a user can meet: one line that names the thing, what was expected, what was found, what to do."""

from __future__ import annotations

from collections.abc import Iterable


class LinnetError(Exception):
    """Base of every error that is the user's to read; the command line prints it without a traceback.

    A message names fields in backticks, with a value where one is advised: `lr`, `device=cpu`. That is what a Python
    program can set; the command line says them as flags (`linnet.board.words.flags`).
    """

    exit_code = 1


class UsageError(LinnetError):
    """The words of a command or a call do not fit together."""

    exit_code = 2


def mismatch(error: Exception) -> str:
    """What msgspec says of a value of another type, without its backticks: `expected array, found int`."""
    return str(error).replace("`", "").replace("Expected", "expected").replace(", got", ", found")


# What the RuntimeErrors of torch's allocators say, by device.
_ALLOCATOR_WORDS = (
    "DefaultCPUAllocator",
    "Storage size calculation overflowed",
    "out of memory",
    "std::bad_alloc",
    "Invalid buffer size",
)


def is_out_of_memory(error: BaseException) -> bool:
    """Does an error mean that there was too little memory? numpy's and torch's are known without loading either."""
    if not isinstance(error, RuntimeError):
        return isinstance(error, MemoryError)
    return type(error).__name__ == "OutOfMemoryError" or any(words in str(error) for words in _ALLOCATOR_WORDS)


def suggestion(word: str, known: Iterable[str]) -> str:
    """The end of an error about a word that is not known: what may have been meant, or all there is."""
    import difflib

    known = list(known)
    close = difflib.get_close_matches(word, known, n=1, cutoff=0.5)
    return f"; did you mean {close[0]}?" if close else f"; choose from {', '.join(known)}"
