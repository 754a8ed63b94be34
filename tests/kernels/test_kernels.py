"""The kernels for CUDA, on a machine that has none."""

from __future__ import annotations

from importlib.util import find_spec
from typing import Any

import pytest
import torch

# Bytes of shared memory that a program may have: A100, RTX 4090 (RTX 30 and 50, L4 and A10 alike), H100.
ROOM = {80: 166_912, 89: 101_376, 90: 232_448}


@pytest.mark.skipif(find_spec("triton") is None, reason="Triton has no wheel for this machine")
@pytest.mark.parametrize("capability", ROOM)
def test_kernels_compile_and_fit_the_gpus_people_have(capability: int) -> None:
    from linnet.kernels.cuda import activations, cross_entropy, embedding, heads, muon, norm, short_attention, unpack

    strides = dict.fromkeys(("q_b", "q_t", "q_h", "k_b", "k_t", "k_h", "v_b", "v_t", "v_h"), "i32")
    heads_of = {"q": "*bf16", "k": "*bf16", "v": "*bf16", "out": "*bf16", **strides, "N": "i32", "T": "i32"}
    of_norm = {"x": "*bf16", "grad": "*bf16", "beside": "*bf16", "scale": "*fp32", "shift": "*fp32", "out": "*bf16"}
    of_norm |= {"normed": "*bf16", "sums": "*fp32", "N": "i32"}
    flags = {"EPS": 1e-5, "CENTRED": True, "SHIFTED": True, "SUMMED": True}
    bytes_of = {
        "loss": shared(
            cross_entropy._cross_entropy_grad,
            {"logits": "*bf16", "targets": "*i64", "weights": "*fp32", "losses": "*fp32"}
            | dict.fromkeys(("stride", "vocab", "width", "whole"), "i32"),
            {"BLOCK": 8192, "REST": 2048},
            capability,
            num_warps=32,
        ),
        "swiglu": shared(
            activations._swiglu_backward,
            dict.fromkeys(("gate_up", "grad", "slopes", "out"), "*bf16") | {"width": "i32"},
            {"BLOCK": 1024},
            capability,
        ),
        "gelu": shared(
            activations._gelu_backward,
            dict.fromkeys(("up", "grad", "slopes", "out"), "*bf16")
            | {"sums": "*fp32"}
            | dict.fromkeys(("N", "columns", "programs", "width"), "i32"),
            {"ROWS": 8, "BLOCK": 256},
            capability,
        ),
        "heads": shared(
            heads._concat_qkv_grad,
            {**heads_of, "sums": "*fp32", "H": "i32", "programs": "i32"},
            {"D": 48, "TOKENS": 32, "BLOCK": 64},
            capability,
        ),
        "rope": shared(
            heads._rope,
            {**heads_of, "table": "*fp32", "n_q": "i32", "n_k": "i32", "n_v": "i32"},
            {"DIRECTION": -1.0, "D": 64, "TOKENS": 8, "BLOCK": 64},
            capability,
            num_warps=1,
        ),
    }
    of_rows = {"grad": "*bf16", "largest": "*fp32", "ids": "*i64", "sums": "*i64", "D": "i32", "room": "i32"}
    bytes_of["embedding"] = shared(embedding._add_rows, {**of_rows, "columns": "i32"}, {"BLOCK": 1024}, capability)
    of_sums = {"sums": "*i64", "largest": "*fp32", "out": "*fp32", "size": "i32", "room": "i32"}
    bytes_of["embedding sums"] = shared(embedding._to_float, of_sums, {"BLOCK": 1024}, capability)
    of_momentum = {"gradients": "*fp32", "buffers": "*fp32", "ahead": "*bf16", "scale": "*fp32", "momentum": "*fp32"}
    bytes_of |= {
        "muon's momentum": shared(
            muon._momentum_ahead, {**of_momentum, "count": "i32"}, {"SCALED": True, "BLOCK": 1024}, capability
        ),
        "muon's squares": shared(
            muon._squares,
            {"gram": "*fp32", "squares": "*fp32", "numbers": "i32", "blocks": "i32"},
            {"BLOCK": muon.GRAM_BLOCK},
            capability,
            num_warps=8,
        ),
        "muon's norms": shared(
            muon._normalised,
            {"gram": "*fp32", "squares": "*fp32", "half": "*fp16", "scale": "*fp32", "numbers": "i32", "blocks": "i32"}
            | {"least": "fp32"},
            {"BLOCK": muon.GRAM_BLOCK, "BLOCKS": 128},
            capability,
            num_warps=8,
        ),
        "muon's quintic": shared(
            muon._quintic,
            {"gram": "*fp16", "squared": "*fp16", "factor": "*fp16", "a": "fp32", "b": "fp32", "c": "fp32"}
            | {"S": "i32", "blocks": "i32"},
            {"BLOCK": 1024},
            capability,
        ),
        "muon's scale": shared(
            muon._scaled,
            {"matrices": "*bf16", "half": "*fp16", "scale": "*fp32", "numbers": "i32", "blocks": "i32"},
            {"BLOCK": 1024},
            capability,
        ),
        "muon's move": shared(
            muon._move,
            {"addresses": "*i64", "update": "*fp16", "lr": "*fp32", "weight_decay": "fp32", "size": "fp32"}
            | {"numbers": "i32", "blocks": "i32"},
            {"BLOCK": 1024},
            capability,
        ),
    }
    of_planes = dict.fromkeys(("low", "high"), "*u8") | dict.fromkeys(("scale", "minimum"), "*fp16")
    of_planes |= dict.fromkeys(("sub_scale", "sub_minimum"), "*i8") | {"out": "*bf16", "K": "i32", "M": "i32"}
    for kind, (bits, high, sub, sign, levels) in {
        "q8_0": (8, 0, False, 0, False),
        "q5_k": (4, 1, True, -1, False),
        "iq4_xs": (4, 0, True, 0, True),
    }.items():
        form = {"BITS": bits, "HIGH_BITS": high, "GROUP": 32, "BLOCK": 256, "OFFSET": 0, "SIGN": sign, "SUB": sub}
        form |= {"LEVELS": levels, "LOW": -(1 << 62), "HIGH": (1 << 62) + 3}
        form |= {"BLOCK_K": unpack.BLOCK_K, "BLOCK_M": unpack.BLOCK_M}
        bytes_of[f"unpack {kind}"] = shared(unpack._unpack, of_planes, form, capability)
    for width, rows, stages, warps in ((192, 4, 3, 1), (768, 1, 3, 1), (2048, 1, 3, 2), (8192, 1, 1, 8)):
        sizes = {"WIDTH": width, "ROWS": rows, "BLOCK": 1 << (width - 1).bit_length(), "STAGES": stages}
        bytes_of[f"norm {width}"] = shared(norm._norm_backward, of_norm, flags | sizes, capability, num_warps=warps)
    of_short = {"qkv": "*bf16", "out": "*bf16", "logs": "*fp32", "H": "i32"}
    for tokens in (49, 65, 196) if capability == 90 else (49, 65):
        sizes = short_attention._sizes(torch.empty(1, tokens, 3, 64, device="meta", dtype=torch.bfloat16))
        bytes_of[f"short {tokens}"] = shared(short_attention._attention, of_short, sizes, capability, num_stages=1)
        back = {**of_short, "grad": "*bf16", "grads": "*bf16", "sums": "*fp32"}
        warps = 8 if tokens > 64 else 4
        bytes_of[f"short back {tokens}"] = shared(
            short_attention._attention_backward, back, sizes, capability, num_warps=warps
        )
    assert {name: size for name, size in bytes_of.items() if size > ROOM[capability]} == {}


