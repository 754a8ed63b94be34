"""`--inspect taps,grads,drift@100` costs 3 % of a 3M run on two cores at most; wandb.watch(log="all") beside it.

A run with `all@100` of 10,000 steps stays below 100 MB of events, and opens as fast as one without. `--gpu` measures
15M, and a looked-at step of 135M, on the GPU that is here, beside W&B where `--packages` has it; `--gpu --json -`
prints that as JSON alone. (Not
`inspect.py`: a script's folder is searched first, and what asks for Python's own `inspect`, as torch does, would find
it.)
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

import inspection_runs
import peers
import sample
from report import Report

_WATCHED = "grads (gradients and weights, as W&B)"
_SET = "taps, grads, drift"
EVERY = 100
LOOKS, WARM_UP = 12, 4  # rounds that are measured, and before them
BEHIND = 9  # plain steps behind a look, on a GPU
RUN_STEPS = 10_000
GROUPS = frozenset(("taps", "grads", "drift"))
ALIKE = frozenset(("grads",))
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
    settings = TrainSettings(batch=batch, device=device, graph="on" if device == "cuda" else "auto")
    hardware = choose(settings, tokens=batch * ctx, weights=weights_of_layers(config), head_size=config.head_size)
    model = build(config, seed=0, device=str(hardware.device))
    model.set_compute_dtype(hardware.dtype)
    step = Step(model, settings, hardware)
    dice = torch.Generator().manual_seed(0)
    ids = torch.randint(0, config.vocab, (batch, ctx + 1), generator=dice).to(hardware.device)
    data = Batch(ids[:, :-1], ids[:, 1:], None, batch * ctx)
    return model, settings, hardware, step, data


def looks(preset_name: str, device: str, batch: int, sets: dict[str, list[str]], folder: str) -> dict[str, Any]:
    """Seconds of a plain step, what a look adds to one, for each of some sets of groups, and the bytes that it writes.

    What a look adds is its step less the plain one before it, both behind a step that is not timed: after a look at
    everything a step waits for memory that was given back. On a GPU the plain steps behind a look belong to it, for its
    figures arrive and are written while those run: what they take longer than plain ones is a part of its price.
    """
    import torch

    import linnet
    from linnet.train.inspection.inspector import Inspector

    model, settings, hardware, step, data = setting(preset_name, device, batch)
    first = {name: parameter.detach().clone() for name, parameter in model.named_parameters()}
    behind = BEHIND if hardware.device.type == "cuda" else 0
    plain: list[float] = []
    added: dict[str, list[float]] = {name: [] for name in sets}
    sizes: dict[str, list[int]] = {name: [] for name in sets}
    with linnet.start(folder, run_id="looks", system_every=0) as run:
        inspector = Inspector(model, settings, hardware, run, probe=data.ids_BT[:1], first=first)

        def plainly(count: int) -> None:
            for _ in range(count):
                inspector.count(data)
                step(data, 1e-3)
                inspector.write()

        def look(groups: frozenset[str], number: int) -> None:
            inspector.count(data)
            inspector.before(groups, number, data)
            inspector.during(groups, number, lambda observer: step(data, 1e-3, observer=observer))
            inspector.after(groups, number)
            inspector.write()
            plainly(behind)
            inspector.write(wait=True)

        for number in range(1, LOOKS + WARM_UP + 1):
            for at, (name, groups) in enumerate(sets.items()):
                plainly(1)
                each = timed(lambda: plainly(1 + behind), hardware.device.type) / (1 + behind)
                plainly(1)
                before = run.events_path.stat().st_size
                chosen, step_number = frozenset(groups), number * len(sets) + at
                seconds = timed(lambda: look(chosen, step_number), hardware.device.type)  # noqa: B023 (called at once)
                if number > WARM_UP:  # compiled, captured, warmed up
                    plain.append(each)
                    added[name].append(seconds - (1 + behind) * each)
                    sizes[name].append(run.events_path.stat().st_size - before)
    where = torch.cuda.get_device_name() if hardware.device.type == "cuda" else hardware.device.type
    found: dict[str, Any] = {"plain": statistics.median(plain), "why": f"{where}, torch {torch.__version__}"}
    found["why"] += f"; {hardware.why}"
    for name in sets:
        found |= {f"{name} added": statistics.median(added[name]), f"{name} bytes": statistics.median(sizes[name])}
        found[f"{name} noise"] = _noise(added[name])
    return found


def _noise(values: list[float]) -> float:
    """How far their median may be off: two standard errors."""
    middle = statistics.median(values)
    spread = 1.4826 * statistics.median(abs(value - middle) for value in values)
    return float(2 * 1.2533 * spread / len(values) ** 0.5)


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
    """Seconds of a step in a plain training loop, and of one that W&B looks at."""
    sys.path.append(packages)  # behind our own: torch is ours
    import os

    os.environ |= {"WANDB_MODE": "offline", "WANDB_SILENT": "true", "WANDB_DIR": folder, "WANDB_CONSOLE": "off"}
    import torch
    import wandb

    model, _, hardware, _, data = setting(preset_name, device, batch)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=True)
    run = wandb.init(project="bench", settings=wandb.Settings(x_disable_stats=True))

    # The hooks for weights wait for a call of the model itself, which `loss` is not: as in a loop that calls it.
    real = model.loss
    model.forward = lambda *inputs: real(*inputs)

    def step() -> None:
        loss = model(data.ids_BT, data.targets_BT)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        run.log({"loss": loss.item()})

    run.watch(model, log="all", log_freq=4)  # of four steps two are not timed, as in `looks`
    plain, added = [], []
    for number in range(WARM_UP + LOOKS):
        step()
        each = timed(step, hardware.device.type)
        step()
        seconds = timed(step, hardware.device.type)
        if number >= WARM_UP:
            plain.append(each)
            added.append(seconds - each)
    run.finish()
    return {"plain": statistics.median(plain), "added": statistics.median(added), "noise": _noise(added)}


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
    looks_of = [line for line in lines if line.get("step") == last]  # of `all`, the last set
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
        name="inspection_gpu" if chosen.gpu else "inspection",
        claim=(__doc__ or "").split("\n")[0],
        columns={"what": "", "plain ms": ".1f", "looked at ms": ".1f", "factor": ".2f", f"share @{EVERY}": ".2%"},
    )
    if chosen.gpu and not chosen.small:
        sample.needs_cuda()
    with sample.scratch() as folder:
        if chosen.gpu:
            on_a_gpu(report, chosen.small, folder, chosen.packages)
        else:
            on_a_cpu(report, chosen.small, folder)
    return report


def on_a_gpu(report: Report, small: bool, folder: Path, packages: Path | None) -> None:
    """What a look costs of 15M, beside the peer's where its package was brought along, and of 135M."""
    device = "cpu" if small else "cuda"
    for preset_name, what, batch in (("nano", "15M", 8), ("smollm2-135m", "135M", 16)):
        shape = ("tiny", 2) if small else (preset_name, batch)
        sets = {_SET: GROUPS}
        if what == "15M" and packages is not None:
            sets[_WATCHED] = ALIKE
        shares, factors = measured(report, what, *shape, device, sets, folder / what)
        if what == "15M" and packages is not None:
            ours, like_theirs = seconds_of_looks(report, shares)
            found = sample.Samples([sample.play(__file__, "watched", _peer(*shape, device, packages, folder))], False)
            compare(report, found, ours, like_theirs)
        if what == "135M":
            report.at_most("a looked-at step of 135M", factors[_SET], 5, "× a plain one")
    report.at_most(
        f"15M: cost of taps,grads,drift@{EVERY} of whole runs", 100 * of_whole_runs(report, small, folder), 2, "%"
    )


