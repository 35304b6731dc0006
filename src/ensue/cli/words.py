"""`ensue words`: word vectors, and a word in WordNet or in a text."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer
from typer import Argument, Option

from ensue.cli.options import Field, Json, NoVerify
from ensue.cli.output import print_bar, print_json, print_line, print_table
from ensue.core.escapes import escape_controls
from ensue.core.wording import counted

app = typer.Typer(no_args_is_help=True, rich_markup_mode=None, help="explore and evaluate word vectors")
Vectors = Annotated[
    Path, Argument(metavar="RUN", help="run of word2vec or of a model with word tokens, or a vector file")
]
Top = Annotated[int, Option(min=1, help="number of words to show")]


@app.command()
def neighbours(
    run: Vectors,
    word: Annotated[str, Argument(help="word to look up; several in quotes for CBOW with --by probability")],
    top: Top = 10,
    by: Annotated[
        str,
        Option(
            help="cosine: similarity of vectors; probability: softmax of u·v, P(o | WORD); "
            "context: how often a word occurs near WORD"
        ),
    ] = "cosine",
    no_verify: NoVerify = False,
    as_json: Json = False,
) -> None:
    """show the words most similar to a word"""
    from ensue.verbs.words import neighbours as verb

    facts = {"run": str(run), "word": word, "by": by}
    unit = "cosine" if by == "cosine" else "probability"
    _print_words(verb(run, word, top=top, by=by), as_json, facts, "neighbours", unit)


@app.command()
def analogy(
    run: Vectors,
    first: Annotated[str, Argument(metavar="KING", help="word to start from")],
    minus: Annotated[str, Argument(metavar="MAN", help="word to subtract")],
    plus: Annotated[str, Argument(metavar="WOMAN", help="word to add")],
    top: Top = 10,
    no_verify: NoVerify = False,
    as_json: Json = False,
) -> None:
    """show the words nearest to king − man + woman"""
    from ensue.verbs.words import analogy as verb

    facts = {"run": str(run), "question": f"{first} - {minus} + {plus}"}
    _print_words(verb(run, first, minus, plus, top=top), as_json, facts, "answers", "cosine")


@app.command()
def similarity(
    run: Vectors,
    file: Annotated[str, Argument(help="two words and a score per line, e.g. WordSim-353 or SimLex-999")],
    no_verify: NoVerify = False,
    as_json: Json = False,
) -> None:
    """correlate cosines with human similarity scores"""
    from ensue.verbs.words import similarity as verb

    score = verb(run, file)
    if as_json:
        print_json(score.as_dict())
        return
    print_line(f"Spearman {score.spearman:.4f} · Pearson {score.pearson:.4f}")
    reason = f"because {len(score.missing_words):,} words have no vector"
    print_line(f"{score.pairs:,} pairs; {score.missing:,} skipped, {reason}")


@app.command()
def analogies(
    run: Vectors,
    file: Annotated[str, Argument(help="four words per line, in sections, e.g. questions-words.txt")],
    no_verify: NoVerify = False,
    as_json: Json = False,
) -> None:
    """measure accuracy on analogy questions, "a is to b as c is to …\""""
    from ensue.verbs.words import analogies as verb

    scores = verb(run, file)
    if as_json:
        *sections, whole = (score.as_dict() for score in scores)
        print_json({name: whole[name] for name in ("accuracy", "right", "asked", "missing")} | {"sections": sections})
        return
    lines = [[s.name, f"{s.accuracy:.1%}", f"{s.right:,}", f"{s.asked:,}", f"{s.missing:,}"] for s in scores]
    print_table(["section", "accuracy", "correct", "questions", "skipped"], lines)


def _print_words(words: list[tuple[str, float]], as_json: bool, facts: dict[str, str], name: str, unit: str) -> None:
    """Print a line with a bar for each word; or ``facts`` and the words, under ``name``, as JSON."""
    if as_json:
        print_json({**facts, name: [{"word": word, unit: value} for word, value in words]})
        return
    largest = max((abs(value) for _, value in words), default=1.0) or 1.0
    for word, value in words:
        print_bar(value, largest, word)


@app.command()
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
            print_line(f"{escape_controls(word)} as {part}: {', '.join(forms)}")
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


@app.command()
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
        shown = f"{line['left']:>{left}}  {line['word']}  {line['right']}".rstrip()
        print_line(escape_controls(shown))
    print_line(f"{escape_controls(word)} occurs {counted(contexts['count'], 'time')} in {contexts['words']:,} words\n")
    near = [[row["word"], f"{row['count']:,}", f"{row['ratio']:,.1f}"] for row in contexts["near"]]
    print_table([f"within {window}", "count", "× chance"], near)
