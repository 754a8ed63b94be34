"""Arguments that several commands share, with the words that explain them."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

RunName = Annotated[str, Parameter(help="The run: an id, the unique beginning of one, a path, or `latest`.")]
RunsFolder = Annotated[Path | None, Parameter(help="The folder of runs; else $LINNET_RUNS, else ./runs.")]
AsJson = Annotated[bool, Parameter(help="As JSON, for other programs.")]
