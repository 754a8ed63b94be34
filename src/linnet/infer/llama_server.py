"""The process that serves a model with llama.cpp's own server (the wheel `xllamacpp`): `python -m` this module.

A bad file may abort it, so it is never the process of the command. It takes its settings as one line of JSON on
standard input, answers with one line on standard output, and ends when standard input does: with whoever started it.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from typing import Any

_MOST_THREADS = 8  # that answer HTTP; each holds a request while the model works on it
_CACHED_PROMPTS = 1024  # megabytes of prompts that were seen, so that a chat does not read its history again


def main() -> None:
    """Serve until standard input ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # a terminal sends Ctrl-C to both processes, and the other one decides
    try:
        server = _server(json.loads(sys.stdin.readline()))
    except RuntimeError as error:
        print(json.dumps({"error": str(error)}), flush=True)
        os._exit(1)
    print(json.dumps({"address": server.listening_address}), flush=True)
    sys.stdin.read()
    os._exit(0)  # without waiting for answers that are under way


def _server(settings: dict[str, Any]) -> Any:
    import xllamacpp

    params = xllamacpp.CommonParams()
    params.model.path = settings["model"]
    params.model_alias = {settings["name"]}
    params.lora_adapters = [xllamacpp.CommonAdapterLoraInfo(path, scale) for path, scale in settings["adapters"]]
    params.hostnames, params.port = [settings["host"]], settings["port"]
    params.api_keys = settings["api_keys"]
    # By default any page of the web that the browser shows could ask, and read the answer.
    params.cors_origins, params.cors_credentials = settings["allow_origin"], False
    params.n_ctx, params.n_parallel = settings["ctx"] * settings["parallel"], settings["parallel"]
    params.n_threads_http = min(_MOST_THREADS, 2 + settings["parallel"])
    params.cache_ram_mib = _CACHED_PROMPTS
    if settings["threads"]:
        params.cpuparams.n_threads = params.cpuparams_batch.n_threads = settings["threads"]
    return xllamacpp.Server(params)


if __name__ == "__main__":
    main()
