"""Fit, save and load tokenizers, by name or from files."""

from __future__ import annotations

import gzip
import json
import zlib
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from ensue.core.errors import InputError, errors_in, unknown_name
from ensue.core.files import read_json, write_text
from ensue.core.run_folder import RunFolder
from ensue.core.schema import Fields, Table, Text, Whole, check_schema
from ensue.data.reading import measure_text, read_pieces
from ensue.data.sources import Source
from ensue.data.text_pieces import Part, as_parts
from ensue.data.tokenizers.char import ByteTokenizer, CharTokenizer, fit_chars
from ensue.data.tokenizers.protocol import Tokenizer
from ensue.data.tokenizers.spelled_words import SpelledWordTokenizer
from ensue.data.tokenizers.vocabulary import Vocabulary
from ensue.data.tokenizers.word import WordTokenizer, fit_words

KINDS: dict[str, str] = {
    "byte": "a token a byte; nothing to fit, nothing is ever unknown",
    "char": "a token a character",
    "word": "a token a word between white space; a newline is the end token",
    "bpe": "parts of words by byte-pair encoding; nothing is ever unknown",
    "wordpiece": "parts of words, the longest first, as BERT has them; nothing is ever unknown",
    "unigram": "parts of words by their probabilities; nothing is ever unknown",
}
"""The tokenizers that can be fitted, with a description."""

DEFAULT_VOCABULARY = {"char": None, "word": 20_000, "bpe": 4096, "wordpiece": 4096, "unigram": 4096}
"""Default maximum number of tokens of each kind."""

MAX_FIT_BYTES = 1 << 27
"""Maximum size of the text that words and subwords are fitted to; a longer text is sampled evenly."""

MAX_FILE_BYTES = 1 << 28
"""Maximum size of a vocabulary or of merges, unpacked."""
READ_ERRORS = (OSError, EOFError, ValueError, TypeError, RecursionError, zlib.error)
"""What damaged files of a vocabulary raise."""

TOKENIZER_FILE = "tokenizer.json"
TOKENIZER_CONFIG = "tokenizer_config.json"
BERT_FILE = "vocab.txt"
GPT2_FILES = (("encoder.json", "vocab.bpe"), ("vocab.json", "merges.txt"))
BERT_SETTINGS = {
    "do_lower_case": "lowercase",
    "strip_accents": "strip_accents",
    "tokenize_chinese_chars": "handle_chinese_chars",
}
"""Settings of ``tokenizer_config.json`` and their names in ``tokenizer.json``."""


def fit_tokenizer(
    kind: str,
    sources: Sequence[Source] | Source,
    *,
    vocabulary: int | None = None,
    min_count: int | None = None,
    field: str | None = None,
    size: int | None = None,
    notes: list[str] | None = None,
) -> Tokenizer:
    """Fit a tokenizer to a text.

    ``vocabulary``: maximum number of tokens, including special tokens. ``min_count``: minimum count of a token; for
    words see ``fit_words``, for subwords it is the minimum count of a merged pair.

    Of a text of more than 128 MiB an even, reproducible sample of that size is read, with a note in ``notes``. ``size``
    is the size of the text in bytes, if known.

    >>> fit_tokenizer("char", "hello").size  # h e l o, the end token, the unknown token
    6
    """
    text = as_parts(read_pieces(sources, field))
    if kind in KINDS and kind not in ("byte", "char"):  # those have small tables for any text
        size = measure_text(sources, field)[1] if size is None else size
        if size > MAX_FIT_BYTES:
            text = sample_parts(text, MAX_FIT_BYTES / size)
            if notes is not None:
                share = f"{MAX_FIT_BYTES / 1e6:,.0f} of the text's {size / 1e6:,.0f} MB, evenly from all of it"
                notes.append(f"the {kind} tokenizer is fitted to {share}")
    return fit_tokenizer_to_parts(kind, text, vocabulary=vocabulary, min_count=min_count)


