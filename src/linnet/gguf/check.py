"""Would llama.cpp run this file? Every rule of its loader that a file can break, and what merely deserves a warning.

The rules were found by breaking files one way at a time and loading each in llama.cpp. Those of the file's own form
(counts, offsets, alignment) are `header.py`'s: a file that breaks one does not open here either. For architectures that
are not ours only what holds for all of them is checked, and a finding says so.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import chain

import numpy as np

from linnet.architectures.description import Architecture, Key
from linnet.architectures.parameters import layout
from linnet.architectures.registry import ARCHITECTURES, AnyConfig, describe
from linnet.gguf.config import config_of
from linnet.gguf.errors import GGUFError, quoted
from linnet.gguf.file import GGUFFile
from linnet.gguf.metadata import Metadata, ValueType
from linnet.gguf.tensor import GGMLType
from linnet.gguf.writer import Rows


@dataclass(frozen=True)
class Finding:
    """One thing about a file: `refused` by llama.cpp, `aborts` its programs, or a `warning`."""

    level: str
    place: str
    problem: str

    @property
    def refused(self) -> bool:
        """Whether llama.cpp would not load or not run the file."""
        return self.level == "refused"

    @property
    def aborts(self) -> bool:
        """Whether llama.cpp loads the file through its C API, but its programs end in an abort."""
        return self.level == "aborts"

    def __str__(self) -> str:
        return f"{self.level}: {self.place}: {self.problem}"


# What any model with rotary positions may say of them.
_ROPE_SCALING_KEYS = (
    Key("rope.scaling.type", type="string"),
    Key("rope.scaling.factor", type="f32"),
    Key("rope.scaling.original_context_length", type="u32"),
)
_TOKENIZER_KEYS = {
    "tokenizer.ggml.bos_token_id": "u32",
    "tokenizer.ggml.eos_token_id": "u32",
    "tokenizer.ggml.unknown_token_id": "u32",
    "tokenizer.ggml.padding_token_id": "u32",
    "tokenizer.ggml.add_bos_token": "bool",
    "tokenizer.ggml.add_eos_token": "bool",
    "tokenizer.ggml.add_space_prefix": "bool",
    "tokenizer.ggml.tokens": "array of string",
    "tokenizer.ggml.merges": "array of string",
    "tokenizer.ggml.token_type": "array of i32",
    "tokenizer.ggml.scores": "array of f32",
    "tokenizer.chat_template": "string",
}
# Keys that a tokenizer of this model (any, where it is empty) should have: level and problem where one has not.
_EXPECTED_KEYS = (
    ("gpt2", "tokenizer.ggml.merges", "refused", "missing, and needed by a byte-level BPE"),
    ("gpt2", "tokenizer.ggml.pre", "warning", "missing: llama.cpp splits text by default rules, other ids follow"),
    ("llama", "tokenizer.ggml.scores", "warning", "missing: SentencePiece merges by score"),
    ("", "tokenizer.ggml.bos_token_id", "warning", "missing: llama.cpp guesses a default"),
    ("", "tokenizer.ggml.eos_token_id", "warning", "missing: llama.cpp guesses a default"),
    ("", "tokenizer.ggml.add_bos_token", "warning", "missing: llama.cpp guesses a default"),
)
_SHOWN = 200
_ROPE_SCALINGS = ("none", "linear", "yarn", "longrope")


def check(path: str | os.PathLike[str], *, values: bool = False) -> list[Finding]:
    """What llama.cpp would refuse about a file, and warnings; an empty list means nothing was found.

    With `values` every number is read as well, and those that are not finite are warned about.
    """
    try:
        file = GGUFFile.open(path)
    except GGUFError as error:
        return [Finding("refused", error.place, _without_place(error))]
    with file:
        try:
            return list(_bounded(chain(_general(file), _by_kind(file), _values(file) if values else ())))
        except GGUFError as error:  # a value that cannot be decoded, a file that changed meanwhile
            return [Finding("refused", error.place, _without_place(error))]


def _bounded(findings: Iterable[Finding]) -> Iterator[Finding]:
    """The first findings of each level, and how many more there are: a small file can have a hundred thousand."""
    counts: Counter[str] = Counter()
    for finding in findings:
        counts[finding.level] += 1
        if counts[finding.level] <= _SHOWN:
            yield finding
    for level, count in counts.items():
        if count > _SHOWN:
            yield Finding(level, "file", f"{count - _SHOWN:,} more findings that are not listed")


def _general(file: GGUFFile) -> Iterator[Finding]:
    if file.alignment < 32:
        yield _refused("metadata 'general.alignment'", f"ggml aborts below 32, found {file.alignment}")
    for name, tensor in file.tensors.items():
        if len(tensor.shape) == 1 and tensor.type is not GGMLType.F32:
            problem = f"a one-dimensional tensor must be f32 or llama.cpp aborts, found {tensor.type.name.lower()}"
            yield _refused(f"tensor {quoted(name)}", problem)
    yield from _wrong_types(file.metadata, {"general.file_type": "u32", "general.name": "string"})
    quantised = any(tensor.type.block_values > 1 for tensor in file.tensors.values())
    if quantised and "general.quantization_version" not in file.metadata:
        yield _warning("metadata 'general.quantization_version'", "missing from a quantised file (2 is usual)")


def _wrong_types(metadata: Metadata, labels: Mapping[str, str]) -> Iterator[Finding]:
    for key, label in labels.items():
        if key in metadata and metadata.label(key) != label:
            yield _refused(f"metadata {quoted(key)}", f"expected {label}, found {metadata.label(key)}")


def _by_kind(file: GGUFFile) -> Iterator[Finding]:
    metadata, place = file.metadata, "metadata 'general.architecture'"
    if "general.architecture" not in metadata:
        yield _refused(place, "missing")
        return
    if metadata.type("general.architecture") is not ValueType.STRING:
        yield _refused(place, f"expected string, found {metadata.label('general.architecture')}")
        return
    if file.is_adapter:
        yield from _adapter(file)
    elif file.architecture in ARCHITECTURES and ARCHITECTURES[file.architecture].runs_in_llama_cpp:
        yield from _model(file, ARCHITECTURES[file.architecture])
    elif file.architecture in ARCHITECTURES or file.architecture == "lens":
        yield _refused(place, f"llama.cpp has no architecture {file.architecture!r}; Linnet reads this file itself")
    else:
        yield from _tokenizer(file)
        problem = f"the keys and tensors of {quoted(file.architecture)} are not known here and were not checked"
        yield _warning(place, problem)


def _model(file: GGUFFile, described: Architecture) -> Iterator[Finding]:
    arch, metadata = described.name, file.metadata
    broken = list(_keys(described, metadata))
    yield from broken
    scaling = metadata.get(f"{arch}.rope.scaling.type", "none")
    if described.rope is not None and scaling not in _ROPE_SCALINGS:
        problem = f"llama.cpp aborts on any word but {', '.join(_ROPE_SCALINGS)}; found {quoted(str(scaling))}"
        yield _refused(f"metadata '{arch}.rope.scaling.type'", problem)
    yield from _tokenizer(file)
    if broken:
        return
    per_layer = [key for key in metadata if key.startswith(f"{arch}.") and metadata.type(key) is ValueType.ARRAY]
    if per_layer:
        yield _warning(f"metadata {quoted(per_layer[0])}", "sizes that differ by layer: tensors were not checked")
        return
    try:
        config = config_of(file)
    except GGUFError as error:
        yield _refused(error.place, _without_place(error))
        return
    if described.rope is not None:
        head, key = config.head_size, f"{arch}.rope.dimension_count"
        if metadata.get(key, head) != head:
            yield _refused(f"metadata '{key}'", f"expected the head size {head}, found {metadata[key]}")
    yield from tensor_findings(config, file.tensors)


def _keys(described: Architecture, metadata: Metadata) -> Iterator[Finding]:
    required_first = sorted(described.keys, key=lambda known: not known.required)
    for known in (*required_first, *(_ROPE_SCALING_KEYS if described.rope is not None else ())):
        key = f"{described.name}.{known.name}"
        labels = (known.type, "array") if known.per_layer else (known.type,)
        if key not in metadata:
            if known.required:
                yield _refused(f"metadata {quoted(key)}", "missing")
        elif metadata.type(key).label not in labels:
            yield _refused(f"metadata {quoted(key)}", f"expected {' or '.join(labels)}, found {metadata.label(key)}")


def tensor_findings(config: AnyConfig, tensors: Mapping[str, Rows]) -> Iterator[Finding]:
    """What llama.cpp finds wrong with the names and shapes of a model's tensors."""
    if not describe(config).runs_in_llama_cpp:
        return
    plan = layout(config)
    fused = {f"blk.{block}.attn_qkv.{half}" for block in range(config.n_layers) for half in ("weight", "bias")}
    for name, (param, piece) in plan.tensors.items():
        place, tensor = f"tensor {quoted(name)}", tensors.get(name)
        if tensor is None:
            stem = name.replace("attn_q.", "attn_qkv.").replace("attn_k.", "attn_qkv.").replace("attn_v.", "attn_qkv.")
            if not param.optional and not (stem in fused and stem in tensors):
                yield _refused(place, f"missing; expected {list(piece.shape)}")
        elif tensor.shape != piece.shape:
            yield _refused(place, f"expected {list(piece.shape)}, found {list(tensor.shape)}")
    extra = [name for name in tensors if name not in plan.tensors]
    for name in extra[:16]:
        if name in fused:
            yield _warning(f"tensor {quoted(name)}", "llama.cpp takes it; transformers leaves Q, K and V random")
        else:
            yield _refused(f"tensor {quoted(name)}", "not a tensor of this architecture: llama.cpp refuses extra ones")
    if len(extra) > 16:
        yield _refused("tensors", f"{len(extra) - 16} more that are not of this architecture")


