"""Many texts at once, as fast as a tokenizer can."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ensue.data.tokenizers.protocol import Tokenizer


def encode_texts(tokenizer: Tokenizer, texts: Sequence[str]) -> list[np.ndarray]:
    """``encode`` of each text."""
    batch = getattr(tokenizer, "encode_batch", None)
    found: list[np.ndarray] = batch(texts) if batch is not None else [tokenizer.encode(text) for text in texts]
    return found
