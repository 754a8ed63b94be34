"""What a model is shown to judge it: the held-out text or images of its run, another corpus, a text of one's own."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from linnet.analysis.checkpoint import Checkpoint
from linnet.board.words import shorten
from linnet.errors import LinnetError, UsageError
from linnet.gguf.file import GGUFFile
from linnet.gguf.tokenizer import donor_keys, rebuild_tokenizer

if TYPE_CHECKING:
    from linnet.data import Prepared, TokenSet
    from linnet.data.images import ImageSet
    from linnet.models import ViTConfig

Progress = Callable[[str, int, int], None]  # of what, how much is done, how much there is

BUILT_IN = "python"  # the corpus that is on every machine
TOKENS = "tokenizer.ggml.tokens"


@dataclass(frozen=True)
class ProbeText:
    """Tokens that models are shown, and what they are, in words."""

    tokens: TokenSet | NDArray[np.int64]
    source: str

    def __len__(self) -> int:
        return len(self.tokens)

    def window(self, begin: int, length: int) -> NDArray[np.int64]:
        """Some of the tokens, one after the other."""
        ids = self.tokens if isinstance(self.tokens, np.ndarray) else self.tokens.tokens
        return np.asarray(ids[begin : begin + length]).astype(np.int64)


def require_probe(
    checkpoint: Checkpoint, *, corpus: str | None = None, text: str | None = None, images: str | None = None
) -> None:
    """Refuse to show text to a model of images, and the other way round."""
    of_text = checkpoint.task == "text"
    names = {"corpus": corpus, "text": text} if not of_text else {"images": images}
    for name, given in names.items():
        if given is not None:
            what, instead = ("is a model of text", "`corpus`") if of_text else ("tells images apart", "`images`")
            raise UsageError(f"{checkpoint.name} {what}: `{name}` says nothing to it; what it is shown is {instead}")


def probe_text(
    checkpoint: Checkpoint,
    *,
    corpus: str | None = None,
    text: str | None = None,
    field: tuple[str, ...] = (),
    cache: Path | None = None,
    progress: Progress | None = None,
) -> ProbeText:
    """What a model of text is shown, in its own tokens.

    A `text` as it is given; a `corpus`, all of it; else what its run held out, or the built-in library where it is of
    no run with a corpus.
    """
    if corpus is not None and text is not None:
        raise UsageError("`corpus` and `text` both say what the model is shown: give one of them")
    model = checkpoint.files.model  # an adapter has the tokens of its base
    with GGUFFile.open(model) as file:
        has_tokens = TOKENS in file.metadata
        tokenizer = rebuild_tokenizer(file.metadata) if has_tokens and text is not None else None
    if not has_tokens:
        raise UsageError(f"{model} has no tokenizer: linnet convert puts one into it (`tokenizer`)")
    if tokenizer is not None and text is not None:
        return ProbeText(np.array(tokenizer.encode(text).ids, np.int64), "the text that was given")
    own = {} if checkpoint.run is None else checkpoint.run.config
    is_own = corpus is None and isinstance(own.get("corpus"), str)
    source = str(corpus or (own["corpus"] if is_own else BUILT_IN))
    reading = reading_of(own if is_own else None, field)
    share = float(own.get("held_out", 0.02)) if is_own else 0.0
    options = {"held_out": share, **reading, "cache": cache or own.get("cache"), "progress": progress}
    try:
        prepared = prepared_text(source, model, None, own if is_own else None, options)
    except LinnetError as error:
        if not is_own or checkpoint.run is None:
            raise
        raise type(error)(f"the held-out text of run {checkpoint.run.id}: {error}; show another, `corpus`") from None
    if is_own and checkpoint.run is not None and len(prepared.held_out) > 1:
        return ProbeText(token_ids(prepared, prepared.held_out), f"the held-out text of {checkpoint.run.id}")
    what = "Python's library" if source == BUILT_IN else source
    return ProbeText(token_ids(prepared, prepared.train), what)


def token_ids(prepared: Prepared, tokens: TokenSet) -> TokenSet | NDArray[np.int64]:
    """The tokens of a set as a model reads them: those of conversations tell besides which of them are trained on."""
    return tokens if prepared.rows == "text" else np.asarray(tokens.tokens[:]).astype(np.int64) % prepared.vocab


def reading_of(own: Mapping[str, Any] | None, field: tuple[str, ...]) -> dict[str, Any]:
    """How a corpus is read: a run's own (`own`: its config) as when it was trained, another one as asked."""
    if own is None:
        return {"field": field}
    return {
        "field": field or own.get("field") or (),
        "dedup": bool(own.get("dedup")),
        "dedup_threshold": own.get("dedup_threshold"),
        "plain": own.get("plain"),
        "rows": own.get("rows"),
        "chat_format": own.get("chat_format") or "auto",
    }


