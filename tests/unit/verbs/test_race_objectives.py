"""A race of pre-training objectives: what is alike, what is kept, and what the table says."""

import json

import pytest

from ensue.core.errors import InputError
from ensue.verbs.race_objectives import race_objectives
from ensue.verbs.racing.objectives import LabelledSet, ObjectiveRace, ObjectiveResult, labelled_sets, plan_objectives

SMALL = {"layers": 1, "hidden": 16, "heads": 2, "context": 32, "train.steps": 2, "tokenizer.vocabulary": 300}
TUNING = {"then.train.steps": 2, "then.data.holdout": 0.3}


@pytest.fixture
def files(tmp_path):
    text, labelled = tmp_path / "text.txt", tmp_path / "mood.tsv"
    sentences = [f"the {kind} rain fell on {place} and the clock stopped" for kind in "ab" for place in "uvwxyz"]
    text.write_text("\n\n".join("\n".join(sentences) for _ in range(4)) + "\n", encoding="utf-8")
    rows = [f"the {word} day\t{label}" for word, label in (("good", "yes"), ("bad", "no")) * 10]
    labelled.write_text("\n".join(rows) + "\n", encoding="utf-8")
    return text, labelled


def test_each_objective_is_pretrained_and_fine_tuned_in_the_same_shape_and_a_resumed_race_keeps_it(files, tmp_path):
    text, labelled = files
    out, settings = tmp_path / "race", {**SMALL, **TUNING}
    how = {"match": "tokens", "settings": settings, "out": out}
    race = race_objectives(text, ["mlm", "clm"], [str(labelled)], **how)
    assert {one.name for one in race.results} == {"mlm", "clm", "from scratch"}
    assert all(len(one.scores["mood"]) == 1 and not one.error for one in race.results)
    shapes = [json.loads((out / name / "config.json").read_text())["model"] for name in ("mlm-0", "clm-0-mood")]
    for shape in shapes:
        assert {name: shape[name] for name in ("layers", "hidden", "heads", "context")} == race.facts["shape"]
    tokenizers = {(out / name / "tokenizer.json").read_bytes() for name in ("mlm-0", "clm-0", "scratch-0-mood")}
    assert len(tokenizers) == 1
    assert {path.name for path in out.glob("objectives.*")} == {
        f"objectives.{suffix}" for suffix in ("json", "md", "html", "png", "svg")
    }
    trained = (out / "mlm-0" / "model.safetensors").stat().st_mtime_ns
    again = race_objectives(text, ["mlm", "clm"], [str(labelled)], resume=True, **how)
    assert again.as_dict() == race.as_dict()
    assert (out / "mlm-0" / "model.safetensors").stat().st_mtime_ns == trained
    with pytest.raises(InputError, match="other objectives"):
        race_objectives(text, ["mlm"], [str(labelled)], resume=True, **how)
    (out / "thesis.tex").touch()
    with pytest.raises(InputError, match=r"thesis\.tex is not a file of a race"):
        race_objectives(text, ["mlm"], [str(labelled)], force=True, **how)
    with pytest.raises(InputError, match="is there already"):
        race_objectives(text, ["mlm"], [str(labelled)], **how)


@pytest.mark.parametrize(
    ("objectives", "then", "more", "message"),
    [
        (["mln"], ["mood.tsv"], {}, "mlm"),
        ([], ["mood.tsv"], {}, "names nothing"),
        (["mlm"], [], {}, "needs labelled data"),
        (["mlm"], ["nowhere.tsv"], {}, "is no file"),
        (["mlm"], ["translate:mood.tsv"], {}, "does not label"),
        (["mlm"], ["mood.tsv"], {"match": "params"}, "not raced with --match params"),
        (["mlm"], ["mood.tsv"], {"match": "tokens", "budget": "5s"}, "--budget has no effect"),
        (["mlm"], ["mood.tsv"], {"budget": "soon"}, "soon"),
        (["mlm"], ["mood.tsv"], {"settings": {"hiden": 3}}, "hiden"),
        (["mlm"], ["mood.tsv"], {"settings": {"then.train.stepz": 3}}, "stepz"),
        (["clm"], ["mood.tsv"], {"settings": {"tokenizer.kind": "wordpiece"}}, "bits per byte"),
    ],
)
def test_wrong_arguments_are_refused_before_anything_is_written(
    files, tmp_path, monkeypatch, objectives, then, more, message
):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InputError) as error:
        race_objectives(files[0], objectives, then, out="race", **more)
    assert message in str(error.value)
    assert not (tmp_path / "race").exists()


def test_a_failed_objective_is_part_of_the_table_and_the_others_are_trained(files, tmp_path):
    settings = {**SMALL, **TUNING, "gpt.train.lr": 1e30, "gpt.train.clip": 0}
    race = race_objectives(
        files[0], ["clm", "mlm"], [str(files[1])], match="tokens", settings=settings, out=tmp_path / "r"
    )
    failed = {one.name: bool(one.error) for one in race.results}
    assert failed == {"clm": True, "mlm": False, "from scratch": False}
    assert race.ranked()[-1].name == "clm"
    assert any("clm failed" in line for line in race.remarks())


def test_labelled_sets_have_names_of_their_own_and_tasks(tmp_path):
    for name in ("a.tsv", "b"):
        (tmp_path / name).mkdir() if name == "b" else (tmp_path / name).touch()
    (tmp_path / "b" / "a.conll").touch()
    first, second = labelled_sets(
        [str(tmp_path / "a.tsv"), f"tag:{tmp_path / 'b' / 'a.conll'}"], [str(tmp_path / "a.tsv")]
    )
    assert (first.name, first.task, first.valid) == ("a", "classify", str(tmp_path / "a.tsv"))
    assert (second.name, second.task, second.valid) == ("a2", "tag", "")


def results(**scores):
    then = (LabelledSet("mood", "mood.tsv", "classify"),)
    made = [ObjectiveResult(name, name, "bert", scores={"mood": values}) for name, values in scores.items()]
    return ObjectiveRace({}, then, made)


def test_the_verdict_compares_objectives_with_the_spread_of_seeds():
    clear = results(mlm=[0.80, 0.81, 0.82], clm=[0.60, 0.61, 0.62], **{"from scratch": [0.5, 0.5, 0.5]})
    assert "mlm and clm are 0.200 apart, more than seeds explain" in clear.remarks()[0]
    assert "pre-training changes it by +0.110 to +0.310" in clear.remarks()[0]
    assert [one.name for one in clear.ranked()] == ["mlm", "clm", "from scratch"]
    noisy = results(mlm=[0.70, 0.80, 0.90], clm=[0.65, 0.75, 0.85])
    assert "0.050 apart, no more than seeds explain" in noisy.remarks()[0]
    assert "one seed cannot say" in results(mlm=[0.7], clm=[0.8]).remarks()[0]


def test_fine_tuning_settings_and_pretraining_settings_are_kept_apart(files):
    settings = {**SMALL, "then.train.lr": 1e-4, "gpt.train.lr": 2e-3}
    how = {"then_valid": (), "budget": "9s", "match": "cpu", "seeds": 1, "settings": settings}
    plan = plan_objectives(files[0], ["clm", "sop"], [str(files[1])], **how)
    clm, sop = plan.pretraining("clm", "bpe"), plan.pretraining("sop", "bpe")
    assert clm["train.lr"] == 2e-3 and "train.lr" not in sop and sop["not_next"] == "swapped"
    assert clm["train.budget_clock"] == sop["train.budget_clock"] == "cpu"
    assert plan.fine_tuning(plan.then[0], "runs/mlm-0", "bpe")["train.lr"] == 1e-4
