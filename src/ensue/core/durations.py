"""Parse and format durations."""

from __future__ import annotations

import re

from ensue.core.errors import InputError

UNITS = {"s": 1.0, "m": 60.0, "h": 3600.0}


def seconds(text: str) -> float:
    """``45s``, ``10m``, ``2h``, ``1h30m`` in seconds; a bare number is seconds.

    >>> seconds("2m"), seconds("1h30m"), seconds("45")
    (120.0, 5400.0, 45.0)
    """
    clean = text.strip().lower()
    parts = re.findall(r"(\d+(?:\.\d+)?)([smh])", clean)
    if re.fullmatch(r"\d+(\.\d+)?", clean):
        total = float(clean)
    elif parts and "".join(number + unit for number, unit in parts) == clean:
        total = sum(float(number) * UNITS[unit] for number, unit in parts)
    else:
        raise InputError(f"{text!r} is not a time", hint="write 45s, 10m or 2h")
    if total <= 0:
        raise InputError(f"a time of {text!r} must be above 0", hint="write 45s, 10m or 2h")
    return total


def duration_in_words(duration: float) -> str:
    """Format a number of seconds.

    >>> duration_in_words(42.34), duration_in_words(150), duration_in_words(7260)
    ('42 s', '2 min 30 s', '2 h 1 min')
    """
    if duration < 1:
        return f"{duration:.2f} s"
    if duration < 60:
        return f"{duration:.0f} s"
    if duration < 3600:
        return f"{int(duration) // 60} min {int(duration) % 60} s"
    return f"{int(duration) // 3600} h {int(duration) % 3600 // 60} min"
