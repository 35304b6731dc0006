"""Adaptive embedding and softmax: against their full form, torch's own, and in every model that has the setting."""

import pytest
import torch
from torch.nn import functional as F

from ensue.core.errors import InputError
from ensue.models.gpt import GPTConfig, GPTLanguageModel
from ensue.models.llama import LlamaConfig, LlamaLanguageModel
from ensue.models.transformer_xl import TransformerXL, TransformerXLConfig
from ensue.nn.adaptive import AdaptiveEmbedding, AdaptiveSoftmax

SHAPE = 23, 8, (4, 11), 2  # widths 8, 4, 2
MODELS = {"gpt": (GPTLanguageModel, GPTConfig), "llama": (LlamaLanguageModel, LlamaConfig)}
MODELS["transformer-xl"] = TransformerXL, TransformerXLConfig


def build(shape=SHAPE, tied=True):
    torch.manual_seed(0)
    embed = AdaptiveEmbedding(*shape)
    head = AdaptiveSoftmax(*shape, tied=embed if tied else None)
    return embed.double(), head.double()


def full_embedding(embed):
    """E (V, D): the vector of every token, as one matrix."""
    return torch.cat([table.weight @ p.T for table, p in zip(embed.tables, embed.projections, strict=True)])


def full_log_prob(head, hidden):
    """log P of every token from one matrix per band, token by token."""
    h = [hidden @ p for p in head.projections]
    first = torch.cat([head.layers[0].weight, head.choice.weight]) @ h[0].T
    first = (first.T + torch.cat([head.layers[0].bias, head.choice.bias])).softmax(-1)
    columns = [first[:, w] for w in range(4)]
    for band, (start, stop) in enumerate([(4, 11), (11, 23)], start=1):
        inside = (h[band] @ head.layers[band].weight.T + head.layers[band].bias).softmax(-1)
        columns += [first[:, 4 + band - 1] * inside[:, w] for w in range(stop - start)]
    return torch.stack(columns, -1).log()


def test_the_embedding_equals_one_matrix_of_all_vectors():
    embed, _ = build()
    tokens = torch.randint(23, (3, 7))
    torch.testing.assert_close(embed(tokens), full_embedding(embed)[tokens], atol=1e-12, rtol=0)
    assert embed(tokens[:, :0]).shape == (3, 0, 8)


@pytest.mark.parametrize("tied", [True, False])
def test_log_probabilities_equal_the_full_form_and_sum_to_one(tied):
    _, head = build(tied=tied)
    hidden = torch.randn(5, 3, 8, dtype=torch.float64)
    found = head(hidden)
    torch.testing.assert_close(found.flatten(0, 1), full_log_prob(head, hidden.flatten(0, 1)), atol=1e-12, rtol=0)
    torch.testing.assert_close(found.exp().sum(-1), torch.ones(5, 3, dtype=torch.float64), atol=1e-12, rtol=0)


@pytest.mark.parametrize("targets", [list(range(23)), [22] * 5, [0, 3], [4, 10], []], ids=str)
def test_losses_and_gradients_equal_those_of_the_full_form(targets):
    embed, head = build()
    hidden = torch.randn(len(targets), 8, dtype=torch.float64, requires_grad=True)
    wanted, found = torch.tensor(targets, dtype=torch.long), []
    weights = list({id(one): one for one in (*embed.parameters(), *head.parameters())}.values())
    for losses in (head.losses(hidden, wanted), -head(hidden).gather(1, wanted[:, None])[:, 0]):
        gradients = torch.autograd.grad(losses.sum(), [hidden, *weights], allow_unused=True)
        dense = [torch.zeros(()) if one is None else one for one in gradients]
        found.append((losses, *dense))
    for ours, expected in zip(*found, strict=True):
        torch.testing.assert_close(ours, expected.expand_as(ours), atol=1e-12, rtol=0, check_dtype=False)


