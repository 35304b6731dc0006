"""Two or more programs do the same work in turns, each in a process of its own, on the same cores.

A process of its own, because what one does to the process (threads, memory, caches of kernels) is part of its speed and
none of the other's. In turns, because the machine may be shared: what slows one round slows all who are in it.
"""

from __future__ import annotations

import multiprocessing
import statistics
from collections.abc import Callable, Mapping
from multiprocessing.connection import Connection
from typing import Any, NamedTuple


class Round(NamedTuple):
    """What one program did in one round."""

    work: float
    """How much: tokens, sentences."""
    seconds: float
    result: Any = None


Work = Callable[[int], Round]
"""Does the work of the round with this number."""


def take_turns(programs: Mapping[str, Callable[[], Work]], rounds: int) -> dict[str, list[Round]]:
    """The rounds of each program; a first round, which warms up, is not among them.

    A program is a function of the top level of a module (or a partial of one). It is called once, in its own process.
    """
    context = multiprocessing.get_context("spawn")
    ends, children = {}, []
    for name, program in programs.items():
        ends[name], theirs = context.Pipe()
        children.append(context.Process(target=_serve, args=(program, theirs), daemon=True))
        children[-1].start()
    found: dict[str, list[Round]] = {name: [] for name in programs}
    try:
        for turn in range(rounds + 1):
            for name, end in ends.items():
                end.send(turn)
                done = end.recv()
                if turn:
                    found[name].append(done)
    finally:
        for child in children:
            child.terminate()
    return found


def _serve(program: Callable[[], Work], end: Connection) -> None:
    work = program()
    while True:
        end.send(work(end.recv()))


def ratio(ours: list[Round], theirs: list[Round], unit: str) -> dict[str, Any]:
    """How many times as fast ours is: the median over the rounds, its spread, and the speed of both."""
    speeds = {name: [one.work / one.seconds for one in rounds] for name, rounds in (("ours", ours), ("theirs", theirs))}
    ratios = [o / t for o, t in zip(speeds["ours"], speeds["theirs"], strict=True)]
    return {
        "ratio": round(statistics.median(ratios), 3),
        "ratio_spread": [round(min(ratios), 3), round(max(ratios), 3)],
        f"{unit}_per_second": {name: round(statistics.median(values), 1) for name, values in speeds.items()},
        "rounds": len(ratios),
    }
