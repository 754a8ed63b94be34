"""Training on a CPU, two threads, float32: our step is at least as fast as a `transformers` eager loop."""

import statistics
import sys
import time
from collections.abc import Callable
from typing import Any

import sample
from report import Report

SHAPES = {
    # name: (preset, changes, sequences, context)
    "llama 3M, 8×256": ("demo", {}, 8, 256),
    "llama 15M, 8×256": ("nano", {}, 8, 256),
    "tiny, 1×32": ("tiny", {}, 1, 32),
}
THREADS = 2


def rounds(shape: str, repeats: int) -> dict[str, Any]:
    """Steps of both, turn about, on the same tokens: milliseconds of each, and what the matrix unit can do."""
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    from linnet.models import build, preset
    from linnet.train.hardware import choose
    from linnet.train.settings import TrainSettings
    from linnet.train.step import Step

    torch.set_num_threads(THREADS)
    name, changes, batch, ctx = SHAPES[shape]
    config = preset(name, **{**changes, "ctx": ctx})
    settings = TrainSettings(batch=batch, device="cpu")
    model = build(config, seed=0)
    step = Step(model, settings, choose(settings, tokens=batch * ctx))
    ids = torch.randint(0, config.vocab, (batch, ctx + 1), generator=torch.Generator().manual_seed(0))

    class Batch:
        inputs, n_targets = (ids[:, :-1], ids[:, 1:], None), batch * ctx

    peer = LlamaForCausalLM(
        LlamaConfig(
            vocab_size=config.vocab,
            hidden_size=config.d_model,
            intermediate_size=config.d_ff,
            num_hidden_layers=config.n_layers,
            num_attention_heads=config.n_heads,
            num_key_value_heads=config.n_kv,
            max_position_embeddings=ctx,
            tie_word_embeddings=config.tied,
            use_cache=False,
        )
    )
    optimizer = torch.optim.AdamW(peer.parameters(), lr=1e-3, betas=(0.9, 0.95), weight_decay=0.1, fused=True)

    def theirs() -> None:
        peer(input_ids=ids, labels=ids).loss.backward()
        torch.nn.utils.clip_grad_norm_(peer.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

    def ours() -> None:
        step(Batch(), 1e-3)

    def matrix() -> None:
        square @ square

    square = torch.ones(1024, 1024)
    found: dict[str, list[float]] = {"linnet": [], "transformers": [], "matrix": []}
    works: dict[str, Callable[[], None]] = {"linnet": ours, "transformers": theirs, "matrix": matrix}
    for work in works.values():
        work()
        work()
    for _ in range(repeats):
        for each, work in works.items():
            began = time.perf_counter()
            work()
            found[each].append(time.perf_counter() - began)
    flops = model.flops_per_token(ctx) * batch * ctx
    return {**found, "flops": flops, "peak": 2 * 1024**3 / min(found["matrix"]), "parameters": model.n_params()}


def main() -> Report:
    report = Report(
        name="train_cpu",
        claim=__doc__ or "",
        columns={
            "shape": "",
            "parameters": ",",
            "linnet tok/s": ",.0f",
            "transformers tok/s": ",.0f",
            "ratio": ".2f",
            "share of sgemm": ".0%",
        },
    )
    for shape, (_, _, batch, ctx) in SHAPES.items():
        repeats = 200 if "tiny" in shape else 9
        found = sample.play(__file__, "rounds", {"shape": shape, "repeats": repeats}, None)
        ours, theirs = (statistics.median(found[name]) for name in ("linnet", "transformers"))
        tokens = batch * ctx
        share = found["flops"] / ours / found["peak"]
        report.row(shape, found["parameters"], tokens / ours, tokens / theirs, theirs / ours, share)
        report.at_least(f"{shape}, against transformers eager", theirs / ours, 1.0, "×")
    report.note(
        f"Medians of whole steps (forward, backward, clipping, AdamW), {THREADS} threads, the two turn about in one "
        "process. sgemm: a product of 1024 × 1024 matrices in the same process."
    )
    return report


if __name__ == "__main__":
    sys.exit(sample.start(main, {"rounds": rounds}))
