"""Lossless subword tokenizers over the 256 bytes.

BPE (Sennrich et al. 2016), WordPiece (Schuster and Nakajima 2012) and Unigram (Kudo 2018), trained and run by the
``tokenizers`` library on GPT-2's byte alphabet (Radford et al. 2019).
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Self

import numpy as np
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers, trainers

from ensue.core.errors import InputError
from ensue.data.text_pieces import cut_bytes
from ensue.data.tokenizers.library import LibraryTokenizer, library_errors
from ensue.data.tokenizers.protocol import END, Ids, as_list, encode_utf8, printable_bytes
from ensue.data.tokenizers.word_cache import GPT2_WORDS, LONE_HASH_WORDS, WordCache

CONTINUATION_PREFIX = "##"
MAX_WORDPIECE_CHARS = 64
"""Longer runs are split before WordPiece, whose longest-match search takes quadratic time."""
GPT2_END = "<|endoftext|>"
SEVERAL = "subwords"
"""The kind in the ``tokenizer.json`` of a tokenizer with several special tokens."""
TRAINER_TEXT_BYTES = 1 << 15
"""Bytes of text passed to a trainer at once."""


def _byte_letters() -> dict[str, int]:
    """Return GPT-2's alphabet: a printable character for each byte."""
    shown = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    hidden = [byte for byte in range(256) if byte not in set(shown)]
    return {chr(byte): byte for byte in shown} | {chr(256 + at): byte for at, byte in enumerate(hidden)}


BYTE_ALPHABET = _byte_letters()


class SubwordTokenizer(LibraryTokenizer):
    """A trained BPE, WordPiece or Unigram tokenizer, GPT-2's, or that of a large language model.

    The last has several special tokens, such as ``<|im_start|>``; ``end`` names the one that ends a text, and ``begin``
    the one before the first text, where that is another one. Their names in a text are plain text: only ``named`` gives
    the tokens themselves.
    """

    unknown = None
    spaced = True

    def __init__(self, inner: Tokenizer, end: str | None = None, begin: str | None = None) -> None:
        super().__init__(inner)
        added = self._described["added_tokens"]
        self.named: dict[str, int] = {token["content"]: token["id"] for token in added if token["special"]}
        """Special tokens by name."""
        if end is None and len(self.named) != 1:
            raise InputError(f"a tokenizer needs one special token, the end token; this one has {len(self.named)}")
        self._end_name: str = next(iter(self.named)) if end is None else end
        if self._end_name not in self.named:
            raise InputError(f"the end token {self._end_name!r} is not a special token")
        self.end: int = self.named[self._end_name]
        if begin is not None and begin not in self.named:
            raise InputError(f"the begin token {begin!r} is not a special token")
        self._begin_name = None if begin == self._end_name else begin
        self.begin: int = self.end if self._begin_name is None else self.named[self._begin_name]
        """The token before the first text."""
        self.strips: dict[str, tuple[bool, bool]] = {
            token["content"]: (bool(token.get("lstrip")), bool(token.get("rstrip"))) for token in added
        }
        """Whether white space before, and after, a token that a chat template writes belongs to it."""
        model = self._described["model"]["type"]
        gpt2 = self._end_name == GPT2_END and model == "BPE" and len(self.named) == 1
        self.kind = "gpt2" if gpt2 else str(model).lower()
        self.size: int = max(inner.get_vocab().values()) + 1  # ids may have gaps
        self._cache = WordCache(inner, ascii_words(self._described["pre_tokenizer"]))
        self._plain = {token["content"] for token in added if not token["special"]}
        self._bytes = [self._token_bytes(inner.id_to_token(token)) for token in range(self.size)]

    def _token_bytes(self, token: str | None) -> bytes:
        if token is None or token in self.named:
            return b""
        if token in self._plain:  # an added token is spelled as it is
            return token.encode()
        if self.kind == "wordpiece" and len(token) > len(CONTINUATION_PREFIX):
            token = token.removeprefix(CONTINUATION_PREFIX)
        try:
            return bytes(BYTE_ALPHABET[letter] for letter in token)
        except KeyError as error:
            hint = "only byte-level tokenizers can be used"
            raise InputError(f"the token {token!r} is not made of bytes", hint=hint) from error

    def encode(self, text: str) -> np.ndarray:
        """Return the subwords of the text."""
        return self._cache.encode(encode_utf8(text))

    def encode_after(self, text: str) -> np.ndarray:
        """As ``encode``, for a text that comes after a special token."""
        return self.encode(text)

    def decode(self, ids: Ids) -> str:
        """Return the text; bytes that are not UTF-8 become �."""
        known = (self._bytes[token] for token in as_list(ids) if token < self.size)
        return b"".join(known).decode("utf-8", "replace")

    def token_bytes(self, token: int) -> bytes | None:
        """Return the bytes that a token stands for; None for a special token, which is no text."""
        known = self._bytes[token] if token < self.size else b""
        return known or None

    def name(self, token: int) -> str:
        """Return the token in printable form."""
        if token >= self.size:  # a model may have more tokens than its tokenizer
            return f"<{token}>"
        special = next((name for name, number in self.named.items() if number == token), None)
        return printable_bytes(self._bytes[token]) if special is None else special

    def state(self) -> dict[str, Any]:
        """Return the library's ``tokenizer.json``; with several special tokens, in it which one ends a text."""
        library = self._library_state()
        return library if len(self.named) == 1 else self._named_state(library)

    def _named_state(self, library: dict[str, Any]) -> dict[str, Any]:
        begin = {} if self._begin_name is None else {"begin": self._begin_name}
        return {"kind": SEVERAL, "end": self._end_name, **begin, "library": library}

    @classmethod
    def restore_several(cls, state: Mapping[str, Any]) -> Self:
        """Return the tokenizer with several special tokens that has this ``state``."""
        with library_errors():
            return cls(Tokenizer.from_str(json.dumps(state["library"])), state["end"], state.get("begin"))

    def surcharge(self, text: str, opens: bool = True, closes: bool = True) -> tuple[float, int]:
        """Return 0: nothing is lost."""
        return 0.0, 0


