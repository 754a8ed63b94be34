"""Donors that cannot be used, and calls out of order: each is one line with the path, what was expected and found."""

from __future__ import annotations

from array import array
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from linnet import gguf
from linnet.data.batches import Batch
from linnet.errors import LinnetError
from linnet.gguf import GGUFWriter, Lens, MetadataBlock, write_lens
from linnet.models import LlamaConfig
from linnet.recipes.donor import Donor, DonorError
from linnet.recipes.warm_start import WarmStart
from linnet.train import TrainSettings
from tests.conftest import Said
from tests.gguf.small_files import llama_file, restated
from tests.recipes.conftest import CPU

CONFIG = LlamaConfig(vocab=40, d_model=16, n_heads=2, n_kv=1, d_ff=32, n_layers=1, ctx=16, tied=False)


def recipe(init: str = "pca", donor_d_in: int = 24, **options: Any) -> WarmStart:
    """A recipe with its window open."""
    made = WarmStart(TrainSettings(device="cpu"), CPU, init=init, **options)
    made.realize_scratch(CONFIG, donor_d_in)
    return made


def table(rows: int = 40, width: int = 24) -> np.ndarray[Any, Any]:
    return np.random.default_rng(0).standard_normal((rows, width)).astype(np.float32)


def small_donor(
    path: Path, values: np.ndarray[Any, Any] | None = None, *, width: int = 24, arch: str = "llama"
) -> Path:
    """No more than a lens looks at: a width and a table."""
    metadata = MetadataBlock().text("general.architecture", arch).u32(f"{arch}.embedding_length", width)
    writer = GGUFWriter(metadata)
    writer.add("token_embd.weight", table() if values is None else values)
    return writer.write(path)


def refusal(path: Path, act: Callable[[], object], *words: str, kind: type[LinnetError] = DonorError) -> None:
    with pytest.raises(kind) as error:
        act()
    line = str(error.value)
    assert "\n" not in line
    for word in (str(path), "expected", "found", *words):
        assert word in line, f"{word!r} is not in: {line}"


def test_a_donor_gives_its_width_and_its_rows(tmp_path: Path) -> None:
    path = small_donor(tmp_path / "d.gguf")
    assert WarmStart.donor_embed_width(path) == 24
    warm = recipe()
    warm.realize_warm(path)
    assert torch.equal(warm.model.token_embd.weight, torch.from_numpy(table()))
    assert not warm.model.token_embd.weight.requires_grad
    assert warm.options.donor_sha256 == Donor(path).sha256()


def test_a_donor_that_is_not_there(tmp_path: Path) -> None:
    path = tmp_path / "gone.gguf"
    refusal(path, lambda: WarmStart.donor_embed_width(path), "donor GGUF not found")
    refusal(path, lambda: recipe().realize_warm(path), "donor GGUF not found")


def test_a_donor_that_is_no_gguf(tmp_path: Path) -> None:
    path = tmp_path / "notes.txt"
    path.write_text("remember the milk, and much else besides: bread, salt\n")
    refusal(path, lambda: WarmStart.donor_embed_width(path), "GGUF")


def test_a_donor_without_a_width_is_not_of_the_family(tmp_path: Path) -> None:
    path = small_donor(tmp_path / "d.gguf", arch="gpt2")
    words = ("'llama.embedding_length'", "is it of the llama family?", "found 'gpt2' without it")
    refusal(path, lambda: WarmStart.donor_embed_width(path), *words)


def test_a_donor_of_another_width_than_was_realised(tmp_path: Path) -> None:
    path = small_donor(tmp_path / "d.gguf", table(width=32), width=32)
    refusal(path, lambda: recipe().realize_warm(path), "expected 24, the donor_d_in of realize_scratch(), found 32")


def test_a_donor_whose_table_is_not_as_wide_as_it_says(tmp_path: Path) -> None:
    path = small_donor(tmp_path / "d.gguf", table(width=32), width=24)
    refusal(
        path, lambda: recipe().realize_warm(path), "expected [rows, 24], as llama.embedding_length says, found [40,"
    )


def test_a_donor_without_an_embedding(tmp_path: Path) -> None:
    metadata = MetadataBlock().text("general.architecture", "llama").u32("llama.embedding_length", 24)
    writer = GGUFWriter(metadata)
    writer.add("output_norm.weight", np.ones(24, np.float32))
    path = writer.write(tmp_path / "d.gguf")
    refusal(path, lambda: recipe().realize_warm(path), "tensor 'token_embd.weight'", "found 1 tensors without it")


def test_a_donor_that_is_cut_short(tmp_path: Path) -> None:
    path = small_donor(tmp_path / "d.gguf")
    whole = path.read_bytes()
    path.write_bytes(whole[:-200])
    refusal(path, lambda: recipe().realize_warm(path), "token_embd.weight")


