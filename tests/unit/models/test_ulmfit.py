"""ULMFiT's model: dropout, layer depths, pooling, and truncated gradients."""

import pytest
import torch

from ensue.core.errors import InputError
from ensue.models.gpt import GPTConfig, GPTLanguageModel
from ensue.models.labelled import HeadConfig, Labelled, pool
from ensue.models.laws import labelled_laws
from ensue.models.layer_depths import parameter_depths
from ensue.models.recurrent import LSTMConfig, LSTMLanguageModel
from ensue.models.ulmfit import ULMFiT, ULMFiTConfig, WeightDropped
from ensue.models.window import WindowConfig, WindowLanguageModel
from ensue.nn.dropout import LockedDropout, WordDropout
from ensue.nn.recurrent import LSTMCell, Recurrent

V, T = 17, 12
LENGTHS = torch.tensor([12, 3, 7, 1])
TOKENS = torch.randint(V, (4, T), generator=torch.Generator().manual_seed(2))


def ulmfit(**values):
    torch.manual_seed(0)
    return ULMFiT(ULMFiTConfig(vocabulary=V, **{"hidden": 10, "embedding": 6, "layers": 3, **values}))


def labelled(body, **head):
    torch.manual_seed(1)
    given = {"outputs": 3, "pooling": "concat", "dense": "relu", "hidden": 5, "dropout": 0.0, **head}
    return Labelled(body, HeadConfig(**given))


# What falls out at random.


def test_one_mask_is_used_for_all_steps_of_a_row():
    x = torch.rand(3, 50, 40) + 1
    dropout = LockedDropout(0.5)
    y = dropout(x)
    assert torch.equal(y == 0, (y[:, :1] == 0).expand_as(y)) and 0.2 < (y == 0).float().mean() < 0.8
    assert not torch.equal(y[0, 0] == 0, y[1, 0] == 0)
    torch.testing.assert_close(y[y != 0], (2 * x)[y != 0])
    assert torch.equal(dropout.eval()(x), x)


def test_a_word_is_dropped_everywhere_or_nowhere():
    table, dropout = torch.nn.Embedding(200, 8), WordDropout(0.5)
    tokens = torch.randint(200, (20, 50))
    found = dropout.embed(table, tokens)
    gone = (found == 0).all(-1)
    assert 0.3 < gone.float().mean() < 0.7
    forgotten = {int(token) for token in tokens[gone]}
    assert not forgotten & {int(token) for token in tokens[~gone]}
    torch.testing.assert_close(found[~gone], 2 * table(tokens)[~gone])
    assert torch.equal(dropout.eval().embed(table, tokens), table(tokens))


def test_only_hidden_to_hidden_weights_are_dropped():
    layer = WeightDropped(Recurrent(LSTMCell(4, 6)), 0.5)
    x = torch.randn(2, 5, 4)
    whole, _ = layer.eval()(x)
    dropped, _ = layer.train()(x)
    torch.testing.assert_close(whole[:, 0], dropped[:, 0])  # the first state is zero, so the weights do not matter yet
    assert not torch.allclose(whole[:, 1:], dropped[:, 1:])
    before = layer.layer.cell.weight_h.detach().clone()
    dropped.sum().backward()
    gradient = layer.layer.cell.weight_h.grad
    assert torch.equal(before, layer.layer.cell.weight_h) and isinstance(layer.layer.cell.weight_h, torch.nn.Parameter)
    assert 0.3 < (gradient == 0).float().mean() < 0.7  # what fell out has no gradient
    assert set(layer.state_dict()) == {"layer.cell.weight_x", "layer.cell.weight_h", "layer.cell.bias"}


def test_one_weight_mask_is_used_for_all_steps_of_a_call():
    """With the equation step by step: one draw a call, whichever kernel runs."""
    fused, plain = (WeightDropped(Recurrent(LSTMCell(4, 6), kernel), 0.4) for kernel in ("fused", "reference"))
    plain.load_state_dict(fused.state_dict())
    x, found = torch.randn(2, 7, 4), []
    for layer in (fused, plain):
        torch.manual_seed(5)
        found.append(layer(x)[0])
    torch.testing.assert_close(*found)


def test_the_last_layer_has_the_embedding_size_and_the_output_layer_is_tied():
    model = ulmfit()
    assert [layer.output for layer in model.stack.layers] == [10, 10, 6]
    assert model.head.weight is model.embed.weight and isinstance(model.down, torch.nn.Identity)
    assert model.eval()(TOKENS, want=("hidden",)).hidden.shape == (4, T, 6)


