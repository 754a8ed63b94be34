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
    from linnet.models.checkpoint import load as load
    from linnet.models.device import pick_device as pick_device
    from linnet.models.gpt2 import GPT2 as GPT2
    from linnet.models.initial import build as build
    from linnet.models.initial import initialise as initialise
    from linnet.models.language_model import LanguageModel as LanguageModel
    from linnet.models.lens import Lens as Lens
    from linnet.models.lens import put_lens as put_lens
    from linnet.models.llama import Llama as Llama
    from linnet.models.transformers_weights import from_transformers as from_transformers
    from linnet.models.vit import ViT as ViT
    from linnet.models.vit_initial import select_weights as select_weights

_HOMES = {
    "Config": "linnet.architectures.description",
    "GPT2": "linnet.models.gpt2",
    "GPT2Config": "linnet.architectures.gpt2",
    "KVCache": "linnet.models.cache",
    "LanguageModel": "linnet.models.language_model",
    "Lens": "linnet.models.lens",
    "Llama": "linnet.models.llama",
    "LlamaConfig": "linnet.architectures.llama",
    "PRESETS": "linnet.architectures.registry",
    "ViT": "linnet.models.vit",
    "ViTConfig": "linnet.architectures.vit",
    "build": "linnet.models.initial",
    "config_of": "linnet.gguf.config",
    "from_transformers": "linnet.models.transformers_weights",
    "initialise": "linnet.models.initial",
    "load": "linnet.models.checkpoint",
    "pick_device": "linnet.models.device",
    "preset": "linnet.architectures.registry",
    "put_lens": "linnet.models.lens",
    "select_weights": "linnet.models.vit_initial",
}

__all__ = sorted(_HOMES)

__getattr__, __dir__ = _lazy(__name__, _HOMES)
