"""``ensue cost attention``: what each attention costs, by its equation and measured on this machine."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import torch

from ensue.core.errors import InputError
from ensue.core.events import Report, silent
from ensue.core.memory import keep_freed_memory
from ensue.look.saving import check_suffix, save_chart
from ensue.look.scaling_chart import scaling_chart
from ensue.measure.scaling import Growth, crossover, decode_seconds, make_mixer, step_bytes, step_seconds
from ensue.nn.mixers.mixer import MIXERS, check_heads, parse_heads, parse_mixer

ATTENTION = "attention"
"""The name that gives, instead of a system's cost, that of attentions."""
FULL = "full"
FIXED = {"local": "local:span=128", "linformer": "linformer:rank=128", "xl": "xl:segment=128:memory=128"}
"""Options that by default are a share of the context: fixed, or time would grow with the square of the length."""
LENGTHS = (512, 1024, 2048, 4096)
MAX_LENGTH = 1 << 20
ROUNDS = 3
DIRECTIONS = {"causal": True, "both": False}


def attentions() -> list[dict[str, Any]]:
    """All attentions: what they do, their complexity, what one more token costs, directions and paper."""
    found = []
    for name, entry in MIXERS.entries.items():
        cls = MIXERS.load(name)
        costs = {key: getattr(cls, key) for key in ("complexity", "decoding", "paper")}
        found.append({"attention": name, "summary": entry.summary, "directions": list(cls.directions), **costs})
    return found


def cost_attention(
    names: Sequence[str] = (),
    *,
    lengths: Sequence[int] = (),
    measure: bool = False,
    width: int = 256,
    heads: int = 4,
    direction: str = "causal",
    out: str | Path | None = None,
    report: Report = silent,
) -> dict[str, Any]:
    """The complexity of attentions, and with ``measure`` their time and memory at some lengths.

    ``names`` are values of the setting ``attention``; by default all, of which those that mix in this direction are
    measured. Full attention is always measured beside them, so that each has the length from which it is faster.
    ``local``, ``linformer`` and ``xl`` have the options of ``FIXED``, unless others are named.
    """
    if direction not in DIRECTIONS:
        raise InputError(f"direction = {direction!r}", hint="causal or both")
    known = [one["attention"] for one in attentions() if direction in one["directions"]]
    chosen = list(dict.fromkeys(FIXED.get(name, name) for name in [FULL, *(names or known)]))
    for name in chosen:
        check_heads(name, (direction,) if measure else ())
    sizes = sorted(set(lengths or LENGTHS))
    if sizes[0] < 1 or sizes[-1] > MAX_LENGTH:
        raise InputError(f"lengths must be between 1 and {MAX_LENGTH:,}")
    if out is not None and not measure:
        raise InputError("there is nothing to draw", hint="add --measure")
    if out is not None:
        check_suffix(out)
    named = {parse_mixer(head)[0] for name in names for head in parse_heads(name)}
    described = [one for one in attentions() if not named or one["attention"] in named]
    result: dict[str, Any] = {"system": ATTENTION, "attentions": described}
    if not measure:
        return result
    growths = _measured(chosen, sizes, width, heads, DIRECTIONS[direction], report)
    full = growths[0]
    result |= {
        "lengths": sizes,
        "width": width,
        "heads": heads,
        "direction": direction,
        "threads": torch.get_num_threads(),
        "measured": [_figures(growth, full) for growth in growths],
    }
    if out is not None:
        save_chart(scaling_chart(result), out)
    return result


def _figures(growth: Growth, full: Growth) -> dict[str, Any]:
    """The figures of an attention, with its exponents and where it overtakes full attention."""
    overtakes = None if growth is full else crossover(growth.lengths, growth.seconds, full.seconds)
    exponents = {"time_exponent": growth.time_exponent, "memory_exponent": growth.memory_exponent}
    return {**asdict(growth), **exponents, "faster_than_full_from": overtakes}


def _measured(
    names: Sequence[str], lengths: Sequence[int], width: int, heads: int, causal: bool, report: Report
) -> list[Growth]:
    """Measure the attentions in turns, length by length, as ``fit`` trains them."""
    keep_freed_memory()
    empty = Growth(attention="", lengths=(), seconds=(), bytes=(), decode_seconds=())
    found = {name: replace(empty, attention=name) for name in names}
    for number, length in enumerate(lengths):
        report("phase", {"name": f"measuring {length:,} tokens, {number + 1} of {len(lengths)} lengths"})
        made = {name: make_mixer(name, length, width, heads, causal) for name in names}
        peaks = {name: step_bytes(*made[name]) for name in names}  # also compiles what has to be compiled
        times = dict.fromkeys(names, float("inf"))
        for at, name in enumerate(list(names) * ROUNDS):
            times[name] = min(times[name], step_seconds(*made[name]))
            report("progress", {"done": at + 1, "total": ROUNDS * len(names)})
        for name in names:
            after = (decode_seconds(*made[name]),) if causal else ()
            old = found[name]
            found[name] = Growth(
                attention=name,
                lengths=(*old.lengths, length),
                seconds=(*old.seconds, times[name]),
                bytes=(*old.bytes, peaks[name]),
                decode_seconds=(*old.decode_seconds, *after),
            )
    return list(found.values())
