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
def test_ulmfit_labels_with_care(system, preset, slope, unfreeze):
    settings = resolve(system, task="classify", preset=preset, layers=[BEGUN])
    train, head = settings.train, settings.head
    assert (train.layer_decay, train.freeze, train.unfreeze) == (slope, -1, unfreeze)
    assert (train.schedule, train.warmup, train.floor) == ("slanted", 0.1, 1 / 32)
    assert (head.pooling, head.dense, head.hidden, train.reach) == ("concat", "relu", 50, 70)
    assert settings.run.preset == preset


def test_from_nothing_there_is_nothing_to_be_careful_with():
    settings = resolve("lstm", task="classify", preset="ulmfit", layers=[{}])
    assert (settings.train.freeze, settings.train.layer_decay, settings.train.reach) == (0, 1.0, 0)
    assert settings.train.lr == FROM_SCRATCH["train.lr"] and settings.head.pooling == "concat"


def test_a_language_model_goes_on_with_rates_by_layer():
    begun = resolve("lstm", preset="ulmfit", layers=[BEGUN])
    assert begun.train.layer_decay == 0.7 and begun.train.schedule == "slanted"
    first = resolve("ulmfit", layers=[{}])
    assert first.train.layer_decay == 1.0 and first.train.schedule == "one-cycle" and first.model["hidden"] == 512


def test_a_tagger_has_no_pooling_to_choose():
    assert resolve("lstm", task="tag", preset="ulmfit", layers=[BEGUN]).head.pooling == "auto"


def test_ulmfit_itself_needs_no_preset_and_the_others_keep_their_own_way():
    assert resolve("ulmfit", task="classify", layers=[BEGUN]).train.unfreeze == pytest.approx(1 / 3)
    paper = resolve("ulmfit", task="classify", preset="paper", layers=[{}])
    assert paper.model["hidden"] == 1150 and paper.head.pooling == "concat" and paper.tokenizer.kind == "word"
    assert resolve("lstm", task="classify", layers=[BEGUN]).train.unfreeze == 0.0


def test_what_is_typed_wins():
    settings = resolve("lstm", task="classify", preset="ulmfit", layers=[{**BEGUN, "train.unfreeze": 0.5}])
    assert settings.train.unfreeze == 0.5
    assert resolve("lstm", task="classify", preset="ulmfit", layers=[{**BEGUN, "train.budget": 9.0}]).train.epochs == 0


def test_other_systems_do_not_know_it():
    for system in set(BACKBONES) - set(RECIPES["ulmfit"].systems) - {"cove"}:
        assert recipe_of(system, "ulmfit") is None and not recipes_for(system)
        with pytest.raises(InputError, match="preset"):
            resolve(system, task="classify", preset="ulmfit", layers=[BEGUN])
    assert set(RECIPES["ulmfit"].systems) <= set(SYSTEMS)


@pytest.mark.parametrize("system", ["bert", "gpt"])
def test_parts_are_for_states_that_are_carried_on(tmp_path, system):
    from test_labelled_task import read_corpus

    from ensue.runs.build_model import build_model
    from ensue.tasks.table import task_of

    settings, corpus = read_corpus(tmp_path, system=system, **{"train.reach": 8})
    with pytest.raises(InputError, match=r"train\.reach"):
        task_of(settings).complete_settings(settings, build_model(settings, corpus), corpus)
