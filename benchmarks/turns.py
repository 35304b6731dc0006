"""Two or more programs do the same work in turns, each in a process of its own, on the same cores.

A process of its own, because what one does to the process (threads, memory, caches of kernels) is part of its speed and
none of the other's. In turns, because the machine may be shared: what slows one round slows all who are in it.
"""

from __future__ import annotations

import multiprocessing
import resource
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.machine import limits
from benchmarks.record import record


class Round(NamedTuple):
    """What one program did in one round."""

    work: float
    """How much: tokens, sentences."""
    seconds: float
    result: Any = None
    memory: int = 0
    """The most bytes that the process, or a program that it called, has held so far; ``take_turns`` fills it in."""


Work = Callable[[int], Round]
"""Does the work of the round with this number."""


class Mark(NamedTuple):
    """What a line of the table of speed asks for."""

    ours: str
    peer: str
    """Names of programs."""
    least: float = 0.0
    """How many times as fast ours is to be; 0: nothing is asked for."""
    memory: float = 0.0
    """How much of the peer's peak of memory ours may have; 0: nothing is asked for."""


@dataclass(frozen=True, kw_only=True)
class Contest:
    """One kind of work, those who do it, and what is asked for."""

    result: str
    """The file in results/ that it is written to."""
    work: str
    """What is done: a line of the table."""
    size: str
    """Of what size: corpus, vocabulary, batch."""
    unit: str
    """What is counted, in the plural: tokens, sentences."""
    programs: Mapping[str, Callable[[], Work]]
    """By name. A function of the top level of a module, or a partial of one; called once, in its own process."""
    marks: Sequence[Mark]
    flops: float = 0.0
    """What a unit of work cannot be done without, two for a multiply-add; 0 where that is not what bounds it."""
    bytes: float = 0.0
    """Of memory, that a unit of work has to read; 0 where that is not what bounds it."""
    facts: Mapping[str, Any] = field(default_factory=dict)
    """Whatever else is to be written down."""


def hold(
    contest: Contest, rounds: int, agree: Callable[[dict[str, list[Round]]], Mapping[str, Any]] | None = None
) -> None:
    """Let all do their rounds, and write down a line for every mark.

    ``agree`` looks at what they found, raises where they did not do the same work, and answers facts about it.
    """
    before = limits()
    done = take_turns(contest.programs, rounds)
    facts = {**contest.facts, **(agree(done) if agree else {})}
    for mark in contest.marks:
        figures = ratio(done[mark.ours], done[mark.peer], contest.unit)
        asked = ({"mark": mark.least} if mark.least else {}) | ({"mark_memory": mark.memory} if mark.memory else {})
        names = {"work": contest.work, "size": contest.size, "ours": mark.ours, "peer": mark.peer}
        bound = {
            "limits": {"gflops": round(before.flops / 1e9, 1), "gigabytes_per_second": round(before.bandwidth / 1e9, 1)}
        }
        speeds = figures[f"{contest.unit}_per_second"]
        if contest.flops:
            bound["share_of_flops"] = {
                who: round(speed * contest.flops / before.flops, 3) for who, speed in speeds.items()
            }
        if contest.bytes:
            bound["share_of_bandwidth"] = {
                who: round(speed * contest.bytes / before.bandwidth, 3) for who, speed in speeds.items()
            }
        record(contest.result, {**names, **figures, **asked, **facts, **bound})


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
        theirs.close()  # so that a program that dies is noticed
    found: dict[str, list[Round]] = {name: [] for name in programs}
    try:
        for turn in range(rounds + 1):
            for name, end in ends.items():
                end.send(turn)
                try:
                    done = end.recv()
                except EOFError:
                    raise SystemExit(f"{name} ended in round {turn}; its own words stand above") from None
                if turn:
                    found[name].append(done)
    finally:
        for child in children:
            child.terminate()
    return found


def _serve(program: Callable[[], Work], end: Connection) -> None:
    work = program()
    while True:
        done = work(end.recv())
        end.send(done._replace(memory=max(own_peak(), 1024 * resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)))


def own_peak() -> int:
    """The most bytes that this process has held; getrusage would count what its parent held before it began."""
    status = Path("/proc/self/status")
    if not status.exists():
        return 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    line = next(line for line in status.read_text().splitlines() if line.startswith("VmHWM:"))
    return 1024 * int(line.split()[1])


def ratio(ours: list[Round], theirs: list[Round], unit: str) -> dict[str, Any]:
    """How many times as fast ours is: the median over the rounds, its spread, and the speed and memory of both."""
    both = {"ours": ours, "theirs": theirs}
    speeds = {name: [one.work / one.seconds for one in rounds] for name, rounds in both.items()}
    ratios = [o / t for o, t in zip(speeds["ours"], speeds["theirs"], strict=True)]
    return {
        "ratio": round(statistics.median(ratios), 3),
        "ratio_spread": [round(min(ratios), 3), round(max(ratios), 3)],
        f"{unit}_per_second": {name: round(statistics.median(values), 1) for name, values in speeds.items()},
        "peak_megabytes": {name: round(max(one.memory for one in rounds) / 1e6) for name, rounds in both.items()},
        "rounds": len(ratios),
    }
