import itertools
import math

import pytest
import torch
from tables import PIE, Tree, Trigrams

from ensue.core.errors import InputError
from ensue.models.gpt import GPTConfig, GPTLanguageModel
from ensue.models.ngram import NGram, NGramConfig
from ensue.models.recurrent import LSTMConfig, LSTMLanguageModel
from ensue.search.beam import Search, beam_search
from ensue.search.exhaustive import exhaustive
from ensue.search.length_penalty import LengthPenalty
from ensue.train.counting import count


def pie(**how):
    found = beam_search(PIE, PIE.start(1), PIE.begin, end=PIE.end, longest=9, how=Search(**how), trace=True)
    return found[0]


def test_greedy_cannot_undo_and_a_beam_of_two_finds_the_pie():
    assert PIE.said(pie(beam=1, length="none").best.tokens) == "he hit a pie"
    found = pie(beam=2, length="none")
    assert PIE.said(found.best.tokens) == "he hit me with a pie" and found.best.ended
    assert found.best.log_prob == pytest.approx(-4.4, abs=1e-5) and found.best.score == found.best.log_prob
    assert found.best.log_probs == pytest.approx([-0.7, -1.0, -1.1, -0.5, -0.4, -0.6, -0.1], abs=1e-5)


def test_the_trace_holds_the_tree_of_the_lecture():
    trace = pie(beam=2, length="none").trace
    seen = {PIE.said(trace.nodes[at].token for at in trace.path(node.id)): node for node in trace.nodes}
    for path, after in PIE.paths.items():
        for word, total in after.items():
            whole = f"{path} {word}".strip()
            if whole in seen:
                assert seen[whole].total == pytest.approx(total, abs=1e-5), whole
    kept = {path for path, node in seen.items() if node.fate == "kept"}
    assert {"he", "I", "he hit", "I was", "he hit a", "he hit me", "he hit me with", "he hit me on"} <= kept
    for path in ("he struck", "I got", "I was hit", "I was struck", "he hit a pie", "he hit a tart"):
        assert (seen[path].fate, seen[path].why) == ("pruned", "not among the 2 best"), path
    best = seen["he hit me with a pie <END>"]
    assert best.fate == "best" and best.why == "ended; score −4.40, the best"
    assert PIE.said(trace.nodes[at].token for at in trace.paths[0].nodes) == "he hit me with a pie <END>"


def test_a_longer_hypothesis_can_win_with_the_mean():
    tree = Tree(
        {"": {"yes": -0.5}, "yes": {"<END>": -1.3, "it": -1.4}, "yes it": {"is": -1.5}, "yes it is": {"<END>": -1.6}}
    )

    def best(**how):
        return beam_search(tree, tree.start(1), 0, end=1, longest=6, how=Search(beam=3, **how))[0].best

    none, mean = best(length="none"), best(length="mean")
    assert tree.said(none.tokens) == "yes" and none.score == pytest.approx(-1.3, abs=1e-5)
    assert tree.said(mean.tokens) == "yes it is" and mean.score == pytest.approx(-0.4, abs=1e-5)
    little, much = best(length="gnmt", alpha=0.6), best(length="gnmt", alpha=1.0)
    assert tree.said(little.tokens) == "yes" and little.score == pytest.approx(-1.3 / (7 / 6) ** 0.6, abs=1e-5)
    assert tree.said(much.tokens) == "yes it is" and much.score == pytest.approx(-1.6 / (9 / 6), abs=1e-5)


@pytest.mark.parametrize("length", ["none", "mean", "gnmt"])
def test_a_beam_of_all_sequences_is_exhaustive(length):
    model = Trigrams(4, seed=3, sentences=3)
    how = Search(beam=4**4, length=length, nbest=12)
    for wide, every in zip(
        beam_search(model, model.start(3), 1, end=0, longest=4, how=how),
        exhaustive(model, model.start(3), 1, end=0, longest=4, how=how),
    ):
        assert [one.tokens for one in wide.hypotheses] == [one.tokens for one in every.hypotheses]
        assert [one.score for one in wide.hypotheses] == pytest.approx([one.score for one in every.hypotheses])


def test_a_beam_of_one_takes_the_most_probable_token_and_the_first_end_token():
    for seed in range(5):
        model = Trigrams(6, seed=seed)
        past, expected = [0, 1], []
        while (len(expected) < 7 and past[-1] != 0) or not expected:
            past.append(int(model.logits[0, past[-2], past[-1]].argmax()))
            expected.append(past[-1])
        one = beam_search(model, model.start(1), 1, end=0, longest=7, how=Search(beam=1))[0].best
        assert one.tokens + [0] * one.ended == expected


