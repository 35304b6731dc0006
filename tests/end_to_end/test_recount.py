"""An n-gram model counts all of its text; the figure of the held-out part is that of a model of the rest."""

import json
import subprocess
from pathlib import Path

import pytest
from typed import ensue, finished, sentences, started

from ensue.core.settings import read_toml
from ensue.runs.held_out import rest_settings, whole_settings
from ensue.runs.settings_resolution import resolve
from ensue.verbs.fitting import training

WORDS = ("--tokenizer", "word", "--set", "order=3")


def fitted(*words, out="run"):
    answer = ensue("fit", "ngram", *words, *WORDS, "--out", out, "--json")
    assert answer.code == 0, answer.err
    return answer.json


def weights(name):
    return Path(name, "model.safetensors").read_bytes()


def words_of(name):
    return Path(name, "tokenizer.json").read_bytes()


@pytest.fixture
def mine():
    """A text whose end has words that its beginning does not have."""
    Path("mine.txt").write_text(sentences(100) + "a last and unusual line of words\n" * 3, encoding="utf-8")
    return "mine.txt"


@pytest.mark.parametrize("memory", [(), ("--memory", "2M")])
def test_all_of_the_text_is_counted_and_the_figure_is_of_a_model_of_the_rest(mine, memory):
    again = fitted(mine, *memory, out="again")
    rest = fitted(mine, "--set", "train.recount=false", out="rest")
    whole = fitted(mine, "--set", "data.holdout=0", out="whole")
    assert weights("again") == weights("whole") and words_of("again") == words_of("whole")
    assert again["valid"] == rest["valid"] and again["valid"]["unknown"] > 0 and "valid" not in whole
    assert again["tokens"] == whole["tokens"] > rest["tokens"] == again["held_out"]["train_tokens"]
    assert "held_out" not in rest and sorted(path.name for path in Path("again").iterdir()) == [
        ".lock",
        "README.md",
        "config.json",
        "manifest.json",
        "model.safetensors",
        "run.toml",
        "tokenizer.json",
    ]
    assert "this one then counted all of the text" in Path("again/README.md").read_text(encoding="utf-8")


def test_a_validation_text_is_never_counted(mine):
    Path("valid.txt").write_text(sentences(20, seed=1), encoding="utf-8")
    with_valid = fitted(mine, "--valid", "valid.txt", out="valid")
    assert "held_out" not in with_valid and with_valid["valid"]["tokens"] > 0
    fitted(mine, "--set", "data.holdout=0", out="whole")
    assert weights("valid") == weights("whole")


def test_people_are_told_which_model_was_measured(mine):
    answer = ensue("fit", "ngram", mine, *WORDS, "--out", "run")
    assert "measured with a model of the other" in answer.out


def test_systems_of_a_race_learn_from_the_same_part(mine):
    size = ("--set", "rnn.hidden=8", "--set", "train.steps=2", "--set", "train.lr=1e-3", "--set", "tokenizer.kind=word")
    answer = ensue("race", mine, "--systems", "ngram,rnn", "--budget", "2s", *size, "--out", "race", "--json")
    assert answer.code == 0, answer.err
    runs = {name: json.loads(Path("race", name, "config.json").read_text()) for name in ("ngram", "rnn")}
    assert runs["ngram"]["data"] == runs["rnn"]["data"]
    assert runs["ngram"]["figures"]["tokens"] == answer.json["train_tokens"]
    assert read_toml(Path("race/ngram/run.toml"))["train.recount"] is False


@pytest.mark.parametrize("memory", [(), ("--memory", "2M")])
@pytest.mark.parametrize("call", [1, 2])
def test_either_count_can_be_interrupted_and_resumed(mine, monkeypatch, memory, call):
    fitted(mine, *memory, out="whole")
    name, calls = "fit_on_disk" if memory else "fit_by_counting", []
    count = getattr(training, name)

    def interrupted(*arguments):
        calls.append(name)
        if len(calls) == call:
            raise KeyboardInterrupt
        return count(*arguments)

    monkeypatch.setattr(training, name, interrupted)
    stopped = ensue("fit", "ngram", mine, *WORDS, *memory, "--out", "cut")
    assert stopped.code == 130 and "resume with: ensue fit cut --resume" in stopped.err
    resumed = ensue("fit", "cut", "--resume", "--json")
    assert resumed.code == 0, resumed.err
    assert weights("cut") == weights("whole") and len(calls) == 3
    assert resumed.json["valid"] == json.loads(Path("whole/config.json").read_text())["figures"]["valid"]
    assert not Path("cut/held-out").exists()


