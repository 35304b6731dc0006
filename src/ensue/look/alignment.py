"""``ensue look alignment``: cross-attention of a translation as an alignment of words."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from ensue.core.errors import InputError
from ensue.look.alignment_chart import alignment_chart
from ensue.look.attention_chart import heads_chart
from ensue.look.runs import check_text, label, single, translation_run
from ensue.look.view import View
from ensue.runs.run import Run
from ensue.runs.translation import TranslationRun
from ensue.search.beam import Search


def alignment(
    runs: Sequence[Run], *, text: str = "", target: str = "", beam: int | None = None, layer: int = 0, head: int = 0
) -> View:
    """The source words that each word of ``target``, or of the result of beam search, attends to.

    ``layer`` and ``head`` count from 1. The default is the mean over the heads of the last layer but one, where
    Transformers align best (Garg et al., 2019), or of the only layer. ``layer`` alone shows all its heads.
    """
    run, search = sentence_request("alignment", runs, text, target, beam)
    source, words, layers = run.alignment(text, target=target, search=search)
    check_number("layer", layer, len(layers))
    number = layer or aligning_layer(len(layers))
    heads = layers[number - 1]  # (H, T, S)
    check_number("head", head, len(heads))
    weights = heads[head - 1] if head else heads.mean(0)
    numbers = {"system": run.system, "text": text, "source": source, "target": words, "layer": number}
    numbers |= {"head": head or None, "weights": weights.tolist()}
    if layer and not head and len(heads) > 1:
        title = f"{label(run)}, layer {layer}: attention of each head from target to source"
        draw = partial(heads_chart, words, source, {layer: heads}, title=title)
        return View(draw, {**numbers, "heads": heads.tolist()})
    which = f"head {head}" if head else "mean over heads" if len(heads) > 1 else "attention"
    title = f"{label(run)}, layer {number}, {which}: which source words each target word attends to"
    return View(partial(alignment_chart, source, words, weights, title=title), numbers)


def sentence_request(
    view: str, runs: Sequence[Run], text: str, target: str, beam: int | None
) -> tuple[TranslationRun, Search]:
    """The run and the search of a view that shows one sentence."""
    run = translation_run(single(runs, view))
    check_text(text, view)
    if target and beam is not None:
        raise InputError("a given --target is not searched for", hint="leave out --beam or --target")
    return run, Search() if beam is None else Search(beam=beam)


def check_number(kind: str, number: int, count: int) -> None:
    """Refuse the number of a layer or head that does not exist; 0 stands for the default."""
    if not 0 <= number <= count:
        raise InputError(f"there is no {kind} {number}", hint=f"there are {count}")


def aligning_layer(layers: int) -> int:
    """The decoder layer whose attention shows alignments, from 1: the last but one (Garg et al., 2019)."""
    return max(1, layers - 1)
