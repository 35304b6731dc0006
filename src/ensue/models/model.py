"""The base class of sequence models: a function of a state and tokens.

``forward`` reads x_t and returns the distribution of x_{t+1}, for any number of tokens at once: a whole text, a chunk,
or one token. ``log_prob`` returns only the probabilities of given next tokens and avoids building (B, T, V).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from ensue.core.errors import InputError
from ensue.kernels.cap import capped
from ensue.kernels.capped_cross_entropy import mean_capped_cross_entropy
from ensue.kernels.cross_entropy import full_precision, mean_cross_entropy
from ensue.kernels.grouped import GroupedLinear
from ensue.nn.adaptive import AdaptiveSoftmax
from ensue.nn.protocol import Output, Traits, Wants
from ensue.nn.state import NoState, State

LOGITS_AT_ONCE = 1 << 24
"""Maximum number of logits that ``log_prob`` holds at once (64 MB in float32)."""


class Model(nn.Module):
    """Base class of all models that predict the next token.

    A subclass has a frozen ``config`` (with ``vocabulary``), declares ``traits``, and implements ``start`` and
    ``forward``. One with hidden states and an output layer ``head`` inherits ``log_prob``.
    """

    Config: ClassVar[type[Any]]
    task: ClassVar[str]
    """What it is trained for: a name in ensue.tasks.table.TASKS."""
    more_tasks: ClassVar[tuple[str, ...]] = ()
    """Other tasks that it can be trained for, where the data is theirs."""
    presets: ClassVar[dict[str, dict[str, Any]]] = {}
    expect: ClassVar[dict[str, str]] = {}
    """Expected time and score of presets, from benchmarks/results."""
    config: Any
    head: nn.Module
    logit_cap: float = 0.0
    """c of logits c tanh(z / c), z = head(hidden); 0 means none."""

    @property
    def traits(self) -> Traits:
        """The properties that the model guarantees."""
        return Traits()

    def forward(
        self, tokens: Tensor, state: State | None = None, lengths: Tensor | None = None, want: Wants = ("logits",)
    ) -> Output:
        """Read ``tokens`` (B, T) after ``state``; rows longer than their ``lengths`` (B,) are padded on the right."""
        raise TypeError(f"{type(self).__name__} does not implement forward")

    def logits(self, hidden: Tensor) -> Tensor:
        """Return the scores of all next tokens: the output layer of hidden states (…, D) → (…, V), capped."""
        return capped(self.head(hidden), self.logit_cap)

    def log_prob(
        self, tokens: Tensor, targets: Tensor, state: State | None = None, lengths: Tensor | None = None
    ) -> tuple[Tensor, State]:
        """Return log P(targets_t | state, tokens_1…t), in nats (B, T), and the next state; padding is 0."""
        output = self(tokens, state, lengths, want=("hidden",))
        assert output.hidden is not None and output.state is not None
        if lengths is None:
            result = -self.cross_entropy(output.hidden.flatten(0, 1), targets.flatten()).view_as(targets)
            return result, output.state
        real = torch.arange(tokens.shape[1], device=tokens.device) < lengths[:, None]
        losses = self.cross_entropy(output.hidden[real], targets[real])  # padding costs nothing
        return losses.new_zeros(targets.shape).masked_scatter(real, -losses), output.state

    def loss(
        self,
        tokens: Tensor,
        targets: Tensor,
        state: State | None = None,
        lengths: Tensor | None = None,
        smoothing: float = 0.0,
        keep_state: bool = True,
    ) -> tuple[Tensor, State | None]:
        """Return the mean of −log P over all targets but padding, and the next state.

        Without ``keep_state`` the state may be None, which saves memory. A plain linear head uses a faster kernel; an
        overridden head or ``log_prob`` is used as it is.
        """
        if type(self).log_prob is not Model.log_prob:
            if smoothing:
                raise InputError(f"{type(self).__name__} has a log_prob of its own", hint="use train.label_smoothing=0")
            values, after = self.log_prob(tokens, targets, state, lengths)
            return -values.sum() / (targets.numel() if lengths is None else lengths.sum()), after
        output = self(tokens, state, lengths, want=("hidden",) if keep_state else ("hidden", "end"))
        assert output.hidden is not None
        if lengths is None:
            hidden, wanted = output.hidden.flatten(0, 1), targets.flatten()
        else:
            real = torch.arange(tokens.shape[1], device=tokens.device) < lengths[:, None]
            hidden, wanted = output.hidden[real], targets[real]
        return self.mean_loss(hidden, wanted, smoothing), output.state

    def mean_loss(self, hidden: Tensor, targets: Tensor, smoothing: float = 0.0) -> Tensor:
        """Return the mean of −log softmax(logits(hidden)) at the targets, (M, D), (M,) → a scalar."""
        head: Any = self.head
        if isinstance(head, AdaptiveSoftmax) and not smoothing:
            return head.losses(hidden, targets).mean()
        if type(head) in (nn.Linear, GroupedLinear) and not (head._forward_hooks or head._forward_pre_hooks):
            if self.logit_cap:
                return mean_capped_cross_entropy(hidden, head.weight, head.bias, targets, self.logit_cap, smoothing)
            return mean_cross_entropy(hidden, head.weight, head.bias, targets, smoothing)
        return F.cross_entropy(full_precision(self.logits(hidden)), targets, label_smoothing=smoothing)

    def cross_entropy(self, hidden: Tensor, targets: Tensor) -> Tensor:
        """Return −log softmax(logits(hidden)) at the targets, (M, D), (M,) → (M,), computed in slices."""
        if isinstance(self.head, AdaptiveSoftmax):
            return self.head.losses(hidden, targets)
        step = max(1, LOGITS_AT_ONCE // self.config.vocabulary)
        slices = zip(torch.split(hidden, step), torch.split(targets, step))
        losses = [F.cross_entropy(full_precision(self.logits(h)), y, reduction="none") for h, y in slices if len(h)]
        return torch.cat(losses) if losses else hidden.new_zeros(0)


class StatelessModel(Model):
    """Base class of models that keep no state: each call starts anew."""

    def start(self, rows: int) -> NoState:
        """Return an empty state."""
        return NoState(torch.zeros(rows, device=next(self.parameters()).device))


def last_position(x: Tensor, lengths: Tensor | None) -> Tensor:
    """Return each row's last position without padding, (B, T, …) → (B, 1, …)."""
    if lengths is None:
        return x[:, -1:]
    index = (lengths - 1).clamp(min=0).view(-1, *[1] * (x.dim() - 1))
    return x.gather(1, index.expand(-1, 1, *x.shape[2:]))


def answer(
    head: Callable[[Tensor], Tensor],
    hidden: Tensor,
    state: State | None,
    lengths: Tensor | None,
    want: Wants,
    attention: tuple[Tensor, ...] | None = None,
) -> Output:
    """Build the output that ``want`` asks for from hidden states; ``head`` maps them to logits."""
    logits = None
    if "logits" in want:
        logits = head(hidden)
    elif "last" in want:
        logits = head(last_position(hidden, lengths))
    return Output(logits, hidden if "hidden" in want else None, attention, state)
