"""The worked examples of the lectures, as numbers."""

import math
from functools import partial

import pytest
import torch
from torch import nn

from ensue.core.settings import describe
from ensue.data.labelled_rows import RowBatch
from ensue.data.tokenizers.special_tokens import SpecialTokens, add_special_tokens
from ensue.kernels.attention import attention, attention_weights
from ensue.measure.language import log_probs, perplexity
from ensue.models.bert import SIZES
from ensue.models.bidirectional import BidirectionalLanguageModel
from ensue.models.encoder import Encoder, EncoderConfig
from ensue.models.gpt import GPTConfig, GPTLanguageModel
from ensue.models.labelled import HeadConfig, Labelled
from ensue.models.recurrent import (
    GRULanguageModel,
    LSTMConfig,
    LSTMLanguageModel,
    RecurrentConfig,
    RNNConfig,
    RNNLanguageModel,
)
from ensue.models.window import WindowConfig, WindowLanguageModel
from ensue.nn.blocks import PostNormBlock
from ensue.nn.feed_forward import FeedForward
from ensue.nn.mixers.full import SelfAttention
from ensue.nn.mixers.mixer import Mixer, MixerConfig
from ensue.nn.positions import sinusoids
from ensue.nn.recurrent import ChoGRUCell, GRUCell, LSTMCell, Recurrent, TanhCell
from ensue.nn.stacks import Bidirectional, Stack
from ensue.search.sampling import Sampling, sample
from ensue.train.label_objectives import LabelLoss
from ensue.train.optimisers import clipped_step, gradient_norm


def test_r1_one_hot_vectors_are_orthogonal_and_select_a_row():
    one_hot = torch.eye(5)
    assert one_hot[1] @ one_hot[2] == 0  # motel · hotel
    table = nn.Embedding(5, 3)
    torch.testing.assert_close(one_hot[3] @ table.weight, table(torch.tensor(3)))


def test_r13_softmax_maps_to_the_simplex_and_amplifies_the_largest():
    x = torch.tensor([1.0, 2.0, 4.0])
    p = x.softmax(0)
    assert math.isclose(p.sum(), 1, rel_tol=1e-6) and (p > 0).all() and p[2] > 4 / 7


def test_r20_a_window_gives_the_likelihood_of_a_kth_order_model():
    model = WindowLanguageModel(WindowConfig(vocabulary=7, context=2)).eval()
    tokens = torch.randint(7, (1, 9))
    with torch.no_grad():
        whole = model.log_prob(tokens[:, :-1], tokens[:, 1:])[0]
        # the last place depends on the last two tokens only
        short = model.log_prob(tokens[:, 6:8], tokens[:, 7:9])[0]
    assert torch.isclose(whole[0, -1], short[0, -1])


def test_r21_a_wider_window_has_more_weights_and_places_have_their_own():
    size = {n: WindowLanguageModel(WindowConfig(vocabulary=9, context=n)).hidden.weight.numel() for n in (2, 4)}
    assert size[4] == 2 * size[2]
    model = WindowLanguageModel(WindowConfig(vocabulary=9, context=2)).eval()
    assert not torch.allclose(model(torch.tensor([[1, 2]])).logits[0, -1], model(torch.tensor([[2, 1]])).logits[0, -1])


def test_r21_the_window_is_the_equation():
    model = WindowLanguageModel(WindowConfig(vocabulary=9, context=3, embedding=4, hidden=6)).eval()
    tokens = torch.tensor([[5, 1, 7]])
    e = model.embed(tokens).flatten()
    expected = model.head(torch.tanh(model.hidden(e)))
    torch.testing.assert_close(model(tokens).logits[0, -1], expected)