def _byte_tokenizer(model: Any, end: str = END) -> SubwordTokenizer:
    """Return a tokenizer with the byte alphabet around a model."""
    inner = Tokenizer(model)
    inner.pre_tokenizer = byte_pre_tokenizer(isinstance(model, models.WordPiece))
    inner.decoder = decoders.ByteLevel()
    if isinstance(model, models.WordPiece):
        prefix = decoders.Replace(Regex(f"^{CONTINUATION_PREFIX}"), "")
        inner.decoder = decoders.Sequence([prefix, decoders.ByteLevel()])
    inner.add_special_tokens([AddedToken(end, normalized=False, special=True)])
    return SubwordTokenizer(inner)


def byte_pre_tokenizer(pieces: bool) -> Any:
    """Split words as GPT-2. For WordPiece a # is separate, so that no word looks like a continuation."""
    words = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)
    if not pieces:
        return words
    runs = pre_tokenizers.Split(Regex(f".{{{MAX_WORDPIECE_CHARS}}}"), "isolated")
    return pre_tokenizers.Sequence([pre_tokenizers.Split("#", "isolated"), words, runs])


def ascii_words(described: Any) -> re.Pattern[str] | None:
    """Return how a pre-tokenizer from a file splits ASCII, if it is one of the two made here."""
    for pieces, words in ((False, GPT2_WORDS), (True, LONE_HASH_WORDS)):
        ours = Tokenizer(models.BPE())
        ours.pre_tokenizer = byte_pre_tokenizer(pieces)
        if described == json.loads(ours.to_str())["pre_tokenizer"]:
            return words
    return None


def fit_subwords(kind: str, texts: Iterable[str], vocabulary: int, min_count: int = 2) -> SubwordTokenizer:
    """Train BPE, WordPiece or Unigram; deterministic."""
    special = [END]
    if kind == "wordpiece":
        # Continuations are named beforehand: else the trainer numbers them in the order of a hash table.
        special += [CONTINUATION_PREFIX + letter for letter in sorted(BYTE_ALPHABET)]
    check_vocabulary_size(kind, vocabulary, len(special) + len(BYTE_ALPHABET), "every byte is a token")
    trained = train_on_bytes(kind, texts, special, vocabulary, min_count)
    if kind == "unigram":
        scores = [(END, 0.0), *unigram_scores(trained["vocab"], special, vocabulary - 1)]
        return _byte_tokenizer(models.Unigram(vocab=scores, unk_id=None))
    if kind == "wordpiece":
        return _byte_tokenizer(_wordpiece_model(vocab=trained["vocab"]))
    return _byte_tokenizer(models.BPE(vocab=trained["vocab"], merges=[tuple(merge) for merge in trained["merges"]]))


