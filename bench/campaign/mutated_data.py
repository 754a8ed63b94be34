"""Corpora, packs of ids and images in which something is wrong."""

import gzip
import io
import json
import random
import struct
import zipfile
import zlib
from collections.abc import Callable

import numpy as np

from bench.campaign import hostile

_WORDS = b"the whale was there when it rose out of the sea and the men saw it go down again "
TEXTS = ("text.txt", "lines.jsonl", "lines.jsonl.gz", "ids.i32", "pack.bin", "ids.txt")
IMAGES = ("images.npz", "idx", "picture.png")


def corpus(dice: random.Random, name: str) -> tuple[bytes, list[str]]:
    """A corpus of a kind, damaged."""
    raw, faults = _CORPORA[name](dice)
    if not faults or dice.random() < 0.3:
        raw = hostile.damaged(dice, raw)
        faults = [*faults, "bytes"]
    return raw, faults


def _text(dice: random.Random) -> tuple[bytes, list[str]]:
    body = _WORDS * 30
    match dice.choice(("bytes", "blocks", "numbers", "one letter", "line ends", "encoding", "tiny")):
        case "blocks":
            pieces = [_WORDS, hostile.encoded(dice), hostile.encoded(dice), _WORDS]
            return b"\n".join(pieces * 10), ["blocks"]
        case "numbers":
            return b"1 " * dice.choice((100, 3_000, 30_000)) + b"x\n" + body, ["numbers"]
        case "one letter":
            return dice.choice((b"a", b"\n", b" ", b"\xe2\x96\x81")) * dice.choice((1, 1_000, 100_000)), ["one letter"]
        case "line ends":
            return body.replace(b" ", dice.choice((b"\r", b"\r\n", b"\0", b"\x0c", b"\xe2\x80\xa8"))), ["line ends"]
        case "encoding":
            return body.decode().encode(dice.choice(("utf-16", "utf-32", "utf-8-sig", "cp500"))), ["encoding"]
        case "tiny":
            return body[: dice.randrange(20)], ["tiny"]
    return body, []


def _jsonl(dice: random.Random) -> tuple[bytes, list[str]]:
    words = _WORDS.decode()
    records: list[object] = [{"id": n, "text": words * 3} for n in range(12)]
    match dice.choice(("value", "value", "field", "lines", "long", "deep", "bytes")):
        case "value":
            for _ in range(3):
                records[dice.randrange(12)] = {"text": hostile.value(dice)}
        case "field":
            records[dice.randrange(12)] = hostile.value(dice)
        case "lines":
            raw = [json.dumps(record).encode() for record in records]
            raw[3] = dice.choice((b"", b"{", b"null", b'{"text":"\\ud800"}', b'{"text":"a","text":3}', b"\xff", b"[1]"))
            return b"\n".join(raw), ["lines"]
        case "long":
            records[3] = {"text": words * dice.choice((1_000, 10_000))}
        case "deep":
            depth = dice.choice((500, 100_000))
            return b'{"text":' + b"[" * depth + b"]" * depth + b"}\n" + json.dumps(records[0]).encode(), ["deep"]
        case "bytes":
            return b"\n".join(json.dumps(record).encode() for record in records), []
    raw_lines = [json.dumps(record, ensure_ascii=False).encode("utf-8", "surrogatepass") for record in records]
    return b"\n".join(raw_lines), ["records"]


def _packed(dice: random.Random) -> tuple[bytes, list[str]]:
    if dice.random() < 0.05:  # much of nothing
        return gzip.compress(bytes(dice.choice((1 << 20, 64 << 20))), 1), ["unpacks to much"]
    raw, faults = _jsonl(dice)
    packed = gzip.compress(raw, 1, mtime=0)
    if dice.random() < 0.2:
        return packed + dice.choice((packed, b"\x1f\x8b", b"junk" * 9)), [*faults, "tail"]
    return packed, faults