def sample_parts(parts: Iterable[Part], share: float) -> Iterator[Part]:
    """Yield an even, reproducible sample of parts with about a ``share`` of the characters.

    >>> [text for text, _, _ in sample_parts([(letter, True, True) for letter in "abcdefgh"], 0.25)]
    ['a', 'e']
    """
    seen = taken = 0
    for part in parts:
        if taken <= share * seen:
            taken += len(part[0])
            yield part
        seen += len(part[0])


def fit_tokenizer_to_parts(
    kind: str, parts: Iterable[Part], *, vocabulary: int | None = None, min_count: int | None = None
) -> Tokenizer:
    """Fit a tokenizer to texts in memory, each with whether it starts a line and whether it ends its document.

    >>> fit_tokenizer_to_parts("word", [("a b a", True, True)]).size  # a, b, the end token, the unknown token
    4
    """
    if kind not in KINDS:
        raise unknown_name("tokenizer", kind, KINDS)
    if vocabulary is not None and vocabulary < 3:
        raise InputError(f"a vocabulary of {vocabulary} is too small", hint="choose at least 3")
    if kind == "byte":
        return ByteTokenizer()
    limit = DEFAULT_VOCABULARY[kind] if vocabulary is None else vocabulary
    if kind == "word":
        return fit_words(parts, limit, min_count)
    texts = (text for text, _, _ in parts)
    if kind == "char":
        return fit_chars(texts, limit, min_count or 1)
    from ensue.data.tokenizers.subword import fit_subwords

    assert limit is not None
    return fit_subwords(kind, texts, limit, min_count or 2)


def save_tokenizer(tokenizer: Tokenizer, path: str | Path) -> None:
    """Write ``tokenizer.json`` to ``path``, or into the folder ``path``."""
    file = Path(path) / TOKENIZER_FILE if Path(path).is_dir() else Path(path)
    write_text(file, json.dumps(tokenizer.state(), ensure_ascii=False, separators=(",", ":")) + "\n")


def load_tokenizer(path: str | Path) -> Tokenizer:
    """Read a ``tokenizer.json``, a folder that has one, or the files of GPT-2, BERT or RoBERTa in a folder.

    A ``tokenizer.json`` may be ours or Hugging Face's; BERT has ``vocab.txt``, the others a vocabulary and merges. Case
    and accents are treated as ``tokenizer_config.json`` says, if there is one.
    """
    path = Path(path)
    if not path.is_dir():
        return _restore_file(read_json(path), path)
    if (file := path / TOKENIZER_FILE).exists():
        return _restore_file(_apply_config(read_json(file), _read_config(path)), file)
    if (tokenizer := _from_vocabulary(path)) is not None:
        return tokenizer
    hint = "give a folder with tokenizer.json, with vocab.txt, or with vocab.json and merges.txt"
    raise InputError("there is no tokenizer in this folder", where=str(path), hint=hint)


def resolve_tokenizer(text: str) -> str | Tokenizer:
    """Resolve ``--tokenizer``: a kind to be fitted, or an existing tokenizer.

    >>> resolve_tokenizer("bpe")
    'bpe'
    """
    if text in KINDS:
        return text
    if text and Path(text).exists():
        path = Path(text) / TOKENIZER_FILE if Path(text).is_dir() else Path(text)
        if (run := RunFolder(path.parent)).is_run():
            run.verify(path.name)
        tokenizer = load_tokenizer(text)
        return tokenizer.closed() if isinstance(tokenizer, SpelledWordTokenizer) else tokenizer
    if "/" in text or text.endswith(".json"):
        raise InputError("there is no such file", where=text, hint=f"or give one of {', '.join(KINDS)}")
    raise unknown_name("tokenizer", text, KINDS)


def restore_tokenizer(state: Any) -> Tokenizer:
    """Return the tokenizer with this ``state``.

    >>> restore_tokenizer(ByteTokenizer().state()).kind
    'byte'
    """
    kind = state.get("kind") if isinstance(state, dict) else None
    if kind == "byte":
        return ByteTokenizer()
    for tokenizer in (CharTokenizer, WordTokenizer, SpelledWordTokenizer, Vocabulary):
        if kind == tokenizer.kind:
            check_schema(state, tokenizer.schema, "")
            return tokenizer.restore(state)
    if kind == "subwords":
        return _several(state)
    if isinstance(state, dict) and "model" in state:
        return _from_library(state)
    raise InputError("does not describe a tokenizer")


