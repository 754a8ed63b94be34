"""GGUF files in which something is wrong: a number, a length, a type, a name, a count, an offset, or any byte."""

import random
import struct
from collections.abc import Callable

from bench.campaign import hostile
from bench.campaign.gguf_parts import ARRAY, SCALARS, STRING, GGUFParts, Key, Tensor

_ARCHITECTURES = (b"llama", b"gpt2", b"vit", b"lens", b"qwen2", b"bert", b"", b"clip")
_TOKENIZERS = (b"gpt2", b"llama", b"bert", b"t5", b"no_vocab", b"none", b"rwkv", b"")
_TYPES = (0, 1, 2, 3, 4, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 20, 23, 24, 28, 30, 31, 34, 39, 40, 2**31)


def mutate(dice: random.Random, sound: bytes) -> tuple[bytes, list[str]]:
    """A sound file with one to four faults, and their names."""
    if dice.random() < 0.15:
        return hostile.damaged(dice, sound), ["bytes"]
    parts = GGUFParts.of(sound)
    often = [weight for weight, _ in _FAULTS.values()]
    names = dice.choices(list(_FAULTS), often, k=dice.choice((1, 1, 1, 2, 3, 4)))
    for name in names:
        _FAULTS[name][1](dice, parts)
    raw = parts.to_bytes()
    if dice.random() < 0.03:
        names.append("bytes")
        raw = hostile.damaged(dice, raw)
    return raw, names


def _any_key(dice: random.Random, parts: GGUFParts) -> Key:
    """An entry, those that steer the model or the tokenizer before those that only describe it."""
    if not parts.keys:
        parts.keys.append(Key(b"general.architecture", STRING, b"llama"))
    steering = [key for key in parts.keys if not key.name.startswith((b"linnet.", b"general."))]
    return dice.choice(steering if steering and dice.random() < 0.7 else parts.keys)


def _number(dice: random.Random, parts: GGUFParts) -> None:
    numbers = [key for key in parts.keys if key.kind not in (STRING, ARRAY)]
    if numbers:
        key = dice.choice(numbers)
        key.value = hostile.real(dice) if key.kind in (6, 12) else hostile.number(dice)
        if dice.random() < 0.2:
            key.kind = dice.choice((0, 4, 5, 6, 10, 11, 12))


