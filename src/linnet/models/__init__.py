"""Language models and vision transformers as plain `nn.Module`s, in llama.cpp's own layout; torch is loaded late."""

from __future__ import annotations

from typing import TYPE_CHECKING

from linnet._lazy import lazy as _lazy

if TYPE_CHECKING:
    from linnet.architectures.description import Config as Config
    from linnet.architectures.gpt2 import GPT2Config as GPT2Config
    from linnet.architectures.llama import LlamaConfig as LlamaConfig
    from linnet.architectures.registry import PRESETS as PRESETS
    from linnet.architectures.registry import preset as preset
    from linnet.architectures.vit import ViTConfig as ViTConfig
    from linnet.gguf.config import config_of as config_of
    from linnet.models.cache import KVCache as KVCache
    from linnet.models.gpt2 import GPT2 as GPT2
    from linnet.models.initial import build as build
    from linnet.models.initial import initialise as initialise
    from linnet.models.lens import Lens as Lens
    from linnet.models.lens import put_lens as put_lens
    from linnet.models.llama import Llama as Llama
    from linnet.models.loading import from_transformers as from_transformers
    from linnet.models.loading import load as load
    from linnet.models.loading import pick_device as pick_device
    from linnet.models.transformer import LanguageModel as LanguageModel
    from linnet.models.vit import ViT as ViT
    from linnet.models.vit_initial import select_weights as select_weights

__all__, __getattr__, __dir__ = _lazy(__name__)
