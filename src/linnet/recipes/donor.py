"""`Donor`: a GGUF that a new model begins with, open and checked. What is wrong with one is a `DonorError`."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING

import numpy as np

from linnet.gguf import GGUFError, GGUFFile, read_params, resolve_link
from linnet.gguf.errors import quoted
from linnet.models import LlamaConfig, config_of

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from linnet.gguf import TensorInfo

_WIDTH = "llama.embedding_length"
_TABLE = "token_embd.weight"
_BLOCK = 1 << 22


class DonorError(GGUFError):
    """A donor that cannot be used as asked: which file, what was expected, what was found."""


@contextmanager
def donor_errors() -> Iterator[None]:
    """Raise what is wrong with a GGUF file as a DonorError with the same words."""
    try:
        yield
    except DonorError:
        raise
    except GGUFError as error:
        raise DonorError(
            error.problem, path=error.path, place=error.place, expected=error.expected, found=error.found
        ) from None


class Donor:
    """An open donor of the llama family, of any file type.

    with Donor("donor.gguf") as donor:
        donor.width, donor.vocab, donor.config
        rows = donor.table(49152)
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        if not self.path.exists() and not self.path.is_symlink():
            raise DonorError("donor GGUF not found", path=path, expected="a GGUF file", found="nothing of that name")
        self._is_link = self.path.name in ("latest", "best")  # of a run
        with donor_errors():
            self._file = GGUFFile.open(resolve_link(self.path) if self._is_link else self.path)
        self.closed = False
        try:
            self.width = self._width()
        except BaseException:
            self._file.close()
            raise

    @property
    def file(self) -> GGUFFile:
        """The open file, for whoever reads its tokenizer."""
        return self._file

    @property
    def name(self) -> str:
        """What the file calls itself; its own name where it does not."""
        with donor_errors():
            return self._file.metadata.text("general.name") or self._file.path.name

    @property
    def source(self) -> str:
        """The file's name; of a run's `latest` or `best` the model's name and the checkpoint that is meant."""
        return f"{self.name}/{self._file.path.name}" if self._is_link else self.path.name

    @cached_property
    def config(self) -> LlamaConfig:
        """The donor's shape."""
        with donor_errors():
            config = config_of(self._file, task="text")
        if not isinstance(config, LlamaConfig):  # a file of both kinds of keys
            place = "metadata 'general.architecture'"
            raise self._error("the donor is not of the llama family", place, "llama", config.arch)
        return config

    @property
    def metadata(self) -> dict[str, object]:
        """The keys of its tokenizer; its lists of tokens and of their types are such lists."""
        with donor_errors():
            for key, kind in (("tokenizer.ggml.tokens", str), ("tokenizer.ggml.token_type", int)):
                values = self._file.metadata.get(key, ())
                if not isinstance(values, tuple) or not all(isinstance(value, kind) for value in values):
                    expected, found = f"an array of {kind.__name__}", self._file.metadata.label(key)
                    raise self._error("the type is wrong", f"metadata {quoted(key)}", expected, found)
            return {key: self._file.metadata[key] for key in self._file.metadata if key.startswith("tokenizer.")}

    @property
    def tokens(self) -> tuple[str, ...] | None:
        """The texts of its tokens, as the file spells them; None where it has no vocabulary."""
        with donor_errors():
            found = self._file.metadata.get("tokenizer.ggml.tokens")
        return tuple(map(str, found)) if isinstance(found, tuple) else None

    @property
    def embedding(self) -> TensorInfo:
        """`token_embd.weight`, to be read in parts: [rows, width]."""
        tensor = self._file.tensors.get(_TABLE)
        if tensor is None:
            found = f"{len(self._file.tensors)} tensors without it"
            raise self._error("the donor has no embedding", f"tensor {quoted(_TABLE)}", "rows of its width", found)
        if len(tensor.shape) != 2 or tensor.shape[1] != self.width:
            expected, found = f"[rows, {self.width}], as {_WIDTH} says", str(list(tensor.shape))
            raise self._error("the donor's embedding is of another width", f"tensor {quoted(_TABLE)}", expected, found)
        return tensor

    def table(self, rows: int | None = None) -> NDArray[np.float32]:
        """The first rows of its embedding, or all, as float32; every one is a usable row."""
        tensor = self.embedding
        wanted = tensor.shape[0] if rows is None else rows
        if tensor.shape[0] < wanted:
            raise self._error(
                "the donor has fewer rows than the vocabulary",
                f"tensor {quoted(_TABLE)}",
                f"{wanted:,} rows or more",
                f"{tensor.shape[0]:,}; map them by the tokens' text (`tokens`), or take the donor's tokenizer",
            )
        with donor_errors():
            table = tensor.read(slice(0, wanted))
        check_rows(table, self.path)
        return table

    def parameters(self) -> Iterator[tuple[str, NDArray[np.float32]]]:
        """Its parameters by our names, one at a time."""
        _ = self.embedding  # an unfolded lens, or another fault of the table, is found here
        with donor_errors():
            for name, array in read_params(self._file):
                if not np.isfinite(array).all():
                    found = f"{int((~np.isfinite(array)).sum()):,} that are not"
                    raise self._error("the donor has numbers to avoid", f"parameter {name}", "finite numbers", found)
                yield name, array

    def sha256(self) -> str:
        """The hash of the file, to know it again."""
        digest = hashlib.sha256()
        with self._file.path.open("rb") as file:
            while block := file.read(_BLOCK):
                digest.update(block)
        return digest.hexdigest()

    def close(self) -> None:
        """Close the file."""
        if not self.closed:
            self.closed = True
            self._file.close()

    def __enter__(self) -> Donor:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _width(self) -> int:
        width = self._file.metadata.get(_WIDTH)
        if isinstance(width, bool) or not isinstance(width, int) or width < 1:
            arch = quoted(self._file.architecture) if self._file.architecture else "no architecture"
            found = f"{arch} without it" if width is None else ascii(width)[:40]
            problem = "the donor states no width; is it of the llama family?"
            raise self._error(problem, f"metadata {quoted(_WIDTH)}", "a whole number from 1", found)
        return width

    def _error(self, problem: str, place: str, expected: str, found: str) -> DonorError:
        return DonorError(problem, path=self.path, place=place, expected=expected, found=found)


def check_rows(table_VW: NDArray[np.float32], path: str | os.PathLike[str] | None = None) -> None:
    """Refuse rows with numbers that are not finite, and rows of zeros: a token there could never be told apart."""
    faults = (
        ("numbers that are not finite", ~np.isfinite(table_VW).all(1)),
        ("nothing but zeros", ~table_VW.any(1)),
    )
    for what, bad_V in faults:
        rows = np.flatnonzero(bad_V)
        if len(rows):
            shown = ", ".join(map(str, rows[:4])) + (", …" if len(rows) > 4 else "")
            raise DonorError(
                f"the donor's embedding has rows with {what}",
                path=path,
                place=f"tensor {quoted(_TABLE)}",
                expected="a row of its own for every token",
                found=f"{len(rows):,} such among {len(table_VW):,} ({shown})",
            )
