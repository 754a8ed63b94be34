"""`--inspect taps,grads,drift@100` costs 3 % of a 3M run on two cores at most, a tenth of wandb.watch(log="all").

A run with `all@100` of 10,000 steps stays below 100 MB of events, and opens as fast as one without. `--gpu` measures
15M, and a looked-at step of 135M, on the GPU that is here. (Not `inspect.py`: Python has a module of that name.)
"""

import argparse
import json
import shutil
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import peers
import sample
from machine import alone
from report import Report

EVERY = 100
LOOKS = 12  # measured
RUN_STEPS = 10_000
GROUPS = frozenset(("taps", "grads", "drift"))
ALL = frozenset(("taps", "gram", "grads", "drift", "regions", "ops"))


def setting(preset_name: str, device: str, batch: int) -> tuple[Any, ...]:
    """A model with its step, as `linnet train` makes them, and batches of random tokens."""
    import torch

    from linnet.data import Batch
    from linnet.models import build, preset
    from linnet.recipes.job import weights_of_layers
    from linnet.train.hardware import choose
    from linnet.train.settings import TrainSettings
    from linnet.train.step import Step

    ctx = 1024 if preset_name == "smollm2-135m" else 256
    config = preset(preset_name, ctx=ctx)
    settings = TrainSettings(batch=batch, device=device)
    hardware = choose(settings, tokens=batch * ctx, weights=weights_of_layers(config), head_size=config.head_size)
    model = build(config, seed=0, device=str(hardware.device))
    model.set_compute_dtype(hardware.dtype)
    step = Step(model, settings, hardware)
    dice = torch.Generator().manual_seed(0)
    ids = torch.randint(0, config.vocab, (batch, ctx + 1), generator=dice).to(hardware.device)
    data = Batch(ids[:, :-1], ids[:, 1:], None, batch * ctx)
    return model, settings, hardware, step, data


def looks(preset_name: str, device: str, batch: int, groups: list[str], folder: str) -> dict[str, Any]:
    """Seconds of plain steps and of those that are looked at, in turn, with all that is done for a look; its bytes."""
    import linnet
    from linnet.train.inspection.inspector import Inspector

    model, settings, hardware, step, data = setting(preset_name, device, batch)
    first = {name: parameter.detach().clone() for name, parameter in model.named_parameters()}
    chosen = frozenset(groups)
    with linnet.start(folder, run_id="looks", system_every=0) as run:
        probe = data.ids_BT[:1] if "gram" in chosen else None
        inspector = Inspector(model, settings, hardware, run, probe=probe, first=first)

        def look(number: int) -> None:
            inspector.count(data)
            inspector.before(chosen, number, data)
            inspector.during(chosen, number, lambda observer: step(data, 1e-3, observer=observer))
            inspector.after(chosen, number)
            inspector.write()

        def both(number: int) -> tuple[float, float, int]:
            seconds = timed(lambda: step(data, 1e-3), hardware.device.type)
            before = run.events_path.stat().st_size
            seconds_looked = timed(lambda: look(number), hardware.device.type)
            inspector.write(wait=True)
            return seconds, seconds_looked, run.events_path.stat().st_size - before

        for number in range(1, 6):
            both(number)  # compiled, captured, warmed up
        with alone():
            plain, looked, sizes = zip(*(both(number) for number in range(6, LOOKS + 6)), strict=True)
        median = statistics.median
        return {"plain": median(plain), "looked": median(looked), "bytes": median(sizes), "why": hardware.why}


def timed(work: Callable[[], object], kind: str) -> float:
    """Seconds until the device has done it."""
    import torch

    if kind == "cuda":
        torch.cuda.synchronize()
    began = time.perf_counter()
    work()
    if kind == "cuda":
        torch.cuda.synchronize()
    return time.perf_counter() - began


