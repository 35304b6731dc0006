"""Tokenizers: bytes, characters, words, and parts of words."""

from ensue.data.tokenizers.finding import (
    KINDS,
    find_tokenizer,
    fit_tokenizer,
    load_tokenizer,
    save_tokenizer,
)
from ensue.data.tokenizers.protocol import Tokenizer

__all__ = ["KINDS", "Tokenizer", "find_tokenizer", "fit_tokenizer", "load_tokenizer", "save_tokenizer"]
