"""What all tokenizers of the ``tokenizers`` library share; ``tokenizer.json`` is that library's own file."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Self

import numpy as np
from tokenizers import Tokenizer

from ensue.core.errors import InputError
from ensue.core.schema import Either, Fields, Flag, Items, Maybe, Number, Row, Table, Text, Whole
from ensue.data.tokenizers.protocol import encode_utf8

MAX_ID = (1 << 22) - 1
"""The largest id of a token: the library makes a table of all ids up to the largest."""
PANIC = "PanicException"
"""The name of the error that the library raises for faults of its own; it has no public type."""
MAX_HOLES = 1000
"""Ids without a token, besides one for each token."""
_NAME = Text(most=1000)
"""The text of an added token; the library takes minutes to prepare the search for a very long one."""
_ID, _NUMBER_LIST = Whole(0, MAX_ID), Items(Row((Text(), Number())))
LIBRARY_SCHEMA = Fields(
    {"model": Fields({"vocab": Either((_NUMBER_LIST, Table(_ID)))}, optional={"type": Text(), "unk_id": Maybe(_ID)})},
    optional={"added_tokens": Maybe(Items(Fields({"id": _ID, "content": _NAME}, optional={"special": Flag()})))},
)
"""What must hold before the library reads a ``tokenizer.json``."""


def check_ids(state: Mapping[str, Any]) -> None:
    """Raise InputError for ids far above the number of tokens: the library makes a table of all ids below them."""
    vocab, added = state["model"]["vocab"], state.get("added_tokens") or ()
    ids = [*(vocab.values() if isinstance(vocab, dict) else range(len(vocab))), *(token["id"] for token in added)]
    if max(ids, default=0) > 2 * len(ids) + MAX_HOLES:
        raise InputError(f"a token has the id {max(ids):,}, and there are {len(ids):,} tokens")


@contextmanager
def library_errors() -> Iterator[None]:
    """Raise InputError where the library fails on a ``tokenizer.json``, which another program may have written."""
    try:
        yield
    except InputError:
        raise
    except Exception as error:  # the library raises no narrower type, and the file may have any ids
        raise InputError(f"not a tokenizer that can be read ({error})") from error
    except BaseException as error:  # a panic of the library, which is not an Exception
        if type(error).__name__ != PANIC:
            raise
        raise InputError(f"not a tokenizer that can be read ({error})") from error


class LibraryTokenizer:
    """A tokenizer of the ``tokenizers`` library."""

    lines = False

    def __init__(self, inner: Tokenizer) -> None:
        inner.encode_special_tokens = True  # the names of special tokens in a text are plain text
        self._inner = inner
        self._described: dict[str, Any] = json.loads(inner.to_str())
        """The library's ``tokenizer.json`` without its vocabulary, which the library holds already."""
        for large in ("vocab", "merges"):
            self._described["model"].pop(large, None)

    def limit_cache(self, words: int) -> None:
        """Limit the words that the library itself caches, where it can be told; it would cache 10,000."""
        resize = getattr(self._inner.model, "_resize_cache", None)
        if resize is not None:
            resize(words)

    def spans(self, text: str) -> tuple[np.ndarray, np.ndarray]:
        """Return the tokens and their character spans; see ``token_spans``."""
        encode_utf8(text)
        encoded = self._inner.encode(text, add_special_tokens=False)
        spans = np.array(encoded.offsets, dtype=np.int64).reshape(-1, 2)
        for span in spans:
            while span[0] < span[1] and text[span[0]] == " ":
                span[0] += 1
            while span[0] < span[1] and text[span[1] - 1] == " ":
                span[1] -= 1
        return np.array(encoded.ids, dtype=np.int32), spans

    def state(self) -> dict[str, Any]:
        """Return the library's ``tokenizer.json``."""
        return self._library_state()

    def _library_state(self) -> dict[str, Any]:
        state: dict[str, Any] = json.loads(self._inner.to_str())
        return state

    @classmethod
    def restore(cls, state: Mapping[str, Any]) -> Self:
        """Return the tokenizer with this ``state``, which another program may have written."""
        with library_errors():
            return cls(Tokenizer.from_str(json.dumps(state)))
