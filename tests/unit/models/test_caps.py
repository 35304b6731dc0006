"""Caps of scores and logits: by their equation, and respected wherever logits or losses are computed."""

from types import SimpleNamespace

import pytest
import torch
from torch.nn import functional as F

from ensue.core.errors import InputError
from ensue.exchange.gguf.settings import architecture_of
from ensue.kernels import attention, capped_cross_entropy, sliced_loss
from ensue.kernels.attention import attend_cached, attention_weights
from ensue.kernels.int8 import quantise
from ensue.measure.continuations import _sums
from ensue.models.gpt import GPTConfig, GPTLanguageModel
from ensue.models.llama import LlamaConfig, LlamaLanguageModel
from ensue.nn.adapters import adapt
from ensue.nn.layout import PADDED
from ensue.nn.mixers.mixer import MixerConfig, build_mixer
from ensue.runs.weight_bits import with_bits
from ensue.train.token_distillation import TokenDistillation

TOKENS = torch.randint(64, (3, 11), generator=torch.Generator().manual_seed(1))


def llama(**more):
    torch.manual_seed(0)
    sizes = {"vocabulary": 64, "layers": 2, "heads": 4, "kv_heads": 2, "hidden": 64, "context": 16}
    model = LlamaLanguageModel(LlamaConfig(**sizes | {"attention_cap": 0.7, "logit_cap": 1.5} | more)).eval()
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.5)
    return model


def test_weights_of_capped_scores_are_the_equation():
    torch.manual_seed(0)
    q, k, v = (3 * torch.randn(2, 2, 5, 4, dtype=torch.float64) for _ in range(3))
    mask = torch.ones(5, 5, dtype=torch.bool).tril()
    scores = 2.0 * torch.tanh(torch.einsum("bhtd,bhsd->bhts", q, k) / 2 / 2.0)
    wanted = scores.masked_fill(~mask, -torch.inf).softmax(-1)
    torch.testing.assert_close(attention_weights(q, k, mask, cap=2.0), wanted)
    torch.testing.assert_close(attend_cached(q, k, v, mask, cap=2.0).view(2, 5, 2, 4), (wanted @ v).transpose(1, 2))
    assert not torch.allclose(attention_weights(q, k, mask), wanted)


def test_queries_are_read_some_at_a_time(monkeypatch):
    torch.manual_seed(0)
    q, k, v = torch.randn(2, 4, 7, 8), torch.randn(2, 2, 9, 8), torch.randn(2, 2, 9, 8)
    mask, bias = torch.rand(2, 1, 7, 9) > 0.2, torch.randn(1, 4, 7, 9)
    whole = attend_cached(q, k, v, mask, bias, cap=1.0)
    monkeypatch.setattr(attention, "SCORES_AT_ONCE", 2 * 4 * 9 * 3)
    torch.testing.assert_close(attend_cached(q, k, v, mask, bias, cap=1.0), whole)


@pytest.mark.parametrize("name", ["full", "local:span=3"])
def test_attention_in_both_directions_has_the_cap_in_its_weights_and_outputs(name):
    torch.manual_seed(0)
    mixer = build_mixer(name, MixerConfig(width=16, heads=2, causal=False, score_cap=0.3)).double().eval()
    x = 4 * torch.randn(2, 6, 16, dtype=torch.float64)
    y, _, weights = mixer(x, weights=True)
    values = mixer.project(x)[..., 32:].view(2, 6, 2, 8).transpose(1, 2)
    torch.testing.assert_close(mixer.out((weights @ values).transpose(1, 2).flatten(2)), y)
    seen = weights[weights > 0].view(2, 2, 6, -1) if name == "full" else weights
    ratio = seen.amax(-1) / torch.where(seen > 0, seen, torch.inf).amin(-1)
    assert ratio.max() <= torch.tensor(0.6).exp() and ratio.max() > 1.5
    index = torch.tensor([[0, 3], [5, 1]])
    some, _ = mixer.at(index, x[torch.arange(2)[:, None], index], x, PADDED)
    torch.testing.assert_close(some, y[torch.arange(2)[:, None], index])


