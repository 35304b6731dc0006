"""One line of the table of reliability: what must hold, what was measured, whether it holds."""

from __future__ import annotations

from typing import NamedTuple


class Row(NamedTuple):
    """A promise, its target, the figure measured, and whether the target is met."""

    what: str
    target: str
    measured: str
    holds: bool
