"""``ensue translate --trace``: the search of one line, as data, as a tree in text, or as a page."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from ensue.core.errors import InputError
from ensue.core.files import write_text
from ensue.data.tokenizers.protocol import Tokenizer
from ensue.look.tree_page import tree_html
from ensue.look.tree_text import tree_text
from ensue.search.beam import Search
from ensue.tasks.translating import Translation

ENDINGS = (".html", ".json", ".txt")


def trace_of(translation: Translation, tokenizer: Tokenizer, search: Search) -> dict[str, Any]:
    """The search of a translation as plain data: every expansion, with parent, token, log-probability and fate."""
    if not translation.found:
        raise InputError("an empty line has nothing to search", mend="give some text")
    if len(translation.found) > 1:
        raise InputError("the line was split, and a trace is of one search", mend="give a shorter line")
    trace = translation.found[0].trace
    assert trace is not None
    return {**trace.as_dict(tokenizer.name), "source": translation.source, "alpha": search.alpha}


def check_ending(path: Path) -> None:
    """Refuse a file name that does not say what to write, before anything is searched."""
    if path.suffix not in ENDINGS:
        raise InputError(f"{path.name!r} has no ending for a trace", mend=f"use {', '.join(ENDINGS)}")


def write_trace(trace: dict[str, Any], path: Path) -> None:
    """Write a trace as the ending of ``path`` says."""
    check_ending(path)
    if path.suffix == ".html":
        write_text(path, tree_html(trace))
    elif path.suffix == ".txt":
        write_text(path, "\n".join(tree_text(trace)) + "\n")
    else:
        write_text(path, json.dumps(trace, ensure_ascii=False, indent=1) + "\n")
