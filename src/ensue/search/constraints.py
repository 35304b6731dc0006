"""Constraints on hypotheses: forbidden tokens, forced prefixes and a minimum length.

A token that is not allowed gets −∞ before candidates are ranked. Allowed tokens keep the model's log-probability, so
that scores with and without constraints can be compared.

Legend: n sentences, w rows of each, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from ensue.core.errors import InputError

NEG_INF = float("-inf")


class Constraints:
    """Which tokens are allowed at a step.

    forbidden  tokens that no hypothesis may contain
    shortest   the minimum number of tokens before the end token
    prefix     for each sentence, the tokens that it must begin with; they override the other constraints
    """

    def __init__(
        self, end: int, shortest: int, forbidden: Sequence[int], prefix: Sequence[Sequence[int]] | None, longest: Tensor
    ) -> None:
        self.end, self.shortest, self.forbidden = end, shortest, tuple(forbidden)
        self._forced = self._table(prefix, longest) if prefix is not None else None
        self._forbidden = torch.tensor(self.forbidden, dtype=torch.long, device=longest.device)

    def _table(self, prefix: Sequence[Sequence[int]], longest: Tensor) -> Tensor:
        """The forced token of each sentence at each step, (N, L); −1 if there is none."""
        if len(prefix) != len(longest):
            raise InputError(f"there are {len(prefix)} prefixes for {len(longest)} sentences")
        for number, (tokens, most) in enumerate(zip(prefix, longest.tolist())):
            if len(tokens) > most:
                raise InputError(f"prefix {number + 1} has {len(tokens)} tokens, but at most {most} may be generated")
            if self.end in tokens:
                raise InputError(f"prefix {number + 1} holds the end token, after which nothing can come")
            if min(tokens, default=0) < 0:
                raise InputError(f"prefix {number + 1} holds {min(tokens)}, which is not a token")
        size = max(map(len, prefix), default=0)
        rows = [[*tokens, *[-1] * (size - len(tokens))] for tokens in prefix]
        return torch.tensor(rows, dtype=torch.long, device=longest.device).view(len(prefix), size)

    def forced(self, step: int, sentences: Tensor) -> Tensor | None:
        """The forced tokens (n,) of these sentences at this step (from 0); None if no sentence has one."""
        if self._forced is None or step >= self._forced.shape[1]:
            return None
        tokens = self._forced[sentences, step]
        return tokens if bool((tokens >= 0).any()) else None

    def forces(self, step: int, sentence: int) -> bool:
        """True if a token is forced for a sentence at this step."""
        table = self._forced
        return table is not None and step < table.shape[1] and int(table[sentence, step]) >= 0

    def allowed(self, log_probs: Tensor, step: int, sentences: Tensor) -> Tensor:
        """Log-probabilities (n·w, V) with −∞ for tokens that are not allowed; the same tensor if all are."""
        early, forced = self.end >= 0 and step < self.shortest, self.forced(step, sentences)
        if not self.forbidden and not early and forced is None:
            return log_probs
        result = log_probs.clone()
        if self.forbidden:
            result[:, self._forbidden] = NEG_INF
        if early:
            result[:, self.end] = NEG_INF
        if forced is not None:
            tokens = forced.repeat_interleave(len(log_probs) // len(sentences))
            rows = (tokens >= 0).nonzero()[:, 0]
            result[rows] = NEG_INF
            result[rows, tokens[rows]] = log_probs[rows, tokens[rows]]
        return result

    def reason(self, token: int, forced: bool) -> str:
        """Why a token was not allowed."""
        if forced:
            return "another token is forced"
        if token == self.end and token not in self.forbidden:
            return "too short to end"
        return "forbidden"

    def check(self, vocabulary: int) -> None:
        """Raise an error for tokens outside the vocabulary."""
        forced = [] if self._forced is None else self._forced[self._forced >= 0].tolist()
        for kind, tokens in (("forbidden", self.forbidden), ("forced", forced)):
            wrong = [token for token in tokens if not 0 <= token < vocabulary]
            if wrong:
                raise InputError(f"{kind} token {wrong[0]} is not in a vocabulary of {vocabulary}")
        if self.end >= vocabulary:
            raise InputError(f"the end token {self.end} is not in a vocabulary of {vocabulary}")
