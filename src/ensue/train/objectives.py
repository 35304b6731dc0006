"""Training objectives of language and translation models, as a loss over a batch.

The loss is the mean over tokens, J = −1/N Σ_t log P(x_{t+1} | x_≤t), in nats a token.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from ensue.nn.eval_mode import eval_mode
from ensue.nn.state import State
from ensue.search.sampling import Sampling, draw
from ensue.train.loss_reduction import LOCAL, LossAndState, LossReduction


class Objective(Protocol):
    """Computes the loss of a batch, and the state to carry to the next one."""

    def __call__(self, model: Any, batch: Any, state: State | None, reduction: LossReduction = LOCAL) -> LossAndState:
        """Return this rank's term of the mean loss (a scalar), and the state after the batch."""
        ...


def next_token_loss(model: Any, batch: Any, state: State | None, reduction: LossReduction = LOCAL) -> LossAndState:
    """−log P of each next token."""
    loss, after = _mean_loss(model, batch.tokens, batch, state)
    return reduction.scale_mean(loss, _target_count(batch)), after


def cloze_loss(model: Any, batch: Any, state: State | None, reduction: LossReduction = LOCAL) -> LossAndState:
    """−log P of each token given all others: the output at a position predicts that position."""
    loss, _ = _mean_loss(model, batch.targets, batch, None)
    return reduction.scale_mean(loss, _target_count(batch)), None


def context_loss(model: Any, batch: Any, state: State | None, reduction: LossReduction = LOCAL) -> LossAndState:
    """The loss that a model of words in context defines for whole sentences; it carries no state."""
    loss = model.context_loss(batch.tokens, batch.lengths)
    return reduction.scale_mean(loss, model.target_count(batch.lengths)), None


def _target_count(batch: Any) -> Tensor | int:
    """Return the number of a batch's targets without padding."""
    return int(batch.targets.numel()) if batch.lengths is None else batch.lengths.sum()


def _mean_loss(model: Any, tokens: Tensor, batch: Any, state: State | None) -> LossAndState:
    """Return the mean of −log P of the batch's targets, from the model's ``loss`` or else its ``log_prob``."""
    if callable(getattr(type(model), "loss", None)):
        loss, after = model.loss(tokens, batch.targets, state, batch.lengths, keep_state=batch.keep_state)
        return loss, after
    log_prob, after = model.log_prob(tokens, batch.targets, state, batch.lengths)
    return -log_prob.sum() / batch.size, after


@dataclass(frozen=True)
class TranslationLoss:
    """−log P of each target token given the source and the true tokens before it (teacher forcing)."""

    smoothing: float = 0.0
    """Label smoothing (see ensue.kernels.cross_entropy)."""

    def __call__(self, model: Any, batch: Any, state: State | None, reduction: LossReduction = LOCAL) -> LossAndState:
        """Return the mean over target tokens without padding."""
        pairs = batch.source, batch.source_lengths, batch.tokens, batch.targets, batch.lengths
        loss = model.pair_loss(*pairs, self.smoothing)
        return reduction.scale_mean(loss, _target_count(batch)), None


@dataclass(frozen=True)
class ExpectedReward:
    """Fine-tuning on the expected reward of sampled translations (Wu et al., 2016, section 5).

    O_RL  = Σ_y P(y | x) r(y, y*)                   estimated from ``samples`` samples of the model
    O     = likelihood · O_ML + O_RL

    ∇O_RL = E[(r(y) − r̄) ∇ log P(y | x)]: the mean reward r̄ of a sentence's samples is the baseline. Sampling uses
    torch's random state, so a resumed run draws the same samples.
    """

    reward: Callable[[Sequence[int], Sequence[int]], float]
    end: int
    samples: int = 8
    likelihood: float = 0.02

    def __call__(self, model: Any, batch: Any, state: State | None, reduction: LossReduction = LOCAL) -> LossAndState:
        """Return −O, in reward a sentence and nats a token."""
        sampled = self._sample(model, batch)
        references = [row[: n - 1].tolist() for row, n in zip(batch.targets, batch.lengths.tolist())]
        rewards = torch.tensor(
            [[self.reward(sample, reference) for sample in group] for group, reference in zip(sampled, references)],
            device=batch.source.device,
        )
        start = model.start(batch.source, batch.source_lengths)
        rows = torch.arange(len(sampled), device=batch.source.device).repeat_interleave(self.samples)
        samples = [sample for group in sampled for sample in group]
        tokens, targets, lengths = _decoder_batch(samples, model.first(self.end), self.end, batch.source.device)
        log_prob, _ = model.log_prob(tokens, targets, start.rows(rows), lengths)
        gain = ((rewards - rewards.mean(1, keepdim=True)).flatten() * log_prob.sum(1)).mean()
        likelihood, _ = TranslationLoss()(model, batch, None, reduction)
        return self.likelihood * likelihood - reduction.scale_mean(gain, len(sampled)), None

    def _sample(self, model: Any, batch: Any) -> list[list[list[int]]]:
        """Sample translations of every source, without dropout."""
        how = Sampling(n=self.samples, seed=int(torch.randint(2**31, ())))
        with eval_mode(model), torch.no_grad():
            start = model.start(batch.source, batch.source_lengths)
            results = draw(model, start, model.first(self.end), ends=[self.end], longest=batch.lengths + 10, how=how)
        return [[hypothesis.tokens for hypothesis in result.hypotheses] for result in results]


def _decoder_batch(rows: list[list[int]], first: int, end: int, device: torch.device) -> tuple[Tensor, Tensor, Tensor]:
    """Return a decoder's padded input tokens and targets for token lists, and their lengths."""
    lengths = torch.tensor([len(row) + 1 for row in rows], device=device)
    block = pad_sequence([torch.tensor([first, *row, end]) for row in rows], batch_first=True).to(device)
    return block[:, :-1], block[:, 1:], lengths


OBJECTIVES: dict[str, Objective] = {"next": next_token_loss, "cloze": cloze_loss}
