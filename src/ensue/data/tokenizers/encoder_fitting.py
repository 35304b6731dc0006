"""Fit tokenizers with special tokens to text, as for BERT and RoBERTa."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from itertools import islice, repeat

from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, trainers

from ensue.core.errors import unknown_name
from ensue.data.tokenizers.bert import (
    BERT_SPECIAL_TOKENS,
    MAX_WORD_CHARS,
    ROBERTA_SPECIAL_TOKENS,
    bert_tokenizer,
    roberta_tokenizer,
)
from ensue.data.tokenizers.encoder_tokenizer import EncoderTokenizer
from ensue.data.tokenizers.protocol import encode_utf8
from ensue.data.tokenizers.subword import (
    BYTE_ALPHABET,
    CONTINUATION_PREFIX,
    check_vocabulary_size,
    train_on_bytes,
    unigram_scores,
)

ENCODER_KINDS = ("wordpiece", "bpe", "unigram")
MAX_ALPHABET = 1000
"""Maximum number of different characters of a WordPiece vocabulary, as in BERT's trainer."""
TRAINER_TEXT_WORDS = 1000
"""Words passed to the trainer in one text."""


def fit_encoder_tokenizer(
    kind: str, texts: Iterable[str], vocabulary: int, min_count: int = 2, lowercase: bool = True
) -> EncoderTokenizer:
    """Fit a tokenizer with special tokens; deterministic.

    ``wordpiece`` is BERT's, with its five special tokens first; ``bpe`` and ``unigram`` are over bytes with RoBERTa's
    special tokens, four first and <mask> last. ``vocabulary``: maximum number of tokens, including special tokens.
    ``min_count``: minimum count of a character or a merged pair. ``lowercase``: ignore case.

    >>> tokenizer = fit_encoder_tokenizer("wordpiece", ["a bad cab, a bad bed"], 40, min_count=1)
    >>> [tokenizer.name(token) for token in tokenizer.encode("Bad bed")]
    ['bad', 'bed']
    """
    if kind not in ENCODER_KINDS:
        raise unknown_name("tokenizer with special tokens", kind, ENCODER_KINDS)
    if kind == "wordpiece":
        return _fit_wordpiece(texts, vocabulary, min_count, lowercase)
    return _fit_bytes(kind, texts, vocabulary, min_count, lowercase)


def byte_encoder_tokenizer(lowercase: bool = True) -> EncoderTokenizer:
    """A token for each byte, beside RoBERTa's special tokens: ``bpe`` that merges nothing.

    >>> tokenizer = byte_encoder_tokenizer()
    >>> tokenizer.size, len(tokenizer.encode("Bad bed"))
    (261, 7)
    """
    return _fit_bytes("bpe", (), len(ROBERTA_SPECIAL_TOKENS) + len(BYTE_ALPHABET), 1, lowercase)


def _fit_wordpiece(texts: Iterable[str], vocabulary: int, min_count: int, lowercase: bool) -> EncoderTokenizer:
    words = _count_words(texts, lowercase)
    letters, words = _alphabet(words, min_count)
    follow = {letter for word in words for letter in word[1:]}
    # Every letter is named beforehand: else the trainer numbers continuations in the order of a hash table,
    # and merges equally frequent pairs in the order of their ids.
    known = [*BERT_SPECIAL_TOKENS, *sorted(letters), *(CONTINUATION_PREFIX + letter for letter in sorted(follow))]
    check_vocabulary_size("wordpiece", vocabulary, len(known), "every letter is a token, alone and inside a word")
    inner = Tokenizer(models.WordPiece(unk_token=BERT_SPECIAL_TOKENS[1], max_input_chars_per_word=MAX_WORD_CHARS))
    inner.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    trainer = trainers.WordPieceTrainer(
        vocab_size=vocabulary, min_frequency=min_count, special_tokens=known, show_progress=False
    )
    inner.train_from_iterator(_repeated(words), trainer)
    vocab = json.loads(inner.to_str())["model"]["vocab"]
    return bert_tokenizer(vocab, lowercase=lowercase)


def _count_words(texts: Iterable[str], lowercase: bool) -> Counter[str]:
    """Count the words of texts, split as in BERT, never across white space."""
    runs: Counter[str] = Counter()
    for text in texts:
        encode_utf8(text)
        runs.update(text.split())
    clean, cut = normalizers.BertNormalizer(lowercase=lowercase), pre_tokenizers.BertPreTokenizer()
    words: Counter[str] = Counter()
    for run, count in runs.items():
        for word, _ in cut.pre_tokenize_str(clean.normalize_str(run)):
            words[word] += count
    return words


def _alphabet(words: Mapping[str, int], min_count: int) -> tuple[set[str], Counter[str]]:
    """Return the characters that get tokens, and the words made of them only; other words are unknown."""
    counts: Counter[str] = Counter()
    for word, count in words.items():
        for letter in word:
            counts[letter] += count
    order = sorted(counts, key=lambda letter: (-counts[letter], letter))
    letters = {letter for letter in order[:MAX_ALPHABET] if counts[letter] >= min_count}
    kept = {word: count for word, count in words.items() if len(word) <= MAX_WORD_CHARS and letters.issuperset(word)}
    return letters, Counter(kept)


def _repeated(words: Mapping[str, int]) -> Iterator[str]:
    """Yield texts with each word as often as it was counted."""
    for word, count in words.items():
        copies = repeat(word, count)
        while run := list(islice(copies, TRAINER_TEXT_WORDS)):
            yield " ".join(run)


def _fit_bytes(kind: str, texts: Iterable[str], vocabulary: int, min_count: int, lowercase: bool) -> EncoderTokenizer:
    least = len(ROBERTA_SPECIAL_TOKENS) + len(BYTE_ALPHABET)
    check_vocabulary_size(kind, vocabulary, least, "every byte is a token")
    *first, mask = ROBERTA_SPECIAL_TOKENS
    normalizer = normalizers.Lowercase() if lowercase else None
    trained = train_on_bytes(kind, texts, first, vocabulary - 1, min_count, normalizer)  # one is reserved for <mask>
    if kind == "unigram":
        subwords = unigram_scores(trained["vocab"], first, vocabulary - len(ROBERTA_SPECIAL_TOKENS))
        scores = [*((name, 0.0) for name in first), *subwords, (mask, 0.0)]
        return roberta_tokenizer(models.Unigram(vocab=scores, unk_id=first.index("<unk>")), lowercase=lowercase)
    vocab = {**trained["vocab"], mask: len(trained["vocab"])}
    merges = [tuple(merge) for merge in trained["merges"]]
    return roberta_tokenizer(models.BPE(vocab=vocab, merges=merges), lowercase=lowercase)
