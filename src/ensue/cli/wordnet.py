"""`ensue words wordnet` and `ensue words context`: a word in WordNet, and in a text."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

from typer import Argument, Option

from ensue.cli.options import Field, Json
from ensue.cli.output import print_json, print_line, print_table
from ensue.core.wording import counted


def wordnet(
    word: Annotated[str, Argument(help="word, or the name of a synset such as panda.n.01")],
    closure: Annotated[bool, Option("--closure", help="show all hypernyms of each synset, as a tree")] = False,
    folder: Annotated[
        Path | None,
        Option(
            "--wordnet",
            metavar="DIR",
            help="folder of WordNet's files",
            show_default="WNSEARCHDIR, or the installed one",
        ),
    ] = None,
    as_json: Json = False,
) -> None:
    """look up a word in WordNet: its synsets and their hypernyms"""
    from ensue.verbs.wordnet import wordnet as verb

    entry = verb(word, closure=closure, folder=folder)
    if as_json:
        print_json(entry)
        return
    synsets = entry["synsets"]
    for part, forms in entry["forms"].items():
        if forms != ["_".join(word.lower().split())]:
            print_line(f"{word} as {part}: {', '.join(forms)}")
    part_width, name_width = (max(len(synset[key]) for synset in synsets) for key in ("part", "name"))
    for synset in synsets:
        names = f"{synset['part']:<{part_width}}  {synset['name']:<{name_width}}  {', '.join(synset['words'])}"
        print_line(f"{names}: {synset['definition']}")
        _print_hypernyms(synset.get("above", []))
    total = f", {counted(len(synsets[0]['closure']), 'hypernym')}" if closure and len(synsets) == 1 else ""
    print_line(f"{counted(len(synsets), 'synset')}{total} · WordNet {entry['version']}".rstrip())


def _print_hypernyms(tree: Sequence[dict[str, Any]], indent: str = "  ") -> None:
    """Print hypernyms as a tree that grows to the right."""
    for number, node in enumerate(tree, start=1):
        last = number == len(tree)
        print_line(f"{indent}{'└─' if last else '├─'} {node['name']}{' (see above)' if node['again'] else ''}")
        _print_hypernyms(node["above"], indent + ("   " if last else "│  "))


def context(
    file: Annotated[str, Argument(metavar="FILE", help="file, folder, - or a built-in corpus")],
    word: Annotated[str, Argument(help="word to find")],
    window: Annotated[int, Option(help="number of words on either side")] = 5,
    lines: Annotated[int, Option(min=0, help="number of occurrences to show; 0 means all")] = 20,
    top: Annotated[int, Option(min=0, help="number of neighbouring words to show; 0 means all")] = 20,
    paragraphs: Annotated[bool, Option("--paragraphs", help="let windows cross lines, but not blank lines")] = False,
    field: Field = "",
    as_json: Json = False,
) -> None:
    """show a word in its contexts, and the words that occur near it"""
    from ensue.verbs.wordnet import context as verb

    options: dict[str, Any] = {"window": window, "lines": lines, "top": top, "paragraphs": paragraphs}
    contexts = verb([file], word, field=field or None, **options)
    if as_json:
        print_json(contexts)
        return
    left = max((len(line["left"]) for line in contexts["lines"]), default=0)
    for line in contexts["lines"]:
        print_line(f"{line['left']:>{left}}  {line['word']}  {line['right']}".rstrip())
    print_line(f"{word} occurs {counted(contexts['count'], 'time')} in {contexts['words']:,} words\n")
    near = [[row["word"], f"{row['count']:,}", f"{row['ratio']:,.1f}"] for row in contexts["near"]]
    print_table([f"within {window}", "count", "× chance"], near)
