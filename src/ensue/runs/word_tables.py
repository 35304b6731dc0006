"""Embedding tables as word vectors: read from any model, and initialised from word vectors.

A word without a vector keeps its random values; a note says how many there are.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from ensue.core.errors import InputError
from ensue.core.events import Report, report_all
from ensue.core.run_folder import RunFolder
from ensue.core.wording import counted
from ensue.data.tokenizers.encoder_tokenizer import EncoderTokenizer
from ensue.data.tokenizers.protocol import Tokenizer
from ensue.data.tokenizers.registry import load_tokenizer
from ensue.data.tokenizers.word import WordTokenizer
from ensue.data.word_vectors import WordVectors
from ensue.exchange.word2vec import read_word2vec
from ensue.models.backbones import body_of, system_config
from ensue.runs.load_model import load_model
from ensue.tasks.settings import Settings
from ensue.tasks.table import task_name, task_spec

LETTERS = ("byte", "char")
"""Tokenizers whose tokens are not words."""
SPACE, PART = "␣", "##"
"""The prefix of a token that starts a word, and of one that continues a word."""
MAX_NAMED = 5
"""The number of missing words that a note names."""


def token_words(tokenizer: Tokenizer) -> list[str | None]:
    """The word that each token is; None for special tokens and parts of words."""
    names: list[str] = [tokenizer.name(token) for token in range(tokenizer.size)]
    if tokenizer.kind == "words":
        return list(names)
    if isinstance(tokenizer, WordTokenizer):
        special = (tokenizer.end, tokenizer.unknown)
        return [None if token in special else name for token, name in enumerate(names)]
    if tokenizer.kind in LETTERS:
        return [None] * len(names)
    if isinstance(tokenizer, EncoderTokenizer) and not tokenizer.spaced:
        return [None if name.startswith((PART, "[", "<")) else name for name in names]
    return [name[1:] if name.startswith(SPACE) and len(name) > 1 else None for name in names]


def embedding_of(model: Any, name: str = "embed") -> nn.Embedding | None:
    """A model's token embedding: ``embed``, or ``embed_source`` for the source."""
    layer = getattr(body_of(model), name, None)
    return layer if isinstance(layer, nn.Embedding) else None


def _no_vectors(system: str, where: str) -> InputError:
    return InputError(f"{system} has no word vectors", where=where, hint="use a run of word2vec, lstm, bert …")


def embedding_vectors(model: Any, tokenizer: Tokenizer, where: str, system: str) -> WordVectors:
    """The embeddings of those tokens that are words."""
    embedding = embedding_of(model)
    if embedding is None:
        raise _no_vectors(system, where)
    tokens: dict[str, int] = {}
    for token, word in enumerate(token_words(tokenizer)):
        if word is not None:
            tokens.setdefault(word, token)
    if not tokens:
        what = f"its tokens ({tokenizer.kind}) are not words, so it has no word vectors"
        raise InputError(what, where=where, hint="train it with --tokenizer word")
    matrix = embedding.weight.detach()[torch.tensor(list(tokens.values()))].float().numpy()
    return WordVectors(list(tokens), matrix, where)


def read_vectors(path: str | Path, notes: list[str] | None = None) -> WordVectors:
    """The word vectors of a run, or of a vector file."""
    folder = RunFolder(Path(path))
    if not folder.path.is_dir():
        return read_word2vec(path, notes)
    config = folder.read_config()
    if not task_spec(config.get("task") or task_name(config["system"])).reads_text:
        raise _no_vectors(config["system"], str(path))
    tokenizer = load_tokenizer(folder.tokenizer)
    return embedding_vectors(load_model(folder, config, tokenizer), tokenizer, str(path), config["system"])


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
        text += "; so does 1 token that is no word" if others == 1 else f"; so do {others:,} tokens that are no words"
    return text
