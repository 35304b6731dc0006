"""Sinkhorn attention: soft permutations, causal ones, limits that are full attention, decoding, noise."""

from dataclasses import replace

import pytest
import torch

from ensue.core.errors import InputError
from ensue.models.gpt import GPTConfig, GPTLanguageModel
from ensue.nn.layout import Layout
from ensue.nn.mixers.full import SelfAttention, use_cache_type
from ensue.nn.mixers.mixer import MixerConfig, build_mixer
from ensue.nn.mixers.sinkhorn import SinkhornAttention, causal_sinkhorn, sinkhorn
from ensue.search.beam import Search, beam_search

CONFIG = MixerConfig(width=16, heads=4, kv_heads=2, context=64)
GPT = GPTConfig(vocabulary=11, layers=2, heads=4, hidden=16, context=32, attention="sinkhorn:block=3")


def mixer(causal=True, **options):
    """A mixer whose sorting network has sharp opinions."""
    torch.manual_seed(0)
    own = SinkhornAttention(replace(CONFIG, causal=causal), **options).double().eval()
    with torch.no_grad():
        own.sort.weight *= 20
    return own


def like(own):
    """Full attention with the same weights."""
    full = SelfAttention(replace(CONFIG, causal=own.causal)).double().eval()
    full.load_state_dict({name: value for name, value in own.state_dict().items() if not name.startswith("sort")})
    return full


def rand(*shape):
    return torch.randn(*shape, dtype=torch.float64)


def test_rows_and_columns_of_a_soft_permutation_sum_to_one():
    torch.manual_seed(0)
    share = sinkhorn(rand(2, 3, 5, 5) * 2, 200)
    torch.testing.assert_close(share.sum(-1), torch.ones(2, 3, 5, dtype=torch.float64), atol=1e-6, rtol=0)
    torch.testing.assert_close(share.sum(-2), torch.ones(2, 3, 5, dtype=torch.float64), atol=1e-12, rtol=0)


def test_sharp_scores_give_the_permutation_itself():
    order = torch.tensor([2, 0, 3, 1])
    share = sinkhorn(50 * torch.eye(4)[order], 8)
    torch.testing.assert_close(share, torch.eye(4)[order], atol=1e-6, rtol=0)


def test_blocks_that_are_not_there_change_nothing():
    torch.manual_seed(0)
    logs, there = rand(2, 1, 6, 6), torch.tensor([[True] * 6, [True] * 4 + [False] * 2])
    share = sinkhorn(logs, 8, there)
    torch.testing.assert_close(share[0], sinkhorn(logs[0], 8))
    torch.testing.assert_close(share[1, :, :4, :4], sinkhorn(logs[1, :, :4, :4], 8))
    assert not share[1, :, 4:].any() and not share[1, :, :, 4:].any()


def test_rows_of_a_causal_one_sum_to_one_and_depend_on_nothing_later():
    torch.manual_seed(0)
    logs = rand(2, 6, 6).requires_grad_()
    share = causal_sinkhorn(logs, 8)
    torch.testing.assert_close(share.sum(-1), torch.ones_like(share[..., 0]))
    assert not share.triu(1).any()
    for row in range(6):
        torch.testing.assert_close(causal_sinkhorn(logs[:, : row + 1, : row + 1], 8), share[:, : row + 1, : row + 1])
        (gradient,) = torch.autograd.grad((share[:, row] * torch.arange(6.0)).sum(), logs, retain_graph=True)
        assert not gradient[:, row + 1 :].any() and not gradient.triu(1).any()


def test_the_gradients_of_a_causal_one_are_those_of_its_result():
    assert torch.autograd.gradcheck(lambda logs: causal_sinkhorn(logs, 8), rand(2, 1, 5, 5).requires_grad_())


def test_a_causal_one_prefers_blocks_that_were_not_used_yet():
    """Equal scores: the second row has used block 0 already, so it takes more of block 1."""
    share = causal_sinkhorn(torch.zeros(2, 2), 1)
    torch.testing.assert_close(share, torch.tensor([[1.0, 0.0], [1 / 3, 2 / 3]]))


def test_extreme_scores_stay_finite():
    torch.manual_seed(0)
    logs = (torch.randn(9, 9) * 1e4).requires_grad_()
    for share in (sinkhorn(logs, 8), causal_sinkhorn(logs, 8)):
        (gradient,) = torch.autograd.grad(share.square().sum(), logs)
        assert share.isfinite().all() and gradient.isfinite().all()


