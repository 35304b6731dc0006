"""Two columns of the Long Range Arena (Tay et al., 2021, "Long Range Arena: A Benchmark for Efficient Transformers").

    ENSUE_DATA=… python -m benchmarks.quality.long_range [--column listops text] [--budget 20m | --steps N] [--seeds 1]
    python -m benchmarks.quality.long_range --table

``listops`` is the built-in corpus, by default of 10 to 100 tokens (``--tokens 500 2000`` are the paper's). ``text`` is
the sentiment of IMDb's reviews, read byte by byte, cut after ``--bytes``. Each attention has the same encoder and the
same CPU time on one thread, or with ``--steps`` the same number of steps, as in the paper. There it is many more steps
than two cores make, on rows of up to 2,000 tokens of ListOps and 4,096 bytes. So its figures stand beside ours as they
are, and are not to be reached.

A line of results is a column; ``results/long_range.md`` has the newest of each beside the paper's.
"""

from __future__ import annotations

import argparse
import gzip
import json
import tempfile
from pathlib import Path
from typing import Any

import ensue
from benchmarks.record import RESULTS, data_folder, record
from ensue.core.settings import parse_assignments
from ensue.data.listops import EXAMPLES, LEAST, MOST, listops

PAPER = {
    "full": (36.37, 64.27),
    "local": (15.82, 52.98),
    "sparse": (17.07, 63.58),
    "linformer": (35.70, 53.94),
    "reformer": (37.27, 56.10),
    "sinkhorn": (33.67, 61.20),
    "bigbird": (36.05, 64.02),
    "linear": (16.13, 65.90),
    "performer": (18.01, 65.40),
}
"""Accuracy in percent on ListOps and on Text, table 1 of the paper; full attention is its Transformer."""
COLUMNS = ("listops", "text")
NAME = "long_range"
BYTES: dict[str, Any] = {"tokenizer.kind": "byte", "head.pooling": "mean", "norm": "pre"}
"""Single bytes say little: with the mean of all, every attention soon learns something, with the first token's none."""
CLS = 2
"""Special tokens around a text."""


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--column", nargs="+", choices=COLUMNS, default=COLUMNS)
    parser.add_argument("--attention", default=",".join(PAPER))
    parser.add_argument("--budget", default="20m", help="CPU time of each attention and seed")
    parser.add_argument("--steps", type=int, default=0, help="of each attention and seed, in place of a budget")
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--tokens", type=int, nargs=2, default=(LEAST, MOST), help="of a text of listops")
    parser.add_argument("--bytes", type=int, default=1024, help="of a review; the paper's are up to 4,096")
    parser.add_argument("--train", type=int, default=0, help="training examples; 0: 20,000 and 24,000")
    parser.add_argument("--test", type=int, default=1000, help="test examples")
    parser.add_argument("--set", action="append", default=[])
    parser.add_argument("--out", type=Path, help="keep the runs here; the same words continue them")
    parser.add_argument("--table", action="store_true", help="only the table, of the newest results")
    typed = parser.parse_args()
    for column in () if typed.table else typed.column:
        with tempfile.TemporaryDirectory() as temporary:
            run_column(column, typed, (typed.out or Path(temporary)) / column)
    (RESULTS / f"{NAME}.md").write_text(table(newest()), encoding="utf-8")


def run_column(column: str, typed: argparse.Namespace, out: Path) -> None:
    """Train an encoder with each attention on a column and write a line of results."""
    folder = out.with_name(f"{out.name}-data")
    folder.mkdir(parents=True, exist_ok=True)
    train, test = listops_files(typed, folder) if column == "listops" else text_files(typed, folder)
    # WordPiece makes two tokens of an operation, such as [MAX
    length = CLS + (2 * typed.tokens[1] if column == "listops" else typed.bytes)
    settings: dict[str, Any] = {
        "context": length,
        "data.length": length,
        "layers": 2,
        "hidden": 128,
        "heads": 4,
        "train.keep": "last",  # the test examples choose no weights
        **(BYTES if column == "text" else {"tokenizer.min_count": 1}),
        **({"train.steps": typed.steps} if typed.steps else {}),
        **parse_assignments(typed.set),
    }
    result = ensue.race(
        train,
        task="classify",
        systems=["bert"],
        attention=typed.attention.split(","),
        budget=None if typed.steps else typed.budget,
        match="time" if typed.steps else "cpu",
        seeds=typed.seeds,
        valid=test,
        settings=settings,
        out=out,
        resume=(out / "race.json").exists(),
    )
    race = result.as_dict()
    if failed := [one["attention"] for one in race["systems"] if one["error"]]:
        print(f"failed: {', '.join(failed)}; the same words with --out try again")
    figures = {
        "column": column,
        "budget": f"{typed.steps:,} steps" if typed.steps else f"{typed.budget} of CPU time",
        "longest": typed.tokens[1] if column == "listops" else typed.bytes,
        "settings": {name: str(value) for name, value in settings.items()},
        "test_examples": typed.test,
        "systems": [entrant(one) for one in race["systems"]],
    }
    record(NAME, figures, seed=list(range(typed.seeds)))


