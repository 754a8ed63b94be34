"""The optimisers: what decays, the seed's own AdamW, and moments that come back as they were."""

from __future__ import annotations

import math
import sys
import weakref
from collections.abc import Callable, Iterable, Sequence
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode

from linnet.architectures import layout, preset
from linnet.architectures.parameters import stacked_rows
from linnet.errors import UsageError
from linnet.models import LanguageModel, LlamaConfig, build
from linnet.train.eager_optimizer import AdamW
from linnet.train.muon import Muon, _stacked, passing_bytes
from linnet.train.optim import Optimizers
from linnet.train.orthogonal import LEAST, by_polynomials, orthogonal
from linnet.train.settings import TrainSettings

CONFIG = LlamaConfig(vocab=50, d_model=16, n_heads=2, n_kv=1, d_ff=24, n_layers=2, ctx=8, qkv_bias=True, tied=False)
KINDS = {
    "adamw": TrainSettings(optimizer="adamw"),
    "seed": TrainSettings(optimizer="adamw", bias_correction="seed"),
    "muon": TrainSettings(optimizer="muon", muon_norm="spectral", momentum_warmup=4),
    "muon as it was": TrainSettings(optimizer="muon"),
}


def trained(settings: TrainSettings, steps: int) -> tuple[LanguageModel, Optimizers]:
    """A model after some steps on made-up gradients."""
    model = build(CONFIG)
    optimizers = Optimizers(model.named_parameters(), settings, rows=stacked_rows(CONFIG))
    for step in range(steps):
        train(model, optimizers, step)
    return model, optimizers


def train(model: LanguageModel, optimizers: Optimizers, step: int) -> None:
    dice = torch.Generator().manual_seed(step)
    for parameter in model.parameters():
        parameter.grad = torch.randn(parameter.shape, generator=dice)
    optimizers.set_lr(1e-2 / (step + 1))
    optimizers.step()


@pytest.mark.parametrize("kind", KINDS)
def test_only_matrices_decay(kind: str) -> None:
    model = build(CONFIG)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.fill_(1.0)
    optimizers = Optimizers(model.named_parameters(), KINDS[kind])
    for parameter in model.parameters():
        parameter.grad = torch.zeros_like(parameter)  # so that nothing but the decay moves it
    optimizers.set_lr(0.5)
    optimizers.step()
    for name, parameter in model.named_parameters():
        expected = 1 - 0.5 * 0.1 if parameter.ndim >= 2 else 1.0
        assert torch.allclose(parameter, torch.tensor(expected)), name
        assert parameter.grad is None


def test_the_seeds_adamw_follows_the_seeds_formula() -> None:
    weight = nn.Parameter(torch.tensor([[1.0, -2.0]], dtype=torch.float64))
    settings = TrainSettings(
        optimizer="adamw", bias_correction="seed", weight_decay=0.1, beta1=0.9, beta2=0.95, eps=1e-8
    )
    optimizers = Optimizers([("blocks.0.w", weight)], settings)
    w, m, v = [1.0, -2.0], [0.0, 0.0], [0.0, 0.0]
    for gradient, lr in (([0.5, -0.1], 0.01), ([-0.2, 0.4], 0.02), ([0.3, 0.3], 0.005)):
        weight.grad = torch.tensor([gradient], dtype=torch.float64)
        optimizers.set_lr(lr)
        optimizers.step()
        for i, g in enumerate(gradient):
            m[i] = 0.9 * m[i] + (1 - 0.9) * g
            v[i] = 0.95 * v[i] + (1 - 0.95) * g * g
            w[i] = w[i] * (1 - lr * 0.1) - lr * (0.9 * m[i]) / (math.sqrt(0.95 * v[i]) + 1e-8)
        assert weight.tolist()[0] == pytest.approx(w, rel=1e-12)


def test_the_usual_adamw_corrects_its_bias() -> None:
    weight = nn.Parameter(torch.tensor([[1.0]]))
    optimizers = Optimizers([("blocks.0.w", weight)], TrainSettings(optimizer="adamw", weight_decay=0.0))
    weight.grad = torch.tensor([[0.25]])
    optimizers.set_lr(0.1)
    optimizers.step()
    assert weight.item() == pytest.approx(0.9)  # the first step has the full length, whatever the gradient


