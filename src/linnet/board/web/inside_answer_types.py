"""What a run's inside is answered with: looks, maps, histograms, regions, tokens, likeness and attention."""

from __future__ import annotations

from typing import Any

import msgspec

from linnet.board.web.answer_json import Figure


class LooksInfo(msgspec.Struct):
    """At how many steps a group was looked at."""

    count: int
    first: int
    last: int


class LoggedFigures(msgspec.Struct):
    """Which figures were logged of a region or a tensor: of which layers, and which of them of each head."""

    name: str
    layers: list[int]
    figures: list[str]
    head_figures: list[str]
    histogram: bool


class GramInfo(msgspec.Struct):
    """A region whose Gram matrices were logged, in these layers."""

    name: str
    layers: list[int]


class InsideInfo(msgspec.Struct):
    """`GET api/runs/{id}/inside`: what a run told of its inside. `tables`: taps, grads, drift."""

    looks: dict[str, LooksInfo]
    tables: dict[str, list[LoggedFigures]]
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
