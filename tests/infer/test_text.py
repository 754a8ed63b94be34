"""Text in and out: stop strings, streams, what a loaded model does and shows."""

from __future__ import annotations

import subprocess
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import linnet
from linnet.errors import LinnetError, UsageError
from linnet.gguf import write
from linnet.gguf.chat_families import as_turn
from linnet.infer import LoadedModel, StopStrings, StreamDecoder
from linnet.models import LlamaConfig, build
from linnet.models import preset as preset_of
from tests.conftest import Said
from tests.gguf.chat_templates import MISTRAL
from tests.gguf.tiny import VOCAB, byte_level_tokenizer

CONFIG = LlamaConfig(vocab=VOCAB, d_model=32, n_heads=4, n_kv=2, d_ff=48, n_layers=2, ctx=64)


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("model") / "small.gguf"
    write(CONFIG, build(CONFIG, seed=3).params(), path, "small", 1, tokenizer=byte_level_tokenizer())
    return path


@pytest.fixture(scope="module")
def model(file: Path) -> LoadedModel:
    return linnet.load(file, device="cpu")


# -- stop strings -----------------------------------------------------------------------------------------------------


def passed(text: str, stops: list[str], cuts: list[int]) -> tuple[str, str | None]:
    """What comes out when the text comes in pieces that end at `cuts`."""
    strings = StopStrings(stops)
    ends = sorted({min(cut, len(text)) for cut in cuts} | {len(text)})
    out = "".join(strings.add(text[a:b]) for a, b in zip([0, *ends], ends, strict=False))
    return out + strings.finish(), strings.matched


@given(st.text("ab\n", max_size=24), st.lists(st.text("ab\n", min_size=1, max_size=4), max_size=3), st.data())
def test_stop_strings_do_not_depend_on_where_tokens_end(text: str, stops: list[str], data: st.DataObject) -> None:
    cuts = data.draw(st.lists(st.integers(0, 24), max_size=8))
    out, matched = passed(text, stops, cuts)
    assert (out, matched) == passed(text, stops, list(range(25)))
    assert text.startswith(out)
    assert not any(stop in out for stop in stops)
    assert (matched is None) == (out == text and not any(stop in text for stop in stops))


def test_text_is_held_only_while_it_may_become_a_stop_string() -> None:
    strings = StopStrings(["\n\n", "END"])
    assert [strings.add(piece) for piece in ("a", "b\n", "c", " E", "NX", "\n", "\n more")] == [
        "a",
        "b",
        "\nc",
        " ",
        "ENX",
        "",
        "",
    ]
    assert strings.matched == "\n\n" and strings.finish() == ""


def test_an_empty_stop_string_is_refused() -> None:
    with pytest.raises(UsageError, match="`stop` string is empty"):
        StopStrings([""])


# -- a loaded model ---------------------------------------------------------------------------------------------------


def test_text_in_text_out(file: Path, model: LoadedModel) -> None:
    text = linnet.generate(str(file), "the whale", max_tokens=12, seed=4, device="cpu")
    assert (
        text
        == model.generate("the whale", max_tokens=12, seed=4)
        == linnet.generate(model, "the whale", max_tokens=12, seed=4)
    )
    assert text and model.decode(model.encode("the whale")) == "the whale"
    stream = model.stream("the whale", max_tokens=12, seed=4)
    assert "".join(stream) == stream.text == text
    assert (stream.stopped, len(stream.tokens)) == ("max_tokens", 12)
    with pytest.raises(UsageError, match="generated already"):
        next(iter(stream))


def test_samples_are_those_of_the_seeds_that_follow(model: LoadedModel) -> None:
    samples = model.generate("the", samples=3, seed=7, max_tokens=6)
    assert samples == [model.generate("the", seed=seed, max_tokens=6) for seed in (7, 8, 9)]
    assert len(set(samples)) > 1
    with pytest.raises(UsageError, match="the same text 3 times"):
        model.generate("the", samples=3, temperature=0)
    with pytest.raises(UsageError, match="`samples` must be 1 or more, found 0"):
        model.generate("the", samples=0)


def test_a_stop_string_ends_the_text_before_it(model: LoadedModel) -> None:
    whole = model.generate("the", max_tokens=20, seed=2)
    stop = whole[5:8]
    stream = model.stream("the", max_tokens=20, seed=2, stop=[stop, "never"])
    assert "".join(stream) == whole[: whole.index(stop)]
    assert (stream.stopped, stream.stop_string) == ("stop", stop)
    assert model.generate("the", max_tokens=20, seed=2, stop=stop) == stream.text


def test_scores_are_those_of_the_ids(model: LoadedModel) -> None:
    text = "the whale and the sea"
    scored = model.score(text)
    ids = model.encode(text)
    assert scored.tokens == len(ids) - 1
    assert scored.loss == pytest.approx(linnet.infer.score(model._text_model(), ids).mean)
    first = len(model.decode(ids[:1]))
    assert scored.bits_per_byte == pytest.approx(scored.loss * scored.tokens / np.log(2) / (len(text) - first))


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"temprature": 1}, "generate: there is no option 'temprature'; did you mean temperature"),
        ({"max_tokens": -1}, "max_tokens is -1"),
        ({"top_p": 2}, "top_p is 2"),
    ],
)
def test_wrong_options_are_told_in_a_line(model: LoadedModel, options: dict[str, float], words: str) -> None:
    with pytest.raises(UsageError, match=words):
        model.generate("a", **options)


