"""How the time and memory of a mixer grow with the number of tokens.

    t(n) ≈ c n^p          p: the slope of log t against log n, by least squares

A training step of one layer, forward and backward, is timed in turns with the others, and the fastest of some rounds
counts: what else runs on the machine only adds time. Memory is the most that torch had allocated at once in such a
step, beyond the weights and the input. One more token after n others is timed without gradients.

Legend: n tokens, D width, H heads.
"""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from dataclasses import dataclass
from math import exp, log

import torch
from torch import Tensor
from torch.profiler import ProfilerActivity, profile

from ensue.nn.layout import Layout
from ensue.nn.mixers.mixer import Mixer, MixerConfig, build_mixer

MEMORY = "[memory]"
"""The name of the profiler's events of allocations."""
STEPS = 8
"""Tokens that are decoded to time one."""


@dataclass(frozen=True)
class Growth:
    """Time and memory of a mixer at some lengths."""

    attention: str
    lengths: tuple[int, ...]
    seconds: tuple[float, ...]
    """Of a training step."""
    bytes: tuple[int, ...]
    """Allocated at once in a training step."""
    decode_seconds: tuple[float, ...]
    """Of one more token after as many; empty for a mixer that reads in both directions."""

    @property
    def time_exponent(self) -> float | None:
        """p of the time of a training step."""
        return exponent(self.lengths, self.seconds)

    @property
    def memory_exponent(self) -> float | None:
        """p of the memory of a training step."""
        return exponent(self.lengths, self.bytes)


def exponent(lengths: Sequence[int], values: Sequence[float]) -> float | None:
    """p of c n^p, by least squares of logarithms; None of fewer than two lengths.

    >>> round(exponent([256, 512, 1024], [3.0, 12.0, 48.0]), 6)
    2.0
    """
    if len(lengths) < 2:
        return None
    x, y = [log(one) for one in lengths], [log(one) for one in values]
    mean_x, mean_y = sum(x) / len(x), sum(y) / len(y)
    slope = sum((a - mean_x) * (b - mean_y) for a, b in zip(x, y, strict=True)) / sum((a - mean_x) ** 2 for a in x)
    return slope


def crossover(lengths: Sequence[int], values: Sequence[float], full: Sequence[float]) -> float | None:
    """The length from which ``values`` stay below ``full``, between two lengths on straight lines of logarithms.

    None if they are not below at the last length; the first length if they always are.

    >>> crossover([1, 2, 4], [2.0, 4.0, 8.0], [1.0, 4.0, 16.0])
    2.0
    """
    gaps = [log(value / other) for value, other in zip(values, full, strict=True)]
    if gaps[-1] > 0:
        return None
    above = [at for at, gap in enumerate(gaps) if gap > 0]
    if not above:
        return float(lengths[0])
    at = above[-1]
    share = gaps[at] / (gaps[at] - gaps[at + 1])
    return exp(log(lengths[at]) + share * (log(lengths[at + 1]) - log(lengths[at])))


def make_mixer(name: str, length: int, width: int, heads: int, causal: bool) -> tuple[Mixer, Tensor]:
    """A mixer with random weights for rows of ``length`` tokens, and such a row."""
    torch.manual_seed(0)
    mixer = build_mixer(name, MixerConfig(width=width, heads=heads, context=length, causal=causal, rope_base=10000.0))
    return mixer, torch.randn(1, length, width, requires_grad=True)


def train_step(mixer: Mixer, x: Tensor) -> None:
    """A forward and a backward pass."""
    y, _, _ = mixer(x)
    y.backward(torch.ones_like(y))


def clock() -> float:
    """Seconds: of the processor where one thread works, since those do not count other programs, else of the day."""
    return time.process_time() if torch.get_num_threads() == 1 else time.perf_counter()


def step_seconds(mixer: Mixer, x: Tensor) -> float:
    """The time of a training step."""
    begun = clock()
    train_step(mixer, x)
    return clock() - begun


def step_bytes(mixer: Mixer, x: Tensor) -> int:
    """The most bytes that torch had allocated at once in a training step."""
    os.environ.setdefault("KINETO_LOG_LEVEL", "99")  # the profiler would print that it starts and stops
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True, acc_events=True) as record:
        train_step(mixer, x)
    live = most = 0
    for event in record.profiler.kineto_results.events():
        if event.name() == MEMORY:
            live += event.nbytes()
            most = max(most, live)
    return most


@torch.no_grad()
def decode_seconds(mixer: Mixer, x: Tensor) -> float:
    """The time of one more token after x, the fastest of some.

    As in a model, positions come from outside: a cache that had to count them would keep every token.
    """
    mixer.eval()
    length = x.shape[1]
    positions = torch.arange(length + STEPS)[None]
    state, fastest = mixer(x, layout=Layout(positions=positions[:, :length])).state, float("inf")
    for step in range(STEPS):
        begun = clock()
        state = mixer(x[:, :1], state, Layout(positions=positions[:, length + step][None])).state
        fastest = min(fastest, clock() - begun)
    mixer.train()
    return fastest
