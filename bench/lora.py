"""Training an adapter of rank 8 on every projection of SmolLM2-135M: ours beside `peft`'s, from the same weights on.

python bench/lora.py          # on two threads of a CPU, 2 × 256 tokens: ten minutes
python bench/lora.py --gpu    # 8 × 512 tokens in bf16, beside `peft` compiled, and `unsloth` where it is installed

All sides have one base (`lora_base.py`), quantised or the same numbers in plain, the same first pairs, and the same
batches of Python's standard library in the same order: their losses must be the same too.
"""

import argparse
import json
import os
import select
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import sample
from report import Report

RANK, ALPHA, RATE = 8, 16.0, 1e-3
CPU, GPU = (2, 256), (8, 512)  # sequences, context
THREADS, TURNS = 2, 9
WARM_UP, AT_ONCE = {"cpu": 2, "cuda": 8}, {"cpu": 2, "cuda": 10}  # steps
PATIENCE = {"cpu": 900.0, "cuda": 105.0}  # seconds until a side is warm
BATCHES = 128  # different ones
PLAIN, QUANTISED, PEFT, COMPILED, UNSLOTH = "linnet", "linnet, quantised base", "peft", "peft + compile", "unsloth"

Step = Callable[[int], float]


def prepare(folder: Path, device: str) -> None:
    """What all sides read: the base, quantised and plain, the first pairs for both libraries, and the tokens."""
    import numpy as np

    import lora_base
    from linnet.gguf import AdapterFile, convert
    from linnet.gguf.peft import to_peft

    batch, ctx = CPU if device == "cpu" else GPU
    quantised, plain = folder / "quantised.gguf", folder / "plain.gguf"
    (lora_base.from_package if device == "cpu" else lora_base.from_seed)(quantised)
    convert.convert(quantised, plain, "f32" if device == "cpu" else "bf16")
    recipe = _recipe(quantised, "cpu", batch, ctx)
    first = folder / "first.gguf"
    recipe.weights_format.write(recipe.parameters(), first, "run", 0, type="f32", tokenizer=None)
    to_peft(AdapterFile.read(first), folder / "first")
    np.save(folder / "ids.npy", _tokenized(folder, batch, ctx) if device == "cpu" else _bytes(batch, ctx))


def _tokenized(folder: Path, batch: int, ctx: int) -> Any:
    """Batches of Python's standard library in the tokens of the base."""
    import numpy as np

    from linnet.data import Batches, prepare

    train = prepare("python", tokenizer=folder / "quantised.gguf", vocab=None, cache=str(folder / "cache")).train
    batches = Batches(train, ctx=ctx, batch=batch, seed=0)
    return np.stack([batches.at(number).ids_BT.numpy() for number in range(BATCHES)])


def _bytes(batch: int, ctx: int) -> Any:
    """The same text by its bytes, for a base without a tokenizer."""
    import numpy as np

    count = BATCHES * batch * ctx
    text = b"".join(path.read_bytes() for path in sorted(Path(os.__file__).parent.glob("*.py")))
    return np.frombuffer(text[:count], np.uint8).astype(np.int64).reshape(BATCHES, batch, ctx)


def _recipe(base: Path, device: str, batch: int, ctx: int) -> Any:
    from linnet.models import preset
    from linnet.recipes import Lora, LoraOptions
    from linnet.recipes.job import weights_of_layers
    from linnet.train.hardware import choose
    from linnet.train.settings import TrainSettings

    settings = TrainSettings(batch=batch, device=device, optimizer="adamw", lr=RATE, weight_decay=0.0)
    hardware = choose(settings, tokens=batch * ctx, weights=weights_of_layers(preset("smollm2-135m")))
    recipe = Lora(settings, hardware, LoraOptions(str(base), rank=RANK, alpha=ALPHA))
    recipe.realize()
    recipe.build()
    return recipe


def _tokens(folder: Path, device: str) -> Any:
    import numpy as np
    import torch

    return torch.from_numpy(np.load(folder / "ids.npy")).to(device)


def linnet(who: str, device: str, folder: Path) -> tuple[Step, dict[str, Any]]:
    """The step that `linnet train lora` makes."""
    batch, ctx = CPU if device == "cpu" else GPU
    base = folder / ("quantised.gguf" if who == QUANTISED else "plain.gguf")
    recipe, ids = _recipe(base, device, batch, ctx), _tokens(folder, device)
    targets = ids.roll(-1, 2)
    targets[:, :, -1] = -100  # the peers shift within the row, so that its last token has nothing to say

    def step(number: int) -> float:
        return float(recipe.step(recipe.batch_of(ids[number], targets[number], None), RATE).loss)

    return step, {"why": recipe._hardware.why, "file": base.stat().st_size}