def test_bytes_that_are_no_text_are_refused_in_a_line(file: Path, model: LoadedModel, said: Said) -> None:
    for call in (model.encode, model.score, model.generate):
        with pytest.raises(UsageError, match="the text is no text in UTF-8: it holds other bytes"):
            call("\udcff")
    for command in ("generate", "eval"):
        code, _, err = said(command, str(file), "--prompt", "\udcff")
        assert (code, err.count("\n")) == (2, 1) and "--prompt is no text in UTF-8" in err


def test_a_model_says_what_it_is(model: LoadedModel) -> None:
    assert repr(model).startswith("<LoadedModel small.gguf: llama, 2") and "vocabulary 288, on cpu>" in repr(model)


def test_a_vision_transformer_sees_files_pictures_and_arrays(tmp_path: Path) -> None:
    from PIL import Image

    config = preset_of("vit-tiny-8", num_channels=1, num_classes=3)
    write(config, build(config, seed=1).params(), tmp_path / "vit.gguf", "run", 1)
    model = linnet.load(tmp_path / "vit.gguf", device="cpu")
    pixels = np.random.default_rng(0).integers(0, 256, (8, 8), dtype=np.uint8)
    picture = Image.fromarray(pixels)
    picture.save(tmp_path / "a.png")
    guesses = model.classify(tmp_path / "a.png", top=2)
    assert len(guesses) == 2 and guesses[0].probability >= guesses[1].probability
    assert (
        model.classify(picture)[:2]
        == model.classify(pixels)[:2]
        == model.classify(pixels[:, :, None], top=2)
        == guesses
    )
    assert [many[0].label for many in model.classify([picture, pixels])] == [guesses[0].label] * 2
    for call, words in (
        (lambda: model.generate("x"), "classifies images and knows no text"),
        (lambda: model.encode("x"), "has no tokenizer"),
        (lambda: model.classify(pixels.astype(float)), r"an array of uint8, .*found float64 \[8, 8\]"),
        (lambda: model.classify(tmp_path / "none.png"), "No such file"),
    ):
        with pytest.raises(LinnetError, match=words):
            call()


def test_a_model_of_text_sees_no_images(model: LoadedModel) -> None:
    with pytest.raises(UsageError, match="sees no images"):
        model.classify("a.png")


# -- why nothing comes ------------------------------------------------------------------------------------------------


QUESTION = "What is the capital of France?"


def silent_model(path: Path, chat_template: str | None) -> Path:
    """A model that says after the question, as SmolLM2's instruct models do, that the text ends here."""
    config = replace(CONFIG, tied=False)
    model = build(config, seed=3)
    tokenizer = byte_level_tokenizer()
    if chat_template is not None:
        tokenizer.text("tokenizer.chat_template", chat_template)
    write(config, model.params(), path, "silent", 1, tokenizer=tokenizer)
    ids = linnet.load(path, device="cpu").encode(QUESTION)
    with torch.no_grad():
        hidden_D = model.hidden(torch.tensor([ids]))[0, -1]
        model.output.weight.zero_()
        model.output.weight[VOCAB - 1] = hidden_D
    write(config, model.params(), path, "silent", 1, tokenizer=tokenizer)
    return path


def test_an_instruct_model_that_ends_its_turn_says_how_it_is_asked(tmp_path: Path, said: Said) -> None:
    path = silent_model(tmp_path / "instruct.gguf", "{% for m in messages %}<|im_start|>{{ m.role }}…")
    turn = f"<|im_start|>user\n{QUESTION}<|im_end|>\n<|im_start|>assistant\n"
    with pytest.warns(UserWarning) as caught:
        assert linnet.generate(path, QUESTION, temperature=0) == ""
    line = str(caught[0].message)
    assert "the model ended the text at once, with <|endoftext|>: it was tuned for chats" in line
    assert line.endswith(f": generate({turn!r})")
    code, out, err = said("generate", str(path), "--prompt", QUESTION, "--temperature", "0")
    assert (code, out, err.count("\n")) == (0, QUESTION + "\n", 1)
    word = err.rsplit(" --prompt ", 1)[1].strip()
    shell = subprocess.run(["bash", "-c", f"printf %s {word}"], capture_output=True, text=True, check=True)
    assert shell.stdout == turn


def test_a_base_model_that_ends_the_text_at_once_says_so(tmp_path: Path, said: Said) -> None:
    path = silent_model(tmp_path / "base.gguf", None)
    _, _, err = said("generate", str(path), "--prompt", QUESTION, "--temperature", "0")
    assert "it sees nothing to go on with; try another --prompt, or a higher --temperature" in err


def test_templates_of_other_families_are_known_or_not() -> None:
    assert (
        as_turn("hi", "{{ '<start_of_turn>user' }}") == "<start_of_turn>user\nhi<end_of_turn>\n<start_of_turn>model\n"
    )
    assert as_turn("a {} b", MISTRAL) == "[INST] a {} b [/INST]"
    assert as_turn("hi", "something else") is None


def test_letters_of_several_tokens_come_whole(model: LoadedModel) -> None:
    ids = model.encode("naïve 🐋!")
    decoder = StreamDecoder(model.tokenizer, [])
    pieces = [decoder.add(token) for token in ids]
    assert "".join(pieces) + decoder.finish() == "naïve 🐋!"
    assert all("\ufffd" not in piece for piece in pieces) and "🐋" in pieces