def entrant(one: dict[str, Any]) -> dict[str, Any]:
    """The figures of an attention: the mean over its seeds, each seed's, and how much it read."""
    return {
        "attention": one["attention"],
        "accuracy": None if one["accuracy"] is None else round(100 * one["accuracy"], 2),
        "by_seed": [round(100 * seed["accuracy"], 2) for seed in one["seeds"]],
        "tokens": [seed["tokens"] for seed in one["seeds"]],
        "seconds": [round(seed["seconds"], 1) for seed in one["seeds"]],
        "parameters": one["parameters"],
        "other_cores_busy": one["others"],
        "error": one["error"],
    }


def listops_files(typed: argparse.Namespace, folder: Path) -> tuple[Path, Path]:
    """Texts of ListOps to train on and to test with, no text in both."""
    least, most = typed.tokens
    count = typed.train or EXAMPLES
    rows = [f"{label}\t{text}" for text, label in listops(count + typed.test, least, most)]
    return _written(folder / "train.tsv", rows[:count]), _written(folder / "test.tsv", rows[count:])


def text_files(typed: argparse.Namespace, folder: Path) -> tuple[Path, Path]:
    """Reviews to train on and to test with, cut; evenly spaced ones of all, so that both labels are in each."""
    found = []
    for name, count in (("train", typed.train), ("test5k", typed.test)):
        with gzip.open(data_folder() / f"labelled/imdb/{name}.tsv.gz", "rt", encoding="utf-8") as file:
            rows = [line.rstrip("\n") for line in file if line[:2] in ("0\t", "1\t")]
        rows = rows[:: max(1, len(rows) // count)][:count] if count else rows
        rows = [row.encode()[: typed.bytes + 2].decode("utf-8", "ignore") for row in rows]
        found.append(_written(folder / f"{name}.tsv", rows))
    return found[0], found[1]


def _written(path: Path, rows: list[str]) -> Path:
    path.write_text("\n".join(["label\ttext", *rows]) + "\n", encoding="utf-8")
    return path


def newest() -> dict[str, dict[str, Any]]:
    """The newest line of each column."""
    lines = (RESULTS / f"{NAME}.jsonl").read_text(encoding="utf-8").splitlines()
    return {one["column"]: one for one in map(json.loads, lines)}


def table(lines: dict[str, dict[str, Any]]) -> str:
    """The newest results as a table beside the paper's."""
    ours = {
        column: {one["attention"].partition(":")[0]: one["accuracy"] for one in line["systems"]}
        for column, line in lines.items()
    }
    heads = ["attention", *(f"{column}: {who}" for column in COLUMNS for who in ("ours", "the paper"))]
    rows = [f"| {' | '.join(heads)} |", "|---|" + "--:|" * (len(heads) - 1)]
    for name, paper in PAPER.items():
        cells = [name]
        for column, theirs in zip(COLUMNS, paper, strict=True):
            value = ours.get(column, {}).get(name)
            cells += ["–" if value is None else f"{value:.1f}", f"{theirs:.1f}"]
        rows.append(f"| {' | '.join(cells)} |")
    notes = [
        f"{column}: {line['budget']} each, rows of up to {line['longest']} "
        f"{'tokens' if column == 'listops' else 'bytes'}, {line['test_examples']} test examples, "
        f"{len(line['seed'])} seed{'s' * (len(line['seed']) > 1)}."
        for column, line in lines.items()
    ]
    return "\n".join(
        [
            "Accuracy in percent, written by `python -m benchmarks.quality.long_range`. " + " ".join(notes),
            "The paper is Tay et al., 2021, table 1: longer rows (ListOps of 500 to 2,000 tokens, reviews of up to",
            "4,096 bytes) and many more steps.",
            "",
            *rows,
            "",
        ]
    )


if __name__ == "__main__":
    main()
