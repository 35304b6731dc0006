"""Tokenizers with special tokens for encoders: BERT, DistilBERT and RoBERTa.

BERT's WordPiece (Devlin et al. 2019) has [PAD] [UNK] [CLS] [SEP] [MASK], RoBERTa's byte-level BPE (Liu et al. 2019)
<s> <pad> </s> <unk> <mask>. Hugging Face's classes read and write the same ``tokenizer.json``.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from tokenizers import AddedToken, Tokenizer, decoders, processors

from ensue.core.errors import InputError
from ensue.data.tokenizers.library import LibraryTokenizer
from ensue.data.tokenizers.protocol import Ids, as_list, encode_utf8, printable, printable_bytes
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

SPACES = ("Ġ", "▁")
"""How the space before a word is written in the names of tokens: of bytes, and by SentencePiece."""
BATCH_TEXTS = 4096
"""Texts passed to the library at once, which bounds memory."""


class EncoderTokenizer(LibraryTokenizer):
    """A tokenizer with special tokens at the start, between and at the end of texts, and a mask token."""

    def __init__(self, inner: Tokenizer) -> None:
        inner.no_truncation()
        inner.no_padding()
        self.special_tokens = special = _complete(inner)
        super().__init__(inner)
        self.end = special.end
        model = self._described["model"]
        self.kind = str(model["type"]).lower()
        unknown: int | None = model.get("unk_id")  # Unigram stores an id, the others a name
        named = _find_id(inner, model.get("unk_token"), *SPECIAL_NAMES["unknown"])
        self.unknown = named if unknown is None else unknown
        vocabulary: dict[str, int] = inner.get_vocab()
        self.size = 1 + max(vocabulary.values())
        used = (special.start, special.separator, special.end, special.pad, special.mask or 0, self.unknown or 0)
        if not all(0 <= token < self.size for token in used):
            raise InputError(f"a special token is {max(used)}, which is not one of the {self.size} tokens")
        self.spaced = "ByteLevel" in _component_types(self._described["pre_tokenizer"])
        self._cache = _word_cache(inner, self._described)
        known = self._described["normalizer"] is None and self._cache is not None and self.kind != "wordpiece"
        self._lossless = known and BYTE_ALPHABET.keys() <= vocabulary.keys()
        self._special = frozenset(token["id"] for token in self._described["added_tokens"] if token["special"])
        self._not_shown = frozenset({special.start, special.separator, special.end, special.pad})

    def encode(self, text: str) -> np.ndarray:
        """Return the subwords of the text, without special tokens."""
        data = encode_utf8(text)
        if self._cache is not None:
            return self._cache.encode(data)
        return np.array(self._inner.encode(text, add_special_tokens=False).ids, dtype=np.int32)

    def encode_batch(self, texts: Sequence[str]) -> list[np.ndarray]:
        """Encode many texts: ASCII with the word cache, others with the library's threads."""
        ids: dict[int, np.ndarray] = {}
        rest: list[int] = []
        for index, text in enumerate(texts):
            if self._cache is not None and text.isascii():
                ids[index] = self._cache.encode(text.encode())
            else:
                encode_utf8(text)
                rest.append(index)
        for start in range(0, len(rest), BATCH_TEXTS):
            block = rest[start : start + BATCH_TEXTS]
            encoded = self._inner.encode_batch_fast([texts[index] for index in block], add_special_tokens=False)
            ids |= {index: np.array(one.ids, dtype=np.int32) for index, one in zip(block, encoded, strict=True)}
        return [ids[index] for index in range(len(texts))]

    def decode(self, ids: Ids) -> str:
        """Return readable text; of the special tokens only unknown and mask are shown."""
        shown = [token for token in as_list(ids) if token not in self._not_shown]
        return str(self._inner.decode(shown, skip_special_tokens=False))

    def name(self, token: int) -> str:
        """Return the token in printable form."""
        name = self._inner.id_to_token(token) or f"<{token}>"  # some files have ids without a token
        if self.spaced and token not in self._special and BYTE_ALPHABET.keys() >= set(name):
            return printable_bytes(bytes(BYTE_ALPHABET[letter] for letter in name))
        return printable(name)

    def continuations(self) -> np.ndarray:
        """Return which tokens continue a word (size,): by WordPiece's prefix, or as no space comes before them."""
        names = [self._inner.id_to_token(token) or "" for token in range(self.size)]
        if self.kind == "wordpiece":
            prefix = self._described["model"]["continuing_subword_prefix"]
            return np.array([name.startswith(prefix) for name in names])
        begins = np.array([name.startswith(SPACES) for name in names])
        if not begins.any():
            hint = "use train.mask_unit=tokens, or a wordpiece, bpe or unigram tokenizer"
            raise InputError(f"this {self.kind} tokenizer does not show where words begin", hint=hint)
        return ~begins

    def surcharge(self, text: str, opens: bool = True, closes: bool = True) -> tuple[float, int]:
        """Return 0 if the tokenizer is lossless; else raise an error, as the cost is unknown."""
        if not self._lossless:
            what = f"this {self.kind} tokenizer loses case or white space, so bits per byte cannot be counted"
            raise InputError(what, hint="choose byte, char, word or bpe for a language model")
        return 0.0, 0


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