def _shape_number(dice: random.Random, parts: GGUFParts) -> None:
    """Two sizes at once, small lies among them: those that pass the first comparison."""
    numbers = [key for key in parts.keys if key.kind == 4 and not key.name.startswith((b"general.", b"tokenizer."))]
    for key in dice.sample(numbers, min(len(numbers), dice.choice((1, 2)))):
        key.value = dice.choice((1, 2, 3, 4, 5, 8, 16, 31, 33, 63, 96, 2**12, 2**16, key.value * 2, key.value // 2))


def _type(dice: random.Random, parts: GGUFParts) -> None:
    key = _any_key(dice, parts)
    key.kind = dice.choice((*SCALARS, STRING, 13, 255))
    if key.kind == STRING:
        key.value = hostile.encoded(dice)
    elif isinstance(key.value, list):
        key.value = 1


def _array(dice: random.Random, parts: GGUFParts) -> None:
    """Another array in place of a value, one within another among them."""
    key = _any_key(dice, parts)
    key.kind, key.element = ARRAY, dice.choice((*SCALARS, STRING, STRING, ARRAY, 99))
    if key.element == STRING:
        key.value = [hostile.encoded(dice) for _ in range(dice.choice((0, 1, 5, 300)))]
    elif key.element == ARRAY:
        key.value = [struct.pack("<IQ", ARRAY, 1) * dice.choice((1, 100, 20_000))]
    else:
        key.value = [hostile.number(dice) for _ in range(dice.choice((0, 1, 5, 300, 5_000)))]


def _elements(dice: random.Random, parts: GGUFParts) -> None:
    """Elements of an array that is there changed, removed, repeated."""
    arrays = [key for key in parts.keys if key.kind == ARRAY and isinstance(key.value, list) and key.value]
    if not arrays:
        return
    key = dice.choice(arrays)
    for _ in range(dice.choice((1, 1, 3, 40))):
        at = dice.randrange(len(key.value)) if key.value else 0
        match dice.choice(("change", "change", "change", "remove", "repeat", "cut", "copy")):
            case "change" if key.value:
                key.value[at] = (
                    hostile.encoded(dice)
                    if key.element == STRING
                    else hostile.real(dice)
                    if key.element in (6, 12)
                    else hostile.number(dice)
                )
            case "remove" if key.value:
                del key.value[at]
            case "repeat":
                key.value[at:at] = key.value[at : at + dice.choice((1, 10))]
            case "cut":
                del key.value[at:]
            case "copy" if key.value:
                key.value[dice.randrange(len(key.value))] = key.value[at]


def _token(dice: random.Random, parts: GGUFParts) -> None:
    """A vocabulary with a very long word, two that are the same, a merge of nothing."""
    tokens, merges = parts.key(b"tokenizer.ggml.tokens"), parts.key(b"tokenizer.ggml.merges")
    long = dice.choice((b"a", b"e", "▁".encode(), b"<0x41>")) * dice.choice((50, 3_000, 60_000))
    if merges is not None and merges.kind == ARRAY and merges.value and dice.random() < 0.5:
        strange = (
            b"",
            b" ",
            b"a",
            b"a b c",
            b"q z",
            long + b" a",
            b"e h",
            b"\x1b \x1b",
            b"th e",
            hostile.encoded(dice),
        )
        merges.value[dice.randrange(len(merges.value))] = dice.choice(strange)
    elif tokens is not None and tokens.kind == ARRAY and tokens.value:
        at = dice.randrange(len(tokens.value))
        strange = (b"", long, tokens.value[0], b"<0x41>", b"<|im_start|>", b"</s>", b"\xc4\xa0", hostile.encoded(dice))
        tokens.value[at] = dice.choice(strange)


def _tokenizer(dice: random.Random, parts: GGUFParts) -> None:
    key = parts.key(dice.choice((b"tokenizer.ggml.model", b"tokenizer.ggml.pre")))
    if key is not None and key.kind == STRING:
        key.value = dice.choice((*_TOKENIZERS, b"default", b"smollm", b"llama-bpe", b"qwen2", hostile.encoded(dice)))


def _architecture(dice: random.Random, parts: GGUFParts) -> None:
    key = parts.key(b"general.architecture")
    if key is not None and key.kind == STRING:
        before, after = key.value, dice.choice((*_ARCHITECTURES, hostile.encoded(dice)))
        key.value = after
        if dice.random() < 0.7 and before:
            for each in parts.keys:
                each.name = each.name.replace(before + b".", after + b".", 1)


def _text(dice: random.Random, parts: GGUFParts) -> None:
    texts = [key for key in parts.keys if key.kind == STRING]
    if texts:
        dice.choice(texts).value = hostile.encoded(dice)


def _name(dice: random.Random, parts: GGUFParts) -> None:
    key = _any_key(dice, parts)
    key.name = dice.choice((hostile.encoded(dice), key.name[:-1], key.name + b"\0", key.name.upper()))


def _keys(dice: random.Random, parts: GGUFParts) -> None:
    key = _any_key(dice, parts)
    match dice.choice(("remove", "remove", "repeat", "add", "shuffle", "many")):
        case "remove":
            parts.keys.remove(key)
        case "repeat":
            parts.keys.append(Key(key.name, key.kind, key.value, key.element))
        case "add":
            parts.keys.append(Key(hostile.encoded(dice), STRING, hostile.encoded(dice)))
        case "shuffle":
            dice.shuffle(parts.keys)
        case "many":
            parts.keys += [Key(b"x.%d" % number, 4, number) for number in range(dice.choice((100, 5_000)))]


def _length(dice: random.Random, parts: GGUFParts) -> None:
    key = _any_key(dice, parts)
    if dice.random() < 0.5:
        key.length = hostile.number(dice)
    else:
        key.count = hostile.number(dice)


def _head(dice: random.Random, parts: GGUFParts) -> None:
    match dice.choice(("magic", "version", "keys", "tensors", "alignment", "tail")):
        case "magic":
            parts.magic = dice.choice((b"GGML", b"FUGG", b"ggjt", b"\0\0\0\0", b"PK\3\4"))
        case "version":
            parts.version = dice.choice((0, 1, 2, 4, 3 << 24, 2**32 - 1))
        case "keys":
            parts.n_keys = dice.choice((hostile.number(dice), len(parts.keys) + 1, len(parts.keys) - 1))
        case "tensors":
            parts.n_tensors = dice.choice((hostile.number(dice), len(parts.tensors) + 1, len(parts.tensors) - 1))
        case "alignment":
            value = dice.choice((0, 1, 8, 16, 33, 64, 4096, 2**20, 2**31))
            parts.keys.append(Key(b"general.alignment", 4, value))
            if 8 <= value <= 4096 and dice.random() < 0.7:
                parts.alignment = value
        case "tail":
            parts.tail = dice.randbytes(dice.choice((1, 31, 5_000)))


def _tensor(dice: random.Random, parts: GGUFParts) -> None:
    if not parts.tensors:
        return
    tensor = dice.choice(parts.tensors)
    match dice.choice(
        ("dims", "dims", "swap", "kind", "offset", "name", "remove", "repeat", "n_dims", "more", "short")
    ):
        case "dims":
            tensor.dims[dice.randrange(len(tensor.dims))] = hostile.number(dice)
        case "swap":
            tensor.dims.reverse()
        case "kind":
            tensor.kind = dice.choice(_TYPES)
        case "offset":
            tensor.offset = dice.choice((hostile.number(dice), 32, 64))
        case "name":
            tensor.name = dice.choice((hostile.encoded(dice), tensor.name[:-1], tensor.name + b".weight"))
        case "remove":
            parts.tensors.remove(tensor)
        case "repeat":
            parts.tensors.append(Tensor(tensor.name, list(tensor.dims), tensor.kind, tensor.data))
        case "n_dims":
            tensor.n_dims = dice.choice((0, 1, 3, 4, 5, 2**31))
        case "more":
            tensor.dims += [dice.choice((1, 1, 2, 2**31))] * dice.choice((1, 2, 5))
        case "short":
            tensor.data = tensor.data[: dice.randrange(len(tensor.data) + 1)]


def _weights(dice: random.Random, parts: GGUFParts) -> None:
    """Weights that are NaN, infinite, nothing, or any bytes; a tensor of another size that keeps the file whole."""
    if not parts.tensors:
        return
    tensor = dice.choice(parts.tensors)
    size = len(tensor.data)
    match dice.choice(("fill", "fill", "bytes", "rows")):
        case "fill":
            single = struct.pack("<f", dice.choice((1e38, -1e30, 1e-45, float("inf"), float("nan"))))
            pattern = dice.choice((single, b"\0\0\xc0\x7f", bytes(4), b"\xff" * 4))
            tensor.data = (pattern * (size // 4 + 1))[:size]
        case "bytes":
            tensor.data = dice.randbytes(size)
        case "rows" if len(tensor.dims) == 2 and tensor.dims[1] > 1:
            rows = dice.choice((1, tensor.dims[1] - 1, tensor.dims[1] + 1, tensor.dims[1] * 2))
            each = size // tensor.dims[1]
            tensor.dims[1] = rows
            tensor.data = (tensor.data * 2)[: rows * each]


_FAULTS: dict[str, tuple[int, Callable[[random.Random, GGUFParts], None]]] = {  # how often, and what
    "number": (2, _number),
    "sizes": (2, _shape_number),
    "type": (1, _type),
    "array": (1, _array),
    "elements": (2, _elements),
    "token": (2, _token),
    "tokenizer": (1, _tokenizer),
    "architecture": (1, _architecture),
    "text": (1, _text),
    "name": (1, _name),
    "keys": (1, _keys),
    "length": (1, _length),
    "head": (1, _head),
    "tensor": (2, _tensor),
    "weights": (2, _weights),
}
