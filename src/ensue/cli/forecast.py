"""Forecasts in a terminal: what `ensue predict` and `ensue score` print of a run that forecasts."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from ensue.cli.output import say, table
from ensue.core.wording import counted

Target = Annotated[list[str], typer.Option(help="forecast: a column to forecast, by name or number; repeatable.")]
Horizon = Annotated[int | None, typer.Option(min=1, help="forecast: how many steps ahead.")]


def show_forecasts(found: list[dict[str, Any]]) -> None:
    """A table: a row for each step, a column for each target, with its lowest and highest quantile."""
    first = found[0]
    lead: list[str] = [name for name in ("series", "step", "date") if name in first]
    columns, rows = list(lead), []
    for name in first["forecast"]:
        columns.append(name)
        columns += [f"{level}" for level in _ends(first, name)]
    for line in found:
        row = [str(line.get(name, "")) for name in lead]
        for name, value in line["forecast"].items():
            row.append(f"{value:.5g}")
            row += [f"{line['quantiles'][name][level]:.5g}" for level in _ends(line, name)]
        rows.append(row)
    table(columns, rows)


def _ends(line: dict[str, Any], name: str) -> list[str]:
    """The lowest and the highest quantile."""
    held = list(line.get("quantiles", {}).get(name, ()))
    return [held[0], held[-1]] if held else []


def show_forecast_score(score: dict[str, Any]) -> None:
    """The figures of a backtest, for people; there are none where nothing was held out."""
    if "mse" not in score:
        return
    mase = f" · MASE {score['mase']:.4f}" if score["mase"] is not None else ""
    say(f"mean squared error {score['mse']:.6g} · mean absolute error {score['mae']:.6g}{mase}")
    levels = ", ".join(f"{level:g}" for level in score["quantiles"])
    cover = f" · {score['coverage']:.1%} inside the band" if score["coverage"] is not None else ""
    say(f"pinball {score['pinball']:.6g} (quantiles {levels}){cover}")
    if score["scaled_mse"] != score["mse"]:
        say(f"in deviations of the past: squared {score['scaled_mse']:.6g}, absolute {score['scaled_mae']:.6g}")
    if len(score["by_target"]) > 1:
        for row in score["by_target"]:
            own = f"  MASE {row['mase']:.4f}" if row["mase"] is not None else ""
            say(f"  {row['target']:>16}  squared {row['mse']:.6g}  absolute {row['mae']:.6g}{own}")
    steps = score["by_step"]
    for row in steps if len(steps) <= 6 else [steps[round(n * (len(steps) - 1) / 5)] for n in range(6)]:
        if len(steps) > 1:
            say(f"  step {row['step']:>4}  squared {row['mse']:.6g}  absolute {row['mae']:.6g}")
    say(f"{counted(score['origins'], 'origin')}, {counted(score['values'], 'number')}")
