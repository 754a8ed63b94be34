"""`load`: a MODEL by any of its names, ready to be used. Torch comes with the first one that is loaded."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from linnet.infer.loaded_model import LoadedModel
    from linnet.runs import Run

    AnAdapter: TypeAlias = str | os.PathLike[str] | Run


def load(
    model: str | os.PathLike[str] | Run,
    /,
    *,
    device: str = "auto",
    runs: str | os.PathLike[str] | None = None,
    adapter: AnAdapter | Sequence[AnAdapter] = (),
    any_base: bool = False,
) -> LoadedModel:
    """Load a MODEL, with text in and out: a GGUF's path, a run (its best checkpoint), `RUN@latest` or `RUN@200`.

    model = linnet.load("latest")
    model.generate("The whale", max_tokens=40, stop="\\n")

    - `device`: auto, cpu, cuda or mps. `runs`: the folder of runs.
    - `adapter`: an adapter of the model, or several: files or runs, with a scale behind a colon if it is not 1
      (`"notes.gguf:0.5"`). A run that has trained an adapter means its base with that one.
    - `any_base`: apply them although they were made for another file, if only the shapes fit.
    """
    from linnet.infer.loaded_model import read_model
    from linnet.models import pick_device
    from linnet.models.model_files import find_files
    from linnet.runs import Run

    chosen = pick_device(device)
    adapters = [adapter] if isinstance(adapter, str | os.PathLike | Run) else list(adapter)
    return read_model(find_files(model, adapters, runs, any_base=any_base), chosen)
