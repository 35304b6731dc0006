"""A setting that would have no effect is refused in one line that says what has one."""

import pytest

from ensue.core.errors import InputError
from ensue.core.settings import describe, needs_of
from ensue.models.table import FORECASTERS, SYSTEMS
from ensue.runs.fit_settings import new_settings
from ensue.runs.settings_resolution import read_settings, resolve
from ensue.tasks.table import all_tasks
from ensue.train.settings import NGramTrainSettings


def typed(system, task="", **more):
    settings = {"data.files": ("hello",), **{name.replace("__", "."): value for name, value in more.items()}}
    return new_settings(task or system, system if task else "", settings, None, lambda kind, values: None)[0]


@pytest.mark.parametrize(
    ("name", "value"), [("train.lr", "1e-3"), ("train.steps", 9), ("train.epochs", 2), ("train.batch", 8)]
)
def test_a_system_that_counts_refuses_settings_of_gradients(name, value):
    uses = "train.budget, train.threads, train.memory and train.recount"
    with pytest.raises(
        InputError, match=f"setting '{name}' has no effect on ngram, which is not trained by gradient; it uses {uses}$"
    ):
        resolve("ngram", layers=[{name: value}])


def test_a_forecast_without_training_refuses_settings_of_gradients():
    with pytest.raises(InputError, match=r"on last, which is not trained by gradient; it uses train\.budget"):
        resolve("last", task="forecast", layers=[{"train.lr": 1.0}])


def test_systems_that_learn_by_gradient_refuse_settings_of_counting():
    with pytest.raises(InputError, match=r"'train.memory' is for systems that count \(ngram\); leave it out"):
        resolve("lstm", layers=[{"train.memory": 1000}])


def test_an_old_file_of_ngrams_is_read_without_settings_of_gradients(tmp_path):
    path = tmp_path / "run.toml"
    path.write_text('system = "ngram"\ntask = "language"\norder = 3\n[train]\nlr = 0.5\nlength = 64\nbudget = 3.0\n')
    notes = []
    flat = read_settings(path, report=lambda kind, values: notes.append(values["text"]))
    assert flat["train.budget"] == 3.0 and "train.lr" not in flat and not notes
    assert isinstance(resolve("ngram", layers=[flat]).train, NGramTrainSettings)


@pytest.mark.parametrize(
    ("system", "settings", "says"),
    [
        ("lstm", {"train__momentum": "0.9"}, "'train.momentum' .* train.optimiser = 'adamw'; set train.optimiser=sgd"),
        ("lstm", {"train__optimiser": "sgd", "train__beta2": "0.9"}, "set train.optimiser=adamw too, or leave it out"),
        ("lstm", {"train__schedule": "constant", "train__floor": "0.5"}, "set train.schedule=cosine or"),
        ("gpt", {"train__cut": "windows", "train__renew": "0.5"}, "where train.cut = 'windows'"),
        ("lstm", {"span": 9}, "'span' has no effect where attend = 0; set attend too"),
        ("gpt", {"positions": "learned", "rope_base": 500.0}, "set positions=rotary too"),
        ("gpt", {"experts_gate": "noisy"}, "where experts = 1; set experts=2 too"),
        ("ngram", {"delta": 0.5}, "where mode = 'kneser-ney'; set mode=add too"),
        ("ngram", {"compile": True}, "nothing to compile"),
        ("word2vec", {"objective": "softmax", "negative": 9}, "set objective=negative too"),
        ("transformer", {"train__samples": 4}, "set train.objective=reward too"),
        ("lstm", {"data__valid": ("hello",), "data__holdout": 0.2}, "'data.holdout' has no effect beside validation"),
    ],
)
def test_a_setting_that_another_makes_useless_is_refused(system, settings, says):
    with pytest.raises(InputError, match=says):
        typed(system, **settings)


def test_a_setting_that_has_an_effect_is_accepted():
    assert typed("lstm", train__optimiser="sgd", train__momentum="0.9").train.momentum == 0.9
    assert typed("ngram", mode="add", delta=0.5).model["delta"] == 0.5
    assert typed("lstm", train__momentum="0").train.momentum == 0.0  # its default
    assert typed("lstm", task="classify", train__lora=4, train__lora_alpha=8.0).train.lora_alpha == 8.0


def test_what_settings_need_are_settings():
    kinds = [kind for spec in all_tasks() for kind in (*spec.settings.values(), spec.counting)]
    kinds += [table.load(name).Config for table in (SYSTEMS, FORECASTERS) for name in table]
    checked = 0
    for kind in kinds:
        names = {field.name for field in describe(kind)}
        for name, (other, _) in needs_of(kind).items():
            assert name in names and (other in names), (kind, name)
            checked += 1
    assert checked > 50
