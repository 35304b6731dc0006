"""Tokenizers: bytes, characters, words, and parts of words."""

from ensue.data.tokenizers.protocol import Tokenizer
from ensue.data.tokenizers.registry import (
    KINDS,
    find_tokenizer,
    fit_tokenizer,
    load_tokenizer,
    save_tokenizer,
)

__all__ = ["KINDS", "Tokenizer", "find_tokenizer", "fit_tokenizer", "load_tokenizer", "save_tokenizer"]
