"""The two convolutional encoder–decoders: laws, sources, contexts and training."""

import math

import pytest
import torch
from torch.nn import functional as F

from ensue.core.errors import InputError
from ensue.models.bytenet import ByteNet, ByteNetConfig
from ensue.models.conditional import FixedSourceModel
from ensue.models.convs2s import ConvS2S, ConvS2SConfig, EncoderBlock
from ensue.models.laws import findings
from ensue.train.objectives import TranslationLoss

VARIANTS = [
    pytest.param(ConvS2S, {"layers": 2, "hidden": 8}, id="convs2s"),
    pytest.param(ConvS2S, {"layers": 1, "hidden": 8, "embedding": 6, "width": 4, "tied": "none"}, id="convs2s-narrow"),
    pytest.param(ConvS2S, {"layers": 2, "hidden": 8, "width": 1, "context": 2}, id="convs2s-pointwise"),
    pytest.param(ByteNet, {"layers": 2, "sets": 2, "hidden": 8}, id="bytenet"),
    pytest.param(ByteNet, {"layers": 3, "hidden": 8, "width": 2, "unfold": 1.0, "tied": "none"}, id="bytenet-even"),
]
each_variant = pytest.mark.parametrize(("kind", "values"), VARIANTS)
each_model = pytest.mark.parametrize(("kind", "values"), [VARIANTS[0], VARIANTS[3]])

SOURCE = torch.tensor([[3, 1, 4, 1, 5, 9], [2, 7, 1, 8, 0, 0], [6, 0, 0, 0, 0, 0]])
LENGTHS = torch.tensor([6, 4, 1])


def build(kind, values, **more):
    return kind(kind.Config(vocabulary=11, source_vocabulary=10, **values, **more)).eval()


@each_variant
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=["32", "64"])
def test_the_laws_hold(kind, values, dtype):
    for found in findings(FixedSourceModel(build(kind, values).to(dtype), SOURCE[0])):
        assert found.kept, found


@each_variant
@torch.no_grad()
def test_padding_does_not_change_the_encoding_of_a_source(kind, values):
    model, tokens = build(kind, values), torch.randint(11, (3, 9))
    together = model(tokens, model.start(SOURCE, LENGTHS)).logits
    junk = torch.where(torch.arange(6) < LENGTHS[:, None], SOURCE, 9)
    torch.testing.assert_close(model(tokens, model.start(junk, LENGTHS)).logits, together)
    for row, length in enumerate(LENGTHS.tolist()):
        alone = model(tokens[row : row + 1], model.start(SOURCE[row : row + 1, :length])).logits
        torch.testing.assert_close(together[row : row + 1], alone, atol=1e-5, rtol=0)


@each_model
@torch.no_grad()
@pytest.mark.parametrize("picks", [[0, 0, 1, 1, 2, 2], [2, 0, 0, 1], [1, 1], [2, 1, 2]], ids=str)
def test_selected_rows_keep_their_own_sentence(kind, values, picks):
    model, first, then = build(kind, values), torch.randint(11, (3, 3)), torch.randint(11, (len(picks), 4))
    index = torch.tensor(picks)
    state = model(first, model.start(SOURCE, LENGTHS)).state.rows(index)
    again = torch.arange(len(picks)).flip(0)  # picked once more, in the middle
    state = model(then[:, :2], state).state.rows(again)
    found = model(then[again, 2:], state).logits[again]
    expected = model(torch.cat([first[index], then], dim=1), model.start(SOURCE[index], LENGTHS[index])).logits
    torch.testing.assert_close(found, expected[:, 5:], atol=1e-5, rtol=0)


@each_model
@torch.no_grad()
def test_rows_of_different_lengths_continue_at_their_own_ends(kind, values):
    model, tokens = build(kind, values), torch.randint(11, (3, 5))
    real = torch.tensor([5, 2, 0])
    state = model(tokens, model.start(SOURCE, LENGTHS), real).state
    after = model(tokens, state).logits
    for row, length in enumerate(real.tolist()):
        text = torch.cat([tokens[row, :length], tokens[row]])[None]
        alone = model(text, model.start(SOURCE[row : row + 1, : LENGTHS[row]])).logits[:, length:]
        torch.testing.assert_close(after[row : row + 1], alone, atol=1e-5, rtol=0)


@each_variant
@torch.no_grad()
def test_log_prob_equals_the_logits_log_softmax(kind, values):
    model, tokens = build(kind, values), torch.randint(11, (3, 5))
    real = torch.tensor([5, 3, 1])
    found, _ = model.log_prob(tokens, tokens.flip(1), model.start(SOURCE, LENGTHS), real)
    logits = model(tokens, model.start(SOURCE, LENGTHS), real).logits
    expected = logits.log_softmax(-1).gather(-1, tokens.flip(1)[..., None])[..., 0]
    expected = expected * (torch.arange(5) < real[:, None])
    torch.testing.assert_close(found, expected)