def peft(who: str, device: str, folder: Path) -> tuple[Step, dict[str, Any]]:
    """The loop its manual shows, on the model that `transformers` makes of the same file, with the fused AdamW."""
    import torch
    from peft import PeftModel
    from transformers import AutoModelForCausalLM

    dtype = torch.float32 if device == "cpu" else torch.bfloat16
    model = AutoModelForCausalLM.from_pretrained(folder, gguf_file="plain.gguf", dtype=dtype).to(device)
    model.config.use_cache = False
    peer: Any = PeftModel.from_pretrained(model, folder / "first", is_trainable=True)
    return _their_step(peer, torch.compile(peer) if who == COMPILED else peer, _tokens(folder, device)), {}


def unsloth(who: str, device: str, folder: Path) -> tuple[Step, dict[str, Any]]:
    """Its published way, on the model that `transformers` makes of the same file; its first pairs are its own."""
    from transformers import AutoModelForCausalLM, AutoTokenizer
    from unsloth import FastLanguageModel  # type: ignore[import-not-found]

    home = folder / "unsloth"
    if not home.exists():
        AutoModelForCausalLM.from_pretrained(folder, gguf_file="plain.gguf").save_pretrained(home)
        AutoTokenizer.from_pretrained(folder, gguf_file="plain.gguf").save_pretrained(home)
    model, _ = FastLanguageModel.from_pretrained(str(home), max_seq_length=GPU[1], load_in_4bit=False)
    targets = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]
    peer = FastLanguageModel.get_peft_model(model, r=RANK, lora_alpha=ALPHA, target_modules=targets, lora_dropout=0)
    return _their_step(peer, peer, _tokens(folder, device)), {}


