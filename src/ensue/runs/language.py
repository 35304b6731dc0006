"""A run that is a language model."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
from torch import Tensor

from ensue.core.errors import InputError
from ensue.core.events import Report, silent
from ensue.data.sources import Source
from ensue.data.tokenizers.protocol import encode_utf8
from ensue.data.tokens import TokenizedText, tokenize, tokenize_text
from ensue.measure.language import LanguageScore, log_probs
from ensue.nn.recurrent import Recurrent
from ensue.runs.run import Run, Text
from ensue.search.sampling import Sample, Sampling, next_distribution, sample
from ensue.tasks.language_modelling import check_text, prompt_tokens, score_text, text_sources


class LanguageRun(Run):
    """A language model: it scores, goes on with a text, and says what comes next."""

    eighths = True

    @property
    def capabilities(self) -> tuple[str, ...]:
        """It goes on with a text if it reads forward; a recurrent network shows its states."""
        forward = self.model.traits.steps and self.direction == "forward"
        parts = self.model.modules() if hasattr(self.model, "modules") else ()
        recurrent = any(isinstance(part, Recurrent) for part in parts)
        return (*(("next", "write") if forward else ()), *(("inside",) if recurrent else ()))

    @property
    def loss_unit(self) -> str:
        """The unit of its loss."""
        return "nats per token"

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
        """A text as this run's tokens; ``columns`` says which column of a table holds it."""
        if text is not None:
            encode_utf8(text)
            found = tokenize_text(text, self.tokenizer)
        else:
            check_text(files)
            skip = self.settings.get("data.bad_lines") == "skip"
            found = tokenize(text_sources(files, columns, skip), self.tokenizer, field=field, report=report)
        if not found.bytes:
            raise InputError("the text is empty", hint="give some text")
        if self.direction == "backward":
            return replace(found, tokens=found.tokens[::-1])
        return found

    def score(
        self,
        *files: Source,
        text: str | None = None,
        field: str | None = None,
        columns: str = "",
        streams: int = 0,
        int8: bool = False,
        report: Report = silent,
    ) -> LanguageScore:
        """How well the model predicts files, or a text."""
        report("phase", {"name": "tokenising"})
        found = self.tokens(*files, text=text, field=field, columns=columns, report=report)
        report("phase", {"name": "scoring"})
        return score_text(self.reader(int8), found, streams, report)

    def per_token(
        self,
        *files: Source,
        text: str | None = None,
        field: str | None = None,
        columns: str = "",
        streams: int = 0,
        int8: bool = False,
    ) -> list[tuple[str, float]]:
        """Each token with its log-probability in nats, in the order of the text."""
        found = self.tokens(*files, text=text, field=field, columns=columns)
        values = log_probs(self.reader(int8), found.tokens, streams)
        pairs = [(self.tokenizer.name(int(token)), float(value)) for token, value in zip(found.tokens[1:], values)]
        return pairs if self.direction == "forward" else pairs[::-1]

    def generate(self, prompt: str = "", *, int8: bool = False, **how: Any) -> list[Text]:
        """Draw continuations of a prompt; see ``ensue.search.sampling.Sampling`` for how. All are kept."""
        self._needs_steps("write")
        ids = prompt_tokens(self.tokenizer, prompt, self.direction)
        end = None if self.tokenizer.lines else self.tokenizer.end
        drawn = sample(self.reader(int8), ids, Sampling(**how), end)
        return [Text(self._written(ids[1:].numpy(), one), one) for one in drawn]

    def _written(self, prompt: np.ndarray, one: Sample) -> str:
        """The text of a sample, so that prompt + text reads on."""
        ids = np.concatenate([prompt, np.array(one.tokens, dtype=np.int64)])
        if self.direction == "backward":
            return self.tokenizer.decode(ids[::-1])
        whole, before = self.tokenizer.decode(ids), self.tokenizer.decode(prompt)
        return whole[len(before) :] if whole.startswith(before) else self.tokenizer.decode(one.tokens)

    def next(self, text: str, top: int = 10) -> list[tuple[str, float]]:
        """The likeliest next tokens after a text, with their probabilities."""
        return [(name, p) for name, _, p in self.next_pieces(text, top)]

    def next_pieces(self, text: str, top: int = 10) -> list[tuple[str, str | None, float]]:
        """The same with what each adds to the text; None for marks, which add nothing."""
        self._needs_steps("say what comes next")
        ids = prompt_tokens(self.tokenizer, text, self.direction)
        p = next_distribution(self.model, ids)
        values, index = p.topk(min(top, len(p)))
        tokens = [int(one) for one in index]
        return [(self.tokenizer.name(one), self._added(ids, one), float(v)) for one, v in zip(tokens, values)]

    def _added(self, ids: Tensor, token: int) -> str | None:
        """What a token adds to the text of those before it."""
        tokenizer = self.tokenizer
        if token == tokenizer.unknown or (token == tokenizer.end and not tokenizer.lines):
            return None
        tail = ids[1:][-8:].numpy()
        return self._written(tail, Sample([token], [0.0], False))

    def _needs_steps(self, what: str) -> None:
        if not self.model.traits.steps:
            raise InputError(f"a {self.system} sees both sides of a word, so it cannot {what}", hint="use lstm or gpt")