def test_muon_takes_hidden_matrices_and_adamw_the_rest() -> None:
    _, optimizers = trained(KINDS["muon as it was"], 1)
    kinds: dict[str, set[str]] = {}
    for key in optimizers.state():
        kind, _, name = key.partition("/")
        kinds.setdefault(name, set()).add(kind)
    assert kinds["blocks.0.attn_qkv.weight"] == {"momentum_buffer"}
    for name in ("token_embd.weight", "output.weight", "blocks.0.attn_norm.weight", "blocks.0.attn_qkv.bias"):
        assert kinds[name] == {"exp_avg", "exp_avg_sq", "step"}, name


def test_matrices_that_lie_in_one_parameter_move_as_if_each_had_its_own() -> None:
    assert stacked_rows(CONFIG)["blocks.1.attn_qkv.weight"] == (16, 8, 8)
    assert stacked_rows(CONFIG)["blocks.0.ffn_gate_up.weight"] == (24, 24)
    dice = torch.Generator().manual_seed(0)
    whole = nn.Parameter(torch.randn(32, 16, generator=dice))
    parts = [nn.Parameter(part.clone()) for part in whole.detach().split((16, 8, 8))]
    settings = TrainSettings(optimizer="muon", muon_norm="spectral", weight_decay=0.1, clip=0)
    together = Optimizers([("blocks.0.w", whole)], settings, rows={"blocks.0.w": (16, 8, 8)})
    apart = Optimizers([(f"blocks.0.{number}", part) for number, part in enumerate(parts)], settings)
    fused = nn.Parameter(whole.detach().clone())
    as_one = Optimizers([("blocks.0.w", fused)], settings)
    for _ in range(3):
        gradient = torch.randn(32, 16, generator=dice)
        whole.grad, fused.grad = gradient.clone(), gradient.clone()
        for part, piece in zip(parts, gradient.split((16, 8, 8)), strict=True):
            part.grad = piece.clone()
        for optimizers in (together, apart, as_one):
            optimizers.set_lr(1e-2)
            optimizers.step()
    assert torch.equal(whole, torch.cat(list(parts)))
    assert not torch.allclose(whole, fused)


@pytest.mark.parametrize(("rows", "columns", "size"), [(384, 384, 1.0), (96, 384, 0.5), (384, 96, 2.0), (24, 24, 1.0)])
def test_a_spectral_update_is_as_large_as_the_shape_says(rows: int, columns: int, size: float) -> None:
    weight = nn.Parameter(torch.zeros(rows, columns))
    settings = TrainSettings(optimizer="muon", muon_norm="spectral", weight_decay=0.0)
    optimizers = Optimizers([("blocks.0.w", weight)], settings)
    weight.grad = torch.randn(rows, columns, generator=torch.Generator().manual_seed(0))
    optimizers.set_lr(1e-2)
    optimizers.step()
    largest = float(torch.linalg.matrix_norm(weight.detach(), 2))
    assert largest == pytest.approx(1e-2 * 0.2 * 384**0.5 * size, rel=0.15)


def test_the_momentum_rises_in_its_warm_up() -> None:
    weight = nn.Parameter(torch.zeros(4, 4))
    settings = TrainSettings(optimizer="muon", muon_norm="spectral", momentum_warmup=2, clip=0)
    optimizers = Optimizers([("blocks.0.w", weight)], settings)
    expected = torch.zeros(4, 4)
    for step, momentum in enumerate((0.85, 0.90, 0.95, 0.95)):
        weight.grad = torch.ones(4, 4)
        optimizers.set_lr(1e-3, settings.momentum(step))
        optimizers.step()
        expected = expected * momentum + (1 - momentum)
        assert torch.allclose(optimizers.state()["momentum_buffer/blocks.0.w"], expected)
    with pytest.raises(UsageError, match="momentum_warmup"):
        TrainSettings(momentum_warmup=-1)