def test_logits_are_bounded_and_losses_and_scores_are_those_of_the_logits():
    model, plain = llama(), llama(logit_cap=0.0)
    x, y = TOKENS[:, :-1], TOKENS[:, 1:]
    with torch.no_grad():
        logits = model(x).logits
        torch.testing.assert_close(logits, 1.5 * (plain(x).logits / 1.5).tanh())
        wanted = logits.log_softmax(-1).gather(-1, y[..., None])[..., 0]
        torch.testing.assert_close(model(x, want=("last",)).logits, logits[:, -1:])
        torch.testing.assert_close(model.log_prob(x, y)[0], wanted)
        torch.testing.assert_close(model.loss(x, y)[0], -wanted.mean())
        torch.testing.assert_close(torch.tensor(_sums(model, x, y, None, None)), wanted.sum(1))


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_the_gradient_of_the_loss_is_that_of_the_logits(monkeypatch, smoothing):
    model = llama().double().train()
    x, y = TOKENS[:, :-1], TOKENS[:, 1:]
    wanted = F.cross_entropy(model(x).logits.flatten(0, 1), y.flatten(), label_smoothing=smoothing)
    gradients = torch.autograd.grad(wanted, list(model.parameters()))
    monkeypatch.setattr(sliced_loss, "FEW", 0)
    monkeypatch.setattr(capped_cross_entropy, "SLICE", 64 * 7)
    loss, _ = model.loss(x, y, smoothing=smoothing)
    torch.testing.assert_close(loss, wanted)
    for found, one in zip(torch.autograd.grad(loss, list(model.parameters())), gradients, strict=True):
        torch.testing.assert_close(found, one)


def adapted(model):
    assert adapt(model, 2, 4.0)
    return model


@pytest.mark.parametrize(
    "change",
    [quantise, lambda model: with_bits(model, 8), lambda model: with_bits(model, 4), adapted],
    ids=["int8", "8 bits", "4 bits", "adapters"],
)
def test_layers_that_are_exchanged_keep_the_caps(change):
    model = llama()
    changed = change(model)
    with torch.no_grad():
        hidden = changed(TOKENS, want=("logits", "hidden"))
        assert hidden.logits.abs().max() <= 1.5 and hidden.logits.abs().max() > 1.0
        torch.testing.assert_close(hidden.logits, 1.5 * (changed.head(hidden.hidden) / 1.5).tanh())
        loss, _ = changed.loss(TOKENS[:, :-1], TOKENS[:, 1:])
        logits = changed(TOKENS[:, :-1]).logits
        wanted = F.cross_entropy(logits.flatten(0, 1), TOKENS[:, 1:].flatten())
        torch.testing.assert_close(loss, wanted, atol=1e-3, rtol=1e-3)
        weights = changed(TOKENS, want=("attention",)).attention[0]
    seen = torch.where(weights > 0, weights, torch.inf)
    assert (weights.amax(-1) / seen.amin(-1)).max() <= torch.tensor(2 * 0.7).exp() + 1e-3


def test_a_student_and_its_teacher_are_compared_by_capped_logits():
    student, teacher = llama(), llama(logit_cap=0.5)
    batch = SimpleNamespace(tokens=TOKENS[:, :-1], targets=TOKENS[:, 1:], lengths=None)
    loss, _ = TokenDistillation(teacher, weight=1.0)(student, batch, None)
    own, theirs = student(batch.tokens).logits.log_softmax(-1), teacher(batch.tokens).logits.log_softmax(-1)
    torch.testing.assert_close(loss, (theirs.exp() * (theirs - own)).sum(-1).mean())


def test_caps_are_refused_where_they_make_no_sense_or_have_no_form():
    with pytest.raises(InputError, match="attention_cap"):
        GPTConfig(vocabulary=5, attention_cap=-1.0)
    with pytest.raises(InputError, match="logit_cap"):
        GPTConfig(vocabulary=5, logit_cap=float("inf"))
    for name in ("attention_cap", "logit_cap"):
        with pytest.raises(InputError, match=name):
            architecture_of(LlamaConfig(vocabulary=5, **{name: 3.0}))


def test_dropout_of_capped_attention_is_random():
    torch.manual_seed(0)
    model = GPTLanguageModel(GPTConfig(vocabulary=9, layers=1, heads=2, hidden=8, dropout=0.5, attention_cap=1.0))
    found = torch.stack([model(TOKENS[:1] % 9).logits for _ in range(3)])
    assert found.isfinite().all() and not torch.equal(found[0], found[1])
