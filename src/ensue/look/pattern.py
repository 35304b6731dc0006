"""``ensue look pattern``: which positions an attention lets each position see."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import altair as alt
import torch
from torch import Tensor

from ensue.core.errors import InputError
from ensue.look.chart_parts import COLOURS, MAX_MARKS, records, titled
from ensue.look.view import View
from ensue.nn.mixers.mixer import MIXERS, MixerConfig, build_mixer, check_heads, parse_heads, parse_mixer

HEADS, HEAD_WIDTH = 4, 16
MAX_LENGTH = 2048
BY_CONTENT = "Which positions are seen depends on the text; here it is random."


def pattern(names: Sequence[str], *, length: int = 64, head: int = 1, direction: str = "", seed: int = 0) -> View:
    """The pattern of one attention, such as bigbird:block=16, on a random text of ``length`` tokens.

    ``direction`` is causal or both; by default causal if the attention can be.
    """
    if len(names) != 1:
        raise InputError(f"pattern shows one attention, not {len(names)}", hint="for example: look pattern local")
    if not 1 <= length <= MAX_LENGTH:
        raise InputError(f"--length {length} should be 1 to {MAX_LENGTH:,}")
    if not 1 <= head <= HEADS:
        raise InputError(f"--head {head} should be 1 to {HEADS}")
    (name,) = names
    directions = [MIXERS.load(parse_mixer(one)[0]).directions for one in parse_heads(name)]
    chosen = direction or ("causal" if all("causal" in one for one in directions) else "both")
    if chosen not in ("causal", "both"):
        raise InputError(f"--direction {chosen} should be causal or both")
    check_heads(name, (chosen,))
    seen = visible(name, length, chosen == "causal", seed)[head - 1]
    runs = [runs_of(row) for row in seen]
    if sum(map(len, runs)) > MAX_MARKS:
        raise InputError(f"the pattern of {length:,} tokens has too many marks", hint="give a smaller --length")
    share = seen.double().mean().item()
    numbers = {"attention": name, "length": length, "direction": chosen, "head": head, "share": share, "seen": runs}
    return View(partial(pattern_chart, numbers, _depends_on_text(name, length, chosen == "causal")), numbers)


def visible(name: str, length: int, causal: bool, seed: int, text: int = 0) -> Tensor:
    """Whether each position sees each in a mixer with random weights, (H, n, n), on one of its random texts.

    In float64, as products of many decays would be 0 in float32.
    """
    with torch.random.fork_rng([]), torch.no_grad():
        torch.manual_seed(seed)
        config = MixerConfig(width=HEADS * HEAD_WIDTH, heads=HEADS, context=length, causal=causal)
        mixer = build_mixer(name, config).double().eval()
        texts = torch.randn(text + 1, length, config.width, dtype=torch.float64)
        weights = mixer(texts[-1:], weights=True).weights
    if weights is None:
        raise InputError(f"attention {name!r} has no weights to show", hint="`ensue systems attention` lists others")
    found: Tensor = weights[0].expand(HEADS, -1, -1) != 0
    return found


def _depends_on_text(name: str, length: int, causal: bool) -> bool:
    """Whether another text has another pattern."""
    return not torch.equal(*(visible(name, min(length, 256), causal, 0, text) for text in (0, 1)))


def runs_of(row: Tensor) -> list[list[int]]:
    """Runs of true values, each as its first position and the one after its last.

    >>> runs_of(torch.tensor([True, True, False, True]))
    [[0, 2], [3, 4]]
    """
    edges = torch.nn.functional.pad(row.int(), (1, 1)).diff()
    starts, ends = ((edges == step).nonzero()[:, 0].tolist() for step in (1, -1))
    return [list(pair) for pair in zip(starts, ends, strict=True)]


def pattern_chart(numbers: dict[str, Any], by_content: bool) -> Any:
    """A square: a row for each position, filled where it sees the position of the column."""
    n = numbers["length"]
    marks = [
        {"query": t, "below": t + 1, "key": start, "end": end}
        for t, runs in enumerate(numbers["seen"])
        for start, end in runs
    ]
    scale = {"domain": [0, n], "nice": False}
    x = alt.X("key:Q", title="position that is seen", scale=alt.Scale(**scale))
    y = alt.Y("query:Q", title="position that sees", scale=alt.Scale(**scale, reverse=True))
    rects = alt.Chart(records(marks)).mark_rect(color=COLOURS[0], strokeWidth=0)
    chart = rects.encode(x=x, x2="end:Q", y=y, y2="below:Q")
    how = "from left to right" if numbers["direction"] == "causal" else "in both directions"
    title = f"{numbers['attention']}: who sees whom among {n:,} positions, {how}"
    caption = f"Head {numbers['head']}. {numbers['share']:.1%} of all pairs. " + (BY_CONTENT if by_content else "")
    summary = f"{numbers['share']:.1%} of all pairs are seen"
    return titled(chart, title, caption, summary, wrap=70, width=460, height=460)