def check_vocabulary_size(kind: str, vocabulary: int, least: int, why: str) -> None:
    """Raise an error for a vocabulary of fewer than ``least`` tokens."""
    if vocabulary < least:
        raise InputError(f"a {kind} vocabulary of {vocabulary} is too small", hint=f"choose at least {least}: {why}")


def _wordpiece_model(**options: Any) -> Any:
    return models.WordPiece(unk_token=END, max_input_chars_per_word=MAX_WORDPIECE_CHARS, **options)


def train_on_bytes(
    kind: str, texts: Iterable[str], special: Sequence[str], vocabulary: int, min_count: int, normalizer: Any = None
) -> dict[str, Any]:
    """Train BPE, WordPiece or Unigram on GPT-2's byte alphabet; return the library's description of the model."""
    options: dict[str, Any] = {"vocab_size": vocabulary, "special_tokens": list(special), "show_progress": False}
    options["initial_alphabet"] = sorted(BYTE_ALPHABET)
    if kind == "unigram":
        inner, trainer = Tokenizer(models.Unigram()), trainers.UnigramTrainer(**options)
    elif kind == "wordpiece":
        inner, trainer = Tokenizer(_wordpiece_model()), trainers.WordPieceTrainer(min_frequency=min_count, **options)
    else:
        inner, trainer = Tokenizer(models.BPE()), trainers.BpeTrainer(min_frequency=min_count, **options)
    if normalizer is not None:
        inner.normalizer = normalizer
    inner.pre_tokenizer = byte_pre_tokenizer(kind == "wordpiece")
    inner.train_from_iterator(_in_small_texts(texts), trainer)
    model: dict[str, Any] = json.loads(inner.to_str())["model"]
    return model


def _in_small_texts(texts: Iterable[str]) -> Iterator[str]:
    """Yield texts in small chunks cut between words: the library reads 256 ahead, which should not take much memory."""
    for text in texts:
        for part in cut_bytes(encode_utf8(text), TRAINER_TEXT_BYTES):
            yield part.decode()


def unigram_scores(trained: Iterable[tuple[str, float]], special: Sequence[str], most: int) -> list[tuple[str, float]]:
    """Return the log probabilities of a trained Unigram, most likely first, with every byte and no special tokens.

    The order does not depend on the trainer's hash tables. The trainer leaves out bytes that it did not see: the least
    likely tokens make room for them.
    """
    scores = {token: round(score, 6) for token, score in trained if token not in special}
    floor = min((score for token, score in scores.items() if len(token) > 1), default=0.0)
    scores |= {letter: floor - 1.0 for letter in BYTE_ALPHABET if scores.get(letter, floor) <= floor}
    order = sorted(scores.items(), key=lambda item: (-item[1], item[0]))
    joined = [token for token, _ in order if token not in BYTE_ALPHABET]
    late = set(joined[most - len(BYTE_ALPHABET) :])
    return [(token, score) for token, score in order if token not in late]


def gpt2_tokenizer(vocab: Mapping[str, int], merges: str) -> SubwordTokenizer:
    """Build GPT-2's tokenizer from the contents of its two files."""
    if GPT2_END not in vocab:
        raise InputError("not GPT-2's vocabulary and merges", hint=f"it has {GPT2_END} and two parts a line")
    return _byte_tokenizer(bpe_model(vocab, merges), GPT2_END)


def bpe_model(vocab: Mapping[str, int], merges: str) -> Any:
    """Build the library's BPE from a vocabulary and the contents of a file of merges, two parts per line."""
    lines = [line.split(" ") for line in merges.split("\n") if line and not line.startswith("#version")]
    if any(len(line) != 2 for line in lines):
        raise InputError("not a file of merges", hint="each line has two parts")
    try:
        return models.BPE(vocab=dict(vocab), merges=[(left, right) for left, right in lines])
    except (TypeError, ValueError, OverflowError):
        raise
    except Exception as error:  # the library raises no narrower type
        raise InputError(f"vocabulary and merges do not belong together ({error})") from error
