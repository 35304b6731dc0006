"""``ensue fit --from RUN`` and ``--embeddings FILE``: initialise a run with the settings and weights of another, or
with word vectors. A word without a vector keeps its random values; a note says how many there are."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from os import PathLike
from pathlib import Path
from textwrap import shorten
from typing import Any

import numpy as np
import torch
from torch import nn

from ensue.core.errors import InputError, unknown_name
from ensue.core.events import Report, report_all, silent
from ensue.core.settings import describe
from ensue.core.wording import counted
from ensue.data.word_vectors import WordVectors
from ensue.exchange.word2vec import read_word2vec
from ensue.models.backbones import body_of, system_config
from ensue.models.bidirectional_encoder import features_of
from ensue.models.conditional import ConditionalModel
from ensue.models.labelled import Labelled
from ensue.models.table import SYSTEMS
from ensue.runs.load import Run, load
from ensue.runs.word_embeddings import embedding_of, token_words
from ensue.tasks.labels.features import COVE, FEATURE_SETTINGS, READER, provides_features
from ensue.tasks.settings import Settings
from ensue.tasks.table import TASKS, all_tasks, model_class, task_by_data, task_spec, trained_by_counting

MAX_NAMED = 5
"""The number of missing words that a note names."""


def system_and_task(
    what: str, model: str, initial: Run | None, file: Mapping[str, Any], files: Sequence[str] = ()
) -> tuple[str, str]:
    """The system and the task of ``fit WHAT``: a system for its own task, or a task with the system of ``--model``.

    ``initial`` is the run of ``--from``, ``file`` the settings of a run.toml, and ``files`` the data, which chooses one
    of several tasks that a system has.
    """
    if what in TASKS and task_spec(what).by_name:
        lender = initial if lends_features(what, initial) else file.get("features.run")
        if lender:
            return model or str(file.get("system", "")) or reading_system(load(lender)), what
        if model and initial and model != initial.system:
            raise InputError(f"is a {initial.system}, not a {model}", where=str(initial), hint="leave out --model")
        inherited = initial.system if initial else ""
        return model or inherited or str(file.get("system", "")) or task_spec(what).default_system, what
    if model:
        message = f"--model chooses the system of a task ({', '.join(_tasks_by_name())})"
        raise InputError(message, hint=f"leave it out, or fit one of them in place of {what}")
    if what not in SYSTEMS:
        raise unknown_name("system or task", what, [*SYSTEMS, *_tasks_by_name()])
    if initial is not None and is_kind_of(initial.system, what):
        what = initial.system  # a llama is a gpt
    task = str(file.get("task", ""))
    return what, task if task and file.get("system") == what else task_by_data(what, files)


def is_kind_of(system: str, other: str) -> bool:
    """True if a system is another one with other default settings and nothing else of its own."""
    own, given = SYSTEMS.load(system), SYSTEMS.load(other)
    changed = {name for name in vars(own) if not name.startswith("__")}
    return own is not given and issubclass(own, given) and changed <= {"Config", "expect", "presets"}


def _tasks_by_name() -> list[str]:
    return [spec.name for spec in all_tasks() if spec.by_name]


def lends_features(task: str, initial: Run | None) -> bool:
    """True if a task reads the layers of the run of ``--from`` as features instead of copying its weights."""
    reads = initial is not None and "features" in task_spec(task).settings
    return reads and not initial.spec.labels and provides_features(initial.system)  # type: ignore[union-attr]


def reading_system(lender: Run) -> str:
    """The default system that reads a run's layers as features."""
    return COVE if issubclass(model_class(lender.system, lender.task), ConditionalModel) else READER


