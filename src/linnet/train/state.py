"""What a checkpoint needs besides its weights so that training goes on to the bit: `state/step_<N>.safetensors`."""

from __future__ import annotations

import hashlib
import json
import struct
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from linnet.errors import LinnetError, error_text
from linnet.files import STATE_SUFFIX, StagedFile, step_files, step_path
from linnet.runs.folder import STATE, WEIGHTS
from linnet.train.moment_stream import StreamedTensor

_PARAMETER = "param/"
_MOMENT = "optimizer/"
_UNKNOWN_DIGEST = "0" * 64  # until everything is written
_DIGEST_KEY = b'"sha256": "'
DTYPES = {  # as safetensors names them
    torch.float64: "F64",
    torch.float32: "F32",
    torch.float16: "F16",
    torch.bfloat16: "BF16",
    torch.int64: "I64",
    torch.int32: "I32",
    torch.uint8: "U8",
    torch.bool: "BOOL",
}


class StateError(LinnetError):
    """A run that cannot be resumed, and why."""


@dataclass(frozen=True)
class State:
    """Where training stands.

    - `facts`: run id, step, tokens and seconds so far, the last losses, the best checkpoint, fingerprints.
    - `moments`: the optimizer's tensors; `parameters`: the weights that the GGUF does not hold exactly.
    - `digest`: of all this, as it was written; empty where it is not known.
    """

    facts: dict[str, Any]
    moments: Mapping[str, Tensor]
    parameters: Mapping[str, Tensor] = field(default_factory=dict)
    digest: str = ""


class StoredTensors(Mapping[str, Tensor]):
    """The tensors of a state file whose names begin with `prefix`, without it.

    Each is mapped when it is asked for: a rank that needs a range of it reads that range, and no rank holds them all.
    """

    def __init__(self, path: Path, names: Iterable[str], prefix: str = "") -> None:
        self._path, self._prefix = path, prefix
        self._names = [name.removeprefix(prefix) for name in names if name.startswith(prefix)]

    def __getitem__(self, name: str) -> Tensor:
        if name not in self._names:
            raise KeyError(name)
        with safe_open(self._path, "pt") as file:
            tensor: Tensor = file.get_tensor(self._prefix + name)
            return tensor

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)


def state_path(run_dir: Path, step: int) -> Path:
    """Where the state of a step lies."""
    return step_path(run_dir / STATE, step, STATE_SUFFIX)