@pytest.mark.parametrize("kind", KINDS)
def test_moments_kept_and_put_back_give_the_same_steps_to_the_bit(kind: str) -> None:
    whole, _ = trained(KINDS[kind], 5)
    model, before = trained(KINDS[kind], 3)
    kept: dict[str, Tensor] = {name: tensor.clone() for name, tensor in before.state().items()}
    again = Optimizers(model.named_parameters(), KINDS[kind], rows=stacked_rows(CONFIG))
    again.load(kept)
    for step in (3, 4):
        train(model, again, step)
    assert kept.keys() == again.state().keys()
    for name, tensor in whole.params().items():
        assert torch.equal(tensor, model.params()[name]), name


def of_singular_values(values: Tensor, rows: int, columns: int) -> tuple[Tensor, Tensor, Tensor]:
    """A matrix with these singular values, and its directions."""
    dice = torch.Generator().manual_seed(len(values))
    u, _, v = torch.linalg.svd(torch.randn(rows, columns, generator=dice, dtype=torch.float64), full_matrices=False)
    return (u * values) @ v, u, v


@pytest.mark.parametrize("way", [orthogonal, by_polynomials])
@pytest.mark.parametrize(("rows", "columns"), [(24, 40), (40, 24), (16, 16), (192, 512), (64, 1)])
@pytest.mark.parametrize("size", [1.0, 1e-6, 1e5])
def test_orthogonal_brings_singular_values_near_one_and_keeps_directions(
    way: Callable[[Tensor], Tensor], rows: int, columns: int, size: float
) -> None:
    values = torch.logspace(0, -2.4, min(rows, columns), dtype=torch.float64)  # down to 0.004 of the largest
    matrix, u, v = of_singular_values(values, rows, columns)
    found = way((size * matrix).float()[None])[0].double()
    inner = u.mT @ found @ v.mT  # the same directions: nothing but a diagonal is left
    most = 0.21 if way is by_polynomials else 0.14
    kept = values > LEAST * (values**4).sum() ** 0.25
    assert (inner.diagonal()[kept] - 1).abs().max() < most
    assert torch.allclose(inner, torch.diag(inner.diagonal()), atol=2e-3)


@pytest.mark.parametrize("way", [orthogonal, by_polynomials])
def test_what_is_nearly_nothing_stays_so(way: Callable[[Tensor], Tensor]) -> None:
    matrix, u, v = of_singular_values(torch.tensor([1.0, 0.5, 1e-4, 1e-7, 0.0], dtype=torch.float64), 5, 9)
    values = (u.mT @ way(matrix.float()[None])[0].double() @ v.mT).diagonal()
    assert values[0] > 0.8 and 0.02 < values[2] < 0.06 and values[3].abs() < 1e-3 and values[4].abs() < 1e-3
    assert way(torch.zeros(2, 5, 9)).eq(0).all()
    assert way(torch.full((1, 5, 9), torch.nan)).isnan().all()


def test_what_becomes_of_a_matrix_depends_on_nothing_else() -> None:
    # Ranks share matrices out: whichever others are with it, and however many threads there are.
    dice = torch.Generator().manual_seed(0)
    matrices = [torch.randn(shape, generator=dice) for shape in ((96, 64), (64, 160), (64, 64), (96, 64), (200, 96))]
    gradients = [torch.randn(matrix.shape, generator=dice) for matrix in matrices]

    def moved(numbers: Sequence[int], threads: int) -> list[Tensor]:
        weights = [nn.Parameter(matrices[number].clone()) for number in numbers]
        muon = Muon(weights, torch.tensor(0.02), weight_decay=0.1)
        before = torch.get_num_threads()
        torch.set_num_threads(threads)
        for _ in range(2):
            for weight, number in zip(weights, numbers, strict=True):
                weight.grad = gradients[number].clone()
            muon.step()
        torch.set_num_threads(before)
        return weights

    together = moved(range(5), 1)
    for number, alone in enumerate(together):
        assert torch.equal(alone, moved([number], 2)[0])
    assert all(map(torch.equal, together, moved(range(5), 3)))


