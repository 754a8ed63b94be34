"""The recipes there are: an entry each, which `linnet train`, `linnet.train` and `linnet resume` all read."""

from __future__ import annotations

from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Any

from linnet.errors import UsageError, suggestion

if TYPE_CHECKING:
    from linnet.recipes.recipe import AnyRecipe


@dataclass(frozen=True)
class RecipeEntry:
    """A recipe's class, as `module:class` until it is needed, and what the command line says of it before that."""

    recipe: str | type[AnyRecipe]
    help: str = ""
    examples: str = ""  # a line each


RECIPES: dict[str, RecipeEntry] = {
    "from-scratch": RecipeEntry(
        "linnet.recipes.from_scratch:FromScratch",
        "Train a language model that knows nothing yet, on any text.",
        """\
    linnet train from-scratch
    linnet train from-scratch --corpus books/ --preset nano --steps 5000
    linnet train from-scratch --teacher smollm2.gguf --d-model 192 --n-layers 6 --distill 0.7
    linnet train from-scratch --config run.toml --lr 3e-4
    linnet train from-scratch --preset nano --gpus all --run-id nano-1 --resume auto""",
    ),
    "warm-start": RecipeEntry(
        "linnet.recipes.warm_start:WarmStart",
        "Train a llama that begins with what a donor GGUF knows.",
        """\
    linnet train warm-start --donor smollm2.gguf --init pca --d-model 256 --n-layers 6
    linnet train warm-start --donor smollm2.gguf --init select --d-model 192 --n-layers 6 --corpus books/
    linnet train warm-start --donor smollm2.gguf --untied --vocab 4096 --d-model 192 --n-layers 6 --corpus books/
    linnet train warm-start --donor smollm2.gguf --teacher smollm2.gguf --d-model 192 --n-layers 6 --corpus books/
    linnet train warm-start --donor smollm2.gguf --init full --lr 1e-4""",
    ),
    "lora": RecipeEntry(
        "linnet.recipes.lora:Lora",
        "Teach a model you have: train a small adapter of any llama, Qwen or GPT-2 GGUF, quantised too.",
        """\
    linnet train lora --base smollm2-q4.gguf --corpus notes/
    linnet train lora --base smollm2-q4.gguf --corpus notes/ --rank 16 --targets q,v --dropout 0.05 --epochs 3
    linnet train lora --base latest@best --corpus notes/ --ctx 512 --patience 3
    linnet train lora --base smollm2-q4.gguf --adapter notes.gguf --corpus more/
    linnet train lora --base smollm2-q4.gguf --corpus preferences.jsonl --loss dpo""",
    ),
    "finetune": RecipeEntry(
        "linnet.recipes.finetune:Finetune",
        "Go on training all weights of a model you have, on other text.",
        """\
    linnet train finetune --base smollm2-q4.gguf --corpus notes/
    linnet train finetune --base latest@best --corpus notes/ --epochs 2 --lr 5e-5""",
    ),
    "vit-tiny": RecipeEntry(
        "linnet.recipes.vit_tiny:VitTiny",
        "Train a vision transformer to tell classes of images.",
        """\
    linnet train vit-tiny
    linnet train vit-tiny --images photos/ --flip 0.5 --crop 0.3 --steps 5000
    linnet train vit-tiny --images mnist/ --preset vit-tiny-28 --batch 256 --steps 4000""",
    ),
}


def recipe_type(name: str) -> type[AnyRecipe]:
    """The class of a recipe by its name."""
    if name not in RECIPES:
        raise UsageError(f"there is no recipe {name!r}{suggestion(name, RECIPES)}")
    recipe = RECIPES[name].recipe
    return imported(recipe) if isinstance(recipe, str) else recipe


def default_settings(name: str) -> dict[str, Any]:
    """What a recipe sets when nothing is asked for, by the name that a run's config has for it; empty for no recipe."""
    if name not in RECIPES:
        return {}
    flags = (flag for group in recipe_type(name).flags.values() for flag in group)
    plain = (str, int, float, bool)
    return {flag.name: flag.default for flag in flags if isinstance(flag.default, plain) and flag.turns_off is None}


def imported(name: str) -> Any:
    """What `module:name` stands for."""
    module, _, name = name.partition(":")
    return getattr(import_module(module), name)
