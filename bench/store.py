"""Data that takes long to write, kept under `.data/` from one benchmark run to the next.

What Linnet wrote is written anew when its run-folder code has changed; what a peer wrote stays as long as
its version does. Peers' data goes in by their own bulk means, which leave the same files as logging does.
"""

import hashlib
import os
import shutil
import sys
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import aim_storage
import peers
import sample
import workload
import writers

_CHUNK = 50_000
_DISTINCT = 1000  # runs of `many` that differ
_THE_RUN = {"run.json", "events.jsonl", "flow.json", "weights", "state", "artifacts"}


def linnet(script: str, runs: int, steps: int, scalars: int = 5) -> Path:
    """A runs folder written by Linnet: `runs` runs of `steps` steps of five scalars, or of two."""
    name = "linnet" if scalars == 5 else f"linnet_{scalars}"
    return _kept(script, name, _linnet_fingerprint(), runs, steps, None)


def sweep(script: str, runs: int, steps: int) -> Path:
    """A grid by Linnet: runs of different settings, with five scalars a step and a held-out loss every fiftieth."""
    return _kept(script, "linnet_sweep", _linnet_fingerprint(), runs, steps, None)


def spiked(script: str, steps: int) -> Path:
    """A run by Linnet with one metric, in which single steps stand out (`workload.SPIKES`)."""
    return _kept(script, "linnet_spiked", _linnet_fingerprint(), 1, steps, None)


def six(script: str, runs: int, steps: int) -> Path:
    """Runs by Linnet with six metrics each."""
    return _kept(script, "linnet_six", _linnet_fingerprint(), runs, steps, None)


def many(script: str, runs: int, steps: int) -> Path:
    """As many runs as are wanted, of a thousand that `sweep` wrote: each has folder and manifest of its own."""
    sweep(script, _DISTINCT, steps)
    return _kept(script, "linnet_many", _linnet_fingerprint(), runs, steps, None)


def peer(script: str, name: str, runs: int, steps: int, python: Path) -> Path:
    """The same data as the peer keeps it."""
    return _kept(script, name, peers.VERSIONS[name], runs, steps, python)


def peer_spiked(script: str, name: str, steps: int, python: Path) -> Path:
    """What `spiked` gives, as the peer keeps it."""
    return _kept(script, f"{name}_spiked", peers.VERSIONS[name], 1, steps, python)


def _kept(script: str, name: str, version: str, runs: int, steps: int, python: Path | None) -> Path:
    group = sample.DATA / f"{name}-{runs}x{steps}"
    folder = group / version
    if not folder.exists():
        shutil.rmtree(group, ignore_errors=True)
        print(f"writing {runs} x {steps} steps with {name}", file=sys.stderr, flush=True)
        unfinished = group / "unfinished"
        unfinished.mkdir(parents=True)
        options = {"folder": str(unfinished), "runs": runs, "steps": steps}
        sample.play(script, f"fill_{name}", options, python)
        unfinished.rename(folder)
    return folder


def forget_derived(root: Path) -> None:
    """Remove from a runs folder all that is not the run itself: every cache, wherever it stands."""
    for entry in [*root.iterdir(), *root.glob("*/*")]:
        if entry.parent == root and (entry / "events.jsonl").exists():
            continue
        if entry.parent != root and entry.name in _THE_RUN:
            continue
        if entry.is_dir():
            shutil.rmtree(entry)
        else:
            entry.unlink(missing_ok=True)


def megabytes(root: Path) -> float:
    """What a folder takes on disk, by the sizes of its files."""
    return sum(file.stat().st_size for file in root.rglob("*") if file.is_file()) / 1e6


def _linnet_fingerprint() -> str:
    import linnet.runs

    digest = hashlib.sha256()
    for source in sorted(Path(linnet.runs.__file__).parent.rglob("*.py")):
        digest.update(source.read_bytes())
    return digest.hexdigest()[:12]