def _ids(dice: random.Random) -> tuple[bytes, list[str]]:
    ids = [dice.randrange(200) for _ in range(2_000)]
    if dice.random() < 0.6:
        for _ in range(3):
            ids[dice.randrange(2_000)] = max(-(2**31), min(2**31 - 1, hostile.number(dice)))
    raw = np.array(ids, "<i4").tobytes()
    if dice.random() < 0.3:
        return raw[: dice.randrange(len(raw))], ["cut"]
    return raw, ["ids"]


def _pack(dice: random.Random) -> tuple[bytes, list[str]]:
    raw, faults = _ids(dice)
    numbers = [1, 200, 0]
    if dice.random() < 0.6:
        numbers[dice.randrange(3)] = hostile.number(dice) & 0xFFFFFFFF
    return struct.pack("<4sIII", b"TOYC", *numbers) + raw, [*faults, "header"]


def _spelled_ids(dice: random.Random) -> tuple[bytes, list[str]]:
    words = [str(dice.randrange(200)) for _ in range(2_000)]
    for _ in range(dice.choice((0, 1, 5))):
        words[dice.randrange(2_000)] = dice.choice((str(hostile.number(dice)), "9" * 5_000, "x", "1.5", "-0", "٣", ""))
    words[::100] = [word + "\n" for word in words[::100]]
    return " ".join(words).encode(), ["ids"]


_CORPORA: dict[str, Callable[[random.Random], tuple[bytes, list[str]]]] = {
    "text.txt": _text,
    "lines.jsonl": _jsonl,
    "lines.jsonl.gz": _packed,
    "ids.i32": _ids,
    "pack.bin": _pack,
    "ids.txt": _spelled_ids,
}


def images(dice: random.Random, name: str) -> tuple[dict[str, bytes], list[str]]:
    """Images of a kind, damaged: their files by name."""
    files, faults = _IMAGES[name](dice)
    if not faults or dice.random() < 0.3:
        file = dice.choice(list(files))
        files[file] = hostile.damaged(dice, files[file])
        faults = [*faults, "bytes"]
    return files, faults


def _npz(dice: random.Random) -> tuple[dict[str, bytes], list[str]]:
    pixels, labels = np.zeros((12, 8, 8), np.uint8), np.arange(12) % 3
    members = {"x.npy": _npy(pixels), "y.npy": _npy(labels)}
    faults = []
    match dice.choice(("bytes", "shape", "dtype", "labels", "names", "member", "not a zip", "much")):
        case "shape":
            count = len(pixels.tobytes()) // 64
            shape = dice.choice(
                ((10**9, 8, 8), (12, 2**31, 8), (-1, 8, 8), (0, 8, 8), (count, 64), (12, 8, 8, 1, 1), ())
            )
            members["x.npy"] = _npy(pixels, shape=shape)
            faults = ["shape"]
        case "dtype":
            kind = dice.choice(("|O", "<U10", "<f8", "<c16", "<M8[s]", "|V7", "nonsense", ">i8", "|b1"))
            members[dice.choice(list(members))] = _npy(pixels, descr=kind)
            faults = ["dtype"]
        case "labels":
            strange = labels.astype(np.int64)
            strange[3] = dice.choice((-1, 2**62, 30_000_000, 2**31, 70_000))
            kinds = (np.int64, np.uint64, np.float64)
            members["y.npy"] = _npy(strange.astype(dice.choice(kinds), casting="unsafe"))
            faults = ["labels"]
        case "names":
            members = {hostile.text(dice).replace("\0", "")[:200] + ".npy": raw for raw in members.values()}
            faults = ["names"]
        case "member":
            members[dice.choice(list(members))] = dice.choice(
                (b"", b"no array", b"\x93NUMPY", b"\x93NUMPY\1\0\xff\xff{")
            )
            faults = ["member"]
        case "not a zip":
            return {"images.npz": _npy(pixels)}, ["not a zip"]
        case "much":
            members["x.npy"] = _npy(np.zeros((dice.choice((10_000, 300_000)), 8, 8), np.uint8))
            faults = ["much"]
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", dice.choice((zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED))) as archive:
        for name, raw in members.items():
            archive.writestr(zipfile.ZipInfo(name or "x"), raw)
    return {"images.npz": out.getvalue()}, faults


