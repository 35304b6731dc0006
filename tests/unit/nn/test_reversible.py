"""Reversible blocks: the gradients of plain autograd, from the last outputs alone."""

import weakref

import pytest
import torch
from torch import nn

from ensue.models.bert import BERT, BERTConfig
from ensue.models.gpt import GPTConfig, GPTLanguageModel
from ensue.models.transformer import Transformer, TransformerConfig
from ensue.nn import trunk
from ensue.nn.reversible import ReversibleBlock

TOKENS = torch.arange(3 * 20).view(3, 20) * 7 % 30
SMALL = {"vocabulary": 30, "hidden": 32, "heads": 2, "layers": 3, "dropout": 0.2, "norm": "reversible"}


def gpt(**parts):
    return GPTLanguageModel(GPTConfig(**SMALL | {"context": 20} | parts))


def gpt_loss(model):
    return model.loss(TOKENS[:, :-1], TOKENS[:, 1:], keep_state=False)[0]


def bert(**parts):
    return BERT(BERTConfig(**SMALL, **parts, context=20))


def bert_loss(model):
    found = model.encode(TOKENS, None, torch.tensor([20, 11, 3]), TOKENS[:, :2] % 3).hidden
    return model.masked_loss(found.flatten(0, 1), TOKENS[:, :3].flatten())


def transformer():
    return Transformer(TransformerConfig(**SMALL | {"layers": 2}, source_vocabulary=30, tied="all"))


def transformer_loss(model):
    lengths = torch.tensor([20, 9, 12])
    return model.pair_loss(TOKENS, lengths, TOKENS[:, :-1], TOKENS[:, 1:], lengths - 1)


def learnt(model, loss_of):
    """The loss, all gradients, and the next random number."""
    model.train().zero_grad()
    torch.manual_seed(5)
    loss = loss_of(model)
    loss.backward()
    return loss.detach(), {name: p.grad for name, p in model.named_parameters()}, torch.rand(1)


def plainly(monkeypatch):
    monkeypatch.setattr(trunk, "reversible", lambda blocks, pasts: False)


@pytest.mark.parametrize(
    ("build", "loss_of"),
    [
        (gpt, gpt_loss),
        (lambda: gpt(norm="reversible-rms", kv_heads=1, feed="swiglu"), gpt_loss),
        (lambda: gpt(attention="reformer:buckets=4:chunk=4"), gpt_loss),
        (lambda: gpt(attention="linear,local:span=5"), gpt_loss),
        (bert, bert_loss),
        (lambda: bert(groups=1), bert_loss),
        (transformer, transformer_loss),
    ],
    ids=["gpt", "rms", "reformer", "linear", "bert", "shared", "transformer"],
)
def test_the_loss_all_gradients_and_random_numbers_are_those_of_plain_autograd(build, loss_of, monkeypatch):
    torch.manual_seed(0)
    model = build().double()
    ran = []
    run = trunk.run_reversibly
    monkeypatch.setattr(trunk, "run_reversibly", lambda *given: ran.append(1) or run(*given))
    loss, gradients, drawn = learnt(model, loss_of)
    assert ran
    plainly(monkeypatch)
    expected, theirs, after = learnt(model, loss_of)
    assert len(ran) < 3
    torch.testing.assert_close(loss, expected, atol=1e-12, rtol=0)
    assert drawn == after
    assert gradients.keys() == theirs.keys()
    for name, gradient in theirs.items():
        torch.testing.assert_close(gradients[name], gradient, atol=1e-10, rtol=0, msg=name)


@pytest.mark.parametrize(("build", "loss_of"), [(gpt, gpt_loss), (bert, bert_loss), (transformer, transformer_loss)])
def test_kernels_of_float32_draw_the_same_masks_in_both_passes(build, loss_of, monkeypatch):
    torch.manual_seed(0)
    model = build()
    _, gradients, _ = learnt(model, loss_of)
    plainly(monkeypatch)
    _, theirs, _ = learnt(model, loss_of)
    for name, gradient in theirs.items():
        torch.testing.assert_close(gradients[name], gradient, atol=1e-5, rtol=1e-4, msg=name)


def test_frozen_weights_get_no_gradient_and_do_not_disturb_the_others(monkeypatch):
    torch.manual_seed(0)
    model = gpt().double()
    for block in list(model.blocks)[:2]:
        for p in block.attention.parameters():
            p.requires_grad_(False)
    _, gradients, _ = learnt(model, gpt_loss)
    plainly(monkeypatch)
    _, theirs, _ = learnt(model, gpt_loss)
    assert gradients["blocks.0.attention.out.weight"] is None
    for name, gradient in theirs.items():
        torch.testing.assert_close(gradients[name], gradient, atol=1e-10, rtol=0, msg=name)


def test_a_block_is_the_equation_of_two_streams():
    torch.manual_seed(0)
    block = gpt(dropout=0.0).blocks[0].eval()
    x1, x2 = torch.randn(2, 5, 32), torch.randn(2, 5, 32)
    y1 = x1 + block.attention(block.norm_attention(x2)).y
    y2 = x2 + block.feed(block.norm_feed(y1))
    torch.testing.assert_close(block(torch.cat([x1, x2], -1)).y, torch.cat([y1, y2], -1))


def test_no_activation_of_a_block_is_kept_for_the_backward_pass():
    class Watched(nn.Module):
        def __init__(self, inner):
            super().__init__()
            self.inner = inner

        def forward(self, x):
            y = self.inner(x)
            alive.append(weakref.ref(y))
            return y

    alive = []
    model = gpt(layers=6).train()
    for block in model.blocks:
        block.feed = Watched(block.feed)
    loss = gpt_loss(model)
    assert len(alive) == 6
    assert not any(one() is not None for one in alive)
    loss.backward()
    assert len(alive) == 12
    assert all(p.grad is not None for p in model.parameters())


def test_what_autograd_must_see_runs_plainly():
    experts = gpt(experts=2, experts_active=1).train()
    assert not trunk.reversible(experts.blocks.blocks, (None,) * 3)
    model = gpt()
    assert trunk.reversible(model.train().blocks.blocks, (None,) * 3)
    assert not trunk.reversible(model.eval().blocks.blocks, (None,) * 3)
    hook = model.train().blocks[1].register_forward_hook(lambda *_: None)
    assert not trunk.reversible(model.blocks.blocks, (None,) * 3)
    hook.remove()
    with torch.no_grad():
        assert not trunk.reversible(model.blocks.blocks, (None,) * 3)
    assert all(isinstance(block, ReversibleBlock) for block in model.blocks)


def test_layers_and_hidden_states_have_the_width_of_the_model():
    torch.manual_seed(0)
    model = gpt().eval()
    through = model.blocks(torch.randn(2, 5, 32), layers=True)
    assert [one.shape for one in through.layers] == [(2, 5, 32)] * 4
    torch.testing.assert_close(through.layers[-1], through.h)
