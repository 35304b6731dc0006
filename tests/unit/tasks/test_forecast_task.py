"""The parts of a series: split in time, scaled by the past alone, windows that never reach into the future."""

import numpy as np
import pytest

from ensue.core.errors import InputError
from ensue.core.events import silent
from ensue.data.series_encoding import SeriesEncoding
from ensue.measure.backtest import forecast_windows
from ensue.runs.build_model import build_model
from ensue.runs.settings_resolution import resolve
from ensue.tasks import forecast


def settings(path, system="linear", **layer):
    return resolve(system, task="forecast", layers=[{"data.files": (str(path),), **layer}])


def series(tmp_path, steps=200, name="s.csv"):
    path = tmp_path / name
    rows = [f"{n + (1000 if n >= 140 else 0)},{n % 7}\n" for n in range(steps)]
    path.write_text("x,y\n" + "".join(rows), encoding="utf-8")
    return path


def test_each_series_is_split_in_time(tmp_path):
    corpus = forecast.TASK.read_corpus(settings(series(tmp_path), window=10, horizon=5), None, silent)
    train, choose, valid = corpus.train.origins, corpus.choose.origins, corpus.valid.origins
    assert (train[0], train[-1]) == (10, 140 - 5)
    assert (choose[0], choose[-1]) == (140, 160 - 5)
    assert (valid[0], valid[-1]) == (160, 200 - 5)


def test_the_scale_is_fitted_to_the_training_part_only(tmp_path):
    corpus = forecast.TASK.read_corpus(settings(series(tmp_path), window=10, horizon=5), None, silent)
    assert corpus.encoding.mean[0] == pytest.approx(np.arange(140).mean())
    assert corpus.encoding.deviation[0] == pytest.approx(np.arange(140).std())
    plain = forecast.TASK.read_corpus(settings(series(tmp_path), window=10, **{"data.scale": "none"}), None, silent)
    assert plain.encoding.mean.tolist() == [0, 0] and plain.encoding.deviation.tolist() == [1, 1]


def test_held_out_values_do_not_change_the_training_part(tmp_path):
    path = series(tmp_path)
    before = forecast.TASK.read_corpus(settings(path, window=10), None, silent)
    lines = path.read_text().splitlines()
    path.write_text("\n".join([*lines[:161], *("5555,9" for _ in lines[161:])]) + "\n")
    after = forecast.TASK.read_corpus(settings(path, window=10), None, silent)
    rows = before.train.values[:160], after.train.values[:160]
    assert np.array_equal(*rows) and np.array_equal(before.train.origins, after.train.origins)
    assert before.hash != after.hash


def test_the_error_for_a_short_series_names_its_length_and_the_length_needed(tmp_path):
    path = series(tmp_path, 40)
    with pytest.raises(
        InputError, match=r"s\.csv: there are 28 steps to learn from, fewer than a window of 50 and a horizon of 3"
    ):
        forecast.TASK.read_corpus(settings(path, window=50, horizon=3), None, silent)


def test_waves_are_split_by_series_and_not_scaled():
    corpus = forecast.TASK.read_corpus(
        resolve("linear", preset="waves", layers=[{"data.files": ("waves",)}]), None, silent
    )
    assert [len(part) for part in (corpus.train, corpus.choose, corpus.valid)] == [7_000, 2_000, 1_000]
    assert corpus.encoding.window == 50 and corpus.encoding.mean.tolist() == [0]
    assert corpus.train.values.dtype == np.float32 and corpus.valid.origins[-1] == 10_000 * 51 - 1


def test_the_model_has_an_input_for_each_column(tmp_path):
    chosen = settings(series(tmp_path), window=10, horizon=5, **{"data.target": "y", "data.covariates": "all"})
    corpus = forecast.TASK.read_corpus(chosen, None, silent)
    model = build_model(chosen, corpus)
    assert corpus.encoding.names == ("y", "x") and corpus.encoding.targets == 1
    assert sum(p.numel() for p in model.parameters()) == 2 * 10 * 5 + 5
    assert forecast.TASK.complete_settings(chosen, model, corpus).train.epochs >= 20


def test_an_encoding_survives_json(tmp_path):
    corpus = forecast.TASK.read_corpus(settings(series(tmp_path)), None, silent)
    again = SeriesEncoding.from_dict(corpus.encoding.as_dict())
    assert again.as_dict() == corpus.encoding.as_dict()


@pytest.mark.parametrize(
    ("layer", "says"),
    [
        ({"mode": "vectr"}, "mode = 'vectr' must be one of vector, sequence, step"),
        ({"quantiles": "0.1,0.9"}, "with 0.5 among them"),
        ({"quantiles": "0.9,0.5"}, "each larger than the one before"),
        ({"quantiles": "low"}, "must be a list"),
        ({"horizon": 0}, "horizon = 0 must be at least 1"),
        ({"data.order": "up"}, "error or sort"),
        ({"data.holdout": 0.6, "data.choose": 0.5}, "data.holdout leaves"),
        ({"tokenizer.kind": "word"}, "setting 'tokenizer.kind' is for .*; forecast learns from series"),
        ({"hiden": 3}, "unknown setting 'hiden'"),
    ],
)
def test_wrong_settings_are_refused(layer, says):
    with pytest.raises(InputError, match=says):
        resolve("lstm", task="forecast", layers=[layer])