def watched(preset_name: str, device: str, batch: int, packages: str, folder: str) -> dict[str, Any]:
    """Seconds of a plain training loop, without W&B, and where it watches every step."""
    sys.path.append(packages)  # behind our own: torch is ours
    import os

    os.environ |= {"WANDB_MODE": "offline", "WANDB_SILENT": "true", "WANDB_DIR": folder, "WANDB_CONSOLE": "off"}
    import torch
    import wandb

    model, _, hardware, _, data = setting(preset_name, device, batch)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=True)
    run = wandb.init(project="bench", settings=wandb.Settings(x_disable_stats=True))

    def step() -> None:
        loss = model.loss(data.ids_BT, data.targets_BT)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        run.log({"loss": loss.item()})

    def several(count: int) -> list[float]:
        return [timed(step, hardware.device.type) for _ in range(count)]

    several(4)
    plain = several(LOOKS)
    run.watch(model, log="all", log_freq=1)
    # The hooks for weights wait for a call of the model itself, which `loss` is not: as in a loop that calls it.
    real = model.loss
    model.forward = lambda *inputs: real(*inputs)
    step_by_call = model.__call__

    def watched_step() -> None:
        loss = step_by_call(data.ids_BT, data.targets_BT)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        run.log({"loss": loss.item()})

    for _ in range(4):
        watched_step()
    looked = [timed(watched_step, hardware.device.type) for _ in range(LOOKS)]
    run.finish()
    return {"plain": statistics.median(plain), "looked": statistics.median(looked)}


def opened(folder: str, name: str) -> dict[str, Any]:
    """Seconds in which a run's metrics are read, and all that a board keeps of it; the first time, and again."""
    import linnet
    from linnet.board.journal import Journal
    from linnet.runs.metrics import Metrics

    run = linnet.open(Path(folder) / name)
    shutil.rmtree(run.path / ".cache", ignore_errors=True)
    found = {}
    for moment in ("first", "again"):
        began = time.perf_counter()
        journal = Journal(run)
        metrics = Metrics(run.events_path, listener=journal)
        journal.catch_up(60)
        found[moment] = time.perf_counter() - began
        assert len(metrics["loss"]) == RUN_STEPS
    began = time.perf_counter()
    seen = run.inspection()
    found["inside"] = time.perf_counter() - began
    found["maps"] = len(seen.taps)
    return found | answered(Path(folder), name) | drawn(Path(folder), name)


def answered(folder: Path, name: str) -> dict[str, float]:
    """Seconds in which the server of the board answers: the run's page, its page of the inside, and a map there."""
    from starlette.datastructures import QueryParams

    from linnet.board.web import detail, inside_answers
    from linnet.board.web.board import WebBoard
    from linnet.board.web.parameters import Parameters
    from linnet.board.web.safe_store import SafeStore

    board, found = WebBoard(SafeStore(folder)), {}
    shown = Parameters(QueryParams("table=taps&figure=std&name=resid_post_block"))
    questions: dict[str, Callable[[], object]] = {
        "page": lambda: detail.detail(board, name),
        "contents": lambda: inside_answers.contents(board, name),
        "map": lambda: inside_answers.heat_map(board, name, shown) if name == "all" else None,
    }
    for moment, ask in questions.items():
        began = time.perf_counter()
        ask()
        found[moment] = time.perf_counter() - began
    board.close()
    return found


def drawn(folder: Path, name: str) -> dict[str, float]:
    """Seconds in which the board in the terminal has drawn a run's charts, and its inside; the longest frame there."""
    from linnet.board.terminal.reader import Reader
    from linnet.board.terminal.state import Board
    from linnet.board.terminal.views import screen
    from linnet.runs import RunStore

    store, found = RunStore(folder), {"frame": 0.0}
    board = Board(store, [store.find(name).path])
    reader = Reader(board, lambda: None)
    for view in ("metrics", "inside"):
        board.show(view)
        began = time.perf_counter()
        while True:
            reader.read_once()
            drawing = time.perf_counter()
            screen.whole(board, 80, 24)
            found["frame"] = max(found["frame"], time.perf_counter() - drawing)
            if reader.idle() and board.watched is not None:
                break
        found[f"{view} tab"] = time.perf_counter() - began
    board.close()
    return found


