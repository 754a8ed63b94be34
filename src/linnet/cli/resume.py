"""`linnet resume`."""

from __future__ import annotations

from linnet.cli.options import AsJson, RunName, RunsFolder
from linnet.runs import RunStore


def resume(
    run: RunName = "latest",
    /,
    *,
    steps: int | None = None,
    force: bool = False,
    runs: RunsFolder = None,
    json: AsJson = False,
) -> int:
    """Go on with a run from its newest checkpoint, to the bit on the CPU.

    Args:
        steps: Train up to this step instead of the run's last one.
        force: Go on although the corpus or the config has changed.
    """
    from linnet.cli.outcome import finish
    from linnet.cli.progress import preparing, screen_for
    from linnet.cli.streams import lasting_output
    from linnet.recipes import resume as resume_run

    with lasting_output():
        training = resume_run(
            RunStore(runs).find(run),
            steps=steps,
            force=force,
            callbacks=[] if json else [screen_for()],
            preparing=None if json else preparing,
        )
        return finish(training, json)
