"""Matrices that stay in few bits: decoded to the bit, multiplied without being kept, and never trained."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from linnet.gguf.blocks import READABLE
from linnet.gguf.errors import GGUFError
from linnet.gguf.planes import SPLITTABLE, split
from linnet.gguf.tensor import GGMLType
from linnet.kernels import cpu, frozen, ops
from linnet.kernels.frozen import EagerFrozenMatmul, FrozenMatmul
from linnet.kernels.packed import PackedMatrix, unpack
from tests.kernels.packed_matrices import packed, random_blocks


def random(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("type", SPLITTABLE, ids=lambda type: type.name)
def test_a_packed_matrix_is_decoded_as_the_file_is_to_the_bit(type: GGMLType) -> None:
    matrix, exact = packed((type, 70))
    assert matrix.shape == exact.shape
    assert torch.equal(matrix.unpacked(), torch.from_numpy(exact))
    assert torch.equal(matrix.unpacked(rows=slice(13, 40)), torch.from_numpy(exact[13:40]))
    ids = torch.tensor([[3, 69], [3, 0]])
    assert torch.equal(matrix.rows(ids), torch.from_numpy(exact)[ids])


@pytest.mark.parametrize("type", SPLITTABLE, ids=lambda type: type.name)
def test_it_takes_the_memory_that_the_file_takes(type: GGMLType) -> None:
    # Sub-scales of six bits or less have a byte each: 3 % of a K format, 19 % of Q2_K.
    most = 1.2 if type is GGMLType.Q2_K else 1.04
    assert packed((type, 70))[0].nbytes <= most * random_blocks(type, 70, 512).nbytes


def test_every_quantised_type_that_is_read_can_stay_packed() -> None:
    assert set(SPLITTABLE) == {type for type in READABLE if type.block_values > 1}
    with pytest.raises(GGUFError, match="type F32 cannot stay quantised; such types: Q8_0"):
        split(np.zeros((2, 128), np.uint8), GGMLType.F32)


def test_parts_of_several_types_are_one_matrix() -> None:
    matrix, exact = packed((GGMLType.Q4_K, 48), (GGMLType.Q4_K, 16), (GGMLType.Q6_K, 16))
    assert torch.equal(matrix.unpacked(), torch.from_numpy(exact))
    assert torch.equal(matrix.unpacked(rows=slice(40, 70)), torch.from_numpy(exact[40:70]))
    ids = torch.tensor([79, 0, 47, 48, 64])
    assert torch.equal(matrix.rows(ids), torch.from_numpy(exact)[ids])


def test_a_product_in_pieces_and_its_gradient_are_those_of_the_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(frozen, "_AT_ONCE", 30 * 512)  # some rows at a time
    matrix, exact = packed((GGMLType.Q4_1, 70), (GGMLType.Q8_0, 21))
    x, grad, bias = random(3, 5, 512).requires_grad_(), random(3, 5, 91, seed=1), random(91, seed=2)
    plain = F.linear(x, torch.from_numpy(exact), bias)
    ours = ops.packed_linear(x, matrix, bias)
    assert torch.allclose(ours, plain, atol=1e-3)
    (by_x,), (wanted,) = (torch.autograd.grad(y, x, grad) for y in (ours, plain))
    assert torch.allclose(by_x, wanted, atol=1e-4)
    with torch.no_grad():
        assert torch.allclose(ops.packed_linear(x, matrix, bias), plain, atol=1e-3)


def test_products_by_onednn_are_the_usual_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    matrix, _ = packed((GGMLType.Q4_0, 64))
    x = random(40, 512).requires_grad_()
    results = []
    for by_onednn in (True, False):
        monkeypatch.setattr(cpu, "LEAST_MULTIPLICATIONS", 1)
        monkeypatch.setattr(cpu, "mkl_is_slow", lambda slow=by_onednn: slow)
        y = EagerFrozenMatmul.apply(x, matrix)
        results.append((y, *torch.autograd.grad(y, x, random(40, 64, seed=1))))
    for one, other in zip(*results, strict=True):
        assert torch.allclose(one, other, atol=1e-4)


@pytest.mark.parametrize("ignored", [False, True])
def test_the_loss_of_a_packed_head_is_that_of_the_plain_one(ignored: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(frozen, "_AT_ONCE", 30 * 512)
    matrix, exact = packed((GGMLType.Q8_0, 97))
    hidden = (0.1 * random(300, 512)).requires_grad_()
    targets = torch.arange(300) % 97
    targets[::7] = -100 if ignored else 0
    plain = F.cross_entropy(F.linear(hidden, torch.from_numpy(exact)), targets)
    ours = ops.head_loss(hidden, matrix, targets)
    assert ours.item() == pytest.approx(plain.item(), rel=1e-5)
    (by_hidden,), (wanted,) = (torch.autograd.grad(loss, hidden) for loss in (ours, plain))
    assert torch.allclose(by_hidden, wanted, atol=1e-6)
    with torch.no_grad():
        assert ops.head_loss(hidden, matrix, targets).item() == pytest.approx(plain.item(), rel=1e-5)


def test_compiled_a_matrix_is_decoded_again_for_the_backward_pass_and_not_kept(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What the compiler keeps between the passes must not hold the decoded matrix: that is the whole point of it."""
    from functorch.compile import make_boxed_func, min_cut_rematerialization_partition
    from torch._dynamo.backends.common import aot_autograd

    matrix, exact = packed((GGMLType.Q4_1, 64))

    # As on CUDA, where decoding is an operation that the compiler does not look into.
    @torch.library.custom_op("linnet_test::unpack", mutates_args=())
    def decode(low: Tensor, scale: Tensor, minimum: Tensor, after: Tensor) -> Tensor:
        planes = matrix.parts[0][1]._replace(low=low, scale=scale, minimum=minimum)
        return unpack([(matrix.parts[0][0], planes)], torch.float32).contiguous()

    @decode.register_fake
    def _(low: Tensor, scale: Tensor, minimum: Tensor, after: Tensor) -> Tensor:
        return torch.empty(low.shape[1], low.shape[0] * 2)

    monkeypatch.setattr(
        frozen,
        "unpack",
        lambda parts, dtype, after: decode(parts[0][1].low, parts[0][1].scale, parts[0][1].minimum, after),
    )
    decoded, kept = [], []

    def compiled(graph: torch.fx.GraphModule, inputs: object) -> Any:
        decoded.append(sum("linnet_test.unpack" in str(node.target) for node in graph.graph.nodes))
        (output,) = (node for node in graph.graph.nodes if node.op == "output")
        kept.append([value.meta["val"].shape for value in output.args[0] if value is not None])
        return make_boxed_func(graph.forward)

    torch._dynamo.reset()
    packings = tuple(packing for packing, _ in matrix.parts)
    planes = [plane for _, part in matrix.parts for plane in part]

    def two_products(x: Tensor) -> Tensor:
        between: Tensor = FrozenMatmul.apply(x, packings, *planes)
        y: Tensor = FrozenMatmul.apply(F.pad(torch.sin(between), (0, 512 - 64)), packings, *planes)
        return y

    x = random(6, 512).requires_grad_()
    backend = aot_autograd(fw_compiler=compiled, bw_compiler=compiled, partition_fn=min_cut_rematerialization_partition)
    function = torch.compile(two_products, backend=backend)
    y = function(x)
    y.sum().backward()
    assert decoded == [2, 2]
    assert kept[0] and torch.Size((64, 512)) not in kept[0]
    plain = F.linear(F.pad(torch.sin(F.linear(x, torch.from_numpy(exact))), (0, 512 - 64)), torch.from_numpy(exact))
    assert torch.allclose(y, plain, atol=1e-2)


def test_a_packed_matrix_moves_with_its_model_and_is_in_no_state_dict() -> None:
    matrix, _ = packed((GGMLType.Q4_1, 64))
    holder = torch.nn.Sequential(matrix)
    assert holder.state_dict() == {}
    assert not list(holder.parameters())
    assert next(isinstance(part, PackedMatrix) for part in holder)
    assert {buffer.device.type for buffer in holder.to("meta").buffers()} == {"meta"}
