"""Lossless subword tokenizers over the 256 bytes.

BPE (Sennrich et al. 2016), WordPiece (Schuster and Nakajima 2012) and Unigram (Kudo 2018), trained and run
by the ``tokenizers`` library on GPT-2's byte alphabet (Radford et al. 2019). ``tokenizer.json`` is that
library's own file, which Hugging Face's classes read.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers, trainers

from ensue.core.errors import InputError
from ensue.data.text_pieces import cut_bytes
from ensue.data.tokenizers.protocol import END, Ids, as_list, encode_utf8, printable_bytes
from ensue.data.tokenizers.spans import library_spans
from ensue.data.tokenizers.word_cache import GPT2_WORDS, LONE_HASH_WORDS, WordCache

CONTINUATION_PREFIX = "##"
MAX_WORDPIECE_CHARS = 64
"""Longer runs are split before WordPiece, whose longest-match search takes quadratic time."""
GPT2_END = "<|endoftext|>"
TRAINER_TEXT_BYTES = 1 << 15
"""Bytes of text passed to a trainer at once."""


def _byte_letters() -> dict[str, int]:
    """Return GPT-2's alphabet: a printable character for each byte."""
    shown = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    hidden = [byte for byte in range(256) if byte not in set(shown)]
    return {chr(byte): byte for byte in shown} | {chr(256 + at): byte for at, byte in enumerate(hidden)}


BYTE_ALPHABET = _byte_letters()


class SubwordTokenizer:
    """A trained BPE, WordPiece or Unigram tokenizer, or GPT-2's."""

    unknown = None
    lines = False
    spaced = True

    def __init__(self, inner: Tokenizer) -> None:
        inner.encode_special_tokens = True  # the end token's name in a text is plain text
        self._inner = inner
        self._state: dict[str, Any] = json.loads(inner.to_str())
        special = [token for token in self._state["added_tokens"] if token["special"]]
        if len(special) != 1:
            raise InputError(f"a tokenizer needs one special token, the end mark; this one has {len(special)}")
        self.end: int = special[0]["id"]
        self._end_name: str = special[0]["content"]
        model = self._state["model"]["type"]
        self.kind = "gpt2" if self._end_name == GPT2_END and model == "BPE" else str(model).lower()
        self.size: int = inner.get_vocab_size()
        self._memory = WordCache(inner, ascii_words(self._state["pre_tokenizer"]))
        self._bytes = [self._spell(inner.id_to_token(token)) for token in range(self.size)]
        self._bytes[self.end] = b""

    def _spell(self, token: str | None) -> bytes:
        """Return the bytes of a token."""
        if token is None or token == self._end_name:
            return b""
        if self.kind == "wordpiece" and len(token) > len(CONTINUATION_PREFIX):
            token = token.removeprefix(CONTINUATION_PREFIX)
        try:
            return bytes(BYTE_ALPHABET[letter] for letter in token)
        except KeyError as error:
            hint = "only byte-level tokenizers can be used"
            raise InputError(f"the token {token!r} is not made of bytes", hint=hint) from error

    def encode(self, text: str) -> np.ndarray:
        """Return the subwords of the text."""
        return self._memory.encode(encode_utf8(text))

    def spans(self, text: str) -> tuple[np.ndarray, np.ndarray]:
        """Return the tokens and their character spans; see ``token_spans``."""
        return library_spans(self._inner, text)

    def decode(self, ids: Ids) -> str:
        """Return the text; bytes that are not UTF-8 become �."""
        return b"".join(self._bytes[token] for token in as_list(ids)).decode("utf-8", "replace")

    def name(self, token: int) -> str:
        """Return the token in printable form."""
        return self._end_name if token == self.end else printable_bytes(self._bytes[token])

    def surcharge(self, text: str, opens: bool = True, closes: bool = True) -> tuple[float, int]:
        """Return 0: nothing is lost."""
        return 0.0, 0

    def state(self) -> dict[str, Any]:
        """Return the library's ``tokenizer.json``."""
        return self._state

    @classmethod
    def restore(cls, state: Mapping[str, Any]) -> SubwordTokenizer:
        """Return the tokenizer with this ``state``."""
        try:
            return cls(Tokenizer.from_str(json.dumps(state)))
        except InputError:
            raise
        except Exception as error:  # the library raises no narrower type
            raise InputError(f"not a tokenizer that can be read ({error})") from error


