"""The recurrent encoder–decoder: its bottleneck, its attention, and the deep models."""

import pytest
import torch

from ensue.core.errors import InputError
from ensue.models.seq2seq import CELLS, Seq2Seq, Seq2SeqConfig
from ensue.nn.recurrent import Recurrent
from ensue.nn.scores import SCORES
from ensue.nn.stacks import Backward, Bidirectional, FastForward, Residual

V, D = 11, 8
SMALL = {"vocabulary": V, "source_vocabulary": V, "hidden": D, "context": 16}


def small(**settings):
    return Seq2Seq(Seq2SeqConfig(**{**SMALL, **settings})).eval()


def size(model):
    return sum(weight.numel() for weight in model.parameters())


@pytest.fixture
def pair():
    return torch.randint(V, (3, 5)), torch.randint(V, (3, 4))


def test_the_bottleneck_is_one_vector(pair):
    """Without attention all that is known of the source is the encoder's last memory."""
    model = small(attention="none", encoder="forward")
    state = model.start(pair[0])
    assert state.source is None and state.attended is None
    assert [tuple(part.shape) for part in state.stack.layers[0].memory] == [(3, D), (3, D)]
    h, after = model.encoder.stack.layers[0](model.embed_source(pair[0]))
    assert torch.equal(state.stack.layers[0].memory[0], h[:, -1])
    assert torch.equal(state.stack.layers[0].memory[1], after.memory[1])


def test_the_decoder_starts_with_both_directions_concatenated(pair):
    model = small(attention="none")
    layer = model.encoder.stack.layers[0]
    right, left = layer.onward(model.embed_source(pair[0]))[0], layer.backward(model.embed_source(pair[0]))[0]
    expected = torch.cat([right[:, -1], left[:, 0]], dim=-1)
    torch.testing.assert_close(model.start(pair[0]).stack.layers[0].memory[0], expected)


@pytest.mark.parametrize("attention", SCORES)
@pytest.mark.parametrize("feeding", ["none", "input"])
def test_one_step_equals_the_equations(attention, feeding, pair):
    """s_t = decoder(y_t), α = softmax(score), a = Σ α h, s̃ = tanh(W_c [a; s]), softmax(U s̃ + b)."""
    source, tokens = pair
    model = small(attention=attention, feeding=feeding)
    with torch.no_grad():
        h, memory = model.encoder(model.embed_source(source), None)
        seen = torch.zeros(3, D)
        layer, expected, looked = model.decoder.layers[0], [], []
        state = memory.layers[0]
        for t in range(tokens.shape[1]):
            e = model.embed(tokens[:, t : t + 1])
            e = torch.cat([e, seen[:, None]], dim=-1) if feeding == "input" else e
            s, state = layer(e, state)
            score = model.attend.score
            alpha = score(s, score.remember(h)).softmax(-1)
            seen = torch.tanh(model.attend.join(torch.cat([alpha @ h, s], dim=-1)))[:, 0]
            expected.append(model.head(seen))
            looked.append(alpha[:, 0])
        found = model(tokens, model.start(source), want=("logits", "attention"))
    torch.testing.assert_close(found.logits, torch.stack(expected, dim=1), atol=1e-6, rtol=0)
    torch.testing.assert_close(found.attention[0], torch.stack(looked, dim=1)[:, None], atol=1e-6, rtol=0)


@pytest.mark.parametrize("feeding", ["none", "input"])
def test_returning_attention_changes_no_output(feeding, pair):
    source, tokens = pair
    model, lengths = small(feeding=feeding, layers=2), torch.tensor([5, 2, 1])
    plain = model(tokens, model.start(source, lengths))
    looked = model(tokens, model.start(source, lengths), want=("logits", "attention"))
    assert plain.attention is None and torch.equal(plain.logits, looked.logits)
    (weights,) = looked.attention
    assert weights.shape == (3, 1, 4, 5)
    torch.testing.assert_close(weights.sum(-1), torch.ones(3, 1, 4))
    assert (weights[1, :, :, 2:] == 0).all() and (weights[2, :, :, 1:] == 0).all()


def test_without_attention_none_is_returned(pair):
    model = small(attention="none")
    assert model(pair[1], model.start(pair[0]), want=("logits", "attention")).attention is None


