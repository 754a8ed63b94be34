"""A run is a folder: write it, read it, follow it live, list them."""

from typing import TYPE_CHECKING

from linnet._lazy import lazy

if TYPE_CHECKING:
    from linnet.runs.artifacts import Artifact as Artifact
    from linnet.runs.artifacts import ArtifactError as ArtifactError
    from linnet.runs.bundle import RunBundle as RunBundle
    from linnet.runs.events import Event as Event
    from linnet.runs.findings import Findings as Findings
    from linnet.runs.findings import examine as examine
    from linnet.runs.frame import wide_table as wide_table
    from linnet.runs.inspection import Inspection as Inspection
    from linnet.runs.manifest import Manifest as Manifest
    from linnet.runs.metrics import Metrics as Metrics
    from linnet.runs.run import Run as Run
    from linnet.runs.run import RunError as RunError
    from linnet.runs.run import add_note as add_note
    from linnet.runs.series import Series as Series
    from linnet.runs.session import Session as Session
    from linnet.runs.session import start as start
    from linnet.runs.store import RunStore as RunStore
    from linnet.runs.stream import EventStream as EventStream
    from linnet.runs.summary import STATUSES as STATUSES
    from linnet.runs.summary import RunSummary as RunSummary

__all__, __getattr__, __dir__ = lazy(__name__)
