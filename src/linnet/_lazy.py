"""Public names that are imported when first used, so that `import linnet` stays quick."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Mapping
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

_OFFERED = re.compile(r"^    from (\S+) import (\w+) as \2$", re.MULTILINE)


def typed_homes(package: str) -> dict[str, str]:
    """The names of `package` and their modules, as its `if TYPE_CHECKING` imports them: `from home import X as X`.

    So a room has one list of its names, which type checkers read as well.
    """
    source = Path(str(sys.modules[package].__file__)).read_text(encoding="utf-8")
    return {name: f"{home}.{name}" if home == package else home for home, name in _OFFERED.findall(source)}


def lazy(package: str, homes: Mapping[str, str]) -> tuple[Callable[[str], object], Callable[[], list[str]]]:
    """Make `__getattr__` and `__dir__` of `package`: each name of `homes` is looked up in its module on first use.

    A home that ends in the name itself (`"runs": "linnet.runs"`) is a module of its own.
    """

    def find(name: str) -> object:
        if name not in homes:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        home = import_module(homes[name])
        value = home if homes[name] == f"{package}.{name}" else getattr(home, name)
        setattr(sys.modules[package], name, value)
        return value

    def names() -> list[str]:
        module = vars(sys.modules[package])
        return sorted({*module["__all__"], *(name for name in module if name.startswith("__"))})

    return find, names


def callable_room(package: str, home: str, name: str) -> None:
    """Let a room be called: `linnet.train(…)` is the function `name` of `home`, and `linnet.train` the room."""

    class CallableRoom(ModuleType):
        def __call__(self, *arguments: Any, **options: Any) -> Any:
            return getattr(import_module(home), name)(*arguments, **options)

    sys.modules[package].__class__ = CallableRoom
