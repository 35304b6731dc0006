"""Races with several seeds: means, spreads, remarks and failures."""

from statistics import mean

import pytest
import torch

from ensue.core.errors import InputError, Interrupted
from ensue.core.files import read_json
from ensue.tasks.table import race_task
from ensue.verbs import race as module
from ensue.verbs.fit import fit
from ensue.verbs.race import Entrant, Race, race

TEXT = "the rain fell and the students opened their books while the clock ran on\n" * 40
TINY = {"hidden": 8, "train.steps": 2, "train.batch": 2, "train.length": 8, "tokenizer.kind": "char"}

WITHOUT_STEPS = {name: value for name, value in TINY.items() if name != "train.steps"}


@pytest.fixture
def text(tmp_path, monkeypatch):
    """A text to race on; no pictures are drawn."""
    monkeypatch.setattr(module, "save_chart", lambda chart, path: None)
    path = tmp_path / "text.txt"
    path.write_text(TEXT, encoding="utf-8")
    return path


def failing(*seeds):
    """A ``fit`` that fails for some seeds."""

    def attempt(system, **how):
        if how["settings"]["seed"] in seeds:
            raise InputError(f"a fault of seed {how['settings']['seed']}")
        return fit(system, **how)

    return attempt


def entrants(seeds, text, systems=("rnn",), **how):
    return race(text, systems=systems, seeds=seeds, budget="1s", settings=TINY, out=text.parent / "race", **how)


def test_a_failing_seed_does_not_affect_the_others(text, monkeypatch):
    monkeypatch.setattr(module, "fit", failing(1))
    result = entrants(3, text)
    [found] = result.entrants
    bits = [
        read_json(text.parent / "race" / name / "config.json")["figures"]["valid"]["bits_per_byte"]
        for name in ("rnn-0", "rnn-2")
    ]
    assert [one["bits_per_byte"] for one in found.seeds] == bits and bits[0] != bits[1]
    assert found.bits_per_byte == pytest.approx(mean(bits)) and found.spread == pytest.approx(abs(bits[0] - bits[1]))
    assert result.remarks() == ["rnn: 1 of 3 seeds failed: a fault of seed 1"]
    assert f"{mean(bits):.3f} ± {found.spread / 2:.3f}" in result.markdown()


def test_a_single_successful_seed_has_no_spread(text, monkeypatch):
    monkeypatch.setattr(module, "fit", failing(0))
    result = entrants(2, text)
    [found] = result.entrants
    assert found.bits_per_byte == found.seeds[0]["bits_per_byte"] and found.spread == 0
    assert "±" not in result.markdown() and "1 of 2 seeds failed" in result.markdown()


def test_if_all_seeds_fail_there_is_no_value(text, monkeypatch):
    monkeypatch.setattr(module, "fit", failing(0, 1))
    result = entrants(2, text, systems=("rnn", "gru"))
    for found in result.entrants:
        assert found.bits_per_byte is None and found.seeds == []
        assert found.error == "2 of 2 seeds failed: a fault of seed 0; a fault of seed 1"
    assert "| rnn | failed |" in result.markdown()
    systems = read_json(text.parent / "race" / "race.json")["systems"]
    assert all(one.keys() >= {"system", "bits_per_byte", "seconds", "parameters", "bytes"} for one in systems)


def test_the_failure_of_a_single_seed_gives_only_the_reason(text, monkeypatch):
    monkeypatch.setattr(module, "fit", failing(0))
    assert entrants(1, text).remarks() == ["rnn: a fault of seed 0"]


def test_different_remarks_are_all_kept(text, monkeypatch):
    said = {0: "slow", 1: "", 2: "slow", 3: "very slow"}
    monkeypatch.setattr(module, "_remark", lambda run: said[run.settings["seed"]])
    assert entrants(4, text).remarks() == ["rnn: slow; very slow"]


def test_a_resumed_race_retries_failed_runs_and_keeps_finished_ones(text, monkeypatch):
    monkeypatch.setattr(module, "fit", failing(1))
    before = entrants(2, text).entrants[0].seeds
    monkeypatch.setattr(module, "fit", failing(0))  # the one that is done is not trained again
    found = entrants(2, text, resume=True).entrants[0]
    assert found.seeds[0] == before[0] and len(found.seeds) == 2 and found.error == ""


def test_seeds_are_counted_from_the_given_seed(text):
    race(text, systems=("rnn",), seeds=2, budget="1s", settings={**TINY, "seed": 7}, out=text.parent / "race")
    files = [(text.parent / "race" / name / "run.toml").read_text() for name in ("rnn-0", "rnn-1")]
    assert "seed = 7" in files[0] and "seed = 8" in files[1]


def test_resuming_with_another_text_is_refused_before_anything_is_written(text):
    entrants(1, text)
    kept = (text.parent / "race" / "tokenizer.json").read_bytes()
    text.write_text(TEXT.replace("e", "é"), encoding="utf-8")
    with pytest.raises(InputError, match="another text"):
        entrants(1, text, resume=True)
    assert (text.parent / "race" / "tokenizer.json").read_bytes() == kept


def test_a_wrong_setting_of_any_system_is_refused_before_anything_is_written(text):
    with pytest.raises(InputError, match="did you mean 'hidden'"):
        race(text, systems=("ngram", "rnn"), settings={"rnn.hiden": 8}, out=text.parent / "race")
    assert not (text.parent / "race").exists()


