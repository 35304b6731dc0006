"""``ensue look attention``: where a model looks, of every model that attends."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

from ensue.core.errors import InputError
from ensue.data.tokenizers.protocol import Tokenizer
from ensue.data.tokenizers.special_tokens import framed, marks_of
from ensue.look.alignment import alignment_chart
from ensue.look.attention import heads_chart, layers_that_fit, lines_chart
from ensue.look.marks import COLOURS, MOST_MARKS
from ensue.measure.rollout import rollout
from ensue.models.encoder import Encoder
from ensue.models.reader import BidirectionalReader
from ensue.models.recurrent import RecurrentLanguageModel
from ensue.models.transformer import Transformer
from ensue.runs.labelled import LabelRun
from ensue.runs.language import LanguageRun
from ensue.runs.load import load
from ensue.runs.run import Run
from ensue.runs.translation import TranslationRun, pair_tokens
from ensue.search.beam import Search
from ensue.tasks.backbones import body_of
from ensue.tasks.mask_filling import with_masks
from ensue.verbs.view import Files, View

PARTS = {"cross": "where the target looks in the source", "source": "where the source looks in itself"}
"""What of a translation model can be looked at."""
ROLLED = (
    "Attention through all layers (Abnar and Zuidema, 2020): a row is a token after the last layer and shows how much "
    "of each token is in it, what layers pass on beside attention counted: the stronger the colour, the more."
)


@dataclass(frozen=True)
class Looks:
    """Tokens that look, tokens that are looked at, and the weights (H, T, S) of each layer."""

    who: list[str]
    what: list[str]
    layers: list[np.ndarray]
    kind: str
    """causal, full, cross or source"""
    carried: bool = False
    """Whether words also get from place to place by recurrence."""


def attention(
    runs: Files,
    *,
    text: str = "",
    target: str = "",
    part: str = "",
    layer: int = 0,
    head: int = 0,
    word: str = "",
    rolled: bool = False,
) -> View:
    """Where a run looks as it reads a text: all heads of all layers, or of ``layer``; one ``head`` as lines.

    ``word`` shows the looks of that word alone, ``rolled`` all layers as one. Of a translation model ``part`` is cross
    or source, and ``target`` may be given. Layers and heads count from 1. A tab parts two texts.
    """
    if len(runs) != 1:
        raise InputError(f"attention is of one run, not {len(runs)}", hint="name one")
    if not text.strip():
        raise InputError("attention is shown on a text", hint='give it with --text "…"')
    run = load(runs[0])
    looks = looks_of(run, text, target, part)
    if not 0 <= layer <= len(looks.layers):
        raise InputError(f"there is no layer {layer}", hint=f"there are {len(looks.layers)}")
    if not 0 <= head <= len(looks.layers[0]):
        raise InputError(f"there is no head {head}", hint=f"there are {len(looks.layers[0])}")
    name = f"{Path(runs[0]).name} ({run.system})"
    numbers: dict[str, Any] = {"system": run.system, "kind": looks.kind, "tokens": looks.who, "looked_at": looks.what}
    numbers["of"] = {"layers": len(looks.layers), "heads": len(looks.layers[0])}
    if rolled:
        return _rolled(looks, name, numbers, layer or head or word)
    if word:
        return _fan(looks, name, numbers, layer or len(looks.layers), head, word)
    if head:
        return _one_head(looks, name, numbers, layer or len(looks.layers), head)
    return _grid(looks, name, numbers, layer)


def _grid(looks: Looks, name: str, numbers: dict[str, Any], layer: int) -> View:
    """All heads of one layer, or of as many layers as fit, the last ones."""
    count, more = len(looks.layers), ""
    shown = [layer] if layer else list(range(1, count + 1))
    fit = layers_that_fit(len(shown), len(looks.layers[0]), len(looks.who), len(looks.what))
    if not fit:
        what = f"{len(looks.who):,} × {len(looks.what):,} tokens are too many for one picture"
        raise InputError(what, hint="give a shorter text, or one head with --head")
    if fit < len(shown):
        shown, more = shown[-fit:], f"The last {fit} of {count} layers: more do not fit for so many tokens."
    chosen = {number: looks.layers[number - 1] for number in shown}
    title = f"{name}: where each head looks" + (f", layer {layer}" if layer else "")
    told = {str(number): weights.round(6).tolist() for number, weights in chosen.items()}
    return View(
        partial(heads_chart, looks.who, looks.what, chosen, title=title, more=more),
        {**numbers, "layers": told},
        said=more,
    )


def _one_head(looks: Looks, name: str, numbers: dict[str, Any], layer: int, head: int) -> View:
    """One head as lines between words."""
    weights = looks.layers[layer - 1][head - 1]
    if weights.size > MOST_MARKS:
        what = f"{len(looks.who):,} × {len(looks.what):,} tokens are too many for one picture"
        raise InputError(what, hint="give a shorter text, or one of its words with --word")
    title = f"{name}: layer {layer}, head {head}"
    draw = partial(lines_chart, looks.who, looks.what, {f"head {head}": weights}, title=title)
    return View(draw, {**numbers, "layer": layer, "head": head, "weights": weights.round(6).tolist()})


def _fan(looks: Looks, name: str, numbers: dict[str, Any], layer: int, head: int, word: str) -> View:
    """What one word looks at, a colour a head: those that look hardest, where there are many."""
    place = place_of(word, looks.who)
    weights = looks.layers[layer - 1][:, place]  # (H, S)
    order = np.argsort(-weights.max(1), kind="stable")[: len(COLOURS)]
    chosen = [head - 1] if head else sorted(int(one) for one in order)
    caption = f"What {looks.who[place]} looks at in layer {layer}, a colour a head; the stronger a line, the more."
    if len(chosen) < len(weights) and not head:
        caption += f" The {len(chosen)} of {len(weights)} heads that look hardest."
    heads = {f"head {one + 1}": looks.layers[layer - 1][one] for one in chosen}
    title = f"{name}: {looks.who[place]}, layer {layer}"
    draw = partial(lines_chart, looks.who, looks.what, heads, title=title, caption=caption, only=place)
    fan = {str(one + 1): weights[one].round(6).tolist() for one in range(len(weights))}
    return View(draw, {**numbers, "layer": layer, "place": place, "heads": fan, "drawn": [one + 1 for one in chosen]})


def _rolled(looks: Looks, name: str, numbers: dict[str, Any], chosen: Any) -> View:
    """All layers as one."""
    if chosen:
        raise InputError("a roll-out is of all layers and heads", hint="leave out --layer, --head and --word")
    if looks.carried:
        what = "a roll-out counts what attention passes on, and a recurrent network also carries words along"
        raise InputError(what, hint="leave out --rolled")
    if looks.kind == "cross":
        raise InputError("a roll-out is of tokens that look at each other", hint="use --part source")
    found = rollout(looks.layers)
    title = f"{name}: how much of each token is in each, after {len(looks.layers)} layers"
    draw = partial(
        alignment_chart,
        looks.what,
        looks.who,
        found,
        title=title,
        caption=ROLLED,
        axes=("token", "after the last layer"),
    )
    return View(draw, {**numbers, "rollout": found.round(6).tolist()})


def place_of(word: str, tokens: list[str]) -> int:
    """Where a word stands among tokens, the first time, whatever marks of word beginnings they have.

    >>> place_of("its", ["The", "␣law", "␣its", "its"])
    2
    """
    bare = [token.strip("␣▁").removeprefix("##") for token in tokens]
    for same in (str, str.lower):
        if same(word) in (found := [same(token) for token in bare]):
            return found.index(same(word))
    raise InputError(f"{word!r} is no token of this text", hint=f"these are: {' '.join(bare)}")


def attends(run: Run) -> bool:
    """Whether a run has attention that can be looked at."""
    try:
        return bool(looks_of(run, "a").layers)
    except InputError:
        return False


def looks_of(run: Run, text: str, target: str = "", part: str = "") -> Looks:
    """Where a run looks as it reads a text."""
    if isinstance(run, TranslationRun):
        return _translating(run, text, target, part or "cross")
    for option, given in (("target", target), ("part", part)):
        if given:
            raise InputError(f"--{option} is for translation models", where=str(run.folder.path), hint="leave it out")
    with torch.no_grad():
        return _reading(run, text)


def _reading(run: Run, text: str) -> Looks:
    """An encoder or a language model over a text, or two with a tab between."""
    body = body_of(run.model.eval())
    if isinstance(body, Encoder):
        marks = run.labeller().form.marks if isinstance(run, LabelRun) else marks_of(run.tokenizer)
        texts = [with_masks(run.tokenizer, one.strip()) for one in text.split("\t")][:2]
        ids, segments = framed(marks, texts[0], texts[1] if len(texts) > 1 else None)
        _check_room(run, len(ids), body.config.context)
        found = body(torch.from_numpy(ids)[None].long(), torch.from_numpy(segments)[None].long(), weights=True)
        kind = "full"
    elif isinstance(run, LanguageRun | LabelRun) and (
        getattr(body, "cuts", "") == "windows" or getattr(body.config, "attend", 0)
    ):
        if isinstance(run, LanguageRun):
            ids = run.tokens(text=text).tokens.astype(np.int64)
        else:
            ids, _ = framed(run.labeller().form.marks, run.tokenizer.encode(text.strip()))
        _check_room(run, len(ids), body.traits.context)
        found = body(torch.from_numpy(ids)[None].long(), want=("attention",))
        kind = "causal" if body.traits.causal else "full"
    else:
        raise _no_attention(run)
    if found.attention is None:
        raise _no_attention(run)
    names = _names(run.tokenizer, ids)
    layers = [layer[0].float().numpy() for layer in found.attention]
    return Looks(names, names, layers, kind, carried=isinstance(body, RecurrentLanguageModel | BidirectionalReader))


def _translating(run: TranslationRun, text: str, target: str, part: str) -> Looks:
    """A translation model: the target's looks at the source, or the source's at itself."""
    if part not in PARTS:
        raise InputError(
            f"there is no part {part!r}", hint=" or ".join(f"{name} ({what})" for name, what in PARTS.items())
        )
    if part == "cross":
        source, words, weights = run.alignment(text, target=target)
        return Looks(words, source, weights, "cross")
    if target:
        raise InputError("the source looks at itself before there is a target", hint="leave out --target")
    if not isinstance(run.model, Transformer):
        raise _no_attention(run, "'s encoder")
    source_ids, _, _ = pair_tokens(run.translator(), text, "x", Search())
    with torch.no_grad():
        _, layers = run.model.encode(torch.from_numpy(source_ids)[None], weights=True)
    names = _names(run.translator().source_tokenizer, source_ids)
    return Looks(names, names, [layer[0].numpy() for layer in layers], "source")


def _names(tokenizer: Tokenizer, ids: np.ndarray) -> list[str]:
    return [tokenizer.name(int(token)) for token in ids]


def _check_room(run: Run, size: int, most: int | None) -> None:
    """Refuse a text that is longer than a model sees at once."""
    if most is not None and size > most:
        what = f"this text has {size:,} tokens, and the model sees {most:,} at once"
        raise InputError(what, where=str(run.folder.path), hint="give a shorter one")


def _no_attention(run: Run, whose: str = "") -> InputError:
    hint = (
        "gpt, bert, transformer and seq2seq look, and recurrent networks that were fitted with attend; those without "
        "have gates: ensue look gates"
    )
    return InputError(f"{run.system}{whose} has no attention", where=str(run.folder.path), hint=hint)
