"""The one table of names: our parameters, their shapes, and the tensors of the file that hold them.

Our models keep ggml's own layout, so a checkpoint is a matter of names. Only two things differ in memory:
matrices that are applied to the same input are one (`attn_qkv`, `ffn_gate_up`), and a block is `blocks.3`,
not `blk.3`. In a table below, a parameter of several tensors is those tensors stacked by rows: writing slices
it, reading fills it, neither moves a value.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from linnet.gguf.architecture import arch_of, head_size
from linnet.gguf.errors import GGUFError, quoted

# Each line: our name ("?" = may be absent; "#" = the block's number), its shape, the tensors it is made of.
_TABLES = {
    "llama": """
        token_embd.weight             vocab d     token_embd.weight
        output_norm.weight            d           output_norm.weight
        output.weight?                vocab d     output.weight
        rope_freqs.weight?            head/2      rope_freqs.weight
        blocks.#.attn_norm.weight     d           blk.#.attn_norm.weight
        blocks.#.attn_qkv.weight      q+kv+kv d   blk.#.attn_q.weight blk.#.attn_k.weight blk.#.attn_v.weight
        blocks.#.attn_qkv.bias?       q+kv+kv     blk.#.attn_q.bias blk.#.attn_k.bias blk.#.attn_v.bias
        blocks.#.attn_output.weight   d q         blk.#.attn_output.weight
        blocks.#.attn_output.bias?    d           blk.#.attn_output.bias
        blocks.#.ffn_norm.weight      d           blk.#.ffn_norm.weight
        blocks.#.ffn_gate_up.weight   ff+ff d     blk.#.ffn_gate.weight blk.#.ffn_up.weight
        blocks.#.ffn_gate_up.bias?    ff+ff       blk.#.ffn_gate.bias blk.#.ffn_up.bias
        blocks.#.ffn_down.weight      d ff        blk.#.ffn_down.weight
        blocks.#.ffn_down.bias?       d           blk.#.ffn_down.bias
    """,
    "gpt2": """
        token_embd.weight             vocab d     token_embd.weight
        position_embd.weight          ctx d       position_embd.weight
        output_norm.weight            d           output_norm.weight
        output_norm.bias              d           output_norm.bias
        output.weight?                vocab d     output.weight
        blocks.#.attn_norm.weight     d           blk.#.attn_norm.weight
        blocks.#.attn_norm.bias       d           blk.#.attn_norm.bias
        blocks.#.attn_qkv.weight      3d d        blk.#.attn_qkv.weight
        blocks.#.attn_qkv.bias        3d          blk.#.attn_qkv.bias
        blocks.#.attn_output.weight   d d         blk.#.attn_output.weight
        blocks.#.attn_output.bias     d           blk.#.attn_output.bias
        blocks.#.ffn_norm.weight      d           blk.#.ffn_norm.weight
        blocks.#.ffn_norm.bias        d           blk.#.ffn_norm.bias
        blocks.#.ffn_up.weight        ff d        blk.#.ffn_up.weight
        blocks.#.ffn_up.bias          ff          blk.#.ffn_up.bias
        blocks.#.ffn_down.weight      d ff        blk.#.ffn_down.weight
        blocks.#.ffn_down.bias        d           blk.#.ffn_down.bias
    """,
    "vit": """
        patch_embd.weight          d c p p    v.patch_embd.weight
        patch_embd.bias?           d          v.patch_embd.bias
        class_embd?                d          v.class_embd
        position_embd.weight       seq d      v.position_embd.weight
        pre_ln.weight?             d          v.pre_ln.weight
        pre_ln.bias?               d          v.pre_ln.bias
        post_ln.weight             d          v.post_ln.weight
        post_ln.bias?              d          v.post_ln.bias
        head.weight                classes d  cls.output.weight
        head.bias?                 classes    cls.output.bias
        blocks.#.ln1.weight        d          v.blk.#.ln1.weight
        blocks.#.ln1.bias?         d          v.blk.#.ln1.bias
        blocks.#.attn_qkv.weight   d+d+d d   v.blk.#.attn_q.weight v.blk.#.attn_k.weight v.blk.#.attn_v.weight
        blocks.#.attn_qkv.bias?    d+d+d      v.blk.#.attn_q.bias v.blk.#.attn_k.bias v.blk.#.attn_v.bias
        blocks.#.attn_out.weight   d d        v.blk.#.attn_out.weight
        blocks.#.attn_out.bias?    d          v.blk.#.attn_out.bias
        blocks.#.ln2.weight        d          v.blk.#.ln2.weight
        blocks.#.ln2.bias?         d          v.blk.#.ln2.bias
        blocks.#.ffn_up.weight     ff d       v.blk.#.ffn_up.weight
        blocks.#.ffn_up.bias?      ff         v.blk.#.ffn_up.bias
        blocks.#.ffn_down.weight   d ff       v.blk.#.ffn_down.weight
        blocks.#.ffn_down.bias?    d          v.blk.#.ffn_down.bias
    """,
}


@dataclass(frozen=True, slots=True)
class Piece:
    """A tensor of the file, and the rows of our parameter that it holds."""

    tensor: str
    start: int
    stop: int
    shape: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Param:
    """One of our parameters: its shape, and the pieces it is made of in the file."""

    name: str
    shape: tuple[int, ...]
    pieces: tuple[Piece, ...]
    optional: bool = False


class Layout:
    """Every parameter of a config by our name (`params`), and every tensor by ggml's (`tensors`)."""

    def __init__(self, params: Iterable[Param]) -> None:
        self.params: dict[str, Param] = {param.name: param for param in params}
        self.tensors: dict[str, tuple[Param, Piece]] = {
            piece.tensor: (param, piece) for param in self.params.values() for piece in param.pieces
        }

    def check(self, shapes: dict[str, tuple[int, ...]]) -> None:
        """Refuse parameters that are unknown, missing or of another shape than the config says."""
        for name, shape in shapes.items():
            if name not in self.params:
                problem = "the model has no such parameter, and llama.cpp refuses extra tensors"
                raise _error(name, problem, "a name of the table", quoted(name))
            if shape != self.params[name].shape:
                raise _error(name, "the shape is wrong", str(list(self.params[name].shape)), str(list(shape)))
        for name, param in self.params.items():
            if name not in shapes and not param.optional:
                raise _error(name, "the parameter is missing", str(list(param.shape)), "none")


