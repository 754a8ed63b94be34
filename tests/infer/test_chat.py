"""A conversation with a model: remembered within its context, read once, interrupted, saved as what trains again."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

import linnet
from linnet.data.conversations import from_json
from linnet.data.corpus import find_corpus
from linnet.data.documents import passages
from linnet.data.row_kinds import with_rows
from linnet.errors import UsageError
from linnet.gguf import write
from linnet.gguf.chat_format import Message
from linnet.infer import Chat, LoadedModel
from linnet.infer.generation import Decoder
from linnet.models import LlamaConfig, build
from linnet.models import preset as preset_of
from tests.gguf.tiny import VOCAB, byte_level_tokenizer

CONFIG = LlamaConfig(vocab=VOCAB, d_model=32, n_heads=4, n_kv=2, d_ff=48, n_layers=2, ctx=256)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> LoadedModel:
    path = tmp_path_factory.mktemp("model") / "small.gguf"
    write(CONFIG, build(CONFIG, seed=3).params(), path, "small", 1, tokenizer=byte_level_tokenizer())
    return linnet.load(path, device="cpu")


@pytest.fixture
def lengths_read(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many tokens are read each time."""
    lengths, read = [], Decoder.read
    monkeypatch.setattr(Decoder, "read", lambda self, ids: (lengths.append(ids.shape[1]), read(self, ids))[1])
    return lengths


def chat(model: LoadedModel, **options: object) -> Chat:
    return linnet.chat(model, temperature=0, **{"max_tokens": 12, **options})  # type: ignore[arg-type]


def test_a_model_of_chats_answers_and_remembers(smollm2: Path) -> None:
    talk = linnet.chat(smollm2, device="cpu", temperature=0, max_tokens=12)
    assert "Paris" in talk.ask("What is the capital of France?")
    answer = talk.stream("And of Italy?")
    assert "Rome" in "".join(answer) and answer.stopped == "end"
    assert repr(talk) == "<Chat SmolLM2-135M-Instruct.Q4_1.gguf: chatml, 2 answers>"
    assert [message.role for message in talk.messages] == ["user", "assistant"] * 2


def test_only_what_is_new_is_read_and_answers_are_those_of_the_whole_chat(
    model: LoadedModel, lengths_read: list[int]
) -> None:
    talk = chat(model, system="the whale")
    for number, question in enumerate(("who?", "and then?", "why is it so?")):
        said = talk.messages
        answer = talk.stream(question)
        text = "".join(answer)
        alone = Chat(model, temperature=0, max_tokens=12)
        alone.messages = said
        assert alone.ask(question) == text
        whole = len(answer.prompt_tokens)
        assert lengths_read[-1] == whole  # read alone, the chat is read from its beginning
        assert (lengths_read[-2] == whole) == (number == 0)
    assert talk.format.name == "plain"
    written = "".join(
        f"User:\n{q.content}\n\nAssistant:\n{a.content}<|endoftext|>"
        for q, a in zip(said[1::2], said[2::2], strict=True)
    )
    asked = f"the whale\n\n{written}User:\nwhy is it so?\n\nAssistant:\n"
    assert model.tokenizer.decode(answer.prompt_tokens, skip_special_tokens=False) == asked


def test_the_oldest_questions_are_forgotten_where_the_context_is_full(model: LoadedModel) -> None:
    talk = chat(model, system="be brief", max_tokens=30)
    dropped = 0
    for number in range(12):
        answer = talk.stream(f"question {number} of many")
        "".join(answer)
        dropped += answer.dropped
        assert len(answer.prompt_tokens) <= CONFIG.ctx - 30
        assert talk.messages[0] == Message("system", "be brief")
        assert talk.messages[-2].content == f"question {number} of many"
    assert (
        dropped
        == sum(f"question {number} of many" not in {m.content for m in talk.messages} for number in range(12))
        > 3
    )
    with pytest.raises(
        UsageError, match=r"the question has \d+ tokens as the chat is written, and the model's context 256: s"
    ):
        talk.stream("much too long " * 60)


def test_an_answer_that_is_stopped_stays_as_far_as_it_came(model: LoadedModel) -> None:
    talk = chat(model, max_tokens=40)
    answer = talk.stream("who?")
    pieces = iter(answer)
    text = next(pieces) + next(pieces)
    pieces.close()  # type: ignore[attr-defined]
    assert (answer.stopped, answer.text) == ("interrupted", text)
    assert talk.messages == [Message("user", "who?"), Message("assistant", text)]
    fresh = chat(model, max_tokens=40)
    fresh.messages = talk.messages
    assert talk.ask("go on") == fresh.ask("go on")


def test_an_answer_that_is_read_again_is_part_of_the_conversation_once(model: LoadedModel) -> None:
    talk = chat(model)
    answer = talk.stream("who?")
    text = "".join(answer)
    with pytest.raises(UsageError, match="generated already"):
        "".join(answer)
    assert talk.messages == [Message("user", "who?"), Message("assistant", text)]
    assert answer.stopped in ("end", "max_tokens")


