"""`Device`: what a kind of device can do, and where its figures come from; `measure_device` finds those of this one.

Figures of the H200 and of the EPYC are measured (`bench/cost.py` says how well they predict). Those of other GPUs are
what their makers state, times the share of it that the H200 reached: nobody has measured them here, and a plan says so.
"""

from __future__ import annotations

import re
import time
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from linnet.errors import UsageError, suggestion

if TYPE_CHECKING:
    import torch

_GB = 1e9


@dataclass(frozen=True)
class Device:
    """Figures of one device.

    - `kind`: cuda or cpu; `threads`: of a CPU, which its figures are those of.
    - `products`: FLOP/s of a large product of matrices: in bf16 on a GPU, in float32 on a CPU.
    - `bandwidth`: bytes a second that a large copy reads and writes together.
    - `attention`: FLOP/s of fused attention over long sequences; 0 on a CPU, where products do it.
    - `elementwise`: numbers a second of an activation whose operands lie in the cache; 0 on a GPU, where the bandwidth
      decides.
    - `kernel`: seconds of the shortest product in a captured step; of the shortest operation, on a CPU.
    - `memory`: bytes. `idle_watts`, `busy_watts`: 0 where nobody has measured or stated them.
    - `link`: bytes a second that one device sends to the others of its machine.
    - `source`: where the figures come from, in words; `measured`: were they all measured?
    """

    name: str
    kind: str
    products: float
    bandwidth: float
    attention: float
    elementwise: float
    kernel: float
    memory: float
    idle_watts: float
    busy_watts: float
    link: float
    source: str
    measured: bool = False
    threads: int = 1


# What a step of ours drew and reached on an H200 on 2026-11-16, torch 2.11 (docs/cost.md).
H200 = Device(
    name="H200",
    kind="cuda",
    products=752e12,
    bandwidth=4.15e12,
    attention=431e12,
    elementwise=0.0,
    kernel=2.0e-6,
    memory=141 * _GB,
    idle_watts=82.0,
    busy_watts=693.0,
    link=300 * _GB,
    source="measured on one, 2026-11-16; the link between several is assumed",
    measured=True,
)

# The machine of bench/RESULTS.md: products and threads by `train_cpu`, elementwise by its steps.
EPYC = Device(
    name="EPYC",
    kind="cpu",
    products=193e9,
    bandwidth=20e9,
    attention=0.0,
    elementwise=2.3e9,
    kernel=3.6e-6,
    memory=24 * 2**30,
    idle_watts=0.0,
    busy_watts=0.0,
    link=0.93 * _GB,
    source="measured with 2 cores, 2026-11-15; the link is gloo's on one machine",
    measured=True,
    threads=2,
)

# Dense bf16 FLOP/s, bytes a second, bytes, watts, and bytes a second to the others of a machine, as the makers state
# them; the last is half of what NVLink is stated with, or what PCIe 4 gives in practice.
_STATED = {
    "H200": (989e12, 4.8e12, 141 * _GB, 700.0, 450 * _GB),
    "H100": (989e12, 3.35e12, 80 * _GB, 700.0, 450 * _GB),
    "B200": (2250e12, 8.0e12, 180 * _GB, 1000.0, 900 * _GB),
    "A100": (312e12, 2.04e12, 80 * _GB, 400.0, 300 * _GB),
    "L40S": (362e12, 0.864e12, 48 * _GB, 350.0, 30 * _GB),
    "L4": (121e12, 0.3e12, 24 * _GB, 72.0, 30 * _GB),
    "A10": (125e12, 0.6e12, 24 * _GB, 150.0, 30 * _GB),
    "RTX 5090": (210e12, 1.79e12, 32 * _GB, 575.0, 30 * _GB),
    "RTX 4090": (165e12, 1.01e12, 24 * _GB, 450.0, 30 * _GB),
    "RTX 3090": (71e12, 0.936e12, 24 * _GB, 350.0, 30 * _GB),
}


def stated_peak(name: str) -> float | None:
    """Dense bf16 FLOP/s of a GPU as its maker states it, by the name that CUDA gives it."""
    word = _stated_name(name)
    return None if word is None else _STATED[word][0]


def device_names() -> list[str]:
    """What `find_device` knows."""
    return ["cpu", "epyc", *(name.lower().replace("rtx ", "rtx-") for name in _STATED)]


def find_device(name: str) -> Device:
    """A device of the table by its name, in any spelling: h200, RTX-4090, `NVIDIA L4`."""
    if name.lower() == "epyc":
        return EPYC
    word = _stated_name(name.replace("-", " "))
    if word is None:
        raise UsageError(f"there are no figures of a device {name!r}{suggestion(name.lower(), device_names())}")
    return H200 if word == "H200" else _like_h200(word)


