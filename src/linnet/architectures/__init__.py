"""One description an architecture: hyper-parameters with their GGUF keys, parameters, how each is initialised, presets.

No torch and no numpy. `linnet.gguf` reads and writes files by it, `linnet.models` computes what it describes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from linnet._lazy import lazy as _lazy

if TYPE_CHECKING:
    from linnet.architectures.description import Architecture as Architecture
    from linnet.architectures.description import Config as Config
    from linnet.architectures.description import Key as Key
    from linnet.architectures.description import Task as Task
    from linnet.architectures.gpt2 import GPT2Config as GPT2Config
    from linnet.architectures.llama import LlamaConfig as LlamaConfig
    from linnet.architectures.parameters import Layout as Layout
    from linnet.architectures.parameters import layout as layout
    from linnet.architectures.registry import ARCHITECTURES as ARCHITECTURES
    from linnet.architectures.registry import PRESETS as PRESETS
    from linnet.architectures.registry import AnyConfig as AnyConfig
    from linnet.architectures.registry import describe as describe
    from linnet.architectures.registry import names_for as names_for
    from linnet.architectures.registry import preset as preset
    from linnet.architectures.registry import presets_for as presets_for
    from linnet.architectures.registry import task_of as task_of
    from linnet.architectures.rotary import RopeScaling as RopeScaling
    from linnet.architectures.rotary import RotaryConfig as RotaryConfig
    from linnet.architectures.vit import ViTConfig as ViTConfig

__all__, __getattr__, __dir__ = _lazy(__name__)
