"""`--config FILE.toml`: flags from a file; those given on the command line win."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from cyclopts import App, ArgumentCollection
from cyclopts.config import Dict

from linnet.errors import UsageError


class ConfigFile:
    """The keys of a TOML file, which are flags without their dashes, as cyclopts asks for them."""

    def __init__(self, path: str) -> None:
        import tomllib  # most commands have no such file

        self.path = path
        try:
            self._values: dict[str, Any] = tomllib.loads(Path(path).read_text(encoding="utf-8"))
        except UnicodeDecodeError:
            raise UsageError(f"--config {path}: expected a TOML file in UTF-8, found other bytes") from None
        except tomllib.TOMLDecodeError as error:
            raise UsageError(f"--config {path}: not TOML: {error}") from None
        except FileNotFoundError:
            raise UsageError(f"--config {path}: no such file") from None
        except OSError as error:
            raise UsageError(f"--config {path}: {error.strerror or error}") from None
        for key, value in self._values.items():
            if isinstance(value, dict):
                raise UsageError(f"--config {path}: [{key}] is a table; write flags at the top, as in `steps = 500`")

    def __call__(self, app: App, commands: tuple[str, ...], arguments: ArgumentCollection) -> None:
        """Give the flags of a command their values from the file."""
        nested = self._values  # at the top of a Dict, a key that is also a command (`runs`) would be passed over
        for name in reversed(commands):
            nested = {name: nested}
        Dict(nested, source=self.path)(app, commands, arguments)


def take_config(arguments: list[str]) -> tuple[list[str], ConfigFile | None]:
    """The arguments without `--config FILE.toml`, and that file."""
    rest: list[str] = []
    path: str | None = None
    words = iter(arguments)
    for word in words:
        if word == "--":
            return [*rest, word, *words], ConfigFile(path) if path is not None else None
        name, equals, value = word.partition("=")
        if name != "--config":
            rest.append(word)
            continue
        if path is not None:
            raise UsageError("--config is given more than once; put all flags in one file")
        path = value if equals else next(words, "")
        if not path:
            raise UsageError("--config needs the name of a TOML file")
    return rest, ConfigFile(path) if path is not None else None
