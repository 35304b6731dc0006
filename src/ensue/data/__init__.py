"""Readers, tokenizers, token files and batches that can be resumed."""