@pytest.mark.parametrize("feeding", ["none", "input"])
@pytest.mark.parametrize("tokens", [(3, 0), (0, 4)], ids=["no tokens", "no rows"])
def test_empty_input_is_no_error(feeding, tokens, pair):
    model = small(feeding=feeding)
    state = model.start(pair[0]).rows(torch.arange(tokens[0]))
    output = model(torch.zeros(tokens, dtype=torch.long), state, want=("logits", "attention"))
    assert output.logits.shape == (*tokens, V) and output.attention[0].shape == (tokens[0], 1, tokens[1], 5)


@pytest.mark.parametrize("attention", [*SCORES, "none"])
def test_an_empty_source_gives_numbers_and_gradients(attention, pair):
    source, tokens = pair
    model = small(attention=attention)
    logits = model(tokens, model.start(source, torch.tensor([5, 0, 2]))).logits
    alone = model(tokens[1:2], model.start(source[1:2, :0])).logits
    torch.testing.assert_close(logits[1:2], alone, atol=1e-5, rtol=0)
    logits.square().sum().backward()
    assert all(weight.grad.isfinite().all() for weight in model.parameters() if weight.grad is not None)


def test_location_attention_refuses_a_source_longer_than_its_positions(pair):
    model = small(attention="location", context=4)
    with pytest.raises(InputError, match="has 4 positions; this source has 5"):
        model(pair[1], model.start(pair[0]))


def test_gnmt_and_deep_att_are_built_as_described():
    """Presets at a small width: which layers read which way, and how they join."""
    gnmt, deep = (
        small(**{n: v for n, v in Seq2Seq.presets[name].items() if n in ("layers", "encoder", "connect", "feeding")})
        for name in ("gnmt", "deep-att")
    )
    kinds = [type(layer) for layer in gnmt.encoder.stack.layers]
    assert kinds == [Bidirectional] + 7 * [Recurrent] and len(gnmt.decoder.layers) == 8
    assert all(isinstance(join, Residual) for join in gnmt.encoder.stack.connections)
    assert [type(layer) for layer in deep.encoder.stack.layers] == 4 * [Recurrent, Backward]
    assert all(isinstance(join, FastForward) for join in deep.encoder.stack.connections)


def test_there_are_no_unused_weights():
    """Without attention the encoder's outputs are not read, so nothing is made of them."""
    dense = small(attention="none", connect="dense", layers=2)
    assert isinstance(dense.encoder.down, torch.nn.Identity)
    assert not list(
        small(attention="none", connect="fast-forward", layers=2).encoder.stack.connections[-1].parameters()
    )


def test_the_number_of_parameters_is_that_of_the_equations():
    model = small(cell="lstm", attention="additive", tied="target")
    half, lstm = D // 2, lambda i, o: 4 * o * (i + o + 1)
    encoder, decoder = 2 * lstm(D, half), lstm(D, D)
    attention = 2 * D * D + D + D + 2 * D * D + D  # W_a and its bias, v_a, W_c and its bias
    assert size(model) == 2 * V * D + V + encoder + decoder + attention


def test_tied_weights_are_shared():
    tied, free = small(), small(tied="none")
    assert tied.head.weight is tied.embed.weight and free.head.weight is not free.embed.weight
    assert size(free) - size(tied) == V * D
    narrow = small(embedding=6)
    assert narrow.head.weight is narrow.embed.weight and narrow.head.weight.shape == (V, 6)


@pytest.mark.parametrize("cell", CELLS)
def test_truncated_backpropagation_cuts_the_recurrence_not_the_source(cell, pair):
    source, tokens = pair
    model = small(cell=cell, feeding="input")
    after = model(tokens, model.start(source)).state.detach()
    model(tokens, after).logits.sum().backward()
    assert model.embed_source.weight.grad is not None and model.embed_source.weight.grad.abs().sum() > 0


@pytest.mark.parametrize(
    ("setting", "value", "says"),
    [
        ("attention", "cosine", "attention"),
        ("encoder", "sideways", "encoder"),
        ("cell", "qrnn", "cell"),
        ("connect", "skip", "connect"),
        ("hidden", 7, "an even number"),
        ("tied", "all", "tied"),
        ("embedding", -1, "embedding"),
    ],
)
def test_invalid_settings_are_refused(setting, value, says):
    with pytest.raises(InputError, match=says):
        Seq2SeqConfig(**{**SMALL, setting: value})


def test_input_feeding_without_attention_is_refused():
    with pytest.raises(InputError, match="none without attention"):
        Seq2SeqConfig(**SMALL, attention="none", feeding="input")
