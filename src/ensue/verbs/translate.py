"""``ensue translate``: translate lines as they come; on request record the search of one line."""

from __future__ import annotations

import difflib
import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from os import PathLike
from pathlib import Path
from typing import Any

from ensue.core.errors import InputError
from ensue.core.events import Report, silent
from ensue.core.files import write_text
from ensue.data.lines import line_blocks
from ensue.data.tokenizers.protocol import Tokenizer, printable
from ensue.look.tree_page import tree_html
from ensue.look.tree_text import tree_text
from ensue.runs.load import load
from ensue.runs.run import Run
from ensue.runs.translation import TranslationRun
from ensue.search.beam import Search
from ensue.search.translator import Translation

BLOCK_LINES = 2000
"""Lines translated at a time, so that a long file is answered before it is read to the end."""
TRACE_FORMATS: dict[str, Callable[[dict[str, Any]], str]] = {
    ".html": tree_html,
    ".json": lambda trace: json.dumps(trace, ensure_ascii=False, indent=1) + "\n",
    ".txt": lambda trace: "\n".join(tree_text(trace)) + "\n",
}
"""The text of a trace, by the suffix of its file."""


def translate(
    run: Run,
    file: str | Path = "-",
    *,
    texts: Sequence[str] = (),
    search: Search | None = None,
    forbid: Sequence[str] = (),
    ensemble: Sequence[str | PathLike[str]] = (),
    int8: bool = False,
    trace: Path | None = None,
    report: Report = silent,
    **options: Any,
) -> Iterator[tuple[list[Translation], list[str]]]:
    """Translate ``texts``, or the lines of a file or of standard input ("-"), block by block.

    Each block is its translations and the notes on lines that were cut or split. ``forbid`` names tokens that no
    translation contains; ``trace`` writes the search of a single line to a file. See ``Translator.translate`` for
    ``options``.
    """
    if trace is not None and trace.suffix not in TRACE_FORMATS:
        raise InputError(f"{trace.name!r} is not a format for a trace", hint=f"use {', '.join(TRACE_FORMATS)}")
    if not isinstance(run, TranslationRun):
        raise run.cannot("translate")
    others = [load(path) for path in ensemble]
    search = replace(search or Search(), forbidden=named_tokens(run.tokenizer, forbid))
    translator, done = run.translator(others, int8), 0
    for lines in [list(texts)] if texts else line_blocks(file, BLOCK_LINES):
        if trace is not None and done + len(lines) > 1:
            raise InputError("--trace takes one line", hint="give it with --text")
        notes: list[str] = []
        translations = translator.translate(
            lines, search, trace=trace is not None, notes=notes, first=done + 1, report=report, **options
        )
        done += len(lines)
        if trace is not None and translations:
            write_text(trace, TRACE_FORMATS[trace.suffix](trace_of(translations[0], run.tokenizer, search)))
        yield translations, notes
    if trace is not None and not done:
        raise InputError("there is no line to trace", hint="give one with --text")


def trace_of(translation: Translation, tokenizer: Tokenizer, search: Search) -> dict[str, Any]:
    """The search of a translation as plain data: every expansion, with parent, token, log-probability and fate."""
    if not translation.results:
        raise InputError("an empty line has nothing to search", hint="give some text")
    if len(translation.results) > 1:
        raise InputError("the line was split, and a trace is of one search", hint="give a shorter line")
    trace = translation.results[0].trace
    assert trace is not None
    return {**trace.as_dict(tokenizer.name), "source": translation.source, "alpha": search.alpha}


def named_tokens(tokenizer: Tokenizer, names: Sequence[str]) -> tuple[int, ...]:
    """The ids of tokens by their names in traces; a space may be typed for ␣."""
    if not names:
        return ()
    known: dict[str, list[int]] = {}
    for token in range(tokenizer.size):
        known.setdefault(tokenizer.name(token), []).append(token)
    tokens: list[int] = []
    for name in names:
        if (ids := known.get(name) or known.get(printable(name))) is None:
            near = difflib.get_close_matches(printable(name), known, n=1, cutoff=0.5)
            hint = f"did you mean {near[0]!r}?" if near else "use a name from a trace"
            raise InputError(f"there is no token {name!r}", hint=hint)
        tokens += ids
    return tuple(tokens)
