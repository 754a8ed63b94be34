"""How much memory a training takes at its peak, from shapes alone; measured against in `bench/plan.py`.

Counted is what lives at the same time: weights, moments and copies for a checkpoint always; of a step either its
activations (all layers have been passed, no gradient is there yet) or its gradients (the other way round). Shapes: N
tokens that pass at once, D width, E width of the fused projection of q, k and v, F width of the feed-forward layer,
T tokens of a sequence, V vocabulary.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn

from linnet.architectures import ViTConfig
from linnet.kernels import cpu
from linnet.train.hardware import Hardware
from linnet.train.optim import OPTIMIZERS
from linnet.train.protocols import Recipe
from linnet.train.settings import TrainSettings

_FLOAT = 4
_HEAD_ROWS = {"cpu": 128, "cuda": 8192}  # of logits at a time (kernels/head_loss.py)
_SCORED = {"cpu": 4096, "cuda": 32_768}  # tokens of an evaluation that pass at once (train/text.py)
_SCORED_IMAGES = {"cpu": 256, "cuda": 1024}
_CPU_LIBRARIES = 40 << 20  # threads' stacks, oneDNN's kernels, Python modules that the first step loads
_FRAGMENTED = 1.2  # times what is in use: freed memory of other sizes stays with the process (train/process.py)
_CUDA_LIBRARIES = 40 << 20  # cuBLAS's workspace of a stream
_CAPTURED_LIBRARIES = 40 << 20  # the same of the stream that steps and samples are captured on
_RECORDED = 3.0  # times the activations: every intermediate result of a recorded step keeps its memory


@dataclass(frozen=True)
class Weights:
    """Bytes of a model: its `parameters`, what an optimizer keeps of them, their gradients.

    `cast`: copies of matrices in a lower precision, which compiled layers read; `muon`: its largest batch of matrices.
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
        batches: dict[torch.Size, int] = {}
        named = list(model.named_parameters())
        trained = [(name, parameter) for name, parameter in named if parameter.requires_grad]
        for name, parameter in trained:
            by_kind = kind is not None and kind.trains(name, parameter)
            moments += parameter.nbytes * (1 if by_kind else 2)
            if by_kind:
                batches[parameter.shape] = batches.get(parameter.shape, 0) + parameter.nbytes
        if hardware.compile and hardware.dtype.itemsize < _FLOAT:
            linear = (part for part in model.modules() if isinstance(part, nn.Linear))
            cast = sum(p.numel() * hardware.dtype.itemsize for part in linear for p in part.parameters(recurse=False))
        return cls(
            parameters=sum(parameter.nbytes for _, parameter in named),
            moments=moments,
            gradients=sum(parameter.nbytes for _, parameter in trained),
            cast=cast,
            muon=max(batches.values(), default=0),
        )


def peak_memory(recipe: Recipe, settings: TrainSettings, hardware: Hardware, *, scored: int, copies: int) -> int:
    """Bytes that the process (CPU) or torch's allocator (CUDA) will hold at most, those it holds now included.

    - `scored`: tokens or images of an evaluation.
    - `copies`: bytes that are copied for a checkpoint, while the next steps go on.
    """
    model: Any = getattr(recipe, "trained", recipe.model)
    weights = Weights.of(model, settings, hardware)
    shape = _Shape(model, settings, hardware)
    gradients = weights.gradients * (2 if hardware.halves_in_parallel else 1)
    update = gradients + weights.cast + 6 * weights.muon
    step = weights.moments + weights.cast + max(shape.activations, update)
    pause = weights.moments + weights.cast + shape.evaluation(scored)
    if hardware.device.type == "cuda":
        if not hardware.graph:
            return _present(hardware) + max(step + copies, pause) + _CUDA_LIBRARIES
        # A captured step has memory of its own, which the allocator's peak does not tell of again. Such steps are
        # short: a checkpoint is still being copied when a text is scored, or a sample written by weights of its own.
        prepared = 0 if hardware.dtype.itemsize == _FLOAT else weights.parameters * hardware.dtype.itemsize // _FLOAT
        return _present(hardware) + max(step, pause + prepared + copies + _CAPTURED_LIBRARIES) + _CUDA_LIBRARIES
    return _present(hardware) + round(_FRAGMENTED * max(step + copies, pause)) + _CPU_LIBRARIES


