"""Tokenizers: bytes, characters, words, and subwords."""

from ensue.data.tokenizers.protocol import Tokenizer
from ensue.data.tokenizers.registry import KINDS, fit_tokenizer, load_tokenizer, resolve_tokenizer, save_tokenizer

__all__ = ["KINDS", "Tokenizer", "fit_tokenizer", "load_tokenizer", "resolve_tokenizer", "save_tokenizer"]