@each_model
def test_the_source_changes_outputs_and_gets_gradients(kind, values):
    model, tokens = build(kind, values), torch.randint(11, (1, 6))
    other = SOURCE[:1].clone()
    other[0, 2] = 7
    with torch.no_grad():
        difference = model(tokens, model.start(SOURCE[:1])).logits - model(tokens, model.start(other)).logits
    assert difference.abs().max() > 1e-4
    model(tokens, model.start(SOURCE[:1])).logits.square().sum().backward()
    assert all(p.grad is not None and p.grad.abs().sum() > 0 for p in model.parameters())


class Copies:
    """Eight sentences of different lengths, to be repeated; 0 begins."""

    def __init__(self):
        generator = torch.Generator().manual_seed(1)
        self.source = self.targets = torch.randint(1, 10, (8, 7), generator=generator)
        self.tokens = F.pad(self.source, (1, -1))
        self.source_lengths = self.lengths = torch.tensor([7, 6, 5, 7, 3, 7, 4, 7])


@pytest.mark.parametrize(("kind", "values"), [(ConvS2S, {"layers": 1}), (ByteNet, {"layers": 2})])
def test_one_batch_can_be_overfitted(kind, values):
    model, batch = build(kind, values, hidden=24, dropout=0.0).train(), Copies()
    optimiser = torch.optim.AdamW(model.parameters(), lr=1e-2, weight_decay=0)
    for _ in range(60):
        loss, _ = TranslationLoss()(model, batch, None)
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    assert loss.item() < 0.02


@each_variant
@torch.no_grad()
def test_weights_are_loaded_by_name(kind, values):
    model, other = build(kind, values), build(kind, values)
    assert {name.rpartition(".")[2] for name in model.state_dict()} == {"weight", "bias"}
    other.load_state_dict(model.state_dict())
    first, second = (m(SOURCE, m.start(SOURCE, LENGTHS)).logits for m in (model, other))
    assert torch.equal(first, second)


def seen(model, time=20):
    """Which of so many target tokens the last output depends on: by gradients."""
    caught = []

    def catch(module, inputs, output):
        caught.append(output.detach().requires_grad_())
        return caught[0]

    handle = model.embed.register_forward_hook(catch)
    tokens = torch.randint(11, (1, time))
    hidden = model(tokens, model.start(SOURCE[:1]), want=("hidden",)).hidden
    handle.remove()
    (gradient,) = torch.autograd.grad(hidden[0, -1].square().sum(), caught[0])
    return gradient[0].abs().amax(-1).nonzero()[:, 0].tolist()


@pytest.mark.parametrize(("layers", "sets", "width", "context"), [(3, 1, 3, 15), (2, 2, 3, 13), (4, 1, 2, 16)])
def test_bytenet_sees_as_far_as_its_dilations_reach(layers, sets, width, context):
    model = build(ByteNet, {"layers": layers, "sets": sets, "width": width, "hidden": 16})
    assert model.traits.context == context and seen(model) == list(range(20 - context, 20))


@pytest.mark.parametrize(("layers", "width", "context"), [(1, 3, 3), (3, 3, 7), (2, 5, 9)])
def test_convs2s_sees_as_far_as_its_layers_reach(layers, width, context):
    model = build(ConvS2S, {"layers": layers, "width": width, "hidden": 16})
    assert model.traits.context == context and seen(model) == list(range(20 - context, 20))


@torch.no_grad()
def test_bytenet_adds_column_t_of_the_source_to_target_t():
    model, tokens = build(ByteNet, {"layers": 2, "hidden": 8}), torch.randint(11, (1, 12))
    start = model.start(SOURCE[:1])
    assert start.source.lengths.tolist() == [8]  # ⌈1.2 · 6⌉
    before = model(tokens, start).logits
    for column in range(8):
        (x,) = start.source.parts
        changed = x.clone()
        changed[:, column] += torch.randn(8)
        source = type(start.source)((changed,), start.source.lengths, start.source.index)
        difference = (model(tokens, type(start)(start.blocks, start.clock, source)).logits - before)[0].abs().amax(-1)
        assert (difference[:column] == 0).all() and difference[column] > 0


