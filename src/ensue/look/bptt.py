"""``ensue look bptt``: backpropagation through time of a small network, written out term by term."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np

from ensue.core.errors import InputError
from ensue.look.bptt_page import bptt_html
from ensue.look.bptt_text import bptt_text
from ensue.look.instruments.bptt import bptt_numbers, random_network, with_values
from ensue.look.view import View


def bptt(
    runs: Sequence[Any] = (),
    *,
    steps: int = 3,
    hidden: int = 1,
    seed: int = 0,
    values: Sequence[str] = (),
    costs: str = "",
    cut: int = 0,
) -> View:
    """Backpropagation through time of a small network with random weights, or with ``values`` (w=0.5).

    ``costs`` lists the steps whose loss J counts (3,4,5). The graph is detached after step ``cut``, as in truncated
    backpropagation.
    """
    if runs:
        raise InputError("bptt shows a small network, not a run", hint="for a run: ensue look gradients RUN …")
    network = with_values(random_network(steps=steps, hidden=hidden, seed=seed), parse_values(values))
    numbers = bptt_numbers(network, costs=parse_steps(costs), cut=cut)
    return View(partial(bptt_html, numbers), numbers, partial(bptt_text, numbers))


def parse_values(items: Sequence[str]) -> dict[str, list[float]]:
    """Parse values from the command line.

    >>> parse_values(["w=0.5", "x=1,-1,0.5"])
    {'w': [0.5], 'x': [1.0, -1.0, 0.5]}
    """
    values: dict[str, list[float]] = {}
    for item in items:
        name, _, numbers = item.partition("=")
        try:
            values[name.strip()] = [float(number) for number in numbers.split(",")]
        except ValueError as error:
            raise InputError(f"--values {item!r} is not NAME=NUMBER,NUMBER,…", hint="e.g. --values w=0.5") from error
        if not np.isfinite(values[name.strip()]).all():
            raise InputError(f"--values {item!r} holds a number that is not finite", hint="e.g. --values w=0.5")
    return values


def parse_steps(text: str) -> list[int]:
    """Parse numbers of steps from the command line.

    >>> parse_steps("3,4,5"), parse_steps("")
    ([3, 4, 5], [])
    """
    try:
        return [int(number) for number in text.split(",")] if text else []
    except ValueError as error:
        raise InputError(f"--costs {text!r} is not a list of steps", hint="e.g. --costs 3,4,5") from error