def write_runs(folder: Path, look: Path) -> dict[str, int]:
    """Two runs of 10,000 steps, without looks and with those of a real one at every hundredth; their bytes."""
    lines = [json.loads(line) for line in look.read_text().splitlines()]
    last = max(line["step"] for line in lines if line["kind"] == "tap")
    looks_of = [line for line in lines if line.get("step") == last]
    sizes = {}
    for name, chosen in (("plain", []), ("all", looks_of)):
        run_dir = folder / name
        run_dir.mkdir()
        about = json.loads((look.parent / "run.json").read_text())
        (run_dir / "run.json").write_text(json.dumps({**about, "created_at": time.time() - RUN_STEPS / 10}))
        with (run_dir / "events.jsonl").open("w") as out:
            out.write(json.dumps(lines[0]) + "\n")
            for step in range(1, RUN_STEPS + 1):
                if step == 1 or step % EVERY == 0:
                    out.writelines(json.dumps({**line, "step": step}, separators=(",", ":")) + "\n" for line in chosen)
                plain = {"kind": "step", "phase": "train", "t": step / 10, "step": step, "loss": 8 - step / 2000}
                plain |= {"lr": 1e-3, "grad_norm": 0.5 + step % 7 / 10, "tokens": 2048, "wall_us": 100_000 + step}
                out.write(json.dumps(plain, separators=(",", ":")) + "\n")
            end = {"kind": "run_end", "t": RUN_STEPS / 10, "reason": "completed", "final_step": RUN_STEPS}
            out.write(json.dumps(end, separators=(",", ":")) + "\n")
        sizes[name] = (run_dir / "events.jsonl").stat().st_size
    return sizes


def main(chosen: argparse.Namespace) -> Report:
    """Measure on the CPU, or on the GPU that is here."""
    report = Report(
        name="inspection",
        claim=(__doc__ or "").split("\n")[0],
        columns={"what": "", "plain ms": ".1f", "looked at ms": ".1f", "factor": ".2f", f"share @{EVERY}": ".2%"},
    )
    device = "cuda" if chosen.gpu else "cpu"
    name, batch = ("nano", 8) if chosen.gpu else ("demo", 8)
    limit = 0.02 if chosen.gpu else 0.03
    if chosen.gpu:
        sample.needs_cuda()
    with sample.scratch() as folder:
        share = measured(report, f"{name}, taps, grads, drift", name, device, batch, GROUPS, folder / "a")
        report.at_most(f"{name} ({device}): cost of taps,grads,drift@{EVERY}", 100 * share, 100 * limit, "%")
        measured(
            report, f"{name}, grads, drift (what W&B looks at)", name, device, batch, GROUPS - {"taps"}, folder / "b"
        )
        measured(report, f"{name}, all", name, device, batch, ALL, folder / "c")
        if chosen.gpu:
            measured(report, "smollm2-135m, taps, grads, drift", "smollm2-135m", device, 16, GROUPS, folder / "d")
            report.at_most("a looked-at step of 135M", float(report.rows[-1][3] or 0), 5, "× a plain one")
        compare(report, name, device, batch, folder, share)
        sizes = write_runs(folder, folder / "c/looks/events.jsonl")
        report.at_most(f"events of {RUN_STEPS:,} steps with all@{EVERY}", sizes["all"] / 1e6, 100, "MB")
        reading(report, folder, sizes)
    return report


def measured(
    report: Report, what: str, name: str, device: str, batch: int, groups: frozenset[str], folder: Path
) -> float:
    """A line of the report; the share of a run's time that the looks take."""
    folder.mkdir()

    def options() -> dict[str, Any]:
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        shape = {"preset_name": name, "device": device, "batch": batch}
        return {**shape, "groups": sorted(groups), "folder": str(folder)}

    found = sample.take(__file__, "looks", options)
    if found.disturbed:
        report.disturbed.append(what)
    plain, looked = found.median("plain"), found.median("looked")
    share = (looked - plain) / (EVERY * plain)
    report.row(what, plain * 1e3, looked * 1e3, looked / plain, share)
    return share


