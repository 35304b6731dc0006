"""Forecasting as people type it: fit, predict, score, look, race, resume; and bad input."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from test_bad_input import contents
from typed import ensue

from ensue.core.files import sha256
from ensue.runs.load import load
from ensue.verbs.fit import fit

BRIEF = ("--set", "train.steps=6", "--set", "train.eval_every=3", "--set", "train.checkpoint_every=2")
SMALL = (*BRIEF, "--set", "hidden=8", "--set", "window=12")


def table(rows=160, broken=()):
    """A daily series with a week in it, and a covariate; ``broken`` replaces lines."""
    days = np.datetime64("2020-01-01") + np.arange(rows)
    lines = [f"{day},{10 + 3 * np.sin(n * 2 * np.pi / 7) + n / 50:.3f},{n % 5}" for n, day in enumerate(days)]
    for number, text in broken:
        lines[number] = text
    return "day,OT,load\n" + "\n".join(lines) + "\n"


@pytest.fixture(scope="session")
def files(tmp_path_factory):
    folder = tmp_path_factory.mktemp("series")
    (folder / "my.csv").write_text(table(), encoding="utf-8")
    (folder / "longer.csv").write_text(table(200), encoding="utf-8")
    return folder


@pytest.fixture(scope="session")
def forecasters(tmp_path_factory, files):
    """Runs of a few kinds; tests that change one copy it first."""
    folder = tmp_path_factory.mktemp("forecasters")
    for name, words in {
        "lstm": ("--model", "lstm", "--target", "OT", "--horizon", "7", "--set", "data.covariates=load", *SMALL),
        "step": ("--model", "gru", "--target", "OT", "--set", "mode=step", "--set", "quantiles=0.1,0.5,0.9", *SMALL),
        "gpt": ("--model", "gpt", "--horizon", "3", "--set", "heads=2", "--set", "mode=sequence", *SMALL),
        "linear": ("--model", "linear", "--target", "OT", "--horizon", "7", *BRIEF),
        "seasonal": ("--model", "seasonal", "--target", "OT", "--horizon", "7"),
    }.items():
        answer = ensue("fit", "forecast", files / "my.csv", *words, "--out", folder / name, "--json")
        assert answer.code == 0, answer.err
        assert {"mse", "mae", "mase", "pinball", "by_step"} <= answer.json["valid"].keys()
    return folder


def test_the_reading_of_a_table_is_reported(files):
    words = ("fit", "forecast", files / "my.csv", "--model", "last", "--target", "OT", "--horizon", "7")
    answer = ensue(*words, "--set", "data.covariates=all", "--out", "beside")
    assert "dates in 'day' (daily); to forecast: OT; covariates: load" in answer.err
    answer = ensue(*words, "--out", "r")
    assert "dates in 'day' (daily); to forecast: OT; left out: load" in answer.err
    assert "7 steps ahead, a season of 7" in answer.err
    assert answer.out.startswith("last in r: 0 passes, 0 parameters") and "MASE" in answer.out


def test_a_run_says_all_about_itself(forecasters):
    folder = forecasters / "lstm"
    text = (folder / "run.toml").read_text()
    assert 'task = "forecast"' in text and "horizon = 7" in text and 'target = ["OT"]' in text and "season = 7" in text
    card = (folder / "README.md").read_text()
    assert "# lstm to forecast" in card and "| MASE |" in card and "windows of 12 steps, 7 ahead, of OT" in card
    metrics = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    assert metrics[-1]["step"] == 6 and "loss" in metrics[-1] and "valid_loss" in metrics[-1]


@pytest.mark.parametrize(("name", "horizon"), [("lstm", 7), ("step", 1), ("gpt", 3), ("linear", 7), ("seasonal", 7)])
def test_predict_continues_from_the_end(forecasters, files, name, horizon):
    found = ensue("predict", forecasters / name, files / "my.csv", "--json").json
    lines = found["predictions"]
    assert [line["step"] for line in lines] == list(range(1, horizon + 1))
    assert lines[0]["date"] == "2020-06-09"  # the series ends on the day before
    assert {"OT"} <= lines[0]["forecast"].keys()
    low, high = (lines[0]["quantiles"]["OT"][level] for level in ("0.1", "0.9"))
    assert low <= lines[0]["forecast"]["OT"] <= high
    shown = ensue("predict", forecasters / name, files / "my.csv").out
    assert shown.startswith("step") and "2020-06-09" in shown


def test_a_longer_horizon_is_iterated(forecasters, files):
    found = ensue("predict", forecasters / "step", files / "my.csv", "--horizon", "20", "--json").json["predictions"]
    assert len(found) == 20 and found[-1]["date"] == "2020-06-28"
    refusal = ensue("predict", forecasters / "lstm", files / "my.csv", "--horizon", "20")
    assert refusal.code == 2 and "20 steps are more than the model's horizon of 7" in refusal.err
    further = ensue("predict", forecasters / "linear", files / "my.csv", "--horizon", "9", "--json").json
    assert "there are no quantiles beyond the 7 steps" in further["notes"][-1]
    assert "quantiles" not in further["predictions"][0]
    seasonal = ensue("predict", forecasters / "seasonal", files / "my.csv", "--json").json["predictions"]
    past = table().splitlines()[-7:]
    assert [line["forecast"]["OT"] for line in seasonal] == pytest.approx([float(row.split(",")[1]) for row in past])


def test_score_is_a_backtest_of_what_was_held_out(forecasters, files):
    trained = load(forecasters / "lstm").config["figures"]["valid"]
    answer = ensue("score", forecasters / "lstm", files / "my.csv", "--json").json
    assert answer["origins"] == trained["origins"] == 32 - 7 + 1
    assert answer["mse"] == pytest.approx(trained["mse"], rel=1e-6) and len(answer["by_step"]) == 7
    longer = ensue("score", forecasters / "lstm", files / "longer.csv", "--json").json
    assert longer["origins"] == 40 + 32 - 7 + 1  # what was learnt from is left out here too
    assert "origins" in ensue("score", forecasters / "lstm", files / "my.csv").out
    again = load(forecasters / "gpt").score(files / "my.csv").as_dict()
    assert [row["target"] for row in again["by_target"]] == ["OT", "load"]


def test_seasonal_forecasts_of_a_season_are_nearly_right(forecasters):
    assert load(forecasters / "seasonal").config["figures"]["valid"]["mase"] == pytest.approx(1, abs=0.05)


def test_look_draws_past_forecast_band_and_truth(forecasters, files):
    answer = ensue("look", "forecast", forecasters / "lstm", "--out", "chart.html", "--json")
    (panel,) = answer.json["panels"]
    assert len(panel["forecast"]) == len(panel["truth"]) == 7 and len(panel["past"]) == 21
    assert panel["truth"][-1]["at"] == "2020-06-08T00:00:00"
    assert all(point["low"] <= point["value"] <= point["high"] for point in panel["forecast"])
    assert "<script" in Path("chart.html").read_text()
    many = ensue(
        "look", "forecast", forecasters / "gpt", "--data", files / "longer.csv", "--out", "c.json", "--json"
    ).json
    assert [panel["title"] for panel in many["panels"]] == ["OT", "load"]
    one = ensue("look", "forecast", forecasters / "gpt", "--target", "load", "--out", "c.png", "--json").json
    assert [panel["title"] for panel in one["panels"]] == ["load"]


def test_a_race_of_forecasters(files):
    words = ("--task", "forecast", "--target", "OT", "--horizon", "7", "--systems", "last,seasonal,linear,lstm")
    more = (
        "--set",
        "train.steps=5",
        "--set",
        "lstm.hidden=8",
        "--set",
        "window=14",
        "--budget",
        "20s",
        "--out",
        "race",
    )
    answer = ensue("race", files / "my.csv", *words, *more)
    assert answer.code == 0, answer.err
    result = json.loads(Path("race/race.json").read_text())
    assert {one["system"] for one in result["systems"]} == {"last", "seasonal", "linear", "lstm"}
    values = [one["mase"] for one in result["systems"]]
    assert values == sorted(values) and {"mse", "mae", "seconds", "parameters", "bytes"} <= result["systems"][0].keys()
    assert "7 steps ahead of OT" in Path("race/race.md").read_text()


def test_training_resumes_to_the_bit(files, tmp_path):
    how = {"hidden": 8, "window": 12, "horizon": 3, "dropout": 0.3, "layers": 2, "train.checkpoint_every": 3}
    whole = fit("forecast", files / "my.csv", model="lstm", out="whole", settings={**how, "train.steps": 9})

    class Stop(Exception):
        pass

    def stop(kind, values):
        if kind == "step" and values["step"] == 5:
            raise Stop

    with pytest.raises(Stop):
        fit("forecast", files / "my.csv", model="lstm", out="cut", settings={**how, "train.steps": 9}, report=stop)
    again = fit("", out="cut", resume=True)
    assert sha256(again.folder.weights) == sha256(whole.folder.weights)
    shutil.copy(files / "my.csv", "mine.csv")
    fit("forecast", "mine.csv", model="linear", out="other", settings={"train.steps": 2})
    (tmp_path / "other" / "config.json").unlink()
    (tmp_path / "mine.csv").write_text(table(100))
    answer = ensue("fit", "other", "--resume")
    assert answer.code == 2 and "has changed since this run started" in answer.err


def test_a_run_can_begin_with_another(forecasters, files):
    answer = ensue(
        "fit",
        "forecast",
        files / "longer.csv",
        "--target",
        "OT",
        "--from",
        forecasters / "lstm",
        "--set",
        "data.covariates=load",
        *BRIEF,
        "--out",
        "tuned",
        "--json",
    )
    assert answer.code == 0 and answer.json["system"] == "lstm"


def test_waves_have_settings_of_their_own():
    answer = ensue(
        "fit",
        "forecast",
        "waves",
        "--model",
        "rnn",
        "--set",
        "train.epochs=0",
        "--set",
        "train.steps=3",
        "--out",
        "w",
        "--json",
    )
    assert answer.code == 0, answer.err
    assert answer.json["parameters"] == 1_281 and answer.json["valid"]["origins"] == 1_000
    assert load("w").settings["preset"] == "waves"
    assert ensue("score", "w", "waves", "--json").json["mse"] == pytest.approx(answer.json["valid"]["mse"])


def test_laws_and_views_of_systems(forecasters):
    assert ensue("check", forecasters / "step", "--json").json["kept"]
    assert "forecasts" in ensue("systems", "seasonal").out
    for word in (("generate",), ("next", "x"), ("fill", "x")):
        refusal = ensue(word[0], forecasters / "lstm", *word[1:])
        assert refusal.code == 2 and "cannot" in refusal.err and refusal.err.count("\n") == 1


BAD = [
    (table(broken=[(9, "2020-01-10,oops,4")]), (), "bad.csv:11, column 'OT': 'oops' is not a number"),
    (table(broken=[(9, "2019-01-10,1,4")]), (), "bad.csv:11: the date 2019-01-10"),
    (table(30), ("--set", "window=50"), "fewer than a window of 50 and a horizon of 1"),
    (table(), ("--target", "OTT"), "unknown column 'OTT'; did you mean 'OT'"),
    (table(), ("--target", "day"), "'day' cannot be forecast"),
    (table(), ("--model", "bert"), "bert cannot be trained to forecast"),
    (table(), ("--model", "last", "--set", "quantiles=0.1,0.5"), "a repeated value has no quantiles"),
    (table(), ("--set", "train.loss=pinball"), "say which: --set quantiles"),
    (table(), ("--tokenizer", "word"), "forecast learns from series"),
    ("", (), "the file is empty"),
]


@pytest.mark.parametrize(("text", "words", "says"), BAD)
def test_bad_input_is_one_line_and_leaves_nothing(text, words, says, tmp_path):
    (tmp_path / "bad.csv").write_text(text, encoding="utf-8")
    before = contents(".")
    answer = ensue("fit", "forecast", "bad.csv", *words, "--out", "run")
    last = answer.err.splitlines()[-1]
    assert answer.code == 2 and last.startswith("ensue: ") and says in last
    assert contents(".") == before


def test_series_too_short_for_a_window_are_left_out_and_told(files):
    rows = [line.split(",") for line in table().splitlines()[1:]]
    many = [f"{day},{name},{value}" for name, own in (("a", rows), ("b", rows[:5])) for day, value, _ in own]
    Path("many.csv").write_text("day,id,OT\n" + "\n".join(many) + "\n", encoding="utf-8")
    words = ("--model", "last", "--set", "data.id=id", "--set", "window=12", "--out", "run")
    assert ensue("fit", "forecast", "many.csv", *words).code == 0
    answer = ensue("predict", "run", "many.csv", "--json")
    assert answer.code == 0 and [line["series"] for line in answer.json["predictions"]] == ["a"]
    assert any("series 'b': 5 steps, fewer than the window of 12: left out" in n for n in answer.json["notes"])


def test_a_race_on_a_series_that_never_changes_says_why_there_is_no_figure():
    Path("flat.csv").write_text("x\n" + "5\n" * 60, encoding="utf-8")
    answer = ensue("race", "flat.csv", "--task", "forecast", "--systems", "last", "--out", "race")
    assert answer.code == 2 and "the held-out data gives no MASE" in answer.out + answer.err
    assert "every system failed" in answer.err.splitlines()[-1]


def test_what_a_forecaster_cannot_do_is_refused(forecasters, files, tmp_path):
    (tmp_path / "short.csv").write_text(table(8), encoding="utf-8")
    answer = ensue("predict", forecasters / "lstm", "short.csv")
    assert answer.code == 2 and "8 steps, fewer than the window of 12" in answer.err
    answer = ensue("predict", forecasters / "lstm", files / "my.csv", "--horizon", "0")
    assert answer.code == 2 and "'--horizon'" in answer.err
    answer = ensue("score", forecasters / "lstm", "short.csv")
    assert answer.code == 2 and "none can be scored" in answer.err
    answer = ensue("score", forecasters / "lstm", "--text", "1,2,3")
    assert answer.code == 2 and "scored on series" in answer.err
    answer = ensue("fit", "lstm", "waves", "--out", "x")
    assert answer.code == 2 and "the corpus holds series, not text" in answer.err
    answer = ensue("words", "neighbours", forecasters / "lstm", "the")
    assert answer.code == 2 and "lstm trained to forecast cannot give word vectors" in answer.err
    answer = ensue("convert", forecasters / "lstm", "--to", "hf")
    assert (
        answer.code == 2 and answer.err.count("\n") == 1 and "lstm trained to forecast cannot read text" in answer.err
    )
    answer = ensue("translate", forecasters / "lstm", "--text", "x")
    assert answer.code == 2 and "lstm trained to forecast cannot translate" in answer.err
    answer = ensue("cost", forecasters / "lstm")
    assert answer.code == 2 and "lstm reads numbers, and its size follows from the series" in answer.err


def test_a_config_that_lacks_how_numbers_are_read_is_refused(forecasters, files):
    shutil.copytree(forecasters / "lstm", "run")
    config = json.loads(Path("run/config.json").read_text())
    Path("run/config.json").write_text(json.dumps({**config, "data": {}}))
    answer = ensue("predict", "run", files / "my.csv", "--no-verify")
    assert answer.code == 2 and answer.err.count("\n") == 1
    assert "config.json: data.form" in answer.err


def test_many_series_are_forecast_some_at_a_time(forecasters, files, monkeypatch):
    from ensue.measure import backtest

    run = load(forecasters / "seasonal")
    series = run.series([files / "my.csv"])
    origins = np.arange(100, 120)
    whole, _ = run.forecasts(series, origins, 7)
    monkeypatch.setattr(backtest, "BATCH_NUMBERS", 50)
    parts, _ = run.forecasts(series, origins, 7)
    assert np.array_equal(whole, parts) and backtest.windows_per_batch(run.model.config, run.encoding.window, 7) < 20
