"""``Model.loss`` is −log P on average, whatever a model's head or ``log_prob`` is."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from ensue.core.errors import InputError
from ensue.models.recurrent import GRULanguageModel, RecurrentConfig
from ensue.nn.state import State


class Scaled(nn.Linear):
    """A linear layer with a forward of its own."""

    def forward(self, x: Tensor) -> Tensor:
        return 3 * super().forward(x)


class Own(GRULanguageModel):
    """A model that mixes its distribution with the uniform one."""

    def log_prob(
        self, tokens: Tensor, targets: Tensor, state: State | None = None, lengths: Tensor | None = None
    ) -> tuple[Tensor, State]:
        values, after = super().log_prob(tokens, targets, state, lengths)
        mixed = (values.exp() / 2 + 0.5 / self.config.vocabulary).log()
        if lengths is not None:
            mixed = mixed.masked_fill(torch.arange(tokens.shape[1]) >= lengths[:, None], 0.0)
        return mixed, after


def build(kind: type[GRULanguageModel] = GRULanguageModel, head: nn.Module | None = None) -> Any:
    torch.manual_seed(0)
    model = kind(RecurrentConfig(vocabulary=7, hidden=8, tied=False))
    if head is not None:
        model.head = head
    return model


def hooked() -> Any:
    model = build()
    model.head.register_forward_hook(lambda module, inputs, output: output / 2)
    return model


@pytest.mark.parametrize(
    "model",
    [build(), build(head=Scaled(8, 7)), build(head=nn.Sequential(nn.Tanh(), nn.Linear(8, 7))), build(Own), hooked()],
    ids=["plain", "own forward", "several layers", "own log_prob", "hook"],
)
@pytest.mark.parametrize("lengths", [None, torch.tensor([4, 2])], ids=["even", "padded"])
def test_the_loss_is_the_mean_of_log_prob(model: Any, lengths: Tensor | None) -> None:
    tokens, targets = torch.randint(7, (2, 4)), torch.randint(7, (2, 4))
    values, _ = model.log_prob(tokens, targets, None, lengths)
    real = torch.ones(2, 4, dtype=torch.bool) if lengths is None else torch.arange(4) < lengths[:, None]
    loss, _ = model.loss(tokens, targets, None, lengths)
    torch.testing.assert_close(loss, -values[real].mean())


def test_label_smoothing_with_an_overridden_log_prob_is_refused() -> None:
    with pytest.raises(InputError, match="log_prob of its own"):
        build(Own).loss(torch.zeros(1, 2, dtype=torch.long), torch.zeros(1, 2, dtype=torch.long), smoothing=0.1)
