from dataclasses import dataclass

import torch
from torch.utils import _pytree

from ensue.models.gpt import GPTConfig, GPTLanguageModel
from ensue.nn.key_value_cache import KeyValueCache
from ensue.nn.mixers.full import SelfAttention
from ensue.nn.mixers.mixer import MixerConfig
from ensue.nn.recent import RecentTokens
from ensue.nn.state import State


@dataclass(frozen=True)
class Pair(State):
    left: torch.Tensor
    right: tuple[State, ...]
    size: int = 3


def pair():
    return Pair(torch.arange(6.0).view(3, 2), (RecentTokens(torch.tensor([[1], [2], [3]])),), 7)


def test_rows_are_picked_repeated_and_reordered_everywhere():
    picked = pair().rows(torch.tensor([2, 0, 2, 1]))
    assert picked.left.tolist() == [[4, 5], [0, 1], [4, 5], [2, 3]]
    assert picked.right[0].tokens.tolist() == [[3], [1], [3], [2]] and picked.size == 7


def test_a_fork_is_a_copy():
    state = pair()
    kept = state.fork()
    state.left.zero_()
    assert kept.left.sum() == 15


def test_tensors_have_names_and_come_back():
    state = pair()
    named = dict(state.tensors())
    assert list(named) == ["left", "right.0.tokens", "size"]
    doubled = state.filled({name: 2 * tensor for name, tensor in named.items()})
    assert doubled.size == 14
    assert torch.equal(doubled.left, 2 * state.left) and doubled.right[0].tokens.tolist() == [[2], [4], [6]]


def test_states_are_pytrees():
    leaves, spec = _pytree.tree_flatten(pair())
    assert len(leaves) == 2
    again = _pytree.tree_unflatten([2 * leaf for leaf in leaves], spec)
    assert isinstance(again, Pair) and again.size == 7 and again.right[0].tokens.tolist() == [[2], [4], [6]]


def test_the_buffer_of_keys_grows_by_a_share_and_is_written_in_place():
    layer = SelfAttention(MixerConfig(width=8, heads=2)).eval()
    state, capacities, places = layer.start(1), [], set()
    with torch.no_grad():
        for _ in range(20):
            _, state, _ = layer(torch.randn(1, 1, 8), state)
            capacities.append(state.keys.shape[2])
            places.add(state.keys.data_ptr())
    assert capacities[-1] >= 20 and len(set(capacities)) <= 6 and len(places) <= 6


def test_a_long_cache_has_little_room_to_spare_and_is_copied_seldom():
    cache, copies = KeyValueCache(*torch.zeros(2, 1, 1, 0, 4), torch.zeros(1, dtype=torch.long)), 0
    with torch.no_grad():
        for length in range(1, 4097):
            before, cache = cache.keys.shape[2], cache.append(*torch.full((2, 1, 1, 1, 4), float(length)), None)
            copies += before if cache.keys.shape[2] > before else 0
            assert length <= cache.keys.shape[2] <= max(32, 2 * length, 1.25 * length + 128)
            assert length < 512 or cache.keys.shape[2] <= 1.25 * length + 128
    assert cache.written_keys[0, 0, :, 0].tolist() == list(range(1, 4097)) and copies < 5 * 4096


def test_under_autograd_nothing_is_written_in_place():
    model = GPTLanguageModel(GPTConfig(vocabulary=5, layers=1, heads=2, hidden=8))
    tokens = torch.randint(5, (1, 6))
    first = model(tokens[:, :3])
    before = [tensor.clone() for _, tensor in first.state.tensors()]
    second = model(tokens[:, 3:], first.state)
    for kept, (_, tensor) in zip(before, first.state.tensors(), strict=True):
        assert torch.equal(kept, tensor)
    (first.logits.sum() + second.logits.sum()).backward()
    assert model.embed.weight.grad is not None


def test_recent_tokens_follow_each_rows_own_length():
    state = RecentTokens.empty(2, 3)
    _, state = state.extend(torch.tensor([[1, 2], [3, 9]]), torch.tensor([2, 1]))
    assert state.tokens.tolist() == [[-1, 1, 2], [-1, -1, 3]]
    _, state = state.extend(torch.tensor([[4, 5, 6, 7], [4, 5, 6, 7]]))
    assert state.tokens.tolist() == [[5, 6, 7], [5, 6, 7]]


def test_rows_can_begin_anew():
    start = Pair(torch.zeros(3, 2), (RecentTokens(torch.zeros(3, 1, dtype=torch.long)),), 7)
    mixed = pair().renewed(torch.tensor([True, False, True]), start)
    assert mixed.left.tolist() == [[0, 0], [2, 3], [0, 0]] and mixed.right[0].tokens.tolist() == [[0], [2], [0]]


def test_a_number_that_was_not_there_yet_is_as_it_begins():
    """Checkpoints of older versions do not have every field."""
    _, state, _ = SelfAttention(MixerConfig(width=8, heads=2))(torch.randn(3, 4, 8))
    old = {name: tensor for name, tensor in state.tensors() if name != "each"}
    assert state.filled(old).each == 1


def test_rows_are_counted_also_where_they_share_a_memory():
    _, state, _ = SelfAttention(MixerConfig(width=8, heads=2))(torch.randn(3, 4, 8))
    shared = state.rows(torch.tensor([0, 0, 1, 1, 2, 2]))
    assert (state.count, shared.count, len(shared.keys)) == (3, 6, 3)
