"""Forecasting: series in, a model of what comes next out.

Time is split, never mixed: each series is learnt from up to a moment, chooses among weights for a while, and is held
out from then on. What is scaled is scaled by the part to learn from alone.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from ensue.core.errors import InputError
from ensue.core.events import Report, report_notes
from ensue.core.run_folder import RunFolder
from ensue.core.seeds import derive
from ensue.core.settings import check, check_below_one
from ensue.core.wording import counted
from ensue.data.series import Series, array_digest, read_series
from ensue.data.series_columns import SeriesOptions
from ensue.data.series_windows import SeriesBatches, SeriesWindows
from ensue.data.splitting import evenly_spaced
from ensue.data.waves import PAST_STEPS, TRAIN_END, VALID_END, WAVES, waves
from ensue.measure.forecast import error_band, mean_of, pinball
from ensue.models.forecast_laws import forecast_laws
from ensue.models.table import FORECASTERS
from ensue.tasks.machine import fill_common
from ensue.tasks.series_encoding import (
    LEVELS,
    Form,
    check_long_enough,
    fitted_form,
    forecasts_of,
    origins_of,
    scored,
    windows_hash,
)
from ensue.tasks.settings import Settings
from ensue.tasks.spec import Measure, RaceSpec, TaskSpec, TrainingOptions
from ensue.train.forecast_objectives import ForecastLoss, loss_unit
from ensue.train.objectives import Objective
from ensue.train.ranks import SINGLE, Evaluate, Ranks
from ensue.train.settings import ForecastTrainSettings

EVAL_WINDOWS = 2000
EPOCHS, UPDATES = 20.0, 1000
"""How long is trained where nothing says so: so many epochs, and at least so many updates."""
LEAST_ERRORS = 50
"""A band is made of at least so many errors, of windows that were learnt from where there are too few others."""
LONGEST = 336
"""The longest window that is chosen by itself."""


@dataclass(frozen=True, kw_only=True, slots=True)
class SeriesSettings:
    """Where series come from, under ``data.`` in run.toml."""

    files: tuple[str, ...] = ()
    """The series to learn from: tables of numbers, a step a line, - for standard input, or the corpus waves."""
    valid: tuple[str, ...] = ()
    """Series to hold out; where there are none, the end of each series is held out."""
    target: tuple[str, ...] = ()
    """Which columns are forecast, by name or number; empty means all that hold numbers."""
    covariates: tuple[str, ...] = ()
    """Which columns are read beside the targets; empty means none, all means all others that hold numbers."""
    date: str = ""
    """The column of dates; empty means as it is found, none means that there is none."""
    id: str = ""
    """The column that says of which series a row is; empty means that a file is one series."""
    order: str = "error"
    """What dates out of order are: an error, or sorted (sort)."""
    fill: str = "forward"
    """How gaps are filled before they are read: forward, or interpolate (which looks ahead). No loss counts them."""
    scale: str = "standard"
    """How numbers are scaled: standard (mean 0 and deviation 1 of each column on the past to learn from), or none."""
    centre: str = "last"
    """What is subtracted from each window and added to its forecast: its last value, its mean, or none."""
    holdout: float = 0.2
    """The share of each series, at its end, that is held out and scored; 0 holds out nothing."""
    choose: float = 0.1
    """The share before it that chooses among weights and says how wide bands are; 0 means none."""
    eval_windows: int = 0
    """How many windows of that share are looked at during training; 0 means 2,000."""
    hash: str = ""
    """Of the numbers trained on; a resumed run must find the same."""

    def __post_init__(self) -> None:
        check_below_one(self, "holdout", "choose")
        check(self, "choose", self.holdout + self.choose < 1, "less than what data.holdout leaves")
        check(self, "order", self.order in ("error", "sort"), "error or sort")
        check(self, "fill", self.fill in ("forward", "interpolate"), "forward or interpolate")
        check(self, "scale", self.scale in ("standard", "none"), "standard or none")
        check(self, "centre", self.centre in ("last", "mean", "none"), "last, mean or none")
        check(self, "eval_windows", self.eval_windows >= 0, "0 or more")


@dataclass(frozen=True)
class Corpus:
    """Windows to learn from, to choose among weights with, and to score."""

    series: Series
    form: Form
    train: SeriesWindows
    choose: SeriesWindows | None
    valid: SeriesWindows | None
    held: Series
    """The series that ``valid`` is of."""

    @property
    def hash(self) -> str:
        """Of all numbers, and where each part of them begins."""
        parts = [part.origins for part in (self.train, self.choose, self.valid) if part is not None]
        return array_digest(self.series.values, self.series.observed, self.held.values, *parts)


def read_corpus(settings: Settings, folder: RunFolder | None, report: Report) -> Corpus:
    """The run's series as windows."""
    report("phase", {"name": "reading the series"})
    data, notes = settings.data, list[str]()
    series = series_in(data.files, wanted_of(data), notes, settings.model["horizon"])
    held = series
    if data.valid:
        same = replace(
            wanted_of(data),
            targets=series.names[: series.targets],
            covariates=series.names[series.targets :],
        )
        held = series_in(data.valid, same, notes, settings.model["horizon"])
    report_notes(notes, "and {} more notes", report)
    if is_waves(data.files):
        return _waves_corpus(settings, series)
    return _split_corpus(settings, series, held, report)


