"""`load`: a MODEL by any of its names, ready to be used. Torch comes with the first one that is loaded."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from linnet.infer.loaded_model import LoadedModel
    from linnet.runs import Run


def load(
    model: str | os.PathLike[str] | Run,
    /,
    *,
    device: str = "auto",
    runs: str | os.PathLike[str] | None = None,
) -> LoadedModel:
    """Load a MODEL, with text in and out: a GGUF's path, a run (its best checkpoint), `RUN@latest` or `RUN@200`.

    model = linnet.load("latest")
    model.generate("The whale", max_tokens=40, stop="\\n")

    `device`: auto, cpu, cuda or mps. `runs`: the folder of runs.
    """
    from linnet.infer.loaded_model import read_model
    from linnet.models import pick_device
    from linnet.models.model_name import find_model

    chosen = pick_device(device)
    return read_model(find_model(model, runs), chosen)
