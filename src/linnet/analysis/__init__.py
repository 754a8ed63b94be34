"""Models beside each other and from within: the line between two, their likeness, how far they came, what layers say.

Torch is loaded when one of them is used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from linnet._lazy import lazy as _lazy

if TYPE_CHECKING:
    from linnet.analysis.alignment import Aligned as Aligned
    from linnet.analysis.alignment import align as align
    from linnet.analysis.attention import AttentionMaps as AttentionMaps
    from linnet.analysis.attention import attention as attention
    from linnet.analysis.checkpoint import Checkpoint as Checkpoint
    from linnet.analysis.connectivity import LossLine as LossLine
    from linnet.analysis.connectivity import lmc as lmc
    from linnet.analysis.drift import Drift as Drift
    from linnet.analysis.drift import drift as drift
    from linnet.analysis.logit_lens import LensWords as LensWords
    from linnet.analysis.logit_lens import lens_words as lens_words
    from linnet.analysis.similarity import Similarity as Similarity
    from linnet.analysis.similarity import cka as cka
    from linnet.analysis.similarity import cka_matrix as cka_matrix
    from linnet.analysis.similarity import linear_cka as linear_cka

__all__, __getattr__, __dir__ = _lazy(__name__)