def wanted_of(data: SeriesSettings) -> SeriesOptions:
    """What a table is read for."""
    return SeriesOptions(
        targets=data.target, covariates=data.covariates, date=data.date, key=data.id, order=data.order, fill=data.fill
    )


def is_waves(files: Any) -> bool:
    """Whether the built-in corpus is meant."""
    return tuple(map(str, files)) == (WAVES,) and not Path(WAVES).is_file()


def series_in(files: Any, wanted: SeriesOptions, notes: list[str], horizon: int) -> Series:
    """The series of files, or of the built-in corpus."""
    if WAVES in map(str, files) and len(files) > 1 and not Path(WAVES).exists():
        raise InputError("is a corpus of its own, and is not read beside files", where=WAVES, hint="name it alone")
    if not is_waves(files):
        return read_series(list(files), wanted, notes)
    if wanted.targets not in ((), ("x",)) or wanted.key:
        raise InputError("has one column, x, and 10,000 series", where=WAVES, hint="leave out --target and data.id")
    held = waves(horizon)
    at = np.arange(len(held) + 1) * held.shape[1]
    values = held.reshape(-1, 1).astype(np.float64)
    return Series(("x",), 1, values, np.ones_like(values, dtype=bool), at, tuple(str(n) for n in range(len(held))))


def _waves_corpus(settings: Settings, series: Series) -> Corpus:
    """The parts of ``waves``: each series is one window."""
    model, data = settings.model, settings.data
    window = model["window"] or PAST_STEPS
    if window > PAST_STEPS:
        raise InputError(f"a window of {window} is longer than the {PAST_STEPS} steps of the past", where=WAVES)
    starts = series.starts[:-1]
    learnt = [(int(start), int(start) + PAST_STEPS) for start in starts[:TRAIN_END]]
    form = fitted_form(series, learnt, data.scale, data.centre, model["season"] or 1, window, model["horizon"])
    origins = starts + PAST_STEPS
    parts = (origins[:TRAIN_END], origins[TRAIN_END:VALID_END], origins[VALID_END:])
    train, choose, valid = (form.windows(series, part) for part in parts)
    return Corpus(series, form, train, choose, valid, series)


def _split_corpus(settings: Settings, series: Series, held: Series, report: Report) -> Corpus:
    """Each series in parts of time: to learn from, to choose with, held out."""
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
    form = fitted_form(series, learnt, data.scale, data.centre, season, window, horizon)
    named = zip(series.keys or ("",), splits)
    form = replace(form, learnt=tuple((key, c - a, windows_hash(series, a, c - a)) for key, (a, _, c, _) in named))
    many = [
        (
            origins_of(a, a, b, window, horizon),
            origins_of(a, b, c, window, horizon),
            origins_of(a, c, d, window, horizon),
        )
        for a, b, c, d in splits
    ]
    train, choose, valid = (np.concatenate([one[part] for one in many]) for part in range(3))
    if held is not series:
        valid = np.concatenate([origins_of(a, a, b, window, horizon) for a, b in held.spans()])
        check_long_enough(held, window, horizon, ", ".join(map(str, data.valid)), "to score")
    _tell_short(series, many, window, horizon, report)
    report("note", {"text": f"a window of {window:,}, {counted(horizon, 'step')} ahead, a season of {season:,}"})
    if not _any_real(series, train, horizon):
        raise InputError("there is nothing to learn from: every number to forecast is a gap", where=where)
    chooses = _any_real(series, choose, horizon)
    scores = _any_real(held, valid, horizon)
    for origins, usable, what in ((choose, chooses, "that chooses weights"), (valid, scores, "held out")):
        if len(origins) and not usable:
            report("note", {"text": f"the part {what} is all gaps, and is not used"})
    return Corpus(
        series,
        form,
        form.windows(series, train),
        form.windows(series, choose) if chooses else None,
        form.windows(held, valid) if scores else None,
        held,
    )