@pytest.mark.skipif(find_spec("triton") is None, reason="Triton has no wheel for this machine")
@pytest.mark.parametrize("width", [16, 32, 64, 128])
def test_ordered_attention_compiles_and_fits_the_gpu_it_is_for(width: int) -> None:
    from linnet.kernels.cuda import ordered_attention

    strides = dict.fromkeys((f"{x}_{dim}" for x in "qkvog" for dim in "bth"), "i32")
    of_heads = dict.fromkeys(("q", "k", "v", "out", "grad", "grads"), "*bf16") | strides | dict.fromkeys("THK", "i32")
    types = of_heads | {"logs": "*fp32", "inners": "*fp32", "documents": "*i64"}
    kernels = {
        "forward": (ordered_attention._forward, {"GROUP": 3}),
        "queries": (ordered_attention._query_grad, {"CAUSAL": True, "DOCUMENTS": True}),
        "keys": (ordered_attention._key_value_grad, {"CAUSAL": True, "DOCUMENTS": True}),
    }
    for name, (kernel, flags) in kernels.items():
        M, N, warps, stages = ordered_attention._BLOCKS[name][width]
        sizes = {"SCALE": 0.125, "D": width, "WIDTH": width, "M": M, "N": N, "STAGES": stages}
        assert shared(kernel, types, flags | sizes, 90, num_warps=warps) <= ROOM[90], name


def shared(kernel: Any, types: dict[str, str], constants: dict[str, Any], capability: int, **options: int) -> int:
    """Compile a kernel for a GPU that need not be here; the shared memory it wants."""
    import triton
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    names = kernel.arg_names
    source = ASTSource(
        fn=kernel,
        signature={name: "constexpr" if name in constants else types[name] for name in names},
        constexprs={(names.index(name),): value for name, value in constants.items()},
        attrs={(i,): [["tt.divisibility", 16]] for i, name in enumerate(names) if types.get(name, "").startswith("*")},
    )
    made = triton.compile(source, target=GPUTarget("cuda", capability, 32), options={"num_warps": 4, **options})
    return int(made.metadata.shared)


def test_short_attention_is_for_what_fits() -> None:
    short = pytest.importorskip("linnet.kernels.cuda.short_attention", reason="Triton has no wheel for this machine")

    def fits(tokens: int, width: int, dtype: torch.dtype = torch.bfloat16, *, hopper: bool = False) -> bool:
        answer: bool = short.fits(torch.empty(1, tokens, 3, width, device="meta", dtype=dtype), hopper)
        return answer

    assert fits(49, 64) and fits(128, 64) and fits(197, 32)
    assert not fits(197, 64) and not fits(49, 128) and not fits(49, 64, torch.float32)
    assert fits(197, 64, hopper=True) and fits(256, 64, hopper=True)
    assert not fits(257, 64, hopper=True)
