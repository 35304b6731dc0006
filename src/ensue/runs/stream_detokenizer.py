"""Decode tokens to text piece by piece, such that a piece never changes once it is returned.

A token may be part of a character, and the start of a stop sequence may turn out to be none, so the end of a text is
held back until it is certain.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ensue.data.tokenizers.protocol import Tokenizer

BROKEN = "\ufffd"
"""The replacement character, for bytes that are not a character yet."""
OVERLAP = 8
"""Tokens of a prompt that its continuation is decoded with: enough to know whether it starts with a space."""
SETTLED = 48
"""Tokens before this number of newest ones are not decoded again."""


def decode_after(tokenizer: Tokenizer, before: Sequence[int], tokens: Sequence[int]) -> str:
    """The text that ``tokens`` add to the text of the tokens before them."""
    start, whole, alone = (np.array(ids, dtype=np.int64) for ids in (before, [*before, *tokens], tokens))
    old, text = tokenizer.decode(start), tokenizer.decode(whole)
    return text[len(old) :] if text.startswith(old) else tokenizer.decode(alone)


def added_text(tokenizer: Tokenizer, before: Sequence[int], token: int) -> str:
    """The text that a token adds to those before it; its name if that is no text, or only part of a character."""
    text = decode_after(tokenizer, before[-OVERLAP:], [token])
    return text if text and BROKEN not in text else tokenizer.name(token)


class StreamDetokenizer:
    """The text after a prompt, up to the first stop sequence."""

    def __init__(self, tokenizer: Tokenizer, prompt: Sequence[int], stops: Sequence[str] = ()) -> None:
        self._tokenizer, self._stops = tokenizer, tuple(stop for stop in stops if stop)
        self._prompt = [int(token) for token in prompt[-OVERLAP:]]
        self._tokens: list[int] = []
        self._settled = ""
        self.text = ""
        """The text returned so far."""
        self.size = 0
        """The number of characters of all tokens, returned or not."""
        self.stopped = False
        """True after a stop sequence."""

    def add(self, token: int) -> str:
        """Add a token and return the text that became certain; nothing after a stop sequence."""
        self._tokens.append(token)
        whole = self._whole()
        self.size = len(whole.rstrip(BROKEN))
        if len(self._tokens) >= 2 * SETTLED:
            self._settle(whole)
        return self._new_text(whole, final=False)

    def finish(self) -> str:
        """Return the text that was held back."""
        return self._new_text(self._whole(), final=True)

    def _whole(self) -> str:
        """The text of all tokens after the prompt."""
        return self._settled + decode_after(self._tokenizer, self._prompt, self._tokens)

    def _settle(self, whole: str) -> None:
        """Drop the older tokens if the text stays the same without them, so that not all is decoded at each token."""
        before = (self._prompt, self._tokens, self._settled)
        old, new = self._tokens[:-SETTLED], self._tokens[-SETTLED:]
        self._tokens = old
        self._settled = self._whole()
        self._prompt, self._tokens = (self._prompt + old)[-OVERLAP:], new
        if self._whole() != whole:  # a character spans the cut: with the next token it will be elsewhere
            self._prompt, self._tokens, self._settled = before

    def _new_text(self, whole: str, final: bool) -> str:
        """The part of ``whole`` that is certain and was not returned yet."""
        if self.stopped:
            return ""
        sure = whole if final else whole.rstrip(BROKEN)
        stops = [start for stop in self._stops if (start := sure.find(stop)) >= 0]
        if stops:
            whole, self.stopped = whole[: min(stops)], True
        elif not final:
            whole = sure[: len(sure) - self._started_stop(sure)]
        new = whole[len(self.text) :] if whole.startswith(self.text) else ""
        self.text += new
        return new

    def _started_stop(self, text: str) -> int:
        """The number of characters at the end of a text that may start a stop sequence."""
        sizes = (size for stop in self._stops for size in range(1, len(stop)) if text.endswith(stop[:size]))
        return max(sizes, default=0)
