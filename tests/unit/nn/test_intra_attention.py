"""Attention within a recurrent network (R82): one step between all pairs, and words whose sense comes later."""

import pytest
import torch
from torch import nn

from ensue.core.errors import InputError
from ensue.models.bidirectional_encoder import BidirectionalEncoder
from ensue.models.labelled import HeadConfig, Labelled
from ensue.models.laws import labelled_laws
from ensue.models.recurrent import GRULanguageModel, LSTMLanguageModel, RNNLanguageModel
from ensue.nn.intra_attention import IntraAttention
from ensue.nn.mixers.full import SelfAttention
from ensue.nn.mixers.local import LocalAttention
from ensue.nn.mixers.mixer import MixerConfig
from ensue.nn.recurrent import LSTMCell, Recurrent, TanhCell
from ensue.nn.stacks import Bidirectional

FILLERS = ("that", "is", "on", "a", "an", "other", "side", "of", "this", "wide", "old", "long")
VOCABULARY = ("road", "river", "the", "bank", *FILLERS)
ROAD, RIVER, THE, BANK = range(4)


def sentences(count, shortest, longest, generator):
    """*the bank* … *road*, *the bank* … *river*: tokens (B, T), lengths (B,), and which it was (B,)."""
    gaps = torch.randint(shortest, longest + 1, (count,), generator=generator)
    tokens = torch.randint(4, len(VOCABULARY), (count, longest + 3), generator=generator)
    senses = torch.randint(2, (count,), generator=generator)
    tokens[:, 0], tokens[:, 1] = THE, BANK
    tokens[torch.arange(count), gaps + 2] = senses
    return tokens, gaps + 3, senses


def tagger(cls, both, seed=0, **settings):
    torch.manual_seed(seed)
    model = cls(cls.Config(vocabulary=len(VOCABULARY), hidden=16, **settings))
    head = HeadConfig(kind="token", outputs=2, dropout=0.0)
    return Labelled(BidirectionalEncoder(model) if both else model, head)


