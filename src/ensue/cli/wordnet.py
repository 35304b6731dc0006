"""`ensue words wordnet` and `ensue words context`: a word in a dictionary, and in texts."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from ensue.cli.options import Field, Json
from ensue.cli.output import emit, say, table
from ensue.core.wording import counted


def wordnet(
    word: Annotated[str, typer.Argument(help="A word, or the name of a synset such as panda.n.01.")],
    closure: Annotated[bool, typer.Option("--closure", help="Show all that each synset is a kind of.")] = False,
    folder: Annotated[
        Path | None,
        typer.Option("--wordnet", metavar="DIR", help="The folder of its files; else WNSEARCHDIR, or as installed."),
    ] = None,
    as_json: Json = False,
) -> None:
    """Look a word up in WordNet: its sets of synonyms, and what is a kind of what."""
    from ensue.verbs.wordnet import wordnet as verb

    found = verb(word, closure=closure, folder=folder)
    if as_json:
        emit(found)
        return
    synsets = found["synsets"]
    for part, forms in found["forms"].items():
        if forms != ["_".join(word.lower().split())]:
            say(f"{word} as {part}: {', '.join(forms)}")
    parts, names = (max(len(one[key]) for one in synsets) for key in ("part", "name"))
    for one in synsets:
        say(f"{one['part']:<{parts}}  {one['name']:<{names}}  {', '.join(one['words'])}: {one['definition']}")
        show_above(one.get("above", []))
    total = f", {counted(len(synsets[0]['closure']), 'synset')} above" if closure and len(synsets) == 1 else ""
    say(f"{counted(len(synsets), 'synset')}{total} · WordNet {found['version']}".rstrip())


def show_above(tree: Sequence[dict[str, Any]], indent: str = "  ") -> None:
    """What a synset is a kind of, as a tree that grows to the right."""
    for number, one in enumerate(tree, start=1):
        last = number == len(tree)
        say(f"{indent}{'└─' if last else '├─'} {one['name']}{' (see above)' if one['again'] else ''}")
        show_above(one["above"], indent + ("   " if last else "│  "))


def context(
    file: Annotated[str, typer.Argument(metavar="FILE", help="A file, a folder, - or a built-in corpus.")],
    word: Annotated[str, typer.Argument(help="The word.")],
    window: Annotated[int, typer.Option(help="How many words on either side.")] = 5,
    lines: Annotated[int, typer.Option(min=0, help="How many places to show (0: all).")] = 20,
    top: Annotated[int, typer.Option(min=0, help="How many words of the window to show (0: all).")] = 20,
    paragraphs: Annotated[bool, typer.Option("--paragraphs", help="Let windows cross lines, not blank ones.")] = False,
    field: Field = "",
    as_json: Json = False,
) -> None:
    """Show a word in its contexts, and which words stand near it."""
    from ensue.verbs.wordnet import context as verb

    how: dict[str, Any] = {"window": window, "lines": lines, "top": top, "paragraphs": paragraphs}
    found = verb([file], word, field=field or None, **how)
    if as_json:
        emit(found)
        return
    left = max((len(one["left"]) for one in found["lines"]), default=0)
    for one in found["lines"]:
        say(f"{one['left']:>{left}}  {one['word']}  {one['right']}".rstrip())
    say(f"{word} stands {counted(found['count'], 'time')} among {found['words']:,} words\n")
    near = [[one["word"], f"{one['count']:,}", f"{one['ratio']:,.1f}"] for one in found["near"]]
    table([f"within {window}", "times", "× chance"], near)
