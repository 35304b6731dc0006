"""How time and memory grow with length, vocabulary, corpus and state, beside the order that the theory gives.

    python -m benchmarks.quality.growth [length] [vocabulary] [corpus] [state] [draw]

Without words it does all of them. Every point is measured in a process of its own, on one thread (two wait for each
other where others use the machine). Time is that of the fastest of some steps; memory is the peak of the process beyond
what it held before the model was built or the text was read. The exponent is the slope of the last four points on
double logarithmic scales. ``draw`` makes benchmarks/results/growth.svg of the newest results.
"""

from __future__ import annotations

import json
import math
import multiprocessing
import re
import statistics
import sys
import sysconfig
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

from benchmarks.record import RESULTS, record

SLACK = 0.15
"""So far an exponent may lie from what the theory gives."""
LAST = 4
"""The exponent is that of so many last points."""
WIDTH, ROWS = 128, 4
LENGTHS = (64, 128, 256, 512, 1024, 2048, 4096)
VOCABULARIES = (1000, 2000, 4000, 8000, 16_000, 32_000, 64_000)
MEGABYTES = (1, 2, 4, 8, 16, 30)
STATES = (64, 128, 256, 512, 1024, 2048, 4096, 8192)
VOCABULARY, LENGTH = 1000, 64


@dataclass(frozen=True)
class Point:
    """What was measured at one size."""

    seconds: float
    megabytes: float


@dataclass(frozen=True)
class Curve:
    """One thing that grows, and how it should."""

    who: str
    what: str
    """What is timed."""
    against: str
    sizes: tuple[int, ...]
    measure: Callable[[int], Point]
    time: tuple[float, float, str]
    """The least and the largest exponent that the theory gives for the time, and the order in words."""
    memory: tuple[float, float, str]
    """The same for the memory."""


def resident(peak: bool = False) -> float:
    """Bytes that this process holds, or has held at most since it was last forgotten."""
    name = "VmHWM" if peak else "VmRSS"
    found = re.search(rf"{name}:\s+(\d+)", Path("/proc/self/status").read_text(encoding="ascii"))
    assert found is not None
    return int(found[1]) * 1024


def forget_peak() -> float:
    """Begin a new peak of memory at what is held now, which is answered."""
    Path("/proc/self/clear_refs").write_text("5", encoding="ascii")
    return resident()


def timed(work: Callable[[], object], least: int = 5, seconds: float = 0.6) -> float:
    """The time of the fastest of some calls, after one that warms up: others who use the machine only slow it down."""
    work()
    found: list[float] = []
    while len(found) < least or sum(found) < seconds:
        begun = time.perf_counter()
        work()
        found.append(time.perf_counter() - begun)
    return min(found)


def model_of(system: str, vocabulary: int, context: int) -> Any:
    from ensue.models.table import SYSTEMS

    size = {"layers": 2, "heads": 4, "context": context} if system == "gpt" else {"layers": 1}
    cls = SYSTEMS.load(system)
    return cls(cls.Config(vocabulary=vocabulary, hidden=WIDTH, **size))


def training(system: str, length: int, vocabulary: int) -> Point:
    """A training step of a small model: forward, loss, backward, clipping, AdamW."""
    import torch

    from ensue.core.memory import keep_freed_memory

    keep_freed_memory()  # as ``ensue fit`` does
    torch.set_num_threads(1)
    torch.manual_seed(0)
    stepping(system, 2, 10)()  # what is imported and started at the first step is no part of it
    before = forget_peak()
    seconds = timed(stepping(system, length, vocabulary))
    return Point(seconds, (resident(peak=True) - before) / 1e6)


def stepping(system: str, length: int, vocabulary: int) -> Callable[[], None]:
    """What does one step of a new model, always on the same rows."""
    import torch

    from ensue.data.batches import Batch
    from ensue.train.objectives import next_token_loss
    from ensue.train.optimisers import clipped_step, gradient_norm, gradients_of

    model = model_of(system, vocabulary, length)
    optimiser = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
    text = torch.randint(vocabulary, (ROWS, length + 1))
    batch = Batch(text[:, :-1], text[:, 1:], reset_state=True)

    def step() -> None:
        optimiser.zero_grad(set_to_none=True)
        next_token_loss(model, batch, None)[0].backward()
        gradients = gradients_of(model)
        clipped_step(optimiser, gradients, gradient_norm(gradients), 1.0)

    return step


