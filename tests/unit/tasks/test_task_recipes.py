"""Recipes: what ``--preset ulmfit`` sets for which task, with and without something to begin with."""

import pytest

from ensue.core.errors import InputError
from ensue.models.table import SYSTEMS
from ensue.runs.settings_resolution import resolve
from ensue.tasks.labels.task import BACKBONES, FROM_SCRATCH
from ensue.tasks.recipes import RECIPES, recipe_of, recipes_for

BEGUN = {"begin_with": "run"}


@pytest.mark.parametrize(
    ("preset", "slope", "unfreeze"),
    [("ulmfit", 0.7, pytest.approx(1 / 3)), ("ulmfit-paper", pytest.approx(1 / 2.6), 1.0)],
)
@pytest.mark.parametrize("system", RECIPES["ulmfit"].systems)
def test_ulmfit_sets_fine_tuning_for_labels(system, preset, slope, unfreeze):
    settings = resolve(system, task="classify", preset=preset, layers=[BEGUN])
    train, head = settings.train, settings.head
    assert (train.layer_decay, train.freeze, train.unfreeze) == (slope, -1, unfreeze)
    assert (train.schedule, train.warmup, train.floor) == ("slanted", 0.1, 1 / 32)
    assert (head.pooling, head.dense, head.hidden, train.reach) == ("concat", "relu", 50, 70)
    assert settings.run.preset == preset


def test_without_pretrained_weights_ulmfit_sets_only_the_head():
    settings = resolve("lstm", task="classify", preset="ulmfit", layers=[{}])
    assert (settings.train.freeze, settings.train.layer_decay, settings.train.reach) == (0, 1.0, 0)
    assert settings.train.lr == FROM_SCRATCH["train.lr"] and settings.head.pooling == "concat"


def test_continued_pretraining_has_a_rate_for_each_layer():
    begun = resolve("lstm", preset="ulmfit", layers=[BEGUN])
    assert begun.train.layer_decay == 0.7 and begun.train.schedule == "slanted"
    first = resolve("ulmfit", layers=[{}])
    assert first.train.layer_decay == 1.0 and first.train.schedule == "one-cycle" and first.model["hidden"] == 512


def test_ulmfit_sets_no_pooling_for_a_tagger():
    assert resolve("lstm", task="tag", preset="ulmfit", layers=[BEGUN]).head.pooling == "auto"


def test_ulmfit_needs_no_preset_and_other_systems_have_none_by_default():
    assert resolve("ulmfit", task="classify", layers=[BEGUN]).train.unfreeze == pytest.approx(1 / 3)
    paper = resolve("ulmfit", task="classify", preset="paper", layers=[{}])
    assert paper.model["hidden"] == 1150 and paper.head.pooling == "concat" and paper.tokenizer.kind == "word"
    assert resolve("lstm", task="classify", layers=[BEGUN]).train.unfreeze == 0.0


def test_typed_settings_override_the_recipe():
    settings = resolve("lstm", task="classify", preset="ulmfit", layers=[{**BEGUN, "train.unfreeze": 0.5}])
    assert settings.train.unfreeze == 0.5
    assert resolve("lstm", task="classify", preset="ulmfit", layers=[{**BEGUN, "train.budget": 9.0}]).train.epochs == 0


def test_other_systems_do_not_have_the_recipe():
    for system in set(BACKBONES) - set(RECIPES["ulmfit"].systems) - {"cove"}:
        assert recipe_of(system, "ulmfit") is None and not recipes_for(system)
        with pytest.raises(InputError, match="preset"):
            resolve(system, task="classify", preset="ulmfit", layers=[BEGUN])
    assert set(RECIPES["ulmfit"].systems) <= set(SYSTEMS)


@pytest.mark.parametrize("system", ["bert", "gpt"])
def test_reach_needs_a_model_that_carries_a_state(tmp_path, system):
    from test_labelled_task import read_corpus

    from ensue.runs.build_model import build_model
    from ensue.tasks.table import task_of

    settings, corpus = read_corpus(tmp_path, system=system, **{"train.reach": 8})
    with pytest.raises(InputError, match=r"train\.reach"):
        task_of(settings).complete_settings(settings, build_model(settings, corpus), corpus)
