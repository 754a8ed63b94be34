"""`run.image` of 256×256 costs the training loop at most 1 ms, whatever the disk does."""

import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import sample
from report import Report

IMAGES = 300
SIDE = 256
STEP_SECONDS = 0.005  # between two images the loop waits for its device
SLOW_SECONDS = 0.2  # that the slow disk takes for each file
CASES = {
    "uint8, numpy HWC": ("uint8", "linnet", False),
    "float32, numpy HWC": ("float32", "linnet", False),
    "float32, torch CHW": ("torch", "linnet", False),
    "uint8, a disk of 0.2 s a file": ("uint8", "linnet", True),
    "float32, a disk of 0.2 s a file": ("float32", "linnet", True),
    "uint8, trackio": ("uint8", "trackio", False),
    "uint8, TensorBoard writer": ("uint8", "tensorboard", False),
}


@contextmanager
def linnet(folder: Path, slow: bool) -> Iterator[Callable[[int, Any], None]]:
    """Ours; a slow disk is one that takes its time for every file, on the thread that writes them."""
    import linnet
    from linnet import files

    if slow:
        write_file = files.write_file

        def write_slowly(path: Path, content: bytes, **options: Any) -> None:
            time.sleep(SLOW_SECONDS)
            write_file(path, content, **options)

        files.write_file = write_slowly  # type: ignore[assignment]
        linnet.Session.media_seconds = 0.0
    with linnet.start(folder, arch="bench", system_every=0) as run:
        yield lambda step, image: run.image(step, "image", image)


@contextmanager
def trackio(folder: Path, slow: bool) -> Iterator[Callable[[int, Any], None]]:
    """trackio; making the `Image` is part of the call."""
    import os

    os.environ["TRACKIO_DIR"] = str(folder)
    import trackio

    run = trackio.init(project="bench", name="run", embed=False, auto_log_gpu=False, auto_log_cpu=False)
    yield lambda step, image: run.log({"image": trackio.Image(image)}, step=step)
    trackio.finish()


@contextmanager
def tensorboard(folder: Path, slow: bool) -> Iterator[Callable[[int, Any], None]]:
    """The PNG that torch's SummaryWriter would make, and TensorBoard's own writer of events."""
    import io

    from PIL import Image
    from tensorboard.compat.proto.event_pb2 import Event
    from tensorboard.compat.proto.summary_pb2 import Summary
    from tensorboard.summary.writer.event_file_writer import EventFileWriter

    writer = EventFileWriter(str(folder))

    def log(step: int, image: Any) -> None:
        content = io.BytesIO()
        Image.fromarray(image).save(content, "PNG")
        height, width, channels = image.shape
        encoded = Summary.Image(
            height=height, width=width, colorspace=channels, encoded_image_string=content.getvalue()
        )
        value = Summary.Value(tag="image", image=encoded)
        writer.add_event(Event(step=step, wall_time=time.time(), summary=Summary(value=[value])))

    yield log
    writer.close()


def write(kind: str, writer: str, slow: bool, folder: str) -> dict[str, Any]:
    """Log the images and time each call; then the end of the run."""
    import numpy as np

    generator = np.random.default_rng(1)
    y, x = np.mgrid[0:SIDE, 0:SIDE]
    smooth = np.stack([x, y, (x + y) // 2], axis=-1)
    images = [((smooth + generator.integers(0, 24, smooth.shape)) % 256).astype(np.uint8) for _ in range(16)]
    values: list[Any] = images if kind == "uint8" else [(image / 255).astype(np.float32) for image in images]
    if kind == "torch":
        import torch

        values = [torch.from_numpy(np.moveaxis(value, -1, 0).copy()) for value in values]
    costs = []
    with {"linnet": linnet, "trackio": trackio, "tensorboard": tensorboard}[writer](Path(folder), slow) as log:
        log(0, values[0])  # what is imported at the first call
        for step in range(1, IMAGES + 1):
            value = values[step % len(values)]
            value[0, 0] = step % 251 / 255 if kind != "uint8" else step % 251  # another image every time
            began = time.perf_counter_ns()
            log(step, value)
            costs.append(time.perf_counter_ns() - began)
            time.sleep(STEP_SECONDS)
        closing = time.perf_counter()
    closed = time.perf_counter() - closing
    costs.sort()
    kept = sum(path.is_file() for path in Path(folder).rglob("artifacts/media/*/*"))
    return {
        "median": costs[len(costs) // 2] / 1e3,
        "p99": costs[len(costs) * 99 // 100] / 1e3,
        "worst": costs[-1] / 1e6,
        "closed": closed,
        "kept": kept,
    }


def main() -> Report:
    report = Report(
        name="media",
        claim=f"{__doc__} {IMAGES} images of {SIDE}×{SIDE}×3, {STEP_SECONDS * 1e3:g} ms apart, by a fresh process.",
        columns={
            "what is logged": "",
            "median µs": ".0f",
            "p99 µs": ".0f",
            "worst ms": ".2f",
            "the end s": ".2f",
            "kept": ".0f",
        },
    )
    for label, (kind, writer, slow) in CASES.items():
        if writer == "linnet":
            measure(report, label, kind, writer, slow)
        else:
            with report.peer(writer) as python:
                if python:
                    try:
                        measure(report, label, kind, writer, slow, python)
                    except sample.RoleFailedError as error:
                        report.note(f"{label}: not measured ({str(error).strip().splitlines()[-1]})")
    report.note(
        "A call copies the image; a thread encodes it as PNG and writes it, both forced to the disk. p99 and worst "
        "have in them that this thread sometimes holds the interpreter."
    )
    report.note(
        "With the slow disk the queue (512 images or 256 MB) takes what it can and the rest is dropped and counted; "
        "the end of the run is told not to wait there."
    )
    return report


def measure(report: Report, label: str, kind: str, writer: str, slow: bool, python: Path | None = None) -> None:
    with sample.scratch() as home:

        def options() -> dict[str, Any]:
            return {"kind": kind, "writer": writer, "slow": slow, "folder": tempfile.mkdtemp(dir=home)}

        samples = sample.take(__file__, "write", options, python=python)
    if samples.disturbed:
        report.disturbed.append(label)
    names = ("median", "p99")
    kept = samples.median("kept") if writer == "linnet" else None
    figures = [samples.median(name) for name in names]
    report.row(label, *figures, samples.worst("worst"), samples.median("closed"), kept)
    if writer == "linnet":
        report.at_most(f"median, {label}", samples.median("median") / 1e3, 1.0, "ms")


if __name__ == "__main__":
    sys.exit(sample.start(main, {"write": write}))
