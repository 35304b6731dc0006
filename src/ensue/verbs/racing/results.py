"""The results of a race, as a table, as race.json and as race.md."""

from __future__ import annotations

from dataclasses import dataclass, field
from statistics import mean
from typing import Any

from ensue.core.wording import counted, listed
from ensue.look.race import entrant_name, matched_in_words
from ensue.runs.run import Run
from ensue.tasks.spec import RaceSpec
from ensue.train.budget import BUSY
from ensue.verbs.racing.plan import Candidate

UNEQUAL = 0.3
"""A difference in cores used by other processes that may change the ranking."""


@dataclass
class Entrant:
    """The result of a candidate: the mean over the seeds that worked, or why there is none."""

    system: str
    value: float | None = None
    """The value of the measure that ranks."""
    start: str = ""
    """``from scratch`` or ``pre-trained``, for tasks that label."""
    labels: int = 0
    """The number of labelled examples it was trained on."""
    attention: str = ""
    """Its attention, in a race of attentions."""
    measures: dict[str, float] = field(default_factory=dict)
    seconds: float | None = None
    parameters: int | None = None
    bytes: int | None = None
    tokens: int | None = None
    """Tokens trained on."""
    others: float | None = None
    """Cores that other processes used while it trained; None without a time budget."""
    spread: float = 0.0
    """The difference of the highest and the lowest value over the seeds that worked."""
    seeds: list[dict[str, Any]] = field(default_factory=list)
    """The figures of each seed that worked."""
    remark: str = ""
    error: str = ""
    """Why seeds failed, and how many did."""

    @property
    def bits_per_byte(self) -> float | None:
        """Bits per byte, in a race of language models or translation."""
        return self.measures.get("bits_per_byte")


def run_figures(rules: RaceSpec, run: Run) -> dict[str, Any]:
    """The figures of a run for the table."""
    figures = run.config["figures"]
    valid = figures["valid"]  # tags without entities have no precision
    measured = {measure.key: measure.of(valid) if measure.key in valid else None for measure in rules.measures}
    measured |= {name: figures[name] for name in ("seconds", "parameters", "bytes", "tokens")}
    measured |= {"others": figures["budget"]["others"]} if "budget" in figures else {}
    return measured | ({"seed": int(run.settings["seed"])} if run.spec.labels else {})


def mean_entrant(rules: RaceSpec, candidate: Candidate, seeds: list[dict[str, Any]]) -> Entrant:
    """The result of a candidate from the figures of its seeds."""
    one = candidate
    entrant = Entrant(one.system, start=one.start, labels=one.labels, attention=one.attention, seeds=seeds)
    if seeds:
        key = rules.measure.key
        values = [one[key] for one in seeds]
        known = [m.key for m in rules.measures if seeds[0][m.key] is not None]
        entrant.measures = {name: mean(one[name] for one in seeds) for name in known}
        entrant.value, entrant.spread = entrant.measures[key], max(values) - min(values)
        entrant.seconds = mean(one["seconds"] for one in seeds)
        entrant.others = max((one["others"] for one in seeds if "others" in one), default=None)
        entrant.parameters, entrant.bytes, entrant.tokens = (seeds[0][n] for n in ("parameters", "bytes", "tokens"))
    return entrant


