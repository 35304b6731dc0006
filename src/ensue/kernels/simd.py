"""Vectors of LANES numbers as instructions: what loops of ours are made of where numba's own vectors do not do.

Numba's own vectors are for long loops and leave short ones to single numbers, so that pieces of a few vectors are
written as such here, and their sums stay in registers. An address is a whole number.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from llvmlite import ir
from numba.core import cgutils

from ensue.kernels import threads

ROWS, LANES = 8, 16
assert (ROWS, LANES) == (threads.ROWS, threads.LANES)

f32 = np.float32

NUMBER, WHOLE, SHORT = ir.FloatType(), ir.IntType(64), ir.IntType(32)
VECTOR, INDEX = ir.VectorType(NUMBER, LANES), ir.VectorType(SHORT, LANES)
FAST = ("contract",)
"""A product and a sum may be one operation."""
SERIES = [1 / math.factorial(power) for power in range(6, -1, -1)]
"""Of eʳ, from the highest power."""


class Vectors:
    """Operations on LANES numbers at once, as instructions."""

    def __init__(self, builder: Any) -> None:
        self.builder = builder

    def at(self, kind: Any, base: Any, *steps: tuple[Any, Any]) -> Any:
        """The address ``base`` and so many times so far on, as a pointer."""
        for stride, times in steps:
            base = self.builder.add(base, self.builder.mul(self.builder.mul(stride, times), WHOLE(4)))
        return self.builder.inttoptr(base, kind.as_pointer())

    def load(self, base: Any, *steps: tuple[Any, Any]) -> Any:
        """The vector that begins there."""
        return self.builder.load(self.at(VECTOR, base, *steps), align=4)

    def store(self, x: Any, base: Any, *steps: tuple[Any, Any]) -> None:
        """Write a vector."""
        self.builder.store(x, self.at(VECTOR, base, *steps), align=4)

    def held(self, x: float) -> Any:
        """Room for a vector, which begins as one number."""
        room = cgutils.alloca_once(self.builder, VECTOR)
        self.builder.store(constant(x), room)
        return room

    def all(self, x: Any) -> Any:
        """A vector of one number."""
        kind = ir.VectorType(x.type, LANES)
        first = self.builder.insert_element(kind(ir.Undefined), x, SHORT(0))
        return self.builder.shuffle_vector(first, kind(ir.Undefined), INDEX([0] * LANES))

    def add(self, x: Any, y: Any) -> Any:
        """x + y."""
        return self.builder.fadd(x, y, flags=FAST)

    def times(self, x: Any, y: Any) -> Any:
        """x · y."""
        return self.builder.fmul(x, y, flags=FAST)

    def larger(self, x: Any, y: Any) -> Any:
        """The larger number; y where x is none."""
        return self.builder.select(self.builder.fcmp_ordered(">", x, y), x, y)

    def largest(self, x: Any) -> Any:
        """The largest number of a vector, in every lane."""
        half = LANES // 2
        while half:
            turned = INDEX([(lane + half) % LANES for lane in range(LANES)])
            x, half = self.larger(x, self.builder.shuffle_vector(x, x, turned)), half // 2
        return x

    def power_of_two(self, x: Any) -> Any:
        """2ˣ for x ≤ 0: 2ᵏ of x = k + r put together from its bits, 2ʳ by its series, |r| ≤ ½.

        What is smaller than the smallest normal number is 0; what is no number stays none.
        """
        b, lowest = self.builder, constant(-126.0)
        below = b.fcmp_ordered("<", x, lowest)
        z = b.select(below, lowest, x)
        k = b.fptosi(self.add(z, constant(-0.5)), INDEX)
        r = self.times(b.fsub(z, b.sitofp(k, VECTOR)), constant(math.log(2)))
        bits = b.shl(b.add(k, INDEX([127] * LANES)), INDEX([23] * LANES))
        power = b.bitcast(b.select(below, INDEX([0] * LANES), bits), VECTOR)
        value = constant(SERIES[0])
        for one in SERIES[1:]:
            value = self.add(self.times(value, r), constant(one))
        return self.times(value, power)


def constant(x: float) -> Any:
    """A vector of one number that is known."""
    return VECTOR([float(f32(x))] * LANES)
