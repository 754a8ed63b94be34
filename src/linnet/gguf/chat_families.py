"""The chat formats that are known, and which of them a file's is, by its tokenizer and the text of its template.

A chat template is a program in Jinja, and one found in a file is never run. It is told apart by the marks that stand in
it, as llama.cpp does, and messages are written by the table below; what models of a family differ in (a system message
of their own, trimmed contents, a date) is read out of the template's string literals. The tests hold the result against
`transformers`, which does run templates.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Literal, cast, get_args

from linnet.gguf.chat_format import (
    THOUGHTS_END,
    THOUGHTS_OPENING,
    ChatFormat,
    ChatFormatName,
    Message,
    Trim,
    Turn,
)
from linnet.gguf.errors import GGUFError
from linnet.gguf.pretokenizers import pre_named
from linnet.gguf.tokenizer import CONTROL, END_TEXTS, USER_DEFINED

AUTO: Literal["auto"] = "auto"
PLAIN: Literal["plain"] = "plain"
_END_OF_TEXT = "<|endoftext|>"
_LONGEST = 1 << 16  # letters of a template that are looked at
# A role on a line of its own: Phi-4-mini has the same tokens, and the content behind them.
_PHI_3_HEADER = re.compile(r"(?:<\|user\||message\['role'\] \+ '\|)>(?:' *\+ *')?(?:\\n|\n)")
_ALWAYS_SPECIAL = frozenset(END_TEXTS)  # for llama.cpp, whatever their type says

_FORMATS = (
    ChatFormat(
        "chatml",
        user=Turn("<|im_start|>user\n", "<|im_end|>\n"),
        assistant=Turn("<|im_start|>assistant\n", "<|im_end|>\n"),
        system=Turn("<|im_start|>system\n", "<|im_end|>\n"),
        end="<|im_end|>",
        required=("<|im_start|>", "<|im_end|>"),
    ),
    ChatFormat(
        "llama-3",
        user=Turn("<|start_header_id|>user<|end_header_id|>\n\n", "<|eot_id|>"),
        assistant=Turn("<|start_header_id|>assistant<|end_header_id|>\n\n", "<|eot_id|>"),
        system=Turn("<|start_header_id|>system<|end_header_id|>\n\n", "<|eot_id|>"),
        end="<|eot_id|>",
        required=("<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>"),
        trim="message",
    ),
    ChatFormat(
        "gemma",
        user=Turn("<start_of_turn>user\n", "<end_of_turn>\n"),
        assistant=Turn("<start_of_turn>model\n", "<end_of_turn>\n"),
        system=None,
        end="<end_of_turn>",
        required=("<start_of_turn>", "<end_of_turn>"),
        trim="message",
    ),
    ChatFormat(
        "phi-3",
        user=Turn("<|user|>\n", "<|end|>\n"),
        assistant=Turn("<|assistant|>\n", "<|end|>\n"),
        system=Turn("<|system|>\n", "<|end|>\n"),
        end="<|end|>",
        required=("<|user|>", "<|assistant|>", "<|end|>"),
    ),
    ChatFormat(  # its marks of roles are text
        "zephyr",
        user=Turn("<|user|>\n", "{eos}\n"),
        assistant=Turn("<|assistant|>\n", "{eos}\n"),
        system=Turn("<|system|>\n", "{eos}\n"),
        end="{eos}",
        required=("{eos}",),
    ),
    ChatFormat(
        "llama-2",
        user=Turn("{bos}[INST] ", " [/INST]"),
        assistant=Turn("", " {eos}"),
        system=None,
        end="{eos}",
        required=("{bos}", "{eos}"),
        system_in_question=Turn("<<SYS>>\n", "\n<</SYS>>\n\n"),
        answer_prefix=" ",
        trim="turn",
    ),
    ChatFormat(  # of the first versions; later ones have no blank before [/INST], or other tokens
        "mistral",
        user=Turn("[INST] ", " [/INST]"),
        assistant=Turn("", "{eos}"),
        system=None,
        end="{eos}",
        required=("{eos}",),
    ),
    # Of models that know no chat: the end of a text ends an answer. Headers are lines of their own, so that no token
    # of an answer begins in one.
    ChatFormat(
        PLAIN,
        user=Turn("User:\n", "\n\n"),
        assistant=Turn("Assistant:\n", "{eos}"),
        system=Turn("", "\n\n"),
        end="{eos}",
        required=("{eos}",),
    ),
)
_BY_NAME = {written.name: written for written in _FORMATS}
FORMATS: tuple[ChatFormatName, ...] = get_args(ChatFormatName)


def chat_format_of(metadata: Mapping[str, object], name: str = AUTO) -> ChatFormat:
    """The format of a file's chats, or the one of that `name` with the file's tokens.

    What cannot be told, or needs tokens that the vocabulary has not got, is a GGUFError.
    """
    _require_known(name)
    stated = metadata.get("tokenizer.chat_template")
    template = stated if isinstance(stated, str) else ""
    special = special_tokens(metadata)
    family = family_of_template(template) if template else None
    chosen = cast("ChatFormatName", name)
    if name == AUTO:
        chosen = family or _family_of_tokens(special)
        if template and family is None:
            raise GGUFError(
                f"the chat template of this tokenizer is in none of the formats that are known ({', '.join(FORMATS)}):"
                " name the one it is like with `chat_format`, or train one of our own with `chat_format=plain`"
            )
    bos = _marked(metadata, "bos")
    filled = _filled(_BY_NAME[chosen], bos, _end_of_answer(metadata, chosen))
    if missing := [token for token in filled.required if token not in special]:
        named = " and ".join(token or "a token that ends a text" for token in missing)
        raise GGUFError(
            f"the chat format {chosen} needs {named}, which this vocabulary does not have as a special token: choose"
            f" another `chat_format`{'' if chosen == PLAIN else f' (`chat_format={PLAIN}` is plain text)'}"
        )
    mentions_bos = family == chosen and "bos_token" in template
    if bos and not filled.user.before.startswith(bos) and (mentions_bos or _adds_bos(metadata)):
        filled = replace(filled, begin=bos)
    return _as_in_template(filled, template[:_LONGEST]) if family == chosen else filled


def _require_known(name: str) -> None:
    if name not in (AUTO, *FORMATS):
        raise GGUFError(f"`chat_format={name}` is not known: choose from {AUTO}, {', '.join(FORMATS)}")


def own_format(name: str, end: str) -> ChatFormat:
    """The format of a vocabulary that is trained with the special tokens it needs; `end` is that of a text."""
    _require_known(name)
    written = _BY_NAME["chatml" if name == AUTO else cast("ChatFormatName", name)]
    if not written.has_template:
        known = ", ".join(known.name for known in _FORMATS if known.has_template)
        raise GGUFError(f"`chat_format={name}` is not for a vocabulary that is trained here: choose from {known}")
    return _filled(written, "", end)


def family_of_template(template: str) -> ChatFormatName | None:
    """The format of a template by the marks that stand in it; None where it is none of those that are known."""
    template = template[:_LONGEST]
    if "<|im_start|>" in template and "<|im_sep|>" not in template:
        return "chatml"
    if "<|start_header_id|>" in template:
        return "llama-3"
    if "<start_of_turn>" in template:
        return "gemma"
    if "<|end|>" in template and _PHI_3_HEADER.search(template):
        return "phi-3"
    if re.search(r"<\|user\|>[^}]{0,200}eos_token", template):
        return "zephyr"
    if "<<SYS>>" in template:
        return "llama-2"
    if re.search(r"\[INST\] [^}]{0,200} \[/INST\]", template):
        return "mistral"
    plain = _BY_NAME[PLAIN]
    return PLAIN if {plain.user.before, plain.assistant.before} <= set(_literals(template)) else None


def as_turn(prompt: str, template: str) -> str | None:
    """A prompt as a question, up to where the answer begins; None for a template of no known format."""
    family = family_of_template(template)
    if family is None:
        return None
    return _filled(_BY_NAME[family], "", "").text((Message("user", prompt),), answer=True)


def special_tokens(metadata: Mapping[str, object]) -> frozenset[str]:
    """The texts of a vocabulary that stand for one token each and are no words."""
    tokens, types = metadata.get("tokenizer.ggml.tokens"), metadata.get("tokenizer.ggml.token_type")
    if not isinstance(tokens, Sequence) or isinstance(tokens, str):
        return frozenset()
    known = {str(text) for text in tokens if text in _ALWAYS_SPECIAL}
    values = getattr(types, "tolist", lambda: types)()
    if isinstance(values, Sequence):
        known |= {str(text) for text, kind in zip(tokens, values, strict=False) if kind in (CONTROL, USER_DEFINED)}
    return frozenset(known)


def _family_of_tokens(special: frozenset[str]) -> ChatFormatName:
    """The format of a vocabulary without a template: by the tokens that only one of them has."""
    names: tuple[ChatFormatName, ...] = ("chatml", "llama-3", "gemma")
    for name in names:
        if special.issuperset(_BY_NAME[name].required):
            return name
    return PLAIN


def _filled(written: ChatFormat, bos: str, eos: str) -> ChatFormat:
    """A format with the texts of a vocabulary's own tokens."""

    def fill(text: str) -> str:
        return text.replace("{bos}", bos).replace("{eos}", eos)

    def fill_turn(turn: Turn) -> Turn:
        return Turn(*map(fill, turn))

    return replace(
        written,
        user=fill_turn(written.user),
        assistant=fill_turn(written.assistant),
        system=None if written.system is None else fill_turn(written.system),
        end=fill(written.end),
        required=tuple(map(fill, written.required)),
    )


