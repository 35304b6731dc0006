"""ETTh1, the oil temperature 24 hours ahead: a rolling backtest of each system over the months that are held out.

The split is the usual one: 12 months to learn from, 4 to choose among weights, 4 held out; ``scaled_mse`` is in the
units in which papers on it report.

python -m benchmarks.quality.forecasting [--systems last,seasonal,linear,gru,lstm,gpt] [--seeds 3] [--horizon 24]
    [--steps 0] [--set name=value …] [--out runs/etth1]
"""

from __future__ import annotations

import argparse
import gzip
from pathlib import Path
from statistics import mean

import ensue
from benchmarks.record import data_folder, record
from ensue.core.settings import parse_assignments

ROWS = 20 * 30 * 24
"""The 20 months that papers use."""


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--systems", default="last,seasonal,linear,gru,lstm,gpt")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--horizon", type=int, default=24)
    parser.add_argument("--steps", type=int, default=0, help="a short trial; 0: as the preset has it")
    parser.add_argument("--set", action="append", default=[], metavar="NAME=VALUE")
    parser.add_argument("--out", type=Path, default=Path("runs/etth1"))
    typed = parser.parse_args()
    typed.out.mkdir(parents=True, exist_ok=True)
    file = typed.out / "ETTh1.csv"
    with gzip.open(data_folder() / "series" / "ETTh1.csv.gz", "rt", encoding="utf-8") as source:
        file.write_text("".join(line for _, line in zip(range(ROWS + 1), source)), encoding="utf-8")
    split = {"data.target": ("OT",), "data.holdout": 0.2, "data.choose": 0.2, "horizon": typed.horizon}
    for system in typed.systems.split(","):
        counts = system in ("last", "seasonal")
        settings = {**split, **({"train.steps": typed.steps} if typed.steps else {}), **parse_assignments(typed.set)}
        if counts:
            settings = split
        runs = [
            ensue.fit(
                "forecast", file, model=system, settings=settings, seed=seed,
                out=typed.out / f"{system}-{seed}", force=True,
            )
            for seed in range(1 if counts else typed.seeds)
        ]  # fmt: skip
        held = [run.config["figures"]["valid"] for run in runs]
        keys = ("mse", "mae", "mase", "pinball", "scaled_mse", "scaled_mae", "coverage")
        figures = {key: mean(one[key] for one in held) for key in keys}
        record(
            "forecasting",
            {
                "data": "ETTh1, OT",
                "system": system,
                "horizon": typed.horizon,
                "window": runs[0].encoding.window,
                "origins": held[0]["origins"],
                **figures,
                "mase_lowest": min(one["mase"] for one in held),
                "mase_highest": max(one["mase"] for one in held),
                "parameters": runs[0].config["figures"]["parameters"],
                "seconds": mean(run.config["figures"]["seconds"] for run in runs),
            },
            seed=list(range(len(runs))),
        )


if __name__ == "__main__":
    main()
