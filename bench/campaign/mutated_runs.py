"""Run folders in which something is wrong: a value, a line, the order, the manifest, or any byte."""

import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

from bench.campaign import hostile

_KINDS = ("run_start", "step", "scalars", "eval", "sample", "checkpoint", "system", "note", "run_end", "resume", "tags")
_KINDS += ("gate", "artifact", "tap", "git", "heartbeat", "warning", "compare", "metric", "nobody")


def sound_run(dialect: str, tests: Path) -> dict[str, bytes]:
    """The files of a run as Linnet, Toy, kaun-board or munin leave it. `tests`: where the ancestors' runs lie."""
    if dialect != "linnet":
        (events,) = (tests / "fixtures" / dialect).rglob("events.jsonl")
        return {file.name: file.read_bytes() for file in events.parent.iterdir() if file.is_file()}
    lines: list[dict[str, Any]] = [
        {
            "kind": "run_start",
            "schema": "toy/v1",
            "t": 0.0,
            "started_at": "2026-05-28T20:26:40Z",
            "steps": 30,
            "lr": 1e-3,
        }
    ]
    for step in range(1, 31):
        at = {"t": step / 2, "step": step}
        lines.append(
            {"kind": "step", "phase": "train", **at, "loss": 9 / step, "lr": 1e-3, "tokens": 256, "epoch": step / 9}
        )
        lines.append({"kind": "scalars", **at, "values": {"train/acc": step / 30, "grad_norm": 1.0}})
        if step % 10 == 0:
            lines.append({"kind": "eval", "phase": "eval", **at, "name": "validation", "loss": 8 / step})
            lines.append(
                {"kind": "system", "t": step / 2, "cpu": {"percent": 42.0}, "memory": {"used": 8e9, "total": 16e9}}
            )
            lines.append({"kind": "sample", **at, "prompt": "def main(", "text": "):\n    pass"})
            lines.append(
                {"kind": "checkpoint", **at, "path": f"weights/step_{step}.gguf", "bytes": 1000, "loss": 8 / step}
            )
    lines.append({"kind": "note", "t": 15.0, "text": "the good seed", "at": "2026-05-28T20:33:20Z", "step": 30})
    lines.append({"kind": "run_end", "t": 15.0, "reason": "completed", "final_step": 30, "exit_code": 0})
    manifest = {
        "schema_version": 1,
        "run_id": "mutated",
        "created_at": 1_780_000_000.0,
        "name": "a name",
        "recipe": "from-scratch",
        "experiment": "width",
        "tags": ["wide", "seed3"],
        "total_steps": 30,
        "goals": {"train/acc": "max"},
        "config": {"lr": 0.001, "batch": 8},
        "model": {"arch": "llama", "d_model": 192},
        "provenance": {"host": "trainer"},
    }
    stream = b"".join(json.dumps(line).encode() + b"\n" for line in lines)
    return {"events.jsonl": stream, "run.json": json.dumps(manifest).encode()}


def mutate(dice: random.Random, files: dict[str, bytes]) -> tuple[dict[str, bytes], list[str]]:
    """The files with one to four faults, and their names."""
    changed = dict(files)
    names = []
    for _ in range(dice.choice((1, 1, 2, 3, 4))):
        file = "run.json" if "run.json" in changed and dice.random() < 0.25 else "events.jsonl"
        if dice.random() < 0.15:
            changed[file] = hostile.damaged(dice, changed.get(file, b""))
            names.append(f"{file}: bytes")
        elif file == "run.json":
            name = dice.choice(list(_MANIFEST))
            changed[file] = _MANIFEST[name](dice, changed[file])
            names.append(f"{file}: {name}")
        else:
            name = dice.choice(list(_STREAM))
            lines = changed.get(file, b"").split(b"\n")
            _STREAM[name](dice, lines)
            changed[file] = b"\n".join(lines)
            names.append(f"{file}: {name}")
    if dice.random() < 0.03:
        gone = dice.choice(list(changed))
        del changed[gone]
        names.append(f"{gone}: gone")
    return changed, names


def _spelled(value: Any) -> bytes:
    return json.dumps(value, ensure_ascii=False).encode("utf-8", "surrogatepass")


