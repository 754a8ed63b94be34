"""Small vocabularies with the special tokens of each chat format."""

from __future__ import annotations

from functools import cache
from typing import Any

from linnet.gguf.tokenizer_write import tokenizer_block, train_tokenizer

_TEXT = (
    "The quick brown fox asks a question, and the assistant answers it: yes, it's 12 or 345!\n\n"
    "User and system, model and assistant: who said what?\nWe don't know.  Two spaces; a\ttab. \n"
)
_SPECIAL = {
    "chatml": ("<|endoftext|>", "<|im_start|>", "<|im_end|>"),
    "llama-3": ("<|begin_of_text|>", "<|eot_id|>", "<|start_header_id|>", "<|end_header_id|>", "<|end_of_text|>"),
    "gemma": ("<bos>", "<eos>", "<start_of_turn>", "<end_of_turn>"),
    "phi-3": ("<|endoftext|>", "<|system|>", "<|user|>", "<|assistant|>", "<|end|>"),
    "zephyr": ("<s>", "</s>"),
    "llama-2": ("<s>", "</s>"),
    "mistral": ("<s>", "</s>"),
    "plain": ("<|endoftext|>",),
}
_ENDS = {  # bos and eos
    "chatml": (None, "<|im_end|>"),
    "llama-3": ("<|begin_of_text|>", "<|eot_id|>"),
    "gemma": ("<bos>", "<eos>"),
    "phi-3": (None, "<|endoftext|>"),
    "plain": (None, "<|endoftext|>"),
}


@cache
def vocabulary(family: str, pre: str = "gpt-2", adds_bos: bool = False) -> dict[str, Any]:
    """The metadata of a small byte-level BPE with the tokens of a family, without a template."""
    bos, eos = _ENDS.get(family, ("<s>", "</s>"))
    tokenizer = train_tokenizer([_TEXT * 3], 340, pre=pre, special=_SPECIAL[family])
    block = tokenizer_block(tokenizer, eos=eos, bos=bos, add_bos=adds_bos)
    return {key: value for key, (_, value) in block.items()}
