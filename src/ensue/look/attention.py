"""``ensue look attention``: attention weights of every model that attends."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from math import isqrt
from typing import Any

import numpy as np
import torch
from torch.nn import functional as F

from ensue.core.errors import InputError
from ensue.data.tokenizers.protocol import Tokenizer
from ensue.data.tokenizers.special_tokens import add_special_tokens, special_tokens_of
from ensue.look.alignment import check_number
from ensue.look.alignment_chart import alignment_chart
from ensue.look.attention_chart import heads_chart, layers_that_fit, lines_chart
from ensue.look.chart_parts import COLOURS, MAX_MARKS
from ensue.look.instruments.rollout import rollout
from ensue.look.runs import check_text, label, single
from ensue.look.view import View
from ensue.models.backbones import body_of
from ensue.models.bidirectional_encoder import BidirectionalEncoder
from ensue.models.encoder import Encoder
from ensue.models.recurrent import RecurrentLanguageModel
from ensue.models.t5 import T5
from ensue.models.transformer import Transformer
from ensue.nn.trunk import Trunk
from ensue.runs.labelled import LabelRun
from ensue.runs.language import LanguageRun
from ensue.runs.mask_filling import encode_masks
from ensue.runs.run import Run
from ensue.runs.translation import TranslationRun, source_and_target
from ensue.search.beam import Search

PARTS = {"cross": "target to source", "source": "source to source"}
"""The attention of a translation model that can be shown."""
MAX_WEIGHTS = 1 << 28
"""Attention weights of a text in all layers and heads: 1 GB."""
ROLLOUT_CAPTION = (
    "Attention rollout through all layers (Abnar and Zuidema, 2020), residual connections included. A row is a token "
    "after the last layer; the stronger the colour of a cell, the larger the share of that input token in it."
)


@dataclass(frozen=True)
class AttentionWeights:
    """Weights (H, T, S) of each layer, from T query tokens to S key tokens."""

    queries: list[str]
    keys: list[str]
    layers: list[np.ndarray]
    kind: str
    """causal, full, cross or source"""
    recurrent: bool = False
    """True if a recurrence also carries information between positions."""


def attention(
    runs: Sequence[Run],
    *,
    text: str = "",
    target: str = "",
    part: str = "",
    layer: int = 0,
    head: int = 0,
    word: str = "",
    rolled: bool = False,
) -> View:
    """Attention weights of a run on a text: all heads of all layers, or of ``layer``; one ``head`` as lines.

    ``word`` shows what that word attends to, ``rolled`` all layers as one (attention rollout). For a translation model
    ``part`` is cross or source, and ``target`` may be given. Layers and heads count from 1. A tab separates two texts.
    """
    run = single(runs, "attention")
    check_text(text, "attention")
    weights = attention_of(run, text, target, part)
    layers, heads = len(weights.layers), len(weights.layers[0])
    check_number("layer", layer, layers)
    check_number("head", head, heads)
    numbers: dict[str, Any] = {"system": run.system, "kind": weights.kind}
    numbers |= {"tokens": weights.queries, "looked_at": weights.keys, "of": {"layers": layers, "heads": heads}}
    name = label(run)
    if rolled:
        if layer or head or word:
            raise InputError("a rollout is of all layers and heads", hint="leave out --layer, --head and --word")
        return _rollout(weights, name, numbers)
    if word:
        return _one_word(weights, name, numbers, layer or layers, head, word)
    if head:
        return _one_head(weights, name, numbers, layer or layers, head)
    return _grid(weights, name, numbers, layer)


def _grid(weights: AttentionWeights, name: str, numbers: dict[str, Any], layer: int) -> View:
    """All heads of one layer, or of the last layers that fit."""
    count, note = len(weights.layers), ""
    shown = [layer] if layer else list(range(1, count + 1))
    fit = layers_that_fit(len(shown), len(weights.layers[0]), len(weights.queries), len(weights.keys))
    if not fit:
        raise _too_many_tokens(weights, "one head with --head")
    if fit < len(shown):
        shown, note = shown[-fit:], f"The last {fit} of {count} layers: more do not fit with this many tokens."
    chosen = {number: weights.layers[number - 1] for number in shown}
    title = f"{name}: attention of each head" + (f", layer {layer}" if layer else "")
    layers = {str(number): values.round(6).tolist() for number, values in chosen.items()}
    draw = partial(heads_chart, weights.queries, weights.keys, chosen, title=title, note=note)
    return View(draw, {**numbers, "layers": layers}, note=note)


def _one_head(weights: AttentionWeights, name: str, numbers: dict[str, Any], layer: int, head: int) -> View:
    """One head as lines between words."""
    values = weights.layers[layer - 1][head - 1]
    if values.size > MAX_MARKS:
        raise _too_many_tokens(weights, "one of its words with --word")
    title = f"{name}: attention of layer {layer}, head {head}"
    draw = partial(lines_chart, weights.queries, weights.keys, {f"head {head}": values}, title=title)
    return View(draw, {**numbers, "layer": layer, "head": head, "weights": values.round(6).tolist()})


def _too_many_tokens(weights: AttentionWeights, instead: str) -> InputError:
    what = f"{len(weights.queries):,} × {len(weights.keys):,} tokens are too many for one picture"
    return InputError(what, hint=f"give a shorter text, or {instead}")


def _one_word(weights: AttentionWeights, name: str, numbers: dict[str, Any], layer: int, head: int, word: str) -> View:
    """What one word attends to, a colour per head; of many heads those with the largest weights."""
    position = find_word(word, weights.queries)
    token = weights.queries[position]
    values = weights.layers[layer - 1][:, position]  # (H, S)
    strongest = np.argsort(-values.max(1), kind="stable")[: len(COLOURS)]
    chosen = [head - 1] if head else sorted(strongest.tolist())
    caption = "A colour per head; the stronger a line, the larger its weight."
    if len(chosen) < len(values) and not head:
        caption += f" The {len(chosen)} of {len(values)} heads with the largest weights."
    heads = {f"head {h + 1}": weights.layers[layer - 1][h] for h in chosen}
    title = f"{name}: what {token} attends to in layer {layer}"
    draw = partial(lines_chart, weights.queries, weights.keys, heads, title=title, caption=caption, only=position)
    rows = {str(h + 1): values[h].round(6).tolist() for h in range(len(values))}
    return View(draw, {**numbers, "layer": layer, "place": position, "heads": rows, "drawn": [h + 1 for h in chosen]})


def _rollout(weights: AttentionWeights, name: str, numbers: dict[str, Any]) -> View:
    """All layers as one."""
    if weights.recurrent:
        what = "a rollout follows attention only, and a recurrent network also carries information between positions"
        raise InputError(what, hint="leave out --rolled")
    if weights.kind == "cross":
        raise InputError("a rollout is of self-attention", hint="use --part source")
    values = rollout(weights.layers)
    title = f"{name}: attention rollout over {len(weights.layers)} layers"
    axes = ("input token", "token after the last layer")
    draw = partial(
        alignment_chart, weights.keys, weights.queries, values, title=title, caption=ROLLOUT_CAPTION, axes=axes
    )
    return View(draw, {**numbers, "rollout": values.round(6).tolist()})


def find_word(word: str, tokens: list[str]) -> int:
    """The first position of a word among tokens, ignoring the symbols that mark the start of a word.

    >>> find_word("its", ["The", "␣law", "␣its", "its"])
    2
    """
    bare = [token.strip("␣▁").removeprefix("##") for token in tokens]
    for case in (str, str.lower):
        if case(word) in (names := [case(token) for token in bare]):
            return names.index(case(word))
    raise InputError(f"{word!r} is not a token of this text", hint=f"these are: {' '.join(bare)}")


def attends(run: Run) -> bool:
    """True if a run has attention weights to show."""
    try:
        return bool(attention_of(run, "a").layers)
    except InputError:
        return False


def attention_of(run: Run, text: str, target: str = "", part: str = "") -> AttentionWeights:
    """The attention weights of a run on a text."""
    if isinstance(run, TranslationRun):
        return _translation_attention(run, text, target, part or "cross")
    for option, value in (("target", target), ("part", part)):
        if value:
            raise InputError(f"--{option} is for translation models", where=str(run), hint="leave it out")
    with torch.no_grad():
        return _self_attention(run, text)


def _self_attention(run: Run, text: str) -> AttentionWeights:
    """The weights of an encoder or a language model on a text, or on two with a tab between."""
    body = body_of(run.model.eval())
    if isinstance(body, Encoder):
        own = run.labeller().encoding.special_tokens if isinstance(run, LabelRun) else None
        marks = own or special_tokens_of(run.tokenizer)
        texts = [encode_masks(run.tokenizer, part.strip()) for part in text.split("\t")][:2]
        ids, segments = add_special_tokens(marks, texts[0], texts[1] if len(texts) > 1 else None)
        _check_length(run, len(ids), body.config.context, body.config)
        out = body(torch.from_numpy(ids)[None].long(), torch.from_numpy(segments)[None].long(), weights=True)
        kind = "full"
    elif isinstance(run, LanguageRun | LabelRun) and (
        isinstance(getattr(body, "blocks", None), Trunk) or bool(getattr(body.config, "attend", 0))
    ):
        if isinstance(run, LabelRun):
            ids, _ = add_special_tokens(run.labeller().encoding.special_tokens, run.tokenizer.encode(text.strip()))
        else:
            ids = run.tokens(text=text).tokens.astype(np.int64)
        _check_length(run, len(ids), body.traits.context, body.config)
        out = body(torch.from_numpy(ids)[None].long(), want=("attention",))
        kind = "causal" if body.traits.causal else "full"
    else:
        raise _no_attention(run)
    if out.attention is None:
        raise _no_attention(run)
    names = _names(run.tokenizer, ids)
    layers = [_shares(layer[0].float()) for layer in out.attention]
    recurrent = isinstance(body, RecurrentLanguageModel | BidirectionalEncoder)
    return AttentionWeights(names, names, layers, kind, recurrent)


def _translation_attention(run: TranslationRun, text: str, target: str, part: str) -> AttentionWeights:
    """The weights of a translation model: from target to source, or within the source."""
    if part not in PARTS:
        hint = " or ".join(f"{name} ({what})" for name, what in PARTS.items())
        raise InputError(f"there is no part {part!r}", hint=hint)
    if part == "cross":
        source, words, layers = run.alignment(text, target=target)
        return AttentionWeights(words, source, layers, "cross")
    if target:
        raise InputError("attention within the source does not depend on a target", hint="leave out --target")
    if not isinstance(run.model, Transformer | T5):
        raise _no_attention(run, "'s encoder")
    translator = run.translator()
    source_ids, _, _ = source_and_target(translator, text, "x", Search())
    with torch.no_grad():
        encoder_layers = run.model.encode(torch.from_numpy(source_ids)[None], weights=True).weights
    if encoder_layers is None:
        raise _no_attention(run, "'s encoder")
    names = _names(translator.source_tokenizer, source_ids)
    return AttentionWeights(names, names, [_shares(layer[0]) for layer in encoder_layers], "source")


def _shares(weights: torch.Tensor) -> np.ndarray:
    """Weights (H, T, S); of a head that has negative ones (linformer) the shares of their absolute values."""
    negative = (weights < 0).any(-1, keepdim=True).any(-2, keepdim=True)
    shown: np.ndarray = torch.where(negative, F.normalize(weights, p=1, dim=-1).abs(), weights).numpy()
    return shown


def _names(tokenizer: Tokenizer, ids: np.ndarray) -> list[str]:
    return [tokenizer.name(int(token)) for token in ids]


def _check_length(run: Run, tokens: int, context: int | None, config: Any) -> None:
    """Refuse a text that is longer than the model's context, or whose weights take too much memory."""
    if context is not None and tokens > context:
        what = f"this text has {tokens:,} tokens, and the model's context is {context:,}"
        raise InputError(what, where=str(run), hint="give a shorter one")
    maps = getattr(config, "layers", 1) * (getattr(config, "heads", 0) or getattr(config, "attend", 0) or 1)
    if maps * tokens**2 > MAX_WEIGHTS:
        most = isqrt(MAX_WEIGHTS // maps)
        raise InputError(f"{tokens:,} tokens have too many weights", where=str(run), hint=f"give at most {most:,}")


def _no_attention(run: Run, part: str = "") -> InputError:
    hint = (
        "gpt, bert, transformer, transformer-xl and seq2seq have it, and recurrent networks fitted with attend; for "
        "those without, see the gates: ensue look gates"
    )
    return InputError(f"{run.system}{part} has no attention", where=str(run), hint=hint)