def test_an_answer_is_not_continued_with_what_was_read_for_another(model: LoadedModel) -> None:
    talk = chat(model, max_tokens=40)
    pieces = iter(first := talk.stream("who?"))
    begun = next(pieces)
    other = talk.ask("why?")
    with pytest.raises(UsageError, match="another answer of this chat was begun before this one had ended"):
        next(pieces)
    assert (first.stopped, first.text) == ("interrupted", begun)
    assert [message.content for message in talk.messages] == ["why?", other, "who?", begun]


class _Interrupted:
    """Raises Ctrl-C while a chat is read."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._read, self._count = Decoder.read, 0
        monkeypatch.setattr(Decoder, "read", lambda decoder, ids: self(decoder, ids))

    def __call__(self, decoder: Decoder, ids: object) -> object:
        logits = self._read(decoder, ids)  # type: ignore[arg-type]
        self._count += 1
        if self._count == 2:
            raise KeyboardInterrupt
        return logits


def test_ctrl_c_while_a_question_is_read_leaves_the_chat_as_it_was(
    model: LoadedModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    talk = chat(model)
    talk.ask("who?")
    before = talk.messages
    with monkeypatch.context() as patch:
        talk.reset()
        _Interrupted(patch)
        talk.ask("one")
        with pytest.raises(KeyboardInterrupt):
            talk.ask("two")
    fresh = chat(model)
    fresh.messages = talk.messages
    assert talk.messages[0].content == "one" and talk.messages != before
    assert talk.ask("three") == fresh.ask("three")


def test_a_saved_conversation_is_a_row_that_trains(model: LoadedModel, tmp_path: Path) -> None:
    talk = chat(model, system="be brief")
    with pytest.raises(UsageError, match="nothing has been answered yet"):
        talk.save(tmp_path / "chat.jsonl")
    for question in ("who?", "why?"):
        talk.ask(question)
        talk.save(tmp_path / "chat.jsonl")
    rows = [json.loads(line) for line in (tmp_path / "chat.jsonl").read_text().splitlines()]
    assert len(rows) == 2 and len(rows[1]["messages"]) == 5
    source = with_rows(find_corpus(tmp_path / "chat.jsonl"))
    assert [from_json(passage.text) for passage in passages(source)][1] == talk.messages
    talk.reset()
    assert talk.messages == [Message("system", "be brief")]
    talk.system = None
    assert talk.messages == [] and talk.system is None


def test_words_of_a_question_are_text_and_the_models_own_tokenizer_is_left_alone(model: LoadedModel) -> None:
    talk = chat(model)
    ids = talk.stream("<|endoftext|>").prompt_tokens
    assert VOCAB - 1 not in ids
    assert model.encode("<|endoftext|>") == [VOCAB - 1]


def test_what_cannot_be_asked_is_said(model: LoadedModel, tmp_path: Path) -> None:
    config = preset_of("vit-tiny-8", num_channels=1, num_classes=3)
    write(config, build(config, seed=1).params(), tmp_path / "vit.gguf", "run", 1)
    for call, words in (
        (lambda: chat(model, temprature=1), "chat: there is no option 'temprature'; did you mean temperature"),
        (lambda: chat(model).ask(" \n"), "the question is empty"),
        (lambda: linnet.chat(tmp_path / "vit.gguf"), "classifies images and knows no text"),
        (lambda: chat(model).ask("\udcff"), "the question is no text in UTF-8: it holds other bytes"),
        (lambda: chat(model, system="\udcff"), "the system message is no text in UTF-8"),
        (lambda: chat(model, chat_format="chatml"), r"chatml needs <\|im_start\|> and"),
    ):
        with pytest.raises(linnet.LinnetError, match=words):
            call()


def test_a_question_that_fits_no_context_leaves_the_chat_as_it_was(model: LoadedModel) -> None:
    talk = linnet.chat(model, max_tokens=4)
    talk.ask("who?")
    said = talk.messages
    with pytest.raises(linnet.LinnetError, match="shorten it"):
        talk.ask("why " * 2000)
    assert talk.messages == said


def test_wrong_options_forget_nothing_of_a_chat_that_fills_its_context(model: LoadedModel) -> None:
    talk = chat(model, max_tokens=30)
    talk.messages = [Message(role, "many words of old") for _ in range(8) for role in ("user", "assistant")]
    said = talk.messages
    with pytest.raises(UsageError, match="top_p is 7"):
        talk.ask("and now?", top_p=7)
    assert talk.messages == said
    talk.ask("and now?")
    assert len(talk.messages) < len(said)


def test_each_answer_has_a_seed_of_its_own(model: LoadedModel) -> None:
    def said() -> Iterator[str]:
        talk = linnet.chat(model, max_tokens=8, seed=3)
        yield from (talk.ask("who?") for _ in range(2))

    first = list(said())
    assert first == list(said()) and first[0] != first[1]
