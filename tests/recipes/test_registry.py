"""A recipe is one class and one entry: its flags are its data's fields, and everything finds it in the registry."""

from __future__ import annotations

import dataclasses
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import linnet
from linnet.errors import UsageError
from linnet.recipes import RECIPES, FromScratch, RecipeEntry
from linnet.recipes.flags import changed_fields, config_flags, defaults_of, flags_of
from linnet.recipes.job import ImageData, TextData
from linnet.recipes.registry import recipe_type
from linnet.recipes.vit_tiny import VitOptions
from linnet.recipes.warm_start import WarmOptions
from linnet.train.settings import TrainSettings


@pytest.mark.parametrize("name", RECIPES)
def test_every_flag_of_a_recipe_is_explained_and_none_has_the_name_of_another(name: str) -> None:
    flags = [flag for group in recipe_type(name).flags.values() for flag in group]
    assert all(flag.help.endswith(".") for flag in flags)
    assert len({flag.name for flag in flags}) == len(flags)


@pytest.mark.parametrize("kind", [TextData, ImageData, TrainSettings, VitOptions])
def test_every_field_of_the_data_is_a_flag(kind: type[Any]) -> None:
    of_a_fork = {"schedule_start", "data_offset"}  # follow from the checkpoint at which it began
    of_images = {"batch_images"}  # where the data are images, below
    when_it_runs = {"by_rule", "donor_name", "donor_sha256"}  # flags that were not given; what the donor was
    fields = {field.name for field in dataclasses.fields(kind)} - of_a_fork - of_images - when_it_runs
    assert {flag.name for flag in flags_of(kind)} == fields


def test_a_step_has_so_many_images_or_so_many_tokens() -> None:
    named = {name: {flag.name for flags in recipe_type(name).flags.values() for flag in flags} for name in RECIPES}
    assert {name for name, flags in named.items() if "batch_images" in flags} == {"vit-tiny"}
    assert {name for name, flags in named.items() if "batch_tokens" in flags} == {
        "from-scratch",
        "warm-start",
        "lora",
        "finetune",
    }


def test_what_is_found_out_is_no_flag() -> None:
    assert [flag.name for flag in flags_of(WarmOptions)][-1] == "train_table"


def test_a_documented_field_of_an_architecture_is_a_flag() -> None:
    @dataclasses.dataclass(frozen=True)
    class Config:
        """A shape.

        Args:
            width: How wide it is,
                and no more.
        """

        width: int
        depth: int = 2
        gated: bool = dataclasses.field(default=True, metadata={"flag": "ungated", "help": "Leave out the gate."})

    Config.__annotations__ = {"width": int, "depth": int, "gated": bool}
    flags = config_flags([Config])
    assert [(flag.name, flag.help) for flag in flags] == [
        ("width", "How wide it is, and no more."),
        ("ungated", "Leave out the gate."),
    ]
    assert changed_fields(flags, defaults_of(flags)) == {}
    assert changed_fields(flags, {"width": 3, "ungated": True}) == {"width": 3, "gated": False}


class Shouting(FromScratch):
    """A recipe of a program's own."""

    name = "shouting"

    @property
    def remark(self) -> str:
        """What it begins with."""
        return "LOUD"


@pytest.fixture
def _shouting() -> Iterator[None]:
    RECIPES["shouting"] = RecipeEntry(Shouting)
    yield
    del RECIPES["shouting"]


@pytest.mark.usefixtures("_shouting")
def test_a_recipe_of_ones_own_is_trained_and_resumed_by_its_name(corpus: Path, cache: Path) -> None:
    small: dict[str, Any] = {"preset": "tiny", "vocab": 384, "batch": 4, "eval_every": 0, "sample_every": 0}
    run = linnet.train("shouting", corpus=corpus, cache=cache, steps=2, device="cpu", **small)
    assert (run.manifest.recipe, run.status) == ("shouting", "completed")
    assert linnet.resume(run, steps=3).metrics()["loss"].step.tolist() == [1, 2, 3]


def test_a_run_of_a_recipe_that_is_not_there_is_refused_by_its_name() -> None:
    with pytest.raises(UsageError, match="there is no recipe 'shouting'; choose from from-scratch, warm-start"):
        recipe_type("shouting")


def test_the_recipes_are_described_without_torch() -> None:
    code = (
        "import sys; from linnet.recipes.registry import RECIPES, recipe_type\n"
        "print([len(recipe_type(name).flags) for name in RECIPES], 'torch' in sys.modules)"
    )
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert said == "[4, 5, 4, 4, 4] False\n"
