"""Rows of a beam share a key–value cache, which must not change what they compute."""

import pytest
import torch

from ensue.nn.key_value_cache import KeyValueCache
from ensue.nn.layout import Layout
from ensue.nn.mixers.full import SelfAttention
from ensue.nn.mixers.mixer import MixerConfig

B, D, HEADS = 3, 8, 2


@pytest.fixture(params=[False, True], ids=["plain", "rotary"])
def layer(request):
    torch.manual_seed(0)
    return SelfAttention(MixerConfig(width=D, heads=HEADS, rope_base=10000.0 * request.param)).eval()


def alone(layer, state, picks, inputs):
    """The same walk with a memory of its own for every row: what must come out."""
    state, found = state.separate(), []
    for index, x in zip(picks, inputs):
        keys, values, lengths = (part.index_select(0, index) for part in (state.keys, state.values, state.lengths))
        y, state, _ = layer(x, KeyValueCache(keys, values, lengths, state.used, state.even))
        found.append(y)
    return found


def walked(layer, state, picks, inputs):
    """What comes out, and whether rows shared a memory at each step."""
    found, shared = [], []
    for index, x in zip(picks, inputs):
        y, state, _ = layer(x, state.rows(index))
        found.append(y)
        shared.append(state.seen is not None)
    return found, shared, state


PICKS = [
    [0, 0, 1, 1, 2, 2],  # a beam of two opens
    [1, 1, 2, 3, 5, 4],  # both from one; as they are; exchanged
    [0, 1, 2, 2, 4, 4],
    [0, 1, 4, 5],  # the second sentence leaves
    [0, 0, 1, 2, 2, 3],  # three of each
]


@pytest.mark.parametrize("grad", [False, True], ids=["in place", "autograd"])
@pytest.mark.parametrize("time", [1, 3])
def test_a_shared_memory_gives_what_own_ones_do(layer, grad, time):
    with torch.set_grad_enabled(grad):
        _, state, _ = layer(torch.randn(B, 4, D))
        picks = [torch.tensor(pick) for pick in PICKS]
        inputs = [torch.randn(len(pick), time, D) for pick in picks]
        expected = alone(layer, state.fork(), picks, inputs)
        found, shared, last = walked(layer, state.fork(), picks, inputs)
    assert all(shared)
    for ours, theirs in zip(found, expected):
        torch.testing.assert_close(ours, theirs, atol=1e-6, rtol=1e-5)
    assert last.lengths.tolist() == [4 + 5 * time] * 6 and last.used == 4 + 5 * time


@pytest.mark.parametrize(
    "pick",
    [[0, 1, 2], [2, 1, 0], [0, 0, 1], [1, 1, 0, 0], [0, 0, 1, 1, 0, 0], []],
    ids=["all", "reversed", "uneven", "out of order", "again", "none"],
)
def test_other_picks_have_memories_of_their_own(layer, pick):
    _, state, _ = layer(torch.randn(B, 4, D))
    index = torch.tensor(pick, dtype=torch.long)
    x = torch.randn(len(pick), 2, D)
    [expected] = alone(layer, state.fork(), [index], [x])
    [found], [shared], _ = walked(layer, state.fork(), [index], [x])
    assert not shared
    torch.testing.assert_close(found, expected, atol=1e-6, rtol=1e-5)


def test_one_row_of_each_leaves_the_group(layer):
    with torch.no_grad():
        _, state, _ = layer(torch.randn(B, 2, D))
        picks = [torch.tensor(pick) for pick in ([0, 0, 1, 1, 2, 2], [0, 1, 2, 2, 5, 5], [1, 2, 4])]
        inputs = [torch.randn(len(pick), 1, D) for pick in picks]
        expected = alone(layer, state.fork(), picks, inputs)
        found, shared, _ = walked(layer, state.fork(), picks, inputs)
    assert shared == [True, True, False]
    torch.testing.assert_close(found[-1], expected[-1], atol=1e-6, rtol=1e-5)


def test_a_memory_is_shared_only_while_it_is_small(layer, monkeypatch):
    monkeypatch.setattr("ensue.nn.mixers.full.SHARED", 9)
    with torch.no_grad():
        _, state, _ = layer(torch.randn(B, 4, D))
        picks = [torch.tensor([0, 0, 1, 1, 2, 2]), *[torch.arange(6)] * 3]
        inputs = [torch.randn(6, 1, D) for _ in picks]
        expected = alone(layer, state.fork(), picks, inputs)
        found, shared, _ = walked(layer, state.fork(), picks, inputs)
    assert shared == [True, True, False, False]
    for ours, theirs in zip(found, expected):
        torch.testing.assert_close(ours, theirs, atol=1e-6, rtol=1e-5)


def test_padding_and_weights_are_asked_of_memories_of_their_own(layer):
    with torch.no_grad():
        _, state, _ = layer(torch.randn(B, 4, D))
        x = torch.randn(6, 3, D)
        shared, plain = state.rows(torch.tensor(PICKS[0])), state.rows(torch.tensor(PICKS[0])).separate()
        assert shared.seen is not None and plain.seen is None
        lengths = torch.tensor([3, 1, 2, 3, 0, 1])
        y, after, _ = layer(x, shared.fork(), Layout(lengths))
        expected, _, _ = layer(x, plain.fork(), Layout(lengths))
        for row, length in enumerate(lengths.tolist()):
            torch.testing.assert_close(y[row, :length], expected[row, :length], atol=1e-6, rtol=1e-5)
        assert after.lengths.tolist() == (4 + lengths).tolist()
        y, _, weights = layer(x, shared.fork(), weights=True)
        expected, _, seen = layer(x, plain.fork(), weights=True)
    torch.testing.assert_close(y, expected, atol=1e-6, rtol=1e-5)
    torch.testing.assert_close(weights, seen, atol=1e-6, rtol=1e-5)


def test_states_with_shared_memories_are_joined(layer):
    with torch.no_grad():
        _, state, _ = layer(torch.randn(B, 4, D))
        shared = state.rows(torch.tensor(PICKS[0]))
        one, two = torch.randn(6, 1, D), torch.randn(B, 1, D)
        expected = torch.cat([layer(one, shared.fork())[0], layer(two, state.fork())[0]])
        y, _, _ = layer(torch.cat([one, two]), KeyValueCache.joined([shared.fork(), state.fork()]))
    torch.testing.assert_close(y, expected, atol=1e-6, rtol=1e-5)
