"""Embedding tables as vectors of words: those of any model, read and begun.

The usual way to begin a table with vectors, a loop over the vocabulary that looks every word up, breaks at the first
word without one. Here such a word keeps its random start, and how many there are is said.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from ensue.core.errors import InputError
from ensue.core.events import Report
from ensue.core.run_folder import RunFolder
from ensue.core.wording import counted
from ensue.data.tokenizers.encoder_tokenizer import EncoderTokenizer
from ensue.data.tokenizers.protocol import Tokenizer
from ensue.data.tokenizers.registry import load_tokenizer
from ensue.data.tokenizers.word import WordTokenizer
from ensue.data.word_vectors import WordVectors
from ensue.exchange.word2vec import read_word2vec
from ensue.tasks.backbones import body_of, system_config
from ensue.tasks.load_model import model_in
from ensue.tasks.settings import Settings
from ensue.tasks.table import task_name, task_spec

LETTERS = ("byte", "char")
"""Tokenizers whose tokens are no words."""
SPACE, PART = "␣", "##"
"""What begins the name of a token that begins a word, or that goes on with one."""
NAMED = 5
"""So many missing words are named."""


def words_of_tokens(tokenizer: Tokenizer) -> list[str | None]:
    """For each token the word that it is, or None where it is a mark or a part of a word."""
    names: list[str] = [tokenizer.name(token) for token in range(tokenizer.size)]
    if tokenizer.kind == "words":
        return list(names)
    if isinstance(tokenizer, WordTokenizer):
        marks = (tokenizer.end, tokenizer.unknown)
        return [None if token in marks else name for token, name in enumerate(names)]
    if tokenizer.kind in LETTERS:
        return [None] * len(names)
    if isinstance(tokenizer, EncoderTokenizer) and not tokenizer.spaced:
        return [None if name.startswith((PART, "[", "<")) else name for name in names]
    return [name[1:] if name.startswith(SPACE) and len(name) > 1 else None for name in names]


def table_of(model: Any, name: str = "embed") -> nn.Embedding | None:
    """A model's embeddings of tokens: ``embed``, or of a source ``embed_source``."""
    found = getattr(body_of(model), name, None)
    return found if isinstance(found, nn.Embedding) else None


def _no_vectors(system: str, where: str) -> InputError:
    return InputError(f"{system} has no vectors of words", where=where, hint="use a run of word2vec, lstm, bert …")


def table_vectors(model: Any, tokenizer: Tokenizer, where: str, system: str) -> WordVectors:
    """The embeddings of those tokens that are words."""
    table = table_of(model)
    if table is None:
        raise _no_vectors(system, where)
    found: dict[str, int] = {}
    for token, word in enumerate(words_of_tokens(tokenizer)):
        if word is not None:
            found.setdefault(word, token)
    if not found:
        what = f"its tokens ({tokenizer.kind}) are no words, so there are no vectors of words"
        raise InputError(what, where=where, hint="train it with --tokenizer word")
    matrix = table.weight.detach()[torch.tensor(list(found.values()))].float().numpy()
    return WordVectors(list(found), matrix, where)


def vectors_in(path: str | Path, notes: list[str] | None = None) -> WordVectors:
    """The vectors of a run, or of a vector file."""
    folder = RunFolder(Path(path))
    if not folder.path.is_dir():
        return read_word2vec(path, notes)
    config = folder.read_config()
    if not task_spec(config.get("task") or task_name(config["system"])).reads_text:
        raise _no_vectors(config["system"], str(path))
    tokenizer = load_tokenizer(folder.tokenizer)
    return table_vectors(model_in(folder, config, tokenizer), tokenizer, str(path), config["system"])


def start_tables(settings: Settings, model: Any, corpus: Any, report: Report) -> None:
    """Begin a model's embeddings with vectors; words without one keep their random start, and are counted."""
    system, path, notes = settings.run.system, settings.run.embeddings, []  # type: ignore[var-annotated]
    if table_of(model) is None:
        raise InputError(f"{system} has no embeddings to begin with vectors", hint="leave out --embeddings")
    vectors = vectors_in(path, notes)
    tables = {"": (table_of(model), corpus.tokenizer)}
    source = table_of(model, "embed_source")
    if source is not None and source is not tables[""][0]:
        tables = {" of the target": tables[""], " of the source": (source, corpus.source_tokenizer)}
    begun = 0
    for which, (table, tokenizer) in tables.items():
        assert table is not None
        _check_width(table, vectors, path, settings, system_config(model))
        words = words_of_tokens(tokenizer)
        begun += start_table(table, words, vectors)
        notes.append(_said(words, vectors, path, which))
    if not begun:
        what = f"has none of the words of this text ({tokenizer.kind} tokens)"
        raise InputError(what, where=path, hint="use --tokenizer word, or other vectors")
    for note in notes:
        report("note", {"text": note})


def _check_width(table: nn.Embedding, vectors: WordVectors, path: str, settings: Settings, config: Any) -> None:
    """Refuse vectors that are wider or narrower than the embeddings."""
    width = vectors.matrix.shape[1]
    if width != table.embedding_dim:
        name = "embedding" if hasattr(config, "embedding") else "hidden"
        what = f"has vectors of {width} numbers, and the embeddings of {settings.run.system} have {table.embedding_dim}"
        raise InputError(what, where=path, hint=f"--set {name}={width} makes them fit")


def start_table(table: nn.Embedding, words: Sequence[str | None], vectors: WordVectors) -> int:
    """Give each word that has a vector its own; how many have."""
    found = {token: vectors.find(word) for token, word in enumerate(words) if word is not None}
    known = {token: place for token, place in found.items() if place is not None}
    rows = torch.from_numpy(np.ascontiguousarray(vectors.matrix[list(known.values())]))
    with torch.no_grad():
        table.weight[torch.tensor(list(known), dtype=torch.long)] = rows.to(table.weight.dtype)
    return len(known)


def _said(words: Sequence[str | None], vectors: WordVectors, path: str, which: str) -> str:
    """How many words begin with a vector, and which do not."""
    own = [word for word in words if word is not None]
    missing = [word for word in own if vectors.find(word) is None]
    small = sum(word not in vectors.index and vectors.find(word) is not None for word in own)
    parts = len(words) - len(own)
    text = f"{len(own) - len(missing):,} of {counted(len(own), 'word')}{which} begin with the vectors of {path}"
    text += f" ({small:,} by their small letters)" if small else ""
    if missing:
        named = ", ".join(missing[:NAMED]) + (" …" if len(missing) > NAMED else "")
        text += f"; {len(missing):,} have none and begin random ({named})"
    return text + (
        f"; so do {counted(parts, 'token')} that {'is no word' if parts == 1 else 'are no words'}" if parts else ""
    )
