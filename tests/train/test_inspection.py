"""`inspect`: what is told of the inside is true, and the training is what it is without it, to the bit."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import Tensor

import linnet
from linnet.errors import UsageError
from linnet.models import Config, GPT2Config, LlamaConfig, ViTConfig, build
from linnet.models.observation import Region, activations
from linnet.recipes import Job, TextData, start
from linnet.recipes.vit_tiny import VitOptions
from linnet.runs import Run
from linnet.train import Callback, TrainSettings
from linnet.train.inspection.drift import DriftFigures, TokenCounts, by_frequency, frequency_correlation, log_spaced
from linnet.train.inspection.gradients import GradientFigures
from linnet.train.inspection.late_events import LateEvents
from linnet.train.inspection.pieces import l2_of, tensor_pieces
from linnet.train.inspection.schedule import InspectSchedule
from linnet.train.inspection.taps import counts_together, figures, look_at_batch, looked_at
from linnet.train.step import Step, StepObserver
from tests.conftest import Said, digest, losses
from tests.kernels.conftest import without_inductor as without_inductor
from tests.train.test_recording import GPT2, LLAMA, batch

Fields = dict[str, Any]
VIT = ViTConfig(image_size=8, patch_size=2, d_model=32, n_heads=2, d_ff=48, n_layers=2, num_channels=1)


def events_of(run: Run, *kinds: str) -> list[Fields]:
    return [event.data for event in run.events().read_events() if event.kind in kinds]


def told(step: int, rows: Any, values: list[Tensor]) -> list[Fields]:
    """The events of a look, as they are written."""
    return [{"kind": event.kind, **event.fields} for event in LateEvents(step, rows, values).events()]


# -- what is asked for ------------------------------------------------------------------------------------------------


def test_steps_count_for_the_names_before_them() -> None:
    assert InspectSchedule.parse("taps,grads,drift@100").every == {"taps": 100, "grads": 100, "drift": 100}
    assert InspectSchedule.parse("taps@50, drift@500,grads").every == {"taps": 50, "drift": 500, "grads": None}
    assert set(InspectSchedule.parse("all@7").every.values()) == {7} and len(InspectSchedule.parse("all").every) == 6


def test_the_first_and_the_last_step_are_looked_at_and_every_so_many_between() -> None:
    schedule = InspectSchedule.parse("taps@4,drift@6")
    due = {step: schedule.due(step, first=0, last=13) for step in range(1, 14)}
    assert {step: sorted(groups) for step, groups in due.items() if groups} == {
        1: ["drift", "taps"], 4: ["taps"], 6: ["drift"], 8: ["taps"], 12: ["drift", "taps"], 13: ["drift", "taps"],
    }  # fmt: skip
    assert [schedule.looks(group, first=0, last=13) for group in ("taps", "drift", "ops")] == [5, 4, 0]
    assert schedule.looks("taps", first=0, last=13, done=8) == 2
    assert sum("taps" in InspectSchedule.parse("taps").due(step, first=0, last=5000) for step in range(1, 5001)) == 51


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("tabs@10", "there is no 'tabs'; did you mean taps?"),
        ("weights", "there is no 'weights'; choose from taps, gram, grads, drift, regions, ops, all"),
        ("taps@0", "behind @ stand the steps between two looks, 1 or more"),
        ("taps@often", "write it like taps,grads,drift@100"),
        ("taps,,grads", "has an empty name"),
        ("taps,all@3", "names taps twice"),
    ],
)
def test_what_cannot_be_told_is_refused_in_a_line(said: Said, small: list[str], text: str, message: str) -> None:
    with pytest.raises(UsageError) as error:
        TrainSettings(inspect=text)
    assert message in str(error.value) and "\n" not in str(error.value)
    if text == "tabs@10":
        code, _, err = said(*small, "--inspect", text)
        assert (code, err) == (2, "linnet: --inspect: there is no 'tabs'; did you mean taps?\n")
        assert not Path("runs").exists()


# -- the same bits ----------------------------------------------------------------------------------------------------

TINY: dict[str, Config | ViTConfig] = {
    "llama": LlamaConfig(vocab=384, d_model=32, n_heads=4, n_kv=2, d_ff=48, n_layers=2, ctx=16),
    "gpt2": GPT2Config(vocab=384, d_model=32, n_heads=4, d_ff=48, n_layers=2, ctx=16),
    "vit": VIT,
}


def train(corpus: Path, arch: str, name: str, **settings: Any) -> Run:
    """A run of seven steps, in a folder of runs of its own."""
    text = {"sample_every": 0, "eval_tokens": 64} if arch != "vit" else {}
    given: Fields = {"steps": 7, "batch": 4, "eval_every": 3, "checkpoint_every": 7, "warmup": 1, **text, **settings}
    recipe: Fields = {"data": TextData(str(corpus), documents=arch == "gpt2")}
    if arch == "vit":
        from linnet.recipes.job import ImageData

        given |= {"lr": 1e-3}
        recipe = {"data": ImageData(), "recipe": "vit-tiny", "options": VitOptions(ema=0.9)}
    start(Job(TINY[arch], settings=TrainSettings(**given), **recipe), runs_root=name, run_id="a").run()
    return linnet.open(Path(name) / "a")


@pytest.mark.parametrize(
    ("arch", "settings"),
    [
        pytest.param("llama", {"optimizer": "muon"}, id="llama-muon-recorded"),
        pytest.param("llama", {"optimizer": "adamw", "graph": "off", "recompute": "blocks"}, id="llama-recomputed"),
        pytest.param("gpt2", {"optimizer": "adamw", "batch_tokens": 4 * 4 * 16}, id="gpt2-adamw-accumulated"),
        pytest.param("vit", {"optimizer": "muon", "graph": "off"}, id="vit-muon"),
    ],
)
def test_losses_and_checkpoints_are_the_same_to_the_bit(corpus: Path, arch: str, settings: Fields) -> None:
    plain, inspected = (
        train(corpus, arch, "plain", **settings),
        train(corpus, arch, "seen", inspect="all@3", **settings),
    )
    assert losses(str(plain.path)) == losses(str(inspected.path)) != {}
    assert digest(plain.checkpoints()[-1]) == digest(inspected.checkpoints()[-1])
    assert {event["step"] for event in events_of(inspected, "tap", "grad", "drift")} == {1, 3, 6, 7}
    assert not events_of(plain, "tap", "grad", "drift")


def test_steps_that_nobody_looks_at_do_the_very_same_operations() -> None:
    """Also in a training that is inspected, and though it was captured with somebody looking at other steps."""
    recorded: dict[bool, list[str]] = {}
    for inspected in (False, True):
        model = build(LLAMA)
        step = Step(model, TrainSettings(batch=2, device="cpu"), choose_cpu(32))
        observer = GradientFigures(dict(model.named_parameters()), tensor_pieces(LLAMA, model.named_parameters()))
        for number in range(6):
            step(batch(number, 2, False), 1e-2, observer=StepObserver(observer) if inspected and number % 2 else None)
        whole: Any = step._whole
        recorded[inspected] = [str(getattr(call[0], "__name__", call[0])) for call in whole._recorded]
    assert recorded[True] == recorded[False] and len(recorded[False]) > 100


def choose_cpu(tokens: int) -> Any:
    from linnet.train.hardware import choose

    return choose(TrainSettings(device="cpu"), tokens, weights=20_000)


# -- the figures ------------------------------------------------------------------------------------------------------

STACKED = pytest.mark.parametrize("stacked", [False, True], ids=["", "as-on-a-gpu"])


def numpy_figures(x: NDArray[Any]) -> Fields:
    """What a tap says, computed plainly."""
    x = x.astype(np.float64)
    low, high = max(x.min(), x.mean() - 5 * x.std()), min(x.max(), x.mean() + 5 * x.std())
    counts, _ = np.histogram(np.clip(x, low, high), 32, (low, high))
    return {
        "mean": x.mean(), "std": x.std(), "l2": np.sqrt((x**2).sum()), "abs_mean": np.abs(x).mean(), "min": x.min(),
        "max": x.max(), "sparsity": (np.abs(x) < 1e-6).mean(), "nan_count": 0, "edges": [low, high],
        "histogram": counts,
    }  # fmt: skip


def participation(x_ND: NDArray[Any]) -> float:
    """The effective rank, by the eigenvalues themselves."""
    values = np.linalg.eigvalsh(np.cov(x_ND.astype(np.float64), rowvar=False))
    return float(values.sum() ** 2 / (values**2).sum())


@STACKED
@pytest.mark.parametrize("arch", ["llama", "gpt2", "vit"])
def test_taps_are_what_a_plain_computation_gives(arch: str, stacked: bool) -> None:
    model = build(TINY[arch], seed=3)
    dice = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.1 * torch.randn(parameter.shape, generator=dice))
    if arch == "vit":
        inputs: tuple[Tensor | None, ...] = (torch.randint(0, 256, (6, 1, 8, 8), generator=dice),)
    else:
        inputs = (torch.randint(0, 384, (6, 16), generator=dice), None, None)
    assert inputs[0] is not None
    seen = activations(model, inputs[0][:5])
    events = told(1, *look_at_batch(model, *looked_at(model, inputs, 5), stacked=stacked))
    assert len(events) == len(seen) == 2 * 10 + (4 if arch == "vit" else 3)
    for event in events:
        x = seen[Region(event["region"], event["layer"])]
        by_token = x.transpose(1, 2).flatten(2).flatten(0, 1) if x.ndim == 4 else x.reshape(-1, x.shape[-1])
        values = by_token.numpy()
        assert event["shape"] == [values.shape[1], values.shape[0]] and event["dtype"] == "f32"
        expected = numpy_figures(values)
        moved = np.abs(np.array(event["histogram"]) - expected.pop("histogram")).sum()
        assert moved <= 2 and sum(event["histogram"]) == values.size, "a number on an edge may fall to either side"
        for name, number in expected.items():
            assert event[name] == pytest.approx(number, rel=1e-5, abs=1e-6), (event["region"], name)
        assert event["effective_rank"] == pytest.approx(participation(values), rel=1e-4), event["region"]
        if x.ndim == 4:
            norms = x.double().square().sum((0, 2, 3)).sqrt()
            assert event["per_head_l2"] == pytest.approx(norms.tolist(), rel=1e-5)
        if event["region"] == "attn_out":
            expected_H = plain_entropies(model, inputs[0][:5], event["layer"], causal=arch != "vit")
            assert event["entropy"] == pytest.approx(expected_H, rel=1e-5)
        assert ("dead" in event) == (event["region"] == "ffn_act")


def plain_entropies(model: Any, ids: Tensor, layer: int, *, causal: bool) -> list[float]:
    """Of the attention of a layer, from its queries and keys alone, in float64."""
    seen = activations(model, ids)
    q, k = (seen[Region(name, layer)].double() for name in ("attn_q", "attn_k"))
    k = k.repeat_interleave(q.shape[1] // k.shape[1], 1)
    scores = q @ k.mT / q.shape[-1] ** 0.5
    if causal:
        scores = scores.masked_fill(torch.ones(scores.shape[-2:]).triu(1).bool(), -torch.inf)
    p = scores.softmax(-1)
    return (-(p * p.clamp(min=1e-300).log()).sum(-1)).mean((0, 2)).tolist()  # type: ignore[no-any-return]


@pytest.mark.usefixtures("without_inductor")
@pytest.mark.parametrize("compiled", [False, True])
def test_taps_of_a_model_in_training_fused_or_compiled_are_those_of_a_plain_one(compiled: bool) -> None:
    model = build(LLAMA)
    data = batch(1, 4, False)
    plain = told(1, *look_at_batch(model, *looked_at(model, data.inputs, 4)))
    hardware = choose_cpu(32)
    hardware = replace(hardware, compile=True, graph=False) if compiled else hardware
    step = Step(model, TrainSettings(batch=4, device="cpu"), hardware)
    for _ in range(3):  # compiled, or recorded; the weights stay what they are
        step(data, 0.0)
    in_training = told(1, *look_at_batch(model, *looked_at(model, data.inputs, 4)))
    assert len(plain) == len(in_training) == 23
    for one, other in zip(plain, in_training, strict=True):
        assert one.keys() == other.keys()
        for name in ("mean", "std", "l2", "max", "sparsity", "effective_rank", "entropy"):
            assert other.get(name, 0) == pytest.approx(one.get(name, 0), rel=1e-5, abs=1e-6), (one["region"], name)


@STACKED
def test_gradients_of_a_vision_transformer_are_autograds(stacked: bool) -> None:
    model = build(VIT, seed=1)
    dice = torch.Generator().manual_seed(0)
    images = torch.randint(0, 256, (6, 1, 8, 8), generator=dice)
    pieces = tensor_pieces(VIT, model.named_parameters())
    observer = GradientFigures(dict(model.named_parameters()), pieces, stacked=stacked)
    torch.nn.functional.cross_entropy(model(images), torch.arange(6)).backward()
    gradients = {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}
    observer.after_backward()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(1.5)
    events = told(1, observer.rows, [observer.after_update()])
    whole = {event["param"]: event for event in events if "head" not in event and event["kind"] == "grad"}
    for piece in pieces:
        event, gradient = whole.pop(piece.tensor), piece.of(gradients[piece.parameter])
        assert event["l2"] == pytest.approx(gradient.norm().item(), rel=1e-5)
        assert event["abs_mean"] == pytest.approx(gradient.abs().mean().item(), rel=1e-5)
        assert event.get("update_ratio", 0.5) == pytest.approx(0.5, rel=1e-5)
    assert not whole
    queries = [event for event in events if event["param"] == "v.blk.0.attn_q.weight" and "head" in event]
    assert np.hypot(*(event["l2"] for event in queries)) == pytest.approx(
        next(e for e in events if e["param"] == "v.blk.0.attn_q.weight")["l2"], rel=1e-5
    )


def test_large_tensors_are_told_of_on_a_cpu_as_in_one_go() -> None:
    """They are read some rows at a time there: of each more than one stretch, the last one shorter."""
    config = LlamaConfig(vocab=1999, d_model=96, n_heads=3, n_kv=3, d_ff=1100, n_layers=3, ctx=16)
    told_by: dict[bool, list[Fields]] = {}
    for stacked in (False, True):
        model = build(config, seed=1)
        parameters, pieces = dict(model.named_parameters()), tensor_pieces(config, model.named_parameters())
        first = {name: p.detach().clone() for name, p in parameters.items()}
        observer = GradientFigures(parameters, pieces, stacked=stacked)
        dice = torch.Generator().manual_seed(0)
        for parameter in parameters.values():
            parameter.grad = torch.randn(parameter.shape, generator=dice)
        with torch.no_grad():
            parameters["blocks.1.ffn_down.weight"][::2] = 0
        observer.after_backward()
        with torch.no_grad():
            for parameter in parameters.values():
                parameter.add_(0.01 * torch.randn(parameter.shape, generator=dice))
        seen = told(1, observer.rows, [observer.after_update()])
        drift = DriftFigures(parameters, pieces, first, stacked=stacked)
        told_by[stacked] = [*seen, *told(1, *drift.look(torch.arange(1999) + 1))]
    assert len(told_by[False]) == len(told_by[True]) > 380
    for one, other in zip(told_by[False], told_by[True], strict=True):
        assert one.keys() == other.keys()
        for name, value in other.items():
            exact = isinstance(value, str | list)
            assert one[name] == (value if exact else pytest.approx(value, rel=1e-5)), (other.get("param"), name)


def test_what_is_not_finite_in_a_gradient_is_counted_in_its_tensor_and_head() -> None:
    config = TINY["llama"]
    model = build(config)
    observer = GradientFigures(dict(model.named_parameters()), tensor_pieces(config, model.named_parameters()))
    for parameter in model.parameters():
        parameter.grad = torch.ones_like(parameter)
    gradients = {name: p.grad for name, p in model.named_parameters() if p.grad is not None}
    gradients["blocks.1.attn_output.weight"][3, 17] = torch.nan  # of the third of four heads
    gradients["blocks.0.attn_qkv.weight"][5, :2] = -torch.inf  # of the first one of the queries
    gradients["token_embd.weight"][0, 0] = 1e30  # its square is too large for float32, and it is finite
    observer.after_backward()
    events = [e for e in told(1, observer.rows, [observer.after_update()]) if e["kind"] == "grad"]
    odd = {(event["param"], event.get("head")): event["nan_count"] for event in events if event["nan_count"]}
    assert odd == {
        ("blk.1.attn_output.weight", None): 1, ("blk.1.attn_output.weight", 2): 1,
        ("blk.0.attn_q.weight", None): 2, ("blk.0.attn_q.weight", 0): 2,
    }  # fmt: skip


@pytest.mark.parametrize("dim", [None, 0, 1])
def test_norms_of_millions_of_numbers_are_exact(dim: int | None) -> None:
    numbers = 0.02 * torch.randn(3, 1_500_001, generator=torch.Generator().manual_seed(0))
    numbers = numbers.T if dim == 0 else numbers
    assert torch.allclose(l2_of(numbers, dim), torch.linalg.vector_norm(numbers.double(), dim=dim).float(), rtol=1e-6)


def test_spread_and_norm_of_a_large_region_are_exact() -> None:
    x_RND = 0.02 * torch.randn(1, 1024, 3000, generator=torch.Generator().manual_seed(0))
    (row_F,) = figures(x_RND, stacked=False)
    exact = x_RND.double()
    assert row_F[1].item() == pytest.approx(exact.std(correction=0).item(), rel=1e-6)
    assert row_F[2].item() == pytest.approx(exact.norm().item(), rel=1e-6)


def test_units_that_do_nothing_are_counted() -> None:
    model = build(LLAMA)
    with torch.no_grad():
        model.blocks[1].ffn_gate_up.weight[:12].zero_()  # type: ignore[union-attr,operator]
    events = told(1, *look_at_batch(model, torch.arange(32).view(2, 16), None))
    dead = {event["layer"]: event["dead"] for event in events if event["region"] == "ffn_act"}
    assert dead == {0: 0.0, 1: 12 / 48}


@pytest.mark.parametrize("rows", [1, 7, 600])
def test_bins_are_counted_on_a_gpu_as_by_hand(rows: int) -> None:
    place_RM = torch.rand(rows, 500, generator=torch.Generator().manual_seed(rows)) * 31.999
    expected = torch.stack([torch.bincount(row.long(), minlength=32) for row in place_RM])
    assert torch.equal(counts_together(place_RM), expected.float())


def test_numbers_that_are_not_finite_are_counted_and_leave_no_histogram() -> None:
    model = build(LLAMA)
    with torch.no_grad():
        model.blocks[1].attn_norm.weight[:3] = torch.nan  # type: ignore[union-attr,operator]
    events = told(1, *look_at_batch(model, torch.arange(32).view(2, 16), None))
    of_norm = {event["layer"]: event for event in events if event["region"] == "attn_norm"}
    assert of_norm[0]["nan_count"] == 0 and "histogram" in of_norm[0]
    assert of_norm[1]["nan_count"] == 3 * 32 and "histogram" not in of_norm[1] and "effective_rank" not in of_norm[1]


def plain_gradients(config: Config, number: int) -> dict[str, Tensor]:
    """By autograd, of the whole batch at once, without any of our forms."""
    model = build(config)
    data = batch(number, 4, False)
    logits = model(data.ids_BT)
    loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), data.targets_BT.flatten(), ignore_index=-1)
    loss.backward()
    return {name: p.grad for name, p in model.named_parameters() if p.grad is not None}


@pytest.mark.usefixtures("without_inductor")
@pytest.mark.parametrize(
    ("config", "compiled"), [(LLAMA, False), (LLAMA, True), (GPT2, False)], ids=["llama", "llama-compiled", "gpt2"]
)
def test_gradients_and_updates_are_those_of_every_tensor_and_head(config: Config, compiled: bool) -> None:
    model = build(config)
    parameters, pieces = dict(model.named_parameters()), tensor_pieces(config, model.named_parameters())
    before = {name: p.detach().clone() for name, p in parameters.items()}
    observer = GradientFigures(parameters, pieces)
    settings = TrainSettings(batch=2, device="cpu", optimizer="adamw", clip=0.01)  # two passes, and clipped
    hardware = choose_cpu(32)
    hardware = replace(hardware, compile=True, graph=False) if compiled else hardware
    result = Step(model, settings, hardware)(batch(1, 4, False), 1e-2, observer=StepObserver(observer))
    assert result.observed is not None
    events = told(1, observer.rows, [result.observed])
    heads = config.n_layers * (2 * config.n_heads + 2 * config.n_kv)
    if isinstance(config, GPT2Config):
        heads += config.n_layers * 3 * config.n_heads  # the biases of q, k and v
    gradients = plain_gradients(config, 1)
    assert sum("head" in event for event in events) == heads
    names = {event["param"] for event in events}
    assert {"token_embd.weight", "blk.1.attn_q.weight", "blk.0.attn_v.weight", "blk.1.ffn_up.weight"} <= names
    for piece in pieces:
        for event in (event for event in events if event["param"] == piece.tensor):
            gradient, weights = piece.of(gradients[piece.parameter]), piece.of(before[piece.parameter])
            update = piece.of(parameters[piece.parameter].detach()) - weights
            if (head := event.get("head")) is not None:
                size = config.head_size
                own = slice(head * size, (head + 1) * size)
                key = (slice(None), own) if piece.tensor.endswith("attn_output.weight") else own
                gradient, weights, update = gradient[key], weights[key], update[key]
            else:
                assert event["shape"] == list(reversed(gradient.shape))
            assert event["l2"] == pytest.approx(gradient.norm().item(), rel=2e-5, abs=1e-8), event
            assert event["abs_mean"] == pytest.approx(gradient.abs().mean().item(), rel=2e-5, abs=1e-9)
            assert event["nan_count"] == 0
            if weights.any():
                assert event["update_ratio"] == pytest.approx((update.norm() / weights.norm()).item(), rel=1e-5)
            else:
                assert "update_ratio" not in event, "there is no ratio to a bias of zeros"


def test_a_captured_look_tells_what_a_plain_one_does(corpus: Path) -> None:
    told_by: dict[str, list[Fields]] = {}
    for graph in ("on", "off"):
        run = train(corpus, "llama", graph, inspect="grads@1", graph=graph)
        told_by[graph] = [{**event, "t": 0} for event in events_of(run, "grad")]
    assert told_by["on"] == told_by["off"] and len(told_by["on"]) == 7 * (20 + 24)


def test_pruned_weights_are_told_of_by_their_density(corpus: Path) -> None:
    class Pruned(Callback):
        """Keeps a third of a matrix at zero."""

        def on_start(self) -> None:
            with torch.no_grad():
                self.model.get_parameter("blocks.1.ffn_down.weight")[:, ::3] = 0

        on_step = on_evaluation = lambda self, *_: self.on_start()

    run = train_job(small_job(corpus, inspect="grads@4", optimizer="adamw"), "pruned", callbacks=[Pruned()])
    events = events_of(run, "mask")
    assert {(event["li"], event["wi"], event["wname"]) for event in events} == {(1, 6, "blk.1.ffn_down.weight")}
    assert run.metrics()["mask/blk.1.ffn_down.weight/density"].value.tolist()[0] == pytest.approx(2 / 3)


def test_zeros_that_a_model_begins_with_are_no_mask_and_those_that_stay_are(corpus: Path) -> None:
    shape: dict[str, Any] = {"preset": "vit-tiny-8", "d_model": 24, "n_layers": 1, "d_ff": 48, "batch": 32, "steps": 6}
    run = linnet.train("vit-tiny", **shape, eval_every=0, inspect="grads@2", run_id="fresh")
    assert len(run.inspection().looks["grads"]) == 4 and not events_of(run, "mask"), "its position table has zeros"

    class Pruned(Callback):
        """Sets some of a matrix to zero at once, as a file may have it, and gives it no gradient."""

        def on_start(self) -> None:
            weight = self.model.get_parameter("blocks.1.ffn_down.weight")
            with torch.no_grad():
                weight[:, ::3] = 0
            in_use = (weight != 0).float()
            weight.register_hook(lambda gradient: gradient * in_use)

    run = train_job(small_job(corpus, inspect="grads@4", optimizer="adamw"), "pruned", callbacks=[Pruned()])
    densities = [(event["step"], event["density"]) for event in events_of(run, "mask")]
    assert densities == [(4, pytest.approx(2 / 3, rel=1e-5)), (8, pytest.approx(2 / 3, rel=1e-5))]


@STACKED
def test_drift_is_distance_and_angle_from_the_first_weights(stacked: bool) -> None:
    model = build(LLAMA)
    parameters, pieces = dict(model.named_parameters()), tensor_pieces(LLAMA, model.named_parameters())
    first = {name: p.detach().clone() for name, p in parameters.items()}
    dice = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for parameter in parameters.values():
            parameter.add_(0.05 * torch.randn(parameter.shape, generator=dice))
        parameters["output_norm.weight"].zero_()
    counts = TokenCounts(97, torch.device("cpu"))
    counts.add(torch.arange(60).repeat_interleave(torch.arange(60)))
    drift = DriftFigures(parameters, pieces, first, stacked=stacked)
    events = told(1, *drift.look(counts.now()))
    seen = {
        (event["param"], event.get("head")): event for event in events if "token_id" not in event and "param" in event
    }
    q, q0 = (tensors["blocks.1.attn_qkv.weight"][8:16].double().flatten() for tensors in (parameters, first))
    expected = (torch.cosine_similarity(q, q0, dim=0).item(), (q - q0).norm().item())
    event = seen["blk.1.attn_q.weight", 1]
    assert (event["cos_to_init"], event["l2_to_init"]) == pytest.approx(expected, rel=1e-5)
    o, o0 = (tensors["blocks.0.attn_output.weight"][:, 24:32].double().flatten() for tensors in (parameters, first))
    expected = (torch.cosine_similarity(o, o0, dim=0).item(), (o - o0).norm().item())
    event = seen["blk.0.attn_output.weight", 3]
    assert (event["cos_to_init"], event["l2_to_init"]) == pytest.approx(expected, rel=1e-5)
    assert seen["output_norm.weight", None]["cos_to_init"] == 0.0, "there is no angle to nothing"
    tokens = {event["token_id"]: event for event in events if "token_id" in event}
    assert {token: event["freq"] for token, event in tokens.items()} == {token: token for token in range(1, 60)}
    rows = [parameters["token_embd.weight"][7].double(), first["token_embd.weight"][7].double()]
    assert tokens[7]["cos_to_init"] == pytest.approx(torch.cosine_similarity(*rows, dim=0).item(), rel=1e-5)
    assert tokens[7]["l2_to_init"] == pytest.approx((rows[0] - rows[1]).norm().item(), rel=1e-5)
    cosines = [tokens[token]["cos_to_init"] for token in range(1, 60)]
    expected_r = np.corrcoef(np.log(np.arange(1, 60)), cosines)[0, 1]
    (correlation,) = (event for event in events if event["kind"] == "scalars")
    assert correlation["drift/token_frequency"] == pytest.approx(expected_r, rel=1e-4)


def test_of_a_large_vocabulary_the_frequent_tokens_are_told_of_and_some_of_the_rare_ones() -> None:
    counts_V = torch.arange(50_000).flip(0)
    tokens = by_frequency(counts_V)[log_spaced(len(counts_V))].tolist()
    assert len(tokens) == 256 and tokens[:20] == list(range(20)) and tokens[-1] == 49_999
    assert sorted(tokens) == tokens
    assert torch.isnan(frequency_correlation(torch.zeros(9, dtype=torch.int64), torch.ones(9)))


# -- runs -------------------------------------------------------------------------------------------------------------


class Stop(Callback):
    def __init__(self, step: int) -> None:
        self._step = step

    def on_step(self, metrics: Any) -> None:
        if metrics.step == self._step:
            import signal

            signal.raise_signal(signal.SIGINT)


def small_job(corpus: Path, **settings: Any) -> Job:
    given: Fields = {
        "steps": 8,
        "batch": 4,
        "eval_every": 0,
        "sample_every": 0,
        "warmup": 1,
        "inspect": "drift@2",
        **settings,
    }
    return Job(TINY["llama"], TextData(str(corpus)), TrainSettings(**given))


def drift_of(run: Run) -> list[Fields]:
    return [
        {name: value for name, value in event.items() if name != "t"} for event in events_of(run, "drift", "scalars")
    ]


def test_a_resumed_run_measures_from_the_same_weights_and_goes_on_counting(corpus: Path) -> None:
    whole = train_job(small_job(corpus), "whole")
    start(small_job(corpus), callbacks=[Stop(5)], runs_root="broken", run_id="a").run()
    assert not (Path("broken/a/state") / "first.safetensors").exists(), "a seed makes them again"
    resumed = linnet.resume("a", runs="broken")
    assert drift_of(resumed) == drift_of(whole)
    assert {event["step"] for event in drift_of(whole)} == {1, 2, 4, 6, 8}


def train_job(job: Job, name: str, **more: Any) -> Run:
    start(job, runs_root=name, run_id="a", **more).run()
    return linnet.open(Path(name) / "a")


def test_a_fork_measures_from_where_it_began_and_so_does_its_continuation(corpus: Path) -> None:
    train_job(small_job(corpus, inspect=None), "parents")
    fork: Fields = {"from_": "parents/a", "steps": 4, "inspect": "drift@2", "runs": "forks", "run_id": "b"}
    whole = drift_of(linnet.train(**fork))
    assert whole[0]["step"] == 9 and whole[0]["cos_to_init"] > 0.99
    linnet.train(**{**fork, "runs": "others"}, callbacks=[Stop(10)])
    assert (Path("others/b/state") / "first.safetensors").is_file()
    assert drift_of(linnet.resume("b", runs="others")) == whole


def test_drift_that_was_not_asked_for_in_time_is_refused(corpus: Path, said: Said) -> None:
    train_job(small_job(corpus, inspect=None), "parents")
    fork: Fields = {"from_": "parents/a", "steps": 4, "runs": "forks", "run_id": "b"}
    linnet.train(**fork, callbacks=[Stop(10)])
    events = (Path("forks/b/events.jsonl")).read_bytes()
    with pytest.raises(UsageError, match=r"run b did not begin from a seed, and its first weights were not kept"):
        linnet.train(**fork, resume="auto", inspect="drift@2")
    assert Path("forks/b/events.jsonl").read_bytes() == events
    assert linnet.train(**fork, resume="auto", inspect="grads@2").status == "completed"


def test_a_vision_transformer_that_began_mimetic_drifts_from_that(corpus: Path) -> None:
    run = train(corpus, "vit", "vit", inspect="drift@3,gram@3")
    first = next(event for event in drift_of(run) if event["param"] == "v.blk.0.attn_q.weight")
    assert first["step"] == 1 and first["cos_to_init"] > 0.99
    grams = [np.array(event["gram"]) for event in events_of(run, "tap")]
    assert len(grams) == 4 * 3 * VIT.n_layers and {gram.shape for gram in grams} == {(32, 32)}


def test_gram_matrices_are_of_centred_activations_of_held_out_text(corpus: Path) -> None:
    run = train_job(small_job(corpus, inspect="gram", steps=1), "gram")
    events = events_of(run, "tap")
    assert [(event["region"], event["layer"]) for event in events] == [
        (name, layer) for layer in (0, 1) for name in ("attn_norm", "ffn_out", "resid_post_block")
    ]
    from linnet.data import prepare, windows

    held_out = prepare(str(corpus), vocab=384).held_out
    ids_BT = next(windows(held_out, 16, 1)).ids_BT
    x_TD = activations(build(TINY["llama"]), ids_BT)[Region("ffn_out", 1)][0].double()
    x_TD = x_TD - x_TD.mean(0)
    (event,) = (event for event in events if (event["region"], event["layer"]) == ("ffn_out", 1))
    assert np.allclose(event["gram"], (x_TD @ x_TD.T).numpy(), rtol=1e-4, atol=1e-5)


def test_a_look_that_fails_is_told_once_and_costs_nothing_else(
    corpus: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def out_of_memory(*_: object) -> None:
        raise torch.OutOfMemoryError("CUDA out of memory")

    plain = train_job(small_job(corpus, inspect=None), "plain")
    monkeypatch.setattr("linnet.train.inspection.inspector.look_at_batch", out_of_memory)
    run = train_job(small_job(corpus, inspect="taps,grads@2"), "seen")
    assert losses(str(run.path)) == losses(str(plain.path))
    (note,) = (event for event in events_of(run, "note") if event.get("level") == "warning")
    assert note["text"] == "no taps are inspected from step 1 on: there is too little memory for it"
    assert {event["step"] for event in events_of(run, "grad")} == {1, 2, 4, 6, 8}
    assert caplog.text.count("no taps are inspected") == 1


def test_the_plan_counts_what_looks_write(corpus: Path) -> None:
    plain, inspected = (
        start(small_job(corpus, inspect=text), run_id=name) for text, name in ((None, "b"), ("all@2", "c"))
    )
    assert plain.plan is not None and inspected.plan is not None
    written = train_job(small_job(corpus, inspect="all@2"), "looked").events_path.stat().st_size
    assert 0.5 < (inspected.plan.disk - plain.plan.disk) / written < 2.5, "an estimate, for models of a usual size"


def test_rows_and_a_loss_of_ones_own_are_looked_at_too() -> None:
    def doubled(model: Any, batch: Any) -> Tensor:
        loss: Tensor = 2 * model.loss(batch.ids_BT, batch.targets_BT)
        return loss

    rows = [[(7 * row + place) % 19 for place in range(17)] for row in range(64)]
    flags: Fields = {"vocab": 19, "preset": "tiny", "ctx": 16, "steps": 3, "inspect": "all@2", "data": rows}
    run = linnet.train(**flags, loss=doubled, run_id="own")
    by_kind = {kind: len(events_of(run, kind)) for kind in ("tap", "grad", "drift")}
    assert all(by_kind.values())
    with pytest.raises(UsageError, match="gram compares activations on held-out data, and nothing is held out"):
        linnet.train(**{**flags, "inspect": "gram", "held_out": 0.0}, run_id="none")
    assert not Path("runs/none").exists()


def test_counts_come_through_a_state_to_the_last_one() -> None:
    counts = TokenCounts(5, torch.device("cpu"))
    counts.add(torch.tensor([[1, 1, 4]]))
    counts._counts_V += 2**33
    kept_counts = counts.kept()
    assert kept_counts.dtype == torch.float32
    again = TokenCounts(5, torch.device("cpu"), kept_counts.clone())
    again.add(torch.tensor([4]))
    assert (again.now() - 2**33).tolist() == [0, 2, 0, 0, 2]
    assert TokenCounts(6, torch.device("cpu"), kept_counts).now().tolist() == [0] * 6, "of another vocabulary"
