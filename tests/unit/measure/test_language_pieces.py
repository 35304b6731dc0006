"""A text's log-probabilities piece by piece: every token once, and the sum of all."""

import numpy as np
import pytest
import torch

from ensue.core.errors import InputError
from ensue.measure.language import log_prob_pieces, log_probs, total_log_prob
from ensue.models.bidirectional import BidirectionalLanguageModel
from ensue.models.recurrent import LSTMConfig, LSTMLanguageModel, RecurrentConfig
from ensue.nn.protocol import Traits

END = 8


def model(kind):
    if kind == "steps":
        return LSTMLanguageModel(LSTMConfig(vocabulary=9, hidden=8)).eval()
    return BidirectionalLanguageModel(RecurrentConfig(vocabulary=9, hidden=8)).eval()


def tokens(number):
    return np.random.default_rng(0).integers(9, size=number)


@pytest.mark.parametrize(("kind", "streams"), [("steps", 1), ("steps", 3), ("steps", 7), ("both", 0)])
@pytest.mark.parametrize("number", [10, 300, 3001])
def test_pieces_cover_every_token_once(kind, streams, number):
    places = [
        place + offset
        for place, values in log_prob_pieces(model(kind), tokens(number), streams)
        for offset in range(len(values))
    ]
    assert sorted(places) == list(range(number - 1))


@pytest.mark.parametrize(("kind", "streams"), [("steps", 1), ("steps", 3), ("both", 0)])
def test_the_sum_is_that_of_all_tokens(kind, streams):
    held = model(kind)
    whole = log_probs(held, tokens(3001), streams)
    assert total_log_prob(held, tokens(3001), streams) == pytest.approx(whole.sum(), rel=1e-12)


def test_gradients_are_disabled_only_while_pieces_are_computed():
    held = model("steps")
    for _, values in log_prob_pieces(held, tokens(600), 1):
        assert torch.is_grad_enabled() and values.dtype == np.float64
    assert all(p.grad is None for p in held.parameters())


@pytest.mark.parametrize("streams", [-1, 10])
def test_streams_must_fit_the_text(streams):
    with pytest.raises(InputError, match=f"--streams {streams}"):
        total_log_prob(model("steps"), tokens(10), streams)


class OtherRankFailed:
    """A model that knows one beginning only: after any other first token it never says anything sensible again."""

    traits = Traits()

    def eval(self):
        return self

    def parameters(self):
        return iter(())

    def start(self, rows):
        return None

    def log_prob(self, x, y, state=None):
        found = x[:, :1] == END if state is None else state
        return torch.where(found, -1.0, -100.0).expand(x.shape).clone(), found


@pytest.mark.parametrize("streams", [1, 2, 5, 32])
def test_every_stream_begins_with_the_first_token_of_the_text(streams):
    text = np.concatenate([[END], tokens(2000) % END, [END]])
    assert set(log_probs(OtherRankFailed(), text, streams)) == {-1.0}
