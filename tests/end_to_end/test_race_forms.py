"""Races at equal size, at equal data and with several seeds, as a person types them."""

import json
from pathlib import Path
from statistics import mean

import pytest
from typed import ensue

from ensue.core.settings import read_toml
from ensue.tasks.table import TASKS
from ensue.verbs import race
from ensue.verbs.racing.equal_sizes import parameters

SMALL = ("--tokenizer", "word", "--set", "train.batch=4", "--set", "train.length=8", "--out", "race")
SHORT = ("--set", "train.steps=2", "--budget", "1s")
RARE = ("--set", "train.eval_every=1000", "--set", "train.checkpoint_every=1000")


@pytest.fixture(autouse=True)
def no_pictures(monkeypatch):
    """Drawing takes longer than these races."""
    monkeypatch.setattr(race, "save_chart", lambda chart, path: None)


def raced(*words):
    """The systems of a race by name; what race.json says is what is printed."""
    printed = ensue("race", *words, "--json").json
    assert printed == json.loads(Path("race/race.json").read_text())
    return {one["system"]: one for one in printed["systems"]}, printed


def test_match_params_makes_all_as_large(text):
    size = ("--set", "lstm.hidden=128", "--set", "gpt.context=8", "--set", "window.context=4")
    systems, facts = raced(
        text, "--systems", "ngram,window,rnn,gru,lstm,gpt", "--match", "params", *size, *SHORT, *SMALL
    )
    target = systems["lstm"]["parameters"]
    assert read_toml(Path("race/lstm/run.toml"))["hidden"] == 128 and systems["ngram"]["parameters"] == 0
    for name in ("window", "rnn", "gru", "gpt"):
        chosen = read_toml(Path(f"race/{name}/run.toml"))
        own = {"context": chosen["context"]} if "context" in chosen else {}
        sizes = {
            width: parameters(name, facts["vocabulary"], own, width, TASKS.load("language"))
            for width in range(chosen["hidden"] - 16, chosen["hidden"] + 17, 16)
        }
        assert systems[name]["parameters"] == sizes[chosen["hidden"]] == pytest.approx(target, rel=0.15)
        assert min(sizes, key=lambda width: abs(sizes[width] - target)) == chosen["hidden"]  # none is nearer


def test_steps_that_are_set_take_the_place_of_the_default_budget(text):
    systems, facts = raced(text, "--systems", "ngram,gpt", "--set", "train.steps=2", *RARE, *SMALL)
    assert facts["budget"] == "" and systems["gpt"]["tokens"] == 2 * 4 * 8
    assert "; 2 steps each;" in Path("race/race.md").read_text()


def test_match_tokens_gives_all_the_same_text(text):
    sizes = ("window.hidden=16", "rnn.hidden=16", "gpt.hidden=16", "gpt.heads=2", "gpt.context=8")
    size = [word for setting in sizes for word in ("--set", setting)]
    systems, facts = raced(text, "--systems", "ngram,window,rnn,gpt", "--match", "tokens", *size, *RARE, *SMALL)
    left_over = 4 * 8 + 2 * 8  # a batch need not be full, and windows may not reach the ends
    for one in systems.values():
        assert one["tokens"] == pytest.approx(facts["train_tokens"], abs=left_over)
    assert systems["ngram"]["tokens"] == facts["train_tokens"] > 1000


def test_seeds_give_a_mean_and_a_spread(text):
    words = ("--systems", "ngram,rnn", "--seeds", "2", "--set", "rnn.hidden=16", *SHORT, *SMALL)
    systems, facts = raced(text, *words)
    runs = [json.loads(Path(f"race/rnn-{seed}/config.json").read_text())["figures"] for seed in (0, 1)]
    bits = [figures["valid"]["bits_per_byte"] for figures in runs]
    found = systems["rnn"]
    assert facts["seeds"] == 2 and bits[0] != bits[1]
    assert [read_toml(Path(f"race/rnn-{seed}/run.toml"))["seed"] for seed in (0, 1)] == [0, 1]
    assert [one["bits_per_byte"] for one in found["seeds"]] == bits
    assert found["bits_per_byte"] == pytest.approx(mean(bits)) and found["spread"] == pytest.approx(
        max(bits) - min(bits)
    )
    assert found["perplexity"] == pytest.approx(mean(figures["valid"]["perplexity"]["token"] for figures in runs))
    assert found["seconds"] == pytest.approx(mean(figures["seconds"] for figures in runs))
    assert systems["ngram"]["spread"] == 0  # counting has no chance in it
    assert f"{mean(bits):.3f} ± {found['spread'] / 2:.3f}" in Path("race/race.md").read_text()
