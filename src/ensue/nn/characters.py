"""Word vectors from characters: convolutions, max pooling over time, highway layers, a projection.

    c_i = E_c letter_i                                   i = 0 … n + 1, with tokens for the word's begin and end
    y_f = max_i (w_f · [c_i; …; c_{i+k−1}] + b_f)         for each filter f of width k = 1 … 7 (Kim et al., 2016)
    z = relu(y),  z ← t ∘ relu(W z + b) + (1 − t) ∘ z,  t = σ(W_t z + b_t)          highways (Srivastava et al., 2015)
    x = W_p z + b_p

Windows may extend past a word's end, where letters are zero, but do not start there, so padding changes nothing. Each
distinct word of a batch is computed once.

Legend: B rows, T tokens, U different words, C letters, D width.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn

PAD, BEGIN, END = 0, 257, 258
ALPHABET = 259
"""Padding, 256 bytes (byte b is b + 1), begin and end of word."""

COUNTED = 8
"""Assumed letters per word when only operations are counted."""


def digits(token: int) -> bytes:
    """Spell a token without a word by the digits of its id."""
    return str(token).encode()


class Spelling:
    """Cache of the letters of tokens, as ids; shared by copies of a model."""

    def __init__(self, letters: Callable[[int], bytes] = digits, longest: int = 50) -> None:
        """``letters`` returns a token's word in UTF-8, of which at most ``longest`` bytes are used."""
        self._letters, self._longest = letters, longest
        self._codes = torch.zeros(0, longest + 2, dtype=torch.int16)
        self._lengths = torch.zeros(0, dtype=torch.long)

    def __deepcopy__(self, memo: Any) -> Spelling:
        return self

    def of(self, tokens: Tensor) -> tuple[Tensor, Tensor]:
        """Return the letters (U, C) of tokens (U,), and their numbers of letters (U,)."""
        ids = tokens.cpu()
        self._learn(ids)
        lengths = self._lengths[ids]
        longest = int(lengths.max()) if len(lengths) else 1
        return self._codes[ids, :longest].long().to(tokens.device), lengths.to(tokens.device)

    def _learn(self, ids: Tensor) -> None:
        """Add tokens that are not cached yet."""
        most = int(ids.max()) + 1 if len(ids) else 0
        if most > len(self._lengths):
            more = max(most, 2 * len(self._lengths)) - len(self._lengths)
            self._codes = torch.cat([self._codes, self._codes.new_zeros(more, self._longest + 2)])
            self._lengths = torch.cat([self._lengths, self._lengths.new_zeros(more)])
        for token in ids[self._lengths[ids] == 0].tolist():
            codes = [BEGIN, *(byte + 1 for byte in self._letters(token)[: self._longest]), END]
            self._codes[token, : len(codes)] = torch.tensor(codes, dtype=torch.int16)
            self._lengths[token] = len(codes)


class Highway(nn.Module):
    """Highway layer t ∘ relu(W z + b) + (1 − t) ∘ z, initialised near the identity."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.change = nn.Linear(width, width)
        self.gate = nn.Linear(width, width)
        nn.init.constant_(self.gate.bias, -2.0)

    def forward(self, z: Tensor) -> Tensor:
        """(…, D) → (…, D)."""
        return z.lerp(torch.relu(self.change(z)), torch.sigmoid(self.gate(z)))


class CharacterWords(nn.Module):
    """x = W_p highway(relu(max over time of convolutions of letters))."""

    def __init__(self, filters: Sequence[int], letter: int, width: int, highways: int = 1, longest: int = 50) -> None:
        """``filters`` are the numbers of filters of width 1, 2, …; ``letter`` is the character embedding size."""
        super().__init__()
        self.longest = longest
        self.spelling = Spelling(longest=longest)
        self.letters = nn.Embedding(ALPHABET, letter, padding_idx=PAD)
        self.filters = nn.ModuleList(
            nn.Conv1d(letter, count, size) for size, count in enumerate(filters, start=1) if count
        )
        self.highways = nn.Sequential(*(Highway(sum(filters)) for _ in range(highways)))
        self.project = nn.Linear(sum(filters), width)
        self.width = width

    def acquaint(self, letters: Callable[[int], bytes]) -> None:
        """Set the spelling of tokens."""
        self.spelling = Spelling(letters, self.longest)

    def forward(self, tokens: Tensor) -> Tensor:
        """Return word vectors (B, T, D) of tokens (B, T)."""
        if tokens.is_meta:  # operations are counted: assume distinct words
            letters = tokens.new_zeros(tokens.numel(), COUNTED)
            return self.words(letters, letters.sum(1)).view(*tokens.shape, self.width)
        different, index = torch.unique(tokens, return_inverse=True)
        x: Tensor = self.words(*self.spelling.of(different))
        return x[index]

    def words(self, letters: Tensor, lengths: Tensor) -> Tensor:
        """Return vectors (U, D) of words with letters (U, C) and lengths (U,)."""
        c = (self.letters(letters) * (letters != PAD)[..., None]).transpose(1, 2)
        beyond = torch.arange(letters.shape[1], device=letters.device) >= lengths[:, None]
        z = self.highways(torch.cat([torch.relu(_largest(one, c, beyond)) for one in self.filters], dim=-1))
        x: Tensor = self.project(z)
        return x


def _largest(filters: nn.Module, c: Tensor, beyond: Tensor) -> Tensor:
    """Max pooling of each filter over windows that start inside the word, (U, letter, C) → (U, filters)."""
    size: int = filters.kernel_size[0]  # type: ignore[index, assignment]
    y: Tensor = filters(nn.functional.pad(c, (0, size - 1)))
    return y.masked_fill(beyond[:, None], float("-inf")).amax(-1)
