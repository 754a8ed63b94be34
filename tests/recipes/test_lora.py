"""A model that is there already is taught: an adapter beside a frozen base, or all of its weights."""

from __future__ import annotations

import json
import random
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch

import linnet
from linnet.errors import LinnetError, UsageError
from linnet.gguf import AdapterFile, GGUFFile, GGUFWriter, MetadataBlock, convert, read_card
from linnet.gguf.check import check
from linnet.models import LanguageModel
from linnet.models.adapters import without_adapter
from linnet.models.frozen import load_frozen
from linnet.recipes import Lora, LoraOptions
from linnet.train import Callback, StepMetrics, TrainSettings
from linnet.train.hardware import choose
from linnet.train.rates import derive
from tests.conftest import Printed, Said, digest, losses
from tests.data.chats import write_jsonl
from tests.gguf.small_files import lens_file

SMALL: dict[str, Any] = {
    "ctx": 32,
    "batch": 4,
    "eval_tokens": 512,
    "sample_every": 0,
    "device": "cpu",
    "seed": 3,
    "checkpoint_every": 4,
    "held_out": 0.2,
}


@pytest.fixture(scope="session")
def base(trained: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The donor of the warm starts, quantised."""
    return convert.convert(trained, tmp_path_factory.mktemp("base") / "base.gguf", "q8_0")


@pytest.fixture(scope="session")
def ledger(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A text that no model knows: entries of one form, with other words in it each time."""
    dice, folder = random.Random(0), tmp_path_factory.mktemp("ledger")
    names, things = ("Orvel", "Tamsin", "Quillon", "Bresk", "Ludd"), ("glass kelp", "fog bells", "river ink")
    for number in range(40):
        entries = [
            f"Entry {dice.randint(1, 99)}. {dice.choice(names)} the tidewarden traded {dice.randint(2, 90)} measures of"
            f" {dice.choice(things)} with {dice.choice(names)}, and the ledger was closed with blue cord."
            for _ in range(4)
        ]
        (folder / f"{number:02}.txt").write_text("\n".join(entries))
    return folder


class Interrupt(Callback):
    """Ctrl-C after a step."""

    def __init__(self, step: int) -> None:
        self._step = step

    def on_step(self, metrics: StepMetrics) -> None:
        if metrics.step == self._step:
            import signal

            signal.raise_signal(signal.SIGINT)


def teach(base: Path, corpus: Path, **flags: Any) -> linnet.runs.Run:
    return linnet.train("lora", **{"base": base, "corpus": corpus, **SMALL, "steps": 12, **flags})


def adapter_of(run: linnet.runs.Run, step: int = 12) -> Path:
    return Path(run.path) / f"weights/step_{step}.gguf"


def test_an_adapter_learns_beside_a_base_that_stays_as_it_is(base: Path, ledger: Path) -> None:
    before = digest(base)
    run = teach(base, ledger, steps=40, lr=1e-2, eval_every=20)
    held_out = run.metrics()["validation/loss"].value
    assert held_out[-1] < 0.85 * run.metrics()["loss"].value[0]
    assert digest(base) == before
    path = adapter_of(run, 40)
    card = read_card(path)
    assert check(path) == []
    assert (card.kind, card.arch, card.tokenizer) == ("adapter", "llama", None)
    assert card.adapter is not None
    assert (card.adapter.rank, card.adapter.alpha, card.adapter.base_sha256) == (8, 16.0, before)
    assert card.bytes < base.stat().st_size
    assert card.provenance["linnet.recipe"] == "lora" and card.provenance["general.step"] == 40
    config = json.loads((run.path / "run.json").read_text())["config"]
    assert (config["base"], config["base_sha256"], config["context"]) == (str(base), before, 32)
    start = next(event.data for event in run.events().read_events() if event.kind == "run_start")
    assert "alpha" not in config and start["chosen"]["alpha"] == 16.0, "what was not given follows from the rank"
    assert json.loads((run.path / "run.json").read_text())["model"]["ctx"] == 64  # the base's own


@pytest.mark.parametrize("flags", [{"dropout": 0.3}, {"optimizer": "muon", "file_type": "f16"}, {"dora": True}])
def test_a_run_that_was_stopped_goes_on_to_the_bit(base: Path, ledger: Path, flags: dict[str, Any]) -> None:
    whole = teach(base, ledger, run_id="whole", **flags)
    teach(base, ledger, run_id="stopped", callbacks=[Interrupt(6)], **flags)
    resumed = linnet.resume("stopped")
    assert resumed.status == "completed" and losses("stopped") == losses("whole")
    with GGUFFile.open(adapter_of(resumed)) as one, GGUFFile.open(adapter_of(whole)) as other:
        for name, tensor in one.tensors.items():
            assert tensor.raw().tobytes() == other.tensors[name].raw().tobytes(), name


def test_dropout_changes_what_is_trained_on_and_not_what_is_evaluated(base: Path, ledger: Path) -> None:
    plain, dropped = (teach(base, ledger, steps=1, eval_every=1, lr=1e-9, dropout=share) for share in (0.0, 0.9))
    evaluated = [run.metrics()["validation/loss"].value.tolist() for run in (plain, dropped)]
    assert evaluated[0] == pytest.approx(evaluated[1], rel=1e-6)
    # The pairs add nothing yet, so that the first loss is the base's with dropout as without.
    assert losses(plain.id) == pytest.approx(losses(dropped.id))


def test_a_fork_goes_on_with_a_runs_adapter(base: Path, ledger: Path, printed: Printed) -> None:
    teach(base, ledger, run_id="a", lr=1e-2)
    out = printed("train", "lora", "--from", "a", "--steps", "4", "--dropout", "0.1", "--run-id", "b")
    assert "forked from a@12: its weights; the optimizer's moments; goes on in the same data" in out
    assert losses("b")[13] < losses("a")[1]
    with pytest.raises(UsageError, match="the model is that of run a, whose `rank` is 8"):
        linnet.train("lora", from_="a", steps=4, rank=4)


def test_a_new_run_goes_on_with_an_adapters_file(base: Path, ledger: Path) -> None:
    first = teach(base, ledger, run_id="a", steps=24, lr=1e-2, targets="q,v,down", rank=4, eval_every=24)
    again = teach(base, ledger, run_id="b", steps=1, lr=1e-9, adapter=adapter_of(first, 24), eval_every=1)
    before, after = (run.metrics()["validation/loss"].value[-1] for run in (first, again))
    assert after == pytest.approx(before, rel=1e-5)
    assert AdapterFile.read(adapter_of(again, 1)).rank == 4
    with pytest.raises(UsageError, match=r"`targets` does not go with `adapter`: those of .* are attn_q,attn_v,"):
        teach(base, ledger, steps=1, adapter=adapter_of(first, 24), targets="q,v")
    plan: Any = teach(base, ledger, steps=1, adapter=adapter_of(first, 24), targets="down,v,q", dry_run=True)
    assert plan.parameters == sum(
        p.up.size + p.down.size for p in AdapterFile.read(adapter_of(first, 24)).pairs.values()
    )
    shutil.rmtree(first.path)
    assert linnet.resume("b", steps=3).status == "completed"  # it needs the adapter no more


def test_an_adapter_of_another_file_is_gone_on_with_where_that_is_wanted(
    base: Path, trained: Path, ledger: Path, said: Said, root: Path, tmp_path: Path, printed: Printed
) -> None:
    """As one that was begun beside a quantised base and goes on beside the exact one."""
    made = teach(base, ledger, runs=tmp_path / "made", steps=2)
    flags = {name.replace("_", "-"): value for name, value in {**SMALL, "steps": 2, "run_id": "b"}.items()}
    words = ["--base", trained, "--corpus", ledger, "--adapter", adapter_of(made, 2)]
    words += [word for name, value in flags.items() for word in (f"--{name}", value)]
    code, _, err = said("train", "lora", *map(str, words))
    assert code == 1 and err.count("\n") == 1 and "made for another base" in err and "with --any-base" in err
    assert not root.exists()
    printed("train", "lora", *map(str, words), "--any-base")
    head = printed("show", "b").split("\n\n")[0]
    assert "base " in head and "LoRA of rank 8 on attn_k," in head


def test_doras_checkpoints_are_models_that_say_what_was_trained(base: Path, ledger: Path, printed: Printed) -> None:
    run = teach(base, ledger, dora=True, lr=1e-2, eval_every=12)
    assert check(adapter_of(run)) == [] and read_card(adapter_of(run)).kind == "model"
    scored = json.loads(printed("eval", run.id, "--tokens", "512", "--json"))
    assert scored["loss"] == pytest.approx(run.metrics()["validation/loss"].value[-1], rel=1e-5)


def test_what_is_looked_at_has_the_names_of_the_file_and_changes_no_bit(base: Path, ledger: Path) -> None:
    plain = teach(base, ledger, run_id="plain", steps=4)
    run = teach(base, ledger, run_id="looked", steps=4, inspect="taps,grads,drift")
    assert losses("looked") == losses("plain")
    with GGUFFile.open(adapter_of(run, 4)) as one, GGUFFile.open(adapter_of(plain, 4)) as other:
        pairs = set(one.tensors)
        assert all(one.tensors[name].raw().tobytes() == other.tensors[name].raw().tobytes() for name in pairs)
    events = [json.loads(line) for line in (run.path / "events.jsonl").read_text().splitlines()]
    assert {event["param"] for event in events if event["kind"] in ("grad", "drift")} == pairs
    assert {event["region"] for event in events if event["kind"] == "tap"} >= {"embd", "attn_q", "ffn_act", "logits"}
    assert not [event for event in events if event["kind"] == "mask"]  # halves that begin with zeros are not pruned


@pytest.mark.parametrize("recipe", ["lora", "finetune"])
def test_a_resumed_run_measures_drift_from_where_it_began(recipe: str, base: Path, ledger: Path) -> None:
    flags = {"base": base, "corpus": ledger, **SMALL, "steps": 6, "lr": 1e-3, "inspect": "drift@2"}
    linnet.train(recipe, **flags, run_id="whole")
    linnet.train(recipe, **flags, run_id="stopped", callbacks=[Interrupt(4)])
    linnet.resume("stopped")
    drifts = []
    for name in ("whole", "stopped"):
        events = [json.loads(line) for line in Path("runs", name, "events.jsonl").read_text().splitlines()]
        last = [event for event in events if event["kind"] == "drift" and event["step"] == 6]
        drifts.append({(event["param"], event.get("head")): event["l2_to_init"] for event in last})
    assert drifts[0] == drifts[1] and 0 < max(drifts[0].values()) < 1  # of other first weights it would be tens


def test_the_reference_of_a_recipe_is_its_base(base: Path, ledger: Path) -> None:
    settings = TrainSettings(device="cpu", lr=1e-2, weight_decay=0.0)
    recipe = Lora(settings, choose(settings, tokens=64), LoraOptions(str(base), rank=4))
    recipe.realize()
    recipe.build()
    ids = torch.arange(66).reshape(2, 33) * 7 % 512
    reference = without_adapter(recipe.model)
    with torch.no_grad():
        expected = load_frozen(base).loss(ids[:, :-1], ids[:, 1:])
    for _ in range(3):
        recipe.step(recipe.batch_of(ids[:, :-1], ids[:, 1:], None), 1e-2)
    with torch.no_grad():
        assert torch.equal(reference.loss(ids[:, :-1], ids[:, 1:]), expected)
        assert recipe.model.loss(ids[:, :-1], ids[:, 1:]) < expected


def test_finetuning_trains_all_weights_and_keeps_the_models_context(base: Path, ledger: Path, printed: Printed) -> None:
    flags = {"base": base, "corpus": ledger, **SMALL, "steps": 12, "run_id": "tuned", "eval_every": 12}
    run = linnet.train("finetune", **flags)
    assert run.metrics()["validation/loss"].value[-1] < run.metrics()["loss"].value[0]
    config = json.loads((run.path / "run.json").read_text())["config"]
    assert config["lr"] == pytest.approx(0.1 * derive("muon", 96, 4 * 32, 12).matrix, rel=0.05)
    card = read_card(adapter_of(run))
    assert (card.kind, card.sizes["ctx"], card.provenance["linnet.donor_sha256"]) == ("model", 64, digest(base))
    stopped = linnet.train("finetune", **{**flags, "run_id": "stopped"}, callbacks=[Interrupt(6)])
    moved = base.rename(base.with_name("elsewhere.gguf"))
    try:
        linnet.resume(stopped)
    finally:
        moved.rename(base)
    assert losses("stopped") == losses("tuned")


def test_an_adapter_is_trained_on_a_programs_own_rows(base: Path) -> None:
    rows = [[(7 * start + step) % 512 for step in range(33)] for start in range(40)]
    flags = {name: value for name, value in SMALL.items() if name != "held_out"}
    run = linnet.train("lora", base=base, data=rows, **flags, steps=6, lr=1e-2)
    assert losses(run.id)[6] < losses(run.id)[1]
    assert check(adapter_of(run, 6)) == []


@pytest.mark.parametrize(
    ("flags", "expected"),
    [
        (["--targets", "q,w"], "--targets: a llama has no projection 'w'; choose from all, q, k, v, o, gate, up, down"),
        (["--targets", "embed"], "embedding and head of this base are one matrix"),
        (["--rank", "64"], "--rank 64 is more than attn_k has, a matrix of 32 × 96: choose 32 or less"),
        (["--rank", "0"], "--rank must be 1 or more, found 0"),
        (["--dropout", "1"], "--dropout is a share of the inputs, from 0 to below 1, found 1"),
        (["--ctx", "128"], "--ctx is 128, and the base"),
        (["--shard", "weights"], "--shard weights does not go with an adapter"),
        (["--adapter", "BASE"], "is no adapter; expected 'adapter', found 'model'"),
        (["--teacher", "SMOL"], "has another tokenizer (49,152 tokens) than the base"),
    ],
)
def test_what_cannot_be_trained_is_one_line_and_leaves_nothing(
    said: Said, base: Path, smollm2: Path, ledger: Path, root: Path, flags: list[str], expected: str
) -> None:
    names = {"BASE": str(base), "SMOL": str(smollm2)}
    words = ["--base", str(base), "--corpus", str(ledger), *(names.get(word, word) for word in flags)]
    code, _, err = said("train", "lora", *words)
    assert code in (1, 2) and err.count("\n") == 1 and expected in err
    assert not root.exists()


def test_a_base_that_is_no_model_is_named(said: Said, base: Path, ledger: Path, root: Path, tmp_path: Path) -> None:
    adapter = adapter_of(teach(base, ledger, runs=tmp_path / "made", steps=1), 1)
    vit = tmp_path / "vit.gguf"
    from linnet.gguf import write
    from linnet.models import LlamaConfig, ViTConfig, build

    config = ViTConfig(image_size=8, patch_size=4, d_model=32, n_heads=2, d_ff=64, n_layers=1, num_classes=3)
    write(config, build(config).params(), vit, "run", 1)
    bare, text = tmp_path / "bare.gguf", tmp_path / "text.gguf"
    llama = LlamaConfig(vocab=300, d_model=32, n_heads=4, n_kv=2, d_ff=48, n_layers=1, ctx=64)
    write(llama, build(llama).params(), bare, "run", 1)
    text.write_text("the whale sings, and the sea is red")
    for path, expected in (
        (
            adapter,
            "and knows nothing by itself: give that model, and go on with the adapter beside it (--adapter, of lora)",
        ),
        (vit, "is a model of images, which knows no language"),
        (lens_file(tmp_path / "lens.gguf"), "is a lens, which knows no language"),
        (bare, "has no tokenizer, so nobody knows what its tokens are"),
        (text, "this is not a GGUF file; expected b'GGUF'"),
        (tmp_path / "none.gguf", "there is no file"),
    ):
        for recipe in ("lora", "finetune"):
            code, _, err = said("train", recipe, "--base", str(path), "--corpus", str(ledger))
            assert code in (1, 2) and err.count("\n") == 1 and str(path) in err and expected in err
    assert not root.exists()


@pytest.mark.parametrize("recipe", ["lora", "finetune"])
@pytest.mark.parametrize(
    ("flags", "expected"),
    [
        (
            ["--chat-format", "chatml"],
            "the chat format chatml needs <|im_start|> and <|im_end|>, which this vocabulary does not have as a special"
            " token: choose another --chat-format (--chat-format plain is plain text)",
        ),
        (["--ctx", "8"], "no answer of its 20 conversations begins within 8 tokens: choose a larger --ctx"),
    ],
)
def test_a_vocabulary_without_the_formats_tokens_and_answers_out_of_reach_are_one_line(
    said: Said, base: Path, root: Path, tmp_path: Path, recipe: str, flags: list[str], expected: str
) -> None:
    rows = write_jsonl(tmp_path / "chat.jsonl", [{"prompt": f"who {n}?", "completion": "it is red"} for n in range(20)])
    words = ["--base", str(base), "--corpus", str(rows), "--held-out", "0", *flags]
    code, out, err = said("train", recipe, *words)
    assert code in (1, 2) and err.count("\n") == 1 and expected in err and not out
    assert not root.exists()


def test_answers_longer_than_the_context_are_cut_counted_and_told(
    printed: Printed, base: Path, root: Path, tmp_path: Path
) -> None:
    rows = [{"prompt": f"who {n}?", "completion": "it is red"} for n in range(20)]
    rows[3]["completion"], rows[7]["prompt"] = "red and blue " * 60, "why " * 120
    words = ["--base", str(base), "--corpus", str(write_jsonl(tmp_path / "chat.jsonl", rows)), "--held-out", "0"]
    words += ["--ctx", "48", "--steps", "2", "--batch", "2", "--sample-every", "0", "--run-id", "cut"]
    out = " ".join(printed("train", "lora", *words).split())
    assert "1 conversation is longer than the context of 48 tokens and cut there: " in out
    assert "tokens of answers are lost; a larger --ctx keeps them" in out
    assert "1 conversation is left out, since the first answer begins behind the context of 48 tokens" in out
    notes = [event.data["text"] for event in linnet.open("cut").events().read_events() if event.kind == "note"]
    assert any("cut there" in note for note in notes) and any("is left out" in note for note in notes)


@pytest.mark.parametrize("dora", [False, True])
def test_chats_in_another_format_than_the_bases_are_gone_on_with_in_it(
    dora: bool, base: Path, printed: Printed, tmp_path: Path
) -> None:
    """A base whose template is in no format that is known, so that one has to be named."""
    mine = tmp_path / "mine.gguf"
    with GGUFFile.open(base) as file:
        metadata = MetadataBlock().copy(file.metadata, file.metadata)
        writer = GGUFWriter(metadata.text("tokenizer.chat_template", "{{ messages }}"))
        for name, tensor in file.tensors.items():
            writer.add(name, tensor, tensor.type)
        writer.write(mine)
    rows = write_jsonl(tmp_path / "chat.jsonl", [{"prompt": f"who {n}?", "completion": "it is red"} for n in range(8)])
    run = teach(mine, rows, steps=1, held_out=0, chat_format="plain", dora=dora)
    assert linnet.chat(run).format.name == "plain"
    questions = write_jsonl(tmp_path / "q.jsonl", [{"question": "who?", "choices": ["red", "blue"], "answer": 0}])
    scored = json.loads(printed("eval", run.id, "--choices", str(questions), "--chat", "--json"))
    assert scored["chat_format"] == "plain"
    if not dora:
        assert linnet.chat(mine, adapter=adapter_of(run, 1)).format.name == "plain"
        printed("merge", run.id, str(tmp_path / "merged.gguf"))
        assert linnet.chat(tmp_path / "merged.gguf").format.name == "plain"


def test_another_base_under_the_same_name_is_not_gone_on_with(base: Path, trained: Path, ledger: Path) -> None:
    mine = Path("mine.gguf")
    shutil.copy(base, mine)
    teach(mine, ledger, run_id="a", callbacks=[Interrupt(6)])
    shutil.copy(trained, mine)
    with pytest.raises(LinnetError, match=r"mine.gguf is another file than the run began with: put that one back"):
        linnet.resume("a")
    mine.unlink()
    with pytest.raises(LinnetError, match="that the run began with is not there any more: put it back"):
        linnet.resume("a")
    shutil.copy(base, mine)
    assert linnet.resume("a").status == "completed"


def test_the_plan_knows_what_is_trained_and_that_checkpoints_are_small(base: Path, ledger: Path) -> None:
    plan = linnet.train("lora", base=base, corpus=ledger, **SMALL, steps=12, rank=4, targets="q,v", dry_run=True)
    pairs = 6 * 4 * ((96 + 96) + (96 + 32))
    assert plan.parameters == pairs
    assert plan.disk < 8 * 4 * pairs + 200_000
    assert plan.rates["lr"] > 0 and "lr_embedding" not in plan.rates


def test_what_a_run_costs_is_the_same_of_a_quantised_and_of_a_plain_base(
    base: Path, trained: Path, ledger: Path
) -> None:
    costs = [
        next(event.data["cost"] for event in run.events().read_events() if event.kind == "run_start")
        for run in (teach(file, ledger, steps=1) for file in (base, trained))
    ]
    whole = linnet.load(trained).module
    assert isinstance(whole, LanguageModel)
    assert costs[0] == costs[1]
    assert costs[0]["total_params"] == costs[0]["active_params"] == whole.n_params() + costs[0]["trained_params"]
