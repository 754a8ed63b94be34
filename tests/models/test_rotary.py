"""The table of rotary positions."""

from __future__ import annotations

import torch

from linnet.models import LlamaConfig
from linnet.models.llama import rotary_table


def test_a_table_of_positions_is_the_beginning_of_a_longer_one() -> None:
    for head in (2, 6, 64, 128):
        config = LlamaConfig(vocab=9, d_model=head, n_heads=1, n_kv=1, d_ff=8, n_layers=1, ctx=3000)
        whole = rotary_table(config)
        assert whole.shape == (3000, head // 2, 2)
        for positions in (1, 7, 64, 1000, 2999):
            assert torch.equal(rotary_table(config, positions=positions), whole[:positions])
