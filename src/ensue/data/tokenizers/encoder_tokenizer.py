"""Tokenizers with special tokens for encoders: BERT, DistilBERT and RoBERTa.

BERT's WordPiece (Devlin et al. 2019) has [PAD] [UNK] [CLS] [SEP] [MASK], RoBERTa's byte-level BPE (Liu et al.
2019) <s> <pad> </s> <unk> <mask>. ``tokenizer.json`` is the ``tokenizers`` library's own file, which Hugging
Face's classes read and write.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from tokenizers import AddedToken, Tokenizer, decoders, processors

from ensue.core.errors import InputError
from ensue.data.tokenizers.protocol import Ids, as_list, encode_utf8, printable, printable_bytes
from ensue.data.tokenizers.spans import library_spans
from ensue.data.tokenizers.special_tokens import SpecialTokens
from ensue.data.tokenizers.subword import BYTE_ALPHABET, ascii_words
from ensue.data.tokenizers.word_cache import BERT_WORDS, LineWordCache, WordCache

SPECIAL_NAMES = {
    "first": ("[CLS]", "<s>"),
    "last": ("[SEP]", "</s>"),
    "pad": ("[PAD]", "<pad>"),
    "unknown": ("[UNK]", "<unk>"),
    "mask": ("[MASK]", "<mask>"),
}
"""Names of the special tokens in the vocabularies of BERT and RoBERTa."""

BATCH_TEXTS = 4096
"""Texts passed to the library at once, which bounds memory."""


class EncoderTokenizer:
    """A tokenizer with special tokens at the start, between and at the end of texts, and a mask token."""

    lines = False

    def __init__(self, inner: Tokenizer) -> None:
        inner.no_truncation()
        inner.no_padding()
        inner.encode_special_tokens = True  # the names of special tokens in a text are plain text
        self.special_tokens = _settle(inner)
        self.end = self.special_tokens.end
        self._inner = inner
        self._state: dict[str, Any] = json.loads(inner.to_str())
        model = self._state["model"]
        self.kind = str(model["type"]).lower()
        unknown: int | None = model.get("unk_id")  # Unigram stores an id, the others a name
        named = _named(inner, model.get("unk_token"), *SPECIAL_NAMES["unknown"])
        self.unknown = named if unknown is None else unknown
        vocabulary: dict[str, int] = inner.get_vocab()
        self.size = 1 + max(vocabulary.values())
        self.spaced = "ByteLevel" in _types(self._state["pre_tokenizer"])
        self._memory = _memory(inner, self._state)
        known = self._state["normalizer"] is None and self._memory is not None and self.kind != "wordpiece"
        self._lossless = known and BYTE_ALPHABET.keys() <= vocabulary.keys()
        self._special = frozenset(token["id"] for token in self._state["added_tokens"] if token["special"])
        self._silent = frozenset(
            {self.special_tokens.start, self.special_tokens.separator, self.special_tokens.end, self.special_tokens.pad}
        )

    def encode(self, text: str) -> np.ndarray:
        """Return the subwords of the text, without special tokens."""
        data = encode_utf8(text)
        if self._memory is not None:
            return self._memory.encode(data)
        return np.array(self._inner.encode(text, add_special_tokens=False).ids, dtype=np.int32)

    def encode_batch(self, texts: Sequence[str]) -> list[np.ndarray]:
        """Encode many texts: ASCII with the word cache, others with the library's threads."""
        found: dict[int, np.ndarray] = {}
        hard: list[int] = []
        for place, text in enumerate(texts):
            if self._memory is not None and text.isascii():
                found[place] = self._memory.encode(text.encode())
            else:
                encode_utf8(text)
                hard.append(place)
        for start in range(0, len(hard), BATCH_TEXTS):
            block = hard[start : start + BATCH_TEXTS]
            made = self._inner.encode_batch_fast([texts[place] for place in block], add_special_tokens=False)
            found |= {place: np.array(one.ids, dtype=np.int32) for place, one in zip(block, made, strict=True)}
        return [found[place] for place in range(len(texts))]

    def spans(self, text: str) -> tuple[np.ndarray, np.ndarray]:
        """Return the tokens and their character spans; see ``token_spans``."""
        return library_spans(self._inner, text)

    def decode(self, ids: Ids) -> str:
        """Return readable text; of the special tokens only unknown and mask are shown."""
        shown = [token for token in as_list(ids) if token not in self._silent]
        return str(self._inner.decode(shown, skip_special_tokens=False))

    def name(self, token: int) -> str:
        """Return the token in printable form."""
        name = self._inner.id_to_token(token) or f"<{token}>"  # some files have ids without a token
        if self.spaced and token not in self._special and BYTE_ALPHABET.keys() >= set(name):
            return printable_bytes(bytes(BYTE_ALPHABET[letter] for letter in name))
        return printable(name)

    def surcharge(self, text: str, opens: bool = True, closes: bool = True) -> tuple[float, int]:
        """Return 0 if the tokenizer is lossless; else raise an error, as the cost is unknown."""
        if not self._lossless:
            what = f"this {self.kind} tokenizer loses case or white space, so bits per byte cannot be counted"
            raise InputError(what, hint="choose byte, char, word or bpe for a language model")
        return 0.0, 0

    def state(self) -> dict[str, Any]:
        """Return the library's ``tokenizer.json``."""
        return self._state

    @classmethod
    def restore(cls, state: Mapping[str, Any]) -> EncoderTokenizer:
        """Return the tokenizer with this ``state``, which another program may have written."""
        try:
            inner = Tokenizer.from_str(json.dumps(state))
        except Exception as error:  # the library raises no narrower type
            raise InputError(f"not a tokenizer that can be read ({error})") from error
        return cls(inner)


