"""Linear CKA: how alike two models represent the same tokens or images, layer by layer, whatever their widths.

Unbiased (Song et al. 2012, Nguyen et al. 2021): the usual estimate is near 1 for any two wide layers and few samples,
since a thousand directions can be laid through a thousand points however they lie. This one is near 0 for layers that
have nothing in common, at any number of samples, and can be a little below. With many samples the two are the same.

Shapes: N samples (tokens, patches or images), P and Q channels of two layers.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from linnet.analysis.checkpoint import Checkpoint, Model
from linnet.analysis.held_out import TOKENS, ProbeText, Progress, probe_images, probe_text, require_probe
from linnet.errors import UsageError, suggestion
from linnet.gguf.file import GGUFFile
from linnet.infer.loaded_model import LoadedModel
from linnet.models import ViT, pick_device
from linnet.models.observation import BLOCK_REGIONS, Activations, Region, observe

RESIDUAL, CLASS_TOKEN = "resid_post_block", "class_token"
_SAMPLES = 1024  # tokens or patches, by default
_FEWEST, _MOST = 16, 8192  # samples: of fewer the estimate says nothing, of more the products of all pairs are many
_EXACT = torch.float64
_WINDOW = 256  # tokens that are read in one go: as much context as most models were trained to use
_IMAGES_AT_ONCE = 64


@dataclass(frozen=True)
class Similarity:
    """The CKA of every layer of one model with every layer of another, or of itself.

    - `rows`, `columns`: the layers of `a` and of `b`; `values_RC`: from 0, nothing in common, to 1, the same but for
      rotation and scale.
    - `region`: what was compared of a layer; `samples` of `source`.
    """

    a: str
    b: str
    rows: tuple[str, ...]
    columns: tuple[str, ...]
    values_RC: NDArray[np.float64]
    region: str
    samples: int
    unit: str
    source: str

    def as_fields(self) -> dict[str, Any]:
        """All of it as plain values."""
        known = {name: getattr(self, name) for name in ("a", "b", "region", "samples", "unit", "source")}
        return {
            **known,
            "estimate": "unbiased",
            "rows": self.rows,
            "columns": self.columns,
            "cka": self.values_RC.tolist(),
        }


def cka(
    a: Model,
    b: Model | None = None,
    *,
    region: str = RESIDUAL,
    corpus: str | None = None,
    text: str | None = None,
    images: str | None = None,
    samples: int = _SAMPLES,
    cache: Path | None = None,
    device: str = "auto",
    runs: str | os.PathLike[str] | None = None,
    progress: Progress | None = None,
) -> Similarity:
    """Compare the layers of two models on the same text or images, or those of one with each other.

    similarity = linnet.analysis.cka("student", "smollm2.gguf")
    similarity.values_RC[-1]                  # the student's last layer against each of the donor's

    - `a`, `b`: MODELs; their widths and numbers of layers may differ, their tokenizers may not.
    - `region`: what is compared of each layer (`linnet.models.observation`); by default the residual stream behind it.
    - `corpus`, `text`, `images`: what they are shown; by default what A's run held out, else B's; of neither Python's
      library.
    - `samples`: tokens (or patches) that are compared.
    """
    if region not in BLOCK_REGIONS:
        raise UsageError(f"a layer has no region {region!r}{suggestion(region, BLOCK_REGIONS)}")
    if not _FEWEST <= samples <= _MOST:
        raise UsageError(f"`samples` is from {_FEWEST} to {_MOST:,}, found {samples}")
    first = Checkpoint.find(a, runs)
    second = first if b is None else Checkpoint.find(b, runs)
    if first.task != second.task:
        raise UsageError(f"{first.name} and {second.name} do different things: nothing can be shown to both")
    if first.task == "text":
        require_same_tokens(first, second)
    home = first if first.run is not None or second.run is None else second
    _require_region(region, first, second)
    require_probe(first, corpus=corpus, text=text, images=images)
    chosen = pick_device(device)
    models = [checkpoint.load(chosen) for checkpoint in dict.fromkeys((first, second))]
    shown: tuple[list[Tensor], str]
    if isinstance(models[0].module, ViT):
        unit = "images" if region == CLASS_TOKEN else "patches"
        pictures, source, _ = probe_images(home, models[0].module.config, images=images, progress=progress)
        shown = _pictures(models, pictures.images_NCHW, samples, chosen, unit), source
    else:
        unit = "tokens"
        probe = probe_text(home, corpus=corpus, text=text, cache=cache, progress=progress)
        shown = _windows(models, probe, samples, chosen), probe.source
    layers = [layer_values(model, shown[0], region, samples) for model in models]
    values = cka_matrix(list(layers[0].values()), list(layers[-1].values()))
    count = len(next(iter(layers[0].values())))
    names = [tuple(map(_label, values)) for values in (layers[0], layers[-1])]
    return Similarity(first.name, second.name, names[0], names[1], values, region, count, unit, shown[1])


def cka_matrix(ours_NP: Sequence[Tensor], theirs_NQ: Sequence[Tensor]) -> NDArray[np.float64]:
    """[R, C]: unbiased linear CKA of each layer with each other one, over the same samples."""
    others = [_Gram.of(y_NQ) for y_NQ in theirs_NQ]
    values = np.full((len(ours_NP), len(others)), np.nan)
    for r, x_NP in enumerate(ours_NP):
        gram = _Gram.of(x_NP)
        for c, other in enumerate(others):
            norm = max(0.0, gram.hsic(gram) * other.hsic(other)) ** 0.5
            values[r, c] = gram.hsic(other) / norm if norm > 0 else np.nan
    return values


def linear_cka(x_NP: Tensor, y_NQ: Tensor) -> float:
    """Unbiased linear CKA of two layers over the same samples."""
    return float(cka_matrix([x_NP], [y_NQ])[0, 0])


@dataclass(frozen=True)
class _Gram:
    """The products of all pairs of samples of a layer, none with itself; their sums by row, and of all."""

    pairs_NN: Tensor
    rows_N: Tensor
    total: float

    @classmethod
    def of(cls, x_NP: Tensor) -> _Gram:
        x_NP = x_NP.float() - x_NP.float().mean(0)  # changes nothing, and keeps small differences of large numbers
        scale = x_NP.square().mean().sqrt()
        x_NP = x_NP / scale if scale > 0 else x_NP
        pairs_NN = (x_NP @ x_NP.T).fill_diagonal_(0)
        rows_N = pairs_NN.sum(1, dtype=_EXACT) if pairs_NN.device.type != "mps" else pairs_NN.sum(1)
        return cls(pairs_NN, rows_N, float(rows_N.sum()))

    def hsic(self, other: _Gram) -> float:
        """The unbiased estimate of HSIC, up to a factor that is the same for all layers."""
        n = len(self.rows_N)
        same = float((self.pairs_NN.flatten() @ other.pairs_NN.flatten()).double())
        of_totals = self.total * other.total / ((n - 1) * (n - 2))
        return same + of_totals - 2 / (n - 2) * float(self.rows_N @ other.rows_N)


def require_same_tokens(first: Checkpoint, second: Checkpoint) -> None:
    """Refuse models of text that would be shown other tokens."""
    models = first.files.model, second.files.model
    if models[0] == models[1]:
        return
    with GGUFFile.open(models[0]) as one, GGUFFile.open(models[1]) as other:
        tokens, others = (cast("Sequence[str] | None", file.metadata.get(TOKENS)) for file in (one, other))
        if tokens is not None and others is not None and list(tokens) != list(others):
            raise UsageError(
                f"{first.name} and {second.name} have other tokens, so none of one stands for one of the other: only"
                " models with one tokenizer are compared"
            )


def _require_region(region: str, *checkpoints: Checkpoint) -> None:
    """Refuse to compare what a model does not have."""
    for checkpoint in checkpoints:
        if region == CLASS_TOKEN and getattr(checkpoint.config, "pooling", None) != "cls":
            raise UsageError(f"{checkpoint.name} has no class token: choose another `region`")


def _windows(models: Sequence[LoadedModel], probe: ProbeText, samples: int, device: torch.device) -> list[Tensor]:
    """Stretches of the text that all models can read, as many as make so many tokens."""
    if len(probe) < _FEWEST:
        raise UsageError(f"the text has {len(probe)} tokens: to compare layers by them it takes {_FEWEST} or more")
    ctx = min(_WINDOW, *(model.config.ctx for model in models), len(probe))
    count = min(-(-samples // ctx), len(probe) // ctx)
    begins = [at * (len(probe) - ctx) // max(1, count - 1) for at in range(count)]  # not all of the first document
    return [torch.from_numpy(probe.window(begin, ctx)).to(device)[None] for begin in begins]


def _pictures(
    models: Sequence[LoadedModel], images_NCHW: NDArray[Any], samples: int, device: torch.device, unit: str
) -> list[Tensor]:
    shapes = {(m.config.num_channels, m.config.image_size, m.config.tokens) for m in models}
    if len(shapes) > 1:
        raise UsageError(
            "the models see images of other sizes or in other patches: none of one stands for one of the other"
        )
    of_each = 1 if unit == "images" else models[0].config.tokens
    count = min(len(images_NCHW), -(-samples // of_each))
    pixels = torch.from_numpy(np.ascontiguousarray(images_NCHW[:count])).to(device)
    return list(pixels.split(_IMAGES_AT_ONCE))


@torch.no_grad()
def layer_values(model: LoadedModel, shown: Sequence[Tensor], region: str, samples: int) -> Mapping[Region, Tensor]:
    """[N, P] of each layer; of the residual stream also what the first layer reads."""
    regions = ("embd", region) if region == RESIDUAL else (region,)
    parts: dict[Region, list[Tensor]] = {}
    module: Any = model.module
    for inputs in shown:
        kept = Activations(regions, _by_sample)
        with observe(module, kept):
            module.hidden(inputs) if hasattr(module, "hidden") else module(inputs)
        for place, values in kept.items():
            parts.setdefault(place, []).append(values)
    joined = {place: torch.cat(values)[:samples] for place, values in parts.items()}
    most = max(map(len, joined.values()))
    # The last layer of a transformer with a class token computes that one alone: too few beside the others.
    return {place: values for place, values in joined.items() if len(values) == most}


def _by_sample(x: Tensor) -> Tensor:
    """[N, P]: [B, T, P], or by heads [B, H, T, D], with a row for each token."""
    x = x.transpose(1, 2) if x.ndim == 4 else x
    return x.flatten(2).flatten(0, 1).float()


def _label(region: Region) -> str:
    return "embd" if region.layer is None else str(region.layer)
