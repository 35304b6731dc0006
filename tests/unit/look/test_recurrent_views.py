"""Views of gradients, gates, training and copying, of tiny runs."""

import json

import numpy as np
import pytest
import torch

import ensue
from ensue.core.errors import InputError
from ensue.look.gates import max_units
from ensue.look.instruments.gates import gates_over, most_active
from ensue.models.recurrent import ChoGRULanguageModel, GRULanguageModel, LSTMConfig, LSTMLanguageModel, RecurrentConfig
from ensue.train.metrics import read_metrics
from ensue.verbs.look import look
from ensue.verbs.probe import probe

TINY = {"hidden": 12, "train.steps": 12, "train.batch": 4, "train.length": 16, "train.log_every": 4, "train.clip": 0.02}
TEXT = "the students opened their books and the writer of the books is tired\n"


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs")
    text = folder / "text.txt"
    text.write_text(TEXT * 60)
    extra = {"gpt": {"heads": 2, "layers": 2, "context": 24, "train.length": 24}, "lstm": {"layers": 2}}
    for system in ("rnn", "lstm", "gpt"):
        settings = {**TINY, **extra.get(system, {}), "tokenizer.kind": "char"}
        ensue.fit(system, str(text), out=folder / system, settings=settings)
    ensue.fit("ngram", str(text), out=folder / "ngram", settings={"order": 2, "tokenizer.kind": "char"})
    return folder


def test_gradients_of_several_runs_are_drawn_and_described(runs, tmp_path):
    seen = look("gradients", [runs / name for name in ("rnn", "lstm", "gpt")], text=TEXT, out=tmp_path / "flow.html")
    rnn, lstm, gpt = seen.numbers["runs"]
    assert (tmp_path / "flow.html").stat().st_size > 1000 and [rnn["name"], gpt["name"]] == ["rnn", "gpt"]
    assert rnn["of"] == "the state h of recurrent layer 1 of 1 after token k" and rnn["weight"]["singular_value"] > 0
    assert "(h, c) of recurrent layer 2 of 2" in lstm["of"] and "the input of block 1 of 2" in gpt["of"]
    assert rnn["tokens"] == len(TEXT) + 1 and gpt["tokens"] == 24 and gpt["bound"] is None
    for run in (rnn, lstm):
        assert all(row["mean"] <= limit["mean"] * (1 + 1e-9) for row, limit in zip(run["by_distance"], run["bound"]))
    json.dumps(seen.numbers, allow_nan=False)


def test_a_bound_is_named_only_where_one_is_drawn(runs, tmp_path):
    for name, bounded in (("lstm", True), ("gpt", False)):
        look("gradients", [runs / name], text=TEXT, out=tmp_path / "flow.svg")
        drawn = (tmp_path / "flow.svg").read_text()
        assert ("dashed is" in drawn) is bounded and (">bound<" in drawn) is bounded


def test_layers_can_be_chosen_and_a_lower_one_has_no_bound(runs):
    (low,) = look("gradients", [runs / "lstm"], text=TEXT, layer=1).numbers["runs"]
    assert low["bound"] is None and "layers above it" in low["bound_of"]
    (second,) = look("gradients", [runs / "gpt"], text=TEXT, layer=2).numbers["runs"]
    assert "the output of block 1" in second["of"]
    with pytest.raises(InputError, match=r"lstm: there is no layer 3; there are 2"):
        look("gradients", [runs / "lstm"], text=TEXT, layer=3)


@pytest.mark.parametrize(
    ("view", "names", "options", "message"),
    [
        ("gradients", ["ngram"], {"text": TEXT}, "ngram: a count-based model has no gradients"),
        ("gradients", ["rnn"], {}, "gradients needs a text; give it with --text"),
        ("gradients", [], {"text": "a"}, "gradients needs a run"),
        ("gates", ["gpt"], {"text": TEXT}, "a model without recurrent layers has no gates"),
        ("gates", ["rnn", "lstm"], {"text": TEXT}, "gates shows one run, not 2"),
        ("training", ["ngram"], {}, "its metrics have no gradient norms"),
        ("training", [], {}, "training needs a run"),
    ],
)
def test_invalid_requests_are_refused(runs, view, names, options, message):
    with pytest.raises(InputError, match=message):
        look(view, [runs / name for name in names], **options)


