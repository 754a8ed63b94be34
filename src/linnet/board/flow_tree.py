"""`flow.json` as a tree: modules in the order of the pass, and which figures of a training tell of each."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from linnet.files import read_bounded
from linnet.runs.folder import FLOW
from linnet.runs.inspection import Inspection
from linnet.runs.region_tree import RegionNode

_LARGEST = 16 << 20  # bytes of a file that is read
_LOSS = "loss"
_COUNTED = re.compile(r"#\d+$")  # behind the second operation of a name
_NUMBER = re.compile(r"\d+")
# They give the same numbers another shape.
_VIEWS = frozenset(
    (
        *("unflatten", "split", "view_as_complex", "view_as_real", "getitem", "flatten", "transpose", "chunk", "view"),
        *("permute", "reshape", "contiguous", "expand", "unsqueeze", "squeeze", "narrow", "movedim", "to", "float"),
        *("type_as", "zeros", "ge", "clamp"),
    )
)
_TAPS = {  # by the last part of a module's name, the regions that it puts out or that are read of it
    **dict.fromkeys(("token_embd", "patch_embd"), ("embd", "patch_embd")),
    **dict.fromkeys(("attn_norm", "ln1"), ("attn_norm",)),
    "attn_qkv": ("attn_q", "attn_k", "attn_v"),
    **dict.fromkeys(("attn_output", "attn_out"), ("attn_out",)),
    **dict.fromkeys(("ffn_norm", "ln2"), ("ffn_norm",)),
    "ffn_down": ("ffn_out", "ffn_act"),
    **dict.fromkeys(("output_norm", "post_ln"), ("output_norm",)),
    **dict.fromkeys(("output", "head", _LOSS), ("logits",)),
}
_OF_BLOCK = ("resid_post_block",)
_TENSORS = {"attn_qkv": ("attn_q", "attn_k", "attn_v"), "ffn_gate_up": ("ffn_gate", "ffn_up")}  # one in memory


@dataclass
class FlowNode:
    """A module, or an operation within one.

    - `path`: its name, with those of the modules it is part of; `op`: of an operation, which.
    - `shape`: of what it puts out; `parameters`: how many it has, with those of its parts.
    - `views`: operations of it that are left out, since they only give numbers another shape.
    """

    path: str
    op: str = ""
    shape: str = ""
    parameters: int = 0
    views: int = 0
    children: list[FlowNode] = field(default_factory=list)

    @property
    def name(self) -> str:
        """Its own part of the path: `attn_norm`, `blocks.3`."""
        parts = self.path.split(".")
        return ".".join(parts[-2:]) if len(parts) > 1 and _NUMBER.fullmatch(parts[-1]) else parts[-1]

    @property
    def layer(self) -> int | None:
        """The block that it is, or is part of."""
        number = next((part for part in self.path.split(".") if _NUMBER.fullmatch(part)), None)
        return None if number is None else int(number)

    @property
    def is_block(self) -> bool:
        """Is it a whole layer?"""
        return _NUMBER.fullmatch(self.path.rpartition(".")[2]) is not None

    @property
    def taps(self) -> tuple[str, ...]:
        """The regions of `--inspect taps` that tell of it."""
        return () if self.op else _OF_BLOCK if self.is_block else _TAPS.get(self.name, ())

    @property
    def tensors(self) -> tuple[str, ...]:
        """Its tensors, as `--inspect grads` and `drift` name them within a block."""
        names = () if self.op or self.is_block or self.children_are_modules else _TENSORS.get(self.name, (self.name,))
        return tuple(f"{name}.weight" for name in names)

    @property
    def children_are_modules(self) -> bool:
        """Does it consist of modules?"""
        return any(not child.op for child in self.children)

    def walk(self, depth: int = 0) -> Iterator[tuple[int, FlowNode]]:
        """Itself and all below it, in the order of the pass, each with its depth."""
        yield depth, self
        for child in self.children:
            yield from child.walk(depth + 1)


class _Node(msgspec.Struct):
    name: str
    role: str = ""
    shape: str = ""
    nelements: int = 0
    op: str | None = None


class _Flow(msgspec.Struct):
    nodes: list[_Node]


def read_flow(folder: Path) -> FlowNode | None:
    """The model of a run as a tree; None where its folder has no `flow.json` that can be read."""
    try:
        flow = msgspec.json.decode(read_bounded(folder / FLOW, _LARGEST), type=_Flow)
    except (OSError, msgspec.MsgspecError, ValueError, RecursionError):
        return None
    return flow_tree(flow.nodes)


def flow_tree(nodes: list[_Node]) -> FlowNode:
    """Operations by the modules that they are part of; what is done at the end outside of all is the loss."""
    root, known = FlowNode(""), dict[str, FlowNode]()
    operations = [node for node in nodes if node.op is not None]
    in_modules = [at for at, node in enumerate(operations) if "." in node.name]
    last = in_modules[-1] if in_modules else -1
    for at, node in enumerate(operations):
        parts = _module_parts(node.name) or ([_LOSS] if at > last else [])
        module = _module(root, known, parts)
        name = _COUNTED.sub("", node.name.rpartition(".")[2])
        if name in _VIEWS:
            module.views += 1
        else:
            module.children.append(FlowNode(f"{module.path}.{name}".lstrip("."), node.op or "", node.shape))
        for length in range(1, len(parts) + 1):
            known[".".join(parts[:length])].shape = node.shape
    for node in nodes:
        if node.role == "weight":
            parts = _module_parts(node.name)
            for length in range(len(parts) + 1):
                module = known.get(".".join(parts[:length]), root)
                if length == 0 or module is not root:
                    module.parameters += node.nelements
    return root


def _module(root: FlowNode, known: dict[str, FlowNode], parts: list[str]) -> FlowNode:
    module = root
    for length in range(1, len(parts) + 1):
        path = ".".join(parts[:length])
        if path not in known:
            known[path] = FlowNode(path)
            module.children.append(known[path])
        module = known[path]
    return module


def _module_parts(name: str) -> list[str]:
    """The modules that an operation or a weight is in, the outermost first: `blocks.0`, `attn_norm`."""
    parts: list[str] = []
    for part in name.split(".")[:-1]:
        if _NUMBER.fullmatch(part) and parts:
            parts[-1] = f"{parts[-1]}.{part}"
        else:
            parts.append(part)
    return parts


def module_times(regions: RegionNode) -> dict[str, dict[str, float]]:
    """Microseconds of the first pass by module, `forward` and `backward`."""
    times: dict[str, dict[str, float]] = {}
    for _, node in regions.walk():
        for direction in ("forward", "backward"):
            before, separator, path = node.path.rpartition(f"{direction}/")
            if separator and (not before or before.endswith("/")):
                times.setdefault(path.replace("/", "."), {}).setdefault(direction, node.us)
    return times


def newest_times(inspection: Inspection, step: int | None = None) -> dict[str, dict[str, float]]:
    """The same of the look at a step, by default the newest; empty where nobody looked."""
    return module_times(inspection.regions(step)) if inspection.region_steps else {}
