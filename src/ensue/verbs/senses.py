"""``ensue look senses`` and ``ensue look layers``: the numbers of both views."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from ensue.core.errors import InputError
from ensue.data.sense_files import contexts_in, read_contexts
from ensue.data.senses import SENSES, Context, contexts
from ensue.measure.projection import principal
from ensue.measure.senses import sense_score, similarities
from ensue.models.ngram import NGram
from ensue.runs.load import Run, load
from ensue.tasks.backbones import body_of
from ensue.tasks.senses import context_vectors, depth_of
from ensue.verbs.view import Files, Place

NEAREST = 3
"""Neighbours that are named for each context."""
MOST = 2000
"""Contexts that are looked at, at the most."""


@dataclass(frozen=True)
class Senses:
    """A word in its contexts, as a run has it."""

    numbers: dict[str, Any]
    title: str
    caption: str


def sense_contexts(word: str, files: Files, text: str = "") -> list[Context]:
    """Contexts of a word from a text or files, a sentence a line, or the built-in ones."""
    if text.strip():
        found = contexts_in(text.splitlines(), word, "the text")
    elif files:
        found = [one for file in files for one in read_contexts(str(file), word)]
    elif word in SENSES:
        found = contexts(word)
    else:
        known = " and ".join(SENSES)
        raise InputError(f"{word!r} has no built-in contexts ({known} have)", hint="name a file of sentences with it")
    if len(found) < 3:
        raise InputError(f"{len(found)} contexts say nothing", hint="give at least 3")
    return found[:MOST]


def senses(path: Place, word: str, files: Files = (), layer: int = 0, text: str = "") -> Senses:
    """Vectors of a word in its contexts, their neighbours, and how often a neighbour has the same sense.

    Contexts come from ``text``, from ``files``, or from the built-in corpus.
    """
    if not word.strip():
        raise InputError("senses of which word?", hint="name a run and a word: ensue look senses runs/elmo bank")
    run = load(path)
    held = sense_contexts(word, files, text)
    body = body_of(run.model)
    if not in_context(run):
        raise InputError(f"{run.system} has no vectors of words", where=str(path), hint="use elmo, bert or lstm")
    vectors = context_vectors(body, run.tokenizer, held, layer)
    return _described(run, word, held, vectors, layer)


def in_context(run: Run) -> bool:
    """Whether a run has vectors of words where they stand."""
    return run.task not in ("translation", "forecast") and not isinstance(body_of(run.model), NGram)


def _described(run: Run, word: str, held: list[Context], vectors: np.ndarray, layer: int) -> Senses:
    """All numbers of the view, and what is said of them."""
    points, shares = principal(vectors)
    rows = _with_neighbours(held, vectors, points)
    labels = [one.sense for one in held]
    depth = depth_of(body_of(run.model))
    numbers: dict[str, Any] = {"system": run.system, "word": word, "layer": layer or depth, "layers": depth}
    caption = f"{len(held)} contexts, without senses."
    if len(set(labels)) > 1:
        score = sense_score(vectors, labels)
        numbers |= {"accuracy": score.accuracy, "chance": score.chance, "identical": score.identical}
        caption = f"Nearest neighbours have the same sense in {score.accuracy:.1%} of {len(held)} contexts "
        caption += f"(leave one out; by chance {score.chance:.1%})."
        if score.identical:
            caption += f" All vectors are the same: {run.system} has one vector a word, whatever stands around it."
    numbers |= {"variance": [float(share) for share in shares], "contexts": rows}
    return Senses(numbers, f"{run.folder.path.name} ({run.system}): {word} in its contexts", caption)


def _with_neighbours(held: list[Context], vectors: np.ndarray, points: np.ndarray) -> list[dict[str, Any]]:
    """Each context with its place in two dimensions and the contexts nearest to it."""
    near = similarities(vectors)
    order = np.argsort(-near, axis=1, kind="stable")[:, : min(NEAREST, len(held) - 1)]
    named = [{"words": list(one.words), "place": one.place, "sense": one.sense} for one in held]
    return [
        {
            **named[place],
            "x": float(x),
            "y": float(y),
            "nearest": [{**named[other], "similarity": float(near[place, other])} for other in order[place].tolist()],
        }
        for place, (x, y) in enumerate(points)
    ]


def layer_shares(runs: Files) -> list[dict[str, Any]]:
    """What each run takes of the layers of its features."""
    found = []
    for path in runs:
        run = load(path)
        held = run.config.get("features")
        if not held:
            hint = "name one that was trained with --from runs/elmo"
            raise InputError("reads no features, so it has no layers to weigh", where=str(path), hint=hint)
        row = {"run": run.folder.path.name, "task": run.task, "of": held["system"]}
        found.append({**row, "shares": held["shares"], "scale": held["scale"]})
    return found