def test_r23_the_model_is_as_large_for_a_long_text_as_for_a_short_one():
    model = RNNLanguageModel(RNNConfig(vocabulary=9, hidden=8, activation="sigmoid")).eval()
    h = torch.zeros(8)
    cell = model.stack.layers[0].cell
    for token in (3, 1, 4):
        e = model.embed(torch.tensor(token))
        h = torch.sigmoid(cell.weight_h @ h + cell.weight_x @ e + cell.bias)
        expected = model.head(h)
    torch.testing.assert_close(model(torch.tensor([[3, 1, 4]])).logits[0, -1], expected)


def test_r24_three_words_are_a_network_of_three_layers_with_shared_weights():
    cell = TanhCell(4, 4)
    x = torch.randn(1, 3, 4)
    h = torch.zeros(1, 4)
    for t in range(3):
        (h,) = cell.step(nn.functional.linear(x[:, t], cell.weight_x, cell.bias), (h,))
    torch.testing.assert_close(Recurrent(cell)(x)[0][:, -1], h)


def test_r25_hello_is_learnt_although_l_has_two_successors():
    letters = {letter: number for number, letter in enumerate("helo")}
    tokens = torch.tensor([[letters[c] for c in "hello"]])
    model = RNNLanguageModel(RNNConfig(vocabulary=4, hidden=8))
    optimiser = torch.optim.AdamW(model.parameters(), lr=0.03)
    for _ in range(200):
        loss = -model.log_prob(tokens[:, :-1], tokens[:, 1:])[0].mean()
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    (drawn,) = sample(model, tokens[0, :1], Sampling(tokens=4, temperature=0))
    assert "".join("helo"[t] for t in drawn.tokens) == "ello"


def test_r26_the_mean_loss_is_the_summed_loss_over_t():
    model = RNNLanguageModel(RNNConfig(vocabulary=6, hidden=4)).eval()
    tokens = torch.randint(6, (1, 9))
    losses = -model.log_prob(tokens[:, :-1], tokens[:, 1:])[0]
    by_hand = nn.functional.cross_entropy(model(tokens[:, :-1]).logits[0], tokens[0, 1:], reduction="sum")
    assert torch.isclose(losses.sum(), by_hand) and torch.isclose(losses.mean() * 8, by_hand)


def test_r27_perplexity_is_the_geometric_mean_of_one_over_p():
    p = [0.5, 0.25, 0.125, 0.9]
    product = math.prod(1 / x for x in p) ** (1 / 4)
    assert abs(perplexity([math.log(x) for x in p]) - product) < 1e-12
    for size in (2, 7, 10_000):
        assert abs(perplexity([math.log(1 / size)] * 50) / size - 1) < 1e-12


def test_r30_the_two_directional_model_sees_all_words_but_the_one_it_predicts():
    model = BidirectionalLanguageModel(RecurrentConfig(vocabulary=9, hidden=6)).eval()
    tokens = torch.randint(9, (1, 5))
    with torch.no_grad():
        before = model(tokens).logits[0, 2]
        for place in range(5):
            other = tokens.clone()
            other[0, place] = (other[0, place] + 1) % 9
            same = torch.equal(model(other).logits[0, 2], before)
            assert same == (place == 2)


def test_r35_truncated_backpropagation_cuts_the_gradient_and_keeps_the_value():
    model = LSTMLanguageModel(LSTMConfig(vocabulary=7, hidden=5))
    tokens = torch.randint(7, (1, 8))
    embedded = []
    model.embed.register_forward_hook(lambda m, i, o: embedded.append(o) or o.retain_grad())
    _, state = model.log_prob(tokens[:, :4], tokens[:, 1:5])
    cut = state.detach()
    for (_, left), (_, right) in zip(state.tensors(), cut.tensors()):
        assert torch.equal(left, right) and not right.requires_grad
    model(tokens[:, 4:], cut).logits.sum().backward()
    assert embedded[0].grad is None and embedded[1].grad.abs().max() > 0
    embedded.clear()
    _, state = model.log_prob(tokens[:, :4], tokens[:, 1:5])
    model(tokens[:, 4:], state).logits.sum().backward()
    assert embedded[0].grad.abs().max() > 0  # uncut, it flows


