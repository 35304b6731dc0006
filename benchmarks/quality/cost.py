"""Whether what `ensue cost` counts is what happens: FLOPs, memory and time of real training steps of small models.

    FLOPs    against torch's own counter, which watches a real step by plain operations     within 5 %
    memory   against the peak of what torch's allocator was asked for, as its profiler saw  within 10 %
    time     against the fastest of real steps, as the machine's speeds are its fastest     within 30 %

How much the process grew is written down too (``resident``), with a C library that gives back what is freed: else it is
up to a third more, which the library keeps in reserve. Each is measured in a process of its own.

python -m benchmarks.quality.cost [system …]
"""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
import time
from typing import Any

import torch
from torch.utils.flop_counter import FlopCounterMode

from benchmarks.record import record
from ensue.measure.cost import reference_kernels, training
from ensue.measure.hardware import measured
from ensue.models.table import SYSTEMS
from ensue.nn.feed_forward import FeedForward
from ensue.tasks.table import task_spec
from ensue.train.optimisers import build_optimiser, clipped_step, gradient_norm, gradients_of
from ensue.train.settings import TrainSettings

PAIR = {"vocabulary": 8000, "source_vocabulary": 8000}
CASES: dict[str, tuple[dict[str, Any], int, int]] = {
    "gpt": ({"vocabulary": 8000, "layers": 6, "heads": 6, "hidden": 384, "context": 256}, 8, 256),
    "lstm": ({"vocabulary": 8000, "layers": 2, "hidden": 512}, 32, 64),
    "transformer": ({**PAIR, "layers": 3, "heads": 4, "hidden": 256}, 64, 32),
    "bert": ({"vocabulary": 8000, "layers": 4, "heads": 4, "hidden": 256, "context": 128}, 16, 128),
}
"""Settings, rows and tokens of a row."""
ASKED = {"flops": 0.05, "memory": 0.10, "time": 0.30}
STEPS = 8


def build(system: str) -> Any:
    """A real model, by its equations' usual kernels."""
    torch.manual_seed(0)
    cls = SYSTEMS.load(system)
    return cls(cls.Config(**CASES[system][0])).train()


def example_loss(model: Any, rows: int, length: int, settings: TrainSettings | None = None) -> Any:
    """The loss of a batch of full rows, by the model's task."""
    return task_spec(model.task).example_loss(model, rows, length, settings)


def step(model: Any, optimiser: Any, rows: int, length: int, settings: TrainSettings) -> None:
    """One update, as the training loop does it."""
    optimiser.zero_grad(set_to_none=True)
    example_loss(model, rows, length, settings).backward()
    gradients = gradients_of(model)
    clipped_step(optimiser, gradients, gradient_norm(gradients), settings.clip)


def counted_by_torch(system: str) -> dict[str, float]:
    """FLOPs of a real step by plain operations; a matrix that is made twice counts twice, so none is."""
    _, rows, length = CASES[system]
    model = build(system)
    for part in model.modules():
        if isinstance(part, FeedForward):
            part.kernel = "reference"
    from torch.nn.attention import SDPBackend, sdpa_kernel

    plain = sdpa_kernel(SDPBackend.MATH), torch.autocast("cpu", torch.bfloat16)  # none of our loops
    with reference_kernels(model), plain[0], plain[1], FlopCounterMode(display=False) as counter:
        example_loss(model, rows, length).backward()
    return {"flops": counter.get_total_flops()}


def updates(system: str, times: int) -> None:
    """Build a model and update it so many times."""
    _, rows, length = CASES[system]
    settings = TrainSettings()
    model = build(system)
    optimiser = build_optimiser(model, settings)
    for _ in range(times):
        step(model, optimiser, rows, length, settings)


def warm(system: str) -> None:
    """Have libraries and their buffers there."""
    settings, small = TrainSettings(), build_small(system)
    step(small, build_optimiser(small, settings), 8, 16, settings)


