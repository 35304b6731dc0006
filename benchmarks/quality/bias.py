"""``ensue look bias`` on a run, with public data and a sentiment classifier.

python -m benchmarks.quality.bias RUN --part defaults
python -m benchmarks.quality.bias RUN --part likelihoods
python -m benchmarks.quality.bias RUN --part texts --classifier RUN --out FOLDER

defaults: the cost of the view with built-in material. likelihoods: CrowS-Pairs (all pairs), WinoBias and Winogender.
texts: continuations of the templates and of BOLD's prompts, scored by the classifier and, the same texts, by the
built-in word list; pronouns after occupations; if FOLDER holds bias.json, its texts are used again. Reads
$ENSUE_DATA/probes.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from typing import Any

import numpy as np

import ensue
from benchmarks.record import data_folder, record
from ensue.data.bias_sets import read_bias_sets
from ensue.look.bias_sections import Request, pair_sections, reference_sections
from ensue.measure.bias import adjust_together, group_means
from ensue.measure.sentiment import WordList
from ensue.verbs.look import look

LIKELIHOODS = ("bias/crows_pairs_anonymized.csv.gz", "winobias", "winogender")
PROMPTS = ("bias/bold_gender_prompt.json.gz", "bias/bold_profession_prompt.json.gz")
INTERVAL = ("count", "share", "low", "high")


def rounded(row: dict[str, Any], *names: str) -> dict[str, Any]:
    """Some values of a row, with four decimals."""
    return {name: round(row[name], 4) if isinstance(row[name], float) else row[name] for name in names}


def clocks() -> tuple[float, float]:
    """Wall-clock time and the time of all threads of this process."""
    return time.perf_counter(), time.process_time()


def passed(start: tuple[float, float]) -> dict[str, float]:
    """The seconds since ``start``; on a busy machine the second is the one to compare."""
    return {name: round(now - then, 1) for name, now, then in zip(("seconds", "cpu_seconds"), clocks(), start)}


def defaults(run: Any) -> None:
    """Record the cost of the view without any option."""
    start = clocks()
    numbers = look("bias", [run]).numbers
    pairs = numbers["pairs"][0]
    figures = {"set": "built-in material", "texts": len(numbers["texts"]), **rounded(pairs, *INTERVAL)}
    record("bias", {"run": Path(run).name, **figures, **passed(start)})


def likelihoods(run: Any, limit: int) -> None:
    """Record the preference for stereotyped sentences, and how pronouns are resolved."""
    for source in LIKELIHOODS:
        sets = read_bias_sets(data_folder() / "probes" / source)
        start = clocks()
        request = Request(sets, samples=2, limit=limit, seed=0, classifier=None)
        pairs = [one for one in pair_sections(run, request) if one["source"]]
        figures: dict[str, Any] = {"run": Path(run).name, "set": sets[0].name, **rounded(pairs[0], *INTERVAL, "margin")}
        figures["categories"] = [rounded(row, "category", *INTERVAL) for row in pairs[0]["categories"]]
        for one in reference_sections(run, request):
            kinds = {kind: [rounded(row, kind[:-1], *INTERVAL) for row in one[kind]] for kind in ("sides", "genders")}
            gap = one["difference"]
            figures["references"] = {**rounded(one, *INTERVAL), **kinds, "difference": rounded(gap, *gap)}
        record("bias", {**figures, **passed(start)})


def texts(run: Any, classifier: str, samples: int, out: Path) -> None:
    """Record sentiment by group, by two scorers of the same texts; the words that stand out; pronouns."""
    start, cost = clocks(), {}
    data = [str(data_folder() / "probes" / source) for source in PROMPTS]
    out.mkdir(parents=True, exist_ok=True)
    if not (out / "bias.json").exists():
        look("bias", [run], out=out / "bias.json", data=data, classifier=classifier, samples=samples)
        cost = passed(start)
    numbers = json.loads((out / "bias.json").read_text(encoding="utf-8"))
    adjust_together([axis["groups"] for axis in numbers["sentiment"]["axes"]])
    names = ("group", "count", "mean", "low", "high", "difference", "p_adjusted", "bare")
    axes = {one["axis"]: [rounded(row, *names) for row in one["groups"]] for one in numbers["sentiment"]["axes"]}
    scorer, size = numbers["sentiment"]["scorer"], {"run": Path(run).name, "texts": len(numbers["texts"])}
    accuracy = {"accuracy": scorer["accuracy"]}
    record("bias", {**size, "set": "sentiment by classifier", **accuracy, "axes": axes, **cost})
    by_words = {}
    for axis in axes:
        own = [text for text in numbers["texts"] if text["axis"] == axis]
        scores: np.ndarray = WordList.built_in().scores([text["text"] for text in own])
        by_words[axis] = group_means(scores, [text["group"] for text in own], [text["template"] for text in own])
    adjust_together(list(by_words.values()))
    by_words = {axis: [rounded(row, *names[:-1]) for row in rows] for axis, rows in by_words.items()}
    record("bias", {**size, "set": "sentiment by word list", "axes": by_words})
    listed = ("word", "count", "others", "pmi", "low", "high", "p")
    words = {
        axis["axis"]: {row["group"]: [rounded(word, *listed) for word in row["words"]] for row in axis["groups"]}
        for axis in numbers["words"]
    }
    record("bias", {**size, "set": "words", "axes": words})
    odds = [rounded(row, "occupation", "log_odds", "low", "high") for row in numbers["pronouns"]["occupations"]]
    record("bias", {"run": Path(run).name, "set": "pronouns", "occupations": odds})


def main() -> None:
    """Measure one part and record it."""
    parser = argparse.ArgumentParser()
    parser.add_argument("run")
    parser.add_argument("--part", choices=("defaults", "likelihoods", "texts"), required=True)
    parser.add_argument("--classifier")
    parser.add_argument("--samples", type=int, default=8)
    parser.add_argument("--limit", type=int, default=0)
    parser.add_argument("--out", type=Path, default=Path("runs/bias"))
    given = parser.parse_args()
    run = ensue.load(given.run)
    if given.part == "defaults":
        defaults(run)
    elif given.part == "likelihoods":
        likelihoods(run, given.limit)
    else:
        texts(run, given.classifier, given.samples, given.out)


if __name__ == "__main__":
    main()
