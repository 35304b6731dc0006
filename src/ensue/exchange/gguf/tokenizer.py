"""The tokenizer in a GGUF file: byte-level BPE, or pieces of SentencePiece (``ensue.exchange.gguf.pieces``).

``tokenizer.ggml.pre`` names how text is split into words before byte-level BPE.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers

from ensue.core.errors import InputError, errors_in
from ensue.data.tokenizers.library import library_errors
from ensue.data.tokenizers.pieces import PieceTokenizer
from ensue.data.tokenizers.subword import SubwordTokenizer
from ensue.exchange.gguf.file import GGUFFile
from ensue.exchange.gguf.pieces import BYTE, CONTROL, NORMAL, UNKNOWN, USER_DEFINED, piece_model

DOCUMENT_ENDS = ("<|endoftext|>", "<|end_of_text|>")
"""The tokens between documents in pre-training, where another one ends an answer."""
ANSWER_ENDS = ("<|im_end|>", "<|eot_id|>", "<end_of_turn>", "<|end|>", "<|eom_id|>")
"""The tokens that end an answer, by their usual names; files do not always name them."""
MAX_NAME = 1000
"""Characters in the name of a special token; the library takes minutes to prepare the search for a very long one."""
LLAMA3_WORDS = "|".join(
    [
        r"(?i:'s|'t|'re|'ve|'m|'ll|'d)",
        r"[^\r\n\p{L}\p{N}]?\p{L}+",
        r"\p{N}{1,3}",
        r" ?[^\s\p{L}\p{N}]+[\r\n]*",
        r"\s*[\r\n]+",
        r"\s+(?!\S)",
        r"\s+",
    ]
)
QWEN2_WORDS = LLAMA3_WORDS.replace(r"\p{N}{1,3}", r"\p{N}")
TEKKEN_WORDS = "|".join(
    [
        r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+",
        r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*",
        r"\p{N}",
        r" ?[^\s\p{L}\p{N}]+[\r\n/]*",
        r"\s*[\r\n]+",
        r"\s+(?!\S)",
        r"\s+",
    ]
)


def _gpt2() -> Any:
    return pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)


def _digits_then_gpt2() -> Any:
    return pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=True), _gpt2()])


def _words(pattern: str) -> Callable[[], Any]:
    def make() -> Any:
        split = pre_tokenizers.Split(Regex(pattern), behavior="isolated")
        return pre_tokenizers.Sequence([split, pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])

    return make


class Splitting(NamedTuple):
    """How text is split before BPE, and what comes with it."""

    make: Callable[[], Any]
    whole_words: bool = False
    """Whether a word that is a token becomes that token, whatever the merges say."""
    begins: bool = False
    """Whether the begin token stands before a text if the file does not say."""


LLAMA3 = Splitting(_words(LLAMA3_WORDS), whole_words=True, begins=True)
SPLITS: dict[str, Splitting] = {
    **dict.fromkeys(("gpt-2", "phi-2", "olmo", "mpt"), Splitting(_gpt2)),
    **dict.fromkeys(("smollm", "starcoder", "refact", "command-r"), Splitting(_digits_then_gpt2)),
    **dict.fromkeys(("llama-bpe", "llama3", "llama-v3", "falcon3"), LLAMA3),
    **dict.fromkeys(("smaug-bpe", "dbrx"), Splitting(LLAMA3.make)),
    **dict.fromkeys(("qwen2", "deepseek-r1-qwen", "stablelm2", "megrez"), Splitting(_words(QWEN2_WORDS))),
    "tekken": Splitting(_words(TEKKEN_WORDS), whole_words=True, begins=True),
}
"""Ways to split by their names; where one has several, the first is written."""


def gguf_tokenizer(file: GGUFFile) -> SubwordTokenizer:
    """Return the tokenizer of a file."""
    where, kind = str(file.path), file.text("tokenizer.ggml.model")
    if kind not in ("gpt2", "llama"):
        hint = "byte-level BPE (gpt2) and SentencePiece's BPE (llama) are"
        raise InputError(f"the tokenizer {kind[:40]!r} is not supported", where=where, hint=hint)
    _check_flags(file)
    tokens, kinds = _tokens(file)
    end = file.token("tokenizer.ggml.eos_token_id")
    if end is None or not 0 <= end < len(tokens) or kinds[end] != CONTROL:
        raise InputError(f"is damaged: its end token is {end!r}", where=where)
    if kind == "llama":
        inner, begins = piece_model(file, tokens, kinds), True
    else:
        inner, begins = _byte_level(file, tokens)
    with errors_in(file.path), library_errors():
        _add_tokens(inner, tokens, kinds)
        control = {tokens[number] for number in np.flatnonzero(kinds == CONTROL).tolist()}
        first = file.token("tokenizer.ggml.bos_token_id")
        adds = file.flag("tokenizer.ggml.add_bos_token", begins) and first is not None and 0 <= first < len(tokens)
        begin = tokens[first] if adds and first is not None and tokens[first] in control else None
        ends = [name for name in DOCUMENT_ENDS if name in control]
        make = PieceTokenizer if kind == "llama" else SubwordTokenizer
        return make(inner, ends[0] if ends else tokens[end], begin)


def _check_flags(file: GGUFFile) -> None:
    """Raise InputError for what a file says about text that is not done here."""
    for name in ("add_eos_token", "add_sep_token", "remove_extra_whitespaces"):
        if file.flag(f"tokenizer.ggml.{name}", False):
            raise InputError(f"tokenizer.ggml.{name} = true is not supported", where=str(file.path))
    if "tokenizer.ggml.precompiled_charsmap" in file.values:
        raise InputError("tokenizer.ggml.precompiled_charsmap is not supported", where=str(file.path))


def _tokens(file: GGUFFile) -> tuple[list[str], np.ndarray]:
    """The tokens and their types."""
    where = str(file.path)
    tokens = [token or f"[EMPTY_{number}]" for number, token in enumerate(_strings(file, "tokenizer.ggml.tokens"))]
    kinds = file.values.get("tokenizer.ggml.token_type")
    kinds = np.full(len(tokens), NORMAL) if kinds is None else kinds
    if not isinstance(kinds, np.ndarray) or len(kinds) != len(tokens) or len(set(tokens)) != len(tokens):
        raise InputError("is damaged: its tokens and their types do not fit together", where=where)
    if not np.isin(kinds, range(NORMAL, BYTE + 1)).all():
        raise InputError("is damaged: a token has an unknown type", where=where)
    return tokens, kinds


def _byte_level(file: GGUFFile, tokens: Sequence[str]) -> tuple[Tokenizer, bool]:
    """Byte-level BPE without its special tokens, and whether a begin token stands before a text."""
    where, split = str(file.path), file.text("tokenizer.ggml.pre", "gpt-2")
    if split not in SPLITS:
        what = f"its tokenizer splits words as {split[:40]!r}, which is not supported"
        raise InputError(what, where=where, hint=f"available: {', '.join(SPLITS)}")
    parts = [tuple(merge.split(" ")) for merge in _strings(file, "tokenizer.ggml.merges")]
    if any(len(part) != 2 for part in parts):
        raise InputError("is damaged: a merge has not two parts", where=where)
    vocab = {token: number for number, token in enumerate(tokens)}
    try:
        inner = Tokenizer(models.BPE(vocab=vocab, merges=parts, ignore_merges=SPLITS[split].whole_words))
    except Exception as error:  # the library raises no narrower type
        raise InputError(f"is damaged: tokens and merges do not fit together ({error})", where=where) from error
    inner.pre_tokenizer, inner.decoder = SPLITS[split].make(), decoders.ByteLevel()
    return inner, SPLITS[split].begins


def _add_tokens(inner: Tokenizer, tokens: Sequence[str], kinds: np.ndarray) -> None:
    """Let special tokens and those that a user defined be found as a whole."""
    for special, which in ((False, (USER_DEFINED,)), (True, (CONTROL, UNKNOWN))):
        names = [tokens[number] for number in np.flatnonzero(np.isin(kinds, which)).tolist()]
        if any(len(name) > MAX_NAME for name in names):
            raise InputError("is damaged: the name of a special token is too long")
        added = [AddedToken(name, normalized=False, special=special) for name in names]
        (inner.add_special_tokens if special else inner.add_tokens)(added)


def _strings(file: GGUFFile, key: str) -> Sequence[str]:
    value = file.values.get(key)
    if not isinstance(value, list) or not value:
        raise InputError(f"has no {key}", where=str(file.path))
    return value
