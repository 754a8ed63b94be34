"""What a GGUF file is, on one card: architecture, sizes, types, tokenizer, where it comes from."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from linnet.architectures.registry import ARCHITECTURES
from linnet.gguf.chat_families import family_of_template
from linnet.gguf.file import GGUFFile
from linnet.gguf.metadata import Metadata, Scalar
from linnet.gguf.tensor import FILE_TYPES

# Sizes that are shown, in this order; those of an architecture that is not ours too, since llama.cpp's keys are alike.
_SHOWN = (
    *("ctx", "d_model", "n_layers", "d_ff", "n_heads", "n_kv", "head_dim", "vocab", "rope_base"),
    *("image_size", "patch_size", "num_classes", "experts"),
)
_KEYS = {key.field: key.name for described in ARCHITECTURES.values() for key in described.keys if key.field}
_KEYS["experts"] = "expert_count"
_ORIGIN = ("general.run_id", "general.step", "general.organization", "general.license", "general.finetune")
_MARKS = ("bos", "eos", "eot", "unknown", "padding")


@dataclass(frozen=True)
class TypeShare:
    """How much of a file is of one type."""

    type: str
    tensors: int
    values: int
    bytes: int


@dataclass(frozen=True)
class TokenizerCard:
    """The tokenizer in a file; `marks` are its special ids (`bos`, `eos`, …).

    `chat_format`: of the chat template; None: there is none, or in a format that is not known.
    """

    model: str
    pre: str
    tokens: int
    merges: int
    marks: dict[str, int]
    add_bos: bool | None
    chat_template: bool
    chat_format: str | None = None


@dataclass(frozen=True)
class AdapterCard:
    """What an adapter changes, and of which base."""

    rank: int
    alpha: float
    targets: tuple[str, ...]
    base: str
    base_sha256: str


@dataclass(frozen=True)
class Card:
    """A file at a glance; `sizes` has our words (`d_model`), `provenance` the file's own keys."""

    path: Path
    bytes: int
    version: int
    arch: str
    kind: str  # model, adapter, lens, vocabulary
    name: str
    file_type: str
    parameters: int
    tensors: int
    tied: bool | None  # None: the question does not arise
    sizes: dict[str, int | float]
    types: tuple[TypeShare, ...]
    tokenizer: TokenizerCard | None
    provenance: dict[str, Scalar]
    adapter: AdapterCard | None = None


def read_card(path: str | os.PathLike[str]) -> Card:
    """Read the card of a file. Long arrays are counted, not decoded, and no tensor is read."""
    with GGUFFile.open(path) as file:
        metadata, arch = file.metadata, file.architecture
        embedding = file.tensors.get("token_embd.weight")
        stated = {word: metadata.get(f"{arch}.{_KEYS[word]}") for word in _SHOWN}
        sizes = {
            word: size for word, size in stated.items() if isinstance(size, int | float) and not isinstance(size, bool)
        }
        if embedding is not None and len(embedding.shape) == 2:
            sizes["vocab"] = embedding.shape[0]
        return Card(
            path=file.path,
            bytes=file.size,
            version=file.version,
            arch=arch,
            kind=_kind(file),
            name=_text(metadata, "general.name"),
            file_type=_file_type(file),
            parameters=sum(tensor.values for tensor in file.tensors.values()),
            tensors=len(file.tensors),
            tied="output.weight" not in file.tensors if embedding is not None else None,
            sizes=sizes,
            types=_types(file),
            tokenizer=_tokenizer(metadata),
            provenance=_provenance(metadata),
            adapter=_adapter(file) if _kind(file) == "adapter" else None,
        )


def _adapter(file: GGUFFile) -> AdapterCard:
    """By the tensors' names and shapes; none is read."""
    metadata, alpha = file.metadata, file.metadata.get("adapter.lora.alpha")
    pairs = {name: tensor for name, tensor in file.tensors.items() if name.endswith(".lora_b")}
    targets = (name.removesuffix(".lora_b").removesuffix(".weight").rsplit(".", 1)[-1] for name in pairs)
    return AdapterCard(
        rank=max((tensor.shape[-1] for tensor in pairs.values()), default=0),
        alpha=float(alpha) if isinstance(alpha, int | float) else 0.0,
        targets=tuple(sorted(set(targets))),
        base=_text(metadata, "linnet.adapter.base") or _text(metadata, "general.base_model.0.name"),
        base_sha256=_text(metadata, "linnet.adapter.base_sha256"),
    )


def _kind(file: GGUFFile) -> str:
    if file.architecture == "lens":
        return "lens"
    return (_text(file.metadata, "general.type") or "model") if file.tensors else "vocabulary"


def _file_type(file: GGUFFile) -> str:
    """The type as the file states it; where it does not, that of most of the bytes."""
    stated = file.metadata.get("general.file_type")
    names = (name for name, number in FILE_TYPES.items() if isinstance(stated, int) and stated == number)
    return next(names, None) or next((share.type for share in _types(file)), "")


def _types(file: GGUFFile) -> tuple[TypeShare, ...]:
    """The largest share first."""
    shares: dict[str, list[int]] = {}
    for tensor in file.tensors.values():
        share = shares.setdefault(tensor.type.name.lower(), [0, 0, 0])
        for index, amount in enumerate((1, tensor.values, tensor.nbytes)):
            share[index] += amount
    cards = (TypeShare(name, *numbers) for name, numbers in shares.items())
    return tuple(sorted(cards, key=lambda share: -share.bytes))


def _tokenizer(metadata: Metadata) -> TokenizerCard | None:
    model = _text(metadata, "tokenizer.ggml.model")
    if not model:
        return None
    ids = {mark: metadata.get(f"tokenizer.ggml.{mark}_token_id") for mark in _MARKS}
    add_bos = metadata.get("tokenizer.ggml.add_bos_token")
    return TokenizerCard(
        model=model,
        pre=_text(metadata, "tokenizer.ggml.pre"),
        tokens=_count(metadata, "tokenizer.ggml.tokens"),
        merges=_count(metadata, "tokenizer.ggml.merges"),
        marks={mark: number for mark, number in ids.items() if isinstance(number, int)},
        add_bos=add_bos if isinstance(add_bos, bool) else None,
        chat_template="tokenizer.chat_template" in metadata,
        chat_format=family_of_template(_text(metadata, "tokenizer.chat_template")),
    )


def _provenance(metadata: Metadata) -> dict[str, Scalar]:
    origin = {}
    for key in metadata:
        if key in _ORIGIN or key.startswith(("linnet.", "toy.", "adapter.", "lens.")):
            value = metadata[key] if metadata.length(key) <= 64 else f"{metadata.length(key)} values"
            origin[key] = ", ".join(map(str, value)) if isinstance(value, tuple) else value
    return origin


def _count(metadata: Metadata, key: str) -> int:
    return metadata.length(key) if key in metadata and metadata.element_type(key) is not None else 0


def _text(metadata: Metadata, key: str) -> str:
    value = metadata.get(key)
    return value if isinstance(value, str) else ""
