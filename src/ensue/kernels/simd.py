"""Vectors of LANES floats, as LLVM instructions.

Numba vectorises long loops by itself and leaves short ones scalar. So loops over a few vectors, whose sums are to stay
in registers, are written with these. An address is an int64.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from llvmlite import ir
from numba.core import cgutils

from ensue.kernels.threads import LANES, ROWS

__all__ = ["FLOAT", "INT32", "INT64", "INTS", "LANES", "ROWS", "VECTOR", "Vectors", "constant"]

FLOAT, INT64, INT32 = ir.FloatType(), ir.IntType(64), ir.IntType(32)
VECTOR, INTS = ir.VectorType(FLOAT, LANES), ir.VectorType(INT32, LANES)
SHORTS = ir.VectorType(ir.IntType(16), LANES)
FAST = ("contract",)
"""A multiplication and an addition may become one operation."""
SERIES = [1 / math.factorial(power) for power in range(6, -1, -1)]
"""Coefficients of eʳ, from the highest power."""


class Vectors:
    """Builds operations on LANES floats."""

    def __init__(self, builder: Any) -> None:
        self.builder = builder

    def at(self, kind: Any, base: Any, *steps: tuple[Any, Any]) -> Any:
        """A pointer to ``base`` plus stride · index floats for each of ``steps``."""
        for stride, index in steps:
            base = self.builder.add(base, self.builder.mul(self.builder.mul(stride, index), INT64(4)))
        return self.builder.inttoptr(base, kind.as_pointer())

    def load(self, base: Any, *steps: tuple[Any, Any]) -> Any:
        """Read a vector."""
        return self.builder.load(self.at(VECTOR, base, *steps), align=4)

    def load_bfloat16(self, base: Any, *steps: tuple[Any, Any]) -> Any:
        """Read a vector of bfloat16, which are the upper halves of floats."""
        b = self.builder
        for stride, index in steps:
            base = b.add(base, b.mul(b.mul(stride, index), INT64(2)))
        halves = b.load(b.inttoptr(base, SHORTS.as_pointer()), align=2)
        return b.bitcast(b.shl(b.zext(halves, INTS), INTS([16] * LANES)), VECTOR)

    def store(self, x: Any, base: Any, *steps: tuple[Any, Any]) -> None:
        """Write a vector."""
        self.builder.store(x, self.at(VECTOR, base, *steps), align=4)

    def variable(self, x: float) -> Any:
        """A vector variable, filled with x."""
        variable = cgutils.alloca_once(self.builder, VECTOR)
        self.builder.store(constant(x), variable)
        return variable

    def broadcast(self, x: Any) -> Any:
        """A vector filled with x."""
        kind = ir.VectorType(x.type, LANES)
        first = self.builder.insert_element(kind(ir.Undefined), x, INT32(0))
        return self.builder.shuffle_vector(first, kind(ir.Undefined), INTS([0] * LANES))

    def add(self, x: Any, y: Any) -> Any:
        """x + y."""
        return self.builder.fadd(x, y, flags=FAST)

    def mul(self, x: Any, y: Any) -> Any:
        """x · y."""
        return self.builder.fmul(x, y, flags=FAST)

    def maximum(self, x: Any, y: Any) -> Any:
        """The larger of x and y; y where x is NaN."""
        return self.builder.select(self.builder.fcmp_ordered(">", x, y), x, y)

    def reduce_max(self, x: Any) -> Any:
        """The largest element, in every lane."""
        half = LANES // 2
        while half:
            rotated = INTS([(lane + half) % LANES for lane in range(LANES)])
            x, half = self.maximum(x, self.builder.shuffle_vector(x, x, rotated)), half // 2
        return x

    def first(self, x: Any) -> Any:
        """Lane 0 as a scalar."""
        return self.builder.extract_element(x, INT32(0))

    def reduce_sum(self, x: Any) -> Any:
        """The sum of all lanes, as a scalar."""
        return self.first(self.reduce_sums([x]))

    def reduce_sums(self, vectors: list[Any]) -> Any:
        """The sums of 2ⁿ vectors, in order, in lanes 0, LANES / 2ⁿ … of one vector.

        Two vectors are joined half by half and added, which halves the number of summands of each; log₂ LANES times.
        """
        width, b = LANES, self.builder
        while width > 1:
            half = width // 2
            low = [lane for first in range(0, LANES, width) for lane in range(first, first + half)]
            if len(vectors) > 1:
                both = low + [lane + LANES for lane in low]
                pairs = list(zip(vectors[::2], vectors[1::2]))
            else:
                both = [lane // width * width + lane % half for lane in range(LANES)]
                pairs = [(vectors[0], vectors[0])]
            high = [lane + half for lane in both]
            vectors = [
                self.add(b.shuffle_vector(one, other, INTS(both)), b.shuffle_vector(one, other, INTS(high)))
                for one, other in pairs
            ]
            width = half
        return vectors[0]

    def exp2(self, x: Any) -> Any:
        """2ˣ for x ≤ 0: with x = k + r, |r| ≤ ½, 2ᵏ is made of its bits and 2ʳ by its series.

        Results below the smallest normal float are 0; NaN stays NaN.
        """
        b, lowest = self.builder, constant(-126.0)
        below = b.fcmp_ordered("<", x, lowest)
        z = b.select(below, lowest, x)
        k = b.fptosi(self.add(z, constant(-0.5)), INTS)
        r = self.mul(b.fsub(z, b.sitofp(k, VECTOR)), constant(math.log(2)))
        bits = b.shl(b.add(k, INTS([127] * LANES)), INTS([23] * LANES))
        power = b.bitcast(b.select(below, INTS([0] * LANES), bits), VECTOR)
        value = constant(SERIES[0])
        for coefficient in SERIES[1:]:
            value = self.add(self.mul(value, r), constant(coefficient))
        return self.mul(value, power)

    def sigmoid(self, x: Any) -> tuple[Any, Any]:
        """s = 1 / (1 + e⁻ˣ) and 1 − s; both from e to the power −|x|, which never overflows."""
        b = self.builder
        above = b.fcmp_ordered(">", x, constant(0.0))
        power = self.exp2(self.mul(b.select(above, b.fneg(x), x), constant(1 / math.log(2))))
        larger = b.fdiv(constant(1.0), self.add(power, constant(1.0)))
        smaller = self.mul(power, larger)
        return b.select(above, larger, smaller), b.select(above, smaller, larger)


def constant(x: float) -> Any:
    """A vector filled with a constant."""
    return VECTOR([float(np.float32(x))] * LANES)
