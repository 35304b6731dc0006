"""Objectives: what a model is trained to do, as a loss over a batch.

The loss is the mean over tokens, J = −1/N Σ_t log P(x_{t+1} | x_≤t), in nats a token.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from ensue.nn.state import State
from ensue.search.sampling import Sampling, draw
from ensue.train.loss_reduction import ALONE, Pool


class Objective(Protocol):
    """A loss over a batch, and the state to carry to the next one."""

    def __call__(
        self, model: nn.Module, batch: Any, state: State | None, pool: Pool = ALONE
    ) -> tuple[Tensor, State | None]:
        """The mean loss (a scalar) and the state after the batch; of each mean the share in that of all processes."""
        ...


def next_token(model: nn.Module, batch: Any, state: State | None, pool: Pool = ALONE) -> tuple[Tensor, State | None]:
    """−log P of each next token."""
    loss, after = _mean_loss(model, batch.tokens, batch, state)
    return pool.share(loss, _places(batch)), after


def cloze(model: nn.Module, batch: Any, state: State | None, pool: Pool = ALONE) -> tuple[Tensor, State | None]:
    """−log P of each token given all others: the answer at a place is about that place."""
    loss, _ = _mean_loss(model, batch.targets, batch, None)
    return pool.share(loss, _places(batch)), None


def in_context(model: nn.Module, batch: Any, state: State | None, pool: Pool = ALONE) -> tuple[Tensor, None]:
    """What a model of words in context makes small, of whole sentences; no state is carried on."""
    own: Any = model
    return pool.share(own.context_loss(batch.tokens, batch.lengths), own.predicted(batch.lengths)), None


def _places(batch: Any) -> Tensor | int:
    """How many targets a batch has, padding not counted."""
    return int(batch.targets.numel()) if batch.lengths is None else batch.lengths.sum()


def _mean_loss(model: Any, tokens: Tensor, batch: Any, state: State | None) -> tuple[Tensor, State | None]:
    """The mean of −log P of the batch's targets; a model that has no ``loss`` of its own has ``log_prob``."""
    if callable(getattr(type(model), "loss", None)):
        loss, after = model.loss(tokens, batch.targets, state, batch.lengths, goes_on=batch.keep_state)
        return loss, after
    log_prob, after = model.log_prob(tokens, batch.targets, state, batch.lengths)
    return -log_prob.sum() / batch.size, after


@dataclass(frozen=True)
class Translate:
    """−log P of each target token, given the source and the tokens before it, smoothed (see
    ensue.kernels.cross_entropy).

    The decoder is fed the true tokens, not its own (teacher forcing).
    """

    smoothing: float = 0.0

    def __call__(self, model: nn.Module, batch: Any, state: State | None, pool: Pool = ALONE) -> tuple[Tensor, None]:
        """The mean over the real target tokens; no state is carried on."""
        pairs = batch.source, batch.source_lengths, batch.tokens, batch.targets, batch.lengths
        loss: Tensor = model.pair_loss(*pairs, self.smoothing)  # type: ignore[operator]
        return pool.share(loss, _places(batch)), None


@dataclass(frozen=True)
class ExpectedReward:
    """Fine-tuning on what a translation is worth, not on how probable the reference is (Wu et al., 2016, section 5).

    O_RL  = Σ_y P(y | x) r(y, y*)                   estimated from ``samples`` draws of the model
    O     = likelihood · O_ML + O_RL

    ∇O_RL = E[(r(y) − r̄) ∇ log P(y | x)]: the mean reward of a sentence's own draws is the baseline. Draws come from
    torch's random numbers, so a resumed run draws the same.
    """

    reward: Callable[[Sequence[int], Sequence[int]], float]
    end: int
    samples: int = 8
    likelihood: float = 0.02

    def __call__(self, model: nn.Module, batch: Any, state: State | None, pool: Pool = ALONE) -> tuple[Tensor, None]:
        """−O, in reward a sentence and nats a token; no state is carried on."""
        drawn = self._draw(model, batch)
        references = [row[: n - 1].tolist() for row, n in zip(batch.targets, batch.lengths.tolist())]
        worth = torch.tensor(
            [[self.reward(one, reference) for one in many] for many, reference in zip(drawn, references)],
            device=batch.source.device,
        )
        start = model.start(batch.source, batch.source_lengths)  # type: ignore[operator]
        rows = torch.arange(len(drawn), device=batch.source.device).repeat_interleave(self.samples)
        tokens, targets, lengths = _framed([one for many in drawn for one in many], self.end, batch.source.device)
        log_prob, _ = model.log_prob(tokens, targets, start.rows(rows), lengths)  # type: ignore[operator]
        gain = ((worth - worth.mean(1, keepdim=True)).flatten() * log_prob.sum(1)).mean()
        truth, _ = Translate()(model, batch, None, pool)
        return self.likelihood * truth - pool.share(gain, len(drawn)), None

    def _draw(self, model: nn.Module, batch: Any) -> list[list[list[int]]]:
        """So many translations of every source, drawn as the model would without dropout."""
        how = Sampling(n=self.samples, seed=int(torch.randint(2**31, ())))
        training = model.training
        model.eval()
        with torch.no_grad():
            start = model.start(batch.source, batch.source_lengths)  # type: ignore[operator]
            found = draw(model, start, self.end, end=self.end, longest=batch.lengths + 10, how=how)
        model.train(training)
        return [[one.tokens for one in answer.hypotheses] for answer in found]


def _framed(rows: list[list[int]], end: int, device: torch.device) -> tuple[Tensor, Tensor, Tensor]:
    """Token lists as what a decoder reads and what it is to say, padded, with their lengths."""
    lengths = torch.tensor([len(row) + 1 for row in rows], device=device)
    block = torch.zeros(len(rows), int(lengths.max()) + 1, dtype=torch.long)
    for place, row in enumerate(rows):
        block[place, : len(row) + 2] = torch.tensor([end, *row, end])
    block = block.to(device)
    return block[:, :-1], block[:, 1:], lengths


OBJECTIVES: dict[str, Objective] = {"next": next_token, "cloze": cloze}
