"""`linnet chat`: talk to a model in the terminal, or line by line through a pipe."""

from __future__ import annotations

import io
import sys
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from linnet.board import words
from linnet.cli.options import AdapterNames, AnyBase, AsJson, ModelName, RunsFolder, find_model, print_choice
from linnet.cli.printing import json_line, paint, width, wrapped
from linnet.cli.streams import complain
from linnet.cli.wrapped_output import WrappedOutput
from linnet.errors import LinnetError, UsageError, suggestion
from linnet.gguf.chat_families import AUTO
from linnet.gguf.chat_format import ChatFormatName
from linnet.infer.text_options import ChatOptions

if TYPE_CHECKING:
    from linnet.infer import Answer, Chat

_COMMANDS = {
    "/help": "what there is",
    "/system TEXT": "another system message, from the next question on; without TEXT: say it",
    "/reset": "forget what was said",
    "/save FILE": "add the conversation to a JSONL file, as a row that can be trained on",
    "/quit": "end; so does Ctrl-D",
}
_HELP = 14  # columns of a command in `/help`
_CONTINUED = "\\"


def chat(
    model: ModelName,
    /,
    *,
    system: str | None = None,
    system_file: Path | None = None,
    options: Annotated[ChatOptions, Parameter(name="*", allow_leading_hyphen=True)] = ChatOptions(),  # noqa: B008 (it is frozen)
    chat_format: ChatFormatName | None = None,
    think: bool = False,
    adapter: AdapterNames = (),
    any_base: AnyBase = False,
    device: str = "auto",
    runs: RunsFolder = None,
    json: AsJson = False,
) -> int:
    """Talk to a model. In a pipe every line is a question.

    Args:
        system: What the model is told before the conversation.
        system_file: The same, out of a file in UTF-8.
        chat_format: How messages are written; by default as the model's chat template tells.
        think: Let a model that thinks before it answers (Qwen 3) do so.
        device: auto, cpu, cuda or mps (auto).
    """
    import linnet

    if system is not None and system_file is not None:
        raise UsageError("--system and --system-file exclude each other: give one of them")
    if system_file is not None:
        system = _text_of(system_file)
    path = find_model(model, runs)
    loaded = linnet.load(path, device=device, runs=runs, adapter=adapter, any_base=any_base)
    talk = linnet.chat(loaded, system=system, chat_format=chat_format or AUTO, think=think, **asdict(options))
    print_choice(model, path, json)
    if isinstance(sys.stdin, io.TextIOWrapper):  # a line of other bytes is refused as a question, not here
        sys.stdin.reconfigure(encoding="utf-8", errors="surrogateescape")
    if sys.stdin.isatty() and not json:
        return _converse(talk)
    return _answer_lines(talk, json)


