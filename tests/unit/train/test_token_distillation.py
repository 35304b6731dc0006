"""A student of a language model learns its distributions: by the equation, and where the text says little."""

from types import SimpleNamespace

import pytest
import torch
from torch.nn import functional as F

from ensue.models.gpt import GPTConfig, GPTLanguageModel
from ensue.train import token_distillation
from ensue.train.token_distillation import TokenDistillation


def gpt(seed, vocabulary=23):
    torch.manual_seed(seed)
    return GPTLanguageModel(GPTConfig(vocabulary=vocabulary, layers=1, heads=2, hidden=16, context=12))


@pytest.mark.parametrize("at_once", [1 << 20, 50])
def test_the_loss_is_the_equation(monkeypatch, at_once):
    monkeypatch.setattr(token_distillation, "LOGITS_AT_ONCE", at_once)
    student, teacher = gpt(0), gpt(1, vocabulary=29).eval()  # a model may have more outputs than its tokenizer
    tokens = torch.randint(23, (3, 9), generator=torch.Generator().manual_seed(2))
    batch = SimpleNamespace(tokens=tokens[:, :-1], targets=tokens[:, 1:], lengths=None)
    loss, _ = TokenDistillation(teacher, weight=0.3, temperature=2.0)(student, batch, None)
    own, theirs = student(batch.tokens).logits, teacher(batch.tokens).logits[..., :23].detach()
    p = (theirs / 2).softmax(-1)
    apart = (p * (p.log() - (own / 2).log_softmax(-1))).sum(-1).mean()
    wanted = 0.7 * F.cross_entropy(own.flatten(0, 1), batch.targets.flatten()) + 0.3 * 4 * apart
    torch.testing.assert_close(loss, wanted)
    loss.backward()
    assert student.embed.weight.grad is not None and all(p.grad is None for p in teacher.parameters())