def _tokenizer(file: GGUFFile) -> Iterator[Finding]:
    metadata, place = file.metadata, "metadata 'tokenizer.ggml.model'"
    model = metadata.get("tokenizer.ggml.model")
    if not isinstance(model, str):
        problem = "missing" if model is None else f"expected string, found {metadata.label('tokenizer.ggml.model')}"
        yield _refused(place, f"{problem}: llama.cpp loads no model without a tokenizer; linnet convert --tokenizer")
        return
    if model in ("none", "no_vocab"):
        yield from _without_tokenizer(file)
        return
    wrong = {key for key, kind in _TOKENIZER_KEYS.items() if key in metadata and metadata.label(key) != kind}
    yield from _wrong_types(metadata, _TOKENIZER_KEYS)
    if "tokenizer.ggml.tokens" not in metadata:
        yield _refused("metadata 'tokenizer.ggml.tokens'", "missing")
    elif "tokenizer.ggml.tokens" not in wrong:
        yield from _tokens(file, wrong)
    for of_model, key, level, problem in _EXPECTED_KEYS:
        if of_model in ("", model) and key not in metadata:
            yield Finding(level, f"metadata {quoted(key)}", problem)


def _without_tokenizer(file: GGUFFile) -> Iterator[Finding]:
    """A file that says it has no tokenizer: the size of its vocabulary must then be stated."""
    key, embedding = f"{file.architecture}.vocab_size", file.tensors.get("token_embd.weight")
    rows = embedding.shape[0] if embedding is not None else None
    stated = file.metadata.get(key)
    if rows is not None and stated != rows:
        found = "none" if stated is None else str(stated)[:40]
        yield _refused(f"metadata {quoted(key)}", f"expected {rows}, the rows of the embedding, found {found}")
    problem = (
        "no tokenizer inside: llama.cpp's library runs it on token ids only; llama-server, llama-cli and what is built"
        " on them (Ollama) abort; give it a tokenizer with linnet convert --tokenizer"
    )
    yield Finding("aborts", "metadata 'tokenizer.ggml.model'", problem)


