"""Linear attention: the parallel, the recurrent and the chunked form are one equation."""

from dataclasses import replace

import pytest
import torch
from torch.nn import functional as F

from ensue.core.errors import InputError
from ensue.kernels.linear_scan import CHUNK, linear_scan
from ensue.models.gpt import GPTConfig, GPTLanguageModel
from ensue.nn.layout import Layout
from ensue.nn.mixers.linear import LinearAttention
from ensue.nn.mixers.mixer import MixerConfig, build_mixer

CONFIG = MixerConfig(width=16, heads=4, kv_heads=2, context=64)
TIME = CHUNK + 21


def mixer(causal=True):
    torch.manual_seed(0)
    return LinearAttention(replace(CONFIG, causal=causal)).double().eval()


def rand(*shape):
    return torch.randn(*shape, dtype=torch.float64)


def explicit(own, x):
    """The n × n form: weights (B, H, T, T) and outputs."""
    query, key, value = own._heads(own._projected(x))
    key, value = (part.repeat_interleave(2, dim=1) for part in (key, value))
    products = (F.elu(query) + 1) @ (F.elu(key) + 1).mT
    weights = products.tril() if own.causal else products
    weights = weights / weights.sum(-1, keepdim=True)
    return weights, own.out((weights @ value).transpose(1, 2).flatten(2))


@pytest.mark.parametrize("causal", [True, False])
def test_outputs_weights_and_gradients_are_those_of_the_explicit_form(causal):
    own, x = mixer(causal), rand(2, TIME, 16).requires_grad_()
    found, (weights, y) = own(x, None, weights=True), explicit(own, x)
    torch.testing.assert_close(found.y, y, atol=1e-10, rtol=0)
    torch.testing.assert_close(found.weights, weights, atol=1e-10, rtol=0)
    torch.testing.assert_close(found.weights.sum(-1), torch.ones_like(weights[..., 0]))
    inputs = [x, *own.parameters()]
    ours, theirs = (torch.autograd.grad(one.sin().sum(), inputs) for one in (found.y, y))
    torch.testing.assert_close(ours, theirs, atol=1e-9, rtol=0)


@pytest.mark.parametrize("gradients", [True, False])
def test_the_recurrent_and_the_chunked_form_are_the_parallel_one(gradients):
    own, x = mixer(), rand(2, TIME, 16)
    with torch.set_grad_enabled(gradients):
        _, wanted = explicit(own, x)
        for size in (1, 7, CHUNK, TIME):
            state, found = own.start(2), []
            for piece in x.split(size, dim=1):
                mixed = own(piece, state)
                state = mixed.state
                found.append(mixed.y)
            torch.testing.assert_close(torch.cat(found, dim=1), wanted, atol=1e-10, rtol=0)


@pytest.mark.parametrize("causal", [True, False])
def test_padded_rows_are_those_of_each_alone(causal):
    own, x, lengths = mixer(causal), rand(4, TIME, 16), [TIME, 5, 0, CHUNK]
    together = own(x, None, Layout(torch.tensor(lengths)), weights=True)
    for row, length in enumerate(lengths):
        if length:
            alone = own(x[row : row + 1, :length])
            torch.testing.assert_close(together.y[row, :length], alone.y[0], atol=1e-10, rtol=0)
            assert not together.weights[row, :, :length, length:].any()
            if causal:
                torch.testing.assert_close(together.state.matrix[row], alone.state.matrix[0])
                torch.testing.assert_close(together.state.total[row], alone.state.total[0])
                assert together.state.tokens[row] == length
    assert together.y.isfinite().all()


def test_a_state_is_as_large_after_any_text_and_stays_finite():
    torch.manual_seed(0)
    config = GPTConfig(vocabulary=11, layers=2, heads=4, hidden=16, context=16, attention="linear", positions="none")
    model = GPTLanguageModel(config).eval()
    sizes = []
    with torch.no_grad():
        state = model.start(2)
        for _ in range(1000):
            output = model(torch.randint(11, (2, 1)), state)
            state = output.state
            sizes.append(sum(tensor.numel() for _, tensor in state.tensors()))
    assert len(set(sizes)) == 1 and output.logits.isfinite().all()
    assert output.logits.dtype == torch.float32


def test_positions_that_bias_scores_are_refused_in_one_line():
    for name in ("linear", "performer"):
        with pytest.raises(InputError, match="cannot use positions=alibi"):
            GPTLanguageModel(
                GPTConfig(vocabulary=11, layers=1, heads=2, hidden=8, context=8, attention=name, positions="alibi")
            )


def test_it_has_no_options():
    with pytest.raises(InputError, match="'linear' has no options"):
        build_mixer("linear:features=3", CONFIG)


@pytest.mark.parametrize("time", [1, 5, CHUNK, 2 * CHUNK + 3])
@pytest.mark.parametrize("decays", [0, 1, 4])
def test_the_scan_is_its_recurrence(time, decays):
    torch.manual_seed(0)
    query, key, value, state = rand(2, 3, time, 4), rand(2, 3, time, 4), rand(2, 3, time, 5), rand(2, 3, 4, 5)
    log_decay = -rand(2, 3, time, decays).abs().clamp(max=1.9) if decays else None
    found, after = linear_scan(query, key, value, state, log_decay)
    for t in range(time):
        kept = log_decay[:, :, t, :, None].exp() if decays else 1.0
        state = kept * state + key[:, :, t, :, None] * value[:, :, t, None]
        torch.testing.assert_close(found[:, :, t], (query[:, :, t, None] @ state)[:, :, 0], atol=1e-10, rtol=0)
    torch.testing.assert_close(after, state, atol=1e-10, rtol=0)


def test_the_scan_of_no_tokens_leaves_the_state():
    state = rand(2, 3, 4, 5)
    y, after = linear_scan(rand(2, 3, 0, 4), rand(2, 3, 0, 4), rand(2, 3, 0, 5), state)
    assert y.shape == (2, 3, 0, 5) and torch.equal(after, state)


def test_strong_decays_stay_finite():
    torch.manual_seed(0)
    parts = [torch.randn(1, 1, 3 * CHUNK, 4).requires_grad_() for _ in range(3)]
    log_decay = torch.full((1, 1, 3 * CHUNK, 1), -50.0, requires_grad=True)
    y, after = linear_scan(*parts, torch.zeros(1, 1, 4, 4), log_decay)
    (y.sum() + after.sum()).backward()
    assert all(one.grad.isfinite().all() for one in (*parts, log_decay)) and y.isfinite().all()
    torch.testing.assert_close(y, (parts[0] * parts[1]).sum(-1, keepdim=True) * parts[2])