def test_it_equals_the_adaptive_softmax_of_torch():
    torch.manual_seed(1)
    theirs = torch.nn.AdaptiveLogSoftmaxWithLoss(8, 23, [4, 11], div_value=2.0, head_bias=True).double()
    _, head = build(tied=False)
    with torch.no_grad():
        head.projections[0].copy_(torch.eye(8))
        head.layers[0].weight.copy_(theirs.head.weight[:4])
        head.layers[0].bias.copy_(theirs.head.bias[:4])
        head.choice.weight.copy_(theirs.head.weight[4:])
        head.choice.bias.copy_(theirs.head.bias[4:])
        for c, (down, up) in enumerate(theirs.tail, start=1):
            head.projections[c].copy_(down.weight.T)
            head.layers[c].weight.copy_(up.weight)
            head.layers[c].bias.zero_()
    hidden, targets = torch.randn(40, 8, dtype=torch.float64), torch.randint(23, (40,))
    torch.testing.assert_close(head(hidden), theirs.log_prob(hidden), atol=1e-12, rtol=0)
    torch.testing.assert_close(-head.losses(hidden, targets), theirs(hidden, targets).output, atol=1e-12, rtol=0)


def test_tied_layers_share_tables_and_all_projections_but_the_first():
    embed, head = build()
    assert all(layer.weight is table.weight for layer, table in zip(head.layers, embed.tables, strict=True))
    assert [a is b for a, b in zip(head.projections, embed.projections, strict=True)] == [False, True, True]


def test_a_factor_of_one_has_no_projections_and_is_a_softmax_by_classes():
    embed, head = build((23, 8, (4, 11), 1))
    assert not embed.projections and not head.projections
    tokens = torch.arange(23)
    torch.testing.assert_close(embed(tokens), torch.cat([table.weight for table in embed.tables]))
    hidden = torch.randn(4, 8, dtype=torch.float64)
    torch.testing.assert_close(head(hidden).exp().sum(-1), torch.ones(4, dtype=torch.float64))


@pytest.mark.parametrize("name", MODELS)
def test_every_model_trains_with_the_loss_of_its_full_distribution(name):
    cls, config = MODELS[name]
    torch.manual_seed(0)
    model = cls(config(vocabulary=23, layers=1, heads=2, hidden=8, adaptive=(4, 11), adaptive_factor=2)).double()
    tokens = torch.randint(23, (2, 9))
    loss, _ = model.loss(tokens[:, :-1], tokens[:, 1:])
    logits = model(tokens[:, :-1]).logits
    torch.testing.assert_close(loss, F.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten()))
    values, _ = model.log_prob(tokens[:, :-1], tokens[:, 1:])
    torch.testing.assert_close(-values.mean(), loss)
    assert sum(p.numel() for p in model.embed.parameters()) < 23 * 8 + 8 * 14 + 1
    loss.backward()
    assert all(weight.grad is not None for weight in model.parameters())


def test_a_decode_step_equals_reading_the_whole_text():
    torch.manual_seed(0)
    model = GPTLanguageModel(GPTConfig(vocabulary=23, layers=2, heads=2, hidden=64, adaptive=(4, 11))).eval()
    tokens = torch.randint(23, (2, 12))
    with torch.no_grad():
        state, steps = model.start(2), []
        for t in range(12):
            output = model(tokens[:, t : t + 1], state)
            steps.append(output.logits)
            state = output.state
        torch.testing.assert_close(torch.cat(steps, 1), model(tokens).logits, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"adaptive": (5, 5)}, r"adaptive = \(5, 5\) must be increasing"),
        ({"adaptive": (0, 5)}, "must be increasing numbers above 0"),
        ({"adaptive": (4,), "adaptive_factor": 0}, "adaptive_factor = 0 must be at least 1"),
        ({"adaptive": (4, 8), "adaptive_factor": 4}, "small enough that 3 bands of 8 fit"),
        ({"adaptive": (4,), "logit_cap": 3.0}, "empty with a logit_cap"),
    ],
)
def test_wrong_settings_are_refused_in_one_line(settings, message):
    with pytest.raises(InputError, match=message):
        GPTConfig(vocabulary=23, heads=2, hidden=8, **settings)


def test_cutoffs_beyond_the_vocabulary_are_refused_where_it_is_known():
    with pytest.raises(InputError, match="adaptive = 4,23 cuts a vocabulary of 23 tokens"):
        GPTLanguageModel(GPTConfig(vocabulary=23, heads=2, hidden=8, adaptive=(4, 23), adaptive_factor=2))
