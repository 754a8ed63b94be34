"""What can be trained: one file a recipe, and what starts and continues them."""

from typing import TYPE_CHECKING

from linnet._lazy import lazy

if TYPE_CHECKING:
    from linnet.recipes.base_file import BaseOptions as BaseOptions
    from linnet.recipes.finetune import Finetune as Finetune
    from linnet.recipes.from_scratch import FromScratch as FromScratch
    from linnet.recipes.job import ImageData as ImageData
    from linnet.recipes.job import Job as Job
    from linnet.recipes.job import TextData as TextData
    from linnet.recipes.lora import Lora as Lora
    from linnet.recipes.lora import LoraOptions as LoraOptions
    from linnet.recipes.registry import RECIPES as RECIPES
    from linnet.recipes.registry import RecipeEntry as RecipeEntry
    from linnet.recipes.training import Training as Training
    from linnet.recipes.training import resume as resume
    from linnet.recipes.training import start as start
    from linnet.recipes.vit_tiny import VitOptions as VitOptions
    from linnet.recipes.vit_tiny import VitSettings as VitSettings
    from linnet.recipes.vit_tiny import VitTiny as VitTiny
    from linnet.recipes.warm_start import WarmOptions as WarmOptions
    from linnet.recipes.warm_start import WarmStart as WarmStart

__all__, __getattr__, __dir__ = lazy(__name__)