def _wrapped(model: Any, end: str = END) -> SubwordTokenizer:
    """Wrap a model with the byte alphabet."""
    inner = Tokenizer(model)
    inner.pre_tokenizer = byte_pre_tokenizer(isinstance(model, models.WordPiece))
    inner.decoder = decoders.ByteLevel()
    if isinstance(model, models.WordPiece):
        inner.decoder = decoders.Sequence(
            [decoders.Replace(Regex(f"^{CONTINUATION_PREFIX}"), ""), decoders.ByteLevel()]
        )
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
    least = 1 + len(BYTE_ALPHABET) * (2 if kind == "wordpiece" else 1)
    if vocabulary < least:
        hint = f"choose at least {least}: every byte is a token"
        raise InputError(f"a {kind} vocabulary of {vocabulary} is too small", hint=hint)
    alphabet = sorted(BYTE_ALPHABET)
    options: dict[str, Any] = {"vocab_size": vocabulary, "initial_alphabet": alphabet, "show_progress": False}
    if kind == "bpe":
        inner = Tokenizer(models.BPE())
        trainer = trainers.BpeTrainer(special_tokens=[END], min_frequency=min_count, **options)
    elif kind == "wordpiece":
        inner = Tokenizer(models.WordPiece(unk_token=END, max_input_chars_per_word=MAX_WORDPIECE_CHARS))
        # Continuations are named beforehand: else the trainer numbers them in the order of a hash table.
        marks = [END, *(CONTINUATION_PREFIX + letter for letter in alphabet)]
        trainer = trainers.WordPieceTrainer(special_tokens=marks, min_frequency=min_count, **options)
    else:
        inner = Tokenizer(models.Unigram())
        trainer = trainers.UnigramTrainer(special_tokens=[END], **options)
    inner.pre_tokenizer = byte_pre_tokenizer(kind == "wordpiece")
    inner.train_from_iterator(_in_small_texts(texts), trainer)
    return _wrapped(_settled(kind, json.loads(inner.to_str())["model"], vocabulary))


def _in_small_texts(texts: Iterable[str]) -> Iterator[str]:
    """Yield texts in small chunks cut between words: the library reads 256 ahead, which should not take much memory."""
    for text in texts:
        for part in cut_bytes(encode_utf8(text), TRAINER_TEXT_BYTES):
            yield part.decode()


def _settled(kind: str, trained: Mapping[str, Any], vocabulary: int) -> Any:
    """Return the trained model in a deterministic order, independent of the trainer's hash tables."""
    if kind == "bpe":
        return models.BPE(vocab=trained["vocab"], merges=[tuple(merge) for merge in trained["merges"]])
    if kind == "wordpiece":
        return models.WordPiece(vocab=trained["vocab"], unk_token=END, max_input_chars_per_word=MAX_WORDPIECE_CHARS)
    return models.Unigram(vocab=[(END, 0.0), *unigram_scores(trained["vocab"], [END], vocabulary - 1)], unk_id=None)


def unigram_scores(trained: Iterable[tuple[str, float]], marks: Sequence[str], most: int) -> list[tuple[str, float]]:
    """Return the log probabilities of a trained Unigram, most likely first, with every byte and no special tokens.

    The trainer leaves out bytes that it did not see: the least likely tokens make room for them.
    """
    scores = {token: round(score, 6) for token, score in trained if token not in marks}
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
    return _wrapped(bpe_model(vocab, merges), GPT2_END)


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
