"""A run that is a language model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from torch import Tensor

from ensue.core.errors import InputError
from ensue.core.events import Report, silent
from ensue.core.notes import note_once
from ensue.data.sources import Source
from ensue.data.tokenizers.protocol import encode_utf8
from ensue.data.tokens import TokenizedText, tokenize, tokenize_text
from ensue.measure.language import LanguageScore, log_probs
from ensue.nn.recurrent import Recurrent
from ensue.runs.chat import stop_tokens
from ensue.runs.run import Run, Text
from ensue.runs.stream_detokenizer import OVERLAP, decode_after
from ensue.search.sampling import Sampling, next_distribution, sample
from ensue.tasks.language_modelling import check_text, prompt_tokens, score_text, text_sources


class LanguageRun(Run):
    """A language model: it scores and generates text, and predicts the next token."""

    supports_int8 = True
    loss_unit = "nats per token"

    @property
    def capabilities(self) -> tuple[str, ...]:
        """It generates text if it reads forward; a recurrent network shows its states."""
        forward = self.model.traits.steps and self.direction == "forward"
        modules = self.model.modules() if hasattr(self.model, "modules") else ()
        recurrent = any(isinstance(module, Recurrent) for module in modules)
        return (*(("next", "write") if forward else ()), *(("inside",) if recurrent else ()))

    @staticmethod
    def score_lines(score: Mapping[str, Any]) -> list[str]:
        """Bits per byte, perplexities, and the size of the text."""
        per, bits = score["perplexity"], score["bits_per_byte"]
        shown = "pseudo-likelihood" if bits is None else f"{bits:.4f} bits per byte"
        perplexity = f"{per['token']:.2f} per token, {per['word']:.2f} per word, {per['byte']:.4f} per byte"
        sizes = ", ".join(f"{score[name]:,} {name}" for name in ("tokens", "words", "bytes", "unknown"))
        return [f"{shown} · perplexity {perplexity}", sizes]

    @classmethod
    def card_lines(cls, score: Mapping[str, Any]) -> list[str]:
        """Bits per byte and perplexities."""
        bits = score["bits_per_byte"]
        return [
            f"| validation text | {score['tokens']:,} tokens, {score['bytes']:,} bytes, {score['unknown']:,} unknown |",
            f"| bits per byte | {bits:.4f} |" if bits is not None else "| pseudo-likelihood | |",
            f"| perplexity per token | {score['perplexity']['token']:.2f} |",
            f"| perplexity per word | {score['perplexity']['word']:.2f} |",
        ]

    def tokens(
        self,
        *files: Source,
        text: str | None = None,
        field: str | None = None,
        columns: str = "",
        report: Report = silent,
    ) -> TokenizedText:
        """Files, or a text, as this run's tokens; ``columns`` names the column of a table, ``field`` that of JSONL."""
        if text is not None:
            encode_utf8(text)
            tokenized = tokenize_text(text, self.tokenizer)
        else:
            check_text(files)
            skip = self.settings.get("data.bad_lines") == "skip"
            tokenized = tokenize(text_sources(files, columns, skip), self.tokenizer, field=field, report=report)
        if not tokenized.bytes:
            raise InputError("the text is empty", hint="give some text")
        return tokenized if self.direction == "forward" else replace(tokenized, tokens=tokenized.tokens[::-1])

    def score(
        self, *files: Source, streams: int = 0, int8: bool = False, report: Report = silent, **source: Any
    ) -> LanguageScore:
        """Bits per byte and perplexity of files, or of a text; see ``tokens`` for ``source``."""
        report("phase", {"name": "tokenising"})
        tokenized = self.tokens(*files, report=report, **source)
        report("phase", {"name": "scoring"})
        return score_text(self.model_for(int8), tokenized, streams, report)

    def per_token(self, *files: Source, streams: int = 0, int8: bool = False, **source: Any) -> list[tuple[str, float]]:
        """Each token with its log-probability in nats, in the order of the text; see ``tokens`` for ``source``."""
        tokens = self.tokens(*files, **source).tokens
        values = log_probs(self.model_for(int8), tokens, streams)
        pairs = [(self.tokenizer.name(int(token)), float(value)) for token, value in zip(tokens[1:], values)]
        return pairs if self.direction == "forward" else pairs[::-1]

    def generate(self, prompt: str = "", *, int8: bool = False, **options: Any) -> list[Text]:
        """Sample continuations of a prompt; ``options`` are those of ``ensue.search.sampling.Sampling``."""
        self._check_steps("generate text")
        ids = prompt_tokens(self.tokenizer, prompt, self.direction)
        context = self.model.traits.context
        if getattr(self.model, "slides", False) and context and len(ids) > context:
            seen = f"{context // 2:,} to {context:,}"
            note_once(f"the prompt has {len(ids):,} tokens; the model sees the last {seen}")
        samples = sample(self.model_for(int8), ids, Sampling(**options), stop_tokens(self))
        return [Text(self._decode(ids[1:].tolist(), one.tokens), one) for one in samples]

    def _decode(self, prompt: list[int], tokens: Sequence[int]) -> str:
        """The text of tokens after a prompt; of a backward model, with the prompt that ends it."""
        if self.direction == "backward":
            return self.tokenizer.decode(np.array([*prompt, *tokens], dtype=np.int64)[::-1])
        return decode_after(self.tokenizer, prompt, tokens)

    def next(self, text: str, top: int = 10) -> list[tuple[str, float]]:
        """The most likely next tokens after a text, with their probabilities."""
        return [(name, p) for name, _, p in self.next_pieces(text, top)]

    def next_pieces(self, text: str, top: int = 10) -> list[tuple[str, str | None, float]]:
        """The most likely next tokens: name, the text that each adds (None for special tokens), and probability."""
        self._check_steps("predict the next token")
        ids = prompt_tokens(self.tokenizer, text, self.direction)
        p = next_distribution(self.model, ids)
        values, index = p.topk(min(top, len(p)))
        return [
            (self.tokenizer.name(token), self._added_text(ids, token), value)
            for token, value in zip(index.tolist(), values.tolist())
        ]

    def _added_text(self, ids: Tensor, token: int) -> str | None:
        """What a token adds to the text of those before it."""
        tokenizer = self.tokenizer
        if token == tokenizer.unknown or (token == tokenizer.end and not tokenizer.lines):
            return None
        return self._decode(ids[1:][-OVERLAP:].tolist(), [token])

    def _check_steps(self, action: str) -> None:
        if not self.model.traits.steps:
            what = f"a {self.system} sees both sides of a word, so it cannot {action}"
            raise InputError(what, hint="use lstm or gpt")
