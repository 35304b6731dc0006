"""What people see while long work goes on, on standard error: a bar on a terminal, a few lines elsewhere."""

from __future__ import annotations

import time
from types import TracebackType
from typing import Any, Self

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeElapsedColumn

from ensue.core.durations import spoken

KNOWN = ("step", "valid_loss")
SILENCE = 20.0
"""Where there is no bar, a line is said after so many seconds."""


def _short(value: float) -> str:
    """A measure in four places, or in four digits where it is very small or large.

    >>> _short(0.25), _short(0.0000123456), _short(3e9)
    ('0.2500', '1.235e-05', '3e+09')
    """
    return f"{value:.4f}" if value == 0 or 1e-3 <= abs(value) < 1e7 else f"{value:.4g}"


def pace(values: dict[str, Any]) -> str:
    """How much of a phase is done, how fast it goes and when it will end, where that is known; bytes by the million.

    >>> pace({"done": 3_000_000, "total": 12_500_000, "counts": "bytes", "per_second": 2_000_000, "left": 4.7})
    '3.0 of 12.5 MB · 2.0 MB/s · 5 s left'
    """
    if "per_second" not in values:
        return ""
    unit, scale, digits = ("MB", 1e6, 1) if values["counts"] == "bytes" else (values["counts"], 1, 0)
    done, total, speed = (f"{values[name] / scale:,.{digits}f}" for name in ("done", "total", "per_second"))
    return f"{done} of {total} {unit} · {speed} {unit}/s · {spoken(values['left'])} left"


class Display:
    """A ``Report`` that draws. Use it as a context manager."""

    def __init__(self, quiet: bool = False) -> None:
        self.console = Console(stderr=True, highlight=False)
        self.quiet = quiet
        self.notes: list[str] = []
        self.bar: Progress | None = None
        self.task: TaskID | None = None
        self.spoke = time.monotonic()
        self.phase = ""
        if self.console.is_terminal and not quiet:
            columns = (
                TextColumn("{task.description}"),
                BarColumn(),
                TextColumn("{task.fields[facts]}"),
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
        """Take an event."""
        getattr(self, f"on_{kind}", self.on_other)(values)

    def say(self, text: str) -> None:
        """A line that stays."""
        if not self.quiet:
            (self.bar.console if self.bar else self.console).print(text, markup=False, soft_wrap=True)

    def on_other(self, values: dict[str, Any]) -> None:
        """Events that need no words."""

    def on_phase(self, values: dict[str, Any]) -> None:
        """A stretch of work begins."""
        if self.bar:
            if self.task is not None:
                self.bar.remove_task(self.task)
            self.task = self.bar.add_task(str(values["name"]), total=None, facts="")
        self.phase = str(values["name"])

    def on_progress(self, values: dict[str, Any]) -> None:
        """Where it stands."""
        facts = pace(values)
        if self.bar and self.task is not None:
            self.bar.update(self.task, completed=values["done"], total=values["total"], facts=facts)
        elif facts and time.monotonic() - self.spoke > SILENCE:
            self.spoke = time.monotonic()
            self.say(f"{self.phase}: {facts}")

    def on_plan(self, values: dict[str, Any]) -> None:
        """What a budget buys."""
        steps = "1 step fits" if values["steps"] == 1 else f"{values['steps']:,} steps fit"
        self.say(f"{steps} into the budget ({values['step_seconds'] * 1000:.0f} ms each)")

    def on_step(self, values: dict[str, Any]) -> None:
        """A step of training."""
        speed = f"{values['tokens_per_second']:,.0f} {values.get('counts', 'tokens')}/s"
        facts = f"loss {values['loss']:.3f} · {speed} · {spoken(values['left'])} left"
        if self.bar and self.task is not None:
            self.bar.update(self.task, completed=values["step"], total=values["steps"], facts=facts)
        elif time.monotonic() - self.spoke > SILENCE:
            self.spoke = time.monotonic()
            self.say(f"step {values['step']:,} of {values['steps']:,} · {facts}")

    def on_evaluation(self, values: dict[str, Any]) -> None:
        """A measure on held-out text."""
        others = [f"{name.replace('_', ' ')} {_short(value)}" for name, value in values.items() if name not in KNOWN]
        unit = "" if others else " nats a token"
        self.say(
            f"step {values['step']:,}: validation loss {values['valid_loss']:.4f}{unit}"
            + "".join(f" · {one}" for one in others)
        )

    def on_sample(self, values: dict[str, Any]) -> None:
        """What the model writes as it learns."""
        self.say(f"— after step {values['step']:,} it writes:\n{values['text'].strip()}\n")

    def on_note(self, values: dict[str, Any]) -> None:
        """Something people should know; programs find it in ``notes``."""
        self.notes.append(str(values["text"]))
        self.say(f"note: {values['text']}")

    def on_race(self, values: dict[str, Any]) -> None:
        """A system of a race begins or ends."""
        self.say(str(values["text"]))
