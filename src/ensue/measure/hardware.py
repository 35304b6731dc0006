"""Peak speeds of known devices, and measured speeds of this machine.

    known device  time of a step = FLOPs / (peak FLOP/s × utilisation)
    this machine  time of a step = Σ over operations of max(FLOPs / FLOP/s at that size, bytes / bandwidth) + overhead

Well-optimised training of large Transformers reaches a utilisation of 0.3 to 0.55; Narayanan et al. (2021) report 0.44
to 0.52 for GPT-3. On this machine no utilisation is assumed: matrix multiplications and element-wise passes of several
sizes are timed, because small ones are slower.
"""

from __future__ import annotations

import math
import timeit
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cache

import numpy as np
import torch

from ensue.core.errors import unknown_name
from ensue.core.memory import available_memory
from ensue.measure.op_counter import Operation

UTILISATION = 0.45
"""The assumed share of peak FLOP/s."""
TRIES = 5


@dataclass(frozen=True, slots=True)
class Hardware:
    """One device."""

    name: str
    flops: dict[str, float]
    """Peak FLOP/s of dense matrix multiplications, by precision."""
    memory: float
    """Bytes."""
    bandwidth: float
    """Bytes per second."""
    source: str
    """Where the figures come from."""

    def precision(self) -> str:
        """The precision that ensue uses on it: bf16 if it has it."""
        return "bf16" if "bf16" in self.flops else "float32"


HARDWARE = {
    one.name: one
    for one in (
        Hardware("a100", {"bf16": 312e12, "float32": 19.5e12}, 80e9, 2.039e12, "NVIDIA A100 data sheet, 80GB SXM"),
        Hardware("a100-40gb", {"bf16": 312e12, "float32": 19.5e12}, 40e9, 1.555e12, "NVIDIA A100 data sheet, 40GB"),
        Hardware("h100", {"bf16": 989e12, "float32": 67e12}, 80e9, 3.35e12, "NVIDIA H100 data sheet, SXM"),
        Hardware("l4", {"bf16": 121e12, "float32": 30.3e12}, 24e9, 0.3e12, "NVIDIA L4 data sheet"),
        Hardware("mi300x", {"bf16": 1307e12, "float32": 163.4e12}, 192e9, 5.3e12, "AMD Instinct MI300X data sheet"),
        Hardware("p100", {"float32": 10.6e12}, 16e9, 0.732e12, "NVIDIA Tesla P100 data sheet, NVLink"),
        Hardware("t4", {"float32": 8.1e12}, 16e9, 0.32e12, "NVIDIA T4 data sheet"),
        Hardware("tpu-v3", {"bf16": 123e12}, 32 * 2**30, 0.9e12, "Google Cloud TPU v3, system architecture, a chip"),
        Hardware("v100", {"float32": 15.7e12}, 32e9, 0.9e12, "NVIDIA V100 data sheet, 32GB NVLink"),
    )
}
"""Devices by name. fp16 is left out: ensue does not train in it."""
HERE = "here"


def find_hardware(name: str) -> Hardware:
    """A device by name; ``here`` is this machine, measured."""
    if name == HERE:
        return measured().hardware
    if name not in HARDWARE:
        raise unknown_name("hardware", name, [*HARDWARE, HERE])
    return HARDWARE[name]


@dataclass(frozen=True, slots=True)
class Curve:
    """Speeds by size, interpolated on logarithmic scales and constant beyond the ends."""

    sizes: tuple[float, ...]
    speeds: tuple[float, ...]

    def at(self, size: float) -> float:
        """The speed for a size.

        >>> Curve((1.0, 100.0), (10.0, 1000.0)).at(10.0)
        100.0
        """
        log_speed = np.interp(math.log(max(size, self.sizes[0])), np.log(self.sizes), np.log(self.speeds))
        return round(math.exp(log_speed), 6)


@dataclass(frozen=True, slots=True)
class Machine:
    """Measured speeds of this machine."""

    matmuls: Curve
    """FLOP/s of a matrix multiplication, by its FLOPs."""
    passes: Curve
    """Bytes per second of an element-wise pass, by its bytes."""
    call: float
    """Overhead of an operation in seconds."""
    memory: float

    @property
    def hardware(self) -> Hardware:
        """This machine as a device."""
        threads = torch.get_num_threads()
        source = f"measured, {threads} thread{'s' if threads > 1 else ''}"
        return Hardware(HERE, {"float32": max(self.matmuls.speeds)}, self.memory, self.passes.speeds[-1], source)

    def seconds(self, operations: Iterable[Operation]) -> float:
        """How long operations take, one after the other."""
        total = 0.0
        for flops, moved, steps in operations:
            compute = flops / self.matmuls.at(flops / steps) if flops else 0.0
            total += self.call + max(compute, moved / self.passes.at(moved))
        return total


@cache
def measured() -> Machine:
    """Measure this machine; takes about two seconds."""
    matmuls = [_matmul(rows, width) for rows, width in ((8, 64), (64, 128), (256, 256), (512, 512), (2048, 1024))]
    passes = [_pass(1 << power) for power in (12, 16, 20, 24)]
    small = torch.zeros(8)
    call = _least(lambda: small.add_(1), 200)
    return Machine(Curve(*zip(*matmuls)), Curve(*zip(*passes)), call, float(available_memory()))


def _matmul(rows: int, width: int) -> tuple[float, float]:
    """FLOPs of a matrix multiplication (rows × width)(width × 4 width), and FLOP/s."""
    a, b, c = torch.randn(rows, width), torch.randn(width, 4 * width), torch.empty(rows, 4 * width)
    flops = 2 * rows * width * 4 * width
    return float(flops), flops / _least(lambda: torch.mm(a, b, out=c), max(1, int(2e7 / flops)))


def _pass(numbers: int) -> tuple[float, float]:
    """Bytes of adding two arrays into a third, and bytes per second."""
    a, b, c = torch.randn(numbers), torch.randn(numbers), torch.empty(numbers)
    return 12.0 * numbers, 12.0 * numbers / _least(lambda: torch.add(a, b, out=c), max(1, (1 << 20) // numbers))


def _least(work: Callable[[], object], times: int) -> float:
    """The minimum seconds per call over a few trials."""
    return min(timeit.repeat(work, number=times, repeat=TRIES)) / times
