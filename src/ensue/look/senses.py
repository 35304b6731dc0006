"""``ensue look senses``: the vectors of one word in many contexts, and how often neighbours have the same sense."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np

from ensue.core.errors import InputError
from ensue.data.senses import SENSES, Context
from ensue.data.senses import contexts as built_in_contexts
from ensue.data.word_benchmarks import contexts_in, read_contexts
from ensue.look.projection import principal
from ensue.look.runs import label, single
from ensue.look.senses_chart import senses_chart
from ensue.look.view import View
from ensue.measure.senses import sense_score, similarities
from ensue.models.backbones import body_of
from ensue.models.ngram import NGram
from ensue.runs.context_vectors import context_vectors, layer_count
from ensue.runs.run import Run

NEIGHBOURS = 3
"""Neighbours that are listed for each context."""
MAX_CONTEXTS = 2000


def senses(runs: Sequence[Run], *, word: str = "", layer: int = 0, text: str = "", files: Sequence[Any] = ()) -> View:
    """Vectors of a word in its contexts, and how often the nearest context has the same sense.

    Contexts come from ``text`` (a sentence per line), from ``files``, or from the built-in corpus.
    """
    run = single(runs, "senses")
    if not word.strip():
        raise InputError("senses needs a word", hint="name a run and a word: ensue look senses runs/elmo bank")
    contexts = find_contexts(word, files, text)
    if not has_context_vectors(run):
        raise InputError(f"{run.system} has no word vectors", where=str(run), hint="use elmo, bert or lstm")
    body = body_of(run.model)
    vectors = context_vectors(body, run.tokenizer, contexts, layer)
    points, variance = principal(vectors)
    depth = layer_count(body)
    numbers: dict[str, Any] = {"system": run.system, "word": word, "layer": layer or depth, "layers": depth}
    caption = f"{len(contexts)} contexts, without senses."
    labels = [context.sense for context in contexts]
    if len(set(labels)) > 1:
        score = sense_score(vectors, labels)
        numbers |= {"accuracy": score.accuracy, "chance": score.chance, "identical": score.identical}
        caption = f"Nearest neighbours have the same sense in {score.accuracy:.1%} of {len(contexts)} contexts "
        caption += f"(leave one out; by chance {score.chance:.1%})."
        if score.identical:
            caption += f" All vectors are equal: {run.system} has one vector per word, whatever the context."
    numbers |= {"variance": variance.tolist(), "contexts": _rows(contexts, vectors, points)}
    title = f"{label(run)}: {word} in its contexts"
    return View(partial(senses_chart, numbers, title, caption), numbers, note=caption)


def find_contexts(word: str, files: Sequence[Any], text: str = "") -> list[Context]:
    """Contexts of a word from a text or files, a sentence per line, or the built-in ones."""
    if text.strip():
        contexts = contexts_in(text.splitlines(), word, "the text")
    elif files:
        contexts = [context for file in files for context in read_contexts(str(file), word)]
    elif word in SENSES:
        contexts = built_in_contexts(word)
    else:
        known = " and ".join(SENSES)
        raise InputError(f"{word!r} has no built-in contexts ({known} have)", hint="name a file of sentences with it")
    if len(contexts) < 3:
        raise InputError(f"{len(contexts)} contexts are too few", hint="give at least 3")
    return contexts[:MAX_CONTEXTS]


def has_context_vectors(run: Run) -> bool:
    """True if a run has vectors of words in context."""
    return run.reads_texts and not isinstance(body_of(run.model), NGram)


def _rows(contexts: list[Context], vectors: np.ndarray, points: np.ndarray) -> list[dict[str, Any]]:
    """Each context with its point in two dimensions and its nearest contexts."""
    cosines = similarities(vectors)
    order = np.argsort(-cosines, axis=1, kind="stable")[:, : min(NEIGHBOURS, len(contexts) - 1)].tolist()
    rows = [{"words": list(context.words), "place": context.position, "sense": context.sense} for context in contexts]
    nearest = [[{**rows[j], "similarity": float(cosines[i, j])} for j in row] for i, row in enumerate(order)]
    return [{**row, "x": float(x), "y": float(y), "nearest": n} for row, (x, y), n in zip(rows, points, nearest)]