def test_gradients_that_lie_side_by_side_are_not_copied() -> None:
    parts = list(torch.arange(24.0).view(4, 2, 3).unbind())
    whole = _stacked(parts[1:])
    assert whole.data_ptr() == parts[1].data_ptr() and torch.equal(whole, torch.stack(parts[1:]))
    for others in ([parts[0], parts[2]], [parts[1], parts[0]], [parts[0].T, parts[1].T], [parts[0], torch.ones(2, 3)]):
        copied = _stacked(others)
        assert copied.data_ptr() != others[0].data_ptr() and torch.equal(copied, torch.stack(others))


def test_gradients_are_divided_by_the_scale() -> None:
    dice = torch.Generator().manual_seed(0)
    start, gradient = torch.randn(24, 40, generator=dice), torch.randn(24, 40, generator=dice)
    weights = []
    for scale in (None, torch.tensor(8.0)):
        weight = nn.Parameter(start.clone())
        muon = Muon([weight], torch.tensor(0.02))
        muon.grad_scale = scale
        weight.grad = gradient if scale is None else 8 * gradient
        muon.step()
        weights.append((weight, muon.state[weight]["momentum_buffer"]))
    for plain, scaled in zip(*weights, strict=True):
        assert torch.allclose(plain, scaled, atol=1e-6)


def test_muon_moves_as_torchs_own_does() -> None:
    dice = torch.Generator().manual_seed(0)
    starts = [torch.randn(shape, generator=dice) for shape in ((24, 40), (24, 40), (40, 24))]
    ours, theirs = ([nn.Parameter(start.clone()) for start in starts] for _ in range(2))
    lr = torch.tensor(0.02)
    mine = Muon(ours, lr, weight_decay=0.1)
    exact = {"ns_coefficients": (1.875, -1.25, 0.375), "ns_steps": 20}  # slow, but to the end
    other = torch.optim.Muon(theirs, lr=0.02, weight_decay=0.1, adjust_lr_fn="match_rms_adamw", **exact)
    for _ in range(3):
        for a, b in zip(ours, theirs, strict=True):
            a.grad = torch.randn(a.shape, generator=dice)
            b.grad = a.grad.clone()
        mine.step()
        other.step()
    for a, b, start in zip(ours, theirs, starts, strict=True):
        # Singular values are within 0.13 of 1, and torch rounds its iterations to bf16.
        assert (a - b).norm() < 0.1 * (b - start).norm()


@pytest.mark.parametrize("shape", [(384, 96), (96, 192), (160, 96)])
def test_a_gradient_of_low_rank_moves_no_further_than_others(shape: tuple[int, int]) -> None:
    dice = torch.Generator().manual_seed(0)
    gradient = torch.randn(shape[0], 3, generator=dice) @ torch.randn(3, shape[1], generator=dice) * 1e-4
    weight = nn.Parameter(torch.zeros(shape))
    weight.grad = gradient
    Muon([weight], torch.tensor(1.0)).step()
    assert torch.linalg.svdvals(weight.detach()).max() < 1.5 * 0.2 * max(shape) ** 0.5


