"""A run that was pre-trained to fill in spans of a text."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch

from ensue.core.errors import InputError
from ensue.core.events import Report, silent
from ensue.data.sources import Source
from ensue.data.tokenizers.sentinels import sentinels_of
from ensue.measure.spans import SpanScore
from ensue.runs.mask_filling import MASK, Filled
from ensue.runs.settings_resolution import resolve
from ensue.runs.translation import TranslationRun
from ensue.search.beam import Search, beam_search
from ensue.tasks.span_corruption import score_files

LONGEST_SPAN = 20
"""Tokens of a span that is filled in, at most."""


class SpanRun(TranslationRun):
    """An encoder–decoder that fills in what is left out of a text."""

    refused = {
        "text": "it is scored on files: name one",
        "columns": "it reads text, not pairs; --field names the field of a JSONL file",
        "per_token": "it sees both sides of a span, so a token has no cost of its own",
        "streams": "it reads rows, not a stream",
    }
    capabilities = ("fill",)

    @staticmethod
    def score_lines(score: Mapping[str, Any]) -> list[str]:
        """The loss and accuracy of tokens that were left out."""
        span, unigram = score["span_loss"], score["unigram_loss"]
        return [
            f"span loss {span:.4f} nats per token left out (unigram baseline: {unigram:.4f})",
            f"loss {score['loss']:.4f} nats per target token · accuracy {score['accuracy']:.1%}",
            f"{score['lost']:,} tokens left out of {score['rows']:,} rows",
        ]

    @classmethod
    def card_lines(cls, score: Mapping[str, Any]) -> list[str]:
        """The loss and accuracy of tokens that were left out."""
        return [
            f"| validation text | {score['lost']:,} tokens left out |",
            f"| span loss | {score['span_loss']:.4f} nats (guessing by frequency: {score['unigram_loss']:.4f}) |",
            f"| filled in correctly | {score['accuracy']:.1%} |",
        ]

    def score(self, *files: Source, field: str | None = None, report: Report = silent) -> SpanScore:  # type: ignore[override]
        """The loss and accuracy of spans that are left out of files."""
        self.check_files(files)
        train = resolve(self.system, layers=[self.settings]).train
        return score_files(train, self.model, self.tokenizer, files, field, report)

    def fill(
        self,
        text: str,
        *,
        top: int = 5,
        rounds: int = 0,
        seed: int = 0,
        temperature: float = 0.0,
        report: Report = silent,
    ) -> Filled:
        """Fill in every [MASK] of a text with a span, by beam search; ``top`` is the beam."""
        if rounds or temperature:
            raise InputError(f"{self.system} writes all spans at once", hint="leave out the other options")
        parts, sentinels = MASK.split(text), sentinels_of(self.tokenizer)
        if not 1 < len(parts) <= len(sentinels) + 1:
            what = f"{len(parts) - 1} masks" if len(parts) > 1 else "there is no [MASK] in this text"
            raise InputError(what, hint=f"write 1 to {len(sentinels)} [MASK] where something is missing")
        source = [token for n, part in enumerate(parts) for token in (*sentinels[n - 1 : n], *self._encoded(part))]
        limit = self.model.config.context
        if len(source) >= limit:
            raise InputError(f"a text of {len(source)} tokens", hint=f"the model reads at most {limit - 1}")
        spans = self._spans(source, sentinels[: len(parts) - 1], max(1, top))
        chosen = [" ".join(self.tokenizer.decode(span).split()) for span in spans]
        whole = parts[0] + "".join(span + part for span, part in zip(chosen, parts[1:], strict=True))
        return Filled(whole, [], chosen, [])

    def _encoded(self, part: str) -> Sequence[int]:
        """A part of a text; what is between two masks and empty has no tokens."""
        tokens: list[int] = self.tokenizer.encode(part.rstrip()).tolist() if part.strip() else []
        return tokens

    def _spans(self, source: list[int], sentinels: list[int], beam: int) -> list[list[int]]:
        """What the model writes after each sentinel."""
        end, longest = self.tokenizer.end, 1 + len(sentinels) * (LONGEST_SPAN + 1)
        with torch.no_grad():
            state = self.model.eval().start(torch.tensor([[*source, end]]))
            how = Search(beam=beam)
            (found,) = beam_search(
                self.model, state, self.model.first(end), end=end, longest=torch.tensor([longest]), how=how
            )
        spans: dict[int, list[int]] = {sentinel: [] for sentinel in sentinels}
        current: list[int] = []
        for token in found.best.tokens:
            if token in spans:
                current = spans[token]
            else:
                current.append(token)
        return list(spans.values())