def moved(build, norm, threshold):
    """How far parameters move in one update by gradients [3, 0] and [[4]], scaled to a norm."""
    held = [torch.nn.Parameter(torch.zeros(2)), torch.nn.Parameter(torch.zeros(1, 1))]
    for one, grad in zip(held, ([3.0, 0.0], [[4.0]])):
        one.grad = torch.tensor(grad) * norm / 5
    gradients = [one.grad for one in held]
    assert gradient_norm(gradients) == pytest.approx(norm)
    clipped_step(build(held), gradients, norm, threshold)
    return torch.cat([one.detach().flatten() for one in held])


def test_r38_clipping_scales_the_norm_and_keeps_the_direction():
    way = partial(moved, lambda held: torch.optim.SGD(held, lr=1.0))
    g = torch.tensor([3.0, 0.0, 4.0])
    torch.testing.assert_close(way(5.0, 1.0), -g / 5)
    torch.testing.assert_close(way(1.0, 2.0), -g / 5)  # below the threshold nothing changes
    torch.testing.assert_close(way(5.0, 0.0), -g)  # 0 switches it off


def test_r38_a_fused_optimiser_clips_as_it_goes():
    way = partial(moved, lambda held: torch.optim.AdamW(held, lr=1.0, eps=1.0, fused=True))
    torch.testing.assert_close(way(5.0, 1.0), way(1.0, 0.0))
    assert not torch.allclose(way(5.0, 0.0), way(1.0, 0.0))


def test_r41_an_identity_path_keeps_the_gradient():
    norms = {}
    for connect in ("plain", "residual", "dense"):
        torch.manual_seed(0)
        stack = Stack(lambda width: Recurrent(TanhCell(width, 6)), 6, 20, connect)
        x = torch.randn(1, 1, 6, requires_grad=True)
        stack(x)[0].sum().backward()
        norms[connect] = x.grad.norm().item()
    assert norms["residual"] > 100 * norms["plain"] and norms["dense"] > 100 * norms["plain"]


def test_r45_a_closed_reset_gate_ignores_the_past_and_an_open_update_gate_copies_it():
    for cell, keep in ((GRUCell(3, 4), 50.0), (ChoGRUCell(3, 4), -50.0)):
        with torch.no_grad():
            cell.bias[:4] = -50.0  # r ≈ 0
            cell.bias[4:8] = -keep  # replace
        x = torch.randn(1, 1, 3)
        a = nn.functional.linear(x[:, 0], cell.weight_x, cell.bias)
        first, second = cell.step(a, (torch.zeros(1, 4),))[0], cell.step(a, (torch.randn(1, 4),))[0]
        torch.testing.assert_close(first, second)
        with torch.no_grad():
            cell.bias[4:8] = keep  # copy
        h = torch.randn(1, 4)
        jacobian = torch.autograd.functional.jacobian(partial(_run, cell, torch.randn(1, 30, 3)), h)
        torch.testing.assert_close(jacobian[0, :, 0], torch.eye(4), atol=1e-5, rtol=0)


def _run(cell, x, h):
    for a in nn.functional.linear(x, cell.weight_x, cell.bias).unbind(1):
        (h,) = cell.step(a, (h,))
    return h


def test_r46_the_gradient_from_cell_to_cell_is_the_forget_gate():
    cell = LSTMCell(3, 4)
    a = torch.randn(1, 16)
    h = torch.zeros(1, 4)
    jacobian = torch.autograd.functional.jacobian(lambda c: cell.step(a, (h, c))[1], torch.randn(1, 4))
    torch.testing.assert_close(jacobian[0, :, 0], torch.diag(torch.sigmoid(a[0, 4:8])))


