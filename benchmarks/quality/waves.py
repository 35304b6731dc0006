"""The four forecasters of the lecture on ``waves``, and our best: mean squared error on the 1,000 held-out series.

The lecture's figures, one run of Keras each: 0.003994, 0.011026, 0.003197, 0.002758. Beside them stands what least
squares reaches that knows the equation and begins at the true frequencies and phases: about the least there can be.

python -m benchmarks.quality.waves [--seeds 5] [--models dense,one-unit,deep,deep-dense,best] [--epochs 20]
    [--out runs/waves]
"""

from __future__ import annotations

import argparse
from pathlib import Path
from statistics import mean

import numpy as np

import ensue
from benchmarks.record import record
from ensue.data.waves import NOISE_VARIANCE, PAST_STEPS, VALID_END, noiseless_waves, parameters, waves

MODELS = {
    "dense": ("linear", "waves"),
    "one-unit": ("rnn", "one-unit"),
    "deep": ("rnn", "deep"),
    "deep-dense": ("rnn", "waves"),
    "best": ("gru", "waves"),
}
"""Each as a system and its preset."""


def least() -> float:
    """The squared error of least squares on each held-out series, from the true parameters (Gauss and Newton)."""
    series = waves().astype(float)[VALID_END:]
    found = np.concatenate(parameters(), axis=1)[VALID_END:]

    def curve(values: np.ndarray, steps: int) -> np.ndarray:
        return noiseless_waves(*(values[:, [place]] for place in range(4)), steps)

    for _ in range(15):
        slopes = [
            (curve(found + 1e-6 * np.eye(4)[place], PAST_STEPS) - curve(found, PAST_STEPS)) / 1e-6 for place in range(4)
        ]
        jacobian = np.stack(slopes, axis=-1)
        rest = series[:, :PAST_STEPS] - curve(found, PAST_STEPS)
        normal = np.einsum("ntk,ntl->nkl", jacobian, jacobian) + 1e-9 * np.eye(4)
        found = found + np.linalg.solve(normal, np.einsum("ntk,nt->nk", jacobian, rest)[..., None])[..., 0]
    return float(((series[:, PAST_STEPS] - curve(found, PAST_STEPS + 1)[:, PAST_STEPS]) ** 2).mean())


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--models", default=",".join(MODELS))
    parser.add_argument("--epochs", type=float, default=0.0, help="0: as the preset has it")
    parser.add_argument("--out", type=Path, default=Path("runs/waves"))
    typed = parser.parse_args()
    for name in typed.models.split(","):
        system, preset = MODELS[name]
        settings = {"train.epochs": typed.epochs} if typed.epochs else {}
        runs = [
            ensue.fit(
                "forecast", "waves", model=system, preset=preset, settings=settings,
                out=typed.out / f"{name}-{seed}", seed=seed, force=True,
            )
            for seed in range(typed.seeds)
        ]  # fmt: skip
        figures = [run.config["figures"] for run in runs]
        errors = [one["valid"]["mse"] for one in figures]
        record(
            "waves",
            {
                "model": name,
                "system": system,
                "preset": preset,
                "parameters": figures[0]["parameters"],
                "epochs": runs[0].settings["train.epochs"],
                "mse": mean(errors),
                "mse_lowest": min(errors),
                "mse_highest": max(errors),
                "mse_each": errors,
                "seconds": mean(one["seconds"] for one in figures),
                "least_squares": least(),
                "noise": NOISE_VARIANCE,
            },
            seed=list(range(typed.seeds)),
        )


if __name__ == "__main__":
    main()