def is_pack(corpus: str, reading: Mapping[str, Any]) -> bool:
    """Is a corpus token ids already?"""
    from linnet.data.corpus import find_corpus

    return find_corpus(corpus, reading["field"], plain=reading.get("plain", False)).is_pack


def prepared_text(
    corpus: str,
    tokenizer: Path | None,
    vocab: int | None,
    trained_with: Mapping[str, Any] | None,
    options: Mapping[str, Any],
) -> Prepared:
    """A corpus in the tokens of a model.

    `tokenizer` is None where the corpus is token ids already. `trained_with`: the config of the run whose own corpus
    this is; it was prepared when the run was trained, and is found again.
    """
    from linnet.data import prepare
    from linnet.gguf.metadata import MetadataBlock

    if tokenizer is None:
        return prepare(corpus, vocab=vocab, **options)
    if trained_with is not None:
        vocab = vocab if vocab is not None else _vocab_of(tokenizer)
        prepared = prepare(corpus, vocab=vocab, tokenizer=trained_with.get("tokenizer"), **options)
        with GGUFFile.open(tokenizer) as file:
            keys = MetadataBlock().copy(file.metadata, donor_keys(file.metadata))
        if prepared.tokenizer_keys is not None and prepared.tokenizer_keys.to_bytes() == keys.to_bytes():
            return prepared
    # Other words than this corpus gives: it is not the one of the run, or has changed since.
    return prepare(corpus, tokenizer=tokenizer, **options)


def _vocab_of(path: Path) -> int:
    with GGUFFile.open(path) as file:
        return int(file.metadata.length(TOKENS))


def probe_images(
    checkpoint: Checkpoint,
    config: ViTConfig,
    *,
    images: str | None = None,
    all: bool = False,
    progress: Progress | None = None,
) -> tuple[ImageSet, str, tuple[str, ...]]:
    """What a vision transformer is shown, with its own numbers of the classes; where from; files that were left out.

    The images that its run held out, or those of another set; `all`: also those it was trained on.
    """
    from linnet.data.images import load_images

    own = {} if checkpoint.run is None else checkpoint.run.config
    source = images or own.get("images")
    if source is None:
        raise UsageError(f"{checkpoint.path} belongs to no run with images of its own: give `images`")
    loaded = load_images(
        str(source),
        size=config.image_size,
        channels=config.num_channels,
        held_out=float(own.get("held_out", 0.2)) if images is None else 0.2,
        progress=progress,
    )
    part = loaded.held_out if not all else _joined(loaded.train, loaded.held_out)
    return renumbered(part, loaded.labels, config, str(source)), str(source), tuple(loaded.skipped)


def _joined(train: ImageSet, held: ImageSet) -> ImageSet:
    from linnet.data.images import ImageSet

    pixels = np.concatenate([train.images_NCHW, held.images_NCHW])
    return ImageSet(pixels, np.concatenate([train.labels_N, held.labels_N]))


def renumbered(part: ImageSet, names: tuple[str, ...], config: ViTConfig, source: str) -> ImageSet:
    """The images with the model's own numbers of their classes, found by name."""
    from linnet.data.images import ImageSet

    known = config.labels or tuple(map(str, range(config.num_classes)))
    for name in (names[number] for number in np.unique(part.labels_N)):
        if name not in known:
            shown = ", ".join(shorten(label, 40) for label in known[:8]) + (" …" if len(known) > 8 else "")
            raise UsageError(f"{source}: the model knows no class {shorten(name, 40)!r}; it tells apart {shown}")
    numbers = np.array([known.index(name) if name in known else -1 for name in names])
    return ImageSet(part.images_NCHW, numbers[part.labels_N])
