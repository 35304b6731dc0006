"""kill -9 while runs are written: a run folder is complete, or unfinished and resumable, or absent."""

from __future__ import annotations

import random
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import ensue
from benchmarks.reliability.row import Row
from benchmarks.reliability.small_runs import sentences

NEW_RUNS = """
import ensue
for number in range(100_000):
    ensue.fit("ngram", "text.txt", out=f"run-{number:05d}", order=2)
    print(number, flush=True)
"""
"""Writes one run after the other."""
SAME_RUN = """
import ensue
from ensue.runs.save_weights import write_weights
run = ensue.fit("ngram", "text.txt", out="run", order=2, force=True)
other = ensue.fit("ngram", "text.txt", out="other", order=3, force=True)
models = [(other.model, other.config), (run.model, run.config)]
print(0, flush=True)
while True:
    for model, config in models:  # as a resumed run that writes its files again
        write_weights(model, run.folder)
        facts = {name: config[name] for name in ("task", "data", "figures", "direction")}
        run.folder.write_config("ngram", model.config, ensue.__version__, **facts)
"""
"""Writes two models in turns to the same folder."""


def kill_while_saving(folder: Path, kills: int) -> list[Row]:
    """Kill processes that write runs, and look at what they leave."""
    chance = random.Random(0)
    endings: dict[str, Counter[str]] = {"new": Counter(), "same": Counter()}
    for kind, script in (("new", NEW_RUNS), ("same", SAME_RUN)):
        for number in range(kills):
            place = folder / f"{kind}-{number}"
            place.mkdir(parents=True)
            (place / "text.txt").write_text("\n".join(sentences(60)), encoding="utf-8")
            _kill(script, place, chance.uniform(0.0, 0.06))
            endings[kind].update(_ending(run) for run in sorted(place.glob("run*")))
    good = {"complete", "resumed"}
    new, same = endings["new"], endings["same"]
    wrong = sum(count for ending, count in new.items() if ending not in good)
    what = f"kill -9 in {kills} processes that write new runs: each folder is complete or can be resumed"
    rows = [Row(what, "0 others", _in_words(new), wrong == 0)]
    wrong = sum(count for ending, count in same.items() if ending not in {*good, "refused, then resumed"})
    what = f"kill -9 in {kills} processes that write a run again: it is complete, or refused and can be resumed"
    return [*rows, Row(what, "0 others", _in_words(same), wrong == 0)]


def _in_words(endings: Counter[str]) -> str:
    return ", ".join(f"{count} {ending}" for ending, count in endings.most_common())


def _kill(script: str, place: Path, seconds: float) -> None:
    """Start a script in a folder, and kill it some time after its first line."""
    process = subprocess.Popen([sys.executable, "-c", script], cwd=place, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    process.stdout.readline()
    time.sleep(seconds)
    assert process.poll() is None, "the script ended by itself"
    process.kill()
    process.wait()


def _ending(run: Path) -> str:
    """What is left of a run: complete; resumed, if it was unfinished; refused, then resumed; or an error."""
    try:
        ensue.load(run).score(text="the books")
        return "complete"
    except ensue.InputError as error:
        unfinished = "not a finished run" in str(error)
    try:
        if not (run / "run.toml").exists():  # killed before it began
            ensue.fit("ngram", run.parent / "text.txt", out=run, order=2)
        else:
            ensue.fit("", out=run, resume=True)
        ensue.load(run).score(text="the books")
    except ensue.InputError as error:
        return f"lost ({error})"
    return "resumed" if unfinished else "refused, then resumed"
