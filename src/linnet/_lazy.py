"""Public names that are imported when first used, so that `import linnet` stays quick."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from importlib import import_module
from types import ModuleType
from typing import Any


def lazy(
    package: str, homes: Mapping[str, str] | None = None
) -> tuple[list[str], Callable[[str], object], Callable[[], list[str]]]:
    """Make `__all__`, `__getattr__` and `__dir__` of `package` from what it imports for type checkers.

    Each of its lines `from home import name as name` (below `if TYPE_CHECKING`) offers a name, which is looked up when
    it is first used. A name whose home is the package is a module in it. `homes` overrules the lines.
    """
    known = {**_typed_names(package), **(homes or {})}

    def find(name: str) -> object:
        if name not in known:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        home = known[name]
        value = import_module(f"{home}.{name}") if home == package else getattr(import_module(home), name)
        setattr(sys.modules[package], name, value)
        return value

    def names() -> list[str]:
        module = vars(sys.modules[package])
        return sorted({*module["__all__"], *(name for name in module if name.startswith("__"))})

    return sorted(known), find, names


def _typed_names(package: str) -> dict[str, str]:
    homes: dict[str, str] = {}
    spec: Any = sys.modules[package].__spec__
    for line in spec.loader.get_source(package).splitlines():
        match line.split():
            case ["from", home, "import", name, "as", alias, *_] if name == alias:
                homes[name] = home
    return homes


def callable_room(package: str, home: str, name: str) -> None:
    """Let a room be called: `linnet.train(…)` is the function `name` of `home`, and `linnet.train` the room."""

    class CallableRoom(ModuleType):
        def __call__(self, *arguments: Any, **options: Any) -> Any:
            return getattr(import_module(home), name)(*arguments, **options)

    sys.modules[package].__class__ = CallableRoom
