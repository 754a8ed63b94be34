"""A GGUF file again in another type, tensor by tensor."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from linnet.architectures.registry import names_for, task_of
from linnet.gguf.check import tensor_findings
from linnet.gguf.config import config_of
from linnet.gguf.errors import GGUFError, quoted
from linnet.gguf.file import GGUFFile
from linnet.gguf.metadata import MetadataBlock
from linnet.gguf.tensor import FILE_TYPES, GGMLType, TensorInfo
from linnet.gguf.tokenizer import donor_keys
from linnet.gguf.toy import EMBEDDING, LENS, Folded, Tensors, lens_of
from linnet.gguf.writer import GGUFWriter, Rows, storage_type, writable_type

# What depends on the type, and what is written only where it is not the default.
_OWN_KEYS = ("general.file_type", "general.quantization_version", "general.alignment")
_WHOLE_NUMBERS = (GGMLType.I8, GGMLType.I16, GGMLType.I32, GGMLType.I64)
_MODEL, _TOKENS, _WRITTEN = "tokenizer.ggml.model", "tokenizer.ggml.tokens", "toy.n_params_written"
_TEMPLATE = "tokenizer.chat_template"


def convert(
    source: str | os.PathLike[str],
    target: str | os.PathLike[str],
    type: str,
    *,
    tokenizer: str | os.PathLike[str] | None = None,
) -> Path:
    """Write `source` as `target` in f32, f16, bf16 or q8_0; all other metadata is copied byte for byte.

    Tensors already of the type go over as they are. Of a Toy checkpoint the heads are joined and a lens is folded
    into the embedding. `tokenizer` is a GGUF file whose `tokenizer.*` keys the result gets, in place of its own; a
    language model that has none is refused without it, since llama.cpp loads no such file.
    """
    writable_type(type, target)
    with GGUFFile.open(source) as file:
        return convert_tensors(file, readable_tensors(file), target, type, tokenizer=tokenizer)


def convert_tensors(
    file: GGUFFile,
    tensors: Mapping[str, TensorInfo | Rows],
    target: str | os.PathLike[str],
    type: str,
    *,
    tokenizer: str | os.PathLike[str] | None = None,
    chat_template: str | None = None,
    origin: MetadataBlock | None = None,
) -> Path:
    """Write these tensors with the metadata of an open file, in another type.

    In place of what the file says: `chat_template`; `origin`, where they come from (its run, its losses).
    """
    wanted = writable_type(type, target)
    own_keys = {*_OWN_KEYS, _WRITTEN}
    if origin is not None:
        own_keys |= {key for key in file.metadata if _is_origin(key)}
    if chat_template is not None:
        own_keys.add(_TEMPLATE)
    if tokenizer is not None:
        own_keys |= set(donor_keys(file.metadata))
    elif _is_language_model(file) and _MODEL not in file.metadata:
        problem = "the file has no tokenizer, and llama.cpp loads none without: give the tokenizer it was trained with"
        raise GGUFError(problem, f"metadata {quoted(_MODEL)}", "`tokenizer=FILE.gguf`", "none", file.path)
    metadata = MetadataBlock().copy(file.metadata, (key for key in file.metadata if key not in own_keys))
    metadata.u32("general.file_type", FILE_TYPES[wanted.name.lower()])
    if wanted is GGMLType.Q8_0:
        metadata.u32("general.quantization_version", 2)
    if origin is not None:
        metadata.extend(origin)
    elif _WRITTEN in file.metadata:
        metadata.u32(_WRITTEN, len(tensors))
    if chat_template is not None:
        metadata.text(_TEMPLATE, chat_template)
    if tokenizer is not None:
        metadata.extend(_tokenizer_of(tokenizer, file))
    writer = GGUFWriter(metadata)
    for name, tensor in tensors.items():
        if isinstance(tensor, TensorInfo) and tensor.type in _WHOLE_NUMBERS:
            writer.add(name, tensor, tensor.type)
        else:
            writer.add(name, tensor, storage_type(name, tensor.shape, wanted))
    return writer.write(target)


def _is_origin(key: str) -> bool:
    """Does a key say where weights come from? Numbers that rotary positions are made of do not."""
    ours = key.startswith("linnet.") and not key.startswith("linnet.rope.")
    return ours or key.startswith("toy.") or key in ("general.run_id", "general.step")


def _is_language_model(file: GGUFFile) -> bool:
    return task_of(file.architecture) == "text" and file.metadata.get("general.type", "model") == "model"


def readable_tensors(file: GGUFFile) -> dict[str, TensorInfo | Rows]:
    """The tensors of the result. Those of a Toy checkpoint must make a whole model, or they are refused."""
    tensors: dict[str, TensorInfo | Rows] = dict(Tensors(file).items())
    if not _is_language_model(file):
        return tensors
    has_lens = tensors.pop(LENS, None) is not None
    if has_lens:
        if EMBEDDING not in tensors:
            problem = "the file has a lens without the embedding behind it, as Toy's scheduled checkpoints do"
            expected = "[vocab, donor width]; convert the run's last checkpoint"
            raise GGUFError(problem, f"tensor {quoted(EMBEDDING)}", expected, "none", file.path)
        tensors[EMBEDDING] = Folded(file.tensors[EMBEDDING], lens_of(file).proj)
    if has_lens or "toy.checkpoint_format" in file.metadata:
        for finding in tensor_findings(config_of(file), tensors):
            if finding.refused:
                raise GGUFError(f"not a whole model: {finding.problem}", finding.place, path=file.path)
    return tensors


def _tokenizer_of(path: str | os.PathLike[str], file: GGUFFile) -> MetadataBlock:
    """The tokenizer of another file; it must have as many tokens as the model has rows."""
    embedding = file.tensors.get(EMBEDDING)
    if embedding is None or not _is_language_model(file):
        problem, place = "a tokenizer belongs to a language model", "metadata 'general.architecture'"
        expected = f"{' or '.join(names_for('text'))} (else leave `tokenizer` out)"
        raise GGUFError(problem, place, expected, quoted(file.architecture), file.path)
    with GGUFFile.open(path) as donor:
        tokens = donor.metadata.length(_TOKENS) if _TOKENS in donor.metadata else 0
        if tokens != embedding.shape[0]:
            problem, place = "the tokenizer does not fit the model's vocabulary", f"metadata {quoted(_TOKENS)}"
            expected = f"{embedding.shape[0]:,} tokens, one for each row of {EMBEDDING}"
            raise GGUFError(problem, place, expected, f"{tokens:,} tokens", path)
        return MetadataBlock().copy(donor.metadata, donor_keys(donor.metadata))