def inherited_settings(
    initial: Run, system: str, task: str, file: Mapping[str, Any], typed: Mapping[str, Any]
) -> dict[str, Any]:
    """The settings that a run inherits from the one its weights come from: weights fit one shape and direction.

    ``file`` and ``typed`` are the settings of a run.toml and of the command line.
    """
    if any(name.startswith("tokenizer.") for name in typed):
        raise InputError("--from also takes the tokenizers of its run", hint="leave out --tokenizer")
    if typed.get("embeddings") or file.get("embeddings"):
        raise InputError("--from and --embeddings both initialise the embeddings", hint="leave out one of them")
    if trained_by_counting(system, task):
        raise InputError(f"{system} counts, so it has no weights to initialise", hint="leave out --from")
    where, spec = str(initial), task_spec(task)
    if initial.system != system:
        hint = f"fit {initial.system}, or name another run"
        raise InputError(f"is a run of {initial.system}, not of {system}", where=where, hint=hint)
    inherited = dict(initial.config["model"])
    head = initial.config.get("head")
    if head is not None and initial.task == task:
        inherited |= {f"head.{name}": head[name] for name in ("pooling", "dense", "hidden") if name in head}
    if head is not None and spec.labels:
        inherited["head.directions"] = head.get("directions", "one")
        features = initial.config.get("features", {})
        inherited |= {f"features.{name}": features[name] for name in FEATURE_SETTINGS if name in features}
    if "direction" in {field.name for field in describe(spec.settings["data"])}:
        inherited["data.direction"] = initial.direction
        asked = {**file, **typed}.get("data.direction", initial.direction)
        if asked != initial.direction:
            what = f"reads {initial.direction}, so a run initialised from it cannot read {asked}"
            raise InputError(what, where=where, hint="leave out data.direction")
    return inherited


def init_weights(
    model: Any, settings: Settings, corpus: Any, report: Report = silent, initial: Run | None = None
) -> None:
    """Copy into a new model the weights that its settings name: features, word vectors, and those of another run.

    A run of the same task gives all its weights; one of another task, or with other labels, those of its body. To a
    model of fewer blocks it gives some of its own, evenly spaced from the first to the last (DistilBERT's way, Sanh et
    al., 2019).
    """
    features = features_of(getattr(model, "body", None))
    if features is not None:
        features.reader.load_state_dict(load(settings.features.run).model.reader().state_dict())
    if settings.run.embeddings:
        init_embeddings(settings, model, corpus, report)
    path = settings.run.begin_with
    if not path:
        return
    initial = initial or load(path)
    same_task, labels = initial.task == settings.run.task, getattr(getattr(corpus, "encoding", None), "labels", ())
    same_labels = tuple(initial.config.get("data", {}).get("labels", ())) == labels
    target, source = model, initial.model
    if not (same_task and same_labels):
        target, source = body_of(model), body_of(source)
    weights = source.state_dict()
    blocks = evenly_spaced_blocks(body_of(initial.model), body_of(model))
    if blocks:
        weights = select_blocks(weights, blocks)
        shown = ", ".join(str(block + 1) for block in blocks)
        report("note", {"text": f"its layers are initialised from layers {shown} of {path}"})
    try:
        target.load_state_dict(weights)
    except RuntimeError as error:
        reason = shorten(str(error).splitlines()[-1], 160, placeholder=" …")
        what = f"its weights do not fit these settings ({reason})"
        raise InputError(what, where=path, hint="leave the model's settings as they are") from error
    if isinstance(model, Labelled) and same_task and not same_labels:
        report("note", {"text": f"{path} has other labels, so the head has new random weights"})


def evenly_spaced_blocks(source: Any, target: Any) -> list[int]:
    """The blocks of ``source`` that initialise a ``target`` with fewer; empty if it has no fewer.

    >>> from types import SimpleNamespace as Body
    >>> evenly_spaced_blocks(Body(blocks=range(12)), Body(blocks=range(6)))
    [0, 2, 4, 7, 9, 11]
    """
    given, wanted = (len(getattr(body, "blocks", ())) for body in (source, target))
    return np.linspace(0, given - 1, wanted).round().astype(int).tolist() if wanted < given else []


