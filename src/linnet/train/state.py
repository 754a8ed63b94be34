"""What a checkpoint needs besides its weights so that training goes on to the bit: `state/step_<N>.safetensors`."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from linnet.errors import LinnetError

FOLDER = "state"
_PARAMETER = "param/"
_MOMENT = "optimizer/"


class StateError(LinnetError):
    """A run that cannot be resumed, and why."""


@dataclass(frozen=True)
class State:
    """Where training stands.

    - `facts`: step, tokens seen, fingerprints of config and data, best validation loss, and the settings.
    - `moments`: the optimiser's tensors; `parameters`: the weights that the GGUF does not hold exactly.
    """

    facts: dict[str, Any]
    moments: dict[str, Tensor]
    parameters: dict[str, Tensor] = field(default_factory=dict)


def state_path(run_dir: Path, step: int) -> Path:
    """Where the state of a step lies."""
    return run_dir / FOLDER / f"step_{step}.safetensors"


def save(path: Path, state: State) -> None:
    """Write a state under a temporary name, bring it to the disk, then give it its own."""
    path.parent.mkdir(parents=True, exist_ok=True)
    tensors = {_MOMENT + name: tensor.contiguous() for name, tensor in state.moments.items()}
    tensors |= {_PARAMETER + name: tensor.contiguous() for name, tensor in state.parameters.items()}
    temporary = path.with_name(f".{path.name}.tmp")
    try:
        save_file(tensors, temporary, metadata={"linnet": json.dumps(state.facts)})
        temporary.chmod(0o644)
        fd = os.open(temporary, os.O_RDWR)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def load(path: Path) -> State:
    """Read a state back."""
    moments: dict[str, Tensor] = {}
    parameters: dict[str, Tensor] = {}
    try:
        with safe_open(path, "pt") as file:
            facts = json.loads((file.metadata() or {})["linnet"])
            for key in file.keys():  # noqa: SIM118 - the file is no dict
                if key.startswith(_MOMENT):
                    moments[key.removeprefix(_MOMENT)] = file.get_tensor(key)
                elif key.startswith(_PARAMETER):
                    parameters[key.removeprefix(_PARAMETER)] = file.get_tensor(key)
    except (OSError, SafetensorError, KeyError, ValueError) as error:
        raise StateError(f"{path} cannot be read as the state of a run: {error}") from error
    return State(facts, moments, parameters)


def steps_with_state(run_dir: Path) -> list[int]:
    """The steps that can be resumed from, the newest last: those with a state and weights."""
    steps = []
    for path in (run_dir / FOLDER).glob("step_*.safetensors"):
        step = path.stem.removeprefix("step_")
        if step.isdigit() and (run_dir / "weights" / f"step_{step}.gguf").is_file():
            steps.append(int(step))
    return sorted(steps)
