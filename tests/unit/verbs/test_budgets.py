"""Runs with a budget that end before the budget has become a plan."""

import pytest

from ensue.core.run_folder import RunFolder
from ensue.runs.fit_settings import resumed_settings
from ensue.verbs.fit import fit

TEXT = "the rain fell and the students opened their books while the clock ran on\n" * 40
SETTINGS = {
    "rnn": {"hidden": 8, "train.batch": 2, "train.length": 8, "tokenizer.kind": "char"},
    "word2vec": {"train.epochs": 2},
}


class Killed(Exception):
    pass


def kill(*arguments, **more):
    raise Killed


@pytest.mark.parametrize(
    ("system", "loop", "steps"),
    [
        ("rnn", "ensue.verbs.fitting.training.train", 0),
        ("rnn", "ensue.verbs.fitting.training.train", 50),
        ("word2vec", "ensue.tasks.words.train_word2vec", 0),
    ],
)
def test_a_budget_outlives_a_kill_before_it_became_a_plan(tmp_path, monkeypatch, system, loop, steps):
    text, folder = tmp_path / "text.txt", RunFolder(tmp_path / "run")
    text.write_text(TEXT)
    monkeypatch.setattr(loop, kill)
    settings = SETTINGS[system] | ({"train.steps": steps} if steps else {})
    with pytest.raises(Killed):
        fit(system, text, out=folder.path, budget="1h", settings=settings)
    assert resumed_settings(folder, "", {}, 0.0, lambda *event: None).train.budget == 3600
    assert resumed_settings(folder, "", {}, 20.0, lambda *event: None).train.budget == 20


def test_a_budget_that_became_a_plan_is_not_planned_again(tmp_path):
    text, folder = tmp_path / "text.txt", RunFolder(tmp_path / "run")
    text.write_text(TEXT)
    for system, more in SETTINGS.items():
        out = RunFolder(folder.path / system)
        fit(system, text, out=out.path, budget="1h", settings=more | {"train.steps": 3})
        train = resumed_settings(out, "", {}, 0.0, lambda *event: None).train
        assert (train.budget, train.steps) == (0.0, 3)