@dataclass
class Race:
    """All results, best first."""

    facts: dict[str, Any]
    entrants: list[Entrant]
    rules: RaceSpec
    labels: bool = False
    """True if the systems label."""

    def as_dict(self) -> dict[str, Any]:
        """What race.json holds."""
        return {**self.facts, "systems": [self._entry(entrant) for entrant in self.ranked()]}

    def _entry(self, e: Entrant) -> dict[str, Any]:
        """A result for race.json; missing measures are None."""
        start: dict[str, Any] = {"start": e.start} if self.labels or self.facts.get("from") else {}
        start |= {"labels": e.labels} if self.labels else {}
        start |= {"attention": e.attention} if e.attention else {}
        measures = {measure.key: e.measures.get(measure.key) for measure in self.rules.measures}
        costs = {name: getattr(e, name) for name in ("seconds", "parameters", "bytes", "tokens", "others")}
        seed = {"seed": e.seeds[0]["seed"] if e.seeds else None} if self.labels else {}
        rest = {name: getattr(e, name) for name in ("spread", "seeds", "remark", "error")}
        return {"system": e.system, **start, **measures, **costs, **seed, **rest}

    @property
    def shares(self) -> list[int]:
        """The numbers of labels of a race on shares of the labels."""
        return list(self.facts.get("shares") or ())

    def ranked(self) -> list[Entrant]:
        """Best first, failed ones last; on shares of the labels by the value with the most labels, share by share."""
        by_labels = sorted(self.entrants, key=lambda e: e.labels)
        merits = {self.name(e): self._merit(e) for e in by_labels}  # the value with the most labels comes last
        curves = sorted(merits, key=lambda curve: merits[curve])
        return sorted(by_labels, key=lambda e: curves.index(self.name(e)))

    def _merit(self, e: Entrant) -> tuple[bool, float]:
        """A sort key: lower is better."""
        return (e.value is None, (e.value or 0.0) * (1 if self.rules.lower else -1))

    def name(self, e: Entrant) -> str:
        """The system, its start if one system has two, and its attention in a race of attentions."""
        return entrant_name(self.facts, {"system": e.system, "start": e.start, "attention": e.attention})

    def table(self) -> tuple[list[str], list[list[str]]]:
        """The table for people, as columns and rows; a column for each share of the labels, if there are some."""
        if self.shares:
            return self._table_of_shares()
        columns = ["system", *(measure.title for measure in self.rules.measures), "seconds", "parameters", "megabytes"]
        rows = []
        for e in self.ranked():
            if e.value is None:
                rows.append([self.name(e), "failed", *[""] * (len(columns) - 2)])
                continue
            values = [(e.measures.get(m.key), m.format_spec) for m in self.rules.measures[1:]]
            others = ["–" if value is None else format(value, form) for value, form in values]
            rows.append([self.name(e), self._cell(e), *others, f"{e.seconds:.0f}", *_size(e)])
        return columns, rows

    def _table_of_shares(self) -> tuple[list[str], list[list[str]]]:
        curves: dict[str, dict[int, Entrant]] = {}
        for e in self.ranked():
            curves.setdefault(self.name(e), {})[e.labels] = e
        first = f"{self.rules.measure.title} with"
        columns = [first, *(counted(share, "label") for share in self.shares), "parameters", "megabytes"]
        rows = []
        for name, curve in curves.items():
            cells = [self._cell(curve[share]) if share in curve else "" for share in self.shares]
            done = next((e for e in curve.values() if e.value is not None), None)
            rows.append([name, *cells, *(_size(done) if done else ("", ""))])
        return columns, rows

    def _cell(self, e: Entrant) -> str:
        if e.value is None:
            return "failed"
        form = self.rules.measure.format_spec
        return format(e.value, form) + (f" ± {e.spread / 2:{form}}" if len(e.seeds) > 1 else "")

    def remarks(self) -> list[str]:
        """Remarks below the table; one that holds for every share comes once."""
        remarks: dict[tuple[str, str], list[str]] = {}
        for e in self.ranked():
            text = "; ".join(filter(None, (e.error, e.remark)))
            if text:
                remarks.setdefault((self.name(e), text), []).append(f"{e.labels:,}")
        every = len(self.shares)
        return [
            f"{name}{f', {listed(labels)} labels' if every and len(labels) < every else ''}: {text}"
            for (name, text), labels in remarks.items()
        ]

    def starved(self) -> list[Entrant]:
        """Those that had clearly less of the machine than another one: the table does not compare them fairly."""
        known = [e for e in self.entrants if e.others is not None]
        least = min((e.others or 0.0 for e in known), default=0.0)
        return [e for e in known if (e.others or 0.0) > least + UNEQUAL]

    def conditions(self) -> list[str]:
        """What other processes took from the systems, and how to repeat those that had less than the others."""
        used = [e.others for e in self.entrants if e.others is not None]
        if self.facts.get("match") == "cpu":
            most = max(used, default=0.0)
            return [f"other processes used up to {most:.1f} cores, which made the race longer"] if most > BUSY else []
        if starved := self.starved():
            names = listed([f"{self.name(e)} ({e.others:.1f})" for e in starved])
            systems = ",".join(dict.fromkeys(e.system for e in starved))
            return [
                f"unequal conditions: other processes used more cores beside {names} than beside the others "
                f"({min(used):.1f}); --resume --repeat {systems} trains again, --match cpu compares at equal CPU time"
            ]
        if used and min(used) > BUSY:
            return [
                f"other processes used {mean(used):.1f} cores throughout: all trained less than on a quiet machine, "
                "which may change their order; --match cpu compares at equal CPU time, and takes longer instead"
            ]
        return []

    def markdown(self) -> str:
        """The text of race.md."""
        (columns, rows), alike = self.table(), matched_in_words(self.facts)
        lines = [
            f"{self.rules.heading(self.facts)}; {alike}; {counted(self.facts['threads'], 'thread')}.",
            "",
            "| " + " | ".join(columns) + " |",
            "|---" * len(columns) + "|",
            *("| " + " | ".join(row) + " |" for row in rows),
            "",
            *(f"- {line}" for line in (*self.remarks(), *self.conditions())),
        ]
        return "\n".join(lines).rstrip() + "\n"


def _size(e: Entrant) -> tuple[str, str]:
    return f"{e.parameters:,}", f"{(e.bytes or 0) / 1e6:.1f}"
