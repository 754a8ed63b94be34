"""`CostModel`: what a training would take on devices that need not be here: memory, time, energy, pauses, and why.

It shares the plan of a training (`make_plan`) for memory, disk and checkpoints, on a model that is described and not
built; the time of a step is calculated (`cost.py`), and what ranks wait for each other (`cluster.py`).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Literal, TypeAlias

import torch
from torch import Tensor, nn

from linnet.architectures import AnyConfig
from linnet.errors import UsageError
from linnet.models.initial import allocate
from linnet.train.checkpoint import ModelFormat
from linnet.train.cluster import Cluster, curve_clusters
from linnet.train.cost import StepCost, StepShape, step_cost
from linnet.train.devices import Device, stated_peak
from linnet.train.hardware import Hardware, describe
from linnet.train.layer_sizes import LayerSizes
from linnet.train.memory import Recompute, Shard, Sharing, process_memory
from linnet.train.optim import OPTIMIZERS
from linnet.train.plan import Plan, make_plan
from linnet.train.settings import TrainSettings
from linnet.train.shards import SHARDED_FROM

Limit: TypeAlias = Literal["compute", "link", "batch too small", "batch uneven", "memory"]
Overlap: TypeAlias = Literal["auto", "on", "off"]

_FLOAT, _BF16 = 4, 2
_OVERLAPPED = 0.9  # of a sum, at most: its last bucket is full when the backward pass is over
_PAUSE_SECONDS = (
    10e-3  # that a checkpoint holds the steps up besides its copy: 6 to 20 ms on an H200 (bench/RESULTS.md)
)
_BUSY = 1.35  # times the share of the time in which a device works at all, for its watts
_MOSTLY = 2 / 3  # of a step: so much computing, and nothing else limits it
_DAY = 86_400.0


@dataclass(frozen=True)
class Forecast:
    """What a step takes on a cluster.

    - `rows`: sequences or images a rank has in a step, `at_once` of which pass through the model together.
    - `cost`: of a rank's own work; `link`: seconds it waits for the others besides; None: it cannot be done.
    - `pause`: seconds that a checkpoint holds the steps up; `plan`: memory, disk and checkpoints.
    - `limit`: what a step spends most of its time with; `why`: where there can be none, the reason in words.
    """

    cluster: Cluster
    device: Device
    plan: Plan
    rows: int
    at_once: int
    limit: Limit
    cost: StepCost | None = None
    link: float = 0.0
    pause: float = 0.0
    why: str = ""

    @property
    def passes(self) -> int:
        """How often a rank goes through the model for one step."""
        return -(-self.rows // self.at_once)

    @property
    def memory(self) -> int:
        """Bytes of each device at the peak."""
        return self.plan.memory

    @property
    def fits(self) -> bool:
        """Has each device the memory?"""
        return self.memory <= self.device.memory

    @property
    def step_seconds(self) -> float | None:
        """Seconds of a step; None where there is none."""
        return None if self.cost is None else self.cost.seconds + self.link

    @property
    def speed(self) -> float | None:
        """Tokens or images a second, on all ranks together."""
        return None if self.step_seconds is None else self.plan.per_step / self.step_seconds

    @property
    def per_day(self) -> float | None:
        """Tokens or images a day, with the pauses for checkpoints."""
        if self.step_seconds is None or self.plan.steps is None:
            return None
        paused = self.plan.saves * self.pause / self.plan.steps
        return self.plan.per_step / (self.step_seconds + paused) * _DAY

    @property
    def mfu(self) -> float | None:
        """The share of the stated (else the measured) peak that the arithmetic of a step comes to."""
        if self.step_seconds is None:
            return None
        peak = stated_peak(self.device.name) or self.device.products
        return self.plan.step_flops / self.step_seconds / peak / self.cluster.ranks

    @property
    def watts(self) -> float | None:
        """Of all devices together; None where nobody knows a device's. What else is in a machine is not counted."""
        if self.cost is None or self.step_seconds is None or not self.device.busy_watts:
            return None
        busy = min(1.0, _BUSY * (self.cost.work + self.cost.optimiser) / self.step_seconds)
        idle = self.device.idle_watts
        return self.cluster.ranks * (idle + busy * (self.device.busy_watts - idle))

    def shares(self) -> dict[str, float]:
        """What part of a step is computing, waiting for others, and fixed: the same however few tokens there are."""
        if self.cost is None or self.step_seconds is None:
            return {}
        fixed = self.cost.optimiser + self.cost.kernels + self.cost.host
        parts = {"compute": self.cost.work, "link": self.link, "fixed": fixed}
        return {name: seconds / self.step_seconds for name, seconds in parts.items()}

    def fields(self) -> dict[str, Any]:
        """As `--json` has it."""
        ranks = {"gpus": self.cluster.gpus, "machines": self.cluster.machines, "ranks": self.cluster.ranks}
        shared = {"rows": self.rows, "batch": self.at_once, "passes": self.passes}
        figures = {
            "memory": self.memory,
            "fits": self.fits,
            "step_seconds": self.step_seconds,
            "per_second": self.speed,
            "per_day": self.per_day,
            "mfu": self.mfu,
            "watts": self.watts,
            "checkpoint_pause": self.pause if self.cost is not None else None,
            "limit": self.limit,
            "why": self.why or None,
        }
        parts = {} if self.cost is None else {"seconds": {**self.cost.parts(), "link": self.link}}
        return {name: value for name, value in (ranks | shared | figures | parts).items() if value is not None}


