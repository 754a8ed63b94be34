"""`linnet chat`: through a pipe, and in a terminal."""

from __future__ import annotations

import io
import json
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from linnet.cli.wrapped_output import WrappedOutput
from linnet.gguf import write
from linnet.models import LlamaConfig, build
from tests.board.terminals import PtyTerminal
from tests.conftest import Said
from tests.gguf.tiny import VOCAB, byte_level_tokenizer

CONFIG = LlamaConfig(vocab=VOCAB, d_model=32, n_heads=4, n_kv=2, d_ff=48, n_layers=2, ctx=4096)


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("model") / "small.gguf"
    write(CONFIG, build(CONFIG, seed=3).params(), path, "small", 1, tokenizer=byte_level_tokenizer())
    return path


@pytest.fixture
def typed(monkeypatch: pytest.MonkeyPatch) -> object:
    return lambda text: monkeypatch.setattr("sys.stdin", io.StringIO(text))


def test_in_a_pipe_every_line_is_a_question(file: Path, said: Said, typed: object, tmp_path: Path) -> None:
    saved = tmp_path / "said.jsonl"
    typed(f"who?\n\nwhy?\n/save {saved}\n/usr/bin is what?\n/quit\nnever asked\n")  # type: ignore[operator]
    code, out, err = said("chat", str(file), "--max-tokens", "6", "--temperature", "0")
    assert (code, err.count("cut off: at --max-tokens")) == (0, 3)
    (row,) = [json.loads(line) for line in saved.read_text().splitlines()]
    answers = [message["content"] for message in row["messages"] if message["role"] == "assistant"]
    assert out.startswith(f"{answers[0]}\n\n{answers[1]}\nsaved to ") and "never" not in out


@pytest.mark.parametrize("encoding", ["utf-8", "ascii"])
def test_a_line_that_cannot_be_asked_is_named(
    file: Path, said: Said, monkeypatch: pytest.MonkeyPatch, encoding: str
) -> None:
    for line, complaint in (
        (b"caf\xe9?", "the question is no text in UTF-8"),
        (b"why " * 5000, "tokens as the chat is written"),
    ):
        typed = io.BytesIO("café?\n\n".encode() + line + b"\nwho?\n")
        monkeypatch.setattr("sys.stdin", io.TextIOWrapper(typed, encoding=encoding))
        code, out, err = said("chat", str(file), "--max-tokens", "1", "--json")
        assert (code, out.count("\n"), json.loads(out)["question"]) == (2, 1, "café?")
        assert err.count("\n") == 1 and "line 3: the question " in err and complaint in err


def test_its_json_has_an_object_a_line(file: Path, said: Said, typed: object, tmp_path: Path) -> None:
    (tmp_path / "system.txt").write_text("be brief\n")
    typed("who?\nwhy?\n")  # type: ignore[operator]
    words = ("--system-file", str(tmp_path / "system.txt"), "--max-tokens", "4", "--json")
    _, out, err = said("chat", str(file), *words)
    answers = [json.loads(line) for line in out.splitlines()]
    assert [answer["question"] for answer in answers] == ["who?", "why?"] and not err
    assert all(answer["stopped"] == "max_tokens" and answer["tokens"] == 4 for answer in answers)
    assert answers[1]["prompt_tokens"] > answers[0]["prompt_tokens"]


def test_commands_that_are_none_and_flags_that_exclude_each_other(
    file: Path, said: Said, typed: object, tmp_path: Path
) -> None:
    typed("/sytem\n/save\n/system be rude\n/system\n/reset\n/help\n")  # type: ignore[operator]
    code, out, err = said("chat", str(file))
    assert code == 0 and "no command '/sytem'; did you mean /system?" in err and "/save needs the name of a file" in err
    assert out.startswith("be rude\nbe rude\nforgotten\n  /help ")
    code, _, err = said("chat", str(file), "--system", "a", "--system-file", str(tmp_path / "b"))
    assert code == 2 and "--system and --system-file exclude each other" in err


def wait_for(terminal: PtyTerminal, is_there: Callable[[str], bool]) -> None:
    until = time.monotonic() + 60
    while not is_there(terminal.text()):
        assert terminal.poll() and time.monotonic() < until, terminal.text()


def test_in_a_terminal_ctrl_c_stops_an_answer_and_ctrl_d_ends(file: Path, tmp_path: Path) -> None:
    saved = tmp_path / "said.jsonl"
    terminal = PtyTerminal([str(file), "--max-tokens", "4000", "--device", "cpu"], 80, 24, command="chat")
    try:
        wait_for(terminal, lambda text: "\n>" in text)
        terminal.press("who?\r")
        wait_for(terminal, lambda text: len(text.partition("who?")[2]) > 160)
        terminal.press("\x03")
        wait_for(terminal, lambda text: "(stopped)" in text)
        terminal.press(f"/save {saved}\r")
        wait_for(terminal, lambda text: "saved to " in text)
        terminal.press("half a line")
        wait_for(terminal, lambda text: "> half a line" in text)
        terminal.press("\x03")
        wait_for(terminal, lambda text: text.rstrip().endswith("\n>"))
        terminal.press("\x04")
        assert terminal.ended(30) == 0
    finally:
        terminal.close()
    row = json.loads(saved.read_text())
    assert row["messages"][0] == {"role": "user", "content": "who?"} and row["messages"][1]["content"]


def shown(text: str, columns: int, size: int) -> list[str]:
    stream = io.StringIO()
    output = WrappedOutput(stream, columns)
    for start in range(0, len(text), size):
        output.write(text[start : start + size])
    output.close()
    return stream.getvalue().splitlines()


@pytest.mark.parametrize("size", [1, 3, 1000])
def test_answers_are_broken_between_words(size: int) -> None:
    lines = shown("one two three four\n  five sixsixsix", 10, size)
    assert lines == ["one two", "three", "four", "  five", "sixsixsix"]
    assert shown("鲸鱼很大 sea", 7, size) == ["鲸鱼很", "大 sea"]  # wide letters take two columns
    assert shown("a\x1b[2Jb", 80, size) == ["a␛[2Jb"]
    assert shown("naïve e\u0301té", 80, size) == ["naïve e\u0301té"]