def fill_linnet(folder: str, runs: int, steps: int) -> dict[str, Any]:
    """Through `linnet.start` and `log`, as anyone would."""
    for _ in range(runs):
        with writers.linnet(Path(folder)) as log:
            for step, row in workload.walk(steps):
                log(step, row)
    return {}


def fill_linnet_2(folder: str, runs: int, steps: int) -> dict[str, Any]:
    """The same with a loss and a learning rate only."""
    import linnet

    for _ in range(runs):
        with linnet.start(Path(folder), arch="bench", system_every=0) as run:
            for step, row in workload.walk(steps):
                run.log(step, loss=row[0], lr=row[1])
    return {}


def fill_linnet_sweep(folder: str, runs: int, steps: int) -> dict[str, Any]:
    """Five rates, four widths, and as many seeds as it takes; what comes of them depends on all three."""
    import linnet

    for number in range(runs):
        lr, width, seed = 10.0 ** -(1 + number % 5), 64 << (number // 5 % 4), number // 20
        quality = 1 + (number * 7919 % runs) / runs
        config = {"lr": lr, "seed": seed, "optimizer": {"name": "adamw", "beta": 0.9}, "batch": 32, "corpus": "books"}
        tags = ["base"] if number % 3 else ["base", "third"]
        with linnet.start(
            Path(folder),
            arch="bench",
            experiment="grid",
            group=f"lr{lr:g}",
            tags=tags,
            config=config,
            model={"d_model": width, "n_layers": 4},
            total_steps=steps,
            system_every=0,
        ) as run:
            for step, (loss, rate, grad_norm, tokens_per_s, acc) in workload.walk(steps):
                run.log(
                    step, loss=loss * quality, lr=rate * lr, grad_norm=grad_norm, tokens_per_s=tokens_per_s, acc=acc
                )
                if step % 50 == 0:
                    run.eval(step, "validation", loss=loss * 1.05)
    return {}


def fill_linnet_many(folder: str, runs: int, steps: int) -> dict[str, Any]:
    """Manifests with other ids, streams by hard links: to log ten thousand runs takes the better part of an hour."""
    sources = sorted((sample.DATA / f"linnet_sweep-{_DISTINCT}x{steps}" / _linnet_fingerprint()).glob("*/run.json"))
    for number in range(runs):
        source = sources[number % len(sources)].parent
        home = Path(folder) / f"{source.name}-{number // len(sources)}"
        home.mkdir()
        (home / "events.jsonl").hardlink_to(source / "events.jsonl")
        manifest = (source / "run.json").read_text()
        (home / "run.json").write_text(manifest.replace(f'"run_id": "{source.name}"', f'"run_id": "{home.name}"'))
    return {}


def fill_linnet_spiked(folder: str, runs: int, steps: int) -> dict[str, Any]:
    """A loss with spikes."""
    import linnet

    with linnet.start(Path(folder), arch="bench", system_every=0) as run:
        for step, loss in workload.spiked(steps):
            run.log(step, loss=loss)
    return {}


def fill_linnet_six(folder: str, runs: int, steps: int) -> dict[str, Any]:
    """The five scalars and one more, each run at a level of its own."""
    import linnet

    for number in range(runs):
        level = 1 + number / runs
        with linnet.start(Path(folder), arch="bench", system_every=0, config={"level": level}) as run:
            for step, (loss, lr, grad_norm, tokens_per_s, acc) in workload.walk(steps):
                run.log(
                    step,
                    loss=loss * level,
                    lr=lr * level,
                    grad_norm=grad_norm * level,
                    tokens_per_s=tokens_per_s / level,
                    acc=acc / level,
                    step_seconds=grad_norm / level,
                )
    return {}


def _named(steps: int) -> Iterator[tuple[int, dict[str, float]]]:
    for step, row in workload.walk(steps):
        yield step, dict(zip(workload.NAMES, row, strict=True))


def _spikes(steps: int) -> Iterator[tuple[int, dict[str, float]]]:
    for step, loss in workload.spiked(steps):
        yield step, {"loss": loss}


def fill_trackio(folder: str, runs: int, steps: int) -> dict[str, Any]:
    """Through its own `bulk_log`, which is what its logging thread calls."""
    for run in range(runs):
        _to_trackio(folder, run, steps, _named(steps))
    return {}


def fill_trackio_spiked(folder: str, runs: int, steps: int) -> dict[str, Any]:
    """The loss with spikes, likewise."""
    _to_trackio(folder, 0, steps, _spikes(steps))
    return {}


def _to_trackio(folder: str, run: int, steps: int, rows: Iterator[tuple[int, dict[str, float]]]) -> None:
    os.environ["TRACKIO_DIR"] = folder
    from trackio.sqlite_storage import SQLiteStorage

    began = datetime(2026, 5, 31, tzinfo=UTC)
    chunk: list[tuple[int, dict[str, float]]] = []
    for step, row in rows:
        chunk.append((step, row))
        if len(chunk) == _CHUNK or step == steps:
            SQLiteStorage.bulk_log(
                "bench",
                f"run-{run:04d}",
                [row for _, row in chunk],
                steps=[step for step, _ in chunk],
                timestamps=[(began + timedelta(milliseconds=step)).isoformat() for step, _ in chunk],
                log_ids=[f"{run:08x}{step:024x}" for step, _ in chunk],
                config={"seed": run},
            )
            chunk = []


def fill_tensorboard(folder: str, runs: int, steps: int) -> dict[str, Any]:
    """Its own event records by its own record writer, less the thread and the reopening of the file."""
    for run in range(runs):
        _to_tensorboard(folder, run, _named(steps))
    return {}


def fill_tensorboard_spiked(folder: str, runs: int, steps: int) -> dict[str, Any]:
    """The loss with spikes, likewise."""
    _to_tensorboard(folder, 0, _spikes(steps))
    return {}


def _to_tensorboard(folder: str, run: int, rows: Iterator[tuple[int, dict[str, float]]]) -> None:
    from tensorboard.compat.proto.event_pb2 import Event
    from tensorboard.compat.proto.summary_pb2 import Summary
    from tensorboard.summary.writer.record_writer import RecordWriter

    home = Path(folder) / f"run-{run:04d}"
    home.mkdir()
    with (home / f"events.out.tfevents.{1780185600 + run}.bench.0.0").open("wb") as file:
        out = RecordWriter(file)
        out.write(Event(wall_time=1780185600.0, file_version="brain.Event:2").SerializeToString())
        for step, row in rows:
            values = [Summary.Value(tag=tag, simple_value=value) for tag, value in row.items()]
            event = Event(wall_time=1780185600 + step / 1000, step=step, summary=Summary(value=values))
            out.write(event.SerializeToString())


def fill_aim(folder: str, runs: int, steps: int) -> dict[str, Any]:
    """Through aim's own container, many values at a time; `compare_aim` shows that `track` leaves the same."""
    for _ in range(runs):
        aim_storage.fill(folder, _named(steps), steps)
    return {}


def fill_aim_spiked(folder: str, runs: int, steps: int) -> dict[str, Any]:
    """The loss with spikes, likewise."""
    aim_storage.fill(folder, _spikes(steps), steps)
    return {}


def compare_aim() -> dict[str, Any]:
    """Of some steps, whether aim keeps and shows the same when it was given them in batches."""
    return aim_storage.compared(_named(aim_storage.COMPARED_STEPS))


ROLES: dict[str, Callable[..., dict[str, Any]]] = {
    "fill_linnet": fill_linnet,
    "fill_linnet_2": fill_linnet_2,
    "fill_linnet_sweep": fill_linnet_sweep,
    "fill_linnet_many": fill_linnet_many,
    "fill_linnet_spiked": fill_linnet_spiked,
    "fill_linnet_six": fill_linnet_six,
    "fill_trackio": fill_trackio,
    "fill_trackio_spiked": fill_trackio_spiked,
    "fill_tensorboard": fill_tensorboard,
    "fill_tensorboard_spiked": fill_tensorboard_spiked,
    "fill_aim": fill_aim,
    "fill_aim_spiked": fill_aim_spiked,
    "compare_aim": compare_aim,
}