def _tokens(file: GGUFFile, wrong: set[str]) -> Iterator[Finding]:
    metadata, place = file.metadata, "metadata 'tokenizer.ggml.tokens'"
    count = metadata.length("tokenizer.ggml.tokens")
    embedding = file.tensors.get("token_embd.weight")
    if embedding is not None and embedding.shape[0] != count:
        yield _refused(place, f"expected {embedding.shape[0]} tokens, a row of the embedding each, found {count}")
        return
    tokens = metadata["tokenizer.ggml.tokens"]
    if isinstance(tokens, tuple) and len(set(tokens)) != count:
        yield _refused(place, f"{count - len(set(tokens))} tokens are there twice; llama.cpp aborts")
    for key in ("tokenizer.ggml.token_type", "tokenizer.ggml.scores"):
        if key in metadata and key not in wrong and metadata.length(key) < count:
            yield _refused(f"metadata {quoted(key)}", f"expected {count} elements, found {metadata.length(key)}")
    for key in _TOKENIZER_KEYS:
        if key.endswith("_token_id") and key in metadata and key not in wrong:
            number = metadata[key]
            if isinstance(number, int) and number >= count:
                yield _refused(f"metadata {quoted(key)}", f"expected an id below {count}, found {number}")


def _adapter(file: GGUFFile) -> Iterator[Finding]:
    metadata = file.metadata
    if metadata.get("adapter.type") != "lora":
        yield _refused("metadata 'adapter.type'", f"expected 'lora', found {quoted(str(metadata.get('adapter.type')))}")
    if "adapter.lora.alpha" not in metadata:
        yield _warning("metadata 'adapter.lora.alpha'", "missing: llama.cpp then does not divide by the rank")
    elif metadata.type("adapter.lora.alpha") is not ValueType.F32:
        yield _refused("metadata 'adapter.lora.alpha'", f"expected f32, found {metadata.label('adapter.lora.alpha')}")
    for name, tensor in file.tensors.items():
        place = f"tensor {quoted(name)}"
        base, _, half = name.rpartition(".")
        if half not in ("lora_a", "lora_b"):
            if not name.endswith("_norm.weight"):
                yield _refused(place, "expected a name that ends in .lora_a or .lora_b")
            continue
        other = file.tensors.get(f"{base}.{'lora_b' if half == 'lora_a' else 'lora_a'}")
        if other is None:
            yield _refused(place, "its other half is missing")
        elif half == "lora_a" and not base.startswith("token_embd") and tensor.shape[0] != other.shape[-1]:
            yield _refused(place, f"ranks differ: {list(tensor.shape)} with {list(other.shape)}")


def _values(file: GGUFFile) -> Iterator[Finding]:
    for name, tensor in file.tensors.items():
        step = max(1, (4 << 20) // max(1, tensor.values // tensor.shape[0]))
        parts = (tensor.read(slice(start, start + step)) for start in range(0, tensor.shape[0], step))
        if bad := sum(int(np.count_nonzero(~np.isfinite(part))) for part in parts):
            yield _warning(f"tensor {quoted(name)}", f"{bad} of {tensor.values} values are not finite")


def _refused(place: str, problem: str) -> Finding:
    return Finding("refused", place, problem)


def _warning(place: str, problem: str) -> Finding:
    return Finding("warning", place, problem)


def _without_place(error: GGUFError) -> str:
    return f"{error.problem}; expected {error.expected}, found {error.found}"
