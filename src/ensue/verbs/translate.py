"""``ensue translate --trace``: the search of one line, as data, as a tree in text, or as a page."""

from __future__ import annotations

import difflib
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ensue.core.errors import InputError
from ensue.core.files import write_text
from ensue.data.tokenizers.protocol import Tokenizer, printable
from ensue.look.tree_page import tree_html
from ensue.look.tree_text import tree_text
from ensue.search.beam import Search
from ensue.tasks.translator import Translation

ENDINGS = (".html", ".json", ".txt")


def trace_of(translation: Translation, tokenizer: Tokenizer, search: Search) -> dict[str, Any]:
    """The search of a translation as plain data: every expansion, with parent, token, log-probability and fate."""
    if not translation.found:
        raise InputError("an empty line has nothing to search", hint="give some text")
    if len(translation.found) > 1:
        raise InputError("the line was split, and a trace is of one search", hint="give a shorter line")
    trace = translation.found[0].trace
    assert trace is not None
    return {**trace.as_dict(tokenizer.name), "source": translation.source, "alpha": search.alpha}


def check_ending(path: Path) -> None:
    """Refuse a file name that does not say what to write, before anything is searched."""
    if path.suffix not in ENDINGS:
        raise InputError(f"{path.name!r} has no ending for a trace", hint=f"use {', '.join(ENDINGS)}")


def write_trace(trace: dict[str, Any], path: Path) -> None:
    """Write a trace as the ending of ``path`` says."""
    check_ending(path)
    if path.suffix == ".html":
        write_text(path, tree_html(trace))
    elif path.suffix == ".txt":
        write_text(path, "\n".join(tree_text(trace)) + "\n")
    else:
        write_text(path, json.dumps(trace, ensure_ascii=False, indent=1) + "\n")


def named_tokens(tokenizer: Tokenizer, names: Sequence[str]) -> tuple[int, ...]:
    """The tokens that traces call by these names; a space may be typed for the mark that stands for it."""
    if not names:
        return ()
    known: dict[str, list[int]] = {}
    for token in range(tokenizer.size):
        known.setdefault(tokenizer.name(token), []).append(token)
    found: list[int] = []
    for name in names:
        if (own := known.get(name) or known.get(printable(name))) is None:
            near = difflib.get_close_matches(printable(name), known, n=1, cutoff=0.5)
            hint = f"did you mean {near[0]!r}?" if near else "name one as a trace does"
            raise InputError(f"there is no token {name!r}", hint=hint)
        found += own
    return tuple(found)
