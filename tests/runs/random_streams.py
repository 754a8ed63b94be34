"""Streams as no writer would write them, for readers that must agree about every one."""

from __future__ import annotations

import json

from hypothesis import strategies as st

from linnet.runs import Metrics
from linnet.runs.figures import FigureRequest, MetricFigures

_NAMES = ["loss", "acc", "a/b/loss", "validation/loss", "lr", "t", "sys/cpu/percent", "decode/loss"]
_STEPS = frozenset((0, 3))
WANTED: FigureRequest = dict.fromkeys(("loss", "acc", "validation/loss", "eval/acc", "decode/loss", "a/b/loss"), _STEPS)
MACHINE: FigureRequest = {**WANTED, "sys/cpu/percent": _STEPS}

_value = st.floats(allow_nan=True, allow_infinity=True) | st.integers(-(2**70), 2**70) | st.booleans() | st.none()
_odd = st.text(max_size=3) | st.dictionaries(st.sampled_from(["loss", "a"]), _value, max_size=2)
_fields = st.dictionaries(st.sampled_from(_NAMES), _value | _odd, max_size=4)
_envelope = st.fixed_dictionaries(
    {"kind": st.sampled_from(["step", "step", "step", "scalars", "eval", "note", "resume", "system", "unknown"])},
    optional={
        "step": st.none() | st.integers(-3, 9) | st.floats(0, 9) | st.just(2**70),
        "phase": st.sampled_from(["train", "decode", "a", None]),
        "name": st.sampled_from(["validation", "a", "a/b", "", None, 5]),
        "values": _fields | st.none(),
        "extra": _fields | st.none(),
        "cpu": st.fixed_dictionaries({"percent": _value}),
        "nonfinite": st.just({"loss": "nan"}),
    },
)
_any_event = st.builds(lambda envelope, numbers: {**envelope, **numbers, **envelope}, _envelope, _fields)
_plain_step = st.builds(
    lambda step, loss: {"kind": "step", "t": 0.0, "step": step, "loss": loss}, st.integers(0, 9), st.floats()
)
_numbers = st.dictionaries(st.sampled_from(["loss", "acc", "a/b/loss", "v.w"]), st.floats(-9, 9) | st.integers(0, 9))
_step = st.integers(0, 9)
_usual_event = st.one_of(
    st.builds(lambda step, numbers: {"kind": "step", "t": 0.5, "step": step, **numbers}, _step, _numbers),
    st.builds(lambda step, values: {"kind": "scalars", "t": 0.5, "step": step, "values": values}, _step, _numbers),
    st.builds(lambda step, numbers: {"kind": "eval", "step": step, "name": "eval", **numbers}, _step, _numbers),
    st.builds(lambda percent: {"kind": "system", "t": 0.5, "cpu": {"percent": percent}}, st.floats(0, 9)),
    st.builds(lambda step: {"kind": "resume", "step": step}, _step | st.none()),
    st.builds(
        lambda kind, step: {"kind": kind, "t": 0.5, "step": step, "loss": 0.5, "region": "a"},
        st.sampled_from(["tap", "grad", "drift", "region_enter", "region_exit", "op_timing"]),
        _step,
    ),
    st.builds(lambda step: {"kind": "step", "step": step, "loss": None, "nonfinite": {"loss": "nan"}}, _step),
    st.builds(
        lambda step, name: {
            "kind": "scalars",
            "step": step,
            "values": {name: None},
            "nonfinite": {f"values.{name}": "-inf"},
        },
        _step,
        st.sampled_from(["acc", "v.w"]),
    ),
)
# Linnet's own lines have no spaces in them, others' do.
_spaces = st.sampled_from([(",", ":"), (",", ":"), (", ", ": ")])
_odd_line = st.builds(
    lambda record, spaces: json.dumps(record, separators=spaces).encode(), _any_event | _plain_step, _spaces
) | st.sampled_from([b"", b"{", b"[1]", b"{}{}", b'{"kind":"step","step":1,"loss":1}{"kind":"step","step":2,"loss":2}'])
_usual_line = st.builds(lambda record: json.dumps(record, separators=(",", ":")).encode(), _usual_event)
lines = st.lists(_odd_line, max_size=12) | st.lists(_usual_line, max_size=12)


def content(stream: list[bytes]) -> bytes:
    """The lines as they stand in a file."""
    return b"".join(written + b"\n" for written in stream)


def figures_of(metrics: Metrics, wanted: FigureRequest = WANTED) -> dict[str, MetricFigures]:
    """The figures that whole curves say."""
    figures = {}
    for name, steps in wanted.items():
        if (series := metrics.get(name)) is not None and len(series):
            points = list(zip(series.step.tolist(), series.value.tolist(), strict=True))
            by_step = sorted(points, key=lambda point: point[0])  # of equal steps the last logged comes last
            at = {wanted: next((point for point in reversed(by_step) if point[0] <= wanted), None) for wanted in steps}
            low, high = series.best_by("min"), series.best_by("max")
            figures[name] = MetricFigures(len(points), points[0], points[-1], low, high, at)
    return figures