def _as_in_template(written: ChatFormat, template: str) -> ChatFormat:
    """A format with what this template has of its own."""
    literals = list(_literals(template))
    if written.name == "chatml":
        assert written.system is not None
        opening, close = written.system.before, "<|im_end|>"
        own = (text.rstrip("\n") for text in literals if text.startswith(opening))
        default = next((text[len(opening) : -len(close)] for text in own if text.endswith(close)), None)
        trim: Trim = "message" if re.search(r"\|\s*trim\b|\.strip\(\)", template) else "never"
        # Of a model that always thinks, the template itself begins the thoughts.
        opens = f"{written.assistant.before}{THOUGHTS_OPENING}" in literals and f"\n{THOUGHTS_END}" in literals
        thinks = opens or ("enable_thinking" in template and any("</think>" in text for text in literals))
        thoughts_opening = THOUGHTS_OPENING if opens else ""
        return replace(
            written, default_system=default or None, trim=trim, thinks=thinks, thoughts_opening=thoughts_opening
        )
    if written.name == "llama-3" and (
        cut_off := next((text for text in literals if text.startswith("Cutting Knowledge Date")), None)
    ):
        date = re.search(r"""set date_string = ["']([^"']+)["']""", template)
        today = f"Today Date: {date[1]}\n\n" if date else ""
        return replace(written, system_prefix=cut_off + today)
    return written