def _parsed(line: bytes) -> Any:
    try:
        return json.loads(line)
    except (ValueError, RecursionError):
        return None


def _changed(dice: random.Random, record: Any) -> Any:
    """Another value somewhere in a record."""
    if isinstance(record, dict) and record and dice.random() < 0.9:
        key = dice.choice(list(record))
        match dice.choice(("value", "value", "value", "value", "deeper", "deeper", "rename", "remove", "add")):
            case "value":
                return {**record, key: _like(dice, record[key])}
            case "deeper":
                return {**record, key: _changed(dice, record[key])}
            case "rename":
                return {hostile.text(dice) if name == key else name: value for name, value in record.items()}
            case "remove":
                return {name: value for name, value in record.items() if name != key}
            case "add":
                return {**record, hostile.text(dice): hostile.value(dice)}
    if isinstance(record, list) and record and dice.random() < 0.9:
        at = dice.randrange(len(record))
        return [*record[:at], _changed(dice, record[at]), *record[at + 1 :]]
    return _like(dice, record)


def _like(dice: random.Random, value: Any) -> Any:
    """Mostly of the same kind, which gets past the first look."""
    if dice.random() < 0.4:
        return hostile.value(dice)
    if isinstance(value, bool) or value is None:
        return hostile.value(dice)
    if isinstance(value, int):
        return hostile.number(dice)
    if isinstance(value, float):
        return hostile.real(dice) if dice.random() < 0.7 else hostile.number(dice)
    if isinstance(value, str):
        return dice.choice(_KINDS) if value in _KINDS else hostile.text(dice)
    return hostile.value(dice)


def _one_value(dice: random.Random, lines: list[bytes]) -> None:
    at = dice.randrange(len(lines))
    lines[at] = _spelled(_changed(dice, _parsed(lines[at])))


def _many_values(dice: random.Random, lines: list[bytes]) -> None:
    """The same strange name or value in every line of a kind: what a whole column is read by."""
    name, other, value = hostile.text(dice), hostile.text(dice), hostile.value(dice)
    how = dice.choice(("add", "rename", "value", "step", "t"))
    for at, line in enumerate(lines):
        record = _parsed(line)
        if not isinstance(record, dict) or record.get("kind") not in ("step", "scalars", "eval", "metric"):
            continue
        holder = record["values"] if isinstance(record.get("values"), dict) else record
        if how == "add":
            holder[name] = at * 0.5
        elif how == "rename":
            holder[name] = holder.pop("loss", 1.0)
        elif how == "value":
            holder[dice.choice(list(holder)) if holder else other] = value
        else:
            record[how] = hostile.number(dice) if dice.random() < 0.3 else value
        lines[at] = _spelled(record)


def _order(dice: random.Random, lines: list[bytes]) -> None:
    at, other = dice.randrange(len(lines)), dice.randrange(len(lines))
    match dice.choice(("swap", "repeat", "remove", "shuffle", "block")):
        case "swap":
            lines[at], lines[other] = lines[other], lines[at]
        case "repeat":
            lines[at:at] = [lines[other]] * dice.choice((1, 2, 50))
        case "remove":
            del lines[at]
        case "shuffle":
            dice.shuffle(lines)
        case "block":
            lines[at:at] = lines[min(at, other) : max(at, other)]


def _line(dice: random.Random, lines: list[bytes]) -> None:
    """A line that is no event, or hardly one."""
    lines.insert(dice.randrange(len(lines) + 1), _strange_line(dice))


