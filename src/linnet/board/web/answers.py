"""What travels between the server and the page: `web/src/data/types.ts` has the same in TypeScript."""

from __future__ import annotations

import math
from typing import Any, Literal

import msgspec

from linnet.errors import LinnetError

Figure = float | str | None  # NaN and the infinities are texts: JSON has no numbers for them
Cell = str | float | int | bool | None
_DEEPEST = 64
_NONFINITE = {math.inf: "inf", -math.inf: "-inf"}


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


class LooksInfo(msgspec.Struct):
    """At how many steps a group was looked at."""

    count: int
    first: int
    last: int


class ToldInfo(msgspec.Struct):
    """What is told of a region or a tensor: in which layers, which figures, and which of its heads."""

    name: str
    layers: list[int]
    figures: list[str]
    head_figures: list[str]
    histogram: bool


class GramInfo(msgspec.Struct):
    """A region whose Gram matrices were told, in these layers."""

    name: str
    layers: list[int]


class InsideInfo(msgspec.Struct):
    """`GET api/runs/{id}/inside`: what a run told of its inside. `tables`: taps, grads, drift."""

    looks: dict[str, LooksInfo]
    tables: dict[str, list[ToldInfo]]
    grams: list[GramInfo]


class MapRow(msgspec.Struct):
    """What a row of a heat map is of."""

    name: str
    layer: int | None
    head: int | None
    label: str


class InsideMap(msgspec.Struct):
    """`GET api/runs/{id}/inside/map`: a figure by row and step.

    - `begins`, `ends`: the first and the last step of each column; of as many looks as there are columns, the same.
    - `values[row][column]`: of several looks the value that stands out most; `low`, `high`: only where there are.
    - `looks`: steps before they were put together; `left_out`: rows beyond those that an answer has.
    """

    figure: str
    rows: list[MapRow]
    begins: list[int]
    ends: list[int]
    values: list[list[Figure]]
    low: list[list[Figure]] | None
    high: list[list[Figure]] | None
    looks: int
    left_out: int


class InsideHistogram(msgspec.Struct):
    """How the numbers of a region were spread at a step: `counts` in equal bins from `low` to `high`."""

    step: int
    low: Figure
    high: Figure
    counts: list[int]


class InsideHistograms(msgspec.Struct):
    """`GET api/runs/{id}/inside/histograms`. `looks`: how many there are; of very many, the widest of each stretch."""

    row: MapRow
    histograms: list[InsideHistogram]
    looks: int


class RegionInfo(msgspec.Struct):
    """A stretch of a step, in microseconds since it began, and what it consists of."""

    name: str
    path: str
    begin_us: float
    us: float
    own_us: float
    children: list[RegionInfo]


class InsideRegions(msgspec.Struct):
    """`GET api/runs/{id}/inside/regions`: where the time of a step went; `steps` whose time is known."""

    steps: list[int]
    step: int
    root: RegionInfo


class InsideTokens(msgspec.Struct):
    """`GET api/runs/{id}/inside/tokens`: the drift of tokens of the embedding at a step, the most frequent first."""

    steps: list[int]
    step: int
    token_id: list[int]
    freq: list[int]
    cos_to_init: list[Figure]
    l2_to_init: list[Figure]


class InsideSimilarity(msgspec.Struct):
    """`GET api/runs/{id}/inside/similarity`: CKA of layers with each other at a step, or of a layer over the steps."""

    name: str
    layer: int | None
    step: int | None
    steps: list[int]
    labels: list[str]
    samples: int
    values: list[list[Figure]]


class InsideResult(msgspec.Struct):
    """What `linnet cka`, `lmc`, `drift`, `lens-words` or `attention` found, and `--record` kept.

    - `picture`: the number of the artifact; `numbers`: what `--json` prints, where it was kept.
    """

    kind: str
    step: int | None
    text: str
    picture: int | None
    numbers: dict[str, Any] | None


class AttentionQuestion(msgspec.Struct, forbid_unknown_fields=True):
    """What `POST api/runs/{id}/attention` takes. Without a step, of the newest checkpoint."""

    prompt: str
    step: int | None = None
    layer: int = 0


class AttentionMap(msgspec.Struct):
    """What it answers: of a layer `heads[head][query][key]`, how much a token looks at each other one."""

    step: int
    tokens: list[str]
    layers: list[int]
    layer: int
    heads: list[list[list[float]]]


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


def figure(value: float | None) -> Figure:
    """A number as it travels."""
    if value is None or math.isfinite(value):
        return value
    return _NONFINITE.get(value, "nan")


def plain_json(value: Any, depth: int = 0) -> Any:
    """Foreign fields as JSON can have them, with NaN and the infinities as texts."""
    if isinstance(value, float):
        return figure(value)
    if depth > _DEEPEST:
        return "…"
    if isinstance(value, dict):
        return {str(name): plain_json(item, depth + 1) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain_json(item, depth + 1) for item in value]
    if isinstance(value, int) and not isinstance(value, bool) and abs(value) >= 1 << 63:
        return str(value)
    return value if value is None or isinstance(value, str | int | bool) else str(value)


def encoded(answer: object) -> bytes:
    """As JSON. A lone surrogate, which a file name or a damaged text may hold, becomes a question mark."""
    try:
        return msgspec.json.encode(answer)
    except UnicodeEncodeError:
        return msgspec.json.encode(_without_surrogates(msgspec.to_builtins(answer)))


def _without_surrogates(value: Any) -> Any:
    if isinstance(value, str):
        return value.encode("utf-8", "replace").decode()
    if isinstance(value, dict):
        return {_without_surrogates(name): _without_surrogates(item) for name, item in value.items()}
    return [_without_surrogates(item) for item in value] if isinstance(value, list) else value
