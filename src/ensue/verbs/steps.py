"""How one sentence is translated, step by step, as numbers: what the encoder reads, then each target token.

    log P(y | x) = Σ_t log P(y_t | y_1 … y_{t-1}, x)

Only what the model computes is told: where a model has no attention, there are no weights.

Legend: T target time, S source time, V vocabulary.
"""

from __future__ import annotations

from itertools import accumulate
from typing import Any

import torch
from torch import Tensor

from ensue.data.tokenizers.protocol import Tokenizer
from ensue.models.bytenet import ByteNet
from ensue.models.convs2s import ConvS2S
from ensue.models.seq2seq import Seq2Seq
from ensue.models.transformer import Transformer
from ensue.runs.translation import TranslationRun, aligning_layer, pair_tokens
from ensue.search.beam import Search

CHOICES = 5
"""How many of the likeliest tokens are told."""
ORDERS = {
    "both": "each layer reads from the first token to the last and from the last to the first",
    "forward": "each layer reads from the first token to the last",
    "bottom": "the first layer reads in both directions, those above it from the first token to the last",
    "alternating": "layers read in turn from the first token to the last and from the last to the first",
}
"""How a recurrent encoder reads, by its setting ``encoder``."""


def step_numbers(run: TranslationRun, text: str, *, target: str = "", search: Search | None = None) -> dict[str, Any]:
    """Every step of a translation (or of ``target``) for JSON.

    source, target   their tokens, each with its end mark (the target without it where the search was cut)
    encoder          a layer's weights (S, S), mean over heads: row i is where token i looks; None without such weights
    reading          how the source is read, in words
    passes           for recurrent encoders the directions in which each layer reads; else None
    layer            which decoder layer ``attention`` is of, counted from 1; None without attention
    steps            for each target token log P, the sum so far, the likeliest tokens and where it looks in the source
    """
    search, between = search or Search(), run.translator()
    source, ids, ended = pair_tokens(between, text, target, search)
    end, names = between.tokenizer.end, between.source_tokenizer.name
    written = [*ids, end] if ended else ids
    with torch.no_grad():
        block = torch.from_numpy(source)[None]
        encoder = _encoder_weights(run.model, block)
        state = run.model.start(block)
        out = run.model(torch.tensor([[end, *written[:-1]]]), state, want=("logits", "attention"))
        log_probs = out.logits[0].double().log_softmax(-1)  # (T, V)
    layer = None if out.attention is None else aligning_layer(len(out.attention))
    looked = None if layer is None else out.attention[layer - 1][0].mean(0).tolist()  # mean over its heads: (T, S)
    told = _steps(log_probs, written, looked, between.tokenizer)
    return {
        "system": run.system,
        "text": text.strip(),
        "search": None if target else {"beam": search.beam, "length": search.length},
        "source": [names(int(token)) for token in source],
        "target": [between.tokenizer.name(token) for token in written],
        "ended": ended,
        "encoder": encoder,
        "reading": reading(run.model),
        "passes": _passes(run.model),
        "layer": layer,
        "without": without_attention(run.model) if looked is None else None,
        "log_prob": told[-1]["total"] if told else 0.0,
        "steps": told,
    }


def _encoder_weights(model: Any, source: Tensor) -> list[list[list[float]]] | None:
    """Where each source token looks, layer by layer, in models that know."""
    if not isinstance(model, Transformer):
        return None
    return [layer[0].mean(0).tolist() for layer in model.encode(source, weights=True)[1]]


def _steps(log_probs: Tensor, ids: list[int], looked: Any, tokenizer: Tokenizer) -> list[dict[str, Any]]:
    """What each target token was chosen from, and what it cost."""
    costs = [float(row[token]) for row, token in zip(log_probs, ids)]
    return [
        {
            "token": tokenizer.name(token),
            "log_prob": cost,
            "total": total,
            "choices": _choices(row, token, tokenizer),
            "attention": None if looked is None else looked[t],
        }
        for t, (row, token, cost, total) in enumerate(zip(log_probs, ids, costs, accumulate(costs)))
    ]


def _choices(log_probs: Tensor, chosen: int, tokenizer: Tokenizer) -> list[dict[str, Any]]:
    """The likeliest tokens, best first; behind them the chosen one with its rank, where it is not among them."""
    order = log_probs.argsort(descending=True, stable=True).tolist()
    ranks = [*range(min(CHOICES, len(order)))]
    place = order.index(chosen)
    return [
        {
            "token": tokenizer.name(order[rank]),
            "prob": float(log_probs[order[rank]].exp()),
            "rank": rank + 1,
            "chosen": rank == place,
        }
        for rank in (ranks if place in ranks else [*ranks, place])
    ]


def reading(model: Any) -> str:
    """How a model reads its source, in words."""
    config = model.config
    layers = "1 layer" if config.layers == 1 else f"{config.layers} layers"
    if isinstance(model, Transformer):
        return f"All source tokens are read at once; in each of {layers} every token looks at all of them."
    if isinstance(model, Seq2Seq):
        return f"The source is read token by token by {layers} of {config.cell} cells: {ORDERS[config.encoder]}."
    if isinstance(model, ConvS2S):
        return f"All source tokens are read at once by {layers} of convolutions, each over {config.width} places."
    if isinstance(model, ByteNet):
        sets = "1 set" if config.sets == 1 else f"{config.sets} sets"
        return f"All source tokens are read at once by {sets} of {layers} of convolutions that see farther and farther."
    return "The source is read before the first target token."


def _passes(model: Any) -> list[list[str]] | None:
    """The directions in which each layer of a recurrent encoder reads."""
    if not isinstance(model, Seq2Seq):
        return None
    kind, to, fro = model.config.encoder, "forward", "backward"
    directions = {
        "both": lambda layer: [to, fro],
        "forward": lambda layer: [to],
        "bottom": lambda layer: [to] if layer else [to, fro],
        "alternating": lambda layer: [fro if layer % 2 else to],
    }
    return [directions[kind](layer) for layer in range(model.config.layers)]


def without_attention(model: Any) -> str:
    """What the decoder has of the source where it has no attention, in words."""
    if isinstance(model, Seq2Seq):
        return "This model has no attention: of the source the decoder has only the state in which the encoder ended."
    if isinstance(model, ByteNet):
        return "This model has no attention: target token t is written on column t of what the encoder made."
    return "This model has no attention."
