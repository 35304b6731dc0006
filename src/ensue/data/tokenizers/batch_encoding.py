"""Encode many texts with a tokenizer's batch method, if it has one."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ensue.data.tokenizers.protocol import Tokenizer


def encode_texts(tokenizer: Tokenizer, texts: Sequence[str]) -> list[np.ndarray]:
    """Return the tokens of each text."""
    batch = getattr(tokenizer, "encode_batch", None)
    encoded: list[np.ndarray] = batch(texts) if batch is not None else [tokenizer.encode(text) for text in texts]
    return encoded
