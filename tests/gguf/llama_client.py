"""llama.cpp itself (the wheel `xllamacpp`), asked in a process of its own: a bad file can abort it.

Run as a script it is that process: a list of jobs comes in on standard input as JSON, a list of answers goes
out.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass
class Answer:
    """What llama.cpp did with a file: its last words if it refused, else log-probabilities and tokens."""

    refused: str
    logprobs: list[list[float]]  # for each prompt, the next token's, by token id
    greedy: list[list[int]]  # for each prompt, the tokens it goes on with


def ask(
    *models: Path,
    prompts: list[list[int]],
    vocab: int,
    greedy: int = 0,
    adapter: Path | None = None,
    scale: float = 1.0,
    at_once: int = 1,
    timeout: float = 120,
) -> list[Answer]:
    """Load each file and continue each prompt (token ids), with an f32 cache and without flash attention.

    `vocab` 0 leaves the log-probabilities out; `greedy` is how many tokens to go on with. `at_once`: prompts that are
    answered side by side, each from where it differs from one before it: half the processor time, but sums are added in
    another order.
    """
    jobs = [
        {
            "model": str(model),
            "prompts": prompts,
            "vocab": vocab,
            "greedy": greedy,
            "adapter": str(adapter) if adapter else None,
            "scale": scale,
            "at_once": at_once,
        }
        for model in models
    ]
    answers = []
    while len(answers) < len(jobs):  # a file that aborts the process is answered; the rest get a new process
        left = jobs[len(answers) :]
        done = subprocess.run(
            [sys.executable, __file__],
            input=json.dumps(left),
            capture_output=True,
            text=True,
            timeout=timeout,
            env={**os.environ, "GGML_NO_BACKTRACE": "1"},  # an abort's last words are then the assertion
        )
        lines = [line for line in done.stdout.splitlines() if line.startswith("answer ")]
        answers += [Answer(**json.loads(line.removeprefix("answer "))) for line in lines]
        if done.returncode != 0 and len(lines) < len(left):
            answers.append(Answer(refused=done.stderr[-2000:] or f"exit {done.returncode}", logprobs=[], greedy=[]))
    return answers


def _post(address: str, path: str, body: dict[str, Any]) -> Any:
    request = urllib.request.Request(address + path, json.dumps(body).encode(), {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=60) as reply:
        return json.load(reply)


def _answer(job: dict[str, Any]) -> dict[str, Any]:
    import xllamacpp

    params = xllamacpp.CommonParams()
    params.model.path = job["model"]
    params.n_ctx = 256 * job["at_once"]
    params.n_parallel = job["at_once"]
    # One thread: ggml's threads spin while they wait, which on a busy machine costs far more than they gain.
    params.cpuparams.n_threads = params.cpuparams_batch.n_threads = 1
    params.n_threads_http = 1 + job["at_once"]
    params.warmup = False
    params.cache_type_k = params.cache_type_v = xllamacpp.ggml_type.GGML_TYPE_F32
    params.flash_attn_type = xllamacpp.llama_flash_attn_type.LLAMA_FLASH_ATTN_TYPE_DISABLED
    if job["adapter"]:
        params.lora_adapters = [xllamacpp.CommonAdapterLoraInfo(job["adapter"], job["scale"])]
    try:
        server = xllamacpp.Server(params)
    except RuntimeError as error:
        return {"refused": str(error), "logprobs": [], "greedy": []}

    def go_on(prompt: list[int]) -> tuple[list[float], list[int]]:
        # The token is pushed to a printable one: an unfinished UTF-8 byte would be held back, with its
        # probabilities. What is reported are the raw logits' probabilities, which the push does not change.
        body = {
            "prompt": prompt,
            "n_predict": 1,
            "n_probs": job["vocab"],
            "temperature": 0.0,
            "cache_prompt": job["at_once"] > 1,
        }
        row, tokens = [0.0] * job["vocab"], list[int]()
        if job["vocab"] or not job["greedy"]:
            reply = _post(server.listening_address, "/completion", body | {"logit_bias": [[64, 100.0]]})
        if job["vocab"]:
            for entry in reply["completion_probabilities"][0]["top_logprobs"]:
                row[entry["id"]] = entry["logprob"]
        if job["greedy"]:
            body |= {"n_predict": job["greedy"], "n_probs": 0, "return_tokens": True}
            tokens = _post(server.listening_address, "/completion", body)["tokens"]
        return row, tokens

    with ThreadPoolExecutor(job["at_once"]) as pool:
        answers = list(pool.map(go_on, job["prompts"]))
    return {
        "refused": "",
        "logprobs": [row for row, _ in answers] if job["vocab"] else [],
        "greedy": [tokens for _, tokens in answers] if job["greedy"] else [],
    }


if __name__ == "__main__":
    for each in json.load(sys.stdin):
        print("answer " + json.dumps(_answer(each)), flush=True)