def _complete(inner: Tokenizer) -> SpecialTokens:
    """Return a tokenizer's special tokens; add what its file leaves out: special flags, template, decoder."""
    state = json.loads(inner.to_str())
    template = _read_template(state["post_processor"])
    first, last = template[:2] if template else (_find_id(inner, *SPECIAL_NAMES[role]) for role in ("first", "last"))
    if first is None or last is None:
        what = "a tokenizer with several special tokens needs one before and one after a text"
        raise InputError(what, hint="[CLS] and [SEP], or <s> and </s>")
    pad, mask = (_find_id(inner, *SPECIAL_NAMES[role]) for role in ("pad", "mask"))
    known = {token["id"] for token in state["added_tokens"] if token["special"]}
    new = {token for token in (first, last, pad, mask) if token is not None} - known
    inner.add_special_tokens([special_token(inner.id_to_token(token)) for token in sorted(new)])
    double = template[2] if template else inner.id_to_token(first) == SPECIAL_NAMES["first"][1]
    if template is None:
        ends = (inner.id_to_token(first), first), (inner.id_to_token(last), last)
        inner.post_processor = roberta_template(*ends) if double else bert_template(*ends)
    if inner.decoder is None:
        inner.decoder = _decoder(state)
    return SpecialTokens(start=first, separator=last, end=last, double_separator=double, mask=mask, pad=pad or 0)


def _decoder(state: Mapping[str, Any]) -> Any:
    if state["model"]["type"] == "WordPiece":
        return decoders.WordPiece(prefix=state["model"]["continuing_subword_prefix"])
    return decoders.ByteLevel() if "ByteLevel" in _component_types(state["pre_tokenizer"]) else decoders.Fuse()


def _find_id(inner: Tokenizer, *names: str | None) -> int | None:
    """Return the id of the first name that is in the vocabulary."""
    ids = (inner.token_to_id(name) for name in names if name is not None)
    return next((token for token in ids if token is not None), None)


def _read_template(processor: Any) -> tuple[int, int, bool] | None:
    """Return the start and end tokens and whether separators are doubled, from a post-processor."""
    kind = processor["type"] if processor else None
    if kind == "Sequence":
        return next(filter(None, map(_read_template, processor["processors"])), None)
    if kind in ("BertProcessing", "RobertaProcessing"):
        return processor["cls"][1], processor["sep"][1], kind == "RobertaProcessing"
    if kind != "TemplateProcessing":
        return None
    number = {name: token["ids"][0] for name, token in processor["special_tokens"].items()}
    single, pair = (_template_parts(processor[form]) for form in ("single", "pair"))
    if len(single) != 3 or single[1] is not None:
        return None
    between = pair[pair.index(None) + 1 :]
    return number[single[0]], number[single[2]], len(between) > 1 and None not in between[:2]


def _template_parts(parts: Sequence[Mapping[str, Any]]) -> list[str | None]:
    """Return a template's special tokens in order, with None for a text."""
    return [part["SpecialToken"]["id"] if "SpecialToken" in part else None for part in parts]


def _component_types(component: Any) -> Iterator[str]:
    """Yield the types of a pre-tokenizer or decoder and of its components."""
    if component:
        yield component["type"]
        for inner in component.get("pretokenizers", ()):
            yield from _component_types(inner)


def _word_cache(inner: Tokenizer, state: Mapping[str, Any]) -> WordCache | None:
    """Return a word cache, if it is known how this tokenizer splits text into words."""
    if not all(token["special"] for token in state["added_tokens"]) or state["model"].get("dropout"):
        return None
    normalizer, cut = state["normalizer"], state["pre_tokenizer"]
    if normalizer is None:
        words = ascii_words(cut)
        return None if words is None else WordCache(inner, words)
    bert = normalizer["type"] == "BertNormalizer" and normalizer["clean_text"]
    return LineWordCache(inner, BERT_WORDS) if bert and cut == {"type": "BertPreTokenizer"} else None
