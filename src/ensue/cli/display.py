"""Progress on standard error: a bar on a terminal, a line now and then elsewhere."""

from __future__ import annotations

import time
from types import TracebackType
from typing import Any, Self

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeElapsedColumn

from ensue.core.durations import duration_in_words
from ensue.core.escapes import escape_controls

LINE_INTERVAL = 20.0
"""Seconds between two lines of progress where there is no bar."""


def _short(value: float) -> str:
    """A measure with four decimals, or four significant digits if it is very small or large.

    >>> _short(0.25), _short(0.0000123456), _short(3e9)
    ('0.2500', '1.235e-05', '3e+09')
    """
    return f"{value:.4f}" if value == 0 or 1e-3 <= abs(value) < 1e7 else f"{value:.4g}"


def pace(values: dict[str, Any]) -> str:
    """Progress, speed and remaining time of a phase, if known; bytes in MB.

    >>> pace({"done": 3_000_000, "total": 12_500_000, "counts": "bytes", "per_second": 2_000_000, "left": 4.7})
    '3.0 of 12.5 MB · 2.0 MB/s · 5 s left'
    >>> pace({"done": 7, "total": 30, "counts": "questions", "per_second": 0.31, "left": 74})
    '7 of 30 questions · 0.31 questions/s · 1 min 14 s left'
    """
    if "per_second" not in values:
        return ""
    unit, scale, digits = ("MB", 1e6, 1) if values["counts"] == "bytes" else (values["counts"], 1, 0)
    done, total = (f"{values[name] / scale:,.{digits}f}" for name in ("done", "total"))
    speed = values["per_second"] / scale
    shown = f"{speed:,.{digits}f}" if speed >= 10 else f"{speed:.2g}" if digits == 0 else f"{speed:.{digits}f}"
    return f"{done} of {total} {unit} · {shown} {unit}/s · {duration_in_words(values['left'])} left"


class Display:
    """A ``Report`` that prints events and draws a progress bar; a context manager."""

    def __init__(self, quiet: bool = False) -> None:
        self.console = Console(stderr=True, highlight=False, markup=False, emoji=False)
        self.quiet = quiet
        self.notes: list[str] = []
        self.bar: Progress | None = None
        self.task: TaskID | None = None
        self.last_line = time.monotonic()
        self.phase = ""
        if self.console.is_terminal and not quiet:
            columns = (
                TextColumn("{task.description}", markup=False),
                BarColumn(),
                TextColumn("{task.fields[facts]}", markup=False),
                TimeElapsedColumn(),
            )
            self.bar = Progress(*columns, console=self.console, transient=True)

    def __enter__(self) -> Self:
        if self.bar:
            self.bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.bar:
            self.bar.stop()

    def __call__(self, kind: str, values: dict[str, Any]) -> None:
        """Handle an event."""
        getattr(self, f"on_{kind}", self.on_other)(values)

    def print(self, text: str, keep: str = "") -> None:
        """Print a line above the bar, with control characters escaped except those in ``keep``."""
        if not self.quiet:
            (self.bar.console if self.bar else self.console).print(escape_controls(text, keep), soft_wrap=True)

    def on_other(self, values: dict[str, Any]) -> None:
        """Ignore events that are not shown."""

    def on_phase(self, values: dict[str, Any]) -> None:
        """Start a bar for a phase."""
        if self.bar:
            if self.task is not None:
                self.bar.remove_task(self.task)
            self.task = self.bar.add_task(escape_controls(values["name"]), total=None, facts="")
        self.phase = str(values["name"])

    def on_progress(self, values: dict[str, Any]) -> None:
        """Show the progress of a phase."""
        facts = pace(values)
        done, total = values["done"], values["total"]
        self._advance(done, total, facts, f"{self.phase}: {facts or f'{done:,} of {total:,}'}" if self.phase else "")

    def _advance(self, done: int, total: int, facts: str, line: str) -> None:
        """Advance the bar; without one, print ``line`` if the last one was long ago."""
        if self.bar and self.task is not None:
            self.bar.update(self.task, completed=done, total=total, facts=facts)
        elif line and time.monotonic() - self.last_line > LINE_INTERVAL:
            self.last_line = time.monotonic()
            self.print(line)

    def on_plan(self, values: dict[str, Any]) -> None:
        """Print how many steps fit into the budget; later revisions show in the progress."""
        if not values["first"]:
            return
        if not values["step_seconds"]:  # the first step, whose time tells little, took all of it
            self.print(f"the budget was over after {values['steps']:,} step{'s' * (values['steps'] != 1)}")
            return
        steps = "1 step fits" if values["steps"] == 1 else f"{values['steps']:,} steps fit"
        self.print(f"{steps} into the budget ({values['step_seconds'] * 1000:.0f} ms each)")

    def on_step(self, values: dict[str, Any]) -> None:
        """Show a training step."""
        speed = f"{values['tokens_per_second']:,.0f} {values.get('counts', 'tokens')}/s"
        facts = f"loss {values['loss']:.3f} · {speed} · {duration_in_words(values['left'])} left"
        line = f"step {values['step']:,} of {values['steps']:,} · {facts}"
        self._advance(values["step"], values["steps"], facts, line)

    def on_evaluation(self, values: dict[str, Any]) -> None:
        """Print the validation loss and other measures."""
        others = {name: value for name, value in values.items() if name not in ("step", "valid_loss")}
        measures = "".join(f" · {name.replace('_', ' ')} {_short(value)}" for name, value in others.items())
        unit = "" if others else " nats per token"
        self.print(f"step {values['step']:,}: validation loss {values['valid_loss']:.4f}{unit}{measures}")

    def on_sample(self, values: dict[str, Any]) -> None:
        """Print a text generated during training."""
        self.print(f"— sample after step {values['step']:,}:\n{values['text'].strip()}\n", keep="\n\t")

    def on_note(self, values: dict[str, Any]) -> None:
        """Print a note and keep it for ``notes`` in JSON."""
        self.notes.append(str(values["text"]))
        self.print(f"note: {values['text']}")

    def on_race(self, values: dict[str, Any]) -> None:
        """Print that a system of a race starts or ends."""
        self.print(str(values["text"]))