def against_length(system: str, length: int) -> Point:
    return training(system, length, VOCABULARY)


def against_vocabulary(system: str, vocabulary: int) -> Point:
    return training(system, LENGTH, vocabulary)


def decoding(system: str, length: int) -> Point:
    """One more token after ``length`` of them; memory is that of the state alone."""
    import torch
    from torch.utils._pytree import tree_leaves

    torch.set_num_threads(1)
    torch.manual_seed(0)
    model = model_of(system, VOCABULARY, 2 * max(STATES)).eval()
    token = torch.zeros(1, 1, dtype=torch.long)
    with torch.inference_mode():
        output = model(torch.randint(VOCABULARY, (1, length)), model.start(1))
        used = {}
        for leaf in tree_leaves(output.state):
            if isinstance(leaf, torch.Tensor):
                used[leaf.data_ptr()] = leaf.numel() * leaf.element_size()
        size, state = sum(used.values()), output.state

        def step() -> None:
            nonlocal state
            state = model(token, state).state

        return Point(timed(step, least=60, seconds=0.0), size / 1e6)


def warmed_counter() -> None:
    """Let numba compile what counts, which is no part of counting."""
    import numpy as np

    counting(np.zeros(1000, np.int32), 10)


def counting(stream: Any, vocabulary: int) -> None:
    import numba

    from ensue.models.ngram import NGram, NGramConfig
    from ensue.train.counting import count

    numba.set_num_threads(1)
    counter = NGram(NGramConfig(vocabulary=vocabulary, order=3, end=0)).counter()
    count(counter, stream)
    counter.finish()


def counted(stream: Any, vocabulary: int) -> Point:
    warmed_counter()
    before = forget_peak()
    seconds = timed(lambda: counting(stream, vocabulary), least=8, seconds=1.0)
    return Point(seconds, (resident(peak=True) - before) / 1e6)


def counting_against_vocabulary(vocabulary: int) -> Point:
    """A million tokens of Zipf's distribution."""
    import numpy as np

    chance = np.random.default_rng(0)
    weights = 1 / np.arange(1, vocabulary + 1)
    stream = chance.choice(vocabulary, 1_000_000, p=weights / weights.sum()).astype(np.int32)
    return counted(stream, vocabulary)


def library(size: int) -> str:
    """The first bytes of the source of Python's standard library, which repeats itself as real texts do."""
    root, found = Path(sysconfig.get_paths()["stdlib"]), []
    left = size
    for path in sorted(root.rglob("*.py"), key=lambda path: (len(path.name) * 7919 % 1009, str(path))):
        if "site-packages" not in path.parts and left > 0:
            found.append(path.read_text(encoding="utf-8", errors="replace").replace("\0", " ")[:left])
            left -= len(found[-1])
    return "".join(found)


def counting_against_corpus(megabytes: int) -> Point:
    import numpy as np

    words = library(megabytes * 1_000_000).replace("\n", " </s> ").split()
    numbers = {word: number for number, word in enumerate(dict.fromkeys(["</s>", *words]))}
    return counted(np.fromiter(map(numbers.__getitem__, words), np.int32, len(words)), len(numbers))


def tokenising(megabytes: int) -> Point:
    """With a BPE of 2,048 tokens into a file, by one process."""
    from ensue.data.tokenizers.registry import fit_tokenizer_to_parts, restore_tokenizer
    from ensue.data.tokens import tokenize

    tokenizer = fit_tokenizer_to_parts("bpe", [(library(1_000_000), True, True)], vocabulary=2048)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "text.txt")
        path.write_text(library(megabytes * 1_000_000), encoding="utf-8")
        tokenize(["hello"], tokenizer, cache=Path(folder, "small"))
        before = forget_peak()
        seconds = math.inf
        for turn in ("one", "two"):
            fresh = restore_tokenizer(tokenizer.state())  # one that remembers no words
            begun = time.perf_counter()
            tokenize([path], fresh, cache=Path(folder, turn), workers=1)
            seconds = min(seconds, time.perf_counter() - begun)
        return Point(seconds, max(resident(peak=True) - before, 1e5) / 1e6)