def _any_real(series: Series, origins: np.ndarray, horizon: int) -> bool:
    """Whether any number that is forecast from these origins was there."""
    there = np.concatenate([[0], np.cumsum(series.observed[:, : series.targets].any(axis=1))])
    return bool((there[origins + horizon] > there[origins]).any())


def _tell_short(series: Series, many: list[Any], window: int, horizon: int, report: Report) -> None:
    """Say which series are too short to learn from."""
    short = [key for key, (train, _, _) in zip(series.keys, many) if not len(train)]
    if short:
        shown = ", ".join(short[:5]) + (", …" if len(short) > 5 else "")
        least = f"the {window + horizon:,} steps that learning needs"
        report("note", {"text": f"{len(short):,} series shorter than {least}: {shown}"})


def _suitable_window(season: int, horizon: int, longest: int) -> int:
    """Some seasons and some horizons, a third of what there is at most, and no more than ``LONGEST``.

    >>> _suitable_window(24, 24, 12_000), _suitable_window(12, 12, 100), _suitable_window(1, 1, 500)
    (168, 29, 24)
    """
    wish = min(LONGEST, max(7 * season if season >= 7 else 4 * season, 2 * horizon, 24))
    return max(1, min(wish, (longest - horizon) // 3))


def model_settings(settings: Settings, corpus: Corpus) -> dict[str, Any]:
    """What the series say of a model."""
    form = corpus.form
    return {"inputs": len(form.names), "targets": form.targets, "window": form.window, "season": form.season}


def complete_settings(settings: Settings, model: Any, corpus: Corpus) -> Settings:
    """The settings with everything that was left to us filled in."""
    train = settings.train
    if not (train.steps or train.epochs or train.budget or hasattr(model, "counter")):
        per_epoch = batches(settings, model, corpus).steps_per_epoch
        train = replace(train, epochs=max(EPOCHS, round(UPDATES * train.accumulate / per_epoch, 1)))
    if train.loss == "pinball" and not model.config.quantiles:
        raise InputError("train.loss = pinball is of quantiles", hint="say which: --set quantiles=0.1,0.5,0.9")
    if train.loss in ("mse", "mae") and model.config.quantiles:
        raise InputError(f"train.loss = {train.loss} learns one value, not quantiles", hint="use train.loss=pinball")
    loss = ("pinball" if model.config.quantiles else "mse") if train.loss == "auto" else train.loss
    return fill_common(replace(settings, train=replace(train, loss=loss)))


def options(settings: Settings, model: Any, corpus: Corpus) -> TrainingOptions:
    """All layers learn alike, and the loss chooses; what is read are steps in time."""
    return TrainingOptions(counts="steps", unit=loss_unit(settings.train.loss, settings.data.scale))


def batches(settings: Settings, model: Any, corpus: Corpus) -> SeriesBatches:
    """The windows to learn from, as batches."""
    seed = derive(settings.run.seed, "data")
    return SeriesBatches(corpus.train, model.config.mode, corpus.form.targets, settings.train.batch, seed)


def objective(settings: Settings, model: Any, corpus: Corpus) -> Objective:
    """What training asks of the model."""
    return ForecastLoss(settings.train.loss, model.config.quantiles, model.config.mode == "vector")


def evaluator(settings: Settings, model: Any, corpus: Corpus) -> Evaluate | None:
    """What the loop calls to see how the model does: whole horizons, in units of the scale."""
    windows = corpus.choose
    if windows is None:
        return None
    most, form = settings.data.eval_windows or EVAL_WINDOWS, corpus.form
    if len(windows) > most:
        windows = replace(windows, origins=windows.origins[evenly_spaced(len(windows), most / len(windows))])
    kind, config = settings.train.loss, model.config

    def evaluate(stop: Callable[[], bool], ranks: Ranks = SINGLE) -> dict[str, float]:  # all read all
        found, truth, real = forecasts_of(model, windows, form, paths=0, stop=stop)
        scale = form.deviation[: form.targets]
        error = np.abs(truth - found[..., config.median_index])
        if kind == "pinball":
            loss = (pinball(truth, found, config.quantiles) / scale[:, None]).mean(-1)
        else:
            loss = (error / scale) ** 2 if kind == "mse" else error / scale
        measures = {"valid_loss": float(mean_of(loss, real)), "mse": float(mean_of(error**2, real))}
        known = np.where(form.seasonal > 0, form.seasonal, np.nan)
        mase = mean_of(error, real, (0, 1)) / known
        return measures | ({"mase": float(mase[np.isfinite(mase)].mean())} if np.isfinite(mase).any() else {})

    return evaluate


def final_figures(
    settings: Settings, model: Any, corpus: Corpus, folder: RunFolder, report: Report
) -> dict[str, Any] | None:
    """A backtest on what is held out, and how wide a band of single forecasts is, by what came before it."""
    band = band_of(model, corpus)
    figures: dict[str, Any] = {"band": band.tolist()} if band is not None else {}
    if corpus.valid is not None:
        report("phase", {"name": "forecasting what is held out"})
        figures |= asdict(scored(model, corpus.valid, corpus.form, band, report))
        report("result", {"mse": figures["mse"], "mae": figures["mae"]})
    return figures or None


def band_of(model: Any, corpus: Corpus) -> np.ndarray | None:
    """How far from a single forecast the quantiles of what comes lie, by windows that were not learnt from."""
    if model.config.quantiles or corpus.choose is None:
        return None
    windows, few = corpus.choose, LEAST_ERRORS - len(corpus.choose)
    if few > 0:  # errors on what was learnt from are too small, but none at all are worse
        last = np.concatenate([corpus.train.origins[-few:], windows.origins])
        windows = replace(windows, origins=last)
    found, truth, real = forecasts_of(model, windows, corpus.form)
    return error_band(truth - found[..., 0], real, LEVELS)


def describe_corpus(corpus: Corpus) -> dict[str, Any]:
    """Facts of the series for the model card, and what a run must know to read others."""
    held = {"train": corpus.train, "choose": corpus.choose, "valid": corpus.valid}
    return {
        "series": max(1, len(corpus.series.keys)),
        "rows": len(corpus.series),
        **{f"{name}_windows": len(part) if part is not None else 0 for name, part in held.items()},
        "gaps": int((~corpus.series.observed).sum()),
        "form": corpus.form.as_dict(),
    }


def race_heading(facts: Mapping[str, Any]) -> str:
    """The first line of race.md: the data, how far ahead, and how many windows."""
    form = facts["form"]
    ahead = f"{form['horizon']:,} steps ahead of {', '.join(form['names'][: form['targets']])}"
    windows = f"{facts['train_windows']:,} windows, {facts['valid_windows']:,} held out"
    return f"{', '.join(facts['data'])}: {ahead}; {windows}"


def race_facts(corpus: Corpus, facts: dict[str, Any]) -> dict[str, Any]:
    """The description of a corpus without what is as long as there are series."""
    return {**facts, "form": {name: value for name, value in facts["form"].items() if name != "learnt"}}


TASK = TaskSpec(
    name="forecast",
    data="series",
    settings={"train": ForecastTrainSettings, "data": SeriesSettings},
    run="ensue.runs.forecast:ForecastRun",
    systems=FORECASTERS,
    default_system="lstm",
    example_file="my.csv",
    preset=lambda preset, recipe, initialised: dict(preset),
    budget=0.0,
    read_corpus=read_corpus,
    save_tokenizers=lambda corpus, folder: None,
    describe_corpus=describe_corpus,
    model_settings=model_settings,
    complete_settings=complete_settings,
    batches=batches,
    objective=objective,
    evaluator=evaluator,
    options=options,
    final_figures=final_figures,
    laws=forecast_laws,
    short_evaluation="data.eval_windows=50",
    race=RaceSpec(
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
    ),
)