def memory(system: str) -> dict[str, float]:
    """The most bytes that torch's allocator had given away at once, from before there was a model."""
    from torch.profiler import ProfilerActivity, profile

    warm(system)
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as seen:
        updates(system, 2)
    assert seen.profiler is not None and seen.profiler.kineto_results is not None
    changes = [one for one in seen.profiler.kineto_results.events() if one.name() == "[memory]"]
    held = top = 0
    for one in sorted(changes, key=lambda one: one.start_ns()):
        held += one.nbytes()
        top = max(top, held)
    return {"memory": top}


def resident(system: str) -> dict[str, float]:
    """How much higher the peak of this process is after a few updates than before there was a model."""
    warm(system)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    updates(system, 3)
    return {"resident": 1024 * (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)}


def build_small(system: str) -> Any:
    """A model of the same kind that takes no room to speak of."""
    cls, own = SYSTEMS.load(system), CASES[system][0]
    few = {name: 50 for name in own if "vocabulary" in name} | ({"heads": 2} if "heads" in own else {})
    return cls(cls.Config(**{**own, **few, "layers": 1, "hidden": 32})).train()


def timed(system: str) -> dict[str, Any]:
    """Seconds of an update, predicted and measured in turns, in one process."""
    from ensue.core.memory import keep_freed_memory

    keep_freed_memory()
    _, rows, length = CASES[system]
    settings = TrainSettings()
    counted = training(lambda: build(system), example_loss, rows, length, settings)
    assert counted is not None
    model = build(system)
    optimiser = build_optimiser(model, settings)
    for _ in range(3):
        step(model, optimiser, rows, length, settings)
    predicted, real = [], []
    for _ in range(3):
        measured.cache_clear()
        predicted.append(measured().seconds(counted.operations))
        for _ in range(STEPS):
            begun = time.perf_counter()
            step(model, optimiser, rows, length, settings)
            real.append(time.perf_counter() - begun)
    machine = measured()
    return {
        "time": min(real),
        "time_spread": [min(real), max(real)],
        "predicted": min(predicted),
        "gflops": machine.hardware.flops["float32"] / 1e9,
    }


def alone(what: str, system: str) -> dict[str, Any]:
    """A measurement in a process of its own."""
    command = [sys.executable, "-m", "benchmarks.quality.cost", "--one", what, system]
    given = {**os.environ, "MALLOC_MMAP_THRESHOLD_": str(1 << 16)} if what == "resident" else None
    answer = subprocess.run(command, capture_output=True, text=True, check=True, env=given)
    found: dict[str, Any] = json.loads(answer.stdout.strip().splitlines()[-1])
    return found


def main(systems: list[str]) -> None:
    """Predict, measure, compare, write down."""
    for system in systems:
        values, rows, length = CASES[system]
        counted = training(lambda system=system: build(system), example_loss, rows, length, TrainSettings())
        assert counted is not None
        found = {what: alone(what, system) for what in ("counted_by_torch", "memory", "resident", "timed")}
        real = {
            "flops": found["counted_by_torch"]["flops"],
            "memory": found["memory"]["memory"],
            "time": found["timed"]["time"],
        }
        ours = {"flops": counted.flops, "memory": counted.peak, "time": found["timed"]["predicted"]}
        ratio = {name: round(ours[name] / real[name], 3) for name in ASKED}
        figures = {
            "system": system,
            "settings": values,
            "batch": [rows, length],
            "counted": ours,
            "measured": real,
            "ratio": ratio,
            "within": {name: abs(ratio[name] - 1) <= most for name, most in ASKED.items()},
            "asked": ASKED,
            "resident": found["resident"]["resident"],
            "ratio_resident": round(counted.peak / found["resident"]["resident"], 3),
            "time_spread": found["timed"]["time_spread"],
            "gflops_at_most": round(found["timed"]["gflops"], 1),
        }
        record("cost", figures)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--one"]:
        print(json.dumps(globals()[sys.argv[2]](sys.argv[3])))
    else:
        main(sys.argv[1:] or list(CASES))
