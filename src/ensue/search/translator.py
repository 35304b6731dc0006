"""Translate lines of text with a model, in batches of similar lengths.

Each line gives one line; an empty line stays empty. A line that is too long for the model is cut, or split at the ends
of sentences and translated part by part.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from ensue.core.errors import InputError
from ensue.core.events import Report, silent
from ensue.data.tokenizers.protocol import Tokenizer
from ensue.search.beam import Search, beam_search
from ensue.search.hypotheses import Hypothesis, SearchResult

BATCH_TOKENS = 3000
"""Source tokens of a batch, with padding and for each hypothesis."""
SLACK = 20
"""A translation has at most twice as many tokens as its source, and these more."""
_ENDS = tuple(map(re.compile, (r"(?<=[.!?;:])\s+|(?<=[。！？；])", r"(?<=,)\s+|(?<=[，、])", r"\s+")))
"""Where a line may be split: after sentences, after commas, between words; "3.14" has no end of a sentence."""
_BREAKS = re.compile(r"\s*[\r\n]+\s*")


@dataclass(frozen=True)
class Translation:
    """A line, its translation, and the results of the search."""

    source: str
    text: str
    best: list[tuple[str, Hypothesis]]
    """The n best, best first; empty if the line is empty or was split."""
    results: tuple[SearchResult, ...] = ()
    """One for each part of the line."""

    @property
    def log_prob(self) -> float:
        """log P of the translation, the sum over its parts."""
        return sum(part.best.log_prob for part in self.results)

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        best = [
            {"text": text, "score": one.score, "log_prob": one.log_prob, "ended": one.ended} for text, one in self.best
        ]
        return {"source": self.source, "text": self.text, "log_prob": self.log_prob, "nbest": best}


class Translator:
    """A model, or an ensemble, with a source and a target tokenizer."""

    def __init__(
        self, model: Any, source_tokenizer: Tokenizer, tokenizer: Tokenizer, longest: int = 0, prefix: str = ""
    ) -> None:
        """``prefix`` is put before every source that does not begin with it."""
        self.model, self.source_tokenizer, self.tokenizer = model, source_tokenizer, tokenizer
        self.longest: int = longest or model.config.context
        self.prefix = prefix
        begin = getattr(getattr(model, "models", (model,))[0], "first", None)  # of an ensemble its first member's
        self.first: int = tokenizer.end if begin is None else begin(tokenizer.end)
        """The token before a translation's first."""

    def translate(
        self,
        lines: Sequence[str],
        how: Search,
        *,
        long: str = "cut",
        trace: bool = False,
        attention: bool = False,
        replace_unknown: bool = False,
        prefix: str = "",
        most: int = 0,
        notes: list[str] | None = None,
        first: int = 1,
        report: Report = silent,
    ) -> list[Translation]:
        """Translate lines.

        long    what to do with a line that is too long: cut or split
        prefix  a forced start of every translation
        most    the most tokens of a translation; 0 means twice those of its source and some more
        notes   gets a note for each line that is cut or split
        first   the number of the first line, for notes
        """
        if replace_unknown and (self.tokenizer.kind != "word" or self.source_tokenizer.kind != "word"):
            raise InputError("unknown words are replaced by words", hint="only a model of --tokenizer word has them")
        parts: list[tuple[int, str, np.ndarray]] = []
        for number, line in enumerate(lines):
            parts += [(number, text, ids) for text, ids in self._parts(line, first + number, long, notes)]
        forced = self.tokenizer.encode(prefix).tolist()
        starts = [not i or parts[i - 1][0] != number for i, (number, _, _) in enumerate(parts)]  # the first of a line
        results = self._search(
            [ids for _, _, ids in parts],
            how,
            prefixes=[forced if start else [] for start in starts] if forced else None,
            most=most or self.longest,
            trace=trace,
            attention=attention or replace_unknown,
            report=report,
        )
        by_line: list[list[tuple[str, SearchResult]]] = [[] for _ in lines]
        for (number, text, _), result in zip(parts, results):
            by_line[number].append((text, result))
        return [self._joined(line, own, replace_unknown) for line, own in zip(lines, by_line)]

    def _parts(self, line: str, number: int, long: str, notes: list[str] | None) -> Iterator[tuple[str, np.ndarray]]:
        """Yield the parts of a line: none if it is empty, several if it is too long and split."""
        text = _BREAKS.sub(" ", line.strip())
        if not text:
            return
        ids = self.encode(text)
        if len(ids) <= self.longest:
            yield text, ids
            return
        if notes is not None:
            done = "split" if long == "split" else "cut"
            notes.append(f"line {number} has {len(ids):,} tokens, more than the model's {self.longest:,}: {done}")
        if long == "split":
            for part in self._split(text):
                yield part, self._cut(self.encode(part))
        else:
            yield text, self._cut(ids)

    def encode(self, text: str) -> np.ndarray:
        """Return the tokens of a source, with the end token."""
        text = text if text.startswith(self.prefix) else self.prefix + text
        return np.concatenate([self.source_tokenizer.encode(text), [self.source_tokenizer.end]]).astype(np.int64)

    def _cut(self, ids: np.ndarray) -> np.ndarray:
        """Return as much of a source as the model can read, with the end token."""
        return ids if len(ids) <= self.longest else np.concatenate([ids[: self.longest - 1], ids[-1:]])

    def _split(self, text: str) -> Iterator[str]:
        """Yield parts that fit, cut after a sentence, else after a comma, else between words, else anywhere."""
        while (room := self._room(text)) < len(text):
            at = room
            for ends, least in zip(_ENDS, (room // 3, room // 3, 0)):  # no very short parts
                cuts = [match.start() for match in ends.finditer(text, 0, room + 1) if match.start() <= room]
                if cuts and cuts[-1] > least:
                    at = cuts[-1]
                    break
            yield text[:at].strip()
            text = text[at:].strip()
        if text:
            yield text

    def _room(self, text: str) -> int:
        """Return how many characters of a text the model can read; at least one."""

        def fits(size: int) -> bool:
            return len(self.encode(text[:size])) <= self.longest

        low, high = 1, self.longest  # a token is rarely less than a character
        while high < len(text) and fits(high):
            low, high = high, 2 * high
        if high >= len(text):
            high = len(text)
            if fits(high):
                return high
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (middle, high) if fits(middle) else (low, middle)
        return low

    def _search(
        self,
        sources: list[np.ndarray],
        how: Search,
        *,
        prefixes: list[list[int]] | None,
        most: int,
        trace: bool,
        attention: bool,
        report: Report,
    ) -> list[SearchResult]:
        """Return the result of the search for every source, in batches of similar lengths."""
        results: dict[int, SearchResult] = {}
        first = getattr(self.model, "models", (self.model,))[0]  # of an ensemble
        device = next(first.parameters()).device
        for chosen in _batches([len(ids) for ids in sources], max(1, BATCH_TOKENS // how.beam)):
            lengths = torch.tensor([len(sources[i]) for i in chosen], device=device)
            block = torch.zeros(len(chosen), int(lengths.max()), dtype=torch.long)
            for row, i in enumerate(chosen):
                block[row, : len(sources[i])] = torch.from_numpy(sources[i])
            with torch.no_grad():
                state = self.model.start(block.to(device), lengths)
            found = beam_search(
                self.model,
                state,
                self.first,
                end=self.tokenizer.end,
                longest=(2 * lengths + SLACK).clamp(min=how.shortest + 1).clamp(max=min(self.longest, most)),
                how=how,
                prefix=[prefixes[i] for i in chosen] if prefixes else None,
                trace=trace,
                attention=attention,
            )
            results.update(zip(chosen, found))
            report("progress", {"done": len(results), "total": len(sources)})
        return [results[i] for i in range(len(sources))]

    def _joined(self, line: str, parts: list[tuple[str, SearchResult]], replace_unknown: bool) -> Translation:
        """Return the translation of a line, joined from its parts."""
        if not parts:
            return Translation(line, "", [])
        texts = [[self._text(h, text, replace_unknown) for h in one.hypotheses] for text, one in parts]
        whole = " ".join(best[0] for best in texts if best[0])
        best = list(zip(texts[0], parts[0][1].hypotheses)) if len(parts) == 1 else []
        return Translation(line, whole, best, tuple(one for _, one in parts))

    def _text(self, hypothesis: Hypothesis, source: str, replace_unknown: bool) -> str:
        """Return a hypothesis as text; unknown words become the source words they attend to (Luong et al., 2015)."""
        if not replace_unknown:
            return _BREAKS.sub(" ", self.tokenizer.decode(hypothesis.tokens).strip())
        if hypothesis.attention is None:
            what = "unknown words are replaced by the words that they attend to, and this model has no attention"
            raise InputError(what, hint="leave out --replace-unknown")
        words = source.split()
        attended = hypothesis.attention[:, : len(words)].argmax(-1).tolist()
        return " ".join(
            words[i] if token == self.tokenizer.unknown else self.tokenizer.name(token)
            for token, i in zip(hypothesis.tokens, attended)
        )


def _batches(lengths: list[int], tokens: int) -> Iterator[list[int]]:
    """Yield batches of indices, longest first, with rows × longest ≤ tokens; at least one row."""
    order = sorted(range(len(lengths)), key=lambda i: -lengths[i])
    while order:
        count = max(1, tokens // max(1, lengths[order[0]]))
        yield order[:count]
        order = order[count:]