def test_a_donor_that_becomes_shorter_while_it_is_open(tmp_path: Path) -> None:
    path = small_donor(tmp_path / "d.gguf")
    with Donor(path) as donor:
        path.write_bytes(path.read_bytes()[:-200])
        refusal(path, lambda: donor.table(40), "token_embd.weight")


def test_a_donor_with_fewer_rows_than_the_vocabulary(tmp_path: Path) -> None:
    path = small_donor(tmp_path / "d.gguf", table(rows=39))
    refusal(
        path, lambda: recipe().realize_warm(path), "fewer rows than the vocabulary; expected 40 rows or more, found 39"
    )


def test_a_donor_with_more_rows_gives_the_first_ones(tmp_path: Path) -> None:
    path = small_donor(tmp_path / "d.gguf", table(rows=64))
    warm = recipe()
    warm.realize_warm(path)
    assert torch.equal(warm.model.token_embd.weight, torch.from_numpy(table(rows=64)[:40]))


@pytest.mark.parametrize(("value", "words"), [(np.nan, "numbers that are not finite"), (0.0, "nothing but zeros")])
def test_rows_that_teach_nothing(tmp_path: Path, value: float, words: str) -> None:
    values = table()
    values[[3, 7]] = value
    path = small_donor(tmp_path / "d.gguf", values)
    refusal(path, lambda: recipe().realize_warm(path), words, "found 2 such among 40 (3, 7)")
    with pytest.raises(DonorError, match=words):
        recipe().upload_donor(values)


def test_another_tokenizer_is_refused_where_none_was_allowed(trained: Path) -> None:
    other = {"tokenizer.ggml.tokens": tuple("abcdefgh"), "tokenizer.ggml.model": "gpt2"}
    config = LlamaConfig(vocab=8, d_model=16, n_heads=2, n_kv=1, d_ff=32, n_layers=1, ctx=16, tied=False)
    warm = WarmStart(TrainSettings(device="cpu"), CPU, tokens=None)
    warm.realize_scratch(config, 96)
    words = ("another tokenizer than the donor", "tokens='pieces'", "found 8 of 8 rows are tokens of the donor's")
    refusal(trained, lambda: warm.realize_warm(trained, other), *words)


def test_vocabularies_without_a_token_in_common(trained: Path) -> None:
    other = {"tokenizer.ggml.tokens": ("zqxj", "qqqq"), "tokenizer.ggml.model": "gpt2"}
    refusal(trained, lambda: recipe("pca", 96).realize_warm(trained, other), "no token in common", "found none among")


def test_calls_out_of_order_are_named(tmp_path: Path) -> None:
    path = small_donor(tmp_path / "d.gguf")
    fresh = WarmStart(TrainSettings(device="cpu"), CPU)
    for call, act in {
        "realize_warm()": lambda: fresh.realize_warm(path),
        "upload_donor()": lambda: fresh.upload_donor(table()),
        "upload_lens()": lambda: fresh.upload_lens(table(16)),
        "build()": fresh.build,
    }.items():
        with pytest.raises(LinnetError, match="was called before there is a model: call realize_scratch") as error:
            act()
        assert str(error.value).startswith(call)
    with pytest.raises(LinnetError, match="no step yet"):
        fresh.step(None, 0.1)  # type: ignore[arg-type]
    warm = recipe()
    with pytest.raises(LinnetError, match="realize_scratch\\(\\) was called a second time: call it once"):
        warm.realize_scratch(CONFIG, 24)
    warm.realize_warm(path)
    warm.build()
    with pytest.raises(LinnetError, match="build\\(\\) was called a second time: a donor's values are taken between"):
        warm.build()
    for act in (
        lambda: warm.realize_warm(path),
        lambda: warm.upload_donor(table()),
        lambda: warm.upload_lens(table(16)),
    ):
        with pytest.raises(LinnetError, match="was called after build\\(\\): a donor's values are taken between"):
            act()


def test_rows_come_in_as_a_flat_buffer_too() -> None:
    """As in the seed: numbers row after row, and how many of them count."""
    flat = [float(number) for number in table().ravel()]
    for buffer, n_floats in ((flat, None), (array("d", [*flat, 7.0]), 40 * 24), (np.array(flat), 40 * 24)):
        warm = recipe()
        warm.upload_donor(buffer, n_floats)
        assert torch.equal(warm.model.token_embd.weight, torch.from_numpy(table()))
    with pytest.raises(LinnetError, match=r"expected 960 numbers, \[40, 24\] as \[vocab, donor_d_in\], found 961"):
        recipe().upload_donor([*flat, 7.0])
    with pytest.raises(LinnetError, match="found n_floats 960 of a buffer of 959"):
        recipe().upload_donor(flat[:-1], 960)
    with pytest.raises(LinnetError, match="n_floats is for a flat buffer; expected 960, found 3"):
        recipe().upload_donor(table(), 3)


