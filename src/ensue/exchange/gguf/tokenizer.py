"""The tokenizer in a GGUF file: byte-level BPE with the splitting that ``tokenizer.ggml.pre`` names."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers

from ensue.core.errors import InputError
from ensue.data.tokenizers.subword import SubwordTokenizer
from ensue.exchange.gguf.file import GGUFFile

DOCUMENT_END = "<|endoftext|>"
"""The token between documents in pre-training, where it is not the one that ends an answer."""
NORMAL, UNKNOWN, CONTROL, USER_DEFINED, UNUSED = 1, 2, 3, 4, 5
"""Types of tokens."""
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


def _gpt2() -> Any:
    return pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)


def _digits_then_gpt2() -> Any:
    return pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=True), _gpt2()])


def _words(pattern: str) -> Any:
    split = pre_tokenizers.Split(Regex(pattern), behavior="isolated")
    return pre_tokenizers.Sequence([split, pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])


SPLITS: dict[str, Callable[[], Any]] = {
    "gpt-2": _gpt2,
    "smollm": _digits_then_gpt2,
    "llama-bpe": lambda: _words(LLAMA3_WORDS),
    "llama3": lambda: _words(LLAMA3_WORDS),
    "qwen2": lambda: _words(QWEN2_WORDS),
}
"""How text is split before BPE, by name."""


def gguf_tokenizer(file: GGUFFile) -> SubwordTokenizer:
    """Return the tokenizer of a file."""
    where = str(file.path)
    kind = file.text("tokenizer.ggml.model")
    if kind != "gpt2":
        raise InputError(f"the tokenizer {kind[:40]!r} is not supported", where=where, hint="byte-level BPE (gpt2) is")
    split = file.text("tokenizer.ggml.pre", "gpt-2")
    if split not in SPLITS:
        what = f"its tokenizer splits words as {split[:40]!r}, which is not supported"
        raise InputError(what, where=where, hint=f"available: {', '.join(SPLITS)}")
    tokens, merges = (_strings(file, f"tokenizer.ggml.{name}") for name in ("tokens", "merges"))
    kinds = file.values.get("tokenizer.ggml.token_type")
    kinds = np.full(len(tokens), NORMAL) if kinds is None else kinds
    end = file.token("tokenizer.ggml.eos_token_id")
    if not isinstance(kinds, np.ndarray) or len(kinds) != len(tokens) or len(set(tokens)) != len(tokens):
        raise InputError("is damaged: its tokens and their types do not fit together", where=where)
    if end is None or not 0 <= end < len(tokens) or kinds[end] != CONTROL:
        raise InputError(f"is damaged: its end token is {end!r}", where=where)
    parts = [tuple(merge.split(" ")) for merge in merges]
    if any(len(part) != 2 for part in parts):
        raise InputError("is damaged: a merge has not two parts", where=where)
    try:
        inner = Tokenizer(models.BPE(vocab={token: number for number, token in enumerate(tokens)}, merges=parts))
    except Exception as error:  # the library raises no narrower type
        raise InputError(f"is damaged: tokens and merges do not fit together ({error})", where=where) from error
    inner.pre_tokenizer, inner.decoder = SPLITS[split](), decoders.ByteLevel()
    for number in np.flatnonzero(np.isin(kinds, (CONTROL, UNKNOWN, USER_DEFINED))).tolist():
        added = AddedToken(tokens[number], normalized=False, special=kinds[number] != USER_DEFINED)
        (inner.add_tokens if kinds[number] == USER_DEFINED else inner.add_special_tokens)([added])
    control = {tokens[number] for number in np.flatnonzero(kinds == CONTROL).tolist()}
    first = file.token("tokenizer.ggml.bos_token_id")
    adds = file.values.get("tokenizer.ggml.add_bos_token") is True and first is not None and 0 <= first < len(tokens)
    begin = tokens[first] if adds and first is not None and tokens[first] in control else None
    return SubwordTokenizer(inner, DOCUMENT_END if DOCUMENT_END in control else tokens[end], begin)


def _strings(file: GGUFFile, key: str) -> Sequence[str]:
    value = file.values.get(key)
    if not isinstance(value, list) or not value:
        raise InputError(f"has no {key}", where=str(file.path))
    return value
