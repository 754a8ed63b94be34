"""`--profile`: ten steps under torch's profiler. A trace for a viewer, an `op_timing` event, and five lines to read."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch._C._autograd import DeviceType
from torch._C._profiler import _ExperimentalConfig
from torch.profiler import ProfilerActivity, profile

from linnet.runs import Session
from linnet.train.callback import Callback, Callbacks
from linnet.train.hardware import Hardware, measured_bandwidth, measured_peak
from linnet.train.metrics import StepWork

TRACE = "profile.json.gz"
_SKIPPED = 6  # the first steps compile, capture and warm up
_STEPS = 10
_NAMED = 12  # operations with a name of their own in `op_timing`
_SHOWN = 5
_ANY = [ProfilerActivity.CPU, ProfilerActivity.CUDA, ProfilerActivity.XPU]  # torch warns when one is paused alone
_ADAMW_BYTES = 28  # a parameter: weight, gradient and two moments read, three of them written

# What a kernel or an operation is for, by a word of its name; the first that fits.
_KINDS = (
    ("attention", ("sdpa", "flash", "fmha", "cudnn", "attention")),
    ("loss", ("cross_entropy", "log_softmax", "logsumexp")),
    ("products", ("nvjet", "gemm", "cutlass", "splitk", "addmm", "::mm", "::bmm", "linear")),
    ("optimiser", ("multi_tensor", "adam", "foreach")),
    ("copies", ("memcpy", "memset", "copy_", "::fill_", "::zero_")),
)


@dataclass(frozen=True)
class Cost:
    """What one operation took of a step, in seconds, and how often it was called."""

    name: str
    seconds: float
    calls: float

    @property
    def kind(self) -> str:
        """What it is for."""
        low = self.name.lower()
        return next((kind for kind, marks in _KINDS if any(mark in low for mark in marks)), "element-wise and other")


def profiler_for(hardware: Hardware) -> profile:
    """torch's profiler of the device, and of all threads where halves of a batch have their own.

    By default it looks at the thread that asks for it alone.
    """
    os.environ.setdefault("KINETO_LOG_LEVEL", "99")  # looked at when the first one starts: it tells of each on stderr
    activities = [ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if hardware.device.type == "cuda" else [])]
    everywhere = _ExperimentalConfig(profile_all_threads=True) if hardware.halves_in_parallel else None
    return profile(activities=activities, experimental_config=everywhere)


def costs_of(
    profiler: profile, hardware: Hardware, steps: int, pauses: Iterable[tuple[float, float]] = ()
) -> list[Cost]:
    """What each operation took of one of so many steps that were profiled, the dearest first.

    `pauses`: seconds since the profiler began in which no step was at work.
    """
    on_gpu = hardware.device.type == "cuda"
    costs = _on_device(profiler, steps) if on_gpu else _on_cpu(profiler, steps, hardware, list(pauses))
    return sorted(costs, key=lambda cost: -cost.seconds)


def buckets_of(costs: list[Cost]) -> dict[str, int]:
    """The microseconds of an `op_timing` event: the dearest operations by name, the others together."""
    buckets = {cost.name: round(cost.seconds * 1e6) for cost in costs[:_NAMED]}
    return {**buckets, "other": round(sum(cost.seconds for cost in costs[_NAMED:]) * 1e6)}


def _on_device(profiler: profile, steps: int) -> Iterator[Cost]:
    """What each kernel took."""
    kernels: list[Any] = [event for event in profiler.key_averages() if event.device_type == DeviceType.CUDA]
    for kernel in kernels:
        # An annotation is a stretch of time around kernels that are counted themselves.
        if not kernel.is_user_annotation and kernel.self_device_time_total > 0:
            yield Cost(kernel.key, kernel.self_device_time_total / 1e6 / steps, kernel.count / steps)


def _on_cpu(profiler: profile, steps: int, hardware: Hardware, pauses: list[tuple[float, float]]) -> Iterator[Cost]:
    """What each operation took; of what a half of a batch does beside the other one, half of its time."""
    events: list[Any] = list(profiler.events() or ())  # type: ignore[no-untyped-call]
    threads = {event.thread for event in events}
    halves: set[int] = set()
    if hardware.halves_in_parallel:
        # A checkpoint, which is written meanwhile, has neither a gradient nor an optimizer.
        halves = {event.thread for event in events if event.key.startswith("autograd::engine")}
        threads = halves | {event.thread for event in events if event.key.startswith("Optimizer.step")}
    seconds: dict[str, float] = {}
    calls: dict[str, int] = {}
    for event in events:
        began, name = event.time_range.start / 1e6, event.key
        if event.thread not in threads or event.is_user_annotation:
            continue
        if any(first <= began <= last for first, last in pauses):
            continue
        took = event.self_cpu_time_total / 1e6
        seconds[name] = seconds.get(name, 0.0) + (took / 2 if event.thread in halves else took)
        calls[name] = calls.get(name, 0) + 1
    for name, took in seconds.items():
        if took > 0:
            yield Cost(name, took / steps, calls[name] / steps)


class Profile:
    """Runs torch's profiler over some steps after the first ones; the run goes on as if nothing had been."""

    def __init__(
        self, run: Session, work: StepWork, hardware: Hardware, callbacks: Callbacks, *, done: int, n_params: int
    ) -> None:
        self._run, self._work, self._hardware, self._callbacks = run, work, hardware, callbacks
        self._done, self._n_params = done, n_params
        self._on_gpu = hardware.device.type == "cuda"
        self._profiler = profiler_for(hardware)
        self._on, self._began, self._seconds = False, 0.0, 0.0
        self._steps = 0  # profiled so far
        self._first, self._paused = 0.0, 0.0
        self._pauses: list[tuple[float, float]] = []  # seconds since the profiler began

    @property
    def is_on(self) -> bool:
        """Is it looking? There is one profiler at a time."""
        return self._on

    def after(self, step: int) -> None:
        """A step was handed out."""
        if self._on:
            self._steps += 1
            if self._steps == _STEPS:
                self.report(step)
        elif step == self._done + _SKIPPED and step < self._work.last:
            self._wait()
            self._profiler.start()
            self._first = self._began = time.perf_counter()
            self._on = True

    def pause(self) -> None:
        """What comes now is no step."""
        if self._on:
            self._wait()
            self._paused = time.perf_counter()
            self._seconds += self._paused - self._began
            if self._on_gpu:
                self._profiler.toggle_collection_dynamic(False, _ANY)

    def resume(self) -> None:
        """Steps again."""
        if self._on:
            if self._on_gpu:
                self._profiler.toggle_collection_dynamic(True, _ANY)
            self._began = time.perf_counter()
            self._pauses.append((self._paused - self._first, self._began - self._first))

    def report(self, step: int) -> None:
        """Report on the steps that were profiled; at the end of a run, on as many as there were."""
        self.pause()
        self.stop()
        lines: list[str] = []
        if self._steps:
            lines = self._write(step, self._seconds / self._steps)
        elif step - self._done <= _SKIPPED:
            lines = [f"no profile: it begins after {_SKIPPED} steps, and there were {step - self._done}"]
        if lines:
            self._callbacks.call(Callback.on_profile, lines)
        self._steps = 0

    def stop(self) -> None:
        """End profiling, whatever was seen."""
        if self._on:
            self._on = False
            self._profiler.stop()

    def _wait(self) -> None:
        if self._on_gpu:
            torch.cuda.synchronize()

    def _write(self, step: int, seconds: float) -> list[str]:
        """Trace and event into the run; the report's lines."""
        trace = self._run.artifacts_dir / TRACE
        self._profiler.export_chrome_trace(str(trace))
        self._run.artifact(trace, step=step)
        costs = costs_of(self._profiler, self._hardware, self._steps, self._pauses)
        self._run.op_timing(step, round(seconds * 1e6), buckets_of(costs))
        return [*_table(costs, seconds, self._steps), self._roofline(seconds), f"trace: {trace}"]

    def _roofline(self, seconds: float) -> str:
        """How near a step is to the least it could take: its arithmetic, and the weights once through the memory."""
        device, dtype = self._hardware.device, self._hardware.dtype
        try:
            peak, bandwidth = measured_peak(device, dtype), measured_bandwidth(device)
        except torch.OutOfMemoryError:
            return "roofline: not measured, there is no memory left for it"
        arithmetic, traffic = self._work.flops / peak, _ADAMW_BYTES * self._n_params / bandwidth
        share = (arithmetic + traffic) / seconds
        return (
            f"roofline: {arithmetic * 1e3:.2f} ms of products at {peak / 1e12:.3g} TFLOP/s and {traffic * 1e3:.2f} ms "
            f"of optimiser at {bandwidth / 1e12:.3g} TB/s, both measured here: a step runs at {share:.0%} of it"
        )


def _table(costs: list[Cost], seconds: float, steps: int) -> list[str]:
    kinds: dict[str, float] = {}
    for cost in costs:
        kinds[cost.kind] = kinds.get(cost.kind, 0.0) + cost.seconds
    shares = ", ".join(f"{kind} {kinds[kind] / seconds:.0%}" for kind in sorted(kinds, key=lambda k: -kinds[k]))
    lines = [f"profile of {steps} steps: {seconds * 1e3:.2f} ms a step: {shares}"]
    for cost in costs[:_SHOWN]:
        share, name = cost.seconds / seconds, cost.name[:72]
        lines.append(f"  {cost.seconds * 1e3:8.2f} ms {share:4.0%} {cost.calls:5.0f}×  {cost.kind:22} {name}")
    return lines
