"""How models that were tuned for chats write a turn: for who prompts one with plain text and gets no answer."""

from __future__ import annotations

# A mark that stands in a chat template of the family → a user's turn, and the beginning of the model's.
_TURNS = {
    "<|im_start|>": "<|im_start|>user\n{}<|im_end|>\n<|im_start|>assistant\n",
    "<|start_header_id|>": (
        "<|start_header_id|>user<|end_header_id|>\n\n{}<|eot_id|><|start_header_id|>assistant<|end_header_id|>\n\n"
    ),
    "<start_of_turn>": "<start_of_turn>user\n{}<end_of_turn>\n<start_of_turn>model\n",
    "[INST]": "[INST] {} [/INST]",
    "<|user|>": "<|user|>\n{}<|end|>\n<|assistant|>\n",
}


def as_turn(prompt: str, chat_template: str) -> str | None:
    """A prompt as a user's turn, written as the template has it; None for a template of another family."""
    turn = next((turn for mark, turn in _TURNS.items() if mark in chat_template), None)
    return None if turn is None else turn.replace("{}", prompt)