def _stated_name(name: str) -> str | None:
    """The GPU's name in the table; an A1000 is no A100, an L40 no L4."""
    return next((word for word in _STATED if re.search(rf"\b{word}\b", name, re.IGNORECASE)), None)


def _like_h200(word: str) -> Device:
    """A device that nobody has measured: the share of the stated figures that an H200 reaches."""
    products, bandwidth, memory, watts, link = _STATED[word]
    reference = _STATED["H200"]
    by_products, by_bandwidth = products / reference[0], bandwidth / reference[1]
    return replace(
        H200,
        name=word,
        products=H200.products * by_products,
        bandwidth=H200.bandwidth * by_bandwidth,
        attention=H200.attention * by_products,
        memory=memory,
        idle_watts=H200.idle_watts * watts / reference[3],
        busy_watts=H200.busy_watts * watts / reference[3],
        link=H200.link * link / reference[4],
        source="never measured: its maker's figures, as far as an H200 reaches them",
        measured=False,
    )


def measure_device(device: torch.device) -> Device:
    """The figures of a device of this machine, in two seconds; what cannot be measured is that of the table.

    Watts and link of a GPU cannot be measured so, nor can those of a CPU.
    """
    import torch

    from linnet.train.hardware import OWN_CORES, measured_bandwidth, measured_peak, quickest
    from linnet.train.memory import total_memory

    if device.type != "cuda":
        numbers = torch.randn(1 << 16)
        shortest = torch.randn(64, 64)
        began, used = time.perf_counter(), time.process_time()
        products = measured_peak(device, torch.float32)
        own = (time.process_time() - used) / (time.perf_counter() - began) / torch.get_num_threads()
        busy = "" if own >= OWN_CORES else ", while others were busy: too slow"
        return replace(
            EPYC,
            name="cpu",
            products=products,
            bandwidth=measured_bandwidth(device),
            elementwise=_SILU_SHARE * numbers.numel() / quickest(lambda: torch.nn.functional.silu(numbers)),
            kernel=quickest(lambda: shortest + 1),
            memory=float(total_memory("cpu")),
            threads=torch.get_num_threads(),
            source=f"measured here, {torch.get_num_threads()} threads{busy or '; watts are not known'}",
        )
    name = torch.cuda.get_device_name(device)
    known = H200 if (word := _stated_name(name)) is None else find_device(word)
    return replace(
        known,
        name=name,
        products=measured_peak(device, torch.bfloat16),
        bandwidth=measured_bandwidth(device),
        attention=_attention_rate(device),
        kernel=_captured_kernel(device),
        memory=float(torch.cuda.get_device_properties(device).total_memory),
        idle_watts=known.idle_watts if word else 0.0,
        busy_watts=known.busy_watts if word else 0.0,
        source="measured here; watts and link are those of the table" if word else "measured here; the link is assumed",
        measured=True,
    )


_IN_A_ROW = 16
_SILU_SHARE = 1.0  # of the numbers a second of SiLU that a step's element-wise operations make


def _attention_rate(device: torch.device) -> float:
    """FLOP/s of causal attention, forward and backward: of two lengths, so that what depends on the tokens is out."""
    import torch

    from linnet.kernels.ops import attend, attention_backend
    from linnet.train.hardware import preferred_attention, quickest

    def seconds(length: int) -> float:
        shape = (16_384 // length, 8, length, 64)
        q, k, v, grad = (torch.randn(shape, device=device, dtype=torch.bfloat16) for _ in range(4))
        inputs = [tensor.requires_grad_() for tensor in (q, k, v)]

        def work() -> torch.Tensor:  # so often that the device does not wait for the host
            return [torch.autograd.grad(attend(q, k, v, None), inputs, grad)[0] for _ in range(_IN_A_ROW)][-1]

        with attention_backend(preferred_attention(device)):
            return quickest(work) / _IN_A_ROW

    return 7 * 16_384 * 8 * 64 * (4096 - 1024) / max(seconds(4096) - seconds(1024), 1e-9)


def _captured_kernel(device: torch.device) -> float:
    """Seconds of the shortest product in a CUDA graph."""
    import torch

    from linnet.train.hardware import quickest

    count, matrix = 200, torch.randn(64, 64, device=device, dtype=torch.bfloat16)
    result = matrix @ matrix
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(count):
            result = result @ matrix

    def replay() -> torch.Tensor:
        graph.replay()
        return result

    return quickest(replay) / count
