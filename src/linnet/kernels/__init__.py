"""Fast forms of a model's operations, compiled and captured execution, and the one place that chooses among them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from linnet._lazy import lazy as _lazy

if TYPE_CHECKING:
    from linnet.kernels import ops as ops
    from linnet.kernels.decode import DecodeWeights as DecodeWeights
    from linnet.kernels.decode import decode_weights as decode_weights
    from linnet.kernels.decode import drop_decode_weights as drop_decode_weights
    from linnet.kernels.executor import Compiled as Compiled
    from linnet.kernels.executor import Executor as Executor
    from linnet.kernels.executor import Recomputed as Recomputed
    from linnet.kernels.executor import eager as eager
    from linnet.kernels.head_loss import backward as backward
    from linnet.kernels.head_loss import gradients as gradients
    from linnet.kernels.ops import Residual as Residual
    from linnet.kernels.replay import Graph as Graph
    from linnet.kernels.replay import Recording as Recording

__all__, __getattr__, __dir__ = _lazy(__name__)
