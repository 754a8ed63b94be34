"""The one place that decides device, precision and compilation, and says why."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from importlib.util import find_spec

import torch
from torch import Tensor

from linnet.errors import UsageError
from linnet.kernels.cuda import can_order_attention
from linnet.kernels.ops import AttentionBackend
from linnet.models import pick_device
from linnet.train.devices import stated_peak
from linnet.train.optim import capture_obstacle
from linnet.train.process import waits_asleep
from linnet.train.ranks import ALONE, Ranks
from linnet.train.repeatable import set_up_cublas
from linnet.train.settings import TrainSettings

# Seconds of a pass at the peak of a GPU, the layers alone, up to which its step is captured: that pays where launching
# kernels outlasts them. On an H200 a 135M llama gains 5 % with 21 ms; GPT-2 124M loses 1 % with 34 ms (docs/log.md).
_GRAPH_SECONDS = 0.025

# FLOP of a pass, the layers alone, up to which a CPU's step is recorded, and up to which it stays on one thread:
# there a second one is waited for longer than it helps (docs/log.md).
_RECORDED_FLOPS, _ONE_THREAD_FLOPS = 2e9, 1e8

# For so many seconds a measured peak is good for the next runs of the process.
_PEAK_SECONDS = 60.0
# The share of the cores' time that the process must have had for itself while its peak was measured.
OWN_CORES = 0.85

# Tokens of a pass from which on a CPU does it in two halves (`step.SplitBatch`), unless it is small. With 1,024 nothing
# is gained: a half costs gradients of its own, whatever its length. This depends on no machine: all compute the same.
_SPLIT_TOKENS = 2048
# A product of 256 × 256 matrices that takes longer on a CPU: a millisecond is usual.
_EMULATED_SECONDS = 0.02

NOT_REPEATABLE = "not repeatable to the bit (identical runs drift apart; `deterministic`)"


@dataclass(frozen=True)
class Hardware:
    """What a run computes with. `why` is the line that is printed."""

    device: torch.device
    dtype: torch.dtype
    compile: bool
    graph: bool
    attention: AttentionBackend
    threads: int  # of a CPU, for a step
    halves: bool  # does a batch pass in two halves?
    peak_flops: float | None  # of one rank's device; None: it could not be measured, others were busy
    why: str
    ranks: Ranks = ALONE
    ordered: bool = True  # are sums taken in one order, wherever Linnet has a form for it?
    strict: bool = False  # is an operation an error that has no such form?
    repeatable: bool = True  # does a second run, or a resumed one, give the same bits on this machine?
    shards_weights: bool = False  # does each rank keep its rows of the weights only?

    @property
    def halves_in_parallel(self) -> bool:
        """Do two halves pass side by side? What is recorded is done in turn."""
        return self.halves and not self.graph and self.threads % 2 == 0

    @property
    def backend(self) -> str:
        """The word for it in `run_start`."""
        return {"cuda": "cuda", "mps": "metal"}.get(self.device.type, "cpu")

    def fields(self) -> dict[str, object]:
        """The `chosen` of `run_start`: what `auto` became on this machine."""
        return {
            "device": str(self.device),
            "dtype": str(self.dtype).removeprefix("torch."),
            "compile": self.compile,
            "graph": self.graph,
            "repeatable": self.repeatable,
            "threads": self.threads,
            "halves": self.halves,
            "attention": self.attention,
            "peak_flops": self.peak_flops,
            **({} if self.ranks.alone else {"ranks": self.ranks.count, "hosts": len(set(self.ranks.hosts))}),
        }


def choose(
    settings: TrainSettings,
    tokens: int,
    weights: int | None = None,
    ranks: Ranks = ALONE,
    head_size: int | None = None,
    together: int = 1,
) -> Hardware:
    """Follow the settings where they are plain, the machine where they say `auto`.

    `tokens` (or patches of images) pass through the model at once; its layers have so many `weights`, and a head of
    their attention so many numbers. Each of several `ranks` on a machine with GPUs has one of its own, as far as there
    are enough.
    """
    device = pick_device(ranks.device(settings.device))
    dtype = _dtype(settings.dtype, device)
    sharded = "weights are shared out" if settings.shard == "weights" and not ranks.alone else ""
    obstacle = _missing_compiler(device) if device.type == "cuda" or settings.compile == "on" else "pays on CUDA only"
    obstacle = sharded or obstacle
    compiled, reason = _switch("compile", settings.compile, obstacle, pays=True, why="pays on CUDA")
    flops = 6.0 * tokens * weights if weights is not None else float("inf")
    peak, source = _peak(device, dtype)
    small = _is_small(flops, device, peak)
    obstacle = sharded or _no_graph(settings, device, compiled)
    why = "small steps" if small else "steps are large"
    graph, occasion = _switch("graph", settings.graph, obstacle, pays=small, why=why)
    attention = preferred_attention(device)
    name = torch.cuda.get_device_name(device) if device.type == "cuda" else device.type
    count = _thread_count(flops, device, torch.get_num_threads())
    halves = device.type == "cpu" and not compiled and _splits(settings, tokens, together) and not small and not sharded
    threads = f", {_threads(count, halves and not graph)}" if device.type == "cpu" else ""
    words = [f"{name}{threads}", str(dtype).removeprefix("torch."), f"compile {_on(compiled)} ({reason})"]
    if device.type != "mps":
        words.append(f"graph {_on(graph)} ({occasion})")
    if device.type == "cuda":
        words.append(f"attention by {attention}")
    words.append(f"peak {source}" if peak is None else f"peak {peak / 1e12:.3g} TFLOP/s ({source})")
    repeatable = _is_repeatable(settings, device, dtype, compiled, head_size, ranks)
    if device.type != "cpu":
        words.append("repeatable to the bit" if repeatable else NOT_REPEATABLE)
    deterministic = settings.deterministic
    return Hardware(
        device, dtype, compiled, graph, attention, count, halves, peak, ", ".join(words), ranks,
        ordered=deterministic is not False, strict=deterministic is True, repeatable=repeatable,
        shards_weights=bool(sharded),
    )  # fmt: skip


def describe(settings: TrainSettings, tokens: int, weights: int, kind: str, peak: float, threads: int) -> Hardware:
    """What `choose` would choose on a device that is not here: `kind` cuda or cpu, with such a `peak` and `threads`."""
    device = torch.device(kind)
    compiled = kind == "cuda" and settings.compile != "off"
    dtype = torch.bfloat16 if kind == "cuda" and settings.dtype != "float32" else torch.float32
    flops = 6.0 * tokens * weights
    small = _is_small(flops, device, peak)
    graph, _ = _switch("graph", settings.graph, _no_graph(settings, device, compiled), pays=small, why="")
    halves = kind == "cpu" and _splits(settings, tokens) and not small
    attention: AttentionBackend = "cudnn" if kind == "cuda" else "flash"
    return Hardware(device, dtype, compiled, graph, attention, _thread_count(flops, device, threads), halves, peak, "")


def _is_small(flops: float, device: torch.device, peak: float | None) -> bool:
    """Does launching the kernels of a pass of so many FLOP take longer than the kernels?"""
    return flops <= (_GRAPH_SECONDS * (peak or 0.0) if device.type == "cuda" else _RECORDED_FLOPS)


def _thread_count(flops: float, device: torch.device, threads: int) -> int:
    return 1 if device.type == "cpu" and flops <= _ONE_THREAD_FLOPS else threads


def _splits(settings: TrainSettings, tokens: int, together: int = 1) -> bool:
    """Is a pass long enough for two halves, and can it be halved, so many rows of it staying together?"""
    return tokens >= _SPLIT_TOKENS and settings.batch % (2 * together) == 0


def _is_repeatable(
    settings: TrainSettings,
    device: torch.device,
    dtype: torch.dtype,
    compiled: bool,
    head_size: int | None,
    ranks: Ranks = ALONE,
) -> bool:
    """Does the step of a model of Linnet's give the same bits every time? On a GPU by default where it costs little.

    A sum over two ranks has one order only; of more GPUs it must be asked for (`Step.order`).
    """
    if device.type == "cuda" and settings.deterministic:
        set_up_cublas()
        return True
    if settings.deterministic and device.type != "cpu":
        raise UsageError(f"`deterministic`: nothing is known of the order of sums on {device.type}; use `device=cpu`")
    if device.type != "cuda" or settings.deterministic is False or not compiled or head_size is None:
        return device.type == "cpu"
    return ranks.count <= 2 and can_order_attention(head_size, dtype, torch.cuda.get_device_capability(device))


def _threads(count: int, halves: bool) -> str:
    if count == 1:
        return "1 thread"
    asleep = " that wait asleep (the cores are shared)" if waits_asleep() else ""
    return f"{count} threads{asleep}{', two halves of a batch side by side' if halves and count % 2 == 0 else ''}"


def _on(flag: bool) -> str:
    return "on" if flag else "off"


def _dtype(name: str, device: torch.device) -> torch.dtype:
    if name == "auto":
        native = device.type == "cuda" and torch.cuda.is_bf16_supported(including_emulation=False)
        return torch.bfloat16 if native else torch.float32
    return {"float32": torch.float32, "bfloat16": torch.bfloat16}[name]


def _switch(name: str, setting: str, obstacle: str, *, pays: bool, why: str) -> tuple[bool, str]:
    """What `auto`, `on` or `off` comes to, and why; `on` in spite of an obstacle is refused."""
    if setting == "on" and obstacle:
        raise UsageError(f"`{name}=on`: {obstacle}; use `{name}=off`")
    if setting != "auto":
        return setting == "on", "as asked"
    return (False, obstacle) if obstacle else (pays, why)


def _no_graph(settings: TrainSettings, device: torch.device, compiled: bool) -> str:
    """Why a whole step can be neither one CUDA graph nor recorded on a CPU; empty where it can."""
    if device.type not in ("cpu", "cuda"):
        return f"a step can be captured on cuda and cpu, not on {device.type}"
    if device.type == "cpu" and compiled:
        return "a compiled step cannot be recorded"
    if device.type == "cpu" and settings.recompute != "off":
        return "a recorded step keeps every activation, and `recompute` is to save them"
    return capture_obstacle(settings)


def preferred_attention(device: torch.device) -> AttentionBackend:
    """Which of torch's kernels for attention comes first: on Hopper and newer cuDNN's is the quicker one."""
    if device.type == "cuda" and torch.cuda.get_device_capability(device) >= (9, 0):
        return "cudnn"
    return "flash"


def _missing_compiler(device: torch.device) -> str:
    if device.type == "cuda" and find_spec("triton") is None:
        return "triton is not installed"
    if not any(shutil.which(name) for name in ("c++", "g++", "clang++", "cl")):
        return "no C++ compiler is installed"
    return ""


def _peak(device: torch.device, dtype: torch.dtype) -> tuple[float | None, str]:
    if device.type == "cuda" and (peak := stated_peak(torch.cuda.get_device_name(device))) is not None:
        return (peak if dtype == torch.bfloat16 else peak / 2), "stated by its maker"
    return _own_peak(device, dtype, int(time.monotonic() / _PEAK_SECONDS))


@lru_cache
def _own_peak(device: torch.device, dtype: torch.dtype, lately: int) -> tuple[float | None, str]:
    """The peak as measured here, not for each of many short runs of one process again."""
    began, used = time.perf_counter(), time.process_time()
    peak = measured_peak(device, dtype)
    share = (time.process_time() - used) / (time.perf_counter() - began) / torch.get_num_threads()
    if device.type == "cpu" and share < OWN_CORES:
        return None, "not measured (other processes are busy), so no MFU"
    return peak, "a product of matrices, measured"


def measured_peak(device: torch.device, dtype: torch.dtype) -> float:
    """FLOP/s of a product of square matrices, large enough for the device.

    A CPU that only emulates a dtype takes seconds for large ones, and is as slow with small ones.
    """

    def seconds(size: int, at_least: float = 0.15) -> float:
        a = torch.randn(size, size, device=device, dtype=dtype)
        return quickest(lambda: a @ a, at_least)

    if device.type == "cpu" and (small := seconds(256, at_least=0.0)) > _EMULATED_SECONDS:
        return 2 * 256**3 / small
    size = 8192 if device.type == "cuda" else 1024
    return 2 * size**3 / seconds(size)


def measured_bandwidth(device: torch.device) -> float:
    """Bytes a second that a large copy reads and writes."""
    source = torch.ones((1 << 30 if device.type == "cuda" else 1 << 27) // 4, device=device)
    target = torch.empty_like(source)
    return 2 * source.nbytes / quickest(lambda: target.copy_(source))


def quickest(work: Callable[[], Tensor], at_least: float = 0.15) -> float:
    """Seconds of the best of several, over longer than the scheduler's slice for another process."""
    best, times, end = float("inf"), 0, time.perf_counter() + at_least
    while times < 4 or time.perf_counter() < end:
        began = time.perf_counter()
        work().flatten()[0].item()  # waits for the device
        best = min(best, time.perf_counter() - began)
        times += 1
    return best
