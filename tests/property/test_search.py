"""Beam search against the plainest one that can be written, on random models."""

from dataclasses import dataclass

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ensue.nn.protocol import Output
from ensue.nn.state import State
from ensue.search.beam import Search, beam_search
from ensue.search.exhaustive import exhaustive

END, BEGIN, LONGEST = 0, 1, 5
PATIENT = {"deadline": None, "derandomize": True, "suppress_health_check": [HealthCheck.too_slow]}


@dataclass(frozen=True)
class Last(State):
    """Which sentence a row belongs to, and the token before the one it reads."""

    sentence: torch.Tensor
    token: torch.Tensor


class Random:
    """Random logits after the last two tokens, others in every sentence."""

    def __init__(self, vocabulary, sentences, seed):
        generator = torch.Generator().manual_seed(seed)
        self.table = 2 * torch.randn(sentences, vocabulary, vocabulary, vocabulary, generator=generator)
        self.log_probs = self.table.double().log_softmax(-1)

    def start(self, sentences):
        return Last(torch.tensor(sentences), torch.zeros(len(sentences), dtype=torch.long))

    def __call__(self, tokens, state, *, want):
        logits = self.table[state.sentence, state.token, tokens[:, 0]]
        return Output(logits[:, None], None, None, Last(state.sentence, tokens[:, 0]))


def plain_beam_search(log_probs, how, longest):
    """As it is described, a hypothesis at a time, to the longest length."""
    opened, finished = [((), 0.0)], []
    for t in range(1, longest + 1):
        candidates = []
        for tokens, total in opened:
            past = (0, BEGIN, *tokens)
            after = log_probs[past[-2], past[-1]].tolist()
            candidates += [
                ((*tokens, token), total + value)
                for token, value in enumerate(after)
                if token not in how.forbidden and (token != END or t > how.shortest)
            ]
        candidates.sort(key=lambda one: -one[1])
        for tokens, total in candidates[: how.beam]:
            if tokens[-1] == END or t == longest:
                finished.append((how.penalty.score(total, t), tokens))
        opened = [one for one in candidates if one[0][-1] != END][: how.beam]
        if how.beam == 1 and finished:
            break
    return sorted(finished, key=lambda one: -one[0])[: how.nbest]


searches = st.builds(
    Search,
    beam=st.integers(1, 6),
    length=st.sampled_from(["none", "mean", "gnmt"]),
    alpha=st.floats(0, 2),
    nbest=st.integers(1, 4),
    shortest=st.integers(0, 3),
    forbidden=st.sets(st.integers(2, 3), max_size=1).map(tuple),
)


@settings(max_examples=60, **PATIENT)
@given(how=searches, vocabulary=st.integers(4, 8), seed=st.integers(0, 10**6), trace=st.booleans())
def test_beam_search_is_the_plain_one(how, vocabulary, seed, trace):
    model = Random(vocabulary, 3, seed)
    limits = torch.tensor([LONGEST, 2, 4])
    found = beam_search(model, model.start([0, 1, 2]), BEGIN, end=END, longest=limits, how=how, trace=trace)
    for sentence, (f, longest) in enumerate(zip(found, limits.tolist())):
        expected = plain_beam_search(model.log_probs[sentence], how, longest)
        assert [one.score for one in f.hypotheses] == pytest.approx([score for score, _ in expected], abs=1e-5)
        made = [(*one.tokens, *[END] * one.ended) for one in f.hypotheses]
        assert made == [tokens for _, tokens in expected]


@settings(max_examples=25, **PATIENT)
@given(
    length=st.sampled_from(["none", "mean", "gnmt"]),
    vocabulary=st.integers(2, 4),
    longest=st.integers(1, 4),
    seed=st.integers(0, 10**6),
)
def test_a_beam_of_all_sequences_is_exhaustive(length, vocabulary, longest, seed):
    model = Random(vocabulary, 1, seed)
    how = Search(beam=vocabulary**longest, length=length, nbest=5)
    wide, every = (
        search(model, model.start([0]), BEGIN, end=END, longest=longest, how=how)[0]
        for search in (beam_search, exhaustive)
    )
    assert [one.tokens for one in wide.hypotheses] == [one.tokens for one in every.hypotheses]
    assert [one.score for one in wide.hypotheses] == pytest.approx([one.score for one in every.hypotheses], abs=1e-6)
