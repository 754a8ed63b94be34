"""The errors a user can meet: one line that names the thing, what was expected, what was found, what to do."""

from __future__ import annotations

from collections.abc import Iterable


class LinnetError(Exception):
    """Base of every error that is the user's to read; the command line prints it without a traceback.

    A message names fields in backticks, with a value where one is advised: `lr`, `device=cpu`. That is what a Python
    program can set; the command line says them as flags (`linnet.board.words.flags`).
    """

    exit_code = 1

    def _render_traceback_(self) -> list[str]:
        """What IPython shows in a notebook: the one line that is meant for the user, without the stack above it."""
        from linnet.display import plain

        return [f"{type(self).__name__}: {plain(self)}"]


class UsageError(LinnetError):
    """The words of a command or a call do not fit together."""

    exit_code = 2


def error_text(error: BaseException) -> str:
    """What an error says, as a part of a message; another library's without backticks, which name fields in ours."""
    return str(error) if isinstance(error, LinnetError) else str(error).replace("`", "'")


def mismatch(error: Exception) -> str:
    """What msgspec says of a value of another type, without its backticks: `expected array, found int`."""
    return str(error).replace("`", "").replace("Expected", "expected").replace(", got", ", found")


# Packages that the base install does not have, and the extra that brings each of them.
_EXTRAS = {
    "torch": "train",
    "safetensors": "train",
    "tokenizers": "train",
    "PIL": "vision",
    "sklearn": "vision",
    "pyarrow": "parquet",
    "xllamacpp": "serve",
    "starlette": "web",
    "uvicorn": "web",
    "watchfiles": "web",
}


def missing_extra(error: ModuleNotFoundError, what: str) -> str | None:
    """One line about a package that an extra brings, for who asked for `what`; None for any other module."""
    if error.name not in _EXTRAS:
        return None
    needed = f"{what} needs the package {error.name}, which is not installed"
    return f"{needed}: pip install 'linnet[{_EXTRAS[error.name]}]'"


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


def near_words(word: str, known: Iterable[str], count: int = 1, *, cutoff: float = 0.5) -> list[str]:
    """The words that may have been meant by one that is not known, the nearest first.

    `cutoff`: how alike they must be, from 0 to 1; more for flags, of which many look alike and most are not meant.
    """
    import difflib

    return difflib.get_close_matches(word, list(known), n=count, cutoff=cutoff)


def suggestion(word: str, known: Iterable[str]) -> str:
    """The end of an error about a word that is not known: what may have been meant, or all there is."""
    known = list(known)
    close = near_words(word, known)
    return f"; did you mean {close[0]}?" if close else f"; choose from {', '.join(known)}"
