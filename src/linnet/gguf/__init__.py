"""The GGUF file: parse, write, tensor names, tokenizer block, quantised blocks. No torch at import.

`blocks`, `card`, `check`, `convert` and `tokenizer` are modules; the other names live in them.
"""

from typing import TYPE_CHECKING

from linnet._lazy import lazy as _lazy

if TYPE_CHECKING:
    from linnet.architectures.parameters import Layout as Layout
    from linnet.architectures.parameters import layout as layout
    from linnet.architectures.rotary import RopeScaling as RopeScaling
    from linnet.gguf import blocks as blocks
    from linnet.gguf import card as card
    from linnet.gguf import check as check
    from linnet.gguf import convert as convert
    from linnet.gguf import tokenizer as tokenizer
    from linnet.gguf.adapter import AdapterFile as AdapterFile
    from linnet.gguf.adapter import adapter_layout as adapter_layout
    from linnet.gguf.adapter import write_adapter as write_adapter
    from linnet.gguf.blocks import dequantize as dequantize
    from linnet.gguf.blocks import quantize_q8_0 as quantize_q8_0
    from linnet.gguf.card import Card as Card
    from linnet.gguf.card import read_card as read_card
    from linnet.gguf.check import Finding as Finding
    from linnet.gguf.checkpoint import Provenance as Provenance
    from linnet.gguf.checkpoint import read_params as read_params
    from linnet.gguf.checkpoint import stored_params as stored_params
    from linnet.gguf.checkpoint import unfolded as unfolded
    from linnet.gguf.checkpoint import write as write
    from linnet.gguf.checkpoint import write_step as write_step
    from linnet.gguf.config import config_of as config_of
    from linnet.gguf.errors import GGUFError as GGUFError
    from linnet.gguf.file import GGUFFile as GGUFFile
    from linnet.gguf.file import point_link as point_link
    from linnet.gguf.file import resolve_link as resolve_link
    from linnet.gguf.locate import LocatedModel as LocatedModel
    from linnet.gguf.locate import find_models as find_models
    from linnet.gguf.merge import merge as merge
    from linnet.gguf.metadata import MetadataBlock as MetadataBlock
    from linnet.gguf.metadata import ValueType as ValueType
    from linnet.gguf.tensor import GGMLType as GGMLType
    from linnet.gguf.tensor import TensorInfo as TensorInfo
    from linnet.gguf.tokenizer import donor_keys as donor_keys
    from linnet.gguf.tokenizer import rebuild_tokenizer as rebuild_tokenizer
    from linnet.gguf.tokenizer_write import tokenizer_block as tokenizer_block
    from linnet.gguf.tokenizer_write import train_tokenizer as train_tokenizer
    from linnet.gguf.toy import Lens as Lens
    from linnet.gguf.toy import read_lens as read_lens
    from linnet.gguf.toy import write_lens as write_lens
    from linnet.gguf.writer import GGUFWriter as GGUFWriter

__all__, __getattr__, __dir__ = _lazy(__name__)
