"""Named ways to fine-tune, chosen with ``--preset`` beside a system's own presets.

A recipe is no shape of a model: it says how weights that learnt one thing learn the next, so it is of several systems,
and what it says depends on the task and on whether there is something to begin with.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ensue.models.table import SYSTEMS


@dataclass(frozen=True)
class Recipe:
    """What is set, by the flat names of run.toml."""

    systems: tuple[str, ...]
    """Those it is for."""
    language: Mapping[str, Any]
    """To go on with a text of another kind."""
    tuning: Mapping[str, Any]
    """To learn to label from weights that were trained before."""
    head: Mapping[str, Any]
    """What stands on a body that labels whole texts, trained before or not."""
    data: Mapping[str, Any]
    """How examples are read."""

    def labels(self, whole: bool, initialised: bool) -> dict[str, Any]:
        """The settings of a task that labels whole texts or parts of them, with pre-trained weights or without."""
        return {**self.data, **(self.head if whole else {}), **(self.tuning if initialised else {})}


SLOPE, PAPER_SLOPE = 0.7, 1 / 2.6
"""η_l = slope · η_{l+1}. The paper (Howard and Ruder, 2018) has 1 / 2.6, and lets go of a layer each epoch: that keeps
what a language model has learnt in days. One of half an hour has still to learn, in all its layers; see decision 17."""
TRIANGLE = {"train.schedule": "slanted", "train.warmup": 0.1, "train.floor": 1 / 32}
"""cut_frac = 0.1, ratio = 32."""


def ulmfit(slope: float, unfreeze: float) -> Recipe:
    """Language model → language model of the task's text → classifier, with so steep rates and a layer more after so
    many epochs.
    """
    return Recipe(
        systems=("ulmfit", "lstm", "gru", "gru-cho", "rnn"),
        language={**TRIANGLE, "train.lr": 4e-3, "train.layer_decay": slope},
        tuning={
            **TRIANGLE,
            "train.epochs": 8.0,
            "train.lr": 1e-2,
            "train.beta1": 0.7,
            "train.beta2": 0.99,
            "train.layer_decay": slope,
            "train.freeze": -1,
            "train.unfreeze": unfreeze,
            "train.reach": 70,
        },
        head={
            "head.pooling": "concat",
            "head.dense": "relu",
            "head.hidden": 50,
            "head.norm": "batch",
            "head.dropout": 0.4,
        },
        data={"data.length": 400},
    )


RECIPES: dict[str, Recipe] = {"ulmfit": ulmfit(SLOPE, 1 / 3), "ulmfit-paper": ulmfit(PAPER_SLOPE, 1.0)}


def recipes_for(system: str) -> dict[str, dict[str, Any]]:
    """The recipes that a system can be fine-tuned by, each with what it sets for a task that labels whole texts."""
    found = {name: recipe for name, recipe in RECIPES.items() if system in recipe.systems}
    return {name: recipe.labels(True, True) for name, recipe in found.items()}


def recipe_of(system: str, preset: str) -> Recipe | None:
    """The recipe that a preset names; a system that is made for one is fine-tuned by it whatever its preset."""
    own = str(getattr(SYSTEMS.load(system), "recipe", "")) if system in SYSTEMS else ""
    name = preset if preset in RECIPES else own
    recipe = RECIPES.get(name)
    return recipe if recipe and system in recipe.systems else None