STEP, MORE = "a training step", "one more token"
LINEAR, AT_MOST_LINEAR = (1.0, 1.0), (0.0, 1.0)
PARTS: dict[str, list[Curve]] = {
    "length": [
        Curve("gpt", STEP, "tokens in a row", LENGTHS, partial(against_length, "gpt"),
              (1.0, 2.0, "T D² + T² D: between 1 and 2"), (0.0, 1.0, "T: no table of T × T is kept")),
        Curve("lstm", STEP, "tokens in a row", LENGTHS, partial(against_length, "lstm"),
              (*LINEAR, "T"), (*AT_MOST_LINEAR, "T, beside the weights")),
    ],
    "vocabulary": [
        Curve("gpt", STEP, "vocabulary", VOCABULARIES, partial(against_vocabulary, "gpt"),
              (*AT_MOST_LINEAR, "V, beside the layers"), (*AT_MOST_LINEAR, "V, beside the layers")),
        Curve("lstm", STEP, "vocabulary", VOCABULARIES, partial(against_vocabulary, "lstm"),
              (*AT_MOST_LINEAR, "V, beside the layers"), (*AT_MOST_LINEAR, "V, beside the layers")),
        Curve("n-gram", "counting a million tokens", "vocabulary", VOCABULARIES, counting_against_vocabulary,
              (-0.3, 0.3, "1: no table of V is touched"), (0.0, 0.5, "n-grams that differ, at most the tokens")),
    ],
    "corpus": [
        Curve("n-gram", "counting", "MB of text", MEGABYTES, counting_against_corpus,
              (*LINEAR, "N log N"), (0.5, 1.0, "n-grams that differ: at most N")),
        Curve("tokenising", "tokenising", "MB of text", MEGABYTES, tokenising,
              (*LINEAR, "N"), (0.0, 0.5, "words that differ (√N), at most 262,144")),
    ],
    "state": [
        Curve("gpt", MORE, "tokens before", STATES, partial(decoding, "gpt"),
              (*AT_MOST_LINEAR, "T, beside the layers"), (*LINEAR, "T: keys and values")),
        Curve("lstm", MORE, "tokens before", STATES, partial(decoding, "lstm"),
              (0.0, 0.0, "1"), (0.0, 0.0, "1: h and c")),
    ],
}  # fmt: skip


def exponent(sizes: tuple[int, ...], values: list[float]) -> float:
    """The slope of the last points on double logarithmic scales.

    >>> round(exponent((1, 2, 4, 8, 16), [5.0, 2.0, 8.0, 32.0, 128.0]), 6)
    2.0
    """
    x = [math.log(size) for size in sizes[-LAST:]]
    y = [math.log(value) for value in values[-LAST:]]
    return statistics.linear_regression(x, y).slope


def measured(curve: Curve) -> dict[str, Any]:
    points = []
    for size in curve.sizes:
        context = multiprocessing.get_context("spawn")
        with ProcessPoolExecutor(1, mp_context=context) as alone:
            points.append(alone.submit(curve.measure, size).result())
        print(f"{curve.who}, {size:,} {curve.against}: {points[-1]}", file=sys.stderr)
    figures: dict[str, Any] = {"who": curve.who, "what": curve.what, "against": curve.against, "sizes": curve.sizes}
    for name, values, (least, most, order) in (
        ("seconds", [point.seconds for point in points], curve.time),
        ("megabytes", [point.megabytes for point in points], curve.memory),
    ):
        slope = exponent(curve.sizes, values)
        held = least - SLACK <= slope <= most + SLACK
        figures[name] = [float(f"{value:.4g}") for value in values]
        figures[f"{name}_exponent"] = round(slope, 2)
        figures[f"{name}_theory"] = {"order": order, "least": least, "most": most, "holds": held}
    return figures


def newest() -> dict[str, list[dict[str, Any]]]:
    """The last result of every curve, by part."""
    found: dict[tuple[str, str], dict[str, Any]] = {}
    for text in (RESULTS / "growth.jsonl").read_text(encoding="utf-8").splitlines():
        line = json.loads(text)
        found[line["part"], line["who"]] = line
    return {part: [found[part, curve.who] for curve in curves] for part, curves in PARTS.items()}