class CostModel:
    """The forecasts of one training on one kind of device, for any number of them.

    - `per_rank`: every rank has one pass of `settings.batch` a step, however many there are; else the batch is the
      settings', and ranks share it.
    - `shard`: auto: moments from 300M parameters on, where there are several ranks. `overlap`: off: gradients are
      summed after the backward pass, not during it.
    """

    def __init__(
        self,
        config: AnyConfig,
        settings: TrainSettings,
        device: Device,
        *,
        per_rank: bool = False,
        shard: Shard | Literal["auto"] = "auto",
        recompute: Recompute = "off",
        overlap: Overlap = "auto",
    ) -> None:
        self.config, self.device, self._overlap, self._recompute = config, device, overlap, recompute
        self.per_rank, self._settings = per_rank, settings
        self._sizes = LayerSizes.of(config)
        self._recipe = _DescribedRecipe(config)
        by_size: Shard = "moments" if self.parameters >= SHARDED_FROM else "none"
        self.shard: Shard = by_size if shard == "auto" else shard

    @cached_property
    def parameters(self) -> int:
        """Numbers that are trained."""
        return sum(parameter.numel() for parameter in self._recipe.model.parameters())

    @property
    def noun(self) -> str:
        """What a rank has, in words."""
        return "GPU" if self.device.kind == "cuda" else "machine"

    def forecast(self, cluster: Cluster) -> Forecast:
        """What a step takes there; also where it cannot be done, with the reason."""
        ranks, data = cluster.ranks, _DescribedData(self._sizes, self._settings, cluster.ranks if self.per_rank else 1)
        rows = data.rows
        mine = max(1, -(-rows // ranks))
        at_once = min(self._settings.batch, mine)
        hardware = self._hardware(at_once, ranks)
        total = None if self._sizes.of_images else data.per_step
        settings = replace(self._settings.in_steps(data.per_step, None), batch=at_once, batch_tokens=total)
        plan = make_plan(self._recipe, data, settings, hardware, sharing=self._sharing(ranks))
        shared = Forecast(cluster, self.device, plan, mine, at_once, "batch too small")
        kind = "images" if self._sizes.of_images else "sequences"
        if rows < ranks:
            return replace(shared, why=f"{rows:,} {kind} a step are too few for {ranks:,} {self.noun}s")
        if rows % ranks:
            why = f"{ranks:,} {self.noun}s cannot share the {rows:,} {kind} of a step evenly"
            return replace(shared, limit="batch uneven", why=why)
        cost = step_cost(self._shape(ranks, at_once, -(-mine // at_once), hardware), self.device)
        link = self._link(cluster, cost, -(-mine // at_once))
        done = replace(shared, cost=cost, link=link, pause=self._pause(plan, cost.seconds + link, ranks))
        if not done.fits:
            return replace(done, limit="memory")
        shares = done.shares()
        if shares["compute"] >= _MOSTLY:
            return replace(done, limit="compute")
        return replace(done, limit="link" if shares["link"] > shares["fixed"] else "batch too small")

    def curve(self, cluster: Cluster, most: int) -> list[Forecast]:
        """From one device to `most` of them, machines as large as those of `cluster`, which is among them."""
        sizes = curve_clusters(cluster.gpus, cluster.machines, cluster.link, cluster.gpu_link, most)
        return [self.forecast(size) for size in sizes]

    def _hardware(self, at_once: int, ranks: int) -> Hardware:
        settings, tokens = replace(self._settings, batch=at_once, batch_tokens=None), at_once * self._sizes.tokens
        weights = sum(p.numel() for name, p in self._recipe.model.named_parameters() if name.startswith("blocks."))
        peak = stated_peak(self.device.name) or self.device.products
        hardware = describe(settings, tokens, weights, self.device.kind, peak, self.device.threads)
        if self.shard == "weights" and ranks > 1:  # layers of FSDP2 are neither compiled nor captured
            return replace(hardware, compile=False, graph=False, halves=False)
        if self._recompute != "off" and self.device.kind == "cpu":  # a recorded step would keep every activation
            return replace(hardware, graph=False)
        return hardware

    def _sharing(self, ranks: int) -> Sharing:
        shard: Shard = self.shard if ranks > 1 else "none"
        weights = _FLOAT * self.parameters // (ranks if shard == "weights" else 1)
        return Sharing(ranks, shard, self._recompute, process_memory(weights, self.device.kind))

    def _shape(self, ranks: int, at_once: int, passes: int, hardware: Hardware) -> StepShape:
        own = ranks if self.shard != "none" else 1
        matrices = self._matrices()
        alone = hardware.device.type == "cpu" and hardware.threads == 1
        return StepShape(
            self._sizes,
            at_once,
            passes,
            self.parameters / own,
            muon=tuple((height, width, count / ranks) for height, width, count in matrices),  # whole ones, shared out
            compiled=hardware.compile,
            captured=hardware.graph,
            recompute=self._recompute,
            threads=1 / self.device.threads if alone else 1.0,
        )

    def _matrices(self) -> list[tuple[int, int, float]]:
        """Those of Muon, by shape."""
        kind = OPTIMIZERS.get(self._settings.optimizer)
        counts: dict[tuple[int, int], float] = {}
        for name, parameter in self._recipe.model.named_parameters():
            if kind is not None and kind.trains(name, parameter):
                shape = len(parameter), parameter[0].numel()
                counts[shape] = counts.get(shape, 0.0) + 1
        return [(*shape, count) for shape, count in counts.items()]

    def _link(self, cluster: Cluster, cost: StepCost, passes: int) -> float:
        """Seconds of a step in which a rank waits for the sums of others."""
        if cluster.ranks == 1:
            return 0.0
        numbers = float(self.parameters)
        during = cluster.gather_seconds(_FLOAT * numbers)  # the gradients, each rank a part of them
        after = cluster.gather_seconds(_FLOAT * numbers)  # their sum, or the weights that were made of it
        if self.shard == "weights":
            during += 2 * passes * cluster.gather_seconds(_BF16 * numbers)  # a block's, before each of its passes
            after = 0.0
        elif self.shard == "none":
            during, after = during + after, 0.0
        if self._matrices():
            after += cluster.gather_seconds(_FLOAT * sum(h * w * count for h, w, count in self._matrices()))
        hidden = 0.0 if self._overlap == "off" else min(_OVERLAPPED * during, cost.backward / passes)
        return during - hidden + after

    def _pause(self, plan: Plan, step_seconds: float, ranks: int) -> float:
        """Seconds that a checkpoint holds the steps up: its copy, and the last one where that is not written yet."""
        copied = _FLOAT * self.parameters * (1 + 2 / (ranks if self.shard != "none" else 1))
        between = (plan.steps or 0) / max(1, plan.saves) * step_seconds
        waiting = max(0.0, plan.save_seconds - between) if plan.saves > 1 else 0.0
        return _PAUSE_SECONDS + 2 * copied / self.device.bandwidth + waiting


class _DescribedRecipe:
    """A model of which there is nothing but its shapes."""

    def __init__(self, config: AnyConfig) -> None:
        self.config: Any = config
        self.model: Any = allocate(config, torch.device("meta"))
        self.weights_format = ModelFormat(config)

    def parameters(self) -> dict[str, Tensor]:
        """What a checkpoint would hold."""
        return self.model.params()  # type: ignore[no-any-return]


class _DescribedData:
    """So much data a step, of which nobody knows how much there is."""

    per_epoch: int | None = None
    tokenizer: object | None = None
    held_out_metrics = ("loss",)

    def __init__(self, sizes: LayerSizes, settings: TrainSettings, times: int) -> None:
        self._sizes, self._settings = sizes, settings
        self.unit = "images" if sizes.of_images else "tokens"
        passes = 1 if sizes.of_images else settings.accumulate(sizes.tokens)
        self.rows = settings.batch * passes * times
        self.per_step = self.rows * (1 if sizes.of_images else sizes.tokens)
        if not sizes.of_images:
            self.tokenizer = sizes.vocab

    def flops(self, model: nn.Module) -> float:
        """The arithmetic of a step."""
        described: Any = model
        item_flops = (
            described.flops_per_image() if self._sizes.of_images else described.flops_per_token(self._sizes.tokens)
        )
        return float(item_flops) * self.per_step

    def scored(self, step: int) -> int:
        """Tokens or images of an evaluation."""
        return 1024 if self._sizes.of_images else self._settings.tokens_to_score(self.per_step)


def check_cluster(cluster: Cluster, most: int) -> None:
    """Refuse counts and speeds that no cluster has."""
    for name, value in (("gpus", cluster.gpus), ("machines", cluster.machines), ("to", most)):
        if not 1 <= value <= 1_000_000:
            raise UsageError(f"`{name}` is a number of devices from 1 to 1,000,000, found {value:,}")
    for name, speed in (("link", cluster.link), ("gpu_link", cluster.gpu_link)):
        if not 0 < speed < 1e15:
            raise UsageError(f"`{name}` is a speed in GB/s above 0, found {speed / 1e9:g}")
