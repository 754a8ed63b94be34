"""Pre-tokenizers: how text is split into words before the merges, by the names that `tokenizer.ggml.pre` may have.

A name stands for regular expressions inside llama.cpp. Each is given here as the `tokenizers` object that splits alike,
and recognised in a tokenizer somebody else made. A tokenizer that splits in another way has no name and gets an error:
under a wrong name llama.cpp would load it and give other ids than it was trained on.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from linnet.gguf.errors import GGUFError, quoted

if TYPE_CHECKING:
    from tokenizers.pre_tokenizers import PreTokenizer

# As in llama.cpp: 's and 'S, but not the long s U+017F, which `(?i:'s)` in the models' own files matches too.
_CONTRACTIONS = "(?:'[sS]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD])"
_ORIGINAL_CONTRACTIONS = "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
_LETTERS = r"|[^\r\n\p{L}\p{N}]?\p{L}+|"
_REST = r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"


@dataclass(frozen=True)
class Pre:
    """A pre-tokenizer: its name, the names llama.cpp takes for the same, and what goes with it."""

    name: str
    aliases: tuple[str, ...] = ()
    digits: str = ""  # a regular expression for the numbers, where a regular expression splits
    single_digits: bool = False  # whether digits are split off one by one beforehand
    whole_words: bool = False  # whether a word that is a token is taken whole, whatever the merges say
    add_bos: bool = False  # what llama.cpp does when the file does not say

    def pre_tokenizer(self) -> PreTokenizer:
        """Make the `tokenizers` object that splits as llama.cpp does under this name."""
        from tokenizers import Regex, pre_tokenizers

        if self.digits:
            words = pre_tokenizers.Split(Regex(_CONTRACTIONS + _LETTERS + self.digits + _REST), "isolated")
            return pre_tokenizers.Sequence([words, pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
        bytes_ = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)
        if self.single_digits:
            return pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=True), bytes_])
        return bytes_


PRES = (
    Pre("gpt-2", aliases=("olmo", "mpt", "phi-2", "exaone4")),
    Pre("smollm", aliases=("starcoder", "refact", "command-r", "codeshell"), single_digits=True),
    Pre(
        "llama-bpe",
        aliases=("llama3", "llama-v3", "falcon3", "lfm2"),
        digits=r"\p{N}{1,3}",
        whole_words=True,
        add_bos=True,
    ),
    Pre("qwen2", aliases=("deepseek-r1-qwen", "stablelm2", "megrez"), digits=r"\p{N}"),
)
_BY_NAME = {name: pre for pre in PRES for name in (pre.name, *pre.aliases)}


def pre_named(name: str) -> Pre:
    """Find the pre-tokenizer that `tokenizer.ggml.pre` names."""
    if name not in _BY_NAME:
        raise GGUFError(
            f"tokenizer.ggml.pre is {quoted(name)}: this pre-tokenizer is not known; known are {', '.join(_BY_NAME)}"
        )
    return _BY_NAME[name]


def pre_of(pre_tokenizer: PreTokenizer | None) -> Pre:
    """Recognise which of them a `tokenizers` object is."""
    steps = _steps(pre_tokenizer)
    for pre in PRES:
        if steps == _steps(pre.pre_tokenizer()):
            return pre
    known = "; ".join(f"{pre.name}: {_words(_steps(pre.pre_tokenizer()))}" for pre in PRES)
    raise GGUFError(f"llama.cpp has no name we know for this pre-tokenizer: {_words(steps)}. Known are {known}")


def _steps(pre_tokenizer: PreTokenizer | None) -> list[dict[str, Any]]:
    """The steps of a pre-tokenizer as plain data, with what does not change the result left out."""
    if pre_tokenizer is None:
        return []
    state = json.loads(pre_tokenizer.__getstate__())
    steps = state["pretokenizers"] if state["type"] == "Sequence" else [state]
    return [_plain(step) for step in steps]


def _plain(step: dict[str, Any]) -> dict[str, Any]:
    if step["type"] == "ByteLevel":
        step.pop("trim_offsets", None)
        step.setdefault("use_regex", True)
    if step["type"] == "Split" and "Regex" in step["pattern"]:
        step["pattern"] = step["pattern"]["Regex"].replace(_ORIGINAL_CONTRACTIONS, _CONTRACTIONS)
        # With every character matched by some branch, what is kept is the same.
        if step.get("behavior") == "Removed" and step.get("invert"):
            step["behavior"], step["invert"] = "Isolated", False
    return step


def _words(steps: list[dict[str, Any]]) -> str:
    """Steps as one reads them in an error."""
    if not steps:
        return "none"
    return " then ".join(
        f"{step['type']}({', '.join(f'{key}={step[key]}' for key in step if key != 'type')})" for step in steps
    )
