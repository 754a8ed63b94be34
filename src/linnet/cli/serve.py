"""`linnet serve`: a model behind an HTTP API."""

from __future__ import annotations

import json
import secrets
from contextlib import suppress
from dataclasses import replace
from typing import Annotated

from cyclopts import Parameter
from cyclopts.validators import Number

from linnet.board import words
from linnet.cli.options import AdapterNames, AnyBase, ModelName, RunsFolder, print_choice
from linnet.cli.printing import paint
from linnet.cli.streams import complain
from linnet.errors import UsageError
from linnet.infer.serving import ModelServer, ServingOptions, require_llama_cpp
from linnet.listening import address, is_loopback, listen

_USUAL_PORT = 8080  # llama.cpp's


def serve(
    model: ModelName,
    /,
    *,
    options: Annotated[ServingOptions, Parameter(name="*")] = ServingOptions(),  # noqa: B008 (it is frozen)
    adapter: AdapterNames = (),
    any_base: AnyBase = False,
    host: str = "127.0.0.1",
    port: Annotated[int | None, Parameter(validator=Number(gte=1, lte=65535))] = None,
    verbose: bool = False,
    runs: RunsFolder = None,
) -> int:
    """Serve a model over HTTP, as OpenAI's clients expect it, by llama.cpp; until Ctrl-C.

    Args:
        host: The address to listen on (127.0.0.1: this machine alone).
        port: By default 8080, or the next that is free.
        verbose: Show what llama.cpp says meanwhile.
    """
    require_llama_cpp()
    from linnet.infer.loaded_model import task_of_file
    from linnet.models.model_files import find_files

    files = find_files(model, adapter, runs, any_base=any_base)
    if task_of_file(files.model) == "images":
        raise UsageError(f"{files.model} classifies images and writes no text; llama.cpp serves models of text")
    if options.api_key is None and not is_loopback(host):
        options = replace(options, api_key=secrets.token_urlsafe(24))
    with listen(host, port, _USUAL_PORT) as listening:
        free_port = listening.getsockname()[1]
    with suppress(KeyboardInterrupt), ModelServer(files, options, host, free_port, verbose=verbose) as server:
        print_choice(model, files.named)
        _tell(server, address(host, free_port).rstrip("/"), options)
        server.wait()
    return 0


def _tell(server: ModelServer, url: str, options: ServingOptions) -> None:
    """Where it is, and how it is asked."""
    print(f"{paint(words.plain(server.name), 'bold')} is served at {url} (context {server.ctx:,})")
    print(f"  in the browser   {url}/")
    print(f"  OpenAI clients   base_url {url}/v1")
    authorized = f" -H 'Authorization: Bearer {options.api_key}'" if options.api_key else ""
    if options.api_key:
        print(f"  key              {options.api_key}")
    question = {"messages": [{"role": "user", "content": "Hello!"}]} if server.knows_chats else {"prompt": "The"}
    path = "chat/completions" if server.knows_chats else "completions"
    print(f"  curl {url}/v1/{path}{authorized} -d '{json.dumps({**question, 'max_tokens': 40})}'")
    print(paint("Ctrl-C ends it.", "dim"), flush=True)
    if not server.knows_chats:
        complain(
            f"{server.name} has no chat template: it goes on with a text (/v1/completions); chats are put to it in"
            " ChatML, which it may never have seen"
        )
