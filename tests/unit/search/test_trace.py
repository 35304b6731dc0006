"""Every kind of search leaves a trace whose scores add up."""

import json

import pytest
import torch
from tables import Trigrams

from ensue.search.beam import Search, beam_search
from ensue.search.exhaustive import exhaustive
from ensue.search.sampling import Sampling, draw
from ensue.search.trace import Trace

HERE = {"end": 0, "longest": 4, "trace": True}
DRAWN = {"ends": [0], "longest": 4, "trace": True}
KINDS = {
    "greedy": lambda model, state: beam_search(model, state, 1, **HERE, how=Search(beam=1)),
    "beam": lambda model, state: beam_search(model, state, 1, **HERE, how=Search(beam=3, nbest=3)),
    "coverage": lambda model, state: beam_search(model, state, 1, **HERE, how=Search(beam=3, coverage=0.3, nbest=3)),
    "prefix": lambda model, state: beam_search(model, state, 1, **HERE, prefix=[[2, 3], [], [4]]),
    "constrained": lambda model, state: beam_search(model, state, 1, **HERE, how=Search(shortest=2, forbidden=(3,))),
    "exhaustive": lambda model, state: exhaustive(model, state, 1, **HERE, how=Search(nbest=4, length="gnmt")),
    "sampling": lambda model, state: draw(model, state, 1, **DRAWN, how=Sampling(n=5, seed=3)),
    "narrow sampling": lambda model, state: draw(model, state, 1, **DRAWN, how=Sampling(n=4, top_k=2)),
    "greedy drawing": lambda model, state: draw(model, state, 1, **DRAWN, how=Sampling(temperature=0)),
}


@pytest.mark.parametrize("kind", KINDS)
def test_scores_add_up_along_every_path(kind):
    model = Trigrams(6, seed=7, sentences=3, scale=1.5)
    for sentence, f in enumerate(KINDS[kind](model, model.start(3))):
        nodes = f.trace.nodes
        assert [node.id for node in nodes] == list(range(len(nodes)))
        for node in nodes:
            path = f.trace.path(node.id)
            assert node.total == pytest.approx(sum(nodes[at].log_prob for at in path), abs=1e-5)
            assert node.step == len(path)
            expected = model.log_probs(sentence, 1, [nodes[at].token for at in path])
            assert node.log_prob == pytest.approx(expected[-1], abs=1e-5)
            assert node.fate == "pruned" or node.parent is None or nodes[node.parent].fate == "kept"
        assert len(f.trace.paths) == len(f.hypotheses)
        for path, one in zip(f.trace.paths, f.hypotheses):
            assert [nodes[at].token for at in path.nodes] == one.tokens + [0] * one.ended
            assert [nodes[at].log_prob for at in path.nodes] == pytest.approx(one.log_probs)
            assert sum(nodes[at].log_prob for at in path.nodes) == pytest.approx(one.log_prob, abs=1e-5)
            assert nodes[path.nodes[-1]].score == pytest.approx(one.score)
            assert nodes[path.nodes[-1]].fate in ("ended", "best")
        best = [node for node in nodes if node.fate == "best"]
        assert [node.score for node in best] == pytest.approx([f.best.score])


@pytest.mark.parametrize("kind", KINDS)
def test_pruned_nodes_say_why_and_lead_nowhere(kind):
    model = Trigrams(6, seed=7, sentences=3, scale=1.5)
    traces = [f.trace for f in KINDS[kind](model, model.start(3))]
    reasons = {node.why for trace in traces for node in trace.nodes if node.fate == "pruned"}
    wanted = {
        "greedy": {"not the best"},
        "beam": {"not among the 3 best"},
        "coverage": {"not among the 3 best"},
        "prefix": {"not among the 5 best", "another token is forced"},
        "constrained": {"not among the 5 best", "forbidden", "too short to end"},
        "exhaustive": set(),
        "sampling": {"not drawn"},
        "narrow sampling": {"not drawn", "outside top-k or top-p"},
        "greedy drawing": {"not the best"},
    }[kind]
    assert wanted <= reasons and all(node.why for trace in traces for node in trace.nodes)
    for trace in traces:
        parents = {node.parent for node in trace.nodes}
        assert not any(node.id in parents for node in trace.nodes if node.fate != "kept")
        assert all(node.id in parents for node in trace.nodes if node.fate == "kept")


def test_a_candidate_that_cannot_win_any_more_is_marked():
    model = Trigrams(6, seed=1, sentences=4, scale=4.0)
    found = beam_search(model, model.start(4), 1, end=0, longest=12, how=Search(beam=2, length="none"), trace=True)
    assert any(node.why == "cannot win any more" for f in found for node in f.trace.nodes)
    cut = beam_search(model, model.start(4), 1, end=None, longest=3, trace=True)[0].trace
    assert cut.nodes[cut.paths[0].nodes[-1]].why.startswith("cut off at the maximum length; score −")


def test_a_trace_is_plain_data():
    model = Trigrams(6, seed=7)
    f = beam_search(model, model.start(1), 1, end=0, longest=4, how=Search(beam=2, nbest=2), trace=True)[0]
    names = ["<end>", "a", "b", "c", "d", "e"]
    data = json.loads(json.dumps(f.trace.as_dict(lambda token: names[token]), allow_nan=False))
    assert (data["method"], data["beam"], data["length"]) == ("beam", 2, "mean")
    assert set(data) == {"method", "beam", "length", "nodes", "hypotheses"}
    keys = {"id", "parent", "step", "token", "token_id", "log_prob", "total", "score", "fate", "why"}
    assert all(set(node) == keys and node["token"] == names[node["token_id"]] for node in data["nodes"])
    assert set(data["hypotheses"][0]) == {"tokens", "score", "log_prob", "ended", "path"}
    assert data["hypotheses"][0]["tokens"] == [names[token] for token in f.best.tokens]
    assert data["nodes"][data["hypotheses"][0]["path"][-1]]["fate"] == "best"


def test_nodes_are_numbered_as_they_come():
    trace = Trace("beam")
    first = trace.add(None, 5, -1.0, -1.0, "kept", "")
    second = trace.add(first, 6, -0.5, -0.75, "ended", "")
    assert (trace.nodes[second].total, trace.nodes[second].step, trace.path(second)) == (-1.5, 2, [first, second])


def test_a_search_without_a_trace_leaves_none():
    model = Trigrams(6)
    assert beam_search(model, model.start(1), 1, end=0, longest=3)[0].trace is None
    assert exhaustive(model, model.start(1), 1, end=0, longest=3)[0].trace is None
    assert draw(model, model.start(1), torch.tensor([1]), ends=[0], how=Sampling(tokens=3))[0].trace is None
