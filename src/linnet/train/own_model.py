"""A model of someone's own loop as a checkpoint of their run: what `run.checkpoint(model, step)` does.

The session reaches this file by its name, because `runs/` may import no other room.
"""

from __future__ import annotations

import math
import os
from pathlib import Path
from typing import Any

from torch import Tensor

from linnet import gguf
from linnet.errors import UsageError
from linnet.gguf.tokenizer import END_TEXTS, donor_keys
from linnet.gguf.tokenizer_write import tokenizer_block
from linnet.models import Config, LanguageModel, from_transformers
from linnet.runs import RunBundle


class OwnModel:
    """Writes `weights/step_<N>.gguf` of a run. The keys of a tokenizer are made once, not at every checkpoint."""

    def __init__(self, run: RunBundle) -> None:
        self._run = run
        self._cached: tuple[object, int, gguf.MetadataBlock] | None = None

    def write(self, model: Any, step: int, *, train_loss: object, tokenizer: Any, type: str) -> Path:
        """Write the model and let `latest` mean it."""
        config, params = _config_and_params(model)
        run = self._run
        origin = gguf.Provenance(
            recipe=run.manifest.recipe, train_loss=_number(train_loss), git_sha=run.git_sha or None
        )
        keys = self._keys(tokenizer, config.vocab)
        folder, run_id = self._run.weights_dir, self._run.run_id
        return gguf.write_step(config, params, folder, run_id, int(step), type=type, tokenizer=keys, provenance=origin)

    def _keys(self, tokenizer: Any, rows: int) -> gguf.MetadataBlock | None:
        if tokenizer is None:
            return None
        if self._cached is None or self._cached[0] is not tokenizer or self._cached[1] != rows:
            self._cached = (tokenizer, rows, tokenizer_keys(tokenizer, rows))
        return self._cached[2]


def _config_and_params(model: Any) -> tuple[Config, dict[str, Tensor]]:
    """Config and parameters, out of the wrappers of torch.compile and DistributedDataParallel, in either order."""
    while (inner := getattr(model, "_orig_mod", getattr(model, "module", None))) is not None:
        model = inner
    if isinstance(model, LanguageModel):
        return model.config, model.params()
    kind = type(model).__name__
    if not hasattr(getattr(model, "config", None), "model_type"):
        raise UsageError(
            f"a {kind} cannot be written as a GGUF: expected a model of linnet.models,"
            " or a LlamaForCausalLM or GPT2LMHeadModel of transformers"
        )
    try:
        return from_transformers(model, task="text")
    except KeyError as missing:
        raise UsageError(f"a {kind} has no {missing}: expected a LlamaForCausalLM or GPT2LMHeadModel") from None


def tokenizer_keys(tokenizer: Any, rows: int) -> gguf.MetadataBlock:
    """The GGUF keys of a tokenizer: of `tokenizers`, of `transformers`, of a GGUF, or keys already."""
    if isinstance(tokenizer, gguf.MetadataBlock):
        return tokenizer
    if isinstance(tokenizer, str | os.PathLike):
        with gguf.GGUFFile.open(gguf.resolve_link(tokenizer)) as file:
            return gguf.MetadataBlock().copy(file.metadata, donor_keys(file.metadata))
    backend = getattr(tokenizer, "backend_tokenizer", tokenizer)
    if not hasattr(backend, "get_vocab") or not hasattr(backend, "pre_tokenizer"):
        raise UsageError(
            f"a tokenizer of type {type(tokenizer).__name__} is not understood: give one of tokenizers,"
            " a fast one of transformers, or the path of a GGUF"
        )
    stated = {name: _text(getattr(tokenizer, f"{name}_token", None)) for name in ("bos", "eos")}
    vocab = backend.get_vocab(with_added_tokens=True)
    eos = stated["eos"] or next((text for text in END_TEXTS if text in vocab), None)
    if eos is None:
        raise UsageError("the tokenizer has no token that ends a text: add a special one, such as <|endoftext|>")
    template = _text(getattr(tokenizer, "chat_template", None))
    begins = bool(getattr(tokenizer, "add_bos_token", False))
    values = tokenizer_block(backend, eos=eos, bos=stated["bos"], add_bos=begins, rows=rows, chat_template=template)
    return gguf.MetadataBlock.of(values)


def _text(value: object) -> str | None:
    return value if isinstance(value, str) and value else None


def _number(value: Any) -> float | None:
    item = getattr(value, "item", None)  # a tensor, with its gradient or without
    try:
        number = float(item() if item is not None else value)
    except (TypeError, ValueError, RuntimeError):
        return None
    return number if math.isfinite(number) else None
