"""`flow.json`: the realised model, every parameter and every operation of one forward pass and its loss.

The model is copied without its numbers (torch's `meta` device), so that a pass costs neither memory nor arithmetic.
"""

from __future__ import annotations

import copy
import logging
import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from linnet.files import write_file
from linnet.kernels.packed import PackedMatrix, packed_matrices
from linnet.models import LanguageModel, ViT, ViTConfig
from linnet.runs.encode import encode
from linnet.runs.folder import FLOW
from linnet.train.shape_rules import result_by_rule
from linnet.train.sharded_weights import is_sharded
from linnet.train.state import DTYPES

_LINE_START = b'{"format":"toy/v1","nodes":[\n'

log = logging.getLogger("linnet")

Node = dict[str, Any]


def write_flow(run_dir: Path, model: LanguageModel | ViT, batch: int, ctx: int | None = None) -> Path | None:
    """Describe the model's pass over `batch` sequences or images in the run folder; a fault is a warning."""
    try:
        flow = describe(model, batch, ctx)
        lines = b",\n".join(encode(node) for node in flow["nodes"])
        path = run_dir / FLOW
        write_file(path, _LINE_START + lines + b'\n],"summary":' + encode(flow["summary"]) + b"}\n")
    except Exception as error:  # a description is not worth a run
        log.warning("%s of %s was not written: %s", FLOW, run_dir.name, error)
        return None
    return path


def describe(model: LanguageModel | ViT, batch: int, ctx: int | None = None) -> Mapping[str, Any]:
    """The model's parameters, and what its loss does with `batch` images, or sequences of `ctx` tokens."""
    shadow: Any = _without_numbers(model)
    nodes = _Nodes(model.config.num_classes if isinstance(model, ViT) else model.config.vocab)
    for name, parameter in shadow.named_parameters():
        nodes.leaf(name, parameter, "weight")
    packed = packed_matrices(shadow)
    for name, matrix in packed.items():
        nodes.packed_leaf(name, matrix)
    planes = {id(plane) for matrix in packed.values() for plane in matrix.buffers()}
    for name, buffer in shadow.named_buffers():
        if id(buffer) not in planes:
            nodes.leaf(name, buffer, "constant")
    inputs = _inputs(model, batch, ctx)
    for name, tensor in inputs.items():
        nodes.leaf(name, tensor, "input")
    with torch.no_grad(), nodes.following(shadow), nodes:
        returned = shadow.loss(*inputs.values())
    nodes.of(returned[0] if isinstance(returned, tuple) else returned)["role"] = "loss"
    leafs = sum("op" not in node for node in nodes.nodes)
    summary = {"n_leafs": leafs, "n_nodes": len(nodes.nodes) - leafs}
    return {"format": "toy/v1", "nodes": nodes.nodes, "summary": summary}


def _inputs(model: LanguageModel | ViT, batch: int, ctx: int | None) -> dict[str, Tensor]:
    config = model.config
    if isinstance(config, ViTConfig):
        shape = (batch, config.num_channels, config.image_size, config.image_size)
        images = torch.empty(shape, dtype=torch.uint8, device="meta")
        return {"images": images, "labels": torch.empty(batch, dtype=torch.int64, device="meta")}
    ids_BT = torch.empty(batch, ctx or config.ctx, dtype=torch.int64, device="meta")
    return {"ids": ids_BT, "targets": _blank(ids_BT)}


def _without_numbers(model: LanguageModel | ViT) -> LanguageModel | ViT:
    """A copy whose tensors have shape and dtype only; tied ones stay tied."""
    shadows: dict[int, Any] = {id(b): _blank(b) for b in model.buffers()}
    for p in model.parameters():
        shadows[id(p)] = nn.Parameter(_blank(p), requires_grad=False)
    if any(is_sharded(p) for p in model.parameters()):  # such a model, of a class made for it, cannot be copied
        plain: Any = next(kind for kind in type(model).__mro__[1:] if issubclass(kind, nn.Module))
        blank: LanguageModel | ViT = plain(model.config, "meta")
        return blank
    return copy.deepcopy(model, shadows)


def _blank(tensor: Tensor) -> Tensor:
    # Not `empty_like`, for the reason of shape_rules.py.
    return torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype, device="meta")