def save(path: Path, state: State, streamed: Mapping[str, StreamedTensor] | None = None) -> None:
    """Write a state as durably as weights are: aside, to the disk, renamed, the folder to the disk.

    `streamed`: moments that are read while they are written, in the order of their names.

    safetensors' own `save_file` does neither of the last two, and leaves files of a random name when it is killed.
    The header carries a digest of everything else, so that `load` notices a bit that has changed.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    moments: dict[str, Tensor | StreamedTensor] = {**state.moments, **(streamed or {})}
    tensors = {_MOMENT + name: tensor for name, tensor in moments.items()}
    tensors |= {_PARAMETER + name: tensor for name, tensor in state.parameters.items()}
    facts = json.dumps(state.facts)
    header: dict[str, Any] = {"__metadata__": {"linnet": facts, "sha256": _UNKNOWN_DIGEST}}
    ordered = sorted(tensors.items(), key=lambda item: (-item[1].element_size(), item[0]))  # readers want alignment
    end = 0
    for name, tensor in ordered:
        begin, end = end, end + tensor.numel() * tensor.element_size()
        header[name] = {"dtype": DTYPES[tensor.dtype], "shape": list(tensor.shape), "data_offsets": [begin, end]}
    encoded = json.dumps(header).encode()
    encoded += b" " * (-len(encoded) % 8)
    digest = _Digest(facts)
    in_order = [name for name, _ in ordered] == sorted(tensors)
    assert in_order or not streamed, "what is streamed is float32, as all weights and moments are"
    with StagedFile(path, size=end) as out, ThreadPoolExecutor(1, thread_name_prefix="linnet-digest") as beside:
        out.write(struct.pack("<Q", len(encoded)) + encoded)
        for name, tensor in ordered:
            digest.begin(name, tensor)
            for chunk in _chunks(tensor):
                digested = beside.submit(digest.add, chunk)
                out.write(chunk)
                out.start_disk()
                digested.result()
        if in_order:
            known = digest.hex()
        else:  # numbers of several sizes: the digest is that of the tensors by their names
            known = _digest(facts, {name: tensor for name, tensor in tensors.items() if isinstance(tensor, Tensor)})
        out.replace(known.encode(), 8 + encoded.index(_DIGEST_KEY) + len(_DIGEST_KEY))


def load(path: Path, *, verify: bool = True) -> State:
    """A state, whose tensors are read when they are asked for.

    With `verify` all of it is read here, and one whose digest does not fit its content is refused.
    """
    try:
        with safe_open(path, "pt") as file:
            metadata = file.metadata() or {}
            names = list(file.keys())
        written = metadata["linnet"]
        facts = json.loads(written)
    except (OSError, SafetensorError, KeyError, ValueError) as error:
        raise StateError(f"{path} cannot be read as the state of a run: {error_text(error)}") from error
    if not isinstance(facts, dict):
        raise StateError(f"{path} cannot be read as the state of a run: its facts are no object")
    digest = metadata.get("sha256", "")  # older states have none
    if verify and digest and digest != _digest(written, StoredTensors(path, names)):
        raise StateError(f"{path} is damaged: its content is not what was written; go on all the same with `force`")
    return State(facts, StoredTensors(path, names, _MOMENT), StoredTensors(path, names, _PARAMETER), digest)


def steps_with_state(run_dir: Path) -> list[int]:
    """The steps that can be resumed from, the newest last: those with a state and weights."""
    steps = [step for step, _ in step_files(run_dir / STATE, STATE_SUFFIX)]
    return [step for step in steps if step_path(run_dir / WEIGHTS, step).is_file()]


def remove_other_states(run_dir: Path, keep: int) -> None:
    """Remove the states of all steps but one, also of those whose weights were never written."""
    for step, path in step_files(run_dir / STATE, STATE_SUFFIX):
        if step != keep:
            path.unlink(missing_ok=True)


def remove_leftovers(run_dir: Path) -> None:
    """Remove what a killed writer of an older version left; what this one leaves is swept by the next writer."""
    for pattern in (".step_*.safetensors.tmp", ".tmp??????"):
        for path in (run_dir / STATE).glob(pattern):
            path.unlink(missing_ok=True)


class _Shaped(Protocol):
    """A tensor, or one that is still in a file."""

    @property
    def shape(self) -> tuple[int, ...]: ...


def check_parameters(model: Mapping[str, Tensor], checkpoint: Mapping[str, _Shaped]) -> None:
    """Refuse a checkpoint that does not hold exactly a model's parameters: `copy_` would stretch or skip some."""
    for name, parameter in model.items():
        shape = checkpoint[name].shape if name in checkpoint else None
        if shape != parameter.shape:
            stored = "nothing of that name" if shape is None else f"{list(shape)}"
            raise StateError(
                f"the checkpoint is of another model than run.json describes: parameter {name!r}: "
                f"expected {list(parameter.shape)}, found {stored}"
            )
    if extra := checkpoint.keys() - model.keys():
        raise StateError(f"the checkpoint is of another model than run.json describes: it has {min(extra)!r} besides")


class _Digest:
    """The digest of facts and tensors, the latter one after the other."""

    def __init__(self, facts: str) -> None:
        self._sha256 = hashlib.sha256(facts.encode())

    def begin(self, name: str, tensor: Tensor | StreamedTensor) -> None:
        self._sha256.update(f"{name} {DTYPES[tensor.dtype]} {list(tensor.shape)}".encode())

    def add(self, content: memoryview) -> None:
        self._sha256.update(content)

    def hex(self) -> str:
        return self._sha256.hexdigest()


def _digest(facts: str, tensors: Mapping[str, Tensor]) -> str:
    digest = _Digest(facts)
    for name in sorted(tensors):
        tensor = tensors[name]
        digest.begin(name, tensor)
        digest.add(_bytes(tensor))
    return digest.hex()


def _chunks(tensor: Tensor | StreamedTensor) -> Iterator[memoryview]:
    """The bytes of a tensor; of a streamed one as they come, each good until the next."""
    if isinstance(tensor, Tensor):
        yield _bytes(tensor)
    else:
        yield from (_bytes(chunk) for chunk in tensor.chunks)


def _bytes(tensor: Tensor) -> memoryview:
    flat = tensor.detach().contiguous().reshape(-1)
    return flat.view(torch.uint8).numpy().data if flat.numel() else memoryview(b"")