def select_blocks(weights: Mapping[str, Any], blocks: Sequence[int]) -> dict[str, Any]:
    """Weights by name with only some of the blocks, renumbered.

    >>> select_blocks({"blocks.0.w": 0, "blocks.1.w": 1, "blocks.2.w": 2, "norm.w": 9}, [0, 2])
    {'blocks.0.w': 0, 'blocks.1.w': 2, 'norm.w': 9}
    """
    numbers = {old: new for new, old in enumerate(blocks)}
    selected = {}
    for name, value in weights.items():
        block = re.search(r"(?:^|\.)blocks\.(\d+)\.", name)
        if block is None:
            selected[name] = value
        elif int(block[1]) in numbers:
            selected[f"{name[: block.start(1)]}{numbers[int(block[1])]}{name[block.end(1) :]}"] = value
    return selected


def read_vectors(source: str | PathLike[str], notes: list[str] | None = None) -> WordVectors:
    """The word vectors of a run (for a model whose tokens are words, its embeddings) or of a vector file."""
    if isinstance(source, Run) or Path(source).is_dir():
        return load(source).vectors
    return read_word2vec(str(source), notes)


def init_embeddings(settings: Settings, model: Any, corpus: Any, report: Report) -> None:
    """Initialise a model's embeddings with word vectors; words without one keep their random values."""
    system, path = settings.run.system, settings.run.embeddings
    target, source = embedding_of(model), embedding_of(model, "embed_source")
    if target is None:
        raise InputError(f"{system} has no embeddings to initialise", hint="leave out --embeddings")
    notes: list[str] = []
    vectors = read_vectors(path, notes)
    embeddings = {"": (target, corpus.tokenizer)}
    if source is not None and source is not target:
        embeddings = {" of the target": embeddings[""], " of the source": (source, corpus.source_tokenizer)}
    width, known = vectors.matrix.shape[1], 0
    for which, (embedding, tokenizer) in embeddings.items():
        if width != embedding.embedding_dim:
            name = "embedding" if hasattr(system_config(model), "embedding") else "hidden"
            what = f"has vectors of size {width}, and the embeddings of {system} have size {embedding.embedding_dim}"
            raise InputError(what, where=path, hint=f"--set {name}={width} makes them fit")
        words = token_words(tokenizer)
        known += copy_vectors(embedding, words, vectors)
        notes.append(_coverage(words, vectors, path, which))
    if not known:
        what = f"has none of the words of this text ({tokenizer.kind} tokens)"
        raise InputError(what, where=path, hint="use --tokenizer word, or other vectors")
    report_all(notes, report)


def copy_vectors(embedding: nn.Embedding, words: Sequence[str | None], vectors: WordVectors) -> int:
    """Copy the vectors of ``words``, one a token, into an embedding; return how many there are."""
    rows = {token: vectors.find(word) for token, word in enumerate(words) if word is not None}
    known = {token: row for token, row in rows.items() if row is not None}
    values = torch.from_numpy(np.ascontiguousarray(vectors.matrix[list(known.values())]))
    with torch.no_grad():
        embedding.weight[torch.tensor(list(known), dtype=torch.long)] = values.to(embedding.weight.dtype)
    return len(known)


def _coverage(words: Sequence[str | None], vectors: WordVectors, path: str, which: str) -> str:
    """A note that says how many words have a vector, and which have none."""
    own = [word for word in words if word is not None]
    missing = [word for word in own if vectors.find(word) is None]
    lowered = sum(word not in vectors.index and vectors.find(word) is not None for word in own)
    others = len(words) - len(own)
    text = f"{len(own) - len(missing):,} of {counted(len(own), 'word')}{which} start with the vectors of {path}"
    text += f" ({lowered:,} in lower case)" if lowered else ""
    if missing:
        named = ", ".join(missing[:MAX_NAMED]) + (" …" if len(missing) > MAX_NAMED else "")
        text += f"; {len(missing):,} have none and start random ({named})"
    if others:
        text += (
            "; so does 1 token that is not a word" if others == 1 else f"; so do {others:,} tokens that are not words"
        )
    return text