def layout(cfg: Any) -> Layout:
    """The parameters and tensors of a config (see `architecture.py` for what a config is)."""
    sizes = _sizes(cfg)
    params = []
    for line in _TABLES[arch_of(cfg)].strip().splitlines():
        name, dims, tensors = (column.split() for column in re.split(r"\s{2,}", line.strip()))
        for block in range(cfg.n_layers) if "#" in name[0] else (0,):
            params.append(_param(name[0].replace("#", str(block)), dims, tensors, sizes, str(block)))
    return Layout(params)


def _param(name: str, dims: list[str], tensors: list[str], sizes: dict[str, int], block: str) -> Param:
    heights = [sizes[word] for word in dims[0].split("+")]
    tail = tuple(sizes[word] for word in dims[1:])
    pieces, start = [], 0
    for tensor, height in zip(tensors, heights, strict=True):
        pieces.append(Piece(tensor.replace("#", block), start, start + height, (height, *tail)))
        start += height
    return Param(name.removesuffix("?"), (start, *tail), tuple(pieces), name.endswith("?"))


def _sizes(cfg: Any) -> dict[str, int]:
    """What the words in the tables' shapes mean for a config."""
    sizes = {"d": cfg.d_model, "3d": 3 * cfg.d_model, "ff": cfg.d_ff}
    if arch_of(cfg) == "vit":
        patches = (cfg.image_size // cfg.patch_size) ** 2
        sizes["p"], sizes["c"] = cfg.patch_size, getattr(cfg, "num_channels", 3)
        sizes["classes"] = cfg.num_classes
        sizes["seq"] = patches + (getattr(cfg, "pooling", "mean") == "cls")
        return sizes
    sizes["vocab"], sizes["ctx"] = cfg.vocab, cfg.ctx
    if arch_of(cfg) == "llama":
        head = head_size(cfg)
        sizes["q"], sizes["kv"], sizes["head/2"] = cfg.n_heads * head, cfg.n_kv * head, head // 2
    return sizes


def adapter_layout(cfg: Any, rank: int, targets: Iterable[str]) -> Layout:
    """The pairs of a LoRA adapter; a target is a projection of the file: `attn_q`, `ffn_up`, `token_embd`.

    `blocks.3.attn_q.lora_a` [rank, in] and `blocks.3.attn_q.lora_b` [out, rank] are in the file
    `blk.3.attn_q.weight.lora_a` and `.lora_b`. There is one pair for each of q, k and v although the base
    matrix is fused: that is what llama.cpp applies. For `token_embd` it expects the pair turned about:
    [vocab, rank] and [d, rank].
    """
    wanted = set(targets)
    params, known = [], set()
    for tensor, (_, piece) in layout(cfg).tensors.items():
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