def test_systems_that_do_not_forecast_say_which_do():
    with pytest.raises(InputError, match="bert cannot be trained to forecast; use last, seasonal, linear, rnn"):
        resolve("bert", task="forecast", layers=[{}])


@pytest.mark.parametrize(
    "system", forecast_systems := ("last", "seasonal", "linear", "rnn", "gru", "gru-cho", "lstm", "gpt")
)
def test_every_preset_resolves(system):
    from ensue.models.table import FORECASTERS

    assert set(forecast_systems) == set(FORECASTERS)
    for preset in FORECASTERS.load(system).presets:
        chosen = resolve(system, task="forecast", preset=preset, layers=[{}])
        assert chosen.run.preset == preset and "horizon = 1" in chosen.toml()


def test_a_folder_of_that_name_does_not_hide_the_built_in_waves(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "waves").mkdir()
    assert forecast.is_waves(["waves"])
    (tmp_path / "waves").rmdir()
    (tmp_path / "waves").write_text("x\n1\n", encoding="utf-8")
    assert not forecast.is_waves(["waves"])


def months(tmp_path, rows):
    path = tmp_path / "months.csv"
    lines = [f"{1990 + n // 12}-{n % 12 + 1:02},{n % 12}\n" for n in range(rows)]
    path.write_text("when,x\n" + "".join(lines), encoding="utf-8")
    return path


def test_the_window_of_seasonal_covers_a_season(tmp_path):
    path = months(tmp_path, 40)
    assert forecast.TASK.read_corpus(settings(path), None, silent).encoding.window == 9
    chosen = settings(path, "seasonal")
    corpus = forecast.TASK.read_corpus(chosen, None, silent)
    assert corpus.encoding.window == 12
    found, truth, _ = forecast_windows(build_model(chosen, corpus), corpus.valid, corpus.encoding)
    assert found[..., 0] == pytest.approx(truth, abs=1e-5)
    short = settings(path, "seasonal", window=6)
    with pytest.raises(InputError, match="window = 6 must be at least season = 12"):
        build_model(short, forecast.TASK.read_corpus(short, None, silent))


def test_a_part_of_gaps_is_found_before_training(tmp_path):
    path, notes = tmp_path / "gaps.csv", []
    path.write_text("n,x\n" + "".join(f"{n},{n if n < 140 else ''}\n" for n in range(200)), encoding="utf-8")
    chosen = settings(path, window=10, **{"data.target": "x"})
    corpus = forecast.TASK.read_corpus(chosen, None, lambda kind, values: notes.append(values.get("text", "")))
    assert corpus.choose is None and corpus.valid is None
    assert "the part held out is all gaps, and is not used" in notes
    path.write_text("n,x\n" + "".join(f"{n},{n if n >= 140 else ''}\n" for n in range(200)), encoding="utf-8")
    with pytest.raises(InputError, match="nothing to learn from: every number to forecast is a gap"):
        forecast.TASK.read_corpus(chosen, None, silent)


def test_the_band_is_fitted_without_a_held_out_part(tmp_path):
    chosen = settings(series(tmp_path), "last", window=10, **{"data.holdout": 0.0})
    corpus = forecast.TASK.read_corpus(chosen, None, silent)
    figures = forecast.TASK.final_figures(chosen, build_model(chosen, corpus), corpus, None, silent)
    assert corpus.valid is None and list(figures) == ["band"]


def test_progress_counts_steps_and_the_loss_has_a_unit(tmp_path):
    chosen = settings(series(tmp_path), window=10, **{"train.loss": "mae"})
    options = forecast.TASK.options(chosen, None, None)
    assert (options.counts, options.unit) == ("steps", "deviations of the past")


def test_a_file_to_score_that_is_too_short_is_refused(tmp_path):
    short = series(tmp_path, 12, "short.csv")
    chosen = settings(series(tmp_path), window=10, horizon=5, **{"data.valid": (str(short),)})
    says = r"short\.csv: there are 12 steps to score, fewer than a window of 10 and a horizon of 5"
    with pytest.raises(InputError, match=says):
        forecast.TASK.read_corpus(chosen, None, silent)


def test_waves_beyond_any_memory_are_refused():
    with pytest.raises(
        InputError, match="waves: a horizon of 100,000,000,000,000,000 is too long; at most 10,000 steps"
    ):
        forecast.TASK.read_corpus(
            resolve("linear", preset="waves", layers=[{"data.files": ("waves",), "horizon": 10**17}]), None, silent
        )


def test_waves_are_not_read_beside_files(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InputError, match="waves: is a corpus of its own"):
        forecast.TASK.read_corpus(settings("waves", **{"data.files": ("waves", str(series(tmp_path)))}), None, silent)