def of_whole_runs(report: Report, small: bool, folder: Path) -> float:
    """The share that looks add to a run's time: the best of two, by turns."""
    looks_of = {inspection_runs.PLAIN: "", inspection_runs.LOOKED: f"{','.join(sorted(GROUPS))}@{EVERY}"}
    found: dict[str, list[float]] = {name: [] for name in looks_of}
    for turn in range(2):
        for name, inspect in looks_of.items():
            place = folder / f"{name} {turn}"
            place.mkdir()
            options = {"folder": str(place), "inspect": inspect, "small": small}
            found[name].append(sample.play(__file__, "a_run", options)["seconds"])
    plain, looked = (min(each) for each in found.values())
    report.row(
        f"15M, whole runs, a look each {EVERY} steps", plain * 1e3, looked * 1e3, looked / plain, looked / plain - 1
    )
    return looked / plain - 1


def on_a_cpu(report: Report, small: bool, folder: Path) -> None:
    """What a look costs of 3M, beside the peer's; how large such a run is, and how soon it is open."""
    shape = ("tiny", 2) if small else ("demo", 8)
    sets = {_SET: GROUPS, "grads, drift": GROUPS - {"taps"}, _WATCHED: ALIKE, "all": ALL}
    shares, _ = measured(report, "3M", *shape, "cpu", sets, folder / "3M")
    report.at_most(f"3M: cost of taps,grads,drift@{EVERY}", 100 * shares[_SET], 3, "%")
    ours, like_theirs = seconds_of_looks(report, shares)
    with report.peer("wandb") as python:
        found = None
        if python is not None:
            packages = next((python.parent.parent / "lib").glob("python*/site-packages"))
            found = sample.take(__file__, "watched", lambda: _peer(*shape, "cpu", packages, folder), repeats=2)
        compare(report, found, ours, like_theirs)
    sizes = write_runs(folder, folder / "3M/looks/events.jsonl")
    report.at_most(f"events of {RUN_STEPS:,} steps with all@{EVERY}", sizes["all"] / 1e6, 100, "MB")
    reading(report, folder, sizes)