class _LiveBytes(TorchDispatchMode):
    """The most bytes that tensors hold at a time, those that are there before left out."""

    def __init__(self, before: Iterable[Tensor]) -> None:
        super().__init__()
        self.most = self._now = 0
        self._known = {tensor.untyped_storage()._cdata for tensor in before}

    def __torch_dispatch__(self, operation: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = operation(*args, **(kwargs or {}))
        results = result if isinstance(result, list | tuple) else [result]
        for storage in (tensor.untyped_storage() for tensor in results if isinstance(tensor, Tensor)):
            if storage._cdata not in self._known:
                self._known.add(storage._cdata)
                self._now += storage.nbytes()
                self.most = max(self.most, self._now)
                weakref.finalize(storage, self._free, storage._cdata, storage.nbytes())
        return result

    def _free(self, key: int, size: int) -> None:
        self._known.discard(key)
        self._now -= size


_SIZES = {
    "smollm2-135m": preset("smollm2-135m"),
    "gpt2-124m": preset("gpt2-124m"),
    "1B": preset("smollm2-135m", d_model=2048, n_layers=16, n_heads=32, n_kv=8, d_ff=8192),
}


@pytest.mark.parametrize("name", _SIZES)
def test_what_muon_holds_for_a_while_on_a_gpu_is_counted(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The code itself on tensors that are nowhere: bytes are counted by what it makes of them."""
    config = _SIZES[name]
    kernels = SimpleNamespace(
        momentum_ahead=lambda gradients, *_: torch.empty_like(gradients, dtype=torch.bfloat16),
        normalised=lambda gram, _: (torch.empty_like(gram, dtype=torch.float16), gram.new_empty(len(gram))),
        scaled=lambda matrices, _: torch.empty_like(matrices, dtype=torch.float16),
        quintic=lambda gram, *_: torch.empty_like(gram),
        move=lambda *_: None,
    )
    monkeypatch.setitem(sys.modules, "linnet.kernels.cuda.muon", kernels)
    monkeypatch.setattr("linnet.kernels.cuda.muon", kernels, raising=False)
    monkeypatch.setattr("linnet.train.orthogonal._kernels", lambda: kernels)
    for module in ("muon", "orthogonal"):
        monkeypatch.setattr(f"linnet.train.{module}.has_kernels", lambda: True)
    monkeypatch.setattr(Muon, "_addresses", lambda self, shape, weights: torch.empty(len(weights)))
    monkeypatch.setattr("linnet.train.muon._stacked", torch.stack)  # what has no address lies beside nothing
    monkeypatch.setattr("linnet.train.muon._Batch.is_of", lambda self, buffers: True)
    rows, params = stacked_rows(config), layout(config).params
    with FakeTensorMode(allow_non_fake_inputs=True):
        matrices, within = [], {}
        for parameter, described in params.items():
            if not Muon.trains(parameter, torch.empty(described.shape, device="meta")):
                continue
            matrix = nn.Parameter(torch.empty(described.shape, device="cuda"))
            matrix.grad = torch.empty_like(matrix)
            matrices.append(matrix)
            within[matrix] = rows.get(parameter) or (described.shape[0],)
        optimizer = Muon(matrices, torch.tensor(1e-3, device="cuda"), norm="spectral", rows=within)
        optimizer.step()
        held = [tensor for m in matrices for tensor in (m, m.grad, optimizer.state[m]["momentum_buffer"])]
        with _LiveBytes(held) as live:
            optimizer.step()
    assert passing_bytes((m.shape, within[m]) for m in matrices) == pytest.approx(live.most, rel=0.02)


@pytest.mark.parametrize("fused", [True, False])
def test_adamw_is_torchs_to_the_bit(fused: bool) -> None:
    dice = torch.Generator().manual_seed(0)
    first = [torch.randn(8, 4, generator=dice), torch.randn(4, generator=dice)]
    ours, theirs = ([nn.Parameter(x.clone()) for x in first] for _ in range(2))
    optimizers = [
        kind([{"params": ps[:1]}, {"params": ps[1:], "weight_decay": 0.0}], lr=torch.tensor(1e-2), fused=fused)
        for kind, ps in ((AdamW, ours), (torch.optim.AdamW, theirs))
    ]
    for _ in range(3):
        gradients = [torch.randn(x.shape, generator=dice) for x in first]
        for parameters, optimizer in zip((ours, theirs), optimizers, strict=True):
            optimizer.zero_grad()
            assert all(parameter.grad is None for parameter in parameters)
            for parameter, gradient in zip(parameters, gradients, strict=True):
                parameter.grad = gradient.clone()
            optimizer.step()
    assert all(torch.equal(one, other) for one, other in zip(ours, theirs, strict=True))


def test_muons_moves_count_as_changes() -> None:
    """Who keeps something made of the weights asks whether they are the same."""
    matrix = nn.Parameter(torch.eye(4))
    matrix.grad = torch.ones(4, 4)
    version = matrix._version
    Muon([matrix], torch.tensor(0.1)).step()
    assert matrix._version > version and not torch.equal(matrix, torch.eye(4))
