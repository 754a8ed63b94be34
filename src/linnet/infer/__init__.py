"""Running a model: `generate` goes on from a prompt; `score` and `top_tokens` say how likely a text is."""

from __future__ import annotations

from typing import TYPE_CHECKING

from linnet._lazy import lazy as _lazy

if TYPE_CHECKING:
    from linnet.infer.generate import generate as generate
    from linnet.infer.sampling import Sampling as Sampling
    from linnet.infer.score import Candidate as Candidate
    from linnet.infer.score import Prediction as Prediction
    from linnet.infer.score import Score as Score
    from linnet.infer.score import score as score
    from linnet.infer.score import top_tokens as top_tokens

_HOMES = {
    "Candidate": "linnet.infer.score",
    "Prediction": "linnet.infer.score",
    "Sampling": "linnet.infer.sampling",
    "Score": "linnet.infer.score",
    "generate": "linnet.infer.generate",
    "score": "linnet.infer.score",
    "top_tokens": "linnet.infer.score",
}

__all__ = sorted(_HOMES)

__getattr__, __dir__ = _lazy(__name__, _HOMES)
