import math

import numpy as np
import pytest
import torch

from ensue.measure.cost import flops_per_token, parameter_parts
from ensue.measure.language import language_score, log_probs, stream_count
from ensue.models.gpt import GPTConfig, GPTLanguageModel
from ensue.models.recurrent import LSTMConfig, LSTMLanguageModel


def lstm(vocabulary=9):
    return LSTMLanguageModel(LSTMConfig(vocabulary=vocabulary, hidden=8)).eval()


def test_one_stream_reads_the_text_in_order():
    model, tokens = lstm(), np.random.default_rng(0).integers(9, size=1000)
    with torch.no_grad():
        t = torch.from_numpy(tokens)[None]
        expected = model.log_prob(t[:, :-1], t[:, 1:])[0][0].double().numpy()
    np.testing.assert_allclose(log_probs(model, tokens, streams=1), expected, atol=1e-5)


@pytest.mark.parametrize("streams", [2, 3, 7])
def test_streams_score_every_token_with_almost_the_same_result(streams):
    model, tokens = lstm(), np.random.default_rng(0).integers(9, size=3000)
    one, many = log_probs(model, tokens, streams=1), log_probs(model, tokens, streams=streams)
    assert len(one) == len(many) == 2999
    np.testing.assert_allclose(one, many, atol=1e-4)  # an LSTM has forgotten what was 256 tokens back


def test_a_windowed_model_slides_over_a_long_text():
    model = GPTLanguageModel(GPTConfig(vocabulary=9, layers=1, heads=2, hidden=8, context=8)).eval()
    tokens = np.random.default_rng(0).integers(9, size=200)
    found = log_probs(model, tokens, streams=1)
    # by hand: the window of a token begins at a multiple of 4, with never fewer than 4 tokens before it
    for t in (3, 8, 9, 50, 150, 198):
        begin = 0 if t < 8 else (t - 4) // 4 * 4
        window = torch.from_numpy(tokens[begin : t + 1])[None]
        with torch.no_grad():
            expected = model(window).logits[0, -1].log_softmax(-1)[tokens[t + 1]].item()
        assert found[t] == pytest.approx(expected, abs=1e-5)


def test_streams_follow_the_length_of_the_text():
    assert [stream_count(n) for n in (10, 5000, 10**7)] == [1, 1, 32]


def test_figures_follow_from_the_sum():
    score = language_score(100 * math.log(8), tokens=100, words=50, size=300, unknown=2, surcharge=30.0, streams=1)
    assert score.perplexity["token"] == pytest.approx(8)
    assert score.bits_per_byte == pytest.approx((300 + 30) / 300)
    assert score.perplexity["byte"] == pytest.approx(2 ** (330 / 300))
    assert score.perplexity["word"] == pytest.approx(2 ** (330 / 50))
    assert score.nll == pytest.approx(math.log(8)) and score.nll_total == pytest.approx(100 * math.log(8))


def test_flops_count_two_per_multiply_add():
    with torch.device("meta"):
        model = LSTMLanguageModel(LSTMConfig(vocabulary=50, hidden=16, embedding=16))
    # 8 N² of the recurrence (4 gates, x and h) and N V of the output, two FLOPs each
    assert flops_per_token(model) == 2 * (8 * 16 * 16 + 16 * 50)
    assert parameter_parts(model) == {"embed": 800, "stack": 4 * 16 * 33, "head": 50}
