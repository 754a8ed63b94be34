"""What travels between the server and the page: `web/src/data/types.ts` has the same in TypeScript."""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from linnet.board.web.answer_json import Figure
from linnet.errors import LinnetError

Cell = str | float | int | bool | None


class RequestError(LinnetError):
    """A request that is not answered; `status` is HTTP's."""

    def __init__(self, status: int, text: str) -> None:
        super().__init__(text)
        self.status = status


class BoardInfo(msgspec.Struct):
    """`GET api/board`."""

    root: str
    version: str
    writable: bool
    chosen: list[str]


class RunRow(msgspec.Struct, gc=False):
    """A run in the table."""

    id: str
    name: str
    status: str
    step: int | None
    total_steps: int | None
    metric: str | None
    last: Figure
    created: float
    seconds: float
    age: float
    recipe: str | None
    experiment: str | None
    group: str | None
    parent: str | None
    compare_to: str | None
    tags: list[str]
    hidden: bool
    colour: int
    warning: str | None
    values: list[Cell] = []


class ColumnInfo(msgspec.Struct):
    """A column of the table."""

    term: str
    label: str
    kind: str
    goal: str | None
    numeric: bool


class GroupInfo(msgspec.Struct):
    """Successive rows of the table that agree in something."""

    key: str
    first: int
    count: int
    live: int
    best: Figure


class TableAnswer(msgspec.Struct):
    """`GET api/runs`."""

    position: str
    total: int
    columns: list[ColumnInfo]
    rows: list[RunRow]
    groups: list[GroupInfo]
    settings: list[str]
    metrics: list[str]
    unread: int
    problem: str | None


class RowCurve(msgspec.Struct):
    """What of a row needs its whole stream."""

    id: str
    best: Figure
    best_step: int | None
    spark: list[Figure]


class MetricInfo(msgspec.Struct):
    """A metric of a run in numbers."""

    key: str
    goal: str | None
    rows: int
    last: Figure
    last_step: int | None
    best: Figure
    best_step: int | None
    low: Figure
    high: Figure
    constant: bool
    held_out_of: str | None


class AncestorInfo(msgspec.Struct):
    """A run that another one came from, and the last of its steps that belong to that one too."""

    id: str
    step: int | None


class FamilyInfo(msgspec.Struct):
    """Where a run came from, and what came from it."""

    ancestors: list[AncestorInfo]
    children: list[str]


class HasInfo(msgspec.Struct):
    """Which pages of a run have something to show."""

    samples: bool
    checkpoints: bool
    artifacts: bool
    flow: bool
    system: bool
    profile: bool
    classes: bool
    inside: bool
    attention: bool


class RunDetail(msgspec.Struct):
    """`GET api/runs/{id}`."""

    row: RunRow
    manifest: dict[str, Any]
    settings: dict[str, Any]
    defaults: dict[str, Any]
    chosen: dict[str, Any]
    plan: dict[str, Any]
    end: dict[str, Any] | None
    metrics: list[MetricInfo]
    axes: list[str]
    elapsed: float
    remaining: float | None
    tokens_per_second: float | None
    family: FamilyInfo
    path: str
    damaged: int
    has: HasInfo


class RunMetrics(msgspec.Struct):
    """What charts of a run there are."""

    id: str
    metrics: list[MetricInfo]
    axes: list[str]
    settings: dict[str, Any]


class Mark(msgspec.Struct):
    """Something that happened on a line."""

    x: float
    kind: Literal["nan", "spike", "stall", "warning"]
    text: str


class SeriesEntry(msgspec.Struct):
    """One series of a binary answer."""

    run: str
    key: str
    goal: str | None
    exact: bool
    superseded: bool
    inherited: str | None
    rows: int
    total: int
    offset: int
    columns: list[str]
    position: int
    ema: tuple[float, float] | None
    last: tuple[float, Figure] | None
    best: tuple[float, float] | None
    resumes: list[float]
    marks: list[Mark]


class SeriesHeader(msgspec.Struct, rename={"begin": "from", "end": "to"}):
    """The head of a binary answer."""

    axis: str
    begin: float
    end: float
    points: int
    series: list[SeriesEntry]


class Checkpoint(msgspec.Struct):
    """A checkpoint of a run."""

    step: int
    path: str
    bytes: int
    train_loss: Figure
    validation_loss: Figure
    tokens: int | None
    best: bool
    latest: bool
    commands: list[str]


class MetadataInfo(msgspec.Struct):
    """A key of a GGUF file; of a long array how long it is."""

    key: str
    type: str
    value: str


class TensorInfo(msgspec.Struct):
    """A tensor of a GGUF file."""

    name: str
    shape: list[int]
    type: str
    bytes: int


class CheckpointDetail(msgspec.Struct):
    """`GET api/runs/{id}/checkpoints/{step}`."""

    checkpoint: Checkpoint
    metadata: list[MetadataInfo]
    tensors: list[TensorInfo]


class TensorHistogram(msgspec.Struct):
    """How the values of a tensor are spread."""

    name: str
    counts: list[int]
    edges: list[float]
    mean: Figure
    std: Figure
    min: Figure
    max: Figure
    zeros: int
    nonfinite: int


class ArtifactItem(msgspec.Struct):
    """One file of a series of artifacts."""

    number: int
    step: int | None
    t: float
    bytes: int | None
    mime: str
    caption: str | None
    inline: bool
    fields: dict[str, Any]


class ArtifactGroup(msgspec.Struct):
    """The files that were logged under one name."""

    name: str
    media: str
    items: list[ArtifactItem]


class ConfusionInfo(msgspec.Struct):
    """How often a label was taken for a guess: `counts[label][guess]`."""

    labels: list[str]
    counts: list[list[int]]


class EvaluationInfo(msgspec.Struct):
    """What an evaluation found."""

    step: int | None
    t: float
    name: str
    samples: int | None
    figures: dict[str, Figure]
    per_class: dict[str, Figure] | None
    confusion: ConfusionInfo | None


class TimingInfo(msgspec.Struct):
    """Where the time of profiled steps went."""

    step: int | None
    t: float
    compute_us: float
    buckets: dict[str, float]


class EventPage(msgspec.Struct):
    """`GET api/runs/{id}/events`."""

    position: int
    events: list[dict[str, Any]]
    more: bool


class Deleted(msgspec.Struct):
    """What `DELETE api/runs/{id}` answers."""

    bytes: int


class Problem(msgspec.Struct):
    """Every error."""

    error: str


class RunChange(msgspec.Struct, forbid_unknown_fields=True):
    """What `PATCH api/runs/{id}` takes."""

    name: str | None = None
    add_tags: list[str] = []
    remove_tags: list[str] = []
    hidden: bool | None = None


class NewNote(msgspec.Struct, forbid_unknown_fields=True):
    """What `POST api/runs/{id}/notes` takes."""

    text: str
    step: int | None = None