class _Nodes(TorchFunctionMode):
    """Records each call of torch while it is on.

    Calls of torch are what is recorded, not the kernels below them (a TorchDispatchMode would see those): without a
    device attention falls apart into some twenty kernels that no device ever runs.
    """

    def __init__(self, outputs: int) -> None:
        super().__init__()
        self.nodes: list[Node] = []
        self._outputs = outputs
        self._path: list[str] = []
        self._names: dict[str, int] = {}
        self._by_id: dict[int, Node] = {}
        self._tensors: list[Tensor] = []  # what is known by its id must live on

    def leaf(self, name: str, tensor: Tensor, role: str) -> None:
        self._add(tensor, {"name": name, "role": role, **_facts(tensor)})

    def packed_leaf(self, name: str, matrix: PackedMatrix) -> None:
        """A matrix that is decoded at each use, as the weight that it is; what reads one of its planes reads it."""
        node: Node = {"name": name, "role": "weight", "shape": _shape(matrix.shape), "dtype": "packed"}
        node |= {"nelements": matrix.shape.numel(), "nbytes": matrix.nbytes}
        self.nodes.append(node)
        for plane in matrix.buffers():
            self._by_id[id(plane)] = node
            self._tensors.append(plane)

    def of(self, tensor: Tensor) -> Node:
        return self._by_id[id(tensor)]

    @contextmanager
    def following(self, model: nn.Module) -> Iterator[None]:
        """Know which module an operation belongs to."""
        hooks = []
        for name, module in model.named_modules():
            if name:
                hooks.append(module.register_forward_pre_hook(lambda m, i, name=name: self._path.append(name)))
                hooks.append(module.register_forward_hook(lambda m, i, o: self._leave()))
        try:
            yield
        finally:
            for hook in hooks:
                hook.remove()

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        result = result_by_rule(func, args, kwargs or {})
        if result is None:
            result = func(*args, **(kwargs or {}))
        inputs = [node["name"] for node in self._inputs((*args, *(kwargs or {}).values()))]
        for tensor in result if isinstance(result, tuple | list) else (result,):
            if isinstance(tensor, Tensor) and id(tensor) not in self._by_id:
                self._operation(_word(func), tensor, inputs)
        return result

    def _operation(self, op: str, tensor: Tensor, inputs: list[str]) -> None:
        name = ".".join((*self._path[-1:], op))
        count = self._names[name] = self._names.get(name, 0) + 1
        logits = op == "linear" and self._path in ([], ["head"]) and tensor.shape[-1] == self._outputs
        role = "output" if logits else "ephemeral"
        name = name if count == 1 else f"{name}#{count}"
        self._add(tensor, {"name": name, "role": role, **_facts(tensor), "op": op, "inputs": inputs})

    def _inputs(self, values: tuple[Any, ...]) -> Iterator[Node]:
        for value in values:
            if isinstance(value, tuple | list):
                yield from self._inputs(tuple(value))
            elif isinstance(value, Tensor) and id(value) in self._by_id:
                yield self._by_id[id(value)]

    def _add(self, tensor: Tensor, node: Node) -> None:
        self.nodes.append(node)
        self._by_id[id(tensor)] = node
        self._tensors.append(tensor)

    def _leave(self) -> None:
        self._path.pop()


def _shape(shape: torch.Size) -> str:
    """In ggml's order, the fastest dimension first: an embedding of 627 rows of 64 is 64×627."""
    return "×".join(str(n) for n in reversed(shape)) or "1"


def _facts(tensor: Tensor) -> Node:
    return {
        "shape": _shape(tensor.shape),
        "dtype": DTYPES.get(tensor.dtype, str(tensor.dtype).removeprefix("torch.")).lower(),
        "nelements": math.prod(tensor.shape),
        "nbytes": math.prod(tensor.shape) * tensor.element_size(),
    }


def _word(func: Callable[..., Any]) -> str:
    """`linear`, `rms_norm`, `add`; an attribute such as `.T` by its own name."""
    word = str(getattr(func, "__name__", func))
    if word == "__get__":
        word = str(getattr(getattr(func, "__self__", None), "__name__", word))
    return word.strip("_").lower()
