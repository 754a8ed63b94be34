"""What a room offers is the same to `dir`, to `from room import *`, to a type checker and to whoever uses it."""

from __future__ import annotations

import ast
import importlib
import inspect
import subprocess
import sys
from types import ModuleType

import pytest

import linnet

ROOMS = [
    "linnet",
    *(
        f"linnet.{name}"
        for name in [
            "analysis",
            "architectures",
            "data",
            "gguf",
            "infer",
            "kernels",
            "models",
            "recipes",
            "runs",
            "train",
        ]
    ),
]


def _names_for_type_checkers(room: ModuleType) -> set[str]:
    """What stands under `if TYPE_CHECKING` as `import x as x`, the form that says that a name is offered."""
    tree = ast.parse(inspect.getsource(room))
    blocks = [node for node in tree.body if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"]
    imports = [node for block in blocks for node in block.body if isinstance(node, ast.ImportFrom)]
    return {alias.asname for node in imports for alias in node.names if alias.asname == alias.name and alias.asname}


@pytest.mark.parametrize("name", ROOMS)
def test_every_list_of_a_rooms_names_agrees(name: str) -> None:
    room = importlib.import_module(name)
    tree = ast.parse(inspect.getsource(room))
    defined = {node.name for node in tree.body if isinstance(node, ast.FunctionDef) and node.name[0] != "_"}
    assert set(room.__all__) == _names_for_type_checkers(room) | defined
    assert {shown for shown in dir(room) if not shown.startswith("__")} == set(room.__all__)
    assert all(getattr(room, offered) is not None for offered in room.__all__)


def test_the_calls_a_notebook_needs_first_are_completed() -> None:
    assert {"open", "list_runs", "start", "runs", "__version__"} <= set(dir(linnet))


def test_the_room_train_can_be_called_and_is_still_a_room() -> None:
    import linnet.train.settings

    room: object = linnet.train
    assert callable(room)
    assert isinstance(room, ModuleType)
    assert room is importlib.import_module("linnet.train")
    assert room.settings.TrainSettings is room.TrainSettings


def test_what_a_program_annotates_with_is_at_the_top() -> None:
    from linnet.runs import Run, Session
    from linnet.train import Callback

    assert (linnet.Run, linnet.Session, linnet.Callback) == (Run, Session, Callback)
    assert {"Run", "Session", "Callback", "UsageError", "train", "resume"} <= set(dir(linnet))


def test_importing_linnet_and_its_callback_loads_no_torch() -> None:
    code = "import sys, linnet; linnet.Callback, linnet.Run, linnet.Session; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0
