"""What `ensue systems` shows is what a run gets."""

import pytest

from ensue.models.table import SYSTEMS
from ensue.tasks.settings import VOCABULARIES
from ensue.tasks.table import all_tasks
from ensue.verbs.fit import fit
from ensue.verbs.systems import run_defaults, systems

PAIRS = [(name, "") for name in SYSTEMS] + [
    (name, spec.name)
    for spec in all_tasks()
    for name in SYSTEMS
    if name in spec.systems and spec.systems.load(name) is not SYSTEMS.load(name)
]


def known(values):
    return {name: value for name, value in values.items() if name not in VOCABULARIES and not name.endswith(".hash")}


@pytest.mark.parametrize(("system", "task"), PAIRS)
def test_defaults_and_presets_are_those_of_a_run(system, task):
    shown = systems(system)[task] if task else systems(system)
    recipes = [] if task else shown["recipes"]
    defaults = {setting["name"]: setting["default"] for setting in shown["settings"]}
    for preset, changes in shown["presets"].items():
        if preset in recipes:
            continue
        got = known(run_defaults(system, task, preset))
        if task:  # only the model's settings are listed, and the presets
            got = {name: value for name, value in got.items() if "." not in name or name in changes}
        assert got == {name: value for name, value in {**defaults, **changes}.items() if name in got}
        assert set(changes) <= set(got) <= {*defaults, *changes}


def test_a_preset_that_changes_nothing_is_the_defaults():
    assert systems("lstm")["presets"]["default"] == {} and systems("lstm")["presets"]["ptb"]["train.optimiser"] == "sgd"


@pytest.mark.parametrize(("system", "preset"), [("rnn", "default"), ("gpt", "default"), ("ngram", "default")])
def test_a_real_run_has_the_defaults_that_are_shown(system, preset, tmp_path):
    text = tmp_path / "text.txt"
    text.write_text("the students opened their books\n" * 60, encoding="utf-8")
    short = {} if system == "ngram" else {"train.steps": 1, "train.budget": 0.0}
    run = fit(system, text, out=tmp_path / "run", settings=short)
    shown = systems(system)
    values = {s["name"]: s["default"] for s in shown["settings"]} | shown["presets"][preset]
    decided = {"end", "train.threads", "train.budget", "train.steps", "train.length", "train.cut", "train.precision"}
    decided |= {"train.eval_every", "train.checkpoint_every"}
    decided |= {"tokenizer.kind", "tokenizer.vocabulary", "data.files"}  # by the data, the machine, or above
    different = {name for name, value in values.items() if run.settings.get(name) != value}
    assert different <= decided
