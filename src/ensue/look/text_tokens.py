"""The tokens of a text as views of gradients and gates read them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ensue.core.errors import InputError
from ensue.look.runs import language_run
from ensue.runs.language import LanguageRun
from ensue.runs.run import Run

MAX_TOKENS = 128
"""Longer texts are cut."""


def language_runs(runs: Sequence[Run], text: str) -> list[LanguageRun]:
    """Runs of language models, checked together with the text to show them on."""
    if not runs:
        raise InputError("of which run?", hint="name one or more")
    if not text.strip():
        raise InputError("gradients and gates are shown on a text", hint='give it with --text "…"')
    return [language_run(run) for run in runs]


def first_tokens(run: LanguageRun, text: str) -> tuple[np.ndarray, int]:
    """The end token and the first tokens of a text, up to the context; and the number of tokens in the text."""
    tokens = run.tokens(text=text).tokens.astype(np.int64)
    context = run.model.traits.context
    return tokens[: 1 + min(MAX_TOKENS, context or MAX_TOKENS)], len(tokens) - 1
