"""Resolving settings: the tables and defaults of each task, and hints for settings of others."""

import pytest

from ensue.core.errors import InputError
from ensue.models.labelled import HeadConfig
from ensue.models.table import SYSTEMS
from ensue.runs.settings_resolution import resolve
from ensue.tasks.labels.task import BACKBONES, LabelSettings
from ensue.tasks.masked_modelling import DocumentSettings
from ensue.tasks.table import all_tasks, check_task, systems_for, task_name, task_of, task_spec
from ensue.train.settings import LabelTrainSettings, MaskedTrainSettings


def test_every_task_has_its_own_tables_of_settings():
    labels = [spec.name for spec in all_tasks() if spec.labels]
    assert labels == ["classify", "pair", "regress", "choose", "tag", "answer"]
    for task in labels:
        settings = resolve("bert", task=task, layers=[{}])
        assert isinstance(settings.train, LabelTrainSettings) and isinstance(settings.data, LabelSettings)
        assert isinstance(settings.head, HeadConfig) and settings.run.task == task
        assert task_of(settings) is task_spec(task)
        assert "[head]" in settings.toml()
    masked = resolve("bert", layers=[{}])
    assert isinstance(masked.train, MaskedTrainSettings) and isinstance(masked.data, DocumentSettings)
    assert masked.head is None and "[head]" not in masked.toml() and task_name("roberta") == "masked"


def test_presets_set_the_model_and_tasks_set_training():
    own = resolve("bert", preset="small", layers=[{}])
    assert own.train.lr == 1e-3 and own.model["hidden"] == 256 and own.train.budget == 300
    fresh = resolve("bert", task="classify", preset="small", layers=[{}])
    assert fresh.model["hidden"] == 256 and (fresh.train.lr, fresh.train.epochs, fresh.train.budget) == (1e-3, 5.0, 0.0)
    begun = resolve("bert", task="classify", layers=[{"begin_with": "run", "hidden": 384}])
    assert (begun.train.lr, begun.train.epochs, begun.train.beta2) == (1e-4, 3.0, 0.999)
    short = resolve("bert", task="classify", layers=[{"train.budget": 20.0}])
    assert (short.train.epochs, short.train.budget) == (0.0, 20.0)
    assert resolve("bert", task="classify", layers=[{"train.steps": 7}]).train.epochs == 0.0


def test_roberta_keeps_its_tokenizer():
    assert resolve("roberta", layers=[{}]).tokenizer.kind == "bpe"
    assert resolve("roberta", task="pair", layers=[{}]).tokenizer.kind == "bpe"
    assert resolve("roberta", task="pair", layers=[{"begin_with": "run"}]).tokenizer.kind == "auto"
    assert resolve("roberta", task="pair", layers=[{"tokenizer.kind": "wordpiece"}]).tokenizer.kind == "wordpiece"


@pytest.mark.parametrize(
    ("system", "task", "name", "says"),
    [
        ("bert", "classify", "train.batch", "labelled examples: use train.batch_tokens"),
        ("bert", "classify", "train.mask", "is for documents; classify learns from labelled examples, so leave it out"),
        ("bert", "masked", "train.batch_tokens", "bert learns from documents: use train.batch"),
        ("bert", "masked", "head.pooling", "is for labelled examples"),
        ("lstm", "language", "data.labels", "lstm learns from text, so leave it out"),
        ("lstm", "tag", "data.field", "tag learns from labelled examples: use data.columns"),
        ("gpt", "language", "train.class_weights", "is for labelled examples"),
    ],
)
def test_settings_of_another_task_are_refused_with_a_hint(system, task, name, says):
    with pytest.raises(InputError, match=name) as found:
        resolve(system, task=task, layers=[{name: 1}])
    assert says in str(found.value)


@pytest.mark.parametrize(
    ("name", "near"), [("head.poling", "head.pooling"), ("train.layer_decai", "train.layer_decay")]
)
def test_an_unknown_setting_gets_the_nearest_known_name(name, near):
    with pytest.raises(InputError, match=f"did you mean '{near}'"):
        resolve("bert", task="classify", layers=[{name: 1}])


def test_a_task_is_refused_for_systems_it_does_not_accept():
    encoders = {"bert", "roberta", "albert", "electra", "deberta"}
    assert systems_for("classify") == list(BACKBONES) and set(systems_for("masked")) == encoders
    for system in ("ngram", "bilm", "transformer", "window"):
        with pytest.raises(InputError, match=f"{system} cannot be trained to tag; use bert"):
            check_task(system, "tag")
    with pytest.raises(InputError, match="lstm cannot be trained to masked"):
        resolve("lstm", task="masked", layers=[{}])


@pytest.mark.parametrize(
    "value",
    [
        {"train.layer_decay": 0.0},
        {"train.freeze": -2},
        {"train.lora": -1},
        {"train.class_weights": "odd"},
        {"head.pooling": "sum"},
        {"head.dense": "wide"},
        {"data.labels": ("a", "a")},
        {"data.limit": -1},
    ],
    ids=str,
)
def test_invalid_values_are_refused(value):
    with pytest.raises(InputError):
        resolve("bert", task="classify", layers=[value])
    with pytest.raises(InputError, match="mask_as_random"):
        resolve("bert", layers=[{"train.mask_as_mask": 0.9, "train.mask_as_random": 0.2}])


@pytest.mark.parametrize("system", BACKBONES)
def test_every_preset_can_be_resolved_for_a_task(system):
    for preset in SYSTEMS.load(system).presets:
        assert resolve(system, task="classify", preset=preset, layers=[{}]).run.preset == preset


@pytest.mark.parametrize(("width", "rate"), [(128, 3e-4), (384, 1e-4), (768, 5e-5)])
def test_a_narrow_model_is_tuned_with_a_higher_learning_rate(width, rate):
    begun = {"begin_with": "runs/bert", "hidden": width, "heads": 2}
    assert resolve("bert", task="classify", layers=[begun]).train.lr == pytest.approx(rate)
    assert resolve("bert", task="classify", layers=[begun, {"train.lr": 7e-4}]).train.lr == 7e-4
    assert resolve("lstm", task="classify", layers=[{"begin_with": "runs/lm", "hidden": width}]).train.lr == 1e-4
    assert resolve("bert", task="classify", layers=[{"hidden": width, "heads": 2}]).train.lr == 1e-3


def test_a_short_budget_has_short_evaluations():
    def looked_at(**flat):
        return resolve("bert", task="classify", layers=[flat]).data.eval_examples

    assert looked_at(**{"train.budget": 30.0}) == 200 and looked_at(**{"train.budget": 600.0}) == 0
    assert looked_at(**{"train.epochs": 2.0}) == 0
    assert looked_at(**{"train.budget": 30.0, "data.eval_examples": 700}) == 700
