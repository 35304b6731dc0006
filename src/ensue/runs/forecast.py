"""Runs that forecast time series, and are scored by a backtest."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch

from ensue.core.errors import InputError
from ensue.core.escapes import escape_field
from ensue.core.events import Report, report_notes, silent
from ensue.core.wording import counted, table_lines
from ensue.data.series import Series
from ensue.data.series_columns import SeriesOptions
from ensue.data.series_encoding import SeriesEncoding, forecast_origins
from ensue.data.series_windows import SeriesWindows
from ensue.data.sources import Source
from ensue.data.waves import PAST_STEPS, VALID_END
from ensue.measure.backtest import LEVELS, backtest, windows_per_batch, with_band
from ensue.measure.forecast import ForecastScore
from ensue.runs.run import Run
from ensue.search.forecast_rollout import forecast
from ensue.tasks.forecast import is_waves, load_series
from ensue.train.forecast_objectives import loss_unit


class ForecastRun(Run):
    """A forecaster: it predicts the next values of a series, and is scored on held-out ones."""

    refused = {
        "text": "a forecaster is scored on series: name a file",
        "field": "series are tables: --target of `ensue fit` names the columns to forecast",
        "columns": "the columns are those it was trained on",
        "per_token": "a forecaster is scored by step: see by_step in --json",
        "streams": "it reads windows, not a stream",
        "int8": "forecasters compute in single precision",
        "out": "use `ensue look forecast RUN --out chart.png`",
    }
    reads_texts = False
    predict_options = ("horizon",)
    capabilities = ("forecast",)

    @property
    def loss_unit(self) -> str:
        """The unit of its loss."""
        return loss_unit(str(self.settings["train.loss"]), str(self.settings["data.scale"]))

    @staticmethod
    def score_lines(score: Mapping[str, Any]) -> list[str]:
        """The figures of a backtest; none if nothing was held out."""
        if "mse" not in score:
            return []
        mase = f" · MASE {score['mase']:.4f}" if score["mase"] is not None else ""
        levels = ", ".join(f"{level:g}" for level in score["quantiles"])
        cover = f" · coverage {score['coverage']:.1%}" if score["coverage"] is not None else ""
        lines = [
            f"mean squared error {score['mse']:.6g} · mean absolute error {score['mae']:.6g}{mase}",
            f"pinball loss {score['pinball']:.6g} (quantiles {levels}){cover}",
        ]
        if score["scaled_mse"] != score["mse"]:
            lines.append(f"standardised: squared {score['scaled_mse']:.6g}, absolute {score['scaled_mae']:.6g}")
        if len(score["by_target"]) > 1:
            for row in score["by_target"]:
                own = f"  MASE {row['mase']:.4f}" if row["mase"] is not None else ""
                lines.append(
                    f"  {escape_field(row['target']):>16}  squared {row['mse']:.6g}  absolute {row['mae']:.6g}{own}"
                )
        steps = score["by_step"]
        shown = steps if len(steps) <= 6 else [steps[round(n * (len(steps) - 1) / 5)] for n in range(6)]
        if len(steps) > 1:
            lines += [f"  step {r['step']:>4}  squared {r['mse']:.6g}  absolute {r['mae']:.6g}" for r in shown]
        return [*lines, f"{counted(score['origins'], 'origin')}, {counted(score['values'], 'value')}"]

    @classmethod
    def card_lines(cls, score: Mapping[str, Any]) -> list[str]:
        """The figures of a backtest; none if nothing was held out."""
        if "mse" not in score:
            return []
        return [
            f"| held out | {score['origins']:,} origins, {score['values']:,} numbers |",
            f"| mean squared error | {score['mse']:.6g} |",
            f"| mean absolute error | {score['mae']:.6g} |",
            *([f"| MASE | {score['mase']:.4f} |"] if score["mase"] is not None else []),
            f"| pinball ({', '.join(map(str, score['quantiles']))}) | {score['pinball']:.6g} |",
        ]

    @staticmethod
    def data_size(data: Mapping[str, Any]) -> str:
        """The number and size of the training windows."""
        form = data["form"]
        windows = f"{data['train_windows']:,} windows of {form['window']:,} steps, {form['horizon']:,} ahead"
        return f"{windows}, of {', '.join(form['names'][: form['targets']])}"

    @staticmethod
    def prediction_lines(predictions: Sequence[Mapping[str, Any]]) -> list[str]:
        """A table: a row for each step, a column for each target, with its lowest and highest quantile."""
        first = predictions[0]
        keys: list[str] = [name for name in ("series", "step", "date") if name in first]
        columns, rows = list(keys), []
        for name in first["forecast"]:
            columns += [name, *_outer_quantiles(first, name)]
        for line in predictions:
            row = [str(line.get(name, "")) for name in keys]
            for name, value in line["forecast"].items():
                row.append(f"{value:.5g}")
                row += [f"{line['quantiles'][name][level]:.5g}" for level in _outer_quantiles(line, name)]
            rows.append(row)
        return table_lines(columns, rows)

    @cached_property
    def encoding(self) -> SeriesEncoding:
        """How its numbers are read, scaled and measured."""
        with self.folder.config_errors():
            encoding = SeriesEncoding.from_dict(self.config["data"]["form"])
            model = self.model.config
            for name, size in (("inputs", len(encoding.names)), ("targets", encoding.targets)):
                if getattr(model, name) != size:
                    raise InputError(f"data.form has {size} {name}, and the model {getattr(model, name)}")
            return encoding

    @property
    def band(self) -> np.ndarray | None:
        """The distances of the quantiles from a point forecast, (H, Y, Q)."""
        band = self.config.get("figures", {}).get("valid", {}).get("band")
        if band is None:
            return None
        shape = (self.encoding.horizon, self.encoding.targets, len(LEVELS))
        with self.folder.config_errors():
            values = np.asarray(band, dtype=float)
            if values.shape != shape:
                raise InputError(f"figures.valid.band has the shape {values.shape}, not {shape}")
        return values

    def series(self, files: Sequence[Any], report: Report = silent, horizon: int = 0) -> Series:
        """Series read from files with the settings of this run."""
        settings, encoding = self.settings, self.encoding
        options = SeriesOptions(
            targets=encoding.names[: encoding.targets],
            covariates=encoding.names[encoding.targets :],
            date=str(settings.get("data.date", "")),
            key=str(settings.get("data.id", "")),
            order=str(settings.get("data.order", "error")),
            fill=str(settings.get("data.fill", "forward")),
        )
        notes: list[str] = []
        series = load_series([str(file) for file in files], options, notes, horizon or encoding.horizon)
        report_notes(notes, "and {} more notes", report)
        return series

    def predict(
        self,
        texts: Sequence[str] = (),
        *,
        file: str | Path | None = None,
        horizon: int = 0,
        columns: str = "",
        int8: bool = False,
        report: Report = silent,
    ) -> list[dict[str, Any]]:
        """Forecasts of the next ``horizon`` steps of each series in a file, with quantiles if they are known."""
        self.check_options([name for name, given in (("columns", columns), ("int8", int8)) if given])
        if texts or file is None:
            raise InputError("a forecaster reads series", hint="name a file")
        horizon = horizon or self.encoding.horizon
        if horizon < 1:
            raise InputError(f"--horizon {horizon} must be at least 1")
        series = self.series([file], report)
        ends = self._ends(series, str(file), report)
        forecasts, levels = self.forecasts(series, np.array([end for _, end in ends]), horizon, report)
        return [line for (key, end), one in zip(ends, forecasts) for line in self._steps(series, key, end, one, levels)]

    def predict_values(
        self, values: Sequence[Sequence[float]], horizon: int = 0, report: Report = silent
    ) -> list[dict[str, Any]]:
        """Forecasts after given values: a row for each step, a column for each series that the run reads."""
        encoding = self.encoding
        width = len(encoding.names)
        if not all(len(step) == width and all(map(math.isfinite, step)) for step in values):
            raise InputError(f"a step is {counted(width, 'number')}: {', '.join(encoding.names)}")
        array = np.asarray(values, dtype=np.float64).reshape(-1, width)
        real, starts = np.ones(array.shape, dtype=bool), np.array([0, len(array)])
        series = Series(encoding.names, encoding.targets, array, real, starts, ())
        ((_, end),) = self._ends(series, "the given values", silent)
        forecasts, levels = self.forecasts(series, np.array([end]), horizon or encoding.horizon, report)
        return self._steps(series, "", end, forecasts[0], levels)

    def _ends(self, series: Series, file: str, report: Report) -> list[tuple[str, int]]:
        """The name and the end of each series that fills a window; a note names those that do not."""
        ends, least = [], f"fewer than the window of {self.encoding.window:,}"
        for (begin, end), key in zip(series.spans(), series.keys or ("",)):
            if end - begin >= self.encoding.window:
                ends.append((key, end))
            elif key:
                text = f"{file}, series {key!r}: {counted(end - begin, 'step')}, {least}: left out"
                report("note", {"text": text})
        if not ends:
            longest = max(end - begin for begin, end in series.spans())
            raise InputError(f"{counted(longest, 'step')}, {least}", where=file, hint="give a longer past")
        return ends

    @torch.inference_mode()
    def forecasts(
        self, series: Series, origins: np.ndarray, horizon: int, report: Report = silent
    ) -> tuple[np.ndarray, tuple[float, ...]]:
        """Forecasts from origins, (N, H, Y, Q), and their Q quantile levels."""
        encoding = self.encoding
        windows = replace(encoding.windows(series, origins), horizon=0)
        step, parts = windows_per_batch(self.model.config, encoding.window, horizon), []
        for start in range(0, len(origins), step):
            past, _, offset = windows.cut(np.arange(start, min(start + step, len(origins))))
            scaled = forecast(self.model, torch.from_numpy(past.astype(np.float32)), horizon).double().numpy()
            parts.append(encoding.unscaled(scaled, offset))
        forecasts, band = np.concatenate(parts), self.band
        if self.model.config.quantiles:
            return forecasts, tuple(self.model.config.quantiles)
        if band is not None and horizon > len(band):
            steps = counted(len(band), "step")
            report("note", {"text": f"there are no quantiles beyond the {steps} that it was trained for"})
            band = None
        return with_band(forecasts, band[:horizon] if band is not None else None)

    def _steps(
        self, series: Series, key: str, end: int, forecasts: np.ndarray, levels: tuple[float, ...]
    ) -> list[dict[str, Any]]:
        """The forecasts (H, Y, Q) of one series, as a record for each step."""
        names, middle, lines = self.encoding.names[: self.encoding.targets], levels.index(0.5), []
        for step, values in enumerate(forecasts, start=1):
            line: dict[str, Any] = {"series": key} if key else {}
            line["step"] = step
            date = series.frequency.add_steps(series.dates[end - 1], step) if series.dates is not None else None
            if date is not None:
                line["date"] = series.frequency.format(date)
            line["forecast"] = {name: float(values[y, middle]) for y, name in enumerate(names)}
            if len(levels) > 1:
                line["quantiles"] = {
                    name: {f"{level:g}": float(values[y, q]) for q, level in enumerate(levels)}
                    for y, name in enumerate(names)
                }
            lines.append(line)
        return lines

    def held_out(self, files: Sequence[Any], report: Report = silent) -> tuple[Series, SeriesWindows]:
        """The windows of files that can be scored: those after the training rows, or all."""
        series, encoding = self.series(files, report), self.encoding
        if is_waves(list(map(str, files))):
            return series, encoding.windows(series, series.starts[VALID_END:-1] + PAST_STEPS)
        origins, trained = [], 0
        for key, (begin, end) in zip(series.keys or ("",), series.spans()):
            rows = encoding.rows_seen(series, begin, end, key)
            trained += rows
            origins.append(forecast_origins(begin, begin + rows, end, encoding.window, encoding.horizon))
        if trained:
            report("note", {"text": f"{counted(trained, 'row')} were trained on: those after them are scored"})
        if not sum(map(len, origins)):
            longest = max(end - begin for begin, end in series.spans())
            what = f"{counted(longest, 'step')}, of which none can be scored"
            hint = f"give at least {encoding.window + encoding.horizon:,} steps, or some after those it was trained on"
            raise InputError(what, where=", ".join(map(str, files)), hint=hint)
        return series, encoding.windows(series, np.concatenate(origins))

    def score(self, *files: Source, report: Report = silent) -> ForecastScore:
        """A rolling backtest: forecasts from every origin in files, against the true values."""
        self.check_files(files)
        _, windows = self.held_out(files, report)
        return backtest(self.model, windows, self.encoding, self.band, report)


def _outer_quantiles(line: Mapping[str, Any], name: str) -> list[str]:
    """The lowest and the highest quantile level."""
    levels = list(line.get("quantiles", {}).get(name, ()))
    return [levels[0], levels[-1]] if levels else []