def test_r47_lstm_and_gru_have_weights_in_the_ratio_4_to_3():
    lstm, gru = (sum(p.numel() for p in cell.parameters()) for cell in (LSTMCell(10, 20), GRUCell(10, 20)))
    assert lstm * 3 == gru * 4
    assert GRULanguageModel.Config is RecurrentConfig


def test_r48_an_lstm_takes_any_length_and_its_state_never_grows():
    model = LSTMLanguageModel(LSTMConfig(vocabulary=5, hidden=6)).eval()
    sizes = {sum(t.numel() for _, t in model(torch.randint(5, (1, n))).state.tensors()) for n in (1, 7, 50)}
    assert sizes == {12}


def test_r50_a_bidirectional_layer_is_two_layers_side_by_side():
    layer = Bidirectional(Recurrent(LSTMCell(3, 4)), Recurrent(LSTMCell(3, 4)))
    x = torch.randn(1, 5, 3)  # the movie was terribly exciting
    y, _ = layer(x)
    assert y.shape == (1, 5, 8)
    later = x.clone()
    later[0, 4] += 1  # "exciting" changes what is known at "terribly"
    assert not torch.allclose(layer(later)[0][0, 3], y[0, 3])
    torch.testing.assert_close(layer(later)[0][0, 3, :4], y[0, 3, :4])


def test_r51_layer_i_feeds_layer_i_plus_1():
    stack = Stack(lambda width: Recurrent(GRUCell(width, 4)), 3, 2)
    x = torch.randn(2, 5, 3)
    first, _ = stack.layers[0](x)
    torch.testing.assert_close(stack(x)[0], stack.layers[1](first)[0])


def test_r84_attention_of_one_query_is_a_weighted_mean():
    q, k, v = torch.randn(1, 1, 1, 4), torch.randn(1, 1, 3, 4), torch.randn(1, 1, 3, 5)
    weights = torch.softmax(torch.stack([q[0, 0, 0] @ k[0, 0, i] / 2 for i in range(3)]), 0)
    torch.testing.assert_close(attention(q, k, v)[0, 0, 0], sum(w * v[0, 0, i] for i, w in enumerate(weights)))


def test_r85_scaling_by_the_root_of_64_gives_088_and_012():
    q = torch.zeros(1, 1, 1, 64, dtype=torch.double)
    k = torch.zeros(1, 1, 2, 64, dtype=torch.double)
    q[..., 0], k[0, 0, 0, 0], k[0, 0, 1, 0] = 1, 112, 96
    weights = attention_weights(q, k)[0, 0, 0]
    assert weights.tolist() == pytest.approx([0.8808, 0.1192], abs=5e-5)
    unscaled = torch.tensor([112.0, 96.0], dtype=torch.double).softmax(0)
    assert unscaled[1].item() == pytest.approx(1.1e-7, rel=0.05)


def test_r85_the_variance_of_a_dot_product_is_its_width():
    for width in (16, 64):
        x = (torch.randn(20000, width) * torch.randn(20000, width)).sum(-1)
        assert x.var().item() == pytest.approx(width, rel=0.06)


def test_r87_without_positions_attention_permutes_with_its_input():
    block = PostNormBlock(_Everywhere(8, 2), FeedForward(8, 16), lambda: nn.LayerNorm(8)).eval()
    x = torch.randn(1, 4, 8)
    order = torch.tensor([2, 0, 3, 1])
    with torch.no_grad():
        torch.testing.assert_close(block(x)[0][:, order], block(x[:, order])[0], atol=1e-5, rtol=1e-5)


class _Everywhere(Mixer):
    """Self-attention without a mask and without positions."""

    def __init__(self, width, heads):
        super().__init__()
        self.inner = nn.MultiheadAttention(width, heads, batch_first=True)

    def forward(self, x, state=None, layout=None, weights=False):
        return self.inner(x, x, x, need_weights=False)[0], None, None


