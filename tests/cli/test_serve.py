"""`linnet serve`: a model and its adapters behind llama.cpp's HTTP API, for as long as the command runs."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil
import pytest

from linnet.cli import main
from linnet.infer.serving import ModelServer, ServingOptions
from linnet.models.model_files import find_files
from tests.cli.test_adapters import GREEDY, adapter, base
from tests.conftest import Printed, Said
from tests.gguf.small_files import vit_file

__all__ = ["adapter", "base"]  # fixtures


@contextmanager
def serving(*words: str) -> Iterator[tuple[subprocess.Popen[str], list[str]]]:
    """The command, from when it says that it serves; and what it has said."""
    command = [sys.executable, "-m", "linnet", "serve", *words, "--threads", "1"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None and process.stderr is not None
        lines: list[str] = []
        try:
            for line in process.stdout:
                lines.append(line.rstrip())
                if line.startswith("Ctrl-C"):
                    break
            else:
                pytest.fail(process.stderr.read())
            yield process, lines
        finally:
            process.kill()


def url_in(lines: list[str]) -> str:
    found = re.search(r"http://[\w.]+:\d+", lines[0])
    assert found is not None, lines
    return found[0]


def ask(url: str, body: dict[str, Any] | None = None, **headers: str) -> tuple[Any, Any]:
    """The answer and its headers."""
    data = None if body is None else json.dumps(body).encode()
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    request = urllib.request.Request(url, data, {"Content-Type": "application/json", **named})
    with urllib.request.urlopen(request, timeout=30) as reply:
        return json.load(reply), reply.headers


def test_a_model_is_served_with_its_adapter(base: Path, adapter: Path, printed: Printed) -> None:
    expected = printed("generate", str(base), "--adapter", f"{adapter}:0.5", *GREEDY).rstrip("\n")
    with serving(str(base), "--adapter", f"{adapter}:0.5", "--api-key", "wren", "--name", "notes") as (process, lines):
        url = url_in(lines)
        assert lines[0] == f"notes is served at {url} (context 64)"
        bearer = {"Authorization": "Bearer wren"}
        answer, headers = ask(
            f"{url}/v1/completions",
            {"prompt": "the", "temperature": 0, "max_tokens": 12},
            Origin="http://elsewhere.example",
            **bearer,
        )
        assert "the" + answer["choices"][0]["text"] == expected
        assert answer["model"] == "notes"
        assert headers["Access-Control-Allow-Origin"] in (None, "")  # no page of the web reads it
        loras, _ = ask(f"{url}/lora-adapters", **bearer)
        assert [(lora["path"], lora["scale"]) for lora in loras] == [(str(adapter), 0.5)]
        with pytest.raises(urllib.error.HTTPError, match="401"):
            ask(f"{url}/v1/completions", {"prompt": "the"})
        (child,) = psutil.Process(process.pid).children()
        process.send_signal(signal.SIGINT)
        assert process.wait(20) == 0
        assert not child.is_running()
        assert process.stderr is not None
        assert "base.gguf" not in process.stderr.read()  # but what was said of chats names the model


def test_the_server_ends_with_a_command_that_is_killed(base: Path) -> None:
    with serving(str(base)) as (process, _):
        (child,) = psutil.Process(process.pid).children()
        process.kill()
        child.wait(20)


def test_the_line_that_is_printed_can_be_typed(base: Path) -> None:
    with serving(str(base)) as (_, lines):
        typed = next(line for line in lines if line.startswith("  curl"))
        found = re.fullmatch(r"  curl (\S+) -d '(.*)'", typed)
        assert found is not None
        answer, _ = ask(found[1], json.loads(found[2]))
        assert answer["usage"]["completion_tokens"] > 0


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--parallel", "0"], "--parallel must be 1 or more, found 0"),
        (["--ctx", "0"], "--ctx must be 1 or more, found 0"),
        (["--host", "203.0.113.7"], "cannot listen on 203.0.113.7 port 8080"),
        (["--adapter", "nothing.gguf"], "nothing.gguf"),
    ],
)
def test_wrong_words_are_one_line(base: Path, said: Said, words: list[str], message: str) -> None:
    code, _, err = said("serve", str(base), *words)
    assert code == (1 if "listen" in message else 2)
    assert message in err and len(err.splitlines()) == 1


def test_an_image_model_is_not_served(tmp_path: Path, said: Said) -> None:
    code, _, err = said("serve", str(vit_file(tmp_path / "vit.gguf")))
    assert (code, err.count("\n")) == (2, 1) and "classifies images" in err


def test_a_file_that_llama_cpp_refuses_says_why(base: Path, tmp_path: Path, said: Said) -> None:
    bytes_ = bytearray(base.read_bytes())
    at = bytes_.index(b"llama.attention.head_count")
    bytes_[at : at + 5] = b"xxxxx"  # the key is missing
    broken = tmp_path / "broken.gguf"
    broken.write_bytes(bytes_)
    code, _, err = said("serve", str(broken))
    assert code == 1 and len(err.splitlines()) == 1
    assert f"llama.cpp does not serve {broken}" in err


def test_another_address_has_a_key(base: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[ServingOptions] = []

    def note(self: ModelServer, files: object, options: ServingOptions, *_: object, **named: object) -> None:
        seen.append(options)
        raise KeyboardInterrupt

    monkeypatch.setattr(ModelServer, "__init__", note)
    assert main(["serve", str(base), "--host", "0.0.0.0"]) == 0
    assert main(["serve", str(base)]) == 0
    assert main(["serve", str(base), "--host", "0.0.0.0", "--api-key", "mine"]) == 0
    assert len(seen[0].api_key or "") >= 32 and seen[1].api_key is None and seen[2].api_key == "mine"


def test_a_server_that_dies_is_told(base: Path) -> None:
    with ModelServer(find_files(base), ServingOptions(threads=1), "127.0.0.1", 0) as server:
        os.kill(server._process.pid, signal.SIGKILL)
        with pytest.raises(Exception, match="ended by itself: ended by SIGKILL"):
            server.wait()
