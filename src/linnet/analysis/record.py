"""What was found out about a model, kept in its run: evaluations, a note and a picture, after its training."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from linnet.analysis.checkpoint import Checkpoint
from linnet.board.figure.png import write_png
from linnet.board.figure.scene import Scene
from linnet.errors import UsageError
from linnet.runs.run import add_evaluation, add_image, add_note, add_numbers

_SCALE = 2.0  # pixels of the PNG for each of the scene's


def require_recordable(checkpoint: Checkpoint) -> None:
    """Refuse before anything is computed what could not be kept."""
    run = checkpoint.run
    if run is None or checkpoint.step is None or run.manifest.dialect not in ("linnet", "toy"):
        raise UsageError(
            f"`record` keeps results in a run's folder, and {checkpoint.path} is no checkpoint of a run of ours"
        )
    if run.status == "live":
        raise UsageError(f"run {run.id} is being written: leave `record` out, or wait until it has ended")


def record(
    checkpoint: Checkpoint,
    name: str,
    note: str,
    scene: Scene,
    numbers: Mapping[str, object] | None = None,
    evaluations: Sequence[Mapping[str, object]] = (),
) -> None:
    """Keep what was found at the checkpoint's step: evaluations, a note, and under `name` a picture and its numbers.

    These are what `--json` prints; their file comes right before the picture, so that boards know it as that one's.
    """
    require_recordable(checkpoint)
    run, step = checkpoint.run, checkpoint.step
    assert run is not None
    for figures in evaluations:
        add_evaluation(run, name, step, figures)
    if numbers is not None:
        add_numbers(run, name, step, numbers)
    size = (round(scene.width * _SCALE), round(scene.height * _SCALE))
    add_image(run, name, step, write_png(scene, _SCALE), size, note)
    add_note(run, note, step)