def _their_step(model: Any, called: Callable[..., Any], ids: Any) -> Step:
    import torch

    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    optimizer = torch.optim.AdamW(trained, lr=RATE, betas=(0.9, 0.95), weight_decay=0.0, fused=True)
    model.train()

    def step(number: int) -> float:
        loss = called(input_ids=ids[number], labels=ids[number]).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(trained, 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        return float(loss.detach())

    return step


SIDES = {PLAIN: linnet, QUANTISED: linnet, PEFT: peft, COMPILED: peft, UNSLOTH: unsloth}


def side(who: str, device: str, folder: str) -> dict[str, Any]:
    """One side: as many steps as each line that comes in says, the seconds of one as a line that goes out."""
    import torch

    from machine import memory_now, memory_peak

    if device == "cpu":
        torch.set_num_threads(THREADS)
    if who in (PEFT, COMPILED):
        import peft  # noqa: F401  # before the memory is looked at
    else:
        import linnet.recipes.lora  # noqa: F401
    before = memory_now()
    step, facts = SIDES[who](who, device, Path(folder))
    losses: list[float] = []
    for line in sys.stdin:
        began = time.perf_counter()
        losses += [step(len(losses)) for _ in range(int(line))]  # a step's loss is waited for
        print((time.perf_counter() - began) / int(line), flush=True)
    peak = memory_peak() if device == "cpu" else torch.cuda.max_memory_allocated()
    return {**facts, "peak": peak, "before": before, "losses": losses}


def turns(names: list[str], device: str, folder: Path) -> dict[str, dict[str, Any]]:
    """Sides in turns on the same machine, each in a process of its own; those that cannot be begun are left out."""
    with ExitStack() as stack:
        answers, began = Path(stack.enter_context(tempfile.TemporaryDirectory())), time.perf_counter()
        sides: dict[str, Any] = {}
        seconds: dict[str, list[float]] = {name: [] for name in names}
        environment = {**os.environ, "OMP_NUM_THREADS": str(THREADS), "OMP_WAIT_POLICY": "PASSIVE"}
        for name in names:
            options = {"who": name, "device": device, "folder": str(folder)}
            command = sample.command(__file__, "side", options, answers / name)
            pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
            sides[name] = stack.enter_context(subprocess.Popen(command, text=True, env=environment, **pipes))  # type: ignore[call-overload]
            _say(sides[name], WARM_UP[device])  # all at once: most of it is compiling
        for name, process in list(sides.items()):
            left = max(0.0, began + PATIENCE[device] - time.perf_counter())
            ready, _, _ = select.select([process.stdout], [], [], left)
            if not ready or not process.stdout.readline():
                sides.pop(name).kill()
            else:
                print(f"  {name} is warm after {time.perf_counter() - began:.0f} s", file=sys.stderr, flush=True)
        for _ in range(TURNS):
            for name, process in sides.items():
                _say(process, AT_ONCE[device])
                seconds[name].append(float(process.stdout.readline()))
        for process in sides.values():
            process.stdin.close()
            process.wait()
        measured = {name: json.loads((answers / name).read_text()) for name in sides}
        return {name: {**measured[name], "seconds": statistics.median(seconds[name])} for name in sides}


def _say(process: Any, steps: int) -> None:
    process.stdin.write(f"{steps}\n")
    process.stdin.flush()


def main(chosen: argparse.Namespace) -> Report:
    report = Report(
        name="lora_gpu" if chosen.gpu else "lora",
        claim=(__doc__ or "").splitlines()[0],
        columns={"who": "", "ms a step": ",.1f", "tok/s": ",.0f", "peak MB": ",.0f", "loss": ".4f"},
    )
    device, (batch, ctx) = ("cuda", GPU) if chosen.gpu else ("cpu", CPU)
    if chosen.gpu:
        sample.needs_cuda()
    names = [PLAIN, QUANTISED, PEFT, *([COMPILED] if chosen.gpu else [])]
    if chosen.gpu and find_spec("unsloth") is not None:
        names.append(UNSLOTH)
    with sample.scratch() as folder:
        prepare(folder, device)
        measured = turns(names, device, folder)
    if left_out := [name for name in (SIDES if chosen.gpu else names) if name not in measured]:
        report.note(f"Not among them: {', '.join(left_out)}.")
    for name, facts in measured.items():
        speed = batch * ctx / facts["seconds"]
        report.row(
            f"{name}, uncompiled" if chosen.gpu and name == PEFT else name,
            facts["seconds"] * 1e3,
            speed,
            facts["peak"] / 1e6,
            facts["losses"][-1],
        )
    _judge(report, measured, gpu=chosen.gpu)
    first, last = measured[PEFT]["losses"][0], len(measured[PEFT]["losses"])
    report.note(
        f"{batch} × {ctx} tokens a step, rank {RANK} on all seven projections of 30 layers, vocabulary 49,152; forward,"
        f" backward, clipping, AdamW. The loss is that of step {last}; at step 1 it is {first:.4f}. "
        + ("Peak of torch's allocator" if chosen.gpu else "Peak of the process")
        + f". Sides take turns of {AT_ONCE[device]} steps."
    )
    if not chosen.gpu:
        own = measured[QUANTISED]
        whole, loaded, file = (own[key] / 1e6 for key in ("peak", "before", "file"))
        report.note(
            f"{QUANTISED}: of {whole:,.0f} MB, {loaded:,.0f} are Python and torch before the base is read, {file:,.0f}"
            f" its file, and {whole - loaded - file:,.0f} activations, logits, pairs, their gradients and moments."
        )
    if why := measured[PLAIN].get("why"):
        report.note(f"linnet: {why}.")
    report.note("The base: " + ("one of that shape by a seed, in Q4_0." if chosen.gpu else "SmolLM2's own, in Q4_1."))
    for name in ("torch", "transformers", "peft"):
        report.peer_versions[name] = metadata.version(name)
    return report


def _judge(report: Report, measured: dict[str, dict[str, Any]], *, gpu: bool) -> None:
    """Beside `peft` at its quickest, which on a GPU is compiled: where that did not run, these figures stay open."""
    peer = COMPILED if gpu else PEFT
    speed, memory = _beside(measured, peer) if peer in measured else ({}, {})
    for name in (PLAIN, QUANTISED):
        report.at_least(f"{name}, speed", speed.get(name), 2.0 if gpu else 1.5, f"× {peer}")
    if gpu:
        report.at_most(f"{PLAIN}, peak memory", memory.get(PLAIN), 0.5, f"× {peer}")
    report.at_most(f"{QUANTISED}, peak memory", memory.get(QUANTISED), 0.35 if gpu else 0.6, f"× {peer}")
    if peer not in measured:
        speed, memory = _beside(measured, PEFT)
        ratios = (f"{name} has {speed[name]:.3g} × the speed and {memory[name]:.2g} × the peak" for name in speed)
        report.note(f"Beside {PEFT} uncompiled, which decides no figure: {'; '.join(ratios)}.")
    for name in (PLAIN, QUANTISED):
        pairs = zip(measured[name]["losses"], measured[PEFT]["losses"], strict=True)
        report.at_most(f"{name}, loss, at any step", max(abs(a / b - 1) for a, b in pairs) * 100, 2.0, "% off peft's")


def _beside(measured: dict[str, dict[str, Any]], peer: str) -> tuple[dict[str, float], dict[str, float]]:
    """By how much ours are quicker than a peer, and what share of its memory they take."""
    other, ours = measured[peer], (PLAIN, QUANTISED)
    speed = {name: other["seconds"] / measured[name]["seconds"] for name in ours}
    return speed, {name: measured[name]["peak"] / other["peak"] for name in ours}


def flags(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--gpu", action="store_true", help="on a GPU")


if __name__ == "__main__":
    sys.exit(sample.start(main, {"side": side}, flags))
