"""`Donor`: a GGUF that a new model begins with, open and checked; the principal axes of its embedding.

What is wrong with one is a `DonorError`.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from linnet.errors import UsageError
from linnet.gguf import GGUFError, GGUFFile, read_params, resolve_link
from linnet.gguf.errors import quoted
from linnet.gguf.pretokenizers import PRES
from linnet.models import LlamaConfig, config_of

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from linnet.gguf import TensorInfo

_WIDTH = "llama.embedding_length"
_TABLE = "token_embd.weight"
_SQUARE = 1 << 22  # numbers of a covariance that is always worth it
_ROWS = 4096  # at a time: 19 MB of float64 for a donor 576 wide


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
        donor.width, donor.config
        rows = donor.table(49152)

    `of_run`: the file was found as a run's checkpoint, by the run's name.
    """

    def __init__(self, path: str | os.PathLike[str], *, of_run: bool = False) -> None:
        self.path, self._of_run = Path(path), of_run
        if not self.path.exists() and not self.path.is_symlink():
            raise DonorError("donor GGUF not found", path=path, expected="a GGUF file", found="nothing of that name")
        self._is_link = self.path.name in ("latest", "best")  # of a run
        with donor_errors():
            self.file = GGUFFile.open(resolve_link(self.path) if self._is_link else self.path)
        self.closed = False
        try:
            self.width = self._width()
        except BaseException:
            self.file.close()
            raise

    @property
    def name(self) -> str:
        """What the file calls itself; its own name where it does not."""
        with donor_errors():
            return self.file.metadata.text("general.name") or self.file.path.name

    @property
    def source(self) -> str:
        """The file's name; of a run's checkpoint that was not named by its path, the model's name before it."""
        return f"{self.name}/{self.file.path.name}" if self._is_link or self._of_run else self.path.name

    @cached_property
    def config(self) -> LlamaConfig:
        """The donor's shape."""
        with donor_errors():
            config = config_of(self.file, task="text")
        if not isinstance(config, LlamaConfig):  # a file of both kinds of keys
            place = "metadata 'general.architecture'"
            raise self.error("the donor is not of the llama family", place, "llama", config.arch)
        return config

    @property
    def metadata(self) -> dict[str, object]:
        """The keys of its tokenizer; its lists of tokens and of their types are such lists."""
        with donor_errors():
            for key, kind in (("tokenizer.ggml.tokens", str), ("tokenizer.ggml.token_type", int)):
                values = self.file.metadata.get(key, ())
                if not isinstance(values, tuple) or not all(isinstance(value, kind) for value in values):
                    expected, found = f"an array of {kind.__name__}", self.file.metadata.label(key)
                    raise self.error("the type is wrong", f"metadata {quoted(key)}", expected, found)
            return {key: self.file.metadata[key] for key in self.file.metadata if key.startswith("tokenizer.")}

    @property
    def pre(self) -> str | None:
        """How its tokenizer splits text into words before the merges; None where it is of another kind."""
        with donor_errors():
            name = self.file.metadata.text("tokenizer.ggml.pre")
        return next((pre.name for pre in PRES if name in (pre.name, *pre.aliases)), None)

    @property
    def embedding(self) -> TensorInfo:
        """`token_embd.weight`, to be read in parts: [rows, width]."""
        tensor = self.file.tensors.get(_TABLE)
        if tensor is None:
            found = f"{len(self.file.tensors)} tensors without it"
            raise self.error("the donor has no embedding", f"tensor {quoted(_TABLE)}", "rows of its width", found)
        if len(tensor.shape) != 2 or tensor.shape[1] != self.width:
            expected, found = f"[rows, {self.width}], as {_WIDTH} says", str(list(tensor.shape))
            raise self.error("the donor's embedding is of another width", f"tensor {quoted(_TABLE)}", expected, found)
        return tensor

    def table(self, rows: int | None = None) -> NDArray[np.float32]:
        """The first rows of its embedding, or all, as float32; every one is a usable row."""
        tensor = self.embedding
        n_rows = tensor.shape[0] if rows is None else rows
        if tensor.shape[0] < n_rows:
            raise self.error(
                "the donor has fewer rows than the vocabulary",
                f"tensor {quoted(_TABLE)}",
                f"{n_rows:,} rows or more",
                f"{tensor.shape[0]:,}; map them by the tokens' text (`tokens`), or take the donor's tokenizer",
            )
        with donor_errors():
            table = tensor.read(slice(0, n_rows))
        check_rows(table, self.path)
        return table

    def parameters(self) -> Iterator[tuple[str, NDArray[np.float32]]]:
        """Its parameters by our names, one at a time."""
        _ = self.embedding  # an unfolded lens, or another fault of the table, is found here
        with donor_errors():
            for name, array in read_params(self.file):
                if not np.isfinite(array).all():
                    wrong = f"{int((~np.isfinite(array)).sum()):,} that are NaN or infinite"
                    raise self.error("the donor has weights that are not finite", f"parameter {name}", "finite", wrong)
                yield name, array

    def sha256(self) -> str:
        """The hash of the file, to know it again."""
        with self.file.path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()

    def close(self) -> None:
        """Close the file."""
        if not self.closed:
            self.closed = True
            self.file.close()

    def __enter__(self) -> Donor:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def error(self, problem: str, place: str, expected: str, found: str) -> DonorError:
        """What is wrong with this donor."""
        return DonorError(problem, path=self.path, place=place, expected=expected, found=found)

    def _width(self) -> int:
        width = self.file.metadata.get(_WIDTH)
        if isinstance(width, bool) or not isinstance(width, int) or width < 1:
            arch = quoted(self.file.architecture) if self.file.architecture else "no architecture"
            found = f"{arch} without it" if width is None else ascii(width)[:40]
            problem = "the donor states no width; is it of the llama family?"
            raise self.error(problem, f"metadata {quoted(_WIDTH)}", "a whole number from 1", found)
        return width


