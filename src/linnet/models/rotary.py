"""The table of rotary positions, for neighbouring pairs (ggml's order), so that Q and K go into a file as they are."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from linnet.architectures.rotary import RotaryConfig, rope_scaling_of
from linnet.gguf.config import rope_divisors

_VALUES_AT_ONCE = 1 << 20  # angles held in float64 while a table is made


def rotary_table(config: RotaryConfig, divisors: Tensor | None = None, positions: int | None = None) -> Tensor:
    """[positions, head_size / 2, 2]: cosine and sine for each position and pair, in float32 from float64 angles.

    `positions` is the config's `ctx` where it is not given. `divisors` [head_size / 2] (a file's `rope_freqs.weight`)
    replace those of llama-3 scaling.
    """
    head, scaling = config.head_size, rope_scaling_of(config)
    angles = config.rope_base ** (-np.arange(0, head, 2, dtype=np.float64) / head)
    if scaling is not None and scaling.kind == "linear":
        angles = angles / scaling.factor
    if divisors is not None:
        angles = angles / divisors.double().cpu().numpy()
    elif scaling is not None and scaling.kind == "llama3":
        angles = angles / rope_divisors(scaling, head, config.rope_base)
    table_CP2 = np.empty((config.ctx if positions is None else positions, len(angles), 2), np.float32)
    step = max(1, _VALUES_AT_ONCE // len(angles))
    for start in range(0, len(table_CP2), step):
        part = table_CP2[start : start + step]
        rotations = np.arange(start, start + len(part), dtype=np.float64)[:, None] * angles
        part[..., 0], part[..., 1] = np.cos(rotations), np.sin(rotations)
    return torch.from_numpy(table_CP2)
