"""The token ids that llama.cpp itself gives, from the `xllamacpp` wheel in a process of its own.

A process of its own, because llama.cpp answers some bad files by aborting. As a script this reads a JSON list
of requests for `/tokenize` from standard input, loads the file named on its command line and prints the ids.
"""

from __future__ import annotations

import http.client
import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from urllib.parse import urlsplit


def tokens_by_llama_cpp(path: Path, texts: list[str], special: bool = True) -> list[list[int]]:
    """Tokenise each text with the vocabulary of the GGUF at `path`; `special`: tokens are added and parsed."""
    return both_by_llama_cpp(path, texts, (special,))[0]


def both_by_llama_cpp(path: Path, texts: list[str], special: Sequence[bool] = (True, False)) -> list[list[list[int]]]:
    """The same for each value of `special`, in one process: to start it and to load a model takes longest."""
    asked = [{"content": text, "add_special": parsed, "parse_special": parsed} for parsed in special for text in texts]
    ran = subprocess.run(
        [sys.executable, __file__, str(path)],
        input=json.dumps(asked),
        capture_output=True,
        text=True,
        timeout=240,
    )
    assert ran.returncode == 0, ran.stderr[-2000:]
    answered: list[list[int]] = json.loads(ran.stdout)
    return [answered[turn * len(texts) : (turn + 1) * len(texts)] for turn in range(len(special))]


def _serve(path: str) -> None:
    import xllamacpp

    params = xllamacpp.CommonParams()
    params.model.path = path
    params.n_ctx = 64
    params.warmup = False
    server = xllamacpp.Server(params)
    address = urlsplit(server.listening_address)
    connection = http.client.HTTPConnection(address.hostname or "", address.port, timeout=60)
    answers = []
    for request in json.load(sys.stdin):
        connection.request("POST", "/tokenize", json.dumps(request), {"Content-Type": "application/json"})
        answers.append(json.loads(connection.getresponse().read())["tokens"])
    print(json.dumps(answers), flush=True)
    os._exit(0)  # the server's threads now and then do not end


if __name__ == "__main__":
    _serve(sys.argv[1])
