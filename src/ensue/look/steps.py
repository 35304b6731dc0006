"""``ensue look steps``: a translation step by step, from the encoder's layers to each target token.

    log P(y | x) = Σ_t log P(y_t | y_1 … y_{t-1}, x)

A model without attention has no weights to show.

Legend: T target time, S source time, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from itertools import accumulate
from typing import Any

import torch
from torch import Tensor

from ensue.data.tokenizers.protocol import Tokenizer
from ensue.look.alignment import aligning_layer, sentence_request
from ensue.look.steps_page import steps_html
from ensue.look.view import View
from ensue.models.bytenet import ByteNet
from ensue.models.convs2s import ConvS2S
from ensue.models.seq2seq import Seq2Seq
from ensue.models.t5 import T5
from ensue.models.transformer import Transformer
from ensue.runs.run import Run
from ensue.runs.translation import TranslationRun, source_and_target
from ensue.search.beam import Search

TOP = 5
"""Most probable tokens that are listed for a step."""
FORWARD, BACKWARD = "forward", "backward"
ENCODERS: dict[str, tuple[str, Callable[[int], list[str]]]] = {
    "both": ("each layer reads in both directions", lambda layer: [FORWARD, BACKWARD]),
    "forward": ("each layer reads from left to right", lambda layer: [FORWARD]),
    "bottom": (
        "the first layer reads in both directions, those above it from left to right",
        lambda layer: [FORWARD] if layer else [FORWARD, BACKWARD],
    ),
    "alternating": ("layers alternate between both directions", lambda layer: [BACKWARD if layer % 2 else FORWARD]),
}
"""How a recurrent encoder reads, by its setting ``encoder``: in words, and the directions of a layer, from 0."""


def steps(runs: Sequence[Run], *, text: str = "", target: str = "", beam: int | None = None) -> View:
    """A translation step by step, as a page: ``target``, or the result of a search with ``beam``."""
    run, search = sentence_request("steps", runs, text, target, beam)
    numbers = step_numbers(run, text, target=target, search=search)
    return View(partial(steps_html, numbers), numbers)


def step_numbers(run: TranslationRun, text: str, *, target: str = "", search: Search | None = None) -> dict[str, Any]:
    """Every step of a translation (or of ``target``) for JSON.

    source, target   their tokens with the end token (the target without it if the search was cut off)
    encoder          self-attention of each layer (S, S), mean over heads, a row per query; None if there is none
    reading          a sentence on how the source is read
    passes           for recurrent encoders the directions in which each layer reads; else None
    layer            the decoder layer that ``attention`` is of, counted from 1; None without attention
    steps            for each target token log P, the sum so far, the most probable tokens and its cross-attention
    """
    search, translator = search or Search(), run.translator()
    source, ids, ended = source_and_target(translator, text, target, search)
    end, names = translator.tokenizer.end, translator.source_tokenizer.name
    output = [*ids, end] if ended else ids
    with torch.no_grad():
        block = torch.from_numpy(source)[None]
        encoded = run.model.encode(block, weights=True).weights if isinstance(run.model, Transformer | T5) else None
        state = run.model.start(block)
        out = run.model(torch.tensor([[translator.first, *output[:-1]]]), state, want=("logits", "attention"))
        log_probs = out.logits[0].double().log_softmax(-1)  # (T, V)
    layer = None if out.attention is None else aligning_layer(len(out.attention))
    attention = None if layer is None else out.attention[layer - 1][0].mean(0).tolist()  # mean over heads: (T, S)
    decoded = _steps(log_probs, output, attention, translator.tokenizer)
    return {
        "system": run.system,
        "text": text.strip(),
        "search": None if target else {"beam": search.beam, "length": search.length},
        "source": [names(int(token)) for token in source],
        "target": [translator.tokenizer.name(token) for token in output],
        "ended": ended,
        "encoder": [layer[0].mean(0).tolist() for layer in encoded] if encoded else None,
        "reading": reading(run.model),
        "passes": _passes(run.model),
        "layer": layer,
        "without": without_attention(run.model) if attention is None else None,
        "log_prob": decoded[-1]["total"] if decoded else 0.0,
        "steps": decoded,
    }


def _steps(log_probs: Tensor, ids: list[int], attention: Any, tokenizer: Tokenizer) -> list[dict[str, Any]]:
    """Log-probability, alternatives and attention of each target token."""
    chosen = [float(row[token]) for row, token in zip(log_probs, ids)]
    return [
        {
            "token": tokenizer.name(token),
            "log_prob": log_prob,
            "total": total,
            "choices": _choices(row, token, tokenizer),
            "attention": None if attention is None else attention[t],
        }
        for t, (row, token, log_prob, total) in enumerate(zip(log_probs, ids, chosen, accumulate(chosen)))
    ]


def _choices(log_probs: Tensor, chosen: int, tokenizer: Tokenizer) -> list[dict[str, Any]]:
    """The most probable tokens, best first, and the chosen one last if it is not among them."""
    order = log_probs.argsort(descending=True, stable=True).tolist()
    listed = order[:TOP] if chosen in order[:TOP] else [*order[:TOP], chosen]
    return [
        {"token": tokenizer.name(token), "prob": float(log_probs[token].exp()), "rank": order.index(token) + 1}
        | {"chosen": token == chosen}
        for token in listed
    ]


def reading(model: Any) -> str:
    """A sentence on how a model reads its source."""
    config = model.config
    layers = "1 layer" if config.layers == 1 else f"{config.layers} layers"
    if isinstance(model, Transformer | T5):
        return f"All source tokens are read at once; in each of {layers} every token attends to all of them."
    if isinstance(model, Seq2Seq):
        return f"The source is read token by token by {layers} of {config.cell} cells: {ENCODERS[config.encoder][0]}."
    if isinstance(model, ConvS2S):
        return f"All source tokens are read at once by {layers} of convolutions, each over {config.width} positions."
    if isinstance(model, ByteNet):
        sets = "1 set" if config.sets == 1 else f"{config.sets} sets"
        return f"All source tokens are read at once by {sets} of {layers} of dilated convolutions."
    return "The source is read before the first target token."


def _passes(model: Any) -> list[list[str]] | None:
    """The directions in which each layer of a recurrent encoder reads."""
    if not isinstance(model, Seq2Seq):
        return None
    _, directions = ENCODERS[model.config.encoder]
    return [directions(layer) for layer in range(model.config.layers)]


def without_attention(model: Any) -> str:
    """A sentence on what a decoder without attention sees of the source."""
    if isinstance(model, Seq2Seq):
        return "This model has no attention: the decoder sees only the encoder's last state."
    if isinstance(model, ByteNet):
        return "This model has no attention: target token t reads column t of the encoder's output."
    return "This model has no attention."
