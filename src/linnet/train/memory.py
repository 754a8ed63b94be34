"""How much memory a training takes at its peak, from shapes alone; measured against in `bench/plan.py`.

Counted is what lives at the same time: weights, moments and copies for a checkpoint always; of a step either its
activations (all layers have been passed, no gradient is there yet) or its gradients (the other way round). Shapes: N
tokens that pass at once, D width, E width of the fused projection of q, k and v, F width of the feed-forward layer,
T tokens of a sequence, V vocabulary.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Container
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypeAlias

import torch
from torch import nn

from linnet.architectures.parameters import stacked_rows
from linnet.kernels import cpu
from linnet.kernels.frozen import decoded_numbers
from linnet.kernels.head_loss import rows_at_once
from linnet.kernels.packed import PackedMatrix, packed_bytes, packed_matrices
from linnet.models.adapted_layers import AdaptedLinear
from linnet.train.gradients import SumOrder
from linnet.train.hardware import Hardware
from linnet.train.inspection.captured_look import are_captured
from linnet.train.inspection.taps import LOGIT_TOKENS, MOST_TOKENS, STACKED_BYTES
from linnet.train.layer_sizes import HEAD_ROWS, LayerSizes
from linnet.train.muon import passing_bytes
from linnet.train.optim import OPTIMIZERS
from linnet.train.protocols import TrainedModel
from linnet.train.settings import TrainSettings

Shard: TypeAlias = Literal["none", "moments", "weights"]
Recompute: TypeAlias = Literal["off", "cheap", "blocks"]

_FLOAT = 4
_SCORED = {"cpu": 4096, "cuda": 32_768}  # tokens of an evaluation that pass at once (train/text.py)
_SCORED_IMAGES = {"cpu": 256, "cuda": 1024}
_CPU_LIBRARIES = 40 << 20  # threads' stacks, oneDNN's kernels, Python modules that the first step loads
_FRAGMENTED = 1.2  # times what is in use: freed memory of other sizes stays with the process (train/process.py)
_CUDA_LIBRARIES = 40 << 20  # cuBLAS's workspace of a stream
_CAPTURED_LIBRARIES = 40 << 20  # the same of the stream that steps and samples are captured on
_CPU_PROCESS = 400 << 20  # Python, torch, Linnet and a prepared corpus, before the first step
_LOOKED_AT, _COMPARED = 6, 3  # copies of what is looked at, and of weights beside their first values
_MUON_BATCHES = 6  # times the largest batch of matrices of one shape: Muon without kernels
_RECORDED = 3.0  # times the activations: every intermediate result of a recorded step keeps its memory


@dataclass(frozen=True)
class Weights:
    """Bytes of a model: its `parameters`, what an optimizer keeps of them, their gradients.

    `cast`: copies of matrices in a lower precision, which compiled layers read; `muon`: what its step holds a while.
    """

    parameters: int
    moments: int
    gradients: int
    cast: int
    muon: int

    @classmethod
    def of(cls, model: nn.Module, settings: TrainSettings, hardware: Hardware) -> Weights:
        """Count those of a model that is built."""
        kind = OPTIMIZERS.get(settings.optimizer)
        moments = cast = 0
        moved: dict[str, nn.Parameter] = {}
        named = list(model.named_parameters())
        trained = [(name, parameter) for name, parameter in named if parameter.requires_grad]
        for name, parameter in trained:
            by_kind = kind is not None and kind.trains(name, parameter)
            moments += parameter.nbytes * (1 if by_kind else 2)
            if by_kind:
                moved[name] = parameter
        if hardware.compile and hardware.dtype.itemsize < _FLOAT:
            linear = (part for part in model.modules() if isinstance(part, nn.Linear))
            matrices = (p for part in linear for p in part.parameters(recurse=False) if p.dtype != hardware.dtype)
            cast = sum(p.numel() * hardware.dtype.itemsize for p in matrices)
        return cls(
            parameters=sum(parameter.nbytes for _, parameter in named) + packed_bytes(model),
            moments=moments,
            gradients=sum(parameter.nbytes for _, parameter in trained),
            cast=cast,
            muon=_muon_bytes(model, moved, settings, hardware),
        )


def _muon_bytes(
    model: nn.Module, matrices: dict[str, nn.Parameter], settings: TrainSettings, hardware: Hardware
) -> int:
    """What a step of Muon holds for a while: counted where kernels do it, measured elsewhere."""
    if hardware.device.type == "cuda" and not hardware.shards_weights:
        config: Any = getattr(model, "config", None)
        rows = {} if config is None or settings.muon_norm == "rms" else stacked_rows(config)
        return passing_bytes((p.shape, rows.get(name) or (p.shape[0],)) for name, p in matrices.items())
    batches = Counter[torch.Size]()
    for parameter in matrices.values():
        batches[parameter.shape] += parameter.nbytes
    return _MUON_BATCHES * max(batches.values(), default=0)


@dataclass(frozen=True)
class Sharing:
    """What several ranks keep a part of, each its own, and what is computed twice instead of being kept.

    - `shard`: none, the optimizer's `moments`, or `weights`, gradients and moments.
    - `recompute`: the activations between products (`cheap`), or all of a block but its input (`blocks`).
    - `of_process`: bytes that the process holds before the first step, where it is not this one.
    """

    ranks: int = 1
    shard: Shard = "none"
    recompute: Recompute = "off"
    of_process: int | None = None


ALONE = Sharing()


def peak_memory(
    recipe: TrainedModel,
    settings: TrainSettings,
    hardware: Hardware,
    *,
    scored: int,
    copies: int,
    sharing: Sharing = ALONE,
    tokens: int | None = None,
) -> int:
    """Bytes that the process (CPU) or torch's allocator (CUDA) will hold at most, those it holds now included.

    - `scored`: tokens or images of an evaluation.
    - `copies`: bytes that are copied for a checkpoint, while the next steps go on.
    - `tokens`: of a sequence, where a model's context is longer than what it is trained on.
    """
    model: Any = getattr(recipe, "trained", recipe.model)
    weights = Weights.of(model, settings, hardware)
    shape = _Shape(model, settings, hardware, sharing, tokens)
    ranks = hardware.ranks.count if sharing.of_process is None else sharing.ranks
    buffers = shape.gradient_buffers(settings, ranks)
    gradients = weights.gradients * (2 if hardware.halves_in_parallel else 0 if buffers else 1)
    moments, cast, held = weights.moments, weights.cast, buffers * weights.gradients  # buffers stay
    if sharing.shard != "none":
        moments //= sharing.ranks
    if sharing.shard == "weights":  # the weights of two blocks are there at a time, and the head
        held //= sharing.ranks
        full_copy = weights.parameters * hardware.dtype.itemsize // _FLOAT
        cast = 2 * full_copy // max(1, shape.layers) + shape.head_copy
    update = gradients + weights.cast // (sharing.ranks if sharing.shard == "weights" else 1) + weights.muon
    activations = shape.activations
    if (teacher := getattr(recipe, "teacher", None)) is not None:
        own, beside = teacher.activations(shape.tokens, hardware.device.type, fused=hardware.compile)
        activations = max(own, activations + beside)
    if settings.inspected is not None and "grads" in settings.inspected.every:
        update += weights.gradients  # the weights as they were before the update
        held += activations if hardware.graph else 0  # a step that is looked at is captured by itself
    if settings.inspected is not None and are_captured(settings, hardware):
        held += shape.captured_looks(settings.inspected.every, weights.parameters)
    step = moments + cast + held + max(activations, update)
    pause = moments + cast + held + shape.evaluation(scored)
    present = _present(hardware) if sharing.of_process is None else sharing.of_process
    if hardware.device.type == "cuda":
        if not hardware.graph:
            return present + max(step + copies, pause) + _CUDA_LIBRARIES
        # A captured step has memory of its own, which the allocator's peak does not tell of again. Such steps are
        # short: a checkpoint is still being copied when a text is scored, or a sample written by weights of its own.
        prepared = 0 if hardware.dtype.itemsize == _FLOAT else weights.parameters * hardware.dtype.itemsize // _FLOAT
        return present + max(step, pause + prepared + copies + _CAPTURED_LIBRARIES) + _CUDA_LIBRARIES
    return present + round(_FRAGMENTED * max(step + copies, pause)) + _CPU_LIBRARIES


def process_memory(parameters: int, kind: str) -> int:
    """Bytes that a process with weights of so many bytes holds before its first step, on a device of that kind."""
    return parameters if kind == "cuda" else _CPU_PROCESS + parameters


@dataclass(frozen=True)
class FrozenParts:
    """What a model that is frozen in part takes less, and what it takes more.

    - `unread`: numbers a token of a layer that nobody keeps, as the projection that reads them is not trained.
    - `decoded`: bytes of packed matrices that are decoded at a time. `trains_head`: is there a gradient of the head?
    - `head_rows`: rows of logits at a time, where the head is packed.
    """

    unread: int = 0
    decoded: int = 0
    trains_head: bool = True
    head_rows: int | None = None

    @classmethod
    def of(cls, model: Any, device: str, item: int) -> FrozenParts:
        """Those of a model; of one without an adapter nothing is less or more."""
        adapter = getattr(model, "adapter", None)
        if adapter is None:
            return cls()
        block = model.blocks[0]
        sizes = LayerSizes.of(model.config)
        inputs = {
            block.attn_qkv: sizes.width,
            block.attn_output: sizes.attended,
            getattr(block, "ffn_gate_up", None) or block.ffn_up: sizes.width,
            block.ffn_down: sizes.d_ff,
        }
        unread = sum(width for layer, width in inputs.items() if not isinstance(layer, AdaptedLinear))
        packed = packed_matrices(model)
        decoded = max((decoded_numbers(matrix, device) for matrix in packed.values()), default=0)
        head = model.head_VD
        rows = rows_at_once(device, head) if isinstance(head, PackedMatrix) else None
        return cls(unread, decoded * (_FLOAT if device == "cpu" else item), adapter.changes_head, rows)


class _Shape:
    """The sizes of a model's activations."""

    def __init__(
        self, model: Any, settings: TrainSettings, hardware: Hardware, sharing: Sharing, tokens: int | None = None
    ) -> None:
        config = model.config
        self._recompute = sharing.recompute
        self._hardware, self._device = hardware, hardware.device.type
        self._item = hardware.dtype.itemsize
        self._sizes = sizes = LayerSizes.of(config, tokens)
        self._frozen = FrozenParts.of(model, self._device, self._item)
        self._images, self._ctx = sizes.of_images, sizes.tokens
        self._width, self._heads, self.layers = sizes.width, sizes.heads, sizes.layers
        in_turn = hardware.halves and not hardware.halves_in_parallel
        self._rows = settings.batch // 2 if in_turn else settings.batch

    @property
    def tokens(self) -> int:
        """That pass at once."""
        return self._rows * self._ctx

    @property
    def activations(self) -> int:
        """Bytes at the end of the forward pass, and those in flight when the backward pass begins."""
        tokens = self.tokens
        ends = 5 * self._width * self._item  # embedded, summed, normed, their gradients
        held = tokens * (self.layers * self._kept_layer + ends) + self._frozen.decoded
        in_flight = tokens * self._item * 3 * self._sizes.gate_up  # of a layer, backwards
        if self._recompute == "blocks" or (self._recompute == "cheap" and not self._hardware.compile):
            in_flight += int(tokens * self._layer)  # made again
        if self._images:
            held += self._rows * self._sizes.pixels * 3 * _FLOAT  # varied, scaled, cut into patches
        else:
            held += self._head
            in_flight = max(in_flight, self._logits(tokens))
        return int((held + in_flight) * (_RECORDED if self._hardware.graph and self._device == "cpu" else 1))

    def gradient_buffers(self, settings: TrainSettings, ranks: int) -> int:
        """Buffers that hold all gradients at once (train/gradients.py); 0: each parameter has its own, for a while."""
        if self._device != "cpu":
            return int(ranks > 1)
        of_text = settings.batch if settings.batch_tokens is None else settings.batch_tokens // self._ctx
        rows = settings.batch_images or of_text
        parts_of = settings.batch // 2 if self._hardware.halves else settings.batch
        order = SumOrder.of(max(rows, ranks), parts_of, ranks)
        return order.copies if ranks > 1 or order.shares > 1 else 0

    def evaluation(self, scored: int) -> int:
        """Bytes of a forward pass without gradients over so many tokens or images."""
        numbers = self._one_layer + 2 * self._width
        if self._images:
            images = min(scored, _SCORED_IMAGES.get(self._device, 1024))
            return int(images * (self._ctx * self._item * numbers + 3 * self._sizes.pixels * _FLOAT))
        at_once = _SCORED.get(self._device, 4096)
        tokens = max(1, min(at_once // self._ctx, -(-scored // self._ctx))) * self._ctx if scored else 0
        most = self._frozen.head_rows or HEAD_ROWS.get(self._device, 2048)
        rows = -(-tokens // max(1, -(-tokens // most)))  # in pieces of the same height
        logits = rows * self._sizes.vocab * 2 * _FLOAT + 2 * tokens * self._width * self._item  # and logarithms
        if self._item < _FLOAT:
            logits += self._sizes.vocab * self._width * self._item  # a copy of the head
        return int(max(tokens * self._item * numbers, logits))

    def captured_looks(self, groups: Container[str], parameters: int) -> int:
        """Bytes that looks keep, each captured in memory of its own; of a model with so many bytes."""
        sizes, kept = self._sizes, 0
        if "taps" in groups:
            tokens = max(1, min(self._rows, MOST_TOKENS // self._ctx)) * self._ctx
            waiting = tokens * self.layers * (6 * sizes.width + sizes.qkv + sizes.d_ff) * self._item
            together = min(waiting, STACKED_BYTES) * _FLOAT // self._item
            kept += waiting + _LOOKED_AT * max(together, LOGIT_TOKENS * sizes.vocab * _FLOAT)
        if "drift" in groups:
            kept += _COMPARED * max(min(parameters, STACKED_BYTES), sizes.vocab * sizes.width * _FLOAT)
        return kept

    @property
    def _one_layer(self) -> int:
        """Numbers a token that a layer has at a time where nothing is kept."""
        return max(3 * self._width + 2 * self._sizes.qkv, 2 * self._width + 2 * self._sizes.gate_up)

    @property
    def _kept_layer(self) -> float:
        """Bytes a token that a layer keeps for the backward pass, less what is made again."""
        if self._recompute == "blocks":
            return self._width * self._item
        if self._recompute == "off" or self._hardware.compile:  # compiled layers make what is cheap again anyway
            return self._layer
        products = 2 * self._width + self._sizes.qkv + self._sizes.gate_up
        if self._device == "cpu":  # attention writes into its own products there: they cannot be kept
            return min(self._layer, products * self._item)
        return min(self._layer, (products + self._sizes.attended) * self._item + self._heads * _FLOAT)

    @property
    def _layer(self) -> float:
        """Bytes a token that a layer keeps for the backward pass, where nothing is made again."""
        if self._hardware.compile and self._device == "cuda":  # norms and activations are made again
            kept = 2 * self._width + self._sizes.qkv + self._sizes.attended + self._sizes.gate_up
            return kept * self._item + self._heads * _FLOAT
        kept = 4 * self._width + self._sizes.qkv + self._sizes.attended + self._sizes.gate_up + self._sizes.d_ff
        kept -= self._frozen.unread
        if self._attends_by_blocks:
            return kept * self._item + self._heads * (self._ctx + 32) / 2 * _FLOAT
        rotated = 0 if self._images else (self._sizes.qkv + self._sizes.attended) // 2
        return (kept + rotated) * self._item + self._heads * _FLOAT

    @property
    def _attends_by_blocks(self) -> bool:
        """Does the CPU keep the probabilities of attention (kernels/cpu.py)?"""
        if self._images or self._device != "cpu" or self._item != _FLOAT or self._hardware.compile:
            return False
        rows = self._rows // 2 if self._hardware.halves_in_parallel else self._rows
        probabilities = 2 * rows * self._heads * self._ctx * (self._ctx + 32)
        return (self._ctx <= 32 or self._ctx >= cpu.LEAST_TOKENS) and probabilities <= cpu.MOST_BYTES

    @property
    def head_copy(self) -> int:
        """Bytes of the head in a lower precision."""
        return int(self._sizes.vocab * self._width * self._item) if self._item < _FLOAT else 0

    @property
    def _head(self) -> int:
        """Bytes of the gradient of the head, and of its copy in a lower precision."""
        if not self._frozen.trains_head:
            return 0
        numbers = self._sizes.vocab * self._width
        halves = 2 if self._hardware.halves_in_parallel else 1
        return numbers * (halves * _FLOAT + (self._item if self._item < _FLOAT else 0))

    def _logits(self, tokens: int) -> int:
        """Bytes of the rows of logits that there are at a time, and of their gradients."""
        rows = min(tokens, self._frozen.head_rows or HEAD_ROWS.get(self._device, 2048))
        halves = 2 if self._hardware.halves_in_parallel else 1
        return halves * 2 * rows * self._sizes.vocab * self._item


def _present(hardware: Hardware) -> int:
    """Bytes that are held now: resident ones of the process, or those allocated on a GPU."""
    if hardware.device.type == "cuda":
        return int(torch.cuda.memory_allocated(hardware.device))
    return resident()


def total_memory(device: str) -> int:
    """Bytes that a kind of device has; 0 where nothing tells."""
    if device == "cuda":
        return int(torch.cuda.get_device_properties("cuda").total_memory)
    return _host_memory("total") or 0


def free_memory(device: torch.device) -> int | None:
    """Bytes that a device could still give; None where nothing tells."""
    if device.type == "cuda":
        return int(torch.cuda.mem_get_info(device)[0])
    return _host_memory("available")


def _host_memory(figure: Literal["total", "available"]) -> int | None:
    try:
        import psutil

        return int(getattr(psutil.virtual_memory(), figure))
    except Exception:  # a figure is not worth a run
        return None


def resident() -> int:
    """Resident bytes of this process; 0 where nothing tells."""
    try:
        return int(Path("/proc/self/statm").read_text().split()[1]) * _page_size()
    except (OSError, ValueError, IndexError):
        try:
            import psutil

            return int(psutil.Process().memory_info().rss)
        except Exception:  # a figure is not worth a run
            return 0


def _page_size() -> int:
    import resource

    return resource.getpagesize()
