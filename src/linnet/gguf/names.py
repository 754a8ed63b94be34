"""The names and shapes that a file may hold: those of a model's layout, and the pairs of a LoRA adapter."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from linnet.architectures.parameters import Layout, Param, Piece, layout
from linnet.architectures.registry import AnyConfig
from linnet.gguf.errors import GGUFError, quoted


def check_shapes(plan: Layout, shapes: Mapping[str, tuple[int, ...]]) -> None:
    """Refuse parameters that are unknown, missing or of another shape than the config says."""
    for name, shape in shapes.items():
        if name not in plan.params:
            problem = "the model has no such parameter, and llama.cpp refuses extra tensors"
            raise _error(name, problem, "a name of the table", quoted(name))
        if shape != plan.params[name].shape:
            raise _error(name, "the shape is wrong", str(list(plan.params[name].shape)), str(list(shape)))
    for name, param in plan.params.items():
        if name not in shapes and not param.optional:
            raise _error(name, "the parameter is missing", str(list(param.shape)), "none")


def adapter_layout(config: AnyConfig, rank: int, targets: Iterable[str]) -> Layout:
    """The pairs of a LoRA adapter; a target is a projection of the file: `attn_q`, `ffn_up`, `token_embd`.

    `blocks.3.attn_q.lora_a` [rank, in] and `blocks.3.attn_q.lora_b` [out, rank] are in the file
    `blk.3.attn_q.weight.lora_a` and `.lora_b`. There is one pair for each of q, k and v although the base
    matrix is fused: that is what llama.cpp applies. For `token_embd` it expects the pair turned about:
    [vocab, rank] and [d, rank].
    """
    wanted = set(targets)
    params, known = [], set()
    for tensor, (_, piece) in layout(config).tensors.items():
        base = tensor.removesuffix(".weight")
        target = base.rsplit(".", 1)[-1]
        if len(piece.shape) != 2 or target == "position_embd":
            continue
        known.add(target)
        if target in wanted:
            out, into = piece.shape
            halves = {"lora_a": (rank, into), "lora_b": (out, rank)}
            if target == "token_embd":
                halves = {"lora_a": (out, rank), "lora_b": (into, rank)}
            ours = base.replace("blk.", "blocks.", 1)
            for half, shape in halves.items():
                piece = Piece(f"{tensor}.{half}", 0, shape[0], shape)
                params.append(Param(f"{ours}.{half}", shape, (piece,)))
    for target in sorted(wanted - known):
        raise _error(target, "no such LoRA target", " or ".join(sorted(known)), quoted(target))
    return Layout(params)


def _error(name: str, problem: str, expected: str, found: str) -> GGUFError:
    return GGUFError(problem, place=f"parameter {quoted(name)}", expected=expected, found=found)
