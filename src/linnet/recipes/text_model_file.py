"""`TextModelFile`: a GGUF that a training needs besides its data, checked by its head before anything is made."""

from __future__ import annotations

import os
from functools import cached_property
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from linnet.architectures import task_of
from linnet.board.words import bounded
from linnet.errors import UsageError
from linnet.files import sha256_of
from linnet.gguf import GGUFFile, resolve_link
from linnet.gguf.card import read_card
from linnet.models import config_of
from linnet.recipes.job import weights_of_layers

if TYPE_CHECKING:
    from linnet.models import Config

TOKENS = "tokenizer.ggml.tokens"
_NO_MODELS = {
    "lens": "a lens, which knows no language",
    "vocabulary": "a tokenizer without a model",
    "mmproj": "a model of images, which knows no language",
}


class TextModelFile:
    """The file of a text model with a tokenizer, quantised or not. `role`: what it is to the training."""

    role: ClassVar[str] = "model"
    adapter_advice: ClassVar[str] = "merge the two first (linnet merge)"  # where the file is an adapter

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        if not self.path.exists():
            raise UsageError(f"`{self.role}`: there is no file {self.path}: give a GGUF file or a RUN")
        self.file = resolve_link(self.path) if self.path.is_symlink() else self.path
        card = read_card(self.file)
        self.name = card.name or self.path.name
        if card.kind == "adapter":
            made_for = bounded(card.adapter.base) if card.adapter is not None and card.adapter.base else "another model"
            raise UsageError(
                f"the {self.role} {self.path} is an adapter, which changes {made_for} and knows nothing by itself:"
                f" {self.adapter_advice}"
            )
        if card.kind in _NO_MODELS:
            raise self._refused(_NO_MODELS[card.kind])
        if task_of(card.arch) == "images" or card.arch == "clip":
            raise self._refused(_NO_MODELS["mmproj"])
        if card.tokenizer is None or not card.tokenizer.tokens:
            raise UsageError(
                f"the {self.role} {self.path} has no tokenizer, so nobody knows what its tokens are: take a GGUF that"
                " has one (linnet convert --tokenizer gives it one)"
            )

    @cached_property
    def config(self) -> Config:
        """Its shape."""
        with GGUFFile.open(self.file) as file:
            return config_of(file, task="text")

    @cached_property
    def tokens(self) -> tuple[str, ...]:
        """The texts of its tokens, in the order of their ids."""
        with GGUFFile.open(self.file) as file:
            tokens: Any = file.metadata[TOKENS]
            return tuple(tokens)

    def sha256(self, recorded: str | None = None, *, force: bool = False) -> str:
        """The file's SHA-256; another than the run began with is refused, unless `force` says so."""
        digest = sha256_of(self.file)
        if recorded not in (None, digest) and not force:
            raise UsageError(
                f"the {self.role} {self.path} is another file than the run began with: put that one back (sha256"
                f" {recorded}), or go on all the same with `force`"
            )
        return digest

    @cached_property
    def sizes(self) -> tuple[int, int]:
        """How many numbers its matrices have, and its vectors."""
        with GGUFFile.open(self.file) as file:
            shapes = [tensor.shape for tensor in file.tensors.values()]
        matrices, vectors = (
            sum(prod(shape) for shape in shapes if (len(shape) > 1) is several) for several in (True, False)
        )
        return matrices, vectors

    @property
    def layer_weights(self) -> int:
        """Numbers of its blocks."""
        return weights_of_layers(self.config)

    def _refused(self, what: str) -> UsageError:
        return UsageError(f"the {self.role} {self.path} is {what}; expected a language model as a GGUF file")