def _text_of(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8").strip()
    except UnicodeDecodeError:
        raise UsageError(f"--system-file {path}: expected text in UTF-8, found other bytes") from None


# -- in a pipe --------------------------------------------------------------------------------------------------------


def _answer_lines(talk: Chat, json: bool) -> int:
    """Answer every line of standard input, with an empty line between two answers; commands work as in a terminal."""
    is_first = True
    for number, line in enumerate(sys.stdin, 1):
        question = line.strip()
        if not question:
            continue
        if (command := _command_of(question)) is not None:
            if not _obey(talk, *command):
                break
            continue
        try:
            answer = talk.stream(question)
        except UsageError as error:
            raise UsageError(f"line {number}: {error}") from None
        if json:
            "".join(answer)
            fields = {"question": question, "answer": answer.text, "stopped": answer.stopped, "dropped": answer.dropped}
            print(json_line({**fields, "prompt_tokens": len(answer.prompt_tokens), "tokens": len(answer.tokens)}))
        else:
            print("" if is_first else "\n", end="")
            _write(answer)
        sys.stdout.flush()
        is_first = False
    return 0


# -- in a terminal ----------------------------------------------------------------------------------------------------


def _converse(talk: Chat) -> int:
    """Questions and answers, until the end."""
    with suppress(ImportError):
        import readline  # noqa: F401 (lines can be edited, and had again)
    model = talk.model
    facts = f"{model.name} · {talk.format.name} · context {model.config.ctx:,} · {model.device}"
    print(paint(words.shorten(words.plain(facts), width()), "bold"))
    print(paint("/help lists commands, Ctrl-C stops an answer, Ctrl-D ends", "dim"))
    while True:
        try:
            question = _question()
            if question is None:
                print()
                return 0
            if (command := _command_of(question)) is None:
                _write(talk.stream(question))
            elif not _obey(talk, *command):
                return 0
        except UsageError as error:
            complain(words.flags(str(error)))
        except KeyboardInterrupt:  # what was typed so far is not meant
            print()


def _question() -> str | None:
    """What is typed; a line that ends with a backslash goes on in the next. None at the end."""
    lines: list[str] = []
    try:
        while not lines or not "\n".join(lines).strip() or lines[-1].endswith(_CONTINUED):
            lines = [line.removesuffix(_CONTINUED) for line in lines if line]
            lines.append(input(_prompt("… " if lines else "> ")))
    except EOFError:
        return None
    return "\n".join(lines).strip()


def _prompt(text: str) -> str:
    """A prompt in colour, whose escapes readline does not count."""
    painted = paint(text, "cyan")
    return painted if painted == text else painted.replace("\x1b", "\x01\x1b").replace("m", "m\x02")


def _write(answer: Answer) -> None:
    """Print an answer as it comes; Ctrl-C ends it, and what came of it stays part of the conversation."""
    if answer.dropped:
        turns = "question and its answer are" if answer.dropped == 1 else f"{answer.dropped} questions and answers are"
        complain(f"the context is full: the oldest {turns} forgotten")
    output = WrappedOutput(sys.stdout, width() if sys.stdout.isatty() else None)
    try:
        for piece in answer:
            output.write(piece)
    except KeyboardInterrupt:
        if not sys.stdin.isatty():
            raise
    finally:
        output.close()
    if answer.stopped == "interrupted":
        print(paint("(stopped)", "dim"))
    elif answer.stopped in ("max_tokens", "context"):
        why = "the context is full" if answer.stopped == "context" else "at --max-tokens"
        complain(f"the answer was cut off: {why}")


# -- commands ---------------------------------------------------------------------------------------------------------


def _command_of(line: str) -> tuple[str, str] | None:
    """A command and what follows it; None for a question. `/usr/bin` is none."""
    word, _, argument = line.partition(" ")
    return (word, argument.strip()) if word.startswith("/") and word[1:].isalpha() else None


def _obey(talk: Chat, word: str, argument: str) -> bool:
    """Do what a command says; False where it ends the conversation. What is wrong is said, and no end of it."""
    try:
        match word:
            case "/help":
                room = max(20, width() - _HELP - 4)
                for command, meaning in {**_COMMANDS, f"a line {_CONTINUED}": "goes on in the next one"}.items():
                    print(f"  {paint(f'{command:<{_HELP}}', 'cyan')} {wrapped(meaning, room, ' ' * (_HELP + 3))}")
            case "/system":
                if argument:
                    talk.system = argument
                print(paint(words.plain(talk.system or "there is no system message"), "dim"))
            case "/reset":
                talk.reset()
                print(paint("forgotten", "dim"))
            case "/save":
                if not argument:
                    raise UsageError("/save needs the name of a file")
                path = talk.save(Path(argument).expanduser())
                print(paint(f"saved to {words.shown_path(path)}", "dim"))
            case "/quit" | "/exit" | "/bye":
                return False
            case _:
                known = [command.partition(" ")[0] for command in _COMMANDS]
                raise UsageError(f"there is no command {word!r}{suggestion(word, known)}")
    except LinnetError as error:
        complain(words.flags(str(error)))
    except OSError as error:
        complain(f"{argument}: {error.strerror or error}")
    return True
