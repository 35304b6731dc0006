"""Ask a language model: log-likelihoods of continuations of texts, and greedy answers.

Tokens are those of lm-evaluation-harness. Context and continuation are encoded together, and what follows the context's
own tokens is the continuation; spaces at the end of a context belong to the continuation. A published model reads first
what its own tokenizer puts before a text; if that is nothing, its first token only before an empty text. A model that
was trained here reads the first token of its training text.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence
from typing import Any, NamedTuple

from ensue.core.errors import InputError
from ensue.core.events import Report, silent
from ensue.data.chat_template import ChatTemplate, Message
from ensue.data.tokenizers.protocol import first_token
from ensue.measure.continuations import ContinuationScore, Request, Tokens, continuation_scores, window_size
from ensue.runs.chat import CHAT, chat_template
from ensue.runs.completions import complete
from ensue.runs.language import LanguageRun
from ensue.runs.run import Run
from ensue.search.sampling import Sampling

BATCH = 32
"""Answers that are written at once."""
NATS = math.log(2)


class Question(NamedTuple):
    """A context and its continuation; questions of a group may begin with the same text."""

    context: str
    continuation: str
    group: Hashable = None


def check_prompts(run: Run, chat: bool = False) -> ChatTemplate | None:
    """Raise InputError if a run cannot continue a text; with ``chat`` return its chat template."""
    if not isinstance(run, LanguageRun) or "write" not in run.capabilities:
        what = f"{run.system} cannot continue a text"
        raise InputError(what, where=str(run.folder.path), hint="use a language model that reads forward, such as gpt")
    return chat_template(run) if chat else None


class Prompter:
    """Asks one run; with ``chat`` a context is a message of the user."""

    def __init__(self, run: Run, *, chat: bool = False, int8: bool = False) -> None:
        self.template = check_prompts(run, chat)
        self.run, self.tokenizer, self.int8, self.model = run, run.tokenizer, int8, run.model_for(int8)
        described = run.config.get(CHAT) or {}
        named = getattr(run.tokenizer, "named", {})
        self.first: int = named.get(described.get("begin", ""), run.tokenizer.end)
        """The token before an empty context."""
        published, begin = run.config.get("figures", {}).get("stopped") == "converted", first_token(run.tokenizer)
        self.begin: Tokens = () if published and begin == run.tokenizer.end else (begin,)
        """What is read before every text."""

    def encode(self, text: str) -> Tokens:
        """The tokens of a text."""
        return tuple(self.tokenizer.encode(text).tolist())

    def context(self, text: str) -> Tokens:
        """The tokens of a context, one or more."""
        if self.template is not None:
            return tuple(self.template.tokens([Message("user", text)]).tolist())
        tokens = self.begin + self.encode(text)
        return tokens or (self.first,)

    def request(self, question: Question) -> Request:
        """The tokens of a context and its continuation."""
        context, continuation = question.context, question.continuation
        if self.template is not None:
            return Request(self.context(context), self._some(self.encode(continuation.lstrip())), question.group)
        kept = context.rstrip()
        continuation, context = context[len(kept) :] + continuation, kept
        if not context:
            return Request(self.begin or (self.first,), self._some(self.encode(continuation)), question.group)
        before, whole = self.encode(context), self.encode(context + continuation)
        after = whole[len(before) :] or self.encode(continuation)  # where they merge into one token
        return Request(self.begin + before, self._some(after), question.group)

    @staticmethod
    def _some(tokens: Tokens) -> Tokens:
        if not tokens:
            raise InputError("an option has no text", hint="every option needs at least one character")
        return tokens

    def log_probs(
        self, questions: Sequence[Question], *, greedy: bool = False, report: Report = silent
    ) -> list[ContinuationScore]:
        """log P of each continuation in nats, with the surcharge of what the tokenizer loses of it."""
        scores = continuation_scores(self.model, [self.request(one) for one in questions], greedy=greedy, report=report)
        lost = [self._surcharge(one) for one in questions]
        return [
            ContinuationScore(score.log_prob - nats, score.greedy, score.cut) if nats else score
            for score, nats in zip(scores, lost)
        ]

    def _surcharge(self, question: Question) -> float:
        """The nats of a continuation that its tokens do not encode, such as the spelling of unknown words."""
        if self.tokenizer.unknown is None:
            return 0.0
        context, whole = question.context, question.context + question.continuation
        before = self.tokenizer.surcharge(context, True, False)[0] if context else 0.0
        return NATS * (self.tokenizer.surcharge(whole, True, False)[0] - before)

    def answers(
        self,
        contexts: Sequence[tuple[str, Hashable]],
        *,
        stop: Sequence[str] = (),
        max_tokens: int = 32,
        report: Report = silent,
    ) -> list[str]:
        """Greedy answers to contexts, which may be in groups that begin with the same text; each is asked once.

        An answer ends at a stop sequence, an end token, or after ``max_tokens``.
        """
        size = window_size(self.model)
        room = None if size is None else max(1, size - max_tokens)
        asked = [(group, self.context(text)[-room:] if room else self.context(text)) for text, group in contexts]
        groups: dict[Hashable, dict[Tokens, str]] = {}
        for group, tokens in asked:
            groups.setdefault(group, {})[tokens] = ""
        total, done = sum(map(len, groups.values())), 0
        how = Sampling(tokens=max_tokens, temperature=0.0)
        for prompts in groups.values():

            def progress(kind: str, values: dict[str, Any], before: int = done) -> None:
                report(kind, {**values, "done": before + values["done"], "total": total})

            options: dict[str, Any] = {"stops": stop, "batch": BATCH, "int8": self.int8, "report": progress}
            written = complete(self.run, list(prompts), how, **options)
            prompts.update(zip(prompts, (one.text for (one,) in written)))
            done += len(prompts)
        return [groups[group][tokens] for group, tokens in asked]