def compare(report: Report, name: str, device: str, batch: int, folder: Path, share: float) -> None:
    """The same cadence by W&B, in a loop of its own."""
    with report.peer("wandb") as python:
        if python is None:
            return
        packages = next((python.parent.parent / "lib").glob("python*/site-packages"))
        shape = {"preset_name": name, "device": device, "batch": batch}
        found = sample.take(
            __file__, "watched", lambda: {**shape, "packages": str(packages), "folder": str(folder)}, repeats=2
        )
        if found.disturbed:
            report.disturbed.append("wandb.watch")
        plain, looked = found.median("plain"), found.median("looked")
        theirs = (looked - plain) / (EVERY * plain)
        report.row('wandb.watch(log="all"), offline', plain * 1e3, looked * 1e3, looked / plain, theirs)
        report.at_least("against wandb.watch, of a run's time", theirs / max(share, 1e-9), 10, "× cheaper")
    report.note(f"wandb {peers.VERSIONS['wandb']} logs histograms of weights and gradients; no activations, no drift.")


def reading(report: Report, folder: Path, sizes: dict[str, int]) -> None:
    """How long such runs take to open."""
    found = {
        name: sample.take(__file__, "opened", lambda name=name: {"folder": str(folder), "name": name})  # type: ignore[misc]
        for name in sizes
    }
    first = {name: samples.median("first") for name, samples in found.items()}
    again = {name: samples.median("again") for name, samples in found.items()}
    report.at_most("opening it, the first time, beyond one without looks", first["all"] - first["plain"], 0.2, "s")
    report.at_most("opening it again, beyond one without looks", again["all"] - again["plain"], 0.1, "s")
    page = {name: samples.median("page") for name, samples in found.items()}
    report.at_most("its page in the browser, beyond one without looks", page["all"] - page["plain"], 0.2, "s")
    report.note(
        f"The board's server answers for the run's page in {page['plain'] * 1e3:.0f} and {page['all'] * 1e3:.0f} ms,"
        f" for its inside in {found['all'].median('contents') * 1e3:.0f} ms the first time, for a heat map there in"
        f" {found['all'].median('map') * 1e3:.0f} ms."
    )
    screens = {name: samples.median("metrics tab") for name, samples in found.items()}
    report.at_most("its charts in the terminal, beyond one without looks", screens["all"] - screens["plain"], 0.2, "s")
    report.note(
        f"The board in the terminal has the run's charts in {screens['plain'] * 1e3:.0f} and {screens['all'] * 1e3:.0f}"
        f" ms, its inside in {found['all'].median('inside tab') * 1e3:.0f} ms, of which it shows what it has read; no"
        f" frame takes longer than {found['all'].median('frame') * 1e3:.0f} ms."
    )
    report.note(
        f"{RUN_STEPS:,} steps: {sizes['plain'] / 1e6:.1f} MB without looks, {sizes['all'] / 1e6:.1f} MB with"
        f" all@{EVERY}; a board reads them in {first['plain'] * 1e3:.0f} and {first['all'] * 1e3:.0f} ms, again in"
        f" {again['plain'] * 1e3:.0f} and {again['all'] * 1e3:.0f} ms; `Run.inspection()` takes"
        f" {found['all'].median('inside') * 1e3:.0f} ms."
    )


def flags(parser: argparse.ArgumentParser) -> None:
    """Which device."""
    parser.add_argument("--gpu", action="store_true", help="15M and 135M on a GPU")


if __name__ == "__main__":
    sys.exit(sample.start(main, {"looks": looks, "watched": watched, "opened": opened}, flags))