def test_the_n_best_are_sorted_and_distinct_and_their_log_probabilities_are_the_models():
    model = Trigrams(7, seed=5, sentences=4)
    found = beam_search(model, model.start(4), torch.tensor([1, 2, 3, 4]), end=0, longest=6, how=Search(nbest=5))
    for sentence, (begin, f) in enumerate(zip([1, 2, 3, 4], found)):
        scores = [one.score for one in f.hypotheses]
        assert len(f.hypotheses) == 5 and scores == sorted(scores, reverse=True)
        assert len({(*one.tokens, one.ended) for one in f.hypotheses}) == 5
        for one in f.hypotheses:
            expected = model.log_probs(sentence, begin, one.tokens + [0] * one.ended)
            assert one.log_probs == pytest.approx(expected, abs=1e-5)
            assert one.log_prob == pytest.approx(sum(expected), abs=1e-5)
            assert one.score == pytest.approx(one.log_prob / len(expected))


def test_a_batch_equals_single_sentences_and_finished_ones_leave_it():
    model, limits = Trigrams(9, seed=1, sentences=6, scale=3.0), torch.tensor([1, 7, 3, 5, 7, 2])
    how = Search(beam=3, length="none", nbest=2)
    together = beam_search(model, model.start(6), 2, end=0, longest=limits, how=how)
    read = model.read
    model.read = 0
    for number, f in enumerate(together):
        (alone,) = beam_search(model, model.start([number]), 2, end=0, longest=int(limits[number]), how=how)
        assert [(a.tokens, a.ended) for a in alone.hypotheses] == [(a.tokens, a.ended) for a in f.hypotheses]
        assert [a.score for a in alone.hypotheses] == pytest.approx([a.score for a in f.hypotheses])
        assert max(len(one.log_probs) for one in f.hypotheses) <= limits[number]
    assert read == model.read < 6 * 3 * 7


@pytest.mark.parametrize("length", ["none", "mean", "gnmt"])
def test_stopping_early_changes_nothing(length, monkeypatch):
    model = Trigrams(8, seed=2, sentences=8, scale=4.0)

    def search():
        model.read = 0
        found = beam_search(model, model.start(8), 1, end=0, longest=9, how=Search(beam=3, length=length, nbest=2))
        return [[(one.tokens, one.score) for one in f.hypotheses] for f in found], model.read

    early, less = search()
    monkeypatch.setattr(LengthPenalty, "bound", lambda self, log_prob, longest: torch.full_like(log_prob, math.inf))
    whole, more = search()
    assert early == whole and less < more


def test_constraints_hold_and_scores_stay_the_models_own():
    model = Trigrams(8, seed=4, sentences=3)
    free = beam_search(model, model.start(3), 1, end=0, longest=6)
    barred = free[0].best.tokens[0]
    how = Search(beam=4, shortest=3, forbidden=(barred,), nbest=4)
    prefix = [[], [5, barred], [2, 3, 4]]
    found = beam_search(model, model.start(3), 1, end=0, longest=6, how=how, prefix=prefix, trace=True)
    for number, (f, forced) in enumerate(zip(found, prefix)):
        for one in f.hypotheses:
            assert one.tokens[: len(forced)] == forced and barred not in one.tokens[len(forced) :]
            assert len(one.tokens) >= 3
            assert one.log_probs == pytest.approx(model.log_probs(number, 1, one.tokens + [0] * one.ended), abs=1e-5)
    reasons = {node.why for f in found for node in f.trace.nodes}
    assert {"forbidden", "forced", "another token is forced", "too short to end"} <= reasons
    (alone,) = beam_search(model, model.start([2]), 1, end=0, longest=6, how=how, prefix=prefix[2:])
    assert [one.tokens for one in alone.hypotheses] == [one.tokens for one in found[2].hypotheses]


def test_attention_and_coverage_follow_the_path():
    model = Trigrams(6, seed=6, sentences=2)
    how = Search(beam=4, length="none", coverage=0.7, nbest=3)
    for number, f in enumerate(
        beam_search(model, model.start(2), 1, end=0, longest=5, how=how, trace=True, attention=True)
    ):
        for one in f.hypotheses:
            past = [1, *one.tokens, 0][: len(one.log_probs)]
            expected = model.attention[number, past].mean(1)
            torch.testing.assert_close(one.attention, expected)
            penalty = 0.7 * expected.sum(0).clamp(max=1).log().sum().item()
            assert one.score == pytest.approx(one.log_prob + penalty, abs=1e-5)
        assert f.trace.nodes[f.trace.paths[0].nodes[-1]].score == pytest.approx(f.best.score)


def language_models():
    torch.manual_seed(3)
    gpt = GPTLanguageModel(GPTConfig(vocabulary=11, hidden=16, heads=2, layers=2, context=6))
    lstm = LSTMLanguageModel(LSTMConfig(vocabulary=11, hidden=12))
    for model in (gpt, lstm):
        for weight in model.parameters():
            torch.nn.init.normal_(weight, std=0.6)
    counter = NGram(NGramConfig(vocabulary=11, order=3, end=0)).counter()
    text = torch.cat([torch.zeros(1, dtype=torch.long), torch.randint(11, (400,))]).numpy()
    count(counter, text)
    return {"gpt": gpt, "lstm": lstm, "ngram": counter.finish()}