def _hops(run, time):
    """The shortest way of the gradient from the last output back to the first input, in operations."""
    leaves = [torch.randn(1, 8, requires_grad=True) for _ in range(time)]
    level, hops, seen = {run(leaves).sum().grad_fn}, 0, set()
    while not any(getattr(node, "variable", None) is leaves[0] for node in level):
        seen |= level
        level = {after for node in level for after, _ in node.next_functions if after is not None} - seen
        hops += 1
    return hops


def test_r88_attention_reaches_any_word_in_a_constant_number_of_steps_and_recurrence_does_not():
    attend, cell = SelfAttention(MixerConfig(width=8, heads=2)), TanhCell(8, 8)

    def recur(leaves):
        memory = cell.start(1)
        for x in leaves:
            memory = cell.step(nn.functional.linear(x, cell.weight_x, cell.bias), memory)
        return memory[0]

    far = [_hops(lambda leaves: attend(torch.stack(leaves, dim=1))[0][:, -1], time) for time in (4, 32)]
    assert far[0] == far[1]
    assert _hops(recur, 32) - _hops(recur, 16) == 2 * (_hops(recur, 16) - _hops(recur, 8)) > 0


def test_r90_positions_shift_by_a_rotation():
    table = sinusoids(torch.arange(60), 10)
    assert table.shape == (60, 10)
    assert table[3, 4].item() == pytest.approx(math.sin(3 / 10000 ** (4 / 10)))
    assert table[3, 5].item() == pytest.approx(math.cos(3 / 10000 ** (4 / 10)))
    shift = torch.linalg.lstsq(table[:40], table[7:47]).solution  # one matrix moves every position by 7
    torch.testing.assert_close(table[:53] @ shift, table[7:60], atol=1e-6, rtol=0)


def test_r91_sinusoids_count_like_bits_fast_and_slow():
    table = sinusoids(torch.arange(16), 8)
    flips = [int((table[1:, i].sign() != table[:-1, i].sign()).sum()) for i in (1, 3, 5, 7)]
    assert flips == sorted(flips, reverse=True) and flips[0] > flips[-1]


def test_r94_layer_norm_is_over_the_features_of_one_token():
    norm = nn.LayerNorm(8)
    x = torch.randn(2, 3, 8)
    one = norm(x[1:, 2:])
    torch.testing.assert_close(norm(x)[1:, 2:], one)  # no other token has a say
    assert one.mean().abs() < 1e-6


def test_r97_a_later_token_never_changes_an_earlier_output():
    model = GPTLanguageModel(GPTConfig(vocabulary=9, layers=2, heads=2, hidden=8)).eval()
    tokens = torch.randint(9, (1, 8))
    other = tokens.clone()
    other[0, 5] = (other[0, 5] + 1) % 9
    with torch.no_grad():
        left, right = model(tokens).logits, model(other).logits
    assert torch.equal(left[:, :5], right[:, :5]) and not torch.allclose(left[:, 5:], right[:, 5:])


def test_r98_one_pass_and_token_by_token_give_the_same_likelihood():
    model = GPTLanguageModel(GPTConfig(vocabulary=9, layers=2, heads=2, hidden=8)).double().eval()
    tokens = torch.randint(9, (1, 12))
    with torch.no_grad():
        whole = model.log_prob(tokens[:, :-1], tokens[:, 1:])[0].sum()
        state, total = model.start(1), 0.0
        for t in range(11):
            part, state = model.log_prob(tokens[:, t : t + 1], tokens[:, t + 1 : t + 2], state)
            total += part.sum()
    assert abs(whole - total) < 1e-10


def test_r113_gpt_is_the_three_equations():
    model = GPTLanguageModel(
        GPTConfig(vocabulary=9, layers=2, heads=2, hidden=8, positions="learned", norm="post")
    ).eval()
    tokens = torch.tensor([[3, 1, 4]])
    h = model.embed(tokens) + model.positions.weight[:3]
    for block in model.blocks:
        h = block(h)[0]
    torch.testing.assert_close(model(tokens).logits, h @ model.embed.weight.T)


