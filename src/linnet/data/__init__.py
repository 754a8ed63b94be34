"""Text becomes tokens, tokens become batches: `prepare` a corpus, then ask `Batches` for any step."""

from linnet._lazy import lazy as _lazy

_HOMES = {
    "Batch": "linnet.data.batches",
    "Batches": "linnet.data.batches",
    "DataError": "linnet.data.errors",
    "NOT_SCORED": "linnet.data.batches",
    "Prepared": "linnet.data.prepared",
    "TokenSet": "linnet.data.shard",
    "prepare": "linnet.data.prepared",
    "windows": "linnet.data.batches",
}

__all__ = sorted(_HOMES)

__getattr__, __dir__ = _lazy(__name__, _HOMES)