@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize("time", [5, 8])
def test_one_block_is_full_attention(causal, time):
    own = mixer(causal, block=8)
    x, lengths = rand(3, time, 16), torch.tensor([time, 2, 4])
    for layout in (Layout(), Layout(lengths)):
        found, wanted = own(x, None, layout, weights=True), like(own)(x, None, layout, weights=True)
        for row, length in enumerate(lengths if layout.lengths is not None else [time] * 3):
            torch.testing.assert_close(found.y[row, :length], wanted.y[row, :length], atol=1e-10, rtol=0)
            shown = [one.weights[row, :, :length, :length] for one in (found, wanted)]
            torch.testing.assert_close(*shown, atol=1e-10, rtol=0)


def test_all_blocks_of_a_hard_permutation_by_sort_cut_are_full_attention(monkeypatch):
    own = mixer(False, block=3, cut=4)
    hard = torch.eye(4, dtype=torch.float64)[torch.tensor([3, 1, 0, 2])].expand(2, 2, 4, 4)
    monkeypatch.setattr(own, "_shares", lambda *_: hard)
    x = rand(2, 12, 16)
    found, wanted = own(x, None, weights=True), like(own)(x, None, weights=True)
    torch.testing.assert_close(found.y, wanted.y, atol=1e-10, rtol=0)
    torch.testing.assert_close(found.weights, wanted.weights, atol=1e-10, rtol=0)


def test_two_blocks_that_swap_are_full_attention(monkeypatch):
    own = mixer(False, block=4)
    swap = torch.tensor([[0.0, 1.0], [1.0, 0.0]], dtype=torch.float64).expand(2, 2, 2, 2)
    monkeypatch.setattr(own, "_shares", lambda *_: swap)
    x = rand(2, 8, 16)
    torch.testing.assert_close(own(x).y, like(own)(x).y, atol=1e-10, rtol=0)


def test_the_second_block_of_a_causal_text_sees_all_before_it():
    own = mixer(block=4)
    x = rand(2, 8, 16)
    torch.testing.assert_close(own(x).y, like(own)(x).y, atol=1e-10, rtol=0)
    x = rand(2, 9, 16)
    assert (own(x).y[:, 8] - like(own)(x).y[:, 8]).abs().max() > 1e-3


@pytest.mark.parametrize(("causal", "options"), [(True, {}), (False, {}), (False, {"cut": 2})])
def test_the_weights_that_are_shown_give_the_output(causal, options):
    own, x, lengths = mixer(causal, block=3, **options), rand(2, 11, 16), torch.tensor([11, 7])
    found = own(x, None, Layout(lengths), weights=True)
    value = own._heads(own._projected(x))[2].repeat_interleave(2, dim=1)
    y = own.out((found.weights @ value).transpose(1, 2).flatten(2))
    for row, length in enumerate(lengths):
        torch.testing.assert_close(y[row, :length], found.y[row, :length], atol=1e-10, rtol=0)
        assert not found.weights[row, :, :length, length:].any()
    torch.testing.assert_close(own(x, None, Layout(lengths)).y, found.y, atol=1e-12, rtol=0)
    if causal:
        torch.testing.assert_close(found.weights[0].sum(-1), torch.ones(4, 11, dtype=torch.float64))
        assert not found.weights.triu(1).any()


@pytest.mark.parametrize("gradients", [True, False])
def test_any_chunks_give_the_whole(gradients):
    own, x = mixer(block=3), rand(2, 23, 16)
    with torch.set_grad_enabled(gradients):
        whole = own(x, None, weights=True)
        for sizes in ([1] * 23, [2, 1, 6, 4, 1, 0, 9], [3, 3, 1, 5, 11]):
            state, found, shown = own.start(2), [], []
            for piece in x.split(sizes, dim=1):
                mixed = own(piece, state, weights=len(sizes) % 2 == 0)
                state = mixed.state
                found.append(mixed.y)
                shown.append(mixed.weights)
            torch.testing.assert_close(torch.cat(found, dim=1), whole.y, atol=1e-10, rtol=0)
            assert state.blocks.used == 7


