import math

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tables import Trigrams

from ensue.core.errors import InputError, InvalidDistribution
from ensue.models.recurrent import LSTMConfig, LSTMLanguageModel
from ensue.search.beam import Search, beam_search
from ensue.search.sampling import Sampling, draw, filtered, next_distribution, sample


@settings(deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
@given(
    st.lists(st.floats(-5, 5), min_size=2, max_size=12),
    st.floats(0.1, 3),
    st.integers(0, 12),
    st.floats(0.05, 1.0),
)
def test_filtered_probabilities_are_a_distribution_over_probable_tokens(logits, temperature, k, p):
    log_probs = torch.tensor([logits], dtype=torch.double).log_softmax(-1)
    result = filtered(log_probs, Sampling(temperature=temperature, top_k=k, top_p=p))[0]
    assert result.sum().item() == pytest.approx(1)
    assert result[log_probs[0] == log_probs[0].max()].sum() > 0
    assert k == 0 or (result > 0).sum() <= k
    dropped = log_probs[0][result == 0]
    assert len(dropped) == 0 or dropped.max() <= log_probs[0][result > 0].min() + 1e-9


def test_top_k_keeps_k_and_top_p_the_smallest_set_that_reaches_p():
    log_probs = torch.tensor([[0.5, 0.3, 0.15, 0.05]], dtype=torch.double).log()
    assert filtered(log_probs, Sampling(top_k=2))[0].tolist() == pytest.approx([0.625, 0.375, 0, 0])
    assert filtered(log_probs, Sampling(top_p=0.75))[0].tolist() == pytest.approx([0.625, 0.375, 0, 0])
    assert filtered(log_probs, Sampling(top_p=0.81))[0].tolist() == pytest.approx(
        [0.5 / 0.95, 0.3 / 0.95, 0.15 / 0.95, 0]
    )
    assert filtered(log_probs, Sampling(temperature=0))[0].tolist() == [1, 0, 0, 0]
    assert filtered(log_probs, Sampling(temperature=2))[0, 0].item() == pytest.approx(
        0.5**0.5 / sum(x**0.5 for x in (0.5, 0.3, 0.15, 0.05))
    )


def test_scores_are_the_models_own_and_add_up():
    model = LSTMLanguageModel(LSTMConfig(vocabulary=7, hidden=6)).eval()
    prompt = torch.tensor([1, 2])
    for one in sample(model, prompt, Sampling(tokens=6, n=3, top_k=3, temperature=0.7, seed=4)):
        tokens = torch.cat([prompt, torch.tensor(one.tokens)])[None]
        with torch.no_grad():
            expected = model.log_prob(tokens[:, :-1], tokens[:, 1:])[0][0, 1:]
        assert one.log_probs == pytest.approx(expected.tolist(), abs=1e-5)
        assert one.log_prob == pytest.approx(expected.sum().item(), abs=1e-4)
        assert one.mean_log_prob == pytest.approx(one.log_prob / 6)


def test_a_seed_gives_the_same_text_and_frequencies_follow_the_distribution():
    model = LSTMLanguageModel(LSTMConfig(vocabulary=4, hidden=6)).eval()
    how = Sampling(tokens=1, n=4000, seed=1)
    first, again = (sample(model, torch.tensor([0]), how) for _ in range(2))
    assert [s.tokens for s in first] == [s.tokens for s in again]
    p = next_distribution(model, torch.tensor([0]))
    counts = torch.bincount(torch.tensor([s.tokens[0] for s in first]), minlength=4) / 4000
    torch.testing.assert_close(counts.double(), p, atol=0.03, rtol=0)


def test_the_end_token_ends_a_row_and_others_continue():
    model = LSTMLanguageModel(LSTMConfig(vocabulary=3, hidden=4)).eval()
    drawn = sample(model, torch.tensor([0]), Sampling(tokens=12, n=20, seed=0), ends=[2])
    for one in drawn:
        assert one.ended == (one.tokens[-1] == 2) and 2 not in one.tokens[:-1]
        assert one.ended or len(one.tokens) == 12


def test_each_of_several_end_tokens_ends_a_row():
    model = LSTMLanguageModel(LSTMConfig(vocabulary=4, hidden=4)).eval()
    drawn = sample(model, torch.tensor([0]), Sampling(tokens=12, n=20, seed=0), ends={2, 3})
    assert {one.tokens[-1] for one in drawn if one.ended} == {2, 3}
    for one in drawn:
        assert one.ended == (one.tokens[-1] in {2, 3}) and not {2, 3} & set(one.tokens[:-1])
        assert len(one.log_probs) == len(one.tokens)


@pytest.mark.parametrize(
    "bad",
    [{"temperature": -1}, {"top_p": 0}, {"top_k": -2}, {"n": 0}, {"tokens": 0}, {"temperature": math.nan}],
)
def test_invalid_sampling_settings_are_refused(bad):
    with pytest.raises(InputError, match=next(iter(bad)).replace("_", "-")):
        Sampling(**bad)


def test_a_trace_of_samples_holds_the_drawn_tokens_and_changes_nothing():
    model = LSTMLanguageModel(LSTMConfig(vocabulary=7, hidden=6)).eval()
    how = Sampling(tokens=5, n=3, seed=4)
    (plain,), (traced,) = (draw(model, model.start(1), 2, ends=[0], how=how, trace=trace) for trace in (False, True))
    samples, trace = sample(model, torch.tensor([2]), how, [0]), traced.trace
    assert plain.hypotheses == traced.hypotheses and plain.trace is None
    for one, path in zip(samples, trace.paths, strict=True):
        assert [trace.nodes[at].token for at in path.nodes] == one.tokens
        assert sum(trace.nodes[at].log_prob for at in path.nodes) == pytest.approx(one.log_prob)
    best = max(samples, key=lambda one: one.log_prob)
    (marked,) = (node for node in trace.nodes if node.fate == "best")
    assert marked.total == pytest.approx(best.log_prob) and marked.why.endswith("the best of 3")


def test_no_temperature_is_greedy_search_from_any_start():
    model = Trigrams(7, seed=2, sentences=4)
    begin = torch.tensor([1, 2, 3, 4])
    drawn = draw(model, model.start(4), begin, ends=[0], longest=6, how=Sampling(temperature=0))
    greedy = beam_search(model, model.start(4), begin, end=0, longest=6, how=Search(beam=1, length="none"))
    for one, other in zip(drawn, greedy):
        assert (one.best.tokens, one.best.ended) == (other.best.tokens, other.best.ended)
        assert one.best.log_prob == pytest.approx(other.best.log_prob, abs=1e-5)


def test_sentences_are_sampled_in_a_batch_with_their_own_maximum_lengths():
    model, limits = Trigrams(6, seed=3, sentences=3), torch.tensor([2, 9, 5])
    found = draw(model, model.start(3), 1, ends=[0], longest=limits, how=Sampling(n=8, seed=5))
    for number, (f, longest) in enumerate(zip(found, limits.tolist())):
        assert len(f.hypotheses) == 8
        for one in f.hypotheses:
            assert len(one.log_probs) <= longest and (one.ended or len(one.tokens) == longest)
            assert one.log_probs == pytest.approx(model.log_probs(number, 1, one.tokens + [0] * one.ended), abs=1e-5)
    again = draw(model, model.start(3), 1, ends=[0], longest=torch.tensor([1, 9, 1]), how=Sampling(n=8, seed=5))
    assert again[1].hypotheses == found[1].hypotheses  # whatever its neighbours do
    alone = draw(model, model.start(1), 1, ends=[0], longest=2, how=Sampling(n=8, seed=5))
    assert alone[0].hypotheses == found[0].hypotheses


@pytest.mark.parametrize("temperature", [0.0, 1.0])
@pytest.mark.parametrize("wrong", [math.nan, math.inf, -math.inf])
def test_nan_is_refused_greedily_or_not(temperature, wrong):
    model = LSTMLanguageModel(LSTMConfig(vocabulary=7, hidden=6)).eval()
    with torch.no_grad():
        model.head.bias.fill_(wrong)
    with pytest.raises(InvalidDistribution, match="the model's output is not a probability distribution"):
        sample(model, torch.tensor([1, 2]), Sampling(tokens=3, temperature=temperature))
    with pytest.raises(InvalidDistribution):
        draw(model, model.start(2), 1, ends=[0], how=Sampling(tokens=3, temperature=temperature))