def _restore_file(state: Any, path: Path) -> Tokenizer:
    """Restore a tokenizer; errors name the file."""
    with errors_in(path, KeyError, TypeError, ValueError, hint="fit the tokenizer again"):
        return restore_tokenizer(state)


def _from_library(state: dict[str, Any]) -> Tokenizer:
    """Restore a tokenizer of the ``tokenizers`` library: with one special token, the end token, or with several."""
    from ensue.data.tokenizers.library import LIBRARY_SCHEMA, check_ids

    check_schema(state, LIBRARY_SCHEMA, "")
    check_ids(state)
    special = [token for token in state.get("added_tokens") or () if token.get("special")]
    if len(special) == 1:
        from ensue.data.tokenizers.subword import SubwordTokenizer

        return SubwordTokenizer.restore(state)
    from ensue.data.tokenizers.encoder_tokenizer import EncoderTokenizer

    return EncoderTokenizer.restore(state)


def _several(state: dict[str, Any]) -> Tokenizer:
    """Restore a tokenizer of subwords with several special tokens."""
    from ensue.data.tokenizers.library import LIBRARY_SCHEMA, check_ids
    from ensue.data.tokenizers.unigram_pieces import piece_class

    shape = Fields({"kind": Text(), "end": Text(), "library": LIBRARY_SCHEMA}, optional={"begin": Text()})
    check_schema(state, shape, "")
    check_ids(state["library"])
    return piece_class(state["library"]).restore_several(state)


def _apply_config(state: Any, config: dict[str, Any]) -> Any:
    """Return a ``tokenizer.json`` with BERT's normalizer settings from the ``tokenizer_config.json`` beside it."""
    normalizer = state.get("normalizer") if isinstance(state, dict) else None
    if not isinstance(normalizer, dict) or normalizer.get("type") != "BertNormalizer":
        return state
    settings = {ours: config[theirs] for theirs, ours in BERT_SETTINGS.items() if theirs in config}
    return {**state, "normalizer": {**normalizer, **settings}}


def _read_config(folder: Path) -> dict[str, Any]:
    """Return the contents of ``tokenizer_config.json``, if there is one."""
    file = folder / TOKENIZER_CONFIG
    config = read_json(file) if file.exists() else {}
    if not isinstance(config, dict):
        raise InputError("does not describe a tokenizer", where=str(file))
    return config


def _from_vocabulary(folder: Path) -> Tokenizer | None:
    """Load BERT's one file or GPT-2's or RoBERTa's two from a folder, compressed or not."""
    for ending in ("", ".gz"):
        for vocab, merges in GPT2_FILES:
            files = folder / (vocab + ending), folder / (merges + ending)
            if all(file.exists() for file in files):
                return _from_merges(*files)
        if (file := folder / (BERT_FILE + ending)).exists():
            from ensue.data.tokenizers.bert import bert_from_lines

            with errors_in(file, *READ_ERRORS):
                return bert_from_lines(_read_text(file), _read_config(folder))
    return None


def _from_merges(vocab: Path, merges: Path) -> Tokenizer:
    from ensue.data.tokenizers.bert import is_roberta, roberta_from_files
    from ensue.data.tokenizers.library import MAX_ID
    from ensue.data.tokenizers.subword import gpt2_tokenizer

    with errors_in(vocab.parent, *READ_ERRORS):
        ids = json.loads(_read_text(vocab))
        check_schema(ids, Table(Whole(0, MAX_ID)), str(vocab))
        if is_roberta(ids):
            return roberta_from_files(ids, _read_text(merges), _read_config(vocab.parent))
        return gpt2_tokenizer(ids, _read_text(merges))


def _read_text(path: Path) -> str:
    """Return the text of a small file, decompressed if its name ends in .gz."""
    with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as file:
        data = file.read(MAX_FILE_BYTES + 1)
    if len(data) > MAX_FILE_BYTES:
        raise InputError("is too large for a vocabulary", where=str(path))
    return data.decode("utf-8")