def spread_labels(ends: list[dict[str, Any]], values: list[float]) -> None:
    """Move numbers at the ends of lines apart, where they would lie on each other."""
    decades = math.ceil(math.log10(max(values))) - math.floor(math.log10(min(values)))
    apart = 10 ** (decades * 0.075)  # a line of text, in a chart of this height
    ends.sort(key=lambda end: end["y"])
    for lower, upper in pairwise(ends):
        upper["y"] = max(upper["y"], lower["y"] * apart)


def draw() -> None:
    """Time above, memory below; a column for what grows."""
    import altair as alt

    from ensue.look.chart_parts import COLOURS, heading, plain
    from ensue.look.saving import save_chart

    results = newest()
    names = list(dict.fromkeys(line["who"] for lines in results.values() for line in lines))
    colour = alt.Color(
        "who:N",
        title="what grows",
        sort=names,
        scale=alt.Scale(domain=names, range=COLOURS[: len(names)]),
        legend=alt.Legend(symbolType="stroke", symbolStrokeWidth=3),
    )
    columns = {
        "length": ("a training step", "tokens in a row"),
        "vocabulary": ("a step; counting 1 M tokens", "vocabulary"),
        "corpus": ("counting; tokenising", "MB of text"),
        "state": ("one more token", "tokens before it"),
    }
    grid, said = [], []
    for name, scale, unit in (("seconds", 1000, "milliseconds"), ("megabytes", 1, "MB")):
        row = []
        for part, lines in results.items():
            rows, ends = [], []
            for line in lines:
                sizes, values = line["sizes"], [value * scale for value in line[name]]
                rows += [{"who": line["who"], "x": x, "y": y} for x, y in zip(sizes, values, strict=True)]
                slope, theory = line[f"{name}_exponent"], line[f"{name}_theory"]
                ends.append({"who": line["who"], "x": sizes[-1], "y": values[-1], "slope": f"{slope:+.2f}"})
                said.append(f"{line['who']}, {unit} against {line['against']}: exponent {slope}, {theory['order']}")
            spread_labels(ends, [point["y"] for point in rows])
            what, axis = columns[part]
            x = alt.X("x:Q", title=axis, scale=alt.Scale(type="log"), axis=alt.Axis(format="~s", tickCount=4))
            y = alt.Y("y:Q", title=unit, scale=alt.Scale(type="log"), axis=alt.Axis(format="~g", tickCount=5))
            lines_ = (
                alt.Chart(alt.Data(values=rows))
                .mark_line(point=alt.OverlayMarkDef(size=28))
                .encode(x=x, y=y, color=colour, shape=alt.Shape("who:N", legend=None), tooltip=["who:N", "x:Q", "y:Q"])
            )
            texts = (
                alt.Chart(alt.Data(values=ends))
                .mark_text(align="left", dx=6, fontSize=11)
                .encode(x=x, y=y, text="slope:N", color=colour)
            )
            title = f"{'Time' if unit != 'MB' else 'Memory'}: {what}"
            row.append((lines_ + texts).properties(width=210, height=170, title=alt.TitleParams(title, fontSize=12)))
        grid.append(alt.hconcat(*row, spacing=28))
    caption = (
        "Double logarithmic: a straight line is a power, and the number at its end the exponent of its last four "
        "points. gpt and lstm: width 128, 4 rows; memory is the peak beyond what the process held before, in the last "
        "column that of the state alone."
    )
    chart = (
        alt.vconcat(*grid, spacing=20)
        .resolve_scale(color="shared")
        .properties(title=heading("How time and memory grow", caption, width=150), description=plain("; ".join(said)))
    )
    save_chart(chart, RESULTS / "growth.svg")


def main() -> None:
    asked = sys.argv[1:] or [*PARTS, "draw"]
    for part in asked:
        if part == "draw":
            draw()
            continue
        for curve in PARTS[part]:
            record("growth", {"part": part, **measured(curve)})


if __name__ == "__main__":
    main()
