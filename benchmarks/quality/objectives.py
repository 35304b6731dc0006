"""Does the objective matter? Pre-training objectives at equal CPU time, then the same labelled sets.

    ENSUE_DATA=… python -m benchmarks.quality.objectives [--budget 2m] [--seeds 3] [--tune 30s] [--out FOLDER]

The text is Brown and WikiText-2's validation part; the labelled sets are SST-2's last 6,735 training phrases, scored on
its development set, and CoNLL-2003. An interrupted race is continued with the same words. ``results/objectives.md`` and
``objectives.svg`` are of the newest race.
"""

from __future__ import annotations

import argparse
import gzip
import shutil
import tempfile
from pathlib import Path

from benchmarks.record import RESULTS, data_folder, record
from ensue.core.settings import parse_assignments
from ensue.verbs.race_objectives import race_objectives

TEXTS = ("text/brown.txt.gz", "text/wikitext2.valid.txt.gz")
SETS = {
    "classify": ("labelled/sst2/train_tail.tsv.gz", "labelled/sst2/dev.tsv.gz"),
    "tag": ("tagged/conll2003/train.txt.gz", "tagged/conll2003/valid.txt.gz"),
}
NAMES = {"classify": "sst2", "tag": "conll2003"}


def unpacked(name: str, to: Path) -> str:
    """A data file without compression, so that its name is short."""
    to.write_bytes(gzip.decompress((data_folder() / name).read_bytes()))
    return str(to)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--objectives", default="mlm,span,sop,rtd,clm")
    parser.add_argument("--sets", nargs="+", choices=SETS, default=list(SETS))
    parser.add_argument("--budget", default="2m", help="CPU time of each pre-training")
    parser.add_argument("--tune", default="30s", help="CPU time of each fine-tuning")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--set", action="append", default=[])
    parser.add_argument("--out", type=Path, help="keep the runs here")
    typed = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        folder = typed.out or Path(temporary)
        data = folder.with_name(f"{folder.name}-data")
        data.mkdir(parents=True, exist_ok=True)
        texts = [unpacked(name, data / Path(name).name.removesuffix(".gz")) for name in TEXTS]
        then = [f"{task}:{unpacked(SETS[task][0], data / f'{NAMES[task]}.train.txt')}" for task in typed.sets]
        valid = [unpacked(SETS[task][1], data / f"{NAMES[task]}.valid.txt") for task in typed.sets]
        body = {
            "norm": "pre",
            "positions": "rotary",
        }  # with learned positions tiny encoders are slow to leave the start
        tuning = {"then.train.budget": typed.tune, "then.train.budget_clock": "cpu"}
        race = race_objectives(
            texts,
            typed.objectives.split(","),
            then,
            then_valid=valid,
            budget=typed.budget,
            match="cpu",
            seeds=typed.seeds,
            settings={**body, **tuning, **parse_assignments(typed.set)},
            out=folder,
            resume=(folder / "objectives.json").exists(),
            report=lambda kind, values: print(values["text"], flush=True) if kind == "race" else None,
        )
        found = race.as_dict()
        kept = ("budget", "match", "shape", "then", "objectives")
        record("objectives", {**{name: found[name] for name in kept}, "tune": typed.tune, "remarks": race.remarks()})
        for suffix in ("md", "svg"):
            shutil.copy(folder / f"objectives.{suffix}", RESULTS / f"objectives.{suffix}")


if __name__ == "__main__":
    main()
