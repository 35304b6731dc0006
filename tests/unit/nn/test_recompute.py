"""Blocks that are run again on the way back: the same losses, gradients and random numbers, in less memory."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from ensue.core.errors import InputError
from ensue.models.bert import BERT, BERTConfig
from ensue.models.gpt import GPTConfig, GPTLanguageModel
from ensue.models.recurrent import LSTMConfig, LSTMLanguageModel
from ensue.models.transformer import Transformer, TransformerConfig
from ensue.nn.recompute import recompute_blocks
from ensue.train.settings import TextTrainSettings

TOKENS = torch.arange(3 * 20).view(3, 20) * 7 % 30


def gpt(norm: str = "pre", positions: str = "rotary") -> nn.Module:
    shape: dict[str, Any] = {"vocabulary": 30, "hidden": 32, "heads": 2, "layers": 3, "context": 20, "dropout": 0.2}
    return GPTLanguageModel(GPTConfig(**shape, norm=norm, positions=positions))


def gpt_loss(model: Any) -> Tensor:
    loss: Tensor = model.loss(TOKENS[:, :-1], TOKENS[:, 1:])[0]
    return loss


def bert() -> nn.Module:
    return BERT(BERTConfig(vocabulary=30, hidden=32, heads=2, layers=3, context=20, dropout=0.2))


def bert_loss(model: Any) -> Tensor:
    found = model.encode(TOKENS, None, torch.tensor([20, 11, 3]), TOKENS[:, :2] % 3).hidden
    loss: Tensor = model.masked_loss(found.flatten(0, 1), TOKENS[:, :3].flatten())
    return loss


def transformer() -> nn.Module:
    shape: dict[str, Any] = {"vocabulary": 30, "source_vocabulary": 30, "hidden": 32, "heads": 2, "layers": 2}
    return Transformer(TransformerConfig(**shape, tied="all", dropout=0.2))


def transformer_loss(model: Any) -> Tensor:
    lengths = torch.tensor([20, 9, 12])
    loss: Tensor = model.pair_loss(TOKENS, lengths, TOKENS[:, :-1], TOKENS[:, 1:], lengths - 1)
    return loss


def learnt(model: nn.Module, loss_of: Callable[[Any], Tensor]) -> tuple[Tensor, list[Tensor | None], Tensor]:
    """The loss, all gradients, and the next random number."""
    model.train()
    torch.manual_seed(5)
    loss = loss_of(model)
    loss.backward()  # type: ignore[no-untyped-call]
    return loss.detach(), [p.grad for p in model.parameters()], torch.rand(1)


@pytest.mark.parametrize(
    ("build", "loss_of"),
    [
        (gpt, gpt_loss),
        (lambda: gpt("post", "learned"), gpt_loss),
        (bert, bert_loss),
        (transformer, transformer_loss),
    ],
)
def test_blocks_that_are_run_again_give_the_same_loss_and_gradients(
    build: Callable[[], nn.Module], loss_of: Callable[[Any], Tensor]
) -> None:
    torch.manual_seed(0)
    plain = build()
    again = build()
    again.load_state_dict(plain.state_dict())
    assert recompute_blocks(again) >= 3
    loss, grads, chance = learnt(plain, loss_of)
    same_loss, same_grads, same_chance = learnt(again, loss_of)
    assert torch.equal(loss, same_loss) and torch.equal(chance, same_chance)
    for one, other in zip(grads, same_grads, strict=True):
        assert (one is None) == (other is None)
        if one is not None and other is not None:
            torch.testing.assert_close(other, one, rtol=1e-6, atol=1e-6)


def test_less_is_remembered() -> None:
    def kept(model: nn.Module) -> int:
        sizes: list[int] = []

        def pack(x: Tensor) -> Tensor:
            sizes.append(x.numel())
            return x

        with torch.autograd.graph.saved_tensors_hooks(pack, lambda x: x):
            gpt_loss(model.train())
        return sum(sizes)

    model = gpt()
    whole = kept(model)
    recompute_blocks(model)
    assert kept(model) < whole / 4


def test_what_is_not_learnt_is_not_run_through_it(monkeypatch: pytest.MonkeyPatch) -> None:
    model = gpt()
    recompute_blocks(model)
    monkeypatch.setattr("ensue.nn.recompute.checkpoint", lambda *_, **__: pytest.fail("it was"))
    with torch.no_grad():
        model.train()(TOKENS)
    model.eval()(TOKENS)


def test_a_model_without_blocks_has_none() -> None:
    assert recompute_blocks(LSTMLanguageModel(LSTMConfig(vocabulary=12, hidden=8))) == 0


def test_other_words_are_refused() -> None:
    with pytest.raises(InputError, match="recompute"):
        TextTrainSettings(recompute="everything")


@pytest.mark.parametrize("keep_state", [False, True])
def test_a_state_that_is_not_kept_is_freed_block_by_block(keep_state: bool) -> None:
    model: Any = gpt().train()
    recompute_blocks(model)
    kept, most = [], [0]

    def look(module: Any, given: Any, found: Any) -> None:
        kept.append(weakref.ref(found[1].keys))
        most[0] = max(most[0], sum(one() is not None for one in kept))

    for block in model.blocks:
        block.attention.register_forward_hook(look)
    loss, state = model.loss(TOKENS[:, :-1], TOKENS[:, 1:], keep_state=keep_state)
    assert (state is None) != keep_state
    assert most[0] == (3 if keep_state else 1)
    assert loss.isfinite()
