"""A torch loop of your own with one of Linnet's models: logged, evaluated and checkpointed as GGUF for llama.cpp.

python examples/own_torch_loop.py
linnet generate latest --prompt "def "

A `LlamaForCausalLM` or `GPT2LMHeadModel` of transformers goes into `run.checkpoint` just the same.
"""

from __future__ import annotations

import torch

import linnet
from linnet.data import Batches, prepare
from linnet.models import build, preset
from linnet.train import evaluate


def main(corpus: str = "python", steps: int = 300) -> None:
    """Train for some steps; a checkpoint every third of them."""
    text = prepare(corpus, vocab=1024)
    config = preset("tiny", vocab=text.vocab, ctx=64)
    model = build(config, seed=0)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3, betas=(0.9, 0.95))
    batches = Batches(text.train, ctx=config.ctx, batch=16)
    # With its corpus among them, `linnet eval latest` scores the documents held out here.
    settings = {"corpus": corpus, "lr": 3e-3, "batch": 16}

    with linnet.start(arch="llama", model=config, config=settings, total_steps=steps) as run:
        for step in range(1, steps + 1):
            batch = batches.at(step - 1)
            loss = model.loss(batch.ids_BT, batch.targets_BT)
            loss.backward()
            grad_norm = torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            optimizer.zero_grad()
            run.log(step, loss=loss.item(), lr=3e-3, grad_norm=grad_norm.item())
            if step % max(1, steps // 3) == 0:
                held = evaluate(
                    model,
                    text.held_out,
                    ctx=config.ctx,
                    device=model.device,
                    most=8192,
                    bytes_per_token=text.bytes_per_token,
                )
                run.eval(step, "validation", loss=held.loss, ppl=held.ppl)
                run.checkpoint(model, step, loss=held.loss, tokenizer=text.tokenizer_keys)
        print(f"run {run.run_id} → {run.run_dir}/weights/latest")


if __name__ == "__main__":
    main()
