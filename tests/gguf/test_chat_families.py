"""Which chat format a file has: by its template's text, which is never run, and by its tokens."""

from __future__ import annotations

import re
import time
from contextlib import suppress
from typing import Any

import pytest

from linnet.gguf import GGUFError
from linnet.gguf.chat_families import FORMATS, PLAIN, chat_format_of, family_of_template
from linnet.gguf.chat_format import Message
from tests.gguf import chat_templates as templates
from tests.gguf.chat_vocabularies import vocabulary

CHAT = [Message("user", "hi"), Message("assistant", "yes")]


def told(family: str, template: str | None = None, **keys: Any) -> dict[str, Any]:
    metadata = dict(vocabulary(family)) | {f"tokenizer.ggml.{name}": value for name, value in keys.items()}
    return metadata if template is None else metadata | {"tokenizer.chat_template": template}


@pytest.mark.parametrize(
    ("template", "family"),
    [
        (templates.CHATML, "chatml"),
        (templates.SMOLLM2, "chatml"),
        (templates.QWEN2_5, "chatml"),
        (templates.QWEN3, "chatml"),
        (templates.LLAMA_3, "llama-3"),
        (templates.LLAMA_3_2, "llama-3"),
        (templates.GEMMA_2, "gemma"),
        (templates.GEMMA_3, "gemma"),
        (templates.QWEN3_THINKING, "chatml"),
        (templates.PHI_3, "phi-3"),
        (templates.PHI_3.replace("<|user|>\n", "<|user|>' + '\n"), "phi-3"),
        ("{{ '<|' + message['role'] + '|>' + '\\n' + message['content'] + '<|end|>\\n' }}", "phi-3"),
        (templates.PHI_4_MINI, None),
        (templates.ZEPHYR, "zephyr"),
        (templates.LLAMA_2, "llama-2"),
        (templates.MISTRAL, "mistral"),
        ("{% for m in messages %}{{ '<|im_start|>' + m.role + '<|im_sep|>' + m.content }}{% endfor %}", None),
        ("{{ 'User: ' + messages[0]['content'] + '\n\nAssistant:' }}", None),
        ("{{ '[INST]' + messages[0]['content'] + '[/INST]' }}", None),
    ],
)
def test_a_template_is_told_by_its_marks(template: str, family: str | None) -> None:
    assert family_of_template(template) == family


def test_what_a_template_has_of_its_own_is_read_out_of_it() -> None:
    assert chat_format_of(told("chatml", templates.CHATML)).default_system is None
    assert chat_format_of(told("chatml", templates.SMOLLM2)).default_system == (
        "You are a helpful AI assistant named SmolLM, trained by Hugging Face"
    )
    assert chat_format_of(told("chatml", templates.QWEN2_5)).default_system == (
        "You are Qwen, created by Alibaba Cloud. You are a helpful assistant."
    )
    hybrid, always = (chat_format_of(told("chatml", t)) for t in (templates.QWEN3, templates.QWEN3_THINKING))
    assert (hybrid.thinks, hybrid.thoughts_opening) == (True, "")
    assert (always.thinks, always.thoughts_opening) == (True, "<think>\n")
    assert chat_format_of(told("chatml", templates.CHATML_TRIMMED)).trim == "message"
    assert chat_format_of(told("llama-3", templates.LLAMA_3_2)).system_prefix == (
        "Cutting Knowledge Date: December 2023\nToday Date: 26 Jul 2024\n\n"
    )
    between_tags = "{% if true %}<|im_start|>system\nIt's plain.<|im_end|>\n{% endif %}{{ '<|im_end|>' }}"
    assert chat_format_of(told("chatml", between_tags)).default_system == "It's plain."


@pytest.mark.parametrize("family", ["chatml", "llama-3", "gemma", PLAIN])
def test_a_vocabulary_without_a_template_is_told_by_its_tokens(family: str) -> None:
    assert chat_format_of(told(family)).name == family


@pytest.mark.parametrize("family", ["chatml", "llama-3", "phi-3", PLAIN])
def test_the_template_that_we_write_is_recognised_again(family: str) -> None:
    written = chat_format_of(told(family), family)
    again = chat_format_of(told(family, written.chat_template()))
    assert again.text(CHAT) == written.text(CHAT) and again.name == family


def test_a_format_can_be_named_and_then_has_nothing_of_another_ones_template() -> None:
    metadata = told("chatml", templates.SMOLLM2)
    assert chat_format_of(metadata, "chatml").default_system is not None
    assert chat_format_of(metadata, PLAIN).text(CHAT) == "User:\nhi\n\nAssistant:\nyes<|endoftext|>"


def test_a_first_token_stands_where_llama_cpp_puts_one() -> None:
    assert not chat_format_of(told("llama-3", templates.LLAMA_3.replace("bos_token", "''"))).begin
    assert chat_format_of(told("llama-3", templates.LLAMA_3)).begin == "<|begin_of_text|>"
    assert chat_format_of(told("llama-3", add_bos_token=True)).begin == "<|begin_of_text|>"
    assert chat_format_of(told("llama-2", templates.LLAMA_2, add_bos_token=True)).begin == ""  # every question has it


@pytest.mark.parametrize(
    ("metadata", "name", "words"),
    [
        (told("chatml", "{{ messages | tojson }}"), "auto", "in none of the formats that are known (chatml, llama-3,"),
        (told("chatml"), "llama-3", "llama-3 needs <|start_header_id|> and <|end_header_id|> and <|eot_id|>, which"),
        (told("plain", templates.CHATML), "auto", "chatml needs <|im_start|> and <|im_end|>, which this vocabulary"),
        (told("chatml"), "vicuna", f"`chat_format=vicuna` is not known: choose from auto, {', '.join(FORMATS)}"),
        ({"tokenizer.ggml.tokens": ["a", "b"]}, "auto", "plain needs a token that ends a text"),
    ],
)
def test_what_cannot_be_written_is_said_in_a_line(metadata: dict[str, Any], name: str, words: str) -> None:
    with pytest.raises(GGUFError, match=re.escape(words)) as caught:
        chat_format_of(metadata, name)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "template",
    ["{{" * 500_000, "<|user|>" * 100_000, "[INST] " * 100_000, "{{'" * 300_000, '{{ "<|im_start|>system\\' * 50_000],
    ids=["open tags", "marks", "questions", "open strings", "open strings of ChatML"],
)
def test_no_template_takes_long(template: str) -> None:
    began = time.process_time()
    with suppress(GGUFError):
        chat_format_of(told("chatml", template))
    assert time.process_time() - began < 2
