"""`BaseFile`: the model that a training goes on with; what every recipe that has one is asked for."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

from linnet.board.words import bounded
from linnet.errors import UsageError
from linnet.gguf.chat_families import chat_format_of
from linnet.gguf.errors import GGUFError
from linnet.gguf.file import GGUFFile
from linnet.recipes.flags import ModelName
from linnet.recipes.text_model_file import TextModelFile

_CTX = 256  # of a sequence, where nobody says


@dataclass(frozen=True)
class BaseOptions:
    """The base and the sequences it is trained on. The fields from `base_name` on are found out when the run starts.

    Args:
        base: A MODEL of text with a tokenizer, quantised or not.
        ctx: Tokens of a sequence; 256 by default. The model keeps the context that it has.
    """

    base: ModelName
    ctx: int | None = None
    base_name: str | None = None
    base_sha256: str | None = None

    @property
    def origin(self) -> dict[str, str]:
        """The base as checkpoints name where their weights come from, as far as it is known."""
        known = {"donor": self.base_name, "donor_sha256": self.base_sha256}
        return {key: value for key, value in known.items() if value is not None}


_Options = TypeVar("_Options", bound=BaseOptions)


class BaseFile(TextModelFile):
    """The file of a base."""

    role = "base"
    adapter_advice = (
        "give that model, and go on with the adapter beside it (`adapter`, of lora), or merge the two first (linnet"
        " merge)"
    )

    def sequence(self, ctx: int | None) -> int:
        """The tokens of a sequence: as many as are asked for, if the base can look back so far."""
        most = self.config.ctx
        if ctx is not None and not 1 <= ctx <= most:
            raise UsageError(f"`ctx` is {ctx}, and the base {self.path} sees {most:,} tokens: choose 1 to {most}")
        return min(_CTX, most) if ctx is None else ctx

    def other_chat_format(self, name: str | None) -> str | None:
        """A format of chats where those of the base are not written so, or in none that is known; else None."""
        with GGUFFile.open(self.file) as file, suppress(GGUFError):
            name = None if chat_format_of(file.metadata).name == name else name
        return name


def known_base(options: _Options, *, force: bool = False) -> _Options:
    """The options with the name and the hash of the base's file; another file than the run began with is refused."""
    if options.base_sha256 is not None and not Path(options.base).exists():
        raise UsageError(
            f"the base {options.base} that the run began with is not there any more: put it back (sha256"
            f" {options.base_sha256})"
        )
    file = BaseFile(options.base)
    digest = file.sha256(options.base_sha256, force=force)
    if options.base_sha256 is not None:
        return options
    return replace(options, base_name=bounded(file.name), base_sha256=digest)


def refuse_shared_weights(values: Mapping[str, Any]) -> None:
    """Refuse to share out weights among ranks where most of them are not trained."""
    if values.get("shard") == "weights":
        raise UsageError(
            "`shard=weights` does not go with an adapter, whose base each rank has: leave it out, or take the moments"
            " (`shard=moments`)"
        )
