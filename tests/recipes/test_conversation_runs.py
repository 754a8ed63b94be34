"""Trainings on conversations: a loss on the answers alone, resumed to the bit, judged on held-out answers."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

import linnet
from linnet.data.chat_encoding import ChatEncoder
from linnet.gguf import GGUFFile
from linnet.gguf.chat_families import chat_format_of
from linnet.gguf.chat_format import Message
from linnet.gguf.tokenizer import rebuild_tokenizer
from linnet.models import load
from tests.conftest import Printed, Said, interrupt, losses
from tests.data.chats import chat, chats, write_jsonl

SHAPE = ("--preset", "tiny", "--vocab", "400", "--batch", "4", "--lr", "5e-3", "--held-out", "0.1")


@pytest.fixture(scope="module")
def conversations(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return chats(tmp_path_factory.mktemp("chats") / "chat.jsonl", 160)


@pytest.fixture(autouse=True)
def _cache(cache: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("LINNET_CACHE", str(cache))
    yield


def words(corpus: Path, *more: str, ctx: int = 160) -> list[str]:
    return ["train", "from-scratch", "--corpus", str(corpus), *SHAPE, "--ctx", str(ctx), *more]


def test_a_training_on_conversations_says_what_it_does_and_is_evaluated_on_answers(
    printed: Printed, conversations: Path, root: Path
) -> None:
    out = printed(*words(conversations, "--steps", "30", "--eval-every", "10", "--run-id", "a"))
    notes = [event.data["text"] for event in linnet.open("a").events().read_events() if event.kind == "note"]
    assert notes[0] in out and "conversations, written as chatml, in " in notes[0]
    assert out.endswith("\n  linnet show a\n  linnet chat a\n")
    run = linnet.open("a")
    kept = {name: run.config[name] for name in ("rows", "chat_format", "train_on", "documents")}
    assert kept == {"rows": "conversations", "chat_format": "chatml", "train_on": "answers", "documents": True}
    validation = run.metrics()["validation/loss"].value
    assert validation[-1] < validation[0] < 6
    # a held-out question is answered in the samples
    (question,) = run.config["prompts"]
    held_out = {message["content"] for number in range(160) for message in chat(number)}
    assert question in held_out
    # the checkpoint brings the template that its chats were written with
    with GGUFFile.open(run.path / "weights/step_30.gguf") as file:
        assert chat_format_of(file.metadata).name == "chatml"
    scored = json.loads(printed("eval", "a@30", "--json"))
    assert scored["loss"] == pytest.approx(validation[-1], abs=1e-6) and scored["conversations"] > 5


def test_the_loss_is_that_of_each_answer_after_its_own_conversation(
    printed: Printed, conversations: Path, root: Path
) -> None:
    printed(*words(conversations, "--steps", "4", "--eval-every", "4", "--run-id", "b"))
    path = root / "b/weights/step_4.gguf"
    with GGUFFile.open(path) as file:
        model, metadata = load(file, torch.device("cpu"), task="text"), dict(file.metadata)
    encoder = ChatEncoder(rebuild_tokenizer(metadata), metadata, chat_format_of(metadata))
    nats, count = 0.0, 0
    for line in conversations.read_text().splitlines():
        messages = [Message(message["role"], message["content"]) for message in json.loads(line)["messages"]]
        encoded = encoder.encode(messages)
        with torch.no_grad():
            log_p = model(torch.from_numpy(encoded.ids_N.astype("int64"))[None, :160])[0].log_softmax(-1)
        for place in encoded.trained_N.nonzero()[0]:
            if place <= 160:
                nats -= float(log_p[place - 1, int(encoded.ids_N[place])])
                count += 1
    scored = json.loads(printed("eval", "b", "--corpus", str(conversations), "--json"))
    assert scored["tokens"] == count
    assert scored["loss"] == pytest.approx(nats / count, rel=1e-5)


def test_an_interrupted_training_goes_on_to_the_bit(conversations: Path, root: Path, printed: Printed) -> None:
    arguments = words(conversations, "--steps", "8", "--eval-every", "4", "--checkpoint-every", "4")
    printed(*arguments, "--run-id", "whole")
    interrupt([*arguments, "--run-id", "cut"], at="eval 4")
    printed("resume", "cut")
    assert losses("cut") == losses("whole") and len(losses("whole")) == 8
    forked = printed("train", "from-scratch", "--from", "whole@4", "--train-on", "all", "--run-id", "fork")
    assert "trained on everything in them" in forked and len(losses("fork")) == 4


def test_python_trains_and_reads_the_same(conversations: Path, root: Path, printed: Printed) -> None:
    printed(*words(conversations, "--steps", "2", "--run-id", "by-command"))
    run = linnet.train(
        "from-scratch", corpus=conversations, preset="tiny", vocab=400, ctx=160, batch=4, lr=5e-3, held_out=0.1, steps=2
    )
    assert losses(run.id) == losses("by-command")


def test_what_cannot_be_trained_on_is_said_before_a_folder_is_made(
    said: Said, conversations: Path, corpus: Path, root: Path, tmp_path: Path
) -> None:
    bad = tmp_path / "bad.jsonl"
    shutil.copy(conversations, bad)
    with bad.open("a") as file:
        file.write('{"messages": [{"role": "assistant", "content": "first"}]}\n')
    silent = write_jsonl(tmp_path / "silent.jsonl", [{"messages": [{"role": "user", "content": "hello?"}]}])
    for arguments, complaint in (
        (words(bad), f"corpus {bad}: line 161 has its roles out of order: message 1 is of the assistant, at the begin"),
        (
            words(silent),
            "silent.jsonl: 1 row of it left out: line 1 has no answer to train on; nothing is left to train on",
        ),
        (
            words(conversations, ctx=8),
            "no answer of its 144 conversations begins within 8 tokens: choose a larg",
        ),
        (words(conversations, "--chat-format", "gemma"), "--chat-format gemma is not for a vocabulary that is trained"),
        (words(corpus, "--train-on", "all"), "--train-on is for conversations, and corpus "),
    ):
        code, _, err = said(*arguments, "--steps", "2")
        assert code in (1, 2) and complaint in err and err.count("\n") == 1, err
    assert not list(root.glob("*"))


def test_instructions_beside_a_text_are_told_of_and_chosen_by_a_flag(
    printed: Printed, root: Path, tmp_path: Path
) -> None:
    """As the first Alpaca has them: the same words once more under `text`, laid out for a model without chats."""
    asked = [(chat(k)[0]["content"], chat(k)[1]["content"]) for k in range(160)]
    rows = [{"instruction": a, "input": "", "output": b, "text": f"### Instruction: {a} ### {b}"} for a, b in asked]
    alpaca = write_jsonl(tmp_path / "alpaca.jsonl", rows)
    told = "rows have instruction and output beside 'text', and are read as plain text, with the loss on all of it:"
    out = " ".join(printed(*words(alpaca, "--steps", "1", "--run-id", "a", ctx=32)).split())
    assert f"{told} --rows conversations trains on the answers alone, --rows text says that the text is meant" in out
    assert told in " ".join(printed("data", "show", str(alpaca)).split())
    for flags in (("--rows", "text"), ("--field", "text"), ("--rows", "conversations")):
        assert "beside 'text'" not in printed(*words(alpaca, "--steps", "1", *flags, ctx=32))
        assert "beside 'text'" not in printed("data", "show", str(alpaca), *flags)


def test_answers_that_do_not_fit_are_told(printed: Printed, conversations: Path, root: Path) -> None:
    out = printed(*words(conversations, "--steps", "1", ctx=32))
    assert "longer than the context of 32 tokens and cut there" in out
    assert "left out, since the first answer begins behind the context of 32 tokens" in " ".join(out.split())


def test_a_run_of_conversations_can_be_looked_into(
    printed: Printed, said: Said, conversations: Path, root: Path
) -> None:
    arguments = words(conversations, "--steps", "4", "--run-id", "a", "--inspect", "gram")
    printed(*arguments)
    assert "of the held-out text of a" in printed("cka", "a")
    assert "of the held-out text of a" in printed("lmc", "a", "a")
    assert "over the tokens that came" in printed("drift", "a")
    code, _, err = said("data", "teach", str(conversations), "--teacher", "a", "--ctx", "64")
    assert code == 1 and err.count("\n") == 1 and "holds conversations, and what a teacher says is kept of text" in err
