"""Numbers, texts and damage that readers stumble over; each function draws one with the dice it is given."""

import random
from typing import Any

NUMBERS = (0, 1, -1, 2, 3, 7, 255, 2**15, 2**16, 2**20, 2**24, 2**30, 2**31 - 1, 2**31, 2**32 - 1, 2**32, 2**53)
NUMBERS += (2**62, 2**63 - 1, 2**63, 2**64 - 1, -(2**31), -(2**63))
FLOATS = (0.0, -0.0, 0.5, -1.5, 1e-320, 1e-45, 1e30, 1e300, -1e308, 3.4e38, float("inf"), float("-inf"), float("nan"))
_TEXTS = (
    "",
    " ",
    "\x1b[2J\x1b[31mred",
    "\x1b]0;owned\x07",
    "\x1bP+q\x1b\\",
    "a\0b",
    "line\nline\r\nline",
    "\t\x08\x7f",
    "\x9b31m",
    "\u202eright to left\u2066",
    "\u2028\u2029\ufeff\u200b",
    "[bold red]markup[/]",
    "{0.__class__} %s %n ${HOME}",
    "../../etc/passwd",
    "e\u0301" * 40,
    "漢字" * 30,
    "🏳️‍🌈" * 5,
    "NaN",
    "1e999",
    "null",
    "-",
    "--help",
    "/",
    "\ud7ff\ue000\U0010ffff",
)


def number(dice: random.Random) -> int:
    """One that is too large, negative or nothing; at times any other."""
    if dice.random() < 0.2:
        return dice.getrandbits(dice.randrange(1, 65))
    return dice.choice(NUMBERS) + (dice.choice((-1, 1)) if dice.random() < 0.1 else 0)


def real(dice: random.Random) -> float:
    """A float that arithmetic does not like."""
    return dice.choice(FLOATS) if dice.random() < 0.8 else dice.uniform(-1e6, 1e6)


def text(dice: random.Random) -> str:
    """A text with control characters, one of another script, an empty one or one that is far too long."""
    chance = dice.random()
    if chance < 0.08:
        return dice.choice(("a", "a b ", "é", "\x1b[31m", "漢")) * dice.choice((300, 5_000, 70_000))
    if chance < 0.16:
        return "".join(chr(dice.choice((dice.randrange(32), dice.randrange(0x300), dice.randrange(0xD800))))
                       for _ in range(dice.randrange(1, 40)))  # fmt: skip
    return dice.choice(_TEXTS) + (dice.choice(_TEXTS) if dice.random() < 0.3 else "")


def encoded(dice: random.Random) -> bytes:
    """Such a text as bytes; at times bytes that are no text."""
    if dice.random() < 0.2:
        return dice.choice((b"\xff\xfe", b"\xed\xa0\x80", b"\xc3", b"\xf4\x90\x80\x80", b"\x80" * 9, b"\x1b[2J\xff"))
    return text(dice).encode("utf-8", "surrogatepass")


def value(dice: random.Random, depth: int = 0) -> Any:
    """Anything that JSON can spell, and NaN."""
    kinds = ["number", "real", "text", "flag", "nothing"]
    kinds += ["list", "mapping"] if depth < 3 else []
    kind = dice.choice(kinds)
    if kind == "number":
        return number(dice)
    if kind == "real":
        return real(dice)
    if kind == "text":
        return text(dice)
    if kind == "flag":
        return dice.random() < 0.5
    if kind == "list":
        return [value(dice, depth + 1) for _ in range(dice.randrange(4))]
    if kind == "mapping":
        return {text(dice): value(dice, depth + 1) for _ in range(dice.randrange(4))}
    return None


def damaged(dice: random.Random, raw: bytes) -> bytes:
    """Bytes cut, flipped, overwritten, taken out, put in or repeated, without regard to what they mean."""
    data = bytearray(raw)
    for _ in range(dice.choice((1, 1, 2, 4))):
        at = dice.randrange(len(data) + 1)
        if dice.random() < 0.6:  # what steers a reader stands in the front
            at = min(at, dice.randrange(1, 4096))
        length = dice.choice((1, 2, 4, 8, 64, 1000))
        match dice.choice(("cut", "flip", "flip", "overwrite", "remove", "insert", "repeat", "number")):
            case "cut":
                del data[at:]
            case "flip" if data:
                for _ in range(dice.choice((1, 2, 16))):
                    data[min(at, len(data) - 1)] ^= 1 << dice.randrange(8)
                    at = dice.randrange(len(data))
            case "overwrite":
                data[at : at + length] = dice.choice((bytes(length), b"\xff" * length, dice.randbytes(length)))
            case "remove":
                del data[at : at + length]
            case "insert":
                data[at:at] = dice.choice((bytes(length), dice.randbytes(length), encoded(dice)[:1000]))
            case "repeat":
                data[at:at] = data[at : at + length] * dice.choice((1, 3))
            case "number":
                size = dice.choice((4, 8))
                data[at : at + size] = (number(dice) & (256**size - 1)).to_bytes(size, dice.choice(("little", "big")))
    return bytes(data)