# Linear, whatever a file holds: a tag with braces in it is passed over.
_TAG = re.compile(r"\{\{[^{}]*\}\}|\{%[^{}]*%\}")
_STRING = re.compile(r"'((?:[^'\\]|\\.)*)'" + r'|"((?:[^"\\]|\\.)*)"', re.DOTALL)
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r"}


def _literals(template: str) -> Iterator[str]:
    """The strings that a template writes as they stand, and the text between its tags."""
    at = 0
    for tag in _TAG.finditer(template):
        yield template[at : tag.start()]
        at = tag.end()
        for string in _STRING.finditer(tag[0]):
            text = string[1] if string[1] is not None else string[2]
            yield re.sub(r"\\(.)", lambda escape: _ESCAPES.get(escape[1], escape[1]), text, flags=re.DOTALL)
    yield template[at:]


def _marked(metadata: Mapping[str, object], mark: str) -> str:
    """The text of the `bos` or `eos` token; an empty one where there is none."""
    number, tokens = metadata.get(f"tokenizer.ggml.{mark}_token_id"), metadata.get("tokenizer.ggml.tokens")
    if not isinstance(number, int) or not isinstance(tokens, Sequence) or not 0 <= number < len(tokens):
        return ""
    return str(tokens[number])


def _end_of_answer(metadata: Mapping[str, object], name: ChatFormatName) -> str:
    """The token that stands for `{eos}`. A chat model's may end a turn; plain answers end as texts do."""
    tokens = metadata.get("tokenizer.ggml.tokens")
    if name == PLAIN and isinstance(tokens, Sequence) and _END_OF_TEXT in tokens:
        return _END_OF_TEXT
    return _marked(metadata, "eos")


def _adds_bos(metadata: Mapping[str, object]) -> bool:
    """Does llama.cpp put a first token before a text?"""
    stated, pre = metadata.get("tokenizer.ggml.add_bos_token"), metadata.get("tokenizer.ggml.pre")
    if isinstance(stated, bool):
        return stated
    if metadata.get("tokenizer.ggml.model") == "llama":
        return True
    return isinstance(pre, str) and pre_named(pre).add_bos
