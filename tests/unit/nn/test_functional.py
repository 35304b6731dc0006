"""Functional relative positions: the equation, what it does not depend on, and where it is refused."""

import math

import pytest
import torch

from ensue.core.errors import InputError
from ensue.models.bert import BERT, BERTConfig
from ensue.models.gpt import GPTConfig
from ensue.nn.layout import Layout
from ensue.nn.mixers.functional import REACH, FunctionalAttention
from ensue.nn.mixers.mixer import MixerConfig
from ensue.nn.positions import sinusoids

SHAPE = {"vocabulary": 23, "layers": 2, "heads": 2, "hidden": 16, "context": 90, "positions": "functional"}


def test_it_is_the_equation():
    torch.manual_seed(0)
    mixer = FunctionalAttention(MixerConfig(width=12, heads=3, causal=False)).double()
    x = torch.randn(2, 5, 12, dtype=torch.float64)
    q, k, v = (one.view(2, 5, 3, 4) for one in mixer.project(x).split(12, -1))
    y = torch.zeros_like(q)
    for i in range(5):
        a = sinusoids(torch.arange(5) - i + REACH, 4).double()  # (5, d)
        for head in range(3):
            scores = ((k[:, :, head] + a) @ q[:, i, head, :, None])[..., 0] / math.sqrt(4)
            y[:, i, head] = (scores.softmax(-1)[:, :, None] * (v[:, :, head] + a)).sum(1)
    found, _, seen = mixer(x, None, Layout(), True)
    torch.testing.assert_close(found, mixer.out(y.flatten(2)), atol=1e-6, rtol=1e-6)
    torch.testing.assert_close(seen.sum(-1), torch.ones(2, 3, 5, dtype=torch.float64))


def test_an_encoder_has_no_other_positions_and_reads_what_is_moved_in_the_same_way():
    torch.manual_seed(0)
    body = BERT(BERTConfig(**SHAPE, next_sentence=False, pooled=False)).eval().body
    assert not [name for name, _ in body.named_parameters() if "positions" in name or "table" in name]
    for weight in body.parameters():
        torch.nn.init.normal_(weight, std=0.3)
    text = torch.randint(1, 23, (1, 6))
    alone = body(text).hidden
    assert not torch.allclose(alone, body(text.flip(1)).hidden.flip(1), atol=1e-3)  # order counts
    padded = torch.cat([text, torch.zeros(1, 5, dtype=torch.long)], 1)
    torch.testing.assert_close(body(padded, None, torch.tensor([6])).hidden[:, :6], alone, atol=1e-5, rtol=1e-4)


def test_chosen_positions_are_those_of_the_whole_row():
    torch.manual_seed(0)
    body = BERT(BERTConfig(**SHAPE, next_sentence=False)).eval().body
    tokens, lengths, at = torch.randint(1, 23, (2, 9)), torch.tensor([9, 4]), torch.tensor([[0, 8], [0, 3]])
    whole = body(tokens, None, lengths).hidden
    expected = whole.gather(1, at[..., None].expand(-1, -1, 16))
    torch.testing.assert_close(body(tokens, None, lengths, at).hidden, expected, atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize(
    ("config", "changes", "says"),
    [
        (BERTConfig, {"attention": "local:span=4"}, "positions = functional is for attention = full, not local:span=4"),
        (GPTConfig, {}, "positions = functional is for encoders"),
    ],
)
def test_it_is_refused_elsewhere_in_one_line(config, changes, says):
    with pytest.raises(InputError, match=says) as error:
        config(**{**SHAPE, **changes})
    assert "\n" not in str(error.value)
