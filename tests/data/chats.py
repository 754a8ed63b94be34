"""Small conversations, in the shapes in which people keep them."""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

WORDS = "red blue green the a whale sings swims 12 why who is it's near far".split()  # noqa: SIM905


def sentence(chance: random.Random, words: int) -> str:
    return " ".join(chance.choices(WORDS, k=words)).capitalize()


def chat(number: int, turns: int | None = None) -> list[dict[str, str]]:
    """A conversation like no other."""
    chance = random.Random(number)
    messages = [{"role": "system", "content": "Be brief."}] if number % 5 == 0 else []
    for turn in range(1 + number % 3 if turns is None else turns):
        messages.append({"role": "user", "content": f"{number}.{turn} {sentence(chance, 3)}?"})
        messages.append({"role": "assistant", "content": f"{sentence(chance, chance.randint(2, 14))}."})
    return messages


def write_jsonl(path: Path, rows: Sequence[Any]) -> Path:
    path.write_text("".join(f"{json.dumps(row)}\n" for row in rows), encoding="utf-8")
    return path


def chats(path: Path, count: int = 120) -> Path:
    return write_jsonl(path, [{"messages": chat(number)} for number in range(count)])


def pair_row(number: int) -> dict[str, Any]:
    """A preference like no other: the chosen answer is the longer one and ends politely."""
    chance = random.Random(number)
    asked = f"{number} {sentence(chance, 1 + number % 5)}?"
    chosen = f"{sentence(chance, chance.randint(2, 9))}, thank you."
    return {"prompt": asked, "chosen": chosen, "rejected": f"{sentence(chance, chance.randint(1, 6))}!"}


def pairs(path: Path, count: int = 120) -> Path:
    return write_jsonl(path, [pair_row(number) for number in range(count)])