@pytest.mark.parametrize(("name", "why"), [("bilm", "sees both sides"), ("seq2seq", "is for translation")])
def test_systems_that_cannot_be_compared_are_refused(text, name, why):
    with pytest.raises(InputError, match=why):
        race(text, systems=("ngram", name), out=text.parent / "race")


def test_the_best_comes_first_and_failures_last():
    ranked = Race({}, [Entrant("bad"), Entrant("worse", 3.0), Entrant("better", 2.0)], race_task("lm")[1]).ranked()
    assert [one.system for one in ranked] == ["better", "worse", "bad"]


def race_beside(match="time", **others):
    """A race in which other processes used so many cores beside each system."""
    rules = race_task("lm")[1]
    return Race({"match": match}, [Entrant(system, 2.0, others=cores) for system, cores in others.items()], rules)


def test_unequal_conditions_are_said_with_their_remedy():
    (line,) = race_beside(ngram=None, lstm=0.1, gpt=1.4).conditions()
    assert "beside gpt (1.4)" in line and "(0.1)" in line
    assert "--resume --repeat gpt" in line and "--match cpu" in line


def test_conditions_that_are_equally_bad_are_said_and_good_ones_are_not():
    (line,) = race_beside(ngram=None, lstm=1.3, gpt=1.4).conditions()
    assert "throughout" in line and "--repeat" not in line
    assert race_beside(ngram=None, lstm=0.1, gpt=0.2).conditions() == []
    assert race_beside(ngram=None).conditions() == []


def test_other_processes_make_a_race_of_equal_cpu_time_longer_but_not_unequal():
    (line,) = race_beside(match="cpu", ngram=None, lstm=0.1, gpt=1.4).conditions()
    assert "1.4 cores" in line and "longer" in line and "--repeat" not in line
    assert race_beside(match="cpu", ngram=None, lstm=0.1).conditions() == []


def test_a_race_of_equal_cpu_time_trains_with_one_thread_and_counts_cpu_time(text):
    result = race(text, systems=("rnn",), match="cpu", budget="0.2s", settings=WITHOUT_STEPS, out=text.parent / "race")
    saved = (text.parent / "race" / "rnn" / "run.toml").read_text(encoding="utf-8")
    assert 'budget_clock = "cpu"' in saved and "threads = 1" in saved
    assert "0.2s of CPU time each; 1 thread." in result.markdown()


def test_a_repeated_system_is_trained_again_and_the_others_are_kept(text):
    entrants(1, text, systems=("rnn", "gru"))
    folder = text.parent / "race"
    before = {name: (folder / name / "model.safetensors").stat().st_mtime_ns for name in ("rnn", "gru")}
    result = entrants(1, text, systems=("rnn", "gru"), resume=True, repeat=("gru",))
    after = {name: (folder / name / "model.safetensors").stat().st_mtime_ns for name in ("rnn", "gru")}
    assert before["rnn"] == after["rnn"] and before["gru"] < after["gru"] and len(result.entrants) == 2


def test_a_race_of_equal_cpu_time_trains_on_the_cpu_also_where_there_is_a_gpu(text, monkeypatch):
    asked = []
    monkeypatch.setattr(module, "fit", lambda system, **how: asked.append(how["settings"]) or fit(system, **how))
    entrants(1, text, match="cpu")
    assert [one["device"] for one in asked] == ["cpu"]


@pytest.mark.parametrize("setting", [{"device": "cuda"}, {"rnn.train.threads": 2}, {"train.budget_clock": "wall"}])
def test_settings_that_a_race_of_equal_cpu_time_would_overrule_are_refused(text, setting):
    with pytest.raises(InputError, match="--match cpu sets"):
        race(text, systems=("rnn",), match="cpu", budget="1s", settings=TINY | setting, out=text.parent / "race")
    assert not (text.parent / "race").exists()


def test_an_interrupted_repetition_is_resumed_without_repeating_again(text, monkeypatch):
    def interrupted(system, **how):
        raise Interrupted(how["out"], "ensue …")

    entrants(1, text, systems=("rnn", "gru"))
    weights = [text.parent / "race" / name / "model.safetensors" for name in ("rnn", "gru")]
    before = [file.stat().st_mtime_ns for file in weights]
    monkeypatch.setattr(module, "fit", interrupted)
    with pytest.raises(Interrupted):
        entrants(1, text, systems=("rnn", "gru"), resume=True, repeat=("rnn", "gru"))
    monkeypatch.setattr(module, "fit", fit)
    entrants(1, text, systems=("rnn", "gru"), resume=True)
    assert all(file.stat().st_mtime_ns > old for file, old in zip(weights, before, strict=True))


def test_a_file_of_the_user_in_a_run_is_not_deleted_with_it(text):
    entrants(2, text)
    notes = text.parent / "race" / "rnn-1" / "notes.txt"
    notes.write_text("mine")
    with pytest.raises(InputError, match=r"notes\.txt is not a file of a run"):
        entrants(2, text, resume=True, repeat=("rnn",))
    assert notes.exists()


def test_the_threads_of_one_system_are_not_those_of_the_next(text):
    before = torch.get_num_threads()
    fit("rnn", text, out=text.parent / "run", settings=TINY | {"train.threads": before + 1})
    assert torch.get_num_threads() == before


def test_repeating_needs_a_race_and_one_of_its_systems(text):
    with pytest.raises(InputError, match="add --resume"):
        entrants(1, text, repeat=("rnn",))
    entrants(1, text)
    with pytest.raises(InputError, match="unknown system 'gru'"):
        entrants(1, text, resume=True, repeat=("gru",))