def _npy(array: np.ndarray, shape: tuple[int, ...] | None = None, descr: str | None = None) -> bytes:
    """An array as `.npy`, with a head that may lie."""
    head = {"descr": descr or array.dtype.str, "fortran_order": False, "shape": array.shape if shape is None else shape}
    text = repr(head).encode()
    text += b" " * (-(len(text) + 11) % 64) + b"\n"
    return b"\x93NUMPY\1\0" + struct.pack("<H", len(text)) + text + array.tobytes()


def _idx(dice: random.Random) -> tuple[dict[str, bytes], list[str]]:
    counts, kind, labels = [12, 8, 8], 0x803, [n % 3 for n in range(12)]
    faults = []
    if dice.random() < 0.6:
        counts[dice.randrange(3)] = hostile.number(dice) & 0xFFFFFFFF
        faults = ["counts"]
    elif dice.random() < 0.3:
        kind = hostile.number(dice) & 0xFFFFFFFF
        faults = ["kind"]
    images_raw = struct.pack(">IIII", kind, *counts) + bytes(12 * 64)
    number = hostile.number(dice) & 0xFFFFFFFF if dice.random() < 0.3 else 12
    labels_raw = struct.pack(">II", 0x801, number) + bytes(labels)
    if dice.random() < 0.3:
        more = bytes(dice.choice((0, 0, 30 << 20)))
        packed = gzip.compress(images_raw + more, 1, mtime=0)
        return {"train-images-idx3-ubyte.gz": packed, "train-labels-idx1-ubyte": labels_raw}, [*faults, "packed"]
    return {"train-images-idx3-ubyte": images_raw, "train-labels-idx1-ubyte": labels_raw}, faults


def _png(dice: random.Random) -> tuple[dict[str, bytes], list[str]]:
    wide, high, depth, colour = 9, 7, 8, 0
    faults = []
    match dice.choice(("bytes", "sizes", "thin", "form", "chunk", "text")):
        case "sizes":
            wide, high = (hostile.number(dice) & 0xFFFFFFFF for _ in range(2))
            faults = ["sizes"]
        case "thin":
            wide, high = dice.choice(((1_000_000, 1), (1, 300_000), (3_000, 3_000), (5_000_000, 1)))
            faults = ["thin"]
        case "form":
            depth, colour = dice.choice((1, 2, 4, 8, 16, 99)), dice.choice((0, 2, 3, 4, 6, 7))
            faults = ["form"]
        case "chunk":
            faults = ["chunk"]
        case "text":
            faults = ["text"]
    more = b""
    if faults == ["text"]:
        more = _chunk(b"tEXt", hostile.encoded(dice)[:5_000])
        more += _chunk(b"zTXt", b"k\0\0" + zlib.compress(bytes(dice.choice((10, 30 << 20))), 1))
    if faults == ["chunk"]:
        more = _chunk(dice.choice((b"PLTE", b"tRNS", b"iCCP", b"acTL", b"fcTL", b"eXIf")), dice.randbytes(40))
    amount = high * (1 + wide) * 2
    pixels = bytes(amount if amount < 20_000_000 else 100)
    return {"picture.png": png(wide, high, pixels, depth, colour, more)}, faults


def png(wide: int, high: int, pixels: bytes, depth: int = 8, colour: int = 0, more: bytes = b"") -> bytes:
    """A picture of these bytes, each row behind the number of its filter. `more`: chunks before the pixels."""
    head = _chunk(b"IHDR", struct.pack(">IIBBBBB", wide, high, depth, colour, 0, 0, 0))
    return b"\x89PNG\r\n\x1a\n" + head + more + _chunk(b"IDAT", zlib.compress(pixels, 1)) + _chunk(b"IEND", b"")


def _chunk(name: bytes, body: bytes) -> bytes:
    return struct.pack(">I", len(body)) + name + body + struct.pack(">I", zlib.crc32(name + body))


_IMAGES: dict[str, Callable[[random.Random], tuple[dict[str, bytes], list[str]]]] = {
    "images.npz": _npz,
    "idx": _idx,
    "picture.png": _png,
}
