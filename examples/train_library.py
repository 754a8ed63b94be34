"""What `linnet train from-scratch` does, from Python: a small llama learns Python from the interpreter's own library.

python examples/train_library.py
linnet show latest
"""

from __future__ import annotations

from linnet.models import preset
from linnet.recipes import Job, TextData, start
from linnet.train import TrainSettings


def main(corpus: str = "python", steps: int = 300) -> None:
    """Prepare the text, train, say what came of it."""
    job = Job(
        model=preset("tiny", vocab=1024, ctx=64),
        data=TextData(corpus),
        settings=TrainSettings(steps=steps, batch=16, lr=3e-3),
        prompts=("def ",),
    )
    training = start(job, name="from a script", tags=["example"])
    outcome = training.run()
    print(f"{training.run_id} {outcome.reason}: loss {outcome.progress.loss:.3f} → {training.run_dir}/weights/latest")


if __name__ == "__main__":
    main()
