"""Sentinels: special tokens that stand for a span of a text (T5; Raffel et al., 2020).

The end token is 1 and the padding token, which also begins a target, 0, as in T5's own vocabulary; sentinels are the
last tokens, in descending order: <extra_id_0> is the very last.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from tokenizers import AddedToken, Tokenizer, decoders, models, processors

from ensue.core.errors import InputError, unknown_name
from ensue.data.tokenizers.protocol import Tokenizer as TokenizerLike
from ensue.data.tokenizers.subword import (
    BYTE_ALPHABET,
    SubwordTokenizer,
    byte_pre_tokenizer,
    check_vocabulary_size,
    train_on_bytes,
    unigram_scores,
)

PAD, END = "<pad>", "</s>"
SENTINEL = re.compile(r"<extra_id_(\d+)>")
COUNT = 100
"""How many sentinels a tokenizer has."""
SENTINEL_KINDS = ("bpe", "unigram", "byte")


def sentinels_of(tokenizer: TokenizerLike) -> list[int]:
    """Return the sentinels of a tokenizer, the first one first."""
    named: dict[str, int] = getattr(tokenizer, "named", {})
    found = {int(match[1]): token for name, token in named.items() if (match := SENTINEL.fullmatch(name))}
    return [found[number] for number in sorted(found)]


def check_has_sentinels(tokenizer: TokenizerLike, where: str = "") -> list[int]:
    """Return a tokenizer's sentinels; raise InputError if it has none."""
    found = sentinels_of(tokenizer)
    if not found:
        hint = f"use --tokenizer {', '.join(SENTINEL_KINDS[:-1])} or {SENTINEL_KINDS[-1]}"
        raise InputError("this tokenizer has no sentinels, which stand for spans", where=where, hint=hint)
    return found


def fit_sentinel_tokenizer(kind: str, texts: Iterable[str], vocabulary: int, min_count: int = 2) -> SubwordTokenizer:
    """Train BPE or Unigram over bytes, with an end token, a padding token and sentinels; deterministic.

    ``vocabulary``: maximum number of tokens, including special tokens. ``byte`` has a token for each byte.

    >>> tokenizer = fit_sentinel_tokenizer("byte", [], 0)
    >>> tokenizer.size, tokenizer.end, [tokenizer.name(token) for token in sentinels_of(tokenizer)[:2]]
    (358, 1, ['<extra_id_0>', '<extra_id_1>'])
    """
    if kind not in SENTINEL_KINDS:
        raise unknown_name("tokenizer with sentinels", kind, SENTINEL_KINDS)
    special = [PAD, END]
    least = len(special) + len(BYTE_ALPHABET) + COUNT
    vocabulary = least if kind == "byte" else vocabulary
    check_vocabulary_size(kind, vocabulary, least, f"every byte is a token, and so are {COUNT} sentinels")
    if kind == "byte":
        texts = ()
    trained = train_on_bytes("unigram" if kind == "unigram" else "bpe", texts, special, vocabulary - COUNT, min_count)
    if kind == "unigram":
        scores = unigram_scores(trained["vocab"], special, vocabulary - COUNT - len(special))
        model = models.Unigram(vocab=[*((name, 0.0) for name in special), *scores], unk_id=None)
    else:
        model = models.BPE(vocab=trained["vocab"], merges=[tuple(merge) for merge in trained["merges"]])
    inner = Tokenizer(model)
    inner.pre_tokenizer = byte_pre_tokenizer(False)
    inner.decoder = decoders.ByteLevel()
    names = [*special, *(f"<extra_id_{number}>" for number in reversed(range(COUNT)))]
    inner.add_special_tokens([AddedToken(name, normalized=False, special=True) for name in names])
    inner.post_processor = processors.TemplateProcessing(
        single=f"$A {END}", pair=f"$A {END} $B {END}", special_tokens=[(END, special.index(END))]
    )
    return SubwordTokenizer(inner, END)


def padding_of(tokenizer: TokenizerLike) -> int:
    """Return the token before a target's first: the padding token, or -1 (the end token) if there is none."""
    named: dict[str, int] = getattr(tokenizer, "named", {})
    return named.get(PAD, -1)
