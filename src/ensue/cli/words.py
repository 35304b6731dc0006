"""`ensue words`: what vectors of words say."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ensue.cli.options import Json
from ensue.cli.output import emit, say, table

app = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
    help="Ask what vectors of words say: neighbours, analogies, how well they agree with people.",
)
Vectors = Annotated[
    Path, typer.Argument(metavar="RUN", help="A run of word2vec, another whose tokens are words, or a vector file.")
]
Top = Annotated[int, typer.Option(min=1, help="How many to show.")]


@app.command()
def neighbours(
    run: Vectors,
    word: Annotated[str, typer.Argument(help="A word; for a CBOW's probabilities several, in quotes.")],
    top: Top = 10,
    by: Annotated[
        str,
        typer.Option(
            help="cosine of vectors; probability P(o | WORD), the softmax of u·v; context: how often each is near it."
        ),
    ] = "cosine",
    as_json: Json = False,
) -> None:
    """Show the words most like one, or likeliest near it."""
    from ensue.verbs.words import neighbours as verb

    found = verb(run, word, top=top, by=by)
    if as_json:
        emit({"run": str(run), "word": word, "by": by, "neighbours": _rows(found, _unit(by))})
        return
    _show(found)


@app.command()
def analogy(
    run: Vectors,
    first: Annotated[str, typer.Argument(metavar="KING", help="The word to begin with.")],
    minus: Annotated[str, typer.Argument(metavar="MAN", help="What is taken away from it.")],
    plus: Annotated[str, typer.Argument(metavar="WOMAN", help="What is added to it.")],
    top: Top = 10,
    as_json: Json = False,
) -> None:
    """Show the words nearest to king − man + woman."""
    from ensue.verbs.words import analogy as verb

    found = verb(run, first, minus, plus, top=top)
    if as_json:
        emit({"run": str(run), "question": f"{first} - {minus} + {plus}", "answers": _rows(found, "cosine")})
        return
    _show(found)


@app.command()
def similarity(
    run: Vectors,
    file: Annotated[str, typer.Argument(help="Two words and a number a line: WordSim-353, SimLex-999 …")],
    as_json: Json = False,
) -> None:
    """Say how well vectors agree with people on which words are alike."""
    from ensue.verbs.words import similarity as verb

    score = verb(run, file)
    if as_json:
        emit(score.as_dict())
        return
    say(f"Spearman {score.spearman:.4f} · Pearson {score.pearson:.4f}")
    say(f"{score.pairs:,} pairs; {score.missing:,} left out, as {len(score.missing_words):,} words have no vector")


@app.command()
def analogies(
    run: Vectors,
    file: Annotated[str, typer.Argument(help="Four words a line, in sections: questions-words.txt.")],
    as_json: Json = False,
) -> None:
    """Say how many questions "a is to b as c is to …" are answered rightly."""
    from ensue.verbs.words import analogies as verb

    scores = verb(run, file)
    if as_json:
        *sections, whole = (score.as_dict() for score in scores)
        emit({name: whole[name] for name in ("accuracy", "right", "asked", "missing")} | {"sections": sections})
        return
    lines = [[s.name, f"{s.accuracy:.1%}", f"{s.right:,}", f"{s.asked:,}", f"{s.missing:,}"] for s in scores]
    table(["section", "right", "of them", "asked", "left out"], lines)


def _unit(by: str) -> str:
    return "cosine" if by == "cosine" else "probability"


def _rows(found: list[tuple[str, float]], unit: str) -> list[dict[str, object]]:
    return [{"word": word, unit: value} for word, value in found]


def _show(found: list[tuple[str, float]]) -> None:
    """A line a word, with a bar."""
    most = max((abs(value) for _, value in found), default=1.0) or 1.0
    for word, value in found:
        say(f"{value:7.4f}  {'█' * max(1, round(40 * abs(value) / most))}  {word}")