class _Shape:
    """The sizes of a model's activations."""

    def __init__(self, model: Any, settings: TrainSettings, hardware: Hardware) -> None:
        config = model.config
        self._config, self._hardware, self._device = config, hardware, hardware.device.type
        self._item = hardware.dtype.itemsize
        self._images = isinstance(config, ViTConfig)
        self._width, self._heads, self._layers = int(config.d_model), int(config.n_heads), int(config.n_layers)
        self._ctx = int(config.tokens if self._images else config.ctx)
        in_turn = hardware.halves and not hardware.halves_in_parallel
        self._rows = settings.batch // 2 if in_turn else settings.batch

    @property
    def activations(self) -> int:
        """Bytes at the end of the forward pass, and those in flight when the backward pass begins."""
        tokens = self._rows * self._ctx
        ends = 5 * self._width * self._item  # embedded, summed, normed, their gradients
        held = tokens * (self._layers * self._layer + ends)
        in_flight = tokens * self._item * 3 * self._feed_forward  # of a layer, backwards
        if self._images:
            held += self._rows * self._pixels * 3 * _FLOAT  # varied, scaled, cut into patches
        else:
            held += self._head
            in_flight = max(in_flight, self._logits(tokens))
        return int((held + in_flight) * (_RECORDED if self._hardware.graph and self._device == "cpu" else 1))

    def evaluation(self, scored: int) -> int:
        """Bytes of a forward pass without gradients over so many tokens or images."""
        numbers = self._one_layer + 2 * self._width
        if self._images:
            images = min(scored, _SCORED_IMAGES.get(self._device, 1024))
            return int(images * (self._ctx * self._item * numbers + 3 * self._pixels * _FLOAT))
        at_once = _SCORED.get(self._device, 4096)
        tokens = max(1, min(at_once // self._ctx, -(-scored // self._ctx))) * self._ctx if scored else 0
        most = _HEAD_ROWS.get(self._device, 2048)
        rows = -(-tokens // max(1, -(-tokens // most)))  # in pieces of the same height
        logits = rows * self._config.vocab * 2 * _FLOAT + 2 * tokens * self._width * self._item  # and logarithms
        if self._item < _FLOAT:
            logits += int(self._config.vocab) * self._width * self._item  # a copy of the head
        return int(max(tokens * self._item * numbers, logits))

    @property
    def _pixels(self) -> int:
        return int(self._config.num_channels * self._config.image_size**2)

    @property
    def _feed_forward(self) -> int:
        """Numbers a token between the two matrices: gate and up, or up alone."""
        gated = hasattr(self._config, "rms_eps")
        return int(self._config.d_ff * (2 if gated else 1))

    @property
    def _attended(self) -> int:
        return self._width if self._images else int(self._heads * self._config.head_size)

    @property
    def _qkv(self) -> int:
        config = self._config
        return 3 * self._width if self._images else int((config.n_heads + 2 * config.n_kv) * config.head_size)

    @property
    def _one_layer(self) -> int:
        """Numbers a token that a layer has at a time where nothing is kept."""
        return max(3 * self._width + 2 * self._qkv, 2 * self._width + 2 * self._feed_forward)

    @property
    def _layer(self) -> float:
        """Bytes a token that a layer keeps for the backward pass."""
        if self._hardware.compile and self._device == "cuda":  # norms and activations are made again
            kept = 2 * self._width + self._qkv + self._attended + self._feed_forward
            return kept * self._item + self._heads * _FLOAT
        kept = 4 * self._width + self._qkv + self._attended + self._feed_forward + int(self._config.d_ff)
        if self._attends_by_blocks:
            return kept * self._item + self._heads * (self._ctx + 32) / 2 * _FLOAT
        rotated = 0 if self._images else (self._qkv + self._attended) // 2
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
    def _head(self) -> int:
        """Bytes of the gradient of the head, and of its copy in a lower precision."""
        numbers = int(self._config.vocab) * self._width
        halves = 2 if self._hardware.halves_in_parallel else 1
        return numbers * (halves * _FLOAT + (self._item if self._item < _FLOAT else 0))

    def _logits(self, tokens: int) -> int:
        """Bytes of the rows of logits that there are at a time, and of their gradients."""
        rows = min(tokens, _HEAD_ROWS.get(self._device, 2048))
        halves = 2 if self._hardware.halves_in_parallel else 1
        return halves * 2 * rows * int(self._config.vocab) * self._item


def _present(hardware: Hardware) -> int:
    """Bytes that are held now: resident ones of the process, or those allocated on a GPU."""
    if hardware.device.type == "cuda":
        return int(torch.cuda.memory_allocated(hardware.device))
    return resident()


def total_memory(device: str) -> int:
    """Bytes that a kind of device has; 0 where nothing tells."""
    if device == "cuda":
        return int(torch.cuda.get_device_properties("cuda").total_memory)
    try:
        import psutil

        return int(psutil.virtual_memory().total)
    except Exception:  # a figure is not worth a run
        return 0


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