def _strange_line(dice: random.Random) -> bytes:
    deep = dice.choice((100, 2_000, 200_000))
    twice = b'{"kind":"step","kind":"eval","step":1,"step":2,"loss":1,"loss":"x","t":1.0}'
    lines: list[Callable[[], bytes]] = [
        lambda: b"",
        lambda: b"null",
        lambda: b"[]",
        lambda: b'"text"',
        lambda: b"{}",
        lambda: b"{" * deep,
        lambda: b"[" * deep + b"]" * deep,
        lambda: b'{"kind":"step","step":1,"loss":' + b"[" * deep + b"]" * deep + b"}",
        lambda: b'{"kind":"note","text":' + b'{"a":' * deep + b"1" + b"}" * deep + b"}",
        lambda: twice,
        lambda: b'{"kind":"step","step":1,"loss":NaN,"t":Infinity}',
        lambda: b'{"kind":"step","step":' + b"9" * dice.choice((30, 400, 5_000)) + b',"loss":1,"t":1}',
        lambda: b'{"kind":"step","step":1e400,"loss":-1e400,"t":1}',
        lambda: b'{"kind":"step","step":1,"loss":1,"t":1,"' + b"k" * dice.choice((100, 10_000, 300_000)) + b'":1}',
        lambda: b'{"kind":"note","text":"' + b"\\u001b[2J" * dice.choice((1, 1_000)) + b'","t":1}',
        lambda: b'{"kind":"note","text":"\\ud800 alone","t":1}',
        lambda: b"\xef\xbb\xbf" + b'{"kind":"step","step":1,"loss":1,"t":1}',
        lambda: dice.randbytes(dice.choice((1, 50, 5_000))),
        lambda: bytes(dice.choice((1, 4_096, 100_000))),
        lambda: _spelled({"kind": dice.choice(_KINDS), **{hostile.text(dice): hostile.value(dice) for _ in range(3)}}),
        lambda: _spelled({"kind": dice.choice(_KINDS), "t": hostile.value(dice), "step": hostile.value(dice)}),
    ]
    return dice.choice(lines)()


def _many_names(dice: random.Random, lines: list[bytes]) -> None:
    """Steps with a name of their own each, or with very many."""
    count = dice.choice((50, 400))
    if dice.random() < 0.5:
        lines += [_spelled({"kind": "scalars", "t": 1.0, "step": n, "values": {f"m{n}": n}}) for n in range(count)]
    else:
        values = {f"g{n % 9}/m{n}": n for n in range(count)}
        lines += [_spelled({"kind": "step", "t": 1.0, "step": n, "loss": n, **values}) for n in range(3)]


def _many_lines(dice: random.Random, lines: list[bytes]) -> None:
    """Endings, resumes, checkpoints or samples by the hundred."""
    record = {"kind": dice.choice(_KINDS), "t": 1.0, "step": 3, "loss": 1.0, "text": hostile.text(dice)[:500]}
    lines += [_spelled({**record, "from_step": number, "step": number}) for number in range(300)]


def _cut(dice: random.Random, lines: list[bytes]) -> None:
    at = dice.randrange(len(lines))
    lines[at] = lines[at][: dice.randrange(len(lines[at]) + 1)]
    if dice.random() < 0.5:
        del lines[at + 1 :]


def _ends(dice: random.Random, lines: list[bytes]) -> None:
    """Other line ends."""
    mark = dice.choice((b"\r", b"\0", b" ", b"\x0b", b"\xe2\x80\xa8"))
    lines[:] = [line + mark for line in lines] if dice.random() < 0.7 else [mark.join(lines)]


_STREAM: dict[str, Callable[[random.Random, list[bytes]], None]] = {
    "a value": _one_value,
    "another value": _one_value,
    "a column": _many_values,
    "order": _order,
    "a line": _line,
    "many names": _many_names,
    "many lines": _many_lines,
    "cut": _cut,
    "line ends": _ends,
}


def _manifest_value(dice: random.Random, raw: bytes) -> bytes:
    return _spelled(_changed(dice, _parsed(raw)))


def _manifest_other(dice: random.Random, raw: bytes) -> bytes:
    return dice.choice(
        (b"", b"null", b"[]", b"{}", b"[" * 5_000, b"\xff\xfe{}", _spelled(hostile.value(dice)), raw * 2)
    )


def _manifest_all(dice: random.Random, raw: bytes) -> bytes:
    record = _parsed(raw)
    if not isinstance(record, dict):
        return raw
    return _spelled({name: _like(dice, value) if dice.random() < 0.5 else value for name, value in record.items()})


_MANIFEST: dict[str, Callable[[random.Random, bytes], bytes]] = {
    "a value": _manifest_value,
    "values": _manifest_all,
    "another": _manifest_other,
}
