"""Training an adapter of rank 8 on every projection of a model of SmolLM2's shape: ours beside `peft`'s.

python bench/lora.py          # on two threads of a CPU, 2 × 256 tokens: ten minutes
python bench/lora.py --gpu    # 8 × 512 tokens in bf16, beside `peft` compiled, and `unsloth` where it is installed
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import sample
from report import Report

RANK, ALPHA = 8, 16.0
CPU, GPU = (2, 256), (8, 512)  # sequences, context
THREADS, WARM_UP, TURNS, AT_ONCE = 2, 1, 6, 2
PLAIN, QUANTISED, PEFT, COMPILED, UNSLOTH = "linnet, f32", "linnet, q4_0", "peft", "peft + compile", "unsloth"


def base_file(folder: str, type: str) -> Path:
    """A model of SmolLM2's shape with weights drawn at random, as a GGUF; gguf-py writes the four bits."""
    from gguf.quants import quantize

    import gguf as gguf_py
    from linnet import gguf
    from linnet.models import build, preset

    path = Path(folder) / f"{type}.gguf"
    if path.exists():
        return path
    config = preset("smollm2-135m")
    plain = gguf.write(config, build(config, seed=0).params(), Path(folder) / "f32.gguf", "bench", 1)
    if type == "f32":
        return plain
    writer = gguf_py.GGUFWriter(path, "llama")
    four, eight = gguf_py.GGMLQuantizationType.Q4_0, gguf_py.GGMLQuantizationType.Q8_0
    with gguf.GGUFFile.open(plain) as file:
        for key in file.metadata:
            if key.startswith("llama."):
                value = file.metadata[key]
                (writer.add_uint32 if isinstance(value, int) else writer.add_float32)(key, value)
        writer.add_string("tokenizer.ggml.model", "none")
        for name, tensor in file.tensors.items():
            if len(tensor.shape) < 2:
                writer.add_tensor(name, tensor.read())
                continue
            kind = eight if name == "token_embd.weight" else four  # as llama.cpp's quantiser does
            writer.add_tensor(name, quantize(tensor.read(), kind), raw_dtype=kind)
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()
        writer.close()
    return path


def tokens(batch: int, ctx: int, device: str = "cpu") -> Any:
    import torch

    return torch.randint(0, 49152, (batch, ctx + 1), generator=torch.Generator().manual_seed(0)).to(device)


def linnet(who: str, device: str, folder: str) -> tuple[Callable[[], Any], dict[str, Any]]:
    """The step that `linnet train lora` makes."""
    from linnet.models import preset
    from linnet.recipes import Lora, LoraOptions
    from linnet.recipes.job import weights_of_layers
    from linnet.train.hardware import choose
    from linnet.train.settings import TrainSettings

    batch, ctx = CPU if device == "cpu" else GPU
    base = base_file(folder, "q4_0" if who == QUANTISED else "f32")
    settings = TrainSettings(batch=batch, device=device, optimizer="adamw", lr=1e-3, weight_decay=0.0)
    weights = weights_of_layers(preset("smollm2-135m"))
    hardware = choose(settings, tokens=batch * ctx, weights=weights)
    recipe = Lora(settings, hardware, LoraOptions(str(base), rank=RANK, alpha=ALPHA))
    recipe.realize()
    recipe.build()
    ids = tokens(batch, ctx, device)
    part = recipe.batch_of(ids[:, :-1], ids[:, 1:], None)
    return lambda: recipe.step(part, 1e-3), {"why": hardware.why}


def peft(who: str, device: str, folder: str) -> tuple[Callable[[], Any], dict[str, Any]]:
    """The loop its manual shows, on a `transformers` model, with the fused AdamW."""
    import torch
    from peft import LoraConfig, get_peft_model

    from linnet.models import preset
    from peer_llama import peer_llama

    batch, ctx = CPU if device == "cpu" else GPU
    dtype = torch.float32 if device == "cpu" else torch.bfloat16
    model = peer_llama(preset("smollm2-135m"), ctx + 1, use_cache=False).to(device, dtype)
    adapter = LoraConfig(r=RANK, lora_alpha=ALPHA, target_modules="all-linear", task_type="CAUSAL_LM")
    peer = get_peft_model(model, adapter)
    return _their_step(peer, torch.compile(peer) if who == COMPILED else peer, tokens(batch, ctx, device)[:, :-1]), {}


def unsloth(who: str, device: str, folder: str) -> tuple[Callable[[], Any], dict[str, Any]]:
    """Its published way, on a model that was written for it from the same shape."""
    from unsloth import FastLanguageModel  # type: ignore[import-not-found]

    from linnet.models import preset
    from peer_llama import peer_llama

    batch, ctx = GPU
    home = Path(folder) / "unsloth"
    if not home.exists():
        peer_llama(preset("smollm2-135m"), ctx + 1).save_pretrained(home)
    model, _ = FastLanguageModel.from_pretrained(str(home), max_seq_length=ctx + 1, load_in_4bit=False)
    targets = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]
    peer = FastLanguageModel.get_peft_model(model, r=RANK, lora_alpha=ALPHA, target_modules=targets, lora_dropout=0)
    return _their_step(peer, peer, tokens(batch, ctx, device)[:, :-1]), {}


