"""`ModelServer`: a MODEL behind the HTTP API that OpenAI's clients speak, by llama.cpp in a process of its own."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
from dataclasses import asdict, dataclass
from types import TracebackType
from typing import IO

from linnet.errors import LinnetError, UsageError, missing_extra
from linnet.gguf.file import GGUFFile
from linnet.models.model_files import ModelFiles

_PACKAGE = "xllamacpp"
_LAST_BYTES = 4000  # of its log, in which an error is looked for
_ERROR = re.compile(r"\berror\b|assert", re.IGNORECASE)


@dataclass(frozen=True)
class ServingOptions:
    """How a model is served.

    Args:
        ctx: Tokens of a conversation, question and answer together; by default the model's own context.
        parallel: So many requests at a time, each with a context of its own, which takes memory (1).
        threads: Threads that compute; by default one for each core.
        name: What the model is called in the API; by default as its file or its run is.
        api_key: What clients must say (Authorization: Bearer KEY). On another address than this machine's own there
            is always one: made and printed, where none is given.
        allow_origin: Web pages of this origin may ask, as in https://example.org; by default none.
    """

    ctx: int | None = None
    parallel: int = 1
    threads: int | None = None
    name: str | None = None
    api_key: str | None = None
    allow_origin: str | None = None


class ModelServer:
    """Serves while its `with` block runs. `wait` until it ends by itself.

    - `address`: its URL, without a slash at the end.
    - `name`: what the model is called in the API.
    - `ctx`: tokens of a conversation.
    - `knows_chats`: has the file a chat template? Without one chats are written in words it was never taught.
    """

    def __init__(
        self, files: ModelFiles, options: ServingOptions, host: str, port: int, *, verbose: bool = False
    ) -> None:
        require_llama_cpp()
        for field in ("ctx", "parallel", "threads"):
            if (number := getattr(options, field)) is not None and number < 1:
                raise UsageError(f"`{field}` must be 1 or more, found {number}")
        with GGUFFile.open(files.model) as file:
            trained_ctx = file.metadata.get(f"{file.architecture}.context_length")
            self.knows_chats = isinstance(file.metadata.get("tokenizer.chat_template"), str)
        self.ctx = options.ctx or (trained_ctx if isinstance(trained_ctx, int) else 2048)
        self.name = options.name or files.name
        self._files = files
        self._log: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115 (closed at the end of the block)
        self._verbose = verbose
        self._settings = {
            **asdict(options),
            "model": str(files.model),
            "adapters": [(str(adapter.path), scale) for adapter, scale in files.adapters],
            "name": self.name,
            "host": host,
            "port": port,
            "ctx": self.ctx,
            "api_keys": [options.api_key] if options.api_key else [],
            "allow_origin": options.allow_origin or "",
        }

    def __enter__(self) -> ModelServer:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "linnet.infer.llama_server"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=None if self._verbose else self._log,
            env={**os.environ, "GGML_NO_BACKTRACE": "1"},  # its last words are then what was wrong
            text=True,
        )
        try:
            self.address = self._start()
        except BaseException:
            self.__exit__()
            raise
        return self

    def _start(self) -> str:
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.write(json.dumps(self._settings) + "\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        answer = json.loads(line) if line.startswith("{") else {}
        if "address" not in answer:
            ending = _ending(self._process.wait())
            raise LinnetError(
                f"llama.cpp does not serve {self._files.model}: {self._reason(answer.get('error') or ending)}"
            )
        return str(answer["address"])

    def wait(self) -> None:
        """Until the server ends, which it does by itself only when something is wrong."""
        code = self._process.wait()
        raise LinnetError(f"llama.cpp's server has ended by itself: {self._reason(_ending(code))}")

    def __exit__(
        self,
        kind: type[BaseException] | None = None,
        error: BaseException | None = None,
        at: TracebackType | None = None,
    ) -> None:
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.close()
        try:
            self._process.wait(5)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process.stdout.close()
        self._log.close()

    def _reason(self, otherwise: str) -> str:
        """What was wrong, in llama.cpp's own words: of its log the last line that speaks of an error."""
        if self._verbose:
            return otherwise
        self._log.seek(max(0, self._log.seek(0, os.SEEK_END) - _LAST_BYTES))
        lines = self._log.read().decode("utf-8", "replace").splitlines()
        return next((line for line in reversed(lines) if _ERROR.search(line)), otherwise)


def _ending(code: int) -> str:
    """How a process ended, in words."""
    return f"ended by {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"


def require_llama_cpp() -> None:
    """One line on how to get the package that serves, where it is not installed."""
    try:
        if importlib.util.find_spec(_PACKAGE) is not None:
            return
        absent = ModuleNotFoundError(name=_PACKAGE)
    except ModuleNotFoundError as error:
        absent = error
    raise UsageError(missing_extra(absent, "`linnet serve`") or str(absent))