def taught(model, steps=100, shortest=60, longest=80):
    """The share of banks that are understood after a few batches of sentences: shorter, trained on, longer."""
    generator = torch.Generator().manual_seed(1)
    optimiser = torch.optim.AdamW(model.parameters(), lr=5e-3)
    for _ in range(steps):
        tokens, lengths, senses = sentences(32, shortest, longest, generator)
        loss = nn.functional.cross_entropy(model(tokens, None, lengths).logits[:, 1], senses)
        optimiser.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimiser.step()
    shares = []
    with torch.no_grad():
        for gap in (shortest // 2, longest, 2 * longest):
            tokens, lengths, senses = sentences(200, gap, gap, generator)
            found = model.eval()(tokens, None, lengths).logits[:, 1].argmax(-1)
            shares.append((found == senses).float().mean().item())
    return shares


def pair(fillers):
    """The same sentence about a road and about a river."""
    tokens = torch.randint(4, len(VOCABULARY), (1, fillers + 3)).expand(2, -1).clone()
    tokens[:, 0], tokens[:, 1] = THE, BANK
    tokens[:, -1] = torch.tensor([ROAD, RIVER])
    return tokens


def test_from_one_end_bank_is_the_same_whatever_follows_and_with_attention_it_is_not():
    tokens = pair(8)
    for attend in (0, 2):
        onward = tagger(LSTMLanguageModel, both=False, attend=attend).body(tokens, want=("hidden",)).hidden
        apart = (onward[0] - onward[1]).abs().amax(-1)
        assert apart[:-1].max() < 1e-6 and apart[-1] > 1e-3
    embed, layer = nn.Embedding(len(VOCABULARY), 8), Recurrent(LSTMCell(8, 8))
    seen = IntraAttention(layer, SelfAttention(MixerConfig(width=8, heads=2, causal=False)))(embed(tokens)).y
    assert (seen[0, 1] - seen[1, 1]).norm() > 1e-3  # the layer reads from one end, its attention to all ends


@pytest.mark.parametrize("cls", [LSTMLanguageModel, RNNLanguageModel])
def test_the_sense_of_bank_is_learnt_from_a_last_word_far_away(cls):
    """Over 60 to 80 words: recurrence from both ends alone has no gradient of it; a path of one step has."""
    assert all(share > 0.95 for share in taught(tagger(cls, both=True, attend=2)))
    assert all(0.3 < share < 0.7 for share in taught(tagger(cls, both=True)))


def test_the_vectors_of_bank_lie_by_sense_after_learning():
    model = tagger(GRULanguageModel, both=True, attend=2)
    assert min(taught(model, shortest=10, longest=20)) > 0.95
    tokens, lengths, senses = sentences(60, 10, 20, torch.Generator().manual_seed(2))
    with torch.no_grad():
        bank = nn.functional.normalize(model(tokens, None, lengths).hidden[:, 1], dim=-1)
    near = bank @ bank.T - 2 * torch.eye(60)
    assert (senses[near.argmax(1)] == senses).float().mean() > 0.95


def influence(layer, distance):
    """‖∂ y_bank / ∂ x_last‖, the last word so many places after *bank*, on average over inputs."""
    torch.manual_seed(3)
    x = torch.randn(8, distance + 1, 12, requires_grad=True)
    y = layer(x)[0]
    return torch.autograd.grad(y[:, 0].square().sum(), x)[0][:, -1].norm(dim=-1).mean().item()


@pytest.mark.parametrize("cell", [TanhCell, LSTMCell])
def test_the_gradient_falls_with_the_distance_in_a_recurrence_and_with_its_softmax_alone_in_attention(cell):
    torch.manual_seed(0)
    layer = Bidirectional(Recurrent(cell(12, 12)), Recurrent(cell(12, 12)))
    attentive = IntraAttention(layer, SelfAttention(MixerConfig(width=24, heads=2, causal=False)))
    alone, seen = ([influence(one, distance) for distance in (10, 80)] for one in (layer, attentive))
    assert alone[1] < 1e-3 * alone[0]
    assert seen[1] > 0.5 * (10 / 80) * seen[0]  # 1/T, as of any mean over T


def test_each_step_sees_the_span_and_the_memory_stays_as_small():
    torch.manual_seed(0)
    layer = IntraAttention(Recurrent(LSTMCell(4, 8)), LocalAttention(MixerConfig(width=8, heads=2), span=5)).eval()
    weights = layer(torch.randn(2, 12, 4), weights=True).weights
    band = torch.ones(12, 12, dtype=torch.bool).tril().triu(-4)
    assert ((weights > 0) == band).all()
    torch.testing.assert_close(weights.sum(-1), torch.ones(2, 2, 12))
    with torch.no_grad():
        state, sizes = layer.start(2), set()
        for _ in range(200):
            _, state, _ = layer(torch.randn(2, 1, 4), state)
            sizes.add(state.memory.keys.shape[2])
        _, state, _ = layer(torch.randn(2, 100, 4), state)
    assert max(sizes) <= 32 and state.memory.used <= 9


def test_rows_begin_anew_one_by_one():
    torch.manual_seed(0)
    layer = (
        IntraAttention(Recurrent(TanhCell(4, 8)), LocalAttention(MixerConfig(width=8, heads=2), span=6)).double().eval()
    )
    x = torch.randn(3, 20, 4, dtype=torch.double)
    for size in (2, 9):
        _, state, _ = layer(x[:, :size])
        state = state.renewed(torch.tensor([False, True, False]), layer.start(3))
        assert state.renewed(torch.zeros(3, dtype=torch.bool), layer.start(3)).memory is state.memory
        parts = []
        for at in range(size, 20, 3):  # also past the point where rows are even again
            y, state, _ = layer(x[:, at : at + 3], state)
            parts.append(y)
        found = torch.cat(parts, dim=1)
        torch.testing.assert_close(found[[0, 2]], layer(x)[0][[0, 2], size:], atol=1e-10, rtol=0)
        torch.testing.assert_close(found[1], layer(x[1:2, size:])[0][0], atol=1e-10, rtol=0)
        assert state.memory.even


def test_padding_beyond_the_span_stays_finite():
    layer = IntraAttention(Recurrent(LSTMCell(4, 8)), LocalAttention(MixerConfig(width=8, heads=2), span=2))
    x = torch.randn(2, 30, 4)
    for lengths in (torch.tensor([3, 1]), torch.tensor([0, 0])):
        y, state, _ = layer(x, None, lengths)
        assert y.isfinite().all() and state.memory.keys.isfinite().all()


@pytest.mark.parametrize("both", [False, True], ids=["one", "both"])
def test_neither_padding_nor_other_rows_change_the_output_of_a_row(both):
    model = tagger(LSTMLanguageModel, both=both, attend=4, layers=2, span=3)
    for seed in range(3):
        assert all(found.kept for found in labelled_laws(model, seed))


def test_without_heads_nothing_is_different():
    plain, named = (LSTMLanguageModel(LSTMLanguageModel.Config(vocabulary=5, **more)) for more in ({}, {"attend": 0}))
    assert list(plain.state_dict()) == list(named.state_dict()) and isinstance(plain.stack.layers[0], Recurrent)
    assert plain(torch.zeros(1, 2, dtype=torch.long), want=("attention",)).attention is None


def test_heads_that_do_not_share_the_width_are_refused():
    with pytest.raises(InputError, match=r"attend = 3.*divisor of 16"):
        tagger(LSTMLanguageModel, both=False, attend=3)
    with pytest.raises(InputError, match="span"):
        LSTMLanguageModel.Config(attend=2, span=0)