def _their_step(model: Any, called: Callable[..., Any], ids: Any) -> Callable[[], Any]:
    import torch

    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    optimizer = torch.optim.AdamW(trained, lr=1e-3, betas=(0.9, 0.95), weight_decay=0.0, fused=True)
    model.train()

    def step() -> None:
        called(input_ids=ids, labels=ids).loss.backward()
        torch.nn.utils.clip_grad_norm_(trained, 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

    return step


SIDES = {PLAIN: linnet, QUANTISED: linnet, PEFT: peft, COMPILED: peft, UNSLOTH: unsloth}


def on_cpu(who: str, folder: str) -> dict[str, Any]:
    """One side: as many steps as each line that comes in says, the seconds of one as a line that goes out."""
    import torch

    from machine import memory_peak

    torch.set_num_threads(THREADS)
    step, facts = SIDES[who](who, "cpu", folder)
    for line in sys.stdin:
        began = time.perf_counter()
        for _ in range(int(line)):
            step()
        print((time.perf_counter() - began) / int(line), flush=True)
    return {**facts, "peak": memory_peak()}


def on_gpu(who: str, folder: str) -> dict[str, Any]:
    """One side: milliseconds of a step, and the peak of torch's allocator."""
    import torch

    step, facts = SIDES[who](who, "cuda", folder)
    for _ in range(8):
        step()
    torch.cuda.synchronize()
    times = []
    for _ in range(12):
        began = time.perf_counter()
        for _ in range(10):
            step()
        torch.cuda.synchronize()
        times.append((time.perf_counter() - began) / 10)
    return {**facts, "seconds": statistics.median(times), "peak": torch.cuda.max_memory_allocated()}


def turns(names: list[str], folder: Path) -> dict[str, dict[str, Any]]:
    """Sides in turns on the same cores, each in a process of its own."""
    with ExitStack() as stack:
        answers = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        sides: dict[str, Any] = {}
        seconds: dict[str, list[float]] = {name: [] for name in names}
        for name in names:
            options = {"who": name, "folder": str(folder)}
            command = sample.command(__file__, "on_cpu", options, answers / name)
            environment = {**os.environ, "OMP_NUM_THREADS": str(THREADS), "OMP_WAIT_POLICY": "PASSIVE"}
            pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
            sides[name] = stack.enter_context(subprocess.Popen(command, text=True, env=environment, **pipes))  # type: ignore[call-overload]
        for turn in range(WARM_UP + TURNS):
            for name, process in sides.items():
                process.stdin.write(f"{AT_ONCE}\n")
                process.stdin.flush()
                took = float(process.stdout.readline())
                if turn >= WARM_UP:
                    seconds[name].append(took)
        for process in sides.values():
            process.stdin.close()
            process.wait()
        found = {name: json.loads((answers / name).read_text()) for name in names}
        return {name: {**found[name], "seconds": statistics.median(seconds[name])} for name in names}


def main(chosen: argparse.Namespace) -> Report:
    report = Report(
        name="lora_gpu" if chosen.gpu else "lora",
        claim=(__doc__ or "").splitlines()[0],
        columns={"who": "", "ms a step": ",.0f", "tok/s": ",.0f", "peak MB": ",.0f"},
    )
    batch, ctx = GPU if chosen.gpu else CPU
    with sample.scratch() as folder:
        for type in ("f32", "q4_0"):
            base_file(str(folder), type)
        if chosen.gpu:
            sample.needs_cuda()
            found = _gpu_sides(folder, report)
        else:
            found = turns([PLAIN, QUANTISED, PEFT], folder)
    for name, facts in found.items():
        report.row(name, facts["seconds"] * 1e3, batch * ctx / facts["seconds"], facts["peak"] / 1e6)
    _judge(report, found, gpu=chosen.gpu)
    report.note(
        f"{batch} × {ctx} tokens a step, rank {RANK} on all seven projections of 30 layers, vocabulary 49,152; forward,"
        " backward, clipping, AdamW. "
        + ("Peak of torch's allocator." if chosen.gpu else "Peak of the process. Sides take turns of two steps.")
    )
    if why := found[PLAIN].get("why"):
        report.note(f"linnet: {why}.")
    return report


def _gpu_sides(folder: Path, report: Report) -> dict[str, dict[str, Any]]:
    found = {}
    for name in (PLAIN, QUANTISED, COMPILED, PEFT, UNSLOTH):
        try:
            found[name] = sample.play(__file__, "on_gpu", {"who": name, "folder": str(folder)})
        except sample.RoleFailedError as error:
            if name != UNSLOTH:
                raise
            report.note(f"unsloth is not among them: {str(error).splitlines()[-1]}")
    return found


def _judge(report: Report, found: dict[str, dict[str, Any]], *, gpu: bool) -> None:
    peer = found[COMPILED if gpu else PEFT]
    for name, least in ((PLAIN, 2.0 if gpu else 1.5), (QUANTISED, 2.0 if gpu else 1.5)):
        report.at_least(f"{name}, speed", peer["seconds"] / found[name]["seconds"], least, "× peft")
    if gpu:
        for name, most in ((PLAIN, 0.5), (QUANTISED, 0.35)):
            report.at_most(f"{name}, peak memory", found[name]["peak"] / peer["peak"], most, "× peft")
    else:
        report.at_most(f"{QUANTISED}, peak memory", found[QUANTISED]["peak"] / peer["peak"], 0.6, "× peft")


def flags(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--gpu", action="store_true", help="on a GPU")


if __name__ == "__main__":
    sys.exit(sample.start(main, {"on_cpu": on_cpu, "on_gpu": on_gpu}, flags))