def test_r71_the_probability_of_a_sequence_is_a_product():
    model = LSTMLanguageModel(LSTMConfig(vocabulary=6, hidden=5)).eval()
    tokens = torch.randint(6, (7,))
    with torch.no_grad():
        p = 1.0
        for t in range(6):
            p *= model(tokens[None, : t + 1]).logits[0, -1].softmax(-1)[tokens[t + 1]].item()
    assert math.exp(log_probs(model, tokens.numpy()).sum()) == pytest.approx(p, rel=1e-5)


def test_every_setting_of_every_model_explains_itself():
    for config in (WindowConfig, RNNConfig, LSTMConfig, GPTConfig):
        assert all(len(field.meaning) > 10 for field in describe(config))


def test_r114_a_language_model_labels_by_its_last_token_and_keeps_its_own_loss():
    body = GPTLanguageModel(GPTConfig(vocabulary=9, layers=2, heads=2, hidden=8, context=8, positions="learned")).eval()
    model = Labelled(body, HeadConfig(outputs=3)).eval()
    x, y, lengths = torch.tensor([[1, 2, 3, 4], [5, 6, 0, 0]]), torch.tensor([2, 0]), torch.tensor([4, 2])
    h = body(x, None, lengths, want=("hidden",)).hidden
    last = torch.stack([h[0, 3], h[1, 1]])  # h_L^m of each row's last token
    p = (last @ model.out.weight.T + model.out.bias).softmax(-1)  # p(y | x) = softmax(h_L W_y)
    supervised = -p[[0, 1], y].log().mean()
    steps = body(x, None, lengths).logits.log_softmax(-1)
    language = -(steps[0, [0, 1, 2], [2, 3, 4]].sum() + steps[1, 0, 6]) / 4
    batch = RowBatch(tokens=x, segments=torch.zeros_like(x), lengths=lengths, targets=y, examples=torch.arange(2))
    loss, _ = LabelLoss(language=0.5)(model, batch, None)
    assert loss.item() == pytest.approx((supervised + 0.5 * language).item(), abs=1e-6)


def test_r131_a_token_is_the_sum_of_what_it_is_of_which_text_and_where():
    marks = SpecialTokens(start=1, separator=2, end=2, double_separator=False, mask=3, pad=0)
    ids, segments = add_special_tokens(marks, [5, 6], [7])
    assert ids.tolist() == [1, 5, 6, 2, 7, 2] and segments.tolist() == [0, 0, 0, 0, 1, 1]  # [CLS] A [SEP] B [SEP]
    body = Encoder(EncoderConfig(vocabulary=9, layers=1, heads=1, hidden=4, context=8)).eval()
    tokens, kinds = (torch.from_numpy(part).long()[None] for part in (ids, segments))
    seen = body(tokens, kinds, layers=True).layers[0]
    total = body.embed.weight[tokens] + body.segments.weight[kinds] + body.positions.weight[:6]
    torch.testing.assert_close(seen, body.norm(total))


@pytest.mark.parametrize(("size", "parameters"), [("base", 109_482_240), ("large", 335_141_888)])
def test_r132_base_and_large_have_the_papers_sizes(size, parameters):
    with torch.device("meta"):
        body = Encoder(EncoderConfig(vocabulary=30_522, **SIZES[size]))
    assert sum(p.numel() for p in body.parameters()) == parameters


def test_r133_every_token_has_a_vector_and_the_whole_has_one():
    body = Encoder(EncoderConfig(vocabulary=9, layers=2, heads=2, hidden=8, context=8)).eval()
    T = body(torch.tensor([[1, 5, 6, 2]])).hidden
    C = body.pool(T[:, 0])
    assert T.shape == (1, 4, 8) and C.shape == (1, 8)
    torch.testing.assert_close(C, torch.tanh(T[:, 0] @ body.pooler.weight.T + body.pooler.bias))