def measured(
    report: Report, what: str, name: str, batch: int, device: str, sets: dict[str, frozenset[str]], folder: Path
) -> tuple[dict[str, float], dict[str, float]]:
    """A line of the report for each set: the share of a run's time that its looks take, and how long a look is."""

    def options() -> dict[str, Any]:
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        shape = {"preset_name": name, "device": device, "batch": batch, "folder": str(folder)}
        return {**shape, "sets": {label: sorted(groups) for label, groups in sets.items()}}

    if device == "cuda":  # nobody else is on it
        found = sample.Samples([sample.play(__file__, "looks", options(), None)], disturbed=False)
    else:
        found = sample.take(__file__, "looks", options, repeats=2)
    if found.disturbed:
        report.disturbed.append(what)
    plain, shares, factors = found.median("plain"), {}, {}
    for label in sets:
        # Where a look cannot be told from noise, the noise is what it may cost.
        added = max(found.median(f"{label} added"), found.median(f"{label} noise"))
        shares[label], factors[label] = added / (EVERY * plain), 1 + added / plain
        report.row(f"{what}, {label}", plain * 1e3, (plain + added) * 1e3, factors[label], shares[label])
    kilobytes = ", ".join(f"{label}: {found.median(f'{label} bytes') / 1e3:.0f} KB" for label in sets)
    report.note(f"{what} ({name}, {batch} sequences): {found.answers[0]['why']}. A look writes {kilobytes}.")
    return shares, factors


def seconds_of_looks(report: Report, shares: dict[str, float]) -> tuple[float, float]:
    """Seconds of a look at everything, and at what W&B looks at; the plain step is that of the report's first line."""
    plain = float(report.rows[0][1] or 0) / 1e3
    return EVERY * shares[_SET] * plain, EVERY * shares[_WATCHED] * plain


def _peer(name: str, batch: int, device: str, packages: Path, folder: Path) -> dict[str, Any]:
    shape = {"preset_name": name, "device": device, "batch": batch}
    return {**shape, "packages": str(packages), "folder": str(folder)}


def compare(report: Report, found: sample.Samples | None, ours: float, like_theirs: float) -> None:
    """The same cadence by W&B, in a loop of its own; its step is another, so what is compared are seconds a look."""
    whole, alike = (f"wandb.watch against {name}, seconds a look" for name in (_SET, _WATCHED))
    if found is None:
        report.at_least(whole, None, 10, "×")
        report.at_least(alike, None, 10, "×")
        return
    if found.disturbed:
        report.disturbed.append("wandb.watch")
    plain, theirs = found.median("plain"), found.median("added")
    looked = plain + theirs
    report.row('wandb.watch(log="all"), offline', plain * 1e3, looked * 1e3, looked / plain, theirs / (EVERY * plain))
    report.at_least(whole, theirs / ours, 10, "×")
    report.at_least(alike, theirs / like_theirs, 10, "×")
    report.note(
        f"wandb {peers.VERSIONS['wandb']} logs histograms of weights and gradients; no activations, no updates, no"
        f" heads, no drift. Its look takes {1e3 * theirs:.0f} ms, give or take {1e3 * found.median('noise'):.0f}, ours"
        f" {1e3 * ours:.0f} ms; ours at gradients, updates and weights {1e3 * like_theirs:.0f} ms."
    )


def reading(report: Report, folder: Path, sizes: dict[str, int]) -> None:
    """How long such runs take to open."""
    found = {
        name: sample.take(__file__, "opened", lambda name=name: {"folder": str(folder), "name": name}, repeats=2)  # type: ignore[misc]
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
    parser.add_argument("--gpu", action="store_true", help="15M and 135M on a GPU; no peer, no network")
    parser.add_argument(
        "--packages", type=Path, metavar="DIR", help="with --gpu: a folder with wandb, as pip's --target made it"
    )
    parser.add_argument("--small", action="store_true", help="a tiny model on a CPU: to try the script, not to measure")


if __name__ == "__main__":
    sys.exit(
        sample.start(
            main, {"looks": looks, "watched": watched, "opened": opened, "a_run": inspection_runs.a_run}, flags
        )
    )