@torch.no_grad()
def test_beyond_the_source_bytenet_reads_zeros():
    model, tokens = build(ByteNet, {"layers": 2, "hidden": 8}), torch.randint(11, (1, 17))
    left, right = (model(tokens, model.start(source)).logits[0] for source in (SOURCE[:1], SOURCE[1:2]))
    difference = (left - right).abs().amax(-1)
    last = 8 + model.traits.context - 1  # eight columns, and the places that look back to one of them
    assert (difference[:last] > 0).all() and (difference[last:] == 0).all()


@torch.no_grad()
def test_bytenet_has_no_attention_and_convs2s_has_weights_per_layer_that_sum_to_one():
    tokens = torch.randint(11, (3, 5))
    plain, attentive = build(ByteNet, {"hidden": 8}), build(ConvS2S, {"layers": 3, "hidden": 8})
    assert plain(tokens, plain.start(SOURCE, LENGTHS), want=("attention",)).attention is None
    output = attentive(tokens, attentive.start(SOURCE, LENGTHS), want=("logits", "attention"))
    assert len(output.attention) == 3
    for weights in output.attention:
        assert weights.shape == (3, 1, 5, 6)
        torch.testing.assert_close(weights.sum(-1), torch.ones(3, 1, 5))
        assert (weights[1, ..., 4:] == 0).all() and (weights[2, ..., 0] == 1).all()
    assert attentive(tokens, attentive.start(SOURCE, LENGTHS)).attention is None


def convolved(layer, h, before, after):
    """v(W ∗ h + b) with torch's convolution."""
    kernel = layer.weight.transpose(1, 2)
    y = F.conv1d(F.pad(h.transpose(1, 2), (before, after)), kernel, layer.bias)
    return F.glu(y, dim=1).transpose(1, 2)


@torch.no_grad()
def test_convs2s_computes_the_equations_of_its_docstring():
    model, tokens = build(ConvS2S, {"layers": 2, "hidden": 8, "embedding": 6}), torch.randint(11, (1, 5))
    for p in model.parameters():
        p.copy_(torch.randn_like(p) * 0.3)

    def embedded(table, text):
        angle = torch.arange(text.shape[1])[:, None] / 10000 ** (torch.tensor([0, 2, 4]) / 6)
        return 0.1 * (math.sqrt(6) * table(text) + torch.stack([angle.sin(), angle.cos()], -1).flatten(1))

    e, g, half = embedded(model.embed_source, SOURCE[:1]), embedded(model.embed, tokens), math.sqrt(0.5)
    h, s = model.into_encoder(e), model.into_decoder(g)
    for block in model.encoder:
        h = half * (convolved(block.convolution, h, 1, 1) + h)
    z = model.out_of_encoder(h)
    for block in model.decoder:
        s = half * (convolved(block.convolution, s, 2, 0) + s)
        alpha = ((block.query(s) + g) @ z.transpose(1, 2)).softmax(-1)
        s = half * (s + block.bring(6 * math.sqrt(1 / 6) * alpha @ (z + e)))
    output = model(tokens, model.start(SOURCE[:1]), want=("logits", "attention"))
    torch.testing.assert_close(output.logits, model.head(model.out_of_decoder(s)))
    torch.testing.assert_close(output.attention[-1][:, 0], alpha)


@torch.no_grad()
def test_initial_convs2s_preserves_the_scale_of_embeddings():
    model = ConvS2S(ConvS2SConfig(vocabulary=300, source_vocabulary=300, layers=6, hidden=128, dropout=0.0))
    model.positions.table.zero_()  # places share a mean, tokens do not
    source = torch.randint(300, (4, 30))
    state = model.start(source)
    z, _ = state.source.parts
    hidden = model(source, state, want=("hidden",)).hidden
    assert 0.08 < z.std() < 0.12 and 0.1 < hidden.std() < 0.2  # e begins at 0.1, and z + e at 0.14


def test_padding_does_not_change_an_encoder_block():
    block, h = EncoderBlock(6, 3, 0.0), torch.randn(2, 7, 6)
    y = block(h, torch.tensor([7, 3]))
    torch.testing.assert_close(y[1:, :3], math.sqrt(0.5) * (convolved(block.convolution, h[1:, :3], 1, 1) + h[1:, :3]))


@pytest.mark.parametrize(
    ("kind", "wrong"),
    [
        (ConvS2SConfig, {"width": 0}),
        (ConvS2SConfig, {"embedding": -1}),
        (ConvS2SConfig, {"tied": "all"}),
        (ByteNetConfig, {"hidden": 7}),
        (ByteNetConfig, {"sets": 0}),
        (ByteNetConfig, {"unfold": 0.5}),
    ],
)
def test_an_error_names_the_wrong_setting(kind, wrong):
    with pytest.raises(InputError, match=next(iter(wrong))):
        kind(**wrong)
