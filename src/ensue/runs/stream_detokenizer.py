"""A text that grows by tokens, told piece by piece: what has been told is never taken back.

A token may be part of a letter, and the beginning of a stop word may turn out to be none; so the end of a text is held
back until it is certain.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ensue.data.tokenizers.protocol import Tokenizer

BROKEN = "\ufffd"
"""What bytes that are no letter yet are read as."""
OVERLAP = 8
"""Tokens of a prompt that its continuation is read with."""


SETTLES = 48
"""Tokens that are read no more once as many have followed."""


def added(tokenizer: Tokenizer, before: Sequence[int], token: int) -> str:
    """What a token adds to the text of those before it; its name where that is no text, or only part of a letter."""
    tail = [int(one) for one in before[-OVERLAP:]]
    whole, old = (tokenizer.decode(np.array(ids, dtype=np.int64)) if ids else "" for ids in ([*tail, token], tail))
    text = whole[len(old) :] if whole.startswith(old) else tokenizer.decode(np.array([token], dtype=np.int64))
    return text if text and BROKEN not in text else tokenizer.name(token)


class GrowingText:
    """What follows a prompt, up to the first stop word."""

    def __init__(self, tokenizer: Tokenizer, prompt: Sequence[int], stops: Sequence[str] = ()) -> None:
        self._tokenizer, self._stops = tokenizer, tuple(stop for stop in stops if stop)
        self._prompt = [int(token) for token in prompt[-OVERLAP:]]  # enough to know whether a space comes first
        self._before = tokenizer.decode(np.array(self._prompt, dtype=np.int64)) if self._prompt else ""
        self._tokens: list[int] = []
        self._settled = ""
        self.text = ""
        """All that has been told."""
        self.size = 0
        """Letters of all tokens, told or not."""
        self.stopped = False
        """Whether a stop word came."""

    def add(self, token: int) -> str:
        """What can be told after one more token; nothing after a stop word."""
        self._tokens.append(token)
        whole = self._whole()
        self.size = len(whole.rstrip(BROKEN))
        if len(self._tokens) >= 2 * SETTLES:
            self._settle(whole)
        return self._told(whole, final=False)

    def finish(self) -> str:
        """What was held back."""
        return self._told(self._whole(), final=True)

    def _whole(self) -> str:
        """The text of all tokens after the prompt."""
        text = self._tokenizer.decode(np.array(self._prompt + self._tokens, dtype=np.int64))
        if text.startswith(self._before):
            return self._settled + text[len(self._before) :]
        return self._settled + self._tokenizer.decode(np.array(self._tokens, dtype=np.int64))

    def _settle(self, whole: str) -> None:
        """Read the older tokens no more, where the text stays the same without them: else a long text is read again
        with every token."""
        before = (self._prompt, self._before, self._tokens, self._settled)
        old, new = self._tokens[:-SETTLES], self._tokens[-SETTLES:]
        self._tokens = old
        self._settled = self._whole()
        self._prompt = (self._prompt + old)[-OVERLAP:]
        self._before = self._tokenizer.decode(np.array(self._prompt, dtype=np.int64))
        self._tokens = new
        if self._whole() != whole:  # a letter lies over the cut: with the next token it is elsewhere
            self._prompt, self._before, self._tokens, self._settled = before

    def _told(self, whole: str, final: bool) -> str:
        """The part of ``whole`` that is certain and was not told yet."""
        if self.stopped:
            return ""
        sure = whole if final else whole.rstrip(BROKEN)
        places = [place for stop in self._stops if (place := sure.find(stop)) >= 0]
        if places:
            whole, self.stopped = whole[: min(places)], True
        elif not final:
            whole = whole[: len(whole) - self._uncertain(whole)]
        new = whole[len(self.text) :] if whole.startswith(self.text) else ""
        self.text += new
        return new

    def _uncertain(self, whole: str) -> int:
        """How many letters at the end may still change, or begin a stop word."""
        sure = whole.rstrip(BROKEN)
        begun = max(
            (size for stop in self._stops for size in range(1, len(stop)) if sure.endswith(stop[:size])), default=0
        )
        return len(whole) - len(sure) + begun
