"""One way to log a step of five scalars with Linnet, with each peer, and with nothing but an encoder.

Each writer is a context manager over a folder that gives `log(step, row)`; leaving it closes the writer.
Every writer is called through one such function, so each figure has the cost of that one call in it.
System figures, console capture and code saving are off everywhere: what is compared is logging.
"""

import os
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

from workload import Row

Log = Callable[[int, Row], None]


@contextmanager
def linnet(folder: Path) -> Iterator[Log]:
    """Ours."""
    import linnet

    with linnet.start(folder, arch="bench", system_every=0) as run:

        def log(step: int, row: Row) -> None:
            loss, lr, grad_norm, tokens_per_s, acc = row
            run.log(step, loss=loss, lr=lr, grad_norm=grad_norm, tokens_per_s=tokens_per_s, acc=acc)

        yield log


@contextmanager
def nothing(folder: Path) -> Iterator[Log]:
    """The measuring itself: a call that only takes its row apart. Every other figure has this in it."""

    def log(step: int, row: Row) -> None:
        _loss, _lr, _grad_norm, _tokens_per_s, _acc = row

    yield log


@contextmanager
def floor(folder: Path) -> Iterator[Log]:
    """The least that can be done: one dict, one JSON encode, one `write` to an append-mode descriptor."""
    import msgspec

    encode = msgspec.json.Encoder().encode
    descriptor = os.open(folder / "events.jsonl", os.O_WRONLY | os.O_CREAT | os.O_APPEND)

    def log(step: int, row: Row) -> None:
        loss, lr, grad_norm, tokens_per_s, acc = row
        line = encode(
            {
                "kind": "step",
                "t": time.time(),
                "step": step,
                "loss": loss,
                "lr": lr,
                "grad_norm": grad_norm,
                "tokens_per_s": tokens_per_s,
                "acc": acc,
            }
        )
        os.write(descriptor, line + b"\n")

    yield log
    os.close(descriptor)


@contextmanager
def trackio(folder: Path) -> Iterator[Log]:
    """trackio into its local SQLite file."""
    os.environ["TRACKIO_DIR"] = str(folder)
    import trackio

    run = trackio.init(project="bench", name="run", embed=False, auto_log_gpu=False, auto_log_cpu=False)

    def log(step: int, row: Row) -> None:
        loss, lr, grad_norm, tokens_per_s, acc = row
        run.log(
            {"loss": loss, "lr": lr, "grad_norm": grad_norm, "tokens_per_s": tokens_per_s, "acc": acc},
            step=step,
        )

    yield log
    trackio.finish()


@contextmanager
def tensorboard(folder: Path) -> Iterator[Log]:
    """TensorBoard's own event writer, its cheapest way: one event with five values."""
    from tensorboard.compat.proto.event_pb2 import Event
    from tensorboard.compat.proto.summary_pb2 import Summary
    from tensorboard.summary.writer.event_file_writer import EventFileWriter

    value = Summary.Value
    writer = EventFileWriter(str(folder))

    def log(step: int, row: Row) -> None:
        loss, lr, grad_norm, tokens_per_s, acc = row
        values = [
            value(tag="loss", simple_value=loss),
            value(tag="lr", simple_value=lr),
            value(tag="grad_norm", simple_value=grad_norm),
            value(tag="tokens_per_s", simple_value=tokens_per_s),
            value(tag="acc", simple_value=acc),
        ]
        writer.add_event(Event(wall_time=time.time(), step=step, summary=Summary(value=values)))

    yield log
    writer.close()


@contextmanager
def wandb(folder: Path) -> Iterator[Log]:
    """W&B offline."""
    import wandb

    quiet = wandb.Settings(
        console="off",
        silent=True,
        x_disable_stats=True,
        x_disable_meta=True,
        disable_git=True,
        save_code=False,
    )
    run = wandb.init(mode="offline", dir=folder, project="bench", settings=quiet)

    def log(step: int, row: Row) -> None:
        loss, lr, grad_norm, tokens_per_s, acc = row
        run.log(
            {"loss": loss, "lr": lr, "grad_norm": grad_norm, "tokens_per_s": tokens_per_s, "acc": acc},
            step=step,
        )

    yield log
    run.finish()


BY_NAME: dict[str, Callable[[Path], AbstractContextManager[Log]]] = {
    "linnet": linnet,
    "nothing": nothing,
    "floor": floor,
    "trackio": trackio,
    "tensorboard": tensorboard,
    "wandb": wandb,
}
