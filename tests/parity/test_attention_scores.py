"""The score functions against Keras, and against the equations written out by hand (R73 to R79 of the lectures)."""

import numpy as np
import pytest
import torch

from ensue.nn.scores import SCORES, Additive, Dot, General, ScaledDot, attend

N, T, S, D = 2, 3, 5, 4
LENGTHS = torch.tensor([5, 2])
MASK = torch.arange(S) < LENGTHS[:, None]


@pytest.fixture
def states():
    generator = torch.Generator().manual_seed(3)
    return torch.randn(N, T, D, generator=generator), torch.randn(N, S, D, generator=generator)


@pytest.fixture(scope="module")
def keras():
    return pytest.importorskip("keras")


def answer(score, s, h):
    """Where a score looks and what it sees, as arrays."""
    with torch.no_grad():
        seen, weights = attend(score(s, score.remember(h)), h, MASK)
    return seen.numpy(), weights.numpy()


def asked(layer, s, h, keys=None):
    """The same from Keras, which wants [query, value, key] and a mask of the values."""
    given = [s.numpy(), h.numpy(), (h if keys is None else keys).detach().numpy()]
    seen, weights = layer(given, mask=[None, MASK.numpy()], return_attention_scores=True)
    return tuple(np.asarray(part.detach().cpu()) for part in (seen, weights))


def same(ours, theirs):
    for left, right in zip(ours, theirs, strict=True):
        np.testing.assert_allclose(left, right, atol=1e-6)


def test_additive_attention_equals_keras(keras, states):
    """Keras has v · tanh(q + k) without the projections; they are ours to make first."""
    s, h = states
    score = Additive(D, D, S)
    layer = keras.layers.AdditiveAttention(use_scale=True)
    with torch.no_grad():
        query, keys = score.of_query(s), score.remember(h)
    layer.build([tuple(query.shape), tuple(h.shape), tuple(keys.shape)])
    layer.set_weights([score.v.weight.detach().numpy()[0]])
    same(answer(score, s, h), asked(layer, query, h, keys))


def test_dot_attention_equals_keras(keras, states):
    s, h = states
    same(answer(Dot(D, D, S), s, h), asked(keras.layers.Attention(), s, h))


def test_scaled_dot_attention_equals_keras(keras, states):
    s, h = states
    layer = keras.layers.Attention(use_scale=True)
    layer.build([(N, T, D), (N, S, D), (N, S, D)])
    layer.set_weights([np.float32(D**-0.5)])
    same(answer(ScaledDot(D, D, S), s, h), asked(layer, s, h))


def test_general_attention_equals_keras(keras, states):
    s, h = states
    score = General(D, D, S)
    same(answer(score, s, h), asked(keras.layers.Attention(), s, h, score.weight(h)))


def cosine(a, b):
    return a @ b / (np.linalg.norm(a) * np.linalg.norm(b))


def by_hand(name, score, s, h, place):
    """e_{t,i} as the lectures write it, for one s_t and one h_i (float64)."""
    w = {key: value.double().numpy() for key, value in score.state_dict().items()}
    if name == "content":
        return np.exp(w["strength"]) * cosine(s, h)
    if name == "additive":
        whole = np.concatenate([w["of_query.weight"], w["of_source.weight"]], axis=1)  # W_a
        return w["v.weight"][0] @ np.tanh(whole @ np.concatenate([s, h]) + w["of_source.bias"])
    if name == "location":
        return (w["place.weight"] @ s)[place]
    if name == "general":
        return s @ w["weight.weight"] @ h
    return s @ h / (np.sqrt(len(s)) if name == "scaled-dot" else 1)


@pytest.mark.parametrize("name", SCORES)
def test_every_score_is_the_equation(name, states):
    s, h = (part.double() for part in states)
    score = SCORES[name](D, D, S + 2).double()
    for weight in score.parameters():
        torch.nn.init.normal_(weight)
    with torch.no_grad():
        found = score(s, score.remember(h)).numpy()
    expected = [
        [[by_hand(name, score, s[n, t].numpy(), h[n, i].numpy(), i) for i in range(S)] for t in range(T)]
        for n in range(N)
    ]
    np.testing.assert_allclose(found, expected, atol=1e-12)


@pytest.mark.parametrize("name", SCORES)
def test_what_is_seen_is_the_weighted_sum_of_the_source(name, states):
    """α_t sums to one, is exactly 0 where there is nothing, and a_t = Σ α_{t,i} h_i."""
    s, h = states
    seen, weights = answer(SCORES[name](D, D, S), s, h)
    np.testing.assert_allclose(weights.sum(-1), 1, atol=1e-6)
    assert (weights[1, :, 2:] == 0).all() and (weights[:, :, :2] > 0).all()
    expected = (weights[..., None] * h.numpy()[:, None]).sum(2)
    np.testing.assert_allclose(seen, expected, atol=1e-6)