def test_rows_of_different_lengths_go_on_as_each_alone():
    own, x = mixer(block=3), rand(3, 16, 16)
    begin = [9, 1, 5]
    with torch.no_grad():
        state = own(x[:, :9], own.start(3), Layout(torch.tensor(begin))).state
        after = [own(x[row : row + 1, :length]).state for row, length in enumerate(begin)]
        joined = type(state).joined([one.fork() for one in after])
        for time, lengths in ((1, [1, 1, 1]), (5, [2, 5, 0]), (7, [7, 3, 6])):
            piece = rand(3, time, 16)
            mixed = own(piece, state, Layout(torch.tensor(lengths)))
            again = own(piece, joined, Layout(torch.tensor(lengths)))
            state, joined = mixed.state, again.state
            for row, length in enumerate(lengths):
                if length:
                    alone = own(piece[row : row + 1, :length], after[row])
                    after[row] = alone.state
                    for one in (mixed, again):
                        torch.testing.assert_close(one.y[row, :length], alone.y[0], atol=1e-10, rtol=0)


def test_rows_that_begin_with_nothing_have_no_weights():
    seen = mixer(block=2)(rand(2, 1, 16), None, Layout(torch.tensor([0, 0])), weights=True).weights
    assert seen.shape == (2, 4, 1, 0)


def test_a_token_within_a_block_sorts_nothing(monkeypatch):
    own, x = mixer(block=4), rand(1, 12, 16)
    calls = []
    monkeypatch.setattr(own, "_shares", lambda *given: calls.append(1) or SinkhornAttention._shares(own, *given))
    with torch.no_grad():
        state = own.start(1)
        for step in range(12):
            state = own(x[:, step : step + 1], state).state
    assert len(calls) == 2  # when the second and the third block begin


def test_a_beam_finds_what_scoring_says():
    torch.manual_seed(0)
    model = GPTLanguageModel(GPT).double().eval()
    with torch.no_grad():
        how = Search(beam=4, length="none", nbest=4)
        (found,) = beam_search(model, model.start(1), 3, end=None, longest=11, how=how)
        for one in found.hypotheses:
            tokens = torch.tensor([[3, *one.tokens]])
            scored, _ = model.log_prob(tokens[:, :-1], tokens[:, 1:])
            assert one.score == pytest.approx(scored.sum().item(), abs=1e-8)


def test_a_cache_in_bf16_gives_the_same_but_for_rounding():
    torch.manual_seed(0)
    model, tokens = GPTLanguageModel(GPT).eval(), torch.randint(11, (2, 20))
    found = {}
    with torch.no_grad():
        for name in ("float32", "bf16"):
            use_cache_type(model, name)
            state = model.start(2)
            for step in range(20):
                output = model(tokens[:, step : step + 1], state)
                state = output.state
            found[name] = output.logits
    assert state.trunk.blocks[0].cache.keys.dtype == torch.bfloat16
    assert 0 < (found["bf16"] - found["float32"]).abs().max() < 0.02 * found["float32"].abs().max()


def test_noise_is_drawn_in_training_only_from_the_generator_that_a_checkpoint_holds():
    for causal in (True, False):
        own, x = mixer(causal, block=3), rand(2, 12, 16)
        state = torch.get_rng_state()
        assert torch.equal(own(x).y, own(x).y) and torch.equal(torch.get_rng_state(), state)
        own.train()
        first, second = own(x).y, own(x).y
        assert not torch.equal(first, second)
        torch.set_rng_state(state)
        assert torch.equal(own(x).y, first) and torch.equal(own(x).y, second)


def test_the_sorting_network_learns():
    for causal in (True, False):
        own = mixer(causal, block=3).train()
        own(rand(2, 12, 16)).y.square().sum().backward()
        assert own.sort.weight.grad.abs().max() > 0


@pytest.mark.parametrize(
    ("text", "causal", "message"),
    [
        ("sinkhorn:block=-1", True, "must be 0 or more"),
        ("sinkhorn:iterations=0", True, "iterations = 0"),
        ("sinkhorn:temperature=0", True, "temperature = 0.0 positive"),
        ("sinkhorn:temperature=nan", True, "temperature = nan positive"),
        ("sinkhorn:cut=2", True, "0 in a causal model"),
        ("sinkhorn:cut=-1", False, "must be 0 or more"),
    ],
)
def test_wrong_options_are_refused_in_one_line(text, causal, message):
    with pytest.raises(InputError, match=message):
        build_mixer(text, replace(CONFIG, causal=causal))
