"""Forecasting: from series to a model of their next values.

Each series is split in time: a training part, then a part that chooses among weights, then a held-out part. The scale
is fitted to the training part only.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from ensue.core.errors import InputError
from ensue.core.events import Report, abandon_when, report_notes
from ensue.core.run_folder import RunFolder
from ensue.core.schema import Items, Maybe, Number
from ensue.core.seeds import derive
from ensue.core.settings import check, check_below_one
from ensue.core.wording import counted
from ensue.data.batches import array_digest
from ensue.data.series import Series, read_series
from ensue.data.series_columns import SeriesOptions
from ensue.data.series_encoding import (
    ENCODING_SCHEMA,
    SeriesEncoding,
    check_long_enough,
    fit_series_encoding,
    forecast_origins,
    rows_hash,
)
from ensue.data.series_windows import SeriesBatches, SeriesWindows
from ensue.data.splitting import evenly_spaced
from ensue.data.waves import PAST_STEPS, TRAIN_END, VALID_END, WAVES, waves
from ensue.measure.backtest import LEVELS, backtest, forecast_windows
from ensue.measure.forecast import error_band, mean_of, pinball
from ensue.models.forecast_laws import forecast_laws
from ensue.models.laws import Finding
from ensue.models.table import FORECASTERS
from ensue.tasks.settings import DataSettings, Settings
from ensue.tasks.spec import Measure, RaceSpec, Task, TrainingOptions
from ensue.train.forecast_objectives import ForecastLoss, loss_unit
from ensue.train.objectives import Objective
from ensue.train.ranks import SINGLE, Evaluate, Ranks
from ensue.train.settings import ForecastTrainSettings

EVAL_WINDOWS = 2000
EPOCHS, UPDATES = 20.0, 1000
"""How long to train where no setting says: this many epochs, and at least this many updates."""
LEAST_ERRORS = 50
"""The fewest errors that a band is fitted to; training windows are used if there are too few others."""
MAX_HORIZON = 10_000
"""The longest horizon of the corpus waves, which is computed for all its series."""
LONGEST_WINDOW = 336
"""The longest window where no setting says."""


@dataclass(frozen=True, kw_only=True, slots=True)
class SeriesSettings(DataSettings):
    """Where series come from, under ``data.`` in run.toml."""

    files: tuple[str, ...] = ()
    """The series to learn from: tables of numbers, one step per line, - for standard input, or the corpus waves."""
    valid: tuple[str, ...] = ()
    """Series to hold out; if there are none, the end of each series is held out."""
    target: tuple[str, ...] = ()
    """The columns to forecast, by name or number; empty means all columns of numbers."""
    covariates: tuple[str, ...] = ()
    """The columns to read beside the targets; empty means none, all means all other columns of numbers."""
    date: str = ""
    """The column of dates; empty means that it is inferred, none means that there is none."""
    id: str = ""
    """The column that names the series of a row; empty means that a file is one series."""
    order: str = "error"
    """What to do with dates out of order: error, or sort."""
    fill: str = "forward"
    """How gaps are filled: forward, or interpolate (which uses later values). They do not count in the loss."""
    scale: str = "standard"
    """How columns are scaled: standard (mean 0 and standard deviation 1 in the training part), or none."""
    centre: str = "last"
    """What is subtracted from each window and added to its forecast: its last value, its mean, or none."""
    holdout: float = 0.2
    """The share of each series, at its end, to hold out and score; 0 means none."""
    choose: float = 0.1
    """The share before it that chooses among weights and fits the width of bands; 0 means none."""
    eval_windows: int = 0
    """Windows of that share in an evaluation during training; 0 means 2,000."""

    def __post_init__(self) -> None:
        super(SeriesSettings, self).__post_init__()
        check_below_one(self, "choose")
        check(self, "choose", self.holdout + self.choose < 1, "less than what data.holdout leaves")
        check(self, "order", self.order in ("error", "sort"), "error or sort")
        check(self, "fill", self.fill in ("forward", "interpolate"), "forward or interpolate")
        check(self, "scale", self.scale in ("standard", "none"), "standard or none")
        check(self, "centre", self.centre in ("last", "mean", "none"), "last, mean or none")


@dataclass(frozen=True)
class SeriesCorpus:
    """Windows to learn from, to choose among weights with, and to score."""

    series: Series
    encoding: SeriesEncoding
    train: SeriesWindows
    choose: SeriesWindows | None
    valid: SeriesWindows | None
    held_out: Series
    """The series of ``valid``."""

    @property
    def hash(self) -> str:
        """Hash of all numbers, and where each part begins."""
        parts = [part.origins for part in (self.train, self.choose, self.valid) if part is not None]
        return array_digest(self.series.values, self.series.observed, self.held_out.values, *parts)


def is_waves(files: Any) -> bool:
    """Return whether these files are the built-in corpus."""
    return tuple(map(str, files)) == (WAVES,) and not Path(WAVES).is_file()


def load_series(files: Any, options: SeriesOptions, notes: list[str], horizon: int) -> Series:
    """Return the series of files, or of the built-in corpus."""
    if WAVES in map(str, files) and len(files) > 1 and not Path(WAVES).exists():
        raise InputError("is a corpus of its own, and is not read beside files", where=WAVES, hint="name it alone")
    if not is_waves(files):
        return read_series(list(files), options, notes)
    if options.targets not in ((), ("x",)) or options.key:
        raise InputError("has one column, x, and 10,000 series", where=WAVES, hint="leave out --target and data.id")
    if horizon > MAX_HORIZON:
        raise InputError(f"a horizon of {horizon:,} is too long", where=WAVES, hint=f"at most {MAX_HORIZON:,} steps")
    rows = waves(horizon)
    starts = np.arange(len(rows) + 1) * rows.shape[1]
    values = rows.reshape(-1, 1).astype(np.float64)
    return Series(("x",), 1, values, np.ones_like(values, dtype=bool), starts, tuple(map(str, range(len(rows)))))


def waves_corpus(settings: Settings, series: Series) -> SeriesCorpus:
    """Split ``waves``, of which each series is one window."""
    model, data = settings.model, settings.data
    window, horizon = model["window"] or PAST_STEPS, model["horizon"]
    if window > PAST_STEPS:
        raise InputError(f"a window of {window} is longer than the {PAST_STEPS} steps of the past", where=WAVES)
    starts = series.starts[:-1]
    past = [(int(start), int(start) + PAST_STEPS) for start in starts[:TRAIN_END]]
    encoding = fit_series_encoding(series, past, data.scale, data.centre, model["season"] or 1, window, horizon)
    origins = starts + PAST_STEPS
    parts = (origins[:TRAIN_END], origins[TRAIN_END:VALID_END], origins[VALID_END:])
    train, choose, valid = (encoding.windows(series, part) for part in parts)
    return SeriesCorpus(series, encoding, train, choose, valid, series)


def split_corpus(settings: Settings, series: Series, held_out: Series, report: Report) -> SeriesCorpus:
    """Split each series in time: to learn from, to choose with, held out."""
    model, data = settings.model, settings.data
    horizon, season = model["horizon"], model["season"] or series.frequency.season
    where = ", ".join(map(str, data.files))
    splits = []
    for begin, end in series.spans():
        size = end - begin
        last = 0 if data.valid or not data.holdout else max(horizon, round(data.holdout * size))
        before = max(horizon, round(data.choose * size)) if data.choose else 0
        splits.append((begin, end - last - before, end - last, end))
    learnt = [(begin, max(begin, stop)) for begin, stop, _, _ in splits]
    longest = max(stop - begin for begin, stop in learnt)
    least = season if settings.run.system == "seasonal" else 1  # it repeats a whole season
    window = model["window"] or max(least, _suitable_window(season, horizon, longest))
    check_long_enough(replace(series, starts=np.array([0, longest])), window, horizon, where)
    encoding = fit_series_encoding(series, learnt, data.scale, data.centre, season, window, horizon)
    named = zip(series.keys or ("",), splits)
    encoding = replace(encoding, learnt=tuple((key, c - a, rows_hash(series, a, c - a)) for key, (a, _, c, _) in named))
    origins = [
        [forecast_origins(begin, *part, window, horizon) for part in zip((begin, *cuts), cuts)]
        for begin, *cuts in splits
    ]
    train, choose, valid = (np.concatenate(part) for part in zip(*origins))
    if held_out is not series:
        valid = np.concatenate([forecast_origins(a, a, b, window, horizon) for a, b in held_out.spans()])
        check_long_enough(held_out, window, horizon, ", ".join(map(str, data.valid)), "to score")
    short = [key for key, parts in zip(series.keys, origins) if not len(parts[0])]
    if short:
        shown = ", ".join(short[:5]) + (", …" if len(short) > 5 else "")
        needed = f"the {window + horizon:,} steps that learning needs"
        report("note", {"text": f"{len(short):,} series shorter than {needed}: {shown}"})
    report("note", {"text": f"a window of {window:,}, {counted(horizon, 'step')} ahead, a season of {season:,}"})
    if not _any_observed(series, train, horizon):
        raise InputError("there is nothing to learn from: every number to forecast is a gap", where=where)
    chooses, scores = _any_observed(series, choose, horizon), _any_observed(held_out, valid, horizon)
    for part, usable, what in ((choose, chooses, "that chooses weights"), (valid, scores, "held out")):
        if len(part) and not usable:
            report("note", {"text": f"the part {what} is all gaps, and is not used"})
    return SeriesCorpus(
        series,
        encoding,
        encoding.windows(series, train),
        encoding.windows(series, choose) if chooses else None,
        encoding.windows(held_out, valid) if scores else None,
        held_out,
    )


def _any_observed(series: Series, origins: np.ndarray, horizon: int) -> bool:
    """Return whether any value to forecast from these origins is observed."""
    count = np.concatenate([[0], np.cumsum(series.observed[:, : series.targets].any(axis=1))])
    return bool((count[origins + horizon] > count[origins]).any())


def _suitable_window(season: int, horizon: int, longest: int) -> int:
    """Return a window of some seasons and some horizons, at most a third of the longest series and ``LONGEST_WINDOW``.

    >>> _suitable_window(24, 24, 12_000), _suitable_window(12, 12, 100), _suitable_window(1, 1, 500)
    (168, 29, 24)
    """
    wish = min(LONGEST_WINDOW, max(7 * season if season >= 7 else 4 * season, 2 * horizon, 24))
    return max(1, min(wish, (longest - horizon) // 3))


def fit_band(model: Any, corpus: SeriesCorpus) -> np.ndarray | None:
    """Return the quantiles of the errors of single forecasts, (H, Y, Q), on windows that choose weights."""
    if model.config.quantiles or corpus.choose is None:
        return None
    windows, few = corpus.choose, LEAST_ERRORS - len(corpus.choose)
    if few > 0:  # errors on training windows are too small, but none at all are worse
        windows = replace(windows, origins=np.concatenate([corpus.train.origins[-few:], windows.origins]))
    forecasts, truth, real = forecast_windows(model, windows, corpus.encoding)
    return error_band(truth - forecasts[..., 0], real, LEVELS)


def race_heading(facts: Mapping[str, Any]) -> str:
    """The first line of race.md: the data, how far ahead, and how many windows."""
    encoding = facts["form"]
    ahead = f"{encoding['horizon']:,} steps ahead of {', '.join(encoding['names'][: encoding['targets']])}"
    windows = f"{facts['train_windows']:,} windows, {facts['valid_windows']:,} held out"
    return f"{', '.join(facts['data'])}: {ahead}; {windows}"


def race_facts(corpus: SeriesCorpus, facts: dict[str, Any]) -> dict[str, Any]:
    """Return the facts of a corpus without the list of all series."""
    return {**facts, "form": {name: value for name, value in facts["form"].items() if name != "learnt"}}


class ForecastTask(Task):
    """Forecast the next values of a series."""

    name = "forecast"
    data = "series"
    settings = {"train": ForecastTrainSettings, "data": SeriesSettings}
    run = "ensue.runs.forecast:ForecastRun"
    systems = FORECASTERS
    default_system = "lstm"
    example_file = "my.csv"
    budget = 0.0
    short_evaluation = "data.eval_windows=50"
    facts_schema = {"form": ENCODING_SCHEMA}
    figures_schema = {"band": Maybe(Items(Items(Items(Number()))))}
    race = RaceSpec(
        name="forecast",
        measures=(
            Measure("mase", "MASE"),
            Measure("mse", "squared error", ".5g"),
            Measure("mae", "absolute error", ".5g"),
            Measure("pinball", "pinball", ".5g"),
        ),
        systems=("last", "seasonal", "linear", "lstm", "gpt"),
        between="between systems that forecast",
        lower=True,
        heading=race_heading,
        facts=race_facts,
    )

    def preset(self, preset: Mapping[str, Any], recipe: Any, initialised: bool) -> dict[str, Any]:
        """Return the preset as it is: there are no recipes."""
        return dict(preset)

    def read_corpus(self, settings: Settings, folder: RunFolder | None, report: Report) -> SeriesCorpus:
        """Read the series as windows."""
        report("phase", {"name": "reading the series"})
        data, horizon, notes = settings.data, settings.model["horizon"], list[str]()
        columns = {"targets": data.target, "covariates": data.covariates, "date": data.date, "key": data.id}
        options = SeriesOptions(**columns, order=data.order, fill=data.fill)
        series = held_out = load_series(data.files, options, notes, horizon)
        if data.valid:
            targets, covariates = series.names[: series.targets], series.names[series.targets :]
            options = replace(options, targets=targets, covariates=covariates)
            held_out = load_series(data.valid, options, notes, horizon)
        report_notes(notes, "and {} more notes", report)
        if is_waves(data.files):
            return waves_corpus(settings, series)
        return split_corpus(settings, series, held_out, report)

    def describe_corpus(self, corpus: SeriesCorpus) -> dict[str, Any]:
        """Return the number of windows, and the encoding, which a run needs to read other series."""
        parts = {"train": corpus.train, "choose": corpus.choose, "valid": corpus.valid}
        return {
            "series": max(1, len(corpus.series.keys)),
            "rows": len(corpus.series),
            **{f"{name}_windows": len(part) if part is not None else 0 for name, part in parts.items()},
            "gaps": int((~corpus.series.observed).sum()),
            "form": corpus.encoding.as_dict(),
        }

    def model_settings(self, settings: Settings, corpus: SeriesCorpus) -> dict[str, Any]:
        """Return the number of columns and targets, the window and the season."""
        own = corpus.encoding
        return {"inputs": len(own.names), "targets": own.targets, "window": own.window, "season": own.season}

    def complete_settings(self, settings: Settings, model: Any, corpus: SeriesCorpus) -> Settings:
        """Fill in the number of epochs and the loss."""
        train = settings.train
        if isinstance(train, self.counting):
            return super().complete_settings(settings, model, corpus)
        if not (train.steps or train.epochs or train.budget):
            per_epoch = self.batches(settings, model, corpus).steps_per_epoch
            train = replace(train, epochs=max(EPOCHS, round(UPDATES * train.accumulate / per_epoch, 1)))
        if train.loss == "pinball" and not model.config.quantiles:
            raise InputError("train.loss = pinball is of quantiles", hint="say which: --set quantiles=0.1,0.5,0.9")
        if train.loss in ("mse", "mae") and model.config.quantiles:
            what = f"train.loss = {train.loss} learns one value, not quantiles"
            raise InputError(what, hint="use train.loss=pinball")
        loss = ("pinball" if model.config.quantiles else "mse") if train.loss == "auto" else train.loss
        return super().complete_settings(replace(settings, train=replace(train, loss=loss)), model, corpus)

    def batches(self, settings: Settings, model: Any, corpus: SeriesCorpus) -> SeriesBatches:
        """Return batches of the windows to learn from."""
        seed = derive(settings.run.seed, "data")
        return SeriesBatches(corpus.train, model.config.mode, corpus.encoding.targets, settings.train.batch, seed)

    def objective(self, settings: Settings, model: Any, corpus: SeriesCorpus) -> Objective:
        """Return the loss of forecasts."""
        return ForecastLoss(settings.train.loss, model.config.quantiles, model.config.mode == "vector")

    def options(self, settings: Settings, model: Any, corpus: SeriesCorpus) -> TrainingOptions:
        """Return the units: batches are made of steps in time."""
        return TrainingOptions(counts="steps", unit=loss_unit(settings.train.loss, settings.data.scale))

    def evaluator(self, settings: Settings, model: Any, corpus: SeriesCorpus) -> Evaluate | None:
        """Return a function that computes the loss of whole horizons on scaled values, the MSE and the MASE."""
        if corpus.choose is None:
            return None
        windows, encoding = corpus.choose, corpus.encoding
        most = settings.data.eval_windows or EVAL_WINDOWS
        if len(windows) > most:
            windows = replace(windows, origins=windows.origins[evenly_spaced(len(windows), most / len(windows))])
        kind, config, scale = settings.train.loss, model.config, encoding.deviation[: encoding.targets]

        def evaluate(stop: Callable[[], bool], ranks: Ranks = SINGLE) -> dict[str, float]:  # every rank reads all
            forecasts, truth, real = forecast_windows(model, windows, encoding, paths=0, report=abandon_when(stop))
            error = np.abs(truth - forecasts[..., config.median_index])
            if kind == "pinball":
                loss = (pinball(truth, forecasts, config.quantiles) / scale[:, None]).mean(-1)
            else:
                loss = (error / scale) ** 2 if kind == "mse" else error / scale
            measures = {"valid_loss": float(mean_of(loss, real)), "mse": float(mean_of(error**2, real))}
            mase = mean_of(error, real, (0, 1)) / np.where(encoding.seasonal > 0, encoding.seasonal, np.nan)
            return measures | ({"mase": float(mase[np.isfinite(mase)].mean())} if np.isfinite(mase).any() else {})

        return evaluate

    def final_figures(
        self, settings: Settings, model: Any, corpus: SeriesCorpus, folder: RunFolder, report: Report
    ) -> dict[str, Any] | None:
        """Return the band of single forecasts, and the figures of a backtest on the held-out part."""
        band = fit_band(model, corpus)
        figures: dict[str, Any] = {"band": band.tolist()} if band is not None else {}
        if corpus.valid is not None:
            report("phase", {"name": "forecasting what is held out"})
            figures |= asdict(backtest(model, corpus.valid, corpus.encoding, band, report))
            report("result", {"mse": figures["mse"], "mae": figures["mae"]})
        return figures or None

    def laws(self, model: Any) -> Iterator[Finding]:
        """Test the laws of forecasters."""
        return forecast_laws(model)


TASK = ForecastTask()
