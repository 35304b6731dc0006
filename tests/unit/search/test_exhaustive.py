import itertools

import pytest
import torch
from tables import PIE, Trigrams

from ensue.core.errors import InputError
from ensue.search.beam import Search, beam_search
from ensue.search.exhaustive import exhaustive


def brute_force(model, sentence, begin, vocabulary, longest, how):
    """Every sequence, one by one."""
    scored = []
    for size in range(longest + 1):
        for tokens in itertools.product(range(1, vocabulary), repeat=size):
            ended = size < longest
            if (ended and size < how.shortest) or any(token in how.forbidden for token in tokens):
                continue
            log_prob = sum(model.log_probs(sentence, begin, [*tokens, *[0] * ended]))
            scored.append((how.penalty.score(log_prob, size + ended), list(tokens), ended))
    return sorted(scored, key=lambda one: -one[0])


@pytest.mark.parametrize("length", ["none", "mean", "gnmt"])
@pytest.mark.parametrize("more", [{}, {"shortest": 2, "forbidden": (2,)}])
def test_it_is_brute_force(length, more):
    model, how = Trigrams(4, seed=9, sentences=2), Search(length=length, nbest=10, **more)
    begin = torch.tensor([1, 3])
    found = exhaustive(model, model.start(2), begin, end=0, longest=torch.tensor([4, 3]), how=how)
    for sentence, (f, longest) in enumerate(zip(found, (4, 3))):
        expected = brute_force(model, sentence, int(begin[sentence]), 4, longest, how)[:10]
        assert [one.score for one in f.hypotheses] == pytest.approx([score for score, _, _ in expected], abs=1e-5)
        assert [(one.tokens, one.ended) for one in f.hypotheses] == [(tokens, ended) for _, tokens, ended in expected]


def test_every_sequence_is_in_the_trace():
    model = Trigrams(3, seed=2)
    trace = exhaustive(model, model.start(1), 1, end=0, longest=3, trace=True)[0].trace
    assert len(trace.nodes) == 3 + 2 * 3 + 4 * 3
    assert sum(node.fate in ("ended", "best") for node in trace.nodes) == 1 + 2 + 4 * 3
    assert trace.method == "exhaustive"


def test_no_beam_finds_better():
    for seed in range(6):
        model = Trigrams(5, seed=seed)
        best = exhaustive(model, model.start(1), 1, end=0, longest=4)[0].best.score
        for beam in (1, 2, 3):
            one = beam_search(model, model.start(1), 1, end=0, longest=4, how=Search(beam=beam))[0].best
            assert one.score <= best + 1e-6


def test_coverage_counts_as_in_beam_search():
    model, how = Trigrams(4, seed=4), Search(beam=4**3, length="none", coverage=0.8, nbest=6)
    every, wide = (
        search(model, model.start(1), 1, end=0, longest=3, how=how)[0] for search in (exhaustive, beam_search)
    )
    assert [one.tokens for one in every.hypotheses] == [one.tokens for one in wide.hypotheses]
    assert [one.score for one in every.hypotheses] == pytest.approx([one.score for one in wide.hypotheses], abs=1e-6)


def test_too_many_hypotheses_are_counted_not_tried():
    with pytest.raises(InputError, match=r"[\d,]{12,} hypotheses of up to 9 tokens.*use beam search"):
        exhaustive(PIE, PIE.start(1), PIE.begin, end=PIE.end, longest=9)
    model = Trigrams(7)
    exhaustive(model, model.start(1), 1, end=0, longest=3)
    with pytest.raises(InputError, match="335,923 hypotheses"):  # 6^7 + 6^6 + … + 1
        exhaustive(model, model.start(1), 1, end=0, longest=7)
