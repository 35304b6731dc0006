"""The microscope of gradients and the probes, as a person types them."""

import json
from pathlib import Path

import pytest
from typed import ensue

TEXT = "the students opened their books and the rain fell"


def test_bptt_is_a_table_a_page_or_numbers():
    told = ensue("look", "bptt", "--steps", "3")
    assert told.code == 0 and "∂J(3)/∂w: 3 terms" in told.out and not Path("look.html").exists()
    assert ensue("look", "bptt", "--hidden", "2", "--cut", "2", "--out", "bptt.html").out == "wrote bptt.html\n"
    assert "∂J(3)/∂w: term 1 of 1" in Path("bptt.html").read_text(encoding="utf-8")
    numbers = ensue("look", "bptt", "--costs", "2,3", "--values", "w=0.5", "--json").json
    assert numbers["written"] is None and numbers["costs"] == [2, 3] and numbers["largest_difference"] < 1e-12
    refused = ensue("look", "bptt", "--out", "bptt.png")
    assert refused.code == 2 and "a page (.html) or numbers (.json)" in refused.err


def test_gradients_and_gates_of_runs(runs):
    seen = ensue("look", "gradients", runs / "lstm", runs / "gpt", "--text", TEXT, "--out", "flow.json")
    assert seen.code == 0, seen.err
    assert "vega-lite" in json.loads(Path("flow.json").read_text())["$schema"]
    numbers = ensue("look", "gradients", runs / "lstm", "--text", TEXT, "--json").json
    assert numbers["runs"][0]["by_distance"][0]["mean"] > 0 and numbers["runs"][0]["bound"]
    gates = ensue("look", "gates", runs / "lstm", "--text", TEXT, "--units", "3", "--json").json
    assert len(gates["units"]) == 3 and list(gates["gates"]) == ["input", "forget", "output"]
    training = ensue("look", "training", runs / "lstm", "--json").json
    assert training["runs"][0]["records"][-1]["norm"] > 0


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("gradients", "bilm", "--text", TEXT), "bilm: a model that sees both sides of a word has no gradient"),
        (("gradients", "ngram", "--text", TEXT), "ngram: a count-based model has no gradients"),
        (("gradients", "lstm"), 'gradients needs a text; give it with --text "…"'),
        (("gates", "gpt", "--text", TEXT), "has no gates; name an rnn, gru or lstm"),
        (("curves", "lstm", "--steps", "3"), "curves cannot use --steps; it is for bptt"),
    ],
)
def test_views_that_a_run_does_not_have(runs, words, said):
    view, run, *rest = words
    answer = ensue("look", view, runs / run, *rest)
    assert answer.code == 2 and said in answer.err and answer.err.count("\n") == 1


def test_probes(runs):
    Path("pairs.tsv").write_text("the students opened\tthe opened opened\ta\nthe rain fell\train rain rain\tb\n")
    told = ensue("score", runs / "ngram", "--probe", "pairs.tsv", "--out", "probe.html")
    assert told.code == 0 and "on 2 pairs" in told.out and Path("probe.html").exists()
    numbers = ensue("score", runs / "lstm", "--probe", "pairs.tsv", "--json").json
    assert numbers["pairs"] == 2 and 0 <= numbers["accuracy"] <= 1 and len(numbers["by"]["kind"]) == 2
    both = ensue("score", runs / "lstm", "pairs.tsv", "--probe", "pairs.tsv")
    assert both.code == 2 and "--probe takes no files" in both.err
    assert "a bidirectional model" in ensue("score", runs / "bilm", "--probe", "pairs.tsv").err
    assert "there is no such file" in ensue("score", runs / "lstm", "--probe", "absent.tsv").err