def bert_template(first: tuple[str, int], last: tuple[str, int]) -> Any:
    """Return the library's template for [CLS] A [SEP] B [SEP], from names and ids of the special tokens."""
    return processors.TemplateProcessing(
        single=f"{first[0]}:0 $A:0 {last[0]}:0",
        pair=f"{first[0]}:0 $A:0 {last[0]}:0 $B:1 {last[0]}:1",
        special_tokens=[first, last],
    )


def roberta_template(first: tuple[str, int], last: tuple[str, int], prefix_space: bool = False) -> Any:
    """Return the library's template for <s> A </s> </s> B </s>."""
    return processors.RobertaProcessing(last, first, trim_offsets=True, add_prefix_space=prefix_space)


def special_token(name: str) -> AddedToken:
    """Return a special token as in the files of BERT and RoBERTa: <mask> includes the space before it."""
    return AddedToken(name, lstrip=name == SPECIAL_NAMES["mask"][1], normalized=False, special=True)


def _settle(inner: Tokenizer) -> SpecialTokens:
    """Return a tokenizer's special tokens; add what its file leaves out: special flags, template, decoder."""
    state = json.loads(inner.to_str())
    framing = _framing(state["post_processor"])
    first, last = framing[:2] if framing else (_named(inner, *SPECIAL_NAMES[role]) for role in ("first", "last"))
    if first is None or last is None:
        what = "a tokenizer with several marks needs one before and one after a text"
        raise InputError(what, hint="[CLS] and [SEP], or <s> and </s>")
    pad, mask = (_named(inner, *SPECIAL_NAMES[role]) for role in ("pad", "mask"))
    known = {token["id"] for token in state["added_tokens"] if token["special"]}
    new = {token for token in (first, last, pad, mask) if token is not None} - known
    inner.add_special_tokens([special_token(inner.id_to_token(token)) for token in sorted(new)])
    double = framing[2] if framing else inner.id_to_token(first) == SPECIAL_NAMES["first"][1]
    if framing is None:
        ends = (inner.id_to_token(first), first), (inner.id_to_token(last), last)
        inner.post_processor = roberta_template(*ends) if double else bert_template(*ends)
    if inner.decoder is None:
        inner.decoder = _decoder(state)
    return SpecialTokens(start=first, separator=last, end=last, double_separator=double, mask=mask, pad=pad or 0)


def _decoder(state: Mapping[str, Any]) -> Any:
    """Return the decoder for a file without one."""
    if state["model"]["type"] == "WordPiece":
        return decoders.WordPiece(prefix=state["model"]["continuing_subword_prefix"])
    return decoders.ByteLevel() if "ByteLevel" in _types(state["pre_tokenizer"]) else decoders.Fuse()


def _named(inner: Tokenizer, *names: str | None) -> int | None:
    """Return the id of the first name that is in the vocabulary."""
    found = (inner.token_to_id(name) for name in names if name is not None)
    return next((token for token in found if token is not None), None)


def _framing(described: Any) -> tuple[int, int, bool] | None:
    """Return the start and end tokens and whether separators are doubled, from a post-processor."""
    kind = described["type"] if described else None
    if kind == "Sequence":
        return next(filter(None, map(_framing, described["processors"])), None)
    if kind in ("BertProcessing", "RobertaProcessing"):
        return described["cls"][1], described["sep"][1], kind == "RobertaProcessing"
    if kind != "TemplateProcessing":
        return None
    number = {name: found["ids"][0] for name, found in described["special_tokens"].items()}
    single, pair = (_template(described[form]) for form in ("single", "pair"))
    if len(single) != 3 or single[1] is not None:
        return None
    between = pair[pair.index(None) + 1 :]
    return number[single[0]], number[single[2]], len(between) > 1 and None not in between[:2]


def _template(parts: Sequence[Mapping[str, Any]]) -> list[str | None]:
    """Return a template's special tokens in order, with None for a text."""
    return [part["SpecialToken"]["id"] if "SpecialToken" in part else None for part in parts]


def _types(described: Any) -> Iterator[str]:
    """Yield the types of a pre-tokenizer or decoder and of its components."""
    if described:
        yield described["type"]
        for inner in described.get("pretokenizers", ()):
            yield from _types(inner)


def _memory(inner: Tokenizer, state: Mapping[str, Any]) -> WordCache | None:
    """Return a word cache, if it is known how this tokenizer splits text into words."""
    if not all(token["special"] for token in state["added_tokens"]) or state["model"].get("dropout"):
        return None
    normalizer, cut = state["normalizer"], state["pre_tokenizer"]
    if normalizer is None:
        words = ascii_words(cut)
        return None if words is None else WordCache(inner, words)
    bert = normalizer["type"] == "BertNormalizer" and normalizer["clean_text"]
    return LineWordCache(inner, BERT_WORDS) if bert and cut == {"type": "BertPreTokenizer"} else None
