"""Text becomes tokens, tokens become batches: `prepare` a corpus, then ask `Batches` for any step."""

from typing import TYPE_CHECKING

from linnet._lazy import lazy as _lazy

if TYPE_CHECKING:
    from linnet.data.batches import NOT_SCORED as NOT_SCORED
    from linnet.data.batches import Batch as Batch
    from linnet.data.batches import Batches as Batches
    from linnet.data.batches import windows as windows
    from linnet.data.errors import DataError as DataError
    from linnet.data.joining import join_parts as join_parts
    from linnet.data.parts import PreparedPart as PreparedPart
    from linnet.data.parts import prepare_part as prepare_part
    from linnet.data.prepared import Prepared as Prepared
    from linnet.data.prepared import prepare as prepare
    from linnet.data.token_set import TokenSet as TokenSet

__all__, __getattr__, __dir__ = _lazy(__name__)
