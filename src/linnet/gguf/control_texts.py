"""Texts that llama.cpp reads as tokens of their own whatever their type in the file says."""

from __future__ import annotations

# Ends of texts, turns and messages: generation stops at them.
END_TEXTS = (
    *(
        "<|endoftext|>",
        "<|end_of_text|>",
        "<|eot_id|>",
        "<|eom_id|>",
        "<|im_end|>",
        "<|end|>",
        "<eos>",
        "</s>",
    ),
    *("<EOT>", "_<EOT>", "[EOT]", "[EOS]", "<end_of_turn>", "<end_of_utterance>", "<｜end▁of▁sentence｜>"),
    *("<|return|>", "<|call|>", "<|calls|>", "<|flush|>", "<turn|>", "<|tool_response>", "[e~["),
)
# Marks of filling in the middle.
_MIDDLE = (
    *(
        "<|fim_prefix|>",
        "<fim-prefix>",
        "<fim_prefix>",
        "<｜fim▁begin｜>",
        "<PRE>",
        "▁<PRE>",
        "<|code_prefix|>",
    ),
    *(
        "<|fim_suffix|>",
        "<fim-suffix>",
        "<fim_suffix>",
        "<｜fim▁hole｜>",
        "<SUF>",
        "▁<SUF>",
        "<|code_suffix|>",
    ),
    *(
        "<|fim_middle|>",
        "<fim-middle>",
        "<fim_middle>",
        "<｜fim▁end｜>",
        "<MID>",
        "▁<MID>",
        "<|code_middle|>",
    ),
    *("<|prefix|>", "<|suffix|>", "<|middle|>"),
    *("<|fim_pad|>", "<fim-pad>", "<fim_pad>", "<PAD>", "[PAD]"),
    *("<|fim_repo|>", "<|repo_name|>", "<fim-repo>", "<REPO>", "<reponame>", "<|file_sep|>"),
)
CONTROL_TEXTS = frozenset(END_TEXTS + _MIDDLE)

# These it reads even where control tokens are not to be parsed.
USER_DEFINED_TEXTS = frozenset(("<|channel|>", "<|message|>", "<|start|>", "<|constrain|>"))