@pytest.mark.parametrize("values", [{"connect": "dense"}, {"embedding": 0}, {"weight_dropout": 1.0}])
def test_invalid_settings_are_refused(values):
    with pytest.raises(InputError, match=next(iter(values))):
        ULMFiTConfig(**values)


# How deep layers lie.


def test_depths_of_a_body_and_of_a_language_model():
    model = ulmfit()
    body, writing = parameter_depths(model), parameter_depths(model, own_output=True)
    assert body["embed.weight"] == 0 and writing["embed.weight"] == 4  # tied: it is the output layer too
    for depths in (body, writing):
        assert [depths[f"stack.layers.{n}.layer.cell.weight_h"] for n in range(3)] == [1, 2, 3]
    head = labelled(model).depths()
    assert {head[name] for name in head if not name.startswith("body.")} == {4} and head["body.embed.weight"] == 0
    untied = LSTMLanguageModel(LSTMConfig(vocabulary=V, hidden=8, embedding=5, layers=2, connect="dense"))
    depths = parameter_depths(untied)
    assert depths["down.weight"] == 3 and depths["stack.layers.1.cell.bias"] == 2 and depths["embed.weight"] == 0
    apart = LSTMLanguageModel(LSTMConfig(vocabulary=V, hidden=8, tied=False))
    written = parameter_depths(apart, own_output=True)
    assert (written["embed.weight"], written["head.weight"]) == (0, 2)
    gpt = parameter_depths(GPTLanguageModel(GPTConfig(vocabulary=V, layers=2, heads=2, hidden=8, context=8)))
    assert gpt["norm.weight"] == 3 and {gpt[name] for name in gpt if name.startswith("blocks.1.")} == {2}
    with pytest.raises(InputError, match="no stacked layers"):
        parameter_depths(WindowLanguageModel(WindowConfig(vocabulary=V)))


# What stands for a text.


def test_concat_pooling_by_hand():
    hidden = torch.randn(4, T, 5)
    found = pool(hidden, LENGTHS, "concat")
    assert found.shape == (4, 15)
    for row, length in enumerate(LENGTHS.tolist()):
        real = hidden[row, :length]
        last = real[max(length - 2, 0)]  # before the end mark
        torch.testing.assert_close(found[row], torch.cat([last, real.amax(0), real.mean(0)]))
    junk = hidden.clone()
    junk[1, 3:] = 1e6
    torch.testing.assert_close(pool(junk, LENGTHS, "concat")[1], found[1])


@pytest.mark.parametrize("head", [{}, {"dense": "none", "hidden": 0}, {"hidden": 0}], ids=str)
def test_a_head_on_concat_pooling_by_hand(head):
    model = labelled(ulmfit(), **head).eval()
    x = pool(model.body(TOKENS, None, LENGTHS, want=("hidden",)).hidden, LENGTHS, "concat")
    if model.config.dense == "relu":
        assert model.dense.weight.shape == (model.config.hidden or 18, 18)
        x = torch.relu(model.dense(x))
    torch.testing.assert_close(model(TOKENS, None, LENGTHS).logits, model.out(x))


def test_neither_padding_nor_other_rows_change_the_output_of_a_row():
    model = labelled(ulmfit()).eval()
    for seed in range(3):
        for found in labelled_laws(model, seed):
            assert found.kept, found


# Gradients that end where a part begins.


def test_reading_in_chunks_changes_no_output_and_truncates_gradients():
    model = labelled(ulmfit(dropout=0.0, layer_dropout=0.0, input_dropout=0.0, word_dropout=0.0, weight_dropout=0.0))
    model.train()
    plain = model(TOKENS, None, LENGTHS).logits
    model.reach = 4
    torch.testing.assert_close(model(TOKENS, None, LENGTHS).logits, plain)
    seen = []
    model.body.embed.register_forward_hook(lambda module, given, output: seen.append(output))
    hidden = model(TOKENS[:1], None, None).hidden
    assert [part.shape[1] for part in seen] == [4, 4, 4]
    gradients = torch.autograd.grad(hidden[0, 6].sum(), seen, allow_unused=True)  # a state in the second part
    reached = [gradient is not None and bool(gradient.abs().sum() > 0) for gradient in gradients]
    assert reached == [False, True, False]
    model.reach, seen[:] = 0, []
    hidden = model(TOKENS[:1], None, None).hidden
    assert torch.autograd.grad(hidden[0, 6].sum(), seen)[0][0, 0].abs().sum() > 0  # else it reaches the first token
    model.reach = 4
    model.eval()
    seen.clear()
    model(TOKENS, None, LENGTHS)
    assert len(seen) == 1  # who only answers reads at once
