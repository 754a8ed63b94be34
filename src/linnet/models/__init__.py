"""Language models and vision transformers as plain `nn.Module`s, in llama.cpp's own layout; torch is loaded late."""

from __future__ import annotations

from typing import TYPE_CHECKING

from linnet._lazy import lazy as _lazy

if TYPE_CHECKING:
    from linnet.models.cache import KVCache as KVCache
    from linnet.models.checkpoint import load as load
    from linnet.models.checkpoint import load_vit as load_vit
    from linnet.models.config import Config as Config
    from linnet.models.config import GPT2Config as GPT2Config
    from linnet.models.config import LlamaConfig as LlamaConfig
    from linnet.models.config import config_of as config_of
    from linnet.models.device import pick_device as pick_device
    from linnet.models.gpt2 import GPT2 as GPT2
    from linnet.models.initial import build as build
    from linnet.models.initial import initialise as initialise
    from linnet.models.language_model import LanguageModel as LanguageModel
    from linnet.models.lens import Lens as Lens
    from linnet.models.lens import put_lens as put_lens
    from linnet.models.llama import Llama as Llama
    from linnet.models.presets import PRESETS as PRESETS
    from linnet.models.presets import preset as preset
    from linnet.models.transformers_weights import from_transformers as from_transformers
    from linnet.models.transformers_weights import vit_from_transformers as vit_from_transformers
    from linnet.models.vit import ViT as ViT
    from linnet.models.vit_config import VIT_PRESETS as VIT_PRESETS
    from linnet.models.vit_config import ViTConfig as ViTConfig
    from linnet.models.vit_config import vit_config_of as vit_config_of
    from linnet.models.vit_config import vit_preset as vit_preset
    from linnet.models.vit_initial import build_vit as build_vit
    from linnet.models.vit_initial import select_weights as select_weights

_HOMES = {
    "Config": "linnet.models.config",
    "GPT2": "linnet.models.gpt2",
    "GPT2Config": "linnet.models.config",
    "KVCache": "linnet.models.cache",
    "LanguageModel": "linnet.models.language_model",
    "Lens": "linnet.models.lens",
    "Llama": "linnet.models.llama",
    "LlamaConfig": "linnet.models.config",
    "PRESETS": "linnet.models.presets",
    "VIT_PRESETS": "linnet.models.vit_config",
    "ViT": "linnet.models.vit",
    "ViTConfig": "linnet.models.vit_config",
    "build": "linnet.models.initial",
    "build_vit": "linnet.models.vit_initial",
    "config_of": "linnet.models.config",
    "from_transformers": "linnet.models.transformers_weights",
    "initialise": "linnet.models.initial",
    "load": "linnet.models.checkpoint",
    "load_vit": "linnet.models.checkpoint",
    "pick_device": "linnet.models.device",
    "preset": "linnet.models.presets",
    "put_lens": "linnet.models.lens",
    "select_weights": "linnet.models.vit_initial",
    "vit_config_of": "linnet.models.vit_config",
    "vit_from_transformers": "linnet.models.transformers_weights",
    "vit_preset": "linnet.models.vit_config",
}

__all__ = sorted(_HOMES)

__getattr__, __dir__ = _lazy(__name__, _HOMES)
