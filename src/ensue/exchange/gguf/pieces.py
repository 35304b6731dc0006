"""Tokenizers of SentencePiece's BPE in GGUF files (``tokenizer.ggml.model`` = llama): Llama 2, Mistral, Gemma.

A file has a score for each piece instead of merges: of two neighbours that make a piece, those with the best score are
joined first. So the merges are all pairs of pieces that make a piece, in the order of its scores. A character without a
piece becomes its bytes, ``<0xE2>`` and so on. Tokens that a user defined are spelled with spaces, pieces with ``▁``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from tokenizers import Tokenizer, decoders, models, normalizers

from ensue.core.errors import InputError
from ensue.data.tokenizers.pieces import BYTE as BYTE_PIECE
from ensue.data.tokenizers.pieces import SPACE, space_before
from ensue.exchange.gguf.file import GGUFFile

NORMAL, UNKNOWN, CONTROL, USER_DEFINED, UNUSED, BYTE = 1, 2, 3, 4, 5, 6
"""Types of tokens."""
MAX_PIECE = 1000
"""Characters of a piece, all splits of which are looked at."""
Merge = tuple[str, str]


def piece_model(file: GGUFFile, tokens: Sequence[str], kinds: np.ndarray) -> Tokenizer:
    """Return the tokenizer of a file without its special tokens."""
    where = str(file.path)
    scores = file.values.get("tokenizer.ggml.scores")
    if not isinstance(scores, np.ndarray) or len(scores) != len(tokens) or not np.isfinite(scores).all():
        raise InputError("is damaged: its tokens have no scores", where=where)
    joined = np.flatnonzero(np.isin(kinds, (NORMAL, UNUSED))).tolist()
    if any(len(tokens[number]) > MAX_PIECE for number in joined):
        raise InputError(f"is damaged: a token has more than {MAX_PIECE:,} characters", where=where)
    merges = score_merges({tokens[number]: float(scores[number]) for number in joined})
    vocab = {token: number for number, token in enumerate(tokens)}
    unknown = next((tokens[number] for number in np.flatnonzero(kinds == UNKNOWN).tolist()), None)
    inner = Tokenizer(models.BPE(vocab=vocab, merges=merges, unk_token=unknown, fuse_unk=True, byte_fallback=True))
    spaced = file.flag("tokenizer.ggml.add_space_prefix", True)
    steps = [normalizers.Prepend(SPACE)] if spaced else []
    inner.normalizer = normalizers.Sequence([*steps, normalizers.Replace(" ", SPACE)])
    tail = [decoders.Strip(" ", 1, 0)] if spaced else []
    inner.decoder = decoders.Sequence([decoders.Replace(SPACE, " "), decoders.ByteFallback(), decoders.Fuse(), *tail])
    return inner


def score_merges(scores: Mapping[str, float]) -> list[Merge]:
    """Return all pairs of pieces that make a piece, the best score first.

    >>> score_merges({"a": 0.0, "b": 0.0, "ab": -2.0, "aba": -1.0})
    [('ab', 'a'), ('a', 'b')]
    """
    found: list[Merge] = []
    for piece in sorted((one for one in scores if len(one) > 1), key=lambda one: -scores[one]):
        cuts = range(len(piece) - 1, 0, -1)
        found += [(piece[:cut], piece[cut:]) for cut in cuts if piece[:cut] in scores and piece[cut:] in scores]
    return found


def piece_values(state: Mapping[str, Any], size: int) -> tuple[list[str], np.ndarray, dict[str, Any]]:
    """Return the tokens, their types and the other metadata of a tokenizer from its ``tokenizer.json``."""
    _check_writable(state)
    model = state["model"]
    names = [f"[unused{number}]" for number in range(size)]
    kinds = np.full(size, UNUSED, np.int32)
    for token, number in model["vocab"].items():
        names[number] = token
        kinds[number] = BYTE if BYTE_PIECE.fullmatch(token) else NORMAL
    for token in state["added_tokens"]:
        special = UNKNOWN if token["content"] == model.get("unk_token") else CONTROL
        kinds[token["id"]] = special if token["special"] else USER_DEFINED
        names[token["id"]] = token["content"] if token["special"] else token["content"].replace(SPACE, " ")
    scores = np.zeros(size, np.float32)
    parts = (one.split(" ") if isinstance(one, str) else one for one in model["merges"])
    merges: list[Merge] = [(left, right) for left, right in parts]
    ranks: dict[str, int] = {}
    for left, right in merges:
        ranks.setdefault(left + right, len(ranks))
    for token, rank in ranks.items():
        scores[model["vocab"][token]] = -rank
    joined = {names[number]: float(scores[number]) for number in np.flatnonzero(kinds == NORMAL).tolist()}
    own = [merge for merge in merges if "".join(merge) in joined and all(part in joined for part in merge)]
    again = score_merges(joined)
    if set(again) != set(own) or ["".join(one) for one in again] != ["".join(one) for one in own]:
        raise InputError("the tokenizer's merges do not follow from scores, as they have to in a GGUF file")
    return (
        names,
        kinds,
        {
            "tokenizer.ggml.model": "llama",
            "tokenizer.ggml.pre": "default",
            "tokenizer.ggml.scores": scores,
            "tokenizer.ggml.add_space_prefix": space_before(state) != "never",
        },
    )


def _check_writable(state: Mapping[str, Any]) -> None:
    """Raise InputError for a tokenizer whose pieces are not those of SentencePiece's BPE."""
    parts = [state.get("normalizer"), state.get("pre_tokenizer")]
    steps = [one for part in parts if part for one in part.get("normalizers") or part.get("pretokenizers") or [part]]
    spaces = {"String": " "}
    plain: dict[str, Any] = {
        "Prepend": lambda one: one["prepend"] == SPACE,
        "Replace": lambda one: one["pattern"] == spaces and one["content"] == SPACE,
        "Metaspace": lambda one: one["replacement"] == SPACE and one.get("split") is False,
        "Split": lambda one: one["pattern"] == spaces,  # there are none any more
    }
    plain_steps = all(one["type"] in plain and plain[one["type"]](one) for one in steps)
    if state["model"]["type"] != "BPE" or not plain_steps:
        raise InputError("GGUF files hold tokenizers of SentencePiece's BPE only if they change nothing but spaces")