@pytest.mark.parametrize("name", ["gpt", "lstm", "ngram"])
def test_language_models_are_searched_like_any_other(name):
    model = language_models()[name].eval()
    begin = torch.tensor([3, 4])
    for end in (0, None):
        found = beam_search(model, model.start(2), begin, end=end, longest=9, how=Search(beam=3, nbest=2), trace=True)
        for first, f in zip(begin, found):
            assert f.trace is not None
            for one in f.hypotheses:
                tokens = torch.tensor([[int(first), *one.tokens, *[0] * one.ended]])
                with torch.no_grad():
                    expected = model.log_prob(tokens[:, :-1], tokens[:, 1:])[0][0]
                assert one.log_probs == pytest.approx(expected.tolist(), abs=1e-4)
                assert one.ended or len(one.tokens) == 9


def test_attention_of_a_language_model_grows_and_an_ngram_has_none():
    models = language_models()
    gpt, ngram = models["gpt"], models["ngram"]
    one = beam_search(gpt, gpt.start(1), 1, end=None, longest=5, attention=True)[0].best
    assert one.attention.shape == (5, 5)
    torch.testing.assert_close(one.attention.tril(), one.attention)
    torch.testing.assert_close(one.attention.sum(-1), torch.ones(5))
    assert beam_search(ngram, ngram.start(1), 1, end=0, longest=5, attention=True)[0].best.attention is None
    for model in (gpt, ngram):
        with pytest.raises(InputError, match="without cross-attention"):
            beam_search(model, model.start(1), 1, end=None, longest=5, how=Search(coverage=0.2))


@pytest.mark.parametrize(
    ("bad", "said"),
    [
        ({"beam": 0}, "beam"),
        ({"nbest": 0}, "nbest"),
        ({"length": "maen"}, "did you mean 'mean'"),
        ({"alpha": -1.0}, "alpha"),
        ({"alpha": math.nan}, "alpha"),
        ({"coverage": -0.1}, "coverage"),
        ({"shortest": -1}, "shortest"),
        ({"forbidden": (-3,)}, "forbidden"),
    ],
)
def test_bad_settings_are_refused(bad, said):
    with pytest.raises(InputError, match=said):
        Search(**bad)


@pytest.mark.parametrize(
    ("bad", "said"),
    [
        ({"longest": 0}, "maximum length is 0"),
        ({"longest": torch.tensor([3, 3, 3])}, "3 maximum lengths"),
        ({"prefix": [[1]]}, "1 prefixes for 2 sentences"),
        ({"prefix": [[1], [2, 0]]}, "prefix 2 holds the end token"),
        ({"prefix": [[1], [2, 2, 2, 2, 2]]}, "prefix 2 has 5 tokens"),
        ({"prefix": [[1], [9]]}, "forced token 9 is not in a vocabulary of 5"),
        ({"prefix": [[1], [-1]]}, "not a token"),
        ({"how": Search(forbidden=(8,))}, "forbidden token 8"),
        ({"end": 5}, "end token 5"),
        ({"how": Search(forbidden=(0, 1, 2, 3, 4))}, "no hypothesis is allowed for sentence 1"),
    ],
)
def test_impossible_searches_are_refused(bad, said):
    model = Trigrams(5, sentences=2)
    begin = torch.tensor([1, 2])
    with pytest.raises(InputError, match=said):
        beam_search(model, model.start(2), begin, **{"end": 0, "longest": 4, **bad})


def test_a_model_that_returns_nan_is_reported():
    model = Trigrams(5)
    model.logits[:] = math.nan
    with pytest.raises(InputError, match="check that the model's weights are finite"):
        beam_search(model, model.start(1), 1, end=0, longest=4)


def test_progress_is_reported():
    model, told = Trigrams(6, sentences=3), []
    beam_search(model, model.start(3), 1, end=0, longest=4, report=lambda kind, values: told.append((kind, values)))
    done = [values["done"] for kind, values in told if kind == "progress"]
    assert done == sorted(done) and told[-1] == ("progress", {"done": 3, "total": 3})


def test_a_search_of_no_sentences_finds_nothing():
    model = Trigrams(5)
    assert beam_search(model, model.start([]), 1, end=0, longest=4) == []


def test_ties_and_traces_change_nothing():
    model = Trigrams(6, sentences=2)
    model.logits.zero_()  # everything is as likely as everything else
    found = [beam_search(model, model.start(2), 1, end=0, longest=5, trace=trace) for trace in (False, True)]
    plain, told = ([f.best for f in part] for part in found)
    assert plain == told


def test_every_candidate_is_in_the_trace_once():
    model = Trigrams(7, seed=8)
    trace = beam_search(model, model.start(1), 1, end=0, longest=5, how=Search(beam=3), trace=True)[0].trace
    paths = [(*(trace.nodes[at].token for at in trace.path(node.id)),) for node in trace.nodes]
    assert len(set(paths)) == len(paths)
    for step, nodes in itertools.groupby(sorted(trace.nodes, key=lambda node: node.step), key=lambda node: node.step):
        nodes = list(nodes)
        assert len(nodes) == (4 if step == 1 else 12)  # of each of 3 rows the 4 likeliest
        assert sum(node.fate == "kept" for node in nodes) <= 3