def test_gates_are_those_of_the_cell_and_fit_into_a_view(runs, tmp_path):
    seen = look("gates", [runs / "lstm"], text=TEXT, units=5, out=tmp_path / "gates.json")
    assert list(seen.numbers["gates"]) == ["input", "forget", "output"] and list(seen.numbers["states"]) == ["h", "c"]
    forget = np.array(seen.numbers["gates"]["forget"])
    assert forget.shape == (len(TEXT) + 1, 5) and (forget > 0).all() and (forget < 1).all()
    assert len(seen.numbers["means"]["c"]) == len(TEXT) + 1 and seen.numbers["total_units"] == 12
    plain = look("gates", [runs / "rnn"], text=TEXT).numbers
    assert plain["gates"] == {} and list(plain["states"]) == ["h"]
    for parts, tokens, units in ((5, 128, 4096), (3, 1, 7)):
        assert parts * tokens * max_units(parts, tokens, units) <= 50_000


@pytest.mark.parametrize("kind", [GRULanguageModel, ChoGRULanguageModel])
def test_gates_of_a_gru_make_its_next_state(kind):
    model = kind(RecurrentConfig(vocabulary=7, hidden=4))
    tokens = torch.tensor([1, 4, 2, 6])
    seen = gates_over(model, tokens)
    assert list(seen.gates) == ["reset", "update"]
    h = seen.states["h"]
    torch.testing.assert_close(torch.from_numpy(h), model.stack(model.embed(tokens[None]))[0][0].detach())
    mixed = 1 - seen.gates["update"] if kind is GRULanguageModel else seen.gates["update"]
    candidate = (h[1:] - (1 - mixed[1:]) * h[:-1]) / mixed[1:]
    assert (np.abs(candidate) < 1).all()  # so h_t = (1 − m) h_{t−1} + m h̃_t with a possible h̃_t
    assert ("keeps the old state" in seen.legend["update"].partition(",")[0]) == (kind is GRULanguageModel)


def test_gates_of_an_lstm_make_its_cell():
    model = LSTMLanguageModel(LSTMConfig(vocabulary=7, hidden=4))
    seen = gates_over(model, torch.tensor([1, 4, 2]))
    c, h = seen.states["c"], seen.states["h"]
    np.testing.assert_allclose(h, seen.gates["output"] * np.tanh(c), rtol=1e-5)
    assert (np.abs(c[1:] - seen.gates["forget"][1:] * c[:-1]) <= seen.gates["input"][1:]).all()


def test_units_that_change_most_are_shown():
    h = np.array([[0.0, 1.0, 0.5], [0.0, -1.0, 0.4]])
    assert most_active({"h": h}, 2) == [1, 2]


def test_training_counts_what_was_clipped(runs, tmp_path):
    records = read_metrics(runs / "rnn")
    assert all(record["norm_top"] >= record["norm"] and 0 <= record["clipped"] <= 4 for record in records)
    seen = look("training", [runs / "rnn", runs / "lstm"], out=tmp_path / "norms.svg")
    rnn = seen.numbers["runs"][0]
    assert rnn["clip"] == 0.02 and rnn["updates"] == 12 and rnn["clipped"] == sum(r["clipped"] for r in records)
    assert 0 < rnn["clipped"] <= 12 and "gradients clipped at 0.02" in (tmp_path / "norms.svg").read_text()


def test_probes_are_scored_and_drawn(runs, tmp_path):
    pairs = tmp_path / "pairs.tsv"
    pairs.write_text("the writer of the books is\tthe writer of the books zq\tend\nthe students\tqqqqqqqq\tstart\n")
    figures = probe(ensue.load(runs / "lstm"), pairs, out=tmp_path / "probe.svg")
    assert figures["pairs"] == 2 and figures["accuracy"] == 1.0 and len(figures["by"]["kind"]) == 2
    assert (tmp_path / "probe.svg").exists()


def test_copying_is_measured_for_all_gaps(runs):
    seen = look("copying", [runs / "rnn"])
    (rnn,) = seen.numbers["runs"]
    assert rnn["by_gap"][0]["asked"] == 16 and rnn["by_gap"][-1]["gap"] == 60 and seen.numbers["chance"] == 1 / 4
    assert all(0 <= row["accuracy"] <= 1 for row in rnn["by_gap"])
    seen.draw().to_dict()