def check_rows(table_VW: NDArray[np.float32], path: str | os.PathLike[str] | None = None) -> None:
    """Refuse rows with numbers that are not finite, and rows of zeros: a token there could never be told apart."""
    faults = (
        ("numbers that are not finite", ~np.isfinite(table_VW).all(1)),
        ("nothing but zeros", ~table_VW.any(1)),
    )
    for fault, bad_V in faults:
        rows = np.flatnonzero(bad_V)
        if len(rows):
            shown = ", ".join(map(str, rows[:4])) + (", …" if len(rows) > 4 else "")
            raise DonorError(
                f"the donor's embedding has rows with {fault}",
                path=path,
                place=f"tensor {quoted(_TABLE)}",
                expected="a row of its own for every token",
                found=f"{len(rows):,} such among {len(table_VW):,} ({shown})",
            )


@dataclass(frozen=True)
class Axes:
    """The directions in which a table's rows differ most, and the share of their variance that lies in them."""

    proj_DW: NDArray[np.float32]  # orthonormal rows, the widest direction first
    mean_W: NDArray[np.float32]  # of the table's rows
    explained: float


def principal_axes(table_VW: NDArray[np.float32] | TensorInfo, d_model: int) -> Axes:
    """The first `d_model` principal axes of a table [V, W], in float64, from its covariance; the same bits every time.

    The table is passed once, in parts.
    """
    V, W = table_VW.shape
    if d_model > W:
        raise UsageError(
            f"a donor {W} wide has {W} principal axes, and a model {d_model} wide needs as many: choose `d_model={W}`"
            " or less, or `init=warm`"
        )
    if W * W > _SQUARE + 64 * V * W:  # the work is that of the square, which a small file can make as large as it likes
        raise UsageError(
            f"a table of {V:,} rows, each {W:,} wide, says too little about its axes: take a donor of more rows"
        )
    squares_WW, sum_W = np.zeros((W, W)), np.zeros(W)
    for start in range(0, V, _ROWS):
        rows = slice(start, min(start + _ROWS, V))
        part = table_VW[rows] if isinstance(table_VW, np.ndarray) else table_VW.read(rows)
        part = part.astype(np.float64)
        squares_WW += part.T @ part
        sum_W += part.sum(0)
    mean_W = sum_W / V
    variances_W, axes_WW = np.linalg.eigh(squares_WW / V - np.outer(mean_W, mean_W))  # the narrowest first
    proj_DW = axes_WW.T[::-1][:d_model]
    # An axis has no front and no back: the largest of its numbers is made positive.
    largest_D = np.abs(proj_DW).argmax(1)
    proj_DW = proj_DW * np.sign(proj_DW[np.arange(d_model), largest_D])[:, None]
    total = float(np.clip(variances_W, 0, None).sum())
    kept = float(np.clip(variances_W[::-1][:d_model], 0, None).sum())
    explained = kept / total if total else 0.0
    return Axes(proj_DW.astype(np.float32), mean_W.astype(np.float32), explained)
