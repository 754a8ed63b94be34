"""The library's errors name fields, which a Python program can set; the command line says them as flags."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import linnet
from linnet.board.words import flags
from linnet.cli import main
from linnet.recipes import VitOptions
from linnet.runs import RunStore
from linnet.train.metrics import Gate
from linnet.train.settings import TrainSettings
from linnet.train.state import StateError, load

_PACKAGE = Path(linnet.__file__).parent
_COMMAND_LINES = ("board/", "runs/provenance.py", "recipes/registry.py")  # whole commands to type, and git's


@pytest.mark.parametrize(
    ("message", "shown"),
    [
        ("`lr` must be above 0, found 0.0", "--lr must be above 0, found 0.0"),
        (
            "`batch_tokens=100` is no multiple (`batch=4` × `ctx=32`)",
            "--batch-tokens 100 is no multiple (--batch 4 × --ctx 32)",
        ),
        ("take `donor=FILE.gguf`: `linnet runs` lists them", "take --donor FILE.gguf: `linnet runs` lists them"),
        ("no run '`' in a`b", "no run '`' in a`b"),
    ],
)
def test_fields_become_flags(message: str, shown: str) -> None:
    assert flags(message) == shown


def test_backticks_of_other_libraries_are_no_flags(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """`msgspec` and `safetensors` write types and fields of theirs so."""
    (tmp_path / "rows.jsonl").write_text("[1,2]\n")
    assert main(["data", "show", str(tmp_path / "rows.jsonl")]) == 1
    said = capsys.readouterr().err
    assert "line 1 is not a JSON object: expected object, found array" in said and "--" not in said
    header = b'{"a": {"shape": [1]}}'
    (tmp_path / "a.safetensors").write_bytes(len(header).to_bytes(8, "little") + header)
    with pytest.raises(StateError, match="missing field 'dtype'"):
        load(tmp_path / "a.safetensors")


def test_python_programs_are_told_fields(tmp_path: Path) -> None:
    with pytest.raises(linnet.LinnetError, match=r"^`lr` must be above 0, found 0"):
        TrainSettings(lr=0)
    with pytest.raises(linnet.LinnetError, match=r"^`warmup` must be between 0 and `steps` \(5\), found 9"):
        TrainSettings(steps=5, warmup=9)
    with pytest.raises(linnet.LinnetError, match=r"^`batch_tokens=100` is no multiple .* \(`batch=4` × `ctx=32`\)"):
        TrainSettings(batch=4, batch_tokens=100).accumulate(32)
    with pytest.raises(linnet.LinnetError, match=r"^`label_smoothing` must be from 0 to"):
        VitOptions(label_smoothing=-1)
    with pytest.raises(linnet.LinnetError, match=r"^`gate` 'loss' is not understood"):
        Gate.parse("loss")
    with pytest.raises(linnet.LinnetError, match=r"name another folder with `runs`$"):
        RunStore(tmp_path).find("latest")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("train from-scratch --lr 0", "--lr must be above 0, found 0.0"),
        ("train from-scratch --steps 5 --warmup 9", "--warmup must be between 0 and --steps (5), found 9"),
        ("train vit-tiny --label-smoothing=-1", "--label-smoothing must be from 0 to 0.99, found -1"),
        ("train vit-tiny --init select", "--init select takes its weights from a larger model, --donor FILE.gguf"),
    ],
)
def test_the_command_line_says_flags(words: str, message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(words.split()) == 2
    assert capsys.readouterr().err.startswith(f"linnet: {message}")


def test_no_message_of_the_library_names_a_flag() -> None:
    """Whole commands (`linnet convert --tokenizer`) may be named anywhere."""
    flag = re.compile(r"(?:^|[\s(])--[a-z{]")
    whole_command = re.compile(r"linnet [a-z]+( \{\})?[^;.]* --[a-z-]+")
    named = []
    for path in sorted(_PACKAGE.rglob("*.py")):
        name, source = str(path.relative_to(_PACKAGE)), path.read_text(encoding="utf-8")
        if not name.startswith(("cli/", *_COMMAND_LINES)) and "--" in source:
            texts = (whole_command.sub("", text) for text in _texts(ast.parse(source)))
            named += [f"{name}: {text}" for text in texts if flag.search(text)]
    assert not named


def _texts(tree: ast.Module) -> Iterator[str]:
    """Every string of a module but its docstrings."""
    statements = (node.body for node in ast.walk(tree) if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef))
    docstrings = {id(body[0].value) for body in statements if body and isinstance(body[0], ast.Expr)}
    parts: set[int] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.JoinedStr):
            parts |= {id(part) for part in node.values}
            yield "".join(part.value if isinstance(part, ast.Constant) else "{}" for part in node.values)  # type: ignore[misc]
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in docstrings | parts:
            yield node.value