def test_the_first_step_forgets_what_the_optimiser_knew() -> None:
    def batch(seed: int) -> Batch:
        ids = torch.randint(0, 40, (8, 17), generator=torch.Generator().manual_seed(seed))
        return Batch(ids[:, :-1].contiguous(), ids[:, 1:].contiguous(), None, 8 * 16)

    def norm_after(*steps: tuple[int, float, bool]) -> torch.Tensor:
        warm = recipe("scratch", 0)
        warm.build()
        for seed, lr, is_first in steps:
            warm.step(batch(seed), lr, is_first=is_first)
        assert warm.step_index == (1 if steps[-1][2] else len(steps))
        return warm.parameters()["output_norm.weight"].clone()

    fresh = norm_after((1, 1e-2, True))
    assert torch.equal(norm_after((0, 0.0, True), (1, 1e-2, True)), fresh)  # a rate of 0 moves nothing
    assert not torch.equal(norm_after((0, 0.0, True), (1, 1e-2, False)), fresh)  # but it is remembered


def test_what_does_not_fit_is_named() -> None:
    with pytest.raises(LinnetError, match=r"expected \[40, 24\], \[vocab, donor_d_in\], found \[40, 23\]"):
        recipe().upload_donor(table(width=23))
    with pytest.raises(LinnetError, match=r"expected \[16, 24\], \[d_model, donor_d_in\], found \[17, 24\]"):
        recipe().upload_lens(table(rows=17))
    with pytest.raises(LinnetError, match="upload_donor\\(\\) needs a lens"):
        recipe("select", 0).upload_donor(table())
    with pytest.raises(LinnetError, match="the lens has numbers that are not finite"):
        recipe().upload_lens(table(16) * np.float32(np.inf))
    with pytest.raises(LinnetError, match="init pca has a lens, which needs the donor's width"):
        recipe("pca", 0)
    with pytest.raises(LinnetError, match="init full has no lens"):
        recipe("full", 24)
    with pytest.raises(LinnetError, match="init scratch takes nothing from a donor"):
        recipe("scratch", 0).realize_warm("donor.gguf")
    with pytest.raises(LinnetError, match="a lens needs an output head of its own"):
        tied = LlamaConfig(vocab=40, d_model=16, n_heads=2, n_kv=1, d_ff=32, n_layers=1, ctx=16)
        WarmStart(TrainSettings(device="cpu"), CPU).realize_scratch(tied, 24)


def test_the_command_line_says_the_same_in_a_line_and_leaves_nothing(
    said: Said, trained: Path, corpus: Path, tmp_path: Path
) -> None:
    lens = write_lens(Lens(table(16, 24), "another"), tmp_path / "lens.gguf")
    broken = tmp_path / "broken.gguf"
    broken.write_bytes(trained.read_bytes()[:5000])
    words = ["train", "warm-start", "--corpus", str(corpus), "--donor"]
    for more, code, message in (
        ([str(tmp_path / "no.gguf")], 1, "donor GGUF not found; expected a GGUF file, found nothing of that name"),
        ([str(broken)], 1, "broken.gguf"),
        ([str(trained), "--init", "pca", "--d-model", "128"], 2, "choose --d-model 96 or less, or --init warm"),
        (
            [str(trained), "--d-model", "48", "--init", "pca", "--lens", str(lens)],
            1,
            "expected [48, 96], [d_model, donor width], found [1",
        ),
        ([str(trained), "--init", "select", "--lens", str(lens)], 2, "--lens does not go with --init select"),
        ([str(trained), "--init", "full", "--train-table"], 2, "--train-table does not go with --init full"),
        ([str(trained), "--init", "full", "--d-model", "48"], 1, "full needs the model's d_model to fit the donor's"),
        ([str(trained), "--tokens", "all"], 2, "--tokens"),
        ([str(trained), "--preset", "nano"], 2, "--preset"),
    ):
        found, _, err = said(*words, *more)
        assert found == code, err
        assert message in err
        assert err.count("\n") == 1
    assert not Path("runs").exists()


def test_a_lens_of_another_shape_than_it_states(tmp_path: Path) -> None:
    metadata = MetadataBlock().text("general.architecture", "lens").u32("lens.d_model", 17).u32("lens.donor_d_in", 24)
    writer = GGUFWriter(metadata)
    writer.add("lens.proj.weight", table(16))
    path = writer.write(tmp_path / "lens.gguf")
    refusal(path, lambda: gguf.read_lens(path), "lens.d_model", kind=gguf.GGUFError)


def test_a_vocabulary_that_is_no_list_of_texts_is_refused(tmp_path: Path) -> None:
    for key, value in (("tokens", ("u32", 7)), ("tokens", ("array:i32", [1])), ("token_type", ("string", "x"))):
        changes = {f"tokenizer__ggml__{key}": value}
        path = restated(llama_file(tmp_path / "a.gguf"), tmp_path / "b.gguf", **changes)
        with Donor(path) as donor, pytest.raises(DonorError, match=f"tokenizer.ggml.{key}': the type is wrong"):
            _ = donor.metadata
