"""Recipes for fine-tuning, chosen with ``--preset`` beside a system's own presets.

A recipe sets how pre-trained weights learn the next task, not the shape of a model. So it is for several systems, and
its settings depend on the task and on whether there are pre-trained weights.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ensue.models.table import SYSTEMS


@dataclass(frozen=True)
class Recipe:
    """Settings by the flat names of run.toml."""

    systems: tuple[str, ...]
    """The systems it is for."""
    language: Mapping[str, Any]
    """To continue pre-training on another kind of text."""
    tuning: Mapping[str, Any]
    """To fine-tune pre-trained weights for labelling."""
    head: Mapping[str, Any]
    """The head for labels of whole texts, with pre-trained weights or without."""
    data: Mapping[str, Any]
    """How examples are read."""

    def labels(self, whole: bool, initialised: bool) -> dict[str, Any]:
        """The settings of a task that labels whole texts or parts of them, with pre-trained weights or without."""
        return {**self.data, **(self.head if whole else {}), **(self.tuning if initialised else {})}


SLOPE, PAPER_SLOPE = 0.7, 1 / 2.6
"""η_l = slope · η_{l+1}. The paper (Howard and Ruder, 2018) has 1 / 2.6, and unfreezes a layer each epoch: that keeps
what a language model learnt in days. One of half an hour still has to learn in all its layers; see decision 17."""
TRIANGLE = {"train.schedule": "slanted", "train.warmup": 0.1, "train.floor": 1 / 32}
"""cut_frac = 0.1, ratio = 32."""


def ulmfit(slope: float, unfreeze: float) -> Recipe:
    """Language model → language model of the task's text → classifier; a layer unfreezes every ``unfreeze`` epochs."""
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
    """Return the recipes for a system, each with its settings for labels of whole texts."""
    return {name: recipe.labels(True, True) for name, recipe in RECIPES.items() if system in recipe.systems}


def recipe_of(system: str, preset: str) -> Recipe | None:
    """Return the recipe that a preset names, or the one that the system names itself."""
    own = str(getattr(SYSTEMS.load(system), "recipe", "")) if system in SYSTEMS else ""
    recipe = RECIPES.get(preset) or RECIPES.get(own)
    return recipe if recipe and system in recipe.systems else None