def test_a_text_that_changed_between_the_counts_is_refused(mine, monkeypatch):
    count, calls = training.fit_by_counting, []

    def interrupted(*arguments):
        calls.append(1)
        if len(calls) == 2:
            raise KeyboardInterrupt
        return count(*arguments)

    monkeypatch.setattr(training, "fit_by_counting", interrupted)
    assert ensue("fit", "ngram", mine, *WORDS, "--out", "cut").code == 130
    Path(mine).write_text(sentences(101), encoding="utf-8")
    answer = ensue("fit", "cut", "--resume")
    assert answer.code == 2 and "the text has changed" in answer.err


def test_standard_input_is_counted_whole(mine):
    fitted(mine, out="file")
    process = started("fit", "ngram", "-", *WORDS, "--out", "piped", stdin=subprocess.PIPE)
    assert finished(process, Path(mine).read_text(encoding="utf-8")).code == 0
    assert weights("piped") == weights("file")


def test_both_counts_share_a_budget():
    settings = resolve("ngram", layers=[{"train.budget": 10.0}])
    rest = rest_settings(settings)
    assert rest.train.budget == 5.0 and not rest.train.recount
    assert whole_settings(settings, rest, 3.0).train.budget == 7.0
    assert whole_settings(settings, rest, 6.0).train.budget == 5.0
    assert whole_settings(resolve("ngram", layers=[]), rest, 3.0).train.budget == 0.0


def interrupted_run(mine, monkeypatch):
    """A run that was stopped while the model of all was counted; what was measured before is there."""
    calls, count = [], training.fit_by_counting

    def interrupted(*arguments):
        calls.append(1)
        if len(calls) == 2:
            raise KeyboardInterrupt
        return count(*arguments)

    with monkeypatch.context() as patch:
        patch.setattr(training, "fit_by_counting", interrupted)
        assert ensue("fit", "ngram", mine, *WORDS, "--out", "cut").code == 130
    assert Path("cut/held-out/figures.json").exists()


def test_force_replaces_an_interrupted_run(mine, monkeypatch):
    interrupted_run(mine, monkeypatch)
    Path("cut/held-out/notes.txt").write_text("keep")
    answer = ensue("fit", "ngram", mine, *WORDS, "--out", "cut", "--force")
    assert answer.code == 2 and "held-out/notes.txt is not a file of a run" in answer.err
    Path("cut/held-out/notes.txt").unlink()
    assert ensue("fit", "ngram", mine, *WORDS, "--out", "cut", "--force", "--json").code == 0
    assert not Path("cut/held-out").exists()


def test_the_run_is_locked_while_the_rest_is_counted(mine, monkeypatch):
    count, codes = training.fit_by_counting, []

    def counted(*arguments):
        if not codes:
            answer = ensue("fit", "ngram", mine, *WORDS, "--out", "run", "--force")
            codes.append((answer.code, answer.err))
        return count(*arguments)

    monkeypatch.setattr(training, "fit_by_counting", counted)
    fitted(mine)
    ((code, error),) = codes
    assert code == 2 and "run: another process is training here" in error


@pytest.mark.parametrize("harm", ["figures", "value", "settings"])
def test_a_damaged_figure_of_the_rest_is_refused_or_measured_again(mine, monkeypatch, harm):
    interrupted_run(mine, monkeypatch)
    figures = Path("cut/held-out/figures.json")
    if harm == "settings":
        Path("cut/held-out/run.toml").unlink()
        assert ensue("fit", "cut", "--resume", "--json").code == 0
        return
    value = json.loads(figures.read_text())
    figures.write_text(json.dumps([] if harm == "figures" else {**value, "seconds": "long"}))
    answer = ensue("fit", "cut", "--resume")
    assert answer.code == 2 and "held-out/figures.json" in answer.err
