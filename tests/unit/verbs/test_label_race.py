"""Races on labelled tasks and on shares of the labels: candidates, data and results."""

import random

import pytest
import torch
from safetensors.torch import load_file

from ensue.core.errors import InputError
from ensue.core.events import silent
from ensue.core.files import read_json
from ensue.core.run_folder import RunFolder
from ensue.core.settings import read_toml
from ensue.look.label_curve import savings
from ensue.runs.settings_resolution import resolve
from ensue.tasks.table import task_spec
from ensue.verbs import race as module
from ensue.verbs.fit import fit
from ensue.verbs.race import race
from ensue.verbs.racing.plan import MIN_UPDATES, candidates, plan_race, read_shared_corpus
from ensue.verbs.racing.results import Entrant, Race

SHAPE = {"hidden": 16, "layers": 1, "bert.heads": 2, "bert.inner": 16, "bert.context": 24}
TINY = {**SHAPE, "train.steps": 2, "train.batch_tokens": 200, "train.eval_every": 2, "train.threads": 1}
SHARES = (4, 12)
KEYS = {"system", "start", "labels", "accuracy", "f1", "matthews", "seconds", "parameters", "bytes", "seed", "error"}


def examples(count, seed):
    """Texts whose words say their label; every tenth is rare."""
    chance = random.Random(seed)
    words = {"good": ("fine", "warm", "clear"), "bad": ("cold", "dull", "wet"), "odd": ("seven", "green", "up")}
    rows = []
    for number in range(count):
        label = "odd" if number % 10 == 9 else ("good", "bad")[number % 2]
        rows.append(" ".join(chance.choices((*words[label], "the", "day"), k=5)) + f"\t{label}\n")
    return "text\tlabel\n" + "".join(rows)


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    """Examples to learn from and to score on, and an encoder that has read a little."""
    folder = tmp_path_factory.mktemp("labelled")
    (folder / "train.tsv").write_text(examples(40, 0), encoding="utf-8")
    (folder / "dev.tsv").write_text(examples(20, 1), encoding="utf-8")
    lines = examples(40, 2).replace("\t", " ").splitlines()
    (folder / "text.txt").write_text("\n".join(lines), encoding="utf-8")
    shape = {name.removeprefix("bert."): value for name, value in SHAPE.items()}
    settings = {
        **shape,
        "context": 20,
        "train.steps": 1,
        "train.batch": 2,
        "tokenizer.vocabulary": 60,
        "next_sentence": False,
    }
    fit("bert", folder / "text.txt", settings=settings, out=folder / "first")
    return folder


@pytest.fixture(autouse=True)
def charts(monkeypatch):
    """The charts of races, by the ending of their file; none is drawn."""
    found = {}
    monkeypatch.setattr(module, "save_chart", lambda chart, path: found.update({path.suffix: chart.to_dict()}))
    return found


def raced(data, out, **how):
    settings = {**TINY, **how.pop("settings", {})}
    time = {} if how.get("labels") else {"budget": "1s"}
    given = {"task": "classify", "systems": ("lstm",), "valid": data / "dev.tsv", **time, **how}
    return race(data / "train.tsv", settings=settings, out=out, **given)


def curve(data, out, **how):
    """bert both ways, and lstm, on two shares of the labels."""
    shape = {name: value for name, value in TINY.items() if not name.startswith("bert.")}
    given = {"systems": ("bert", "lstm"), "begin_with": data / "first", "labels": SHARES, **how}
    own = {"lstm.hidden": 16, **{name: value for name, value in shape.items() if name not in ("hidden", "layers")}}
    return race(
        data / "train.tsv",
        task="classify",
        valid=data / "dev.tsv",
        settings={**own, **given.pop("settings", {})},
        out=out,
        **given,
    )


def test_a_curve_has_a_result_for_each_system_start_and_share(data, tmp_path, charts):
    result = curve(data, tmp_path / "race")
    held = read_json(tmp_path / "race" / "race.json")
    assert held == result.as_dict() and held["task"] == "classify" and held["shares"] == list(SHARES)
    assert held["budget"] == "" and held["classes"] == ["bad", "good", "odd"] and held["from"]["system"] == "bert"
    starts = {("bert", "from scratch"), ("bert", "pre-trained"), ("lstm", "from scratch")}
    assert {(s["system"], s["start"], s["labels"]) for s in held["systems"]} == {
        (*one, share) for one in starts for share in SHARES
    }
    assert all(s.keys() >= KEYS and 0 <= s["accuracy"] <= 1 and s["seed"] == 0 for s in held["systems"])
    assert [s["labels"] for s in held["systems"]] == [*SHARES] * 3
    columns, rows = result.table()
    assert columns[:3] == ["accuracy with", "4 labels", "12 labels"]
    assert {row[0] for row in rows} == {"bert from scratch", "bert pre-trained", "lstm from scratch"}
    text = (tmp_path / "race" / "race.md").read_text(encoding="utf-8")
    assert "train.tsv: 40 examples to learn from, 20 held out; wordpiece tokens" in text and "; 2 steps each; " in text
    assert charts.keys() == {".html", ".png", ".svg"} and "classify on train.tsv" in charts[".svg"]["title"]["text"]
    drawn = [point for values in charts[".svg"].get("datasets", {}).values() for point in values]
    drawn = drawn or charts[".svg"]["data"]["values"]
    assert {(p["system"], p["start"], p["labels"], p["value"]) for p in drawn} == {
        (s["system"], s["start"], s["labels"], s["accuracy"]) for s in held["systems"]
    }


def test_shares_are_nested_and_keep_label_frequencies(data, tmp_path):
    curve(data, tmp_path / "race", systems=("bert",), labels=(20, 10))
    found = {}
    for name in ("bert-10", "bert-20", "bert-pretrained-20"):
        folder = RunFolder(tmp_path / "race" / name)
        settings = resolve("bert", layers=[read_toml(folder.settings)])
        corpus = task_spec("classify").read_corpus(settings, folder, silent)
        found[name] = {one.where for one in corpus.examples}
        assert len(corpus.valid_examples) == 20
        assert [sum(one.label == label for one in corpus.examples) for label in ("good", "bad", "odd")] == [
            round(share * len(corpus.examples)) for share in (0.5, 0.4, 0.1)
        ]
    assert len(found["bert-10"]) == 10 and found["bert-10"] < found["bert-20"] == found["bert-pretrained-20"]


def test_pre_trained_candidates_start_from_the_run_and_the_others_share_its_tokenizer_and_shape(data, tmp_path):
    curve(data, tmp_path / "race", labels=(8,), settings={"train.lr": 1e-12, "train.weight_decay": 0})
    first = {name.removeprefix("body."): w for name, w in load_file(data / "first" / "model.safetensors").items()}
    for name, same in (("bert-8", False), ("bert-pretrained-8", True)):
        held = load_file(tmp_path / "race" / name / "model.safetensors")
        body = held["body.embed.weight"]
        assert torch.allclose(body, first["embed.weight"], atol=1e-6) is same
    tokenizers = {
        (tmp_path / "race" / n / "tokenizer.json").read_bytes() for n in ("bert-8", "bert-pretrained-8", "lstm-8")
    }
    assert tokenizers == {(data / "first" / "tokenizer.json").read_bytes()}
    shapes = [read_json(tmp_path / "race" / n / "config.json")["model"] for n in ("bert-8", "bert-pretrained-8")]
    assert shapes[0] == shapes[1] == read_json(data / "first" / "config.json")["model"]
    assert read_toml(tmp_path / "race" / "lstm-8" / "run.toml")["data.length"] == 20  # what bert can read
    assert not (tmp_path / "race" / "lstm-8" / "checkpoints").exists()


def test_a_share_without_some_label_still_has_its_output(data, tmp_path):
    result = raced(data, tmp_path / "race", labels=(2,))
    assert result.entrants[0].value is not None
    assert read_toml(tmp_path / "race" / "lstm-2" / "run.toml")["data.labels"] == ["bad", "good", "odd"]


def failing(share):
    """A ``fit`` that fails for what is pre-trained, on one share."""

    def attempt(what, **how):
        settings = how["settings"]
        if settings.get("begin_with") and settings["data.limit"] == share:
            raise InputError("a fault")
        return fit(what, **how)

    return attempt


def test_a_failure_is_reported_and_the_others_are_trained(data, tmp_path, monkeypatch):
    monkeypatch.setattr(module, "fit", failing(12))
    said = []
    result = curve(data, tmp_path / "race", report=lambda kind, values: kind == "race" and said.append(values["text"]))
    assert result.remarks() == ["bert pre-trained, 12 labels: a fault"]
    assert "bert pre-trained, 12 labels: failed: a fault" in said
    [line] = [one for one in said if one.startswith("lstm from scratch, 12 labels: ")]
    assert line.split(": ")[1].startswith("accuracy 0.")
    held = read_json(tmp_path / "race" / "race.json")["systems"]
    assert [s["accuracy"] for s in held if s["error"]] == [None] and len(held) == 6
    assert result.table()[1][-1][0] == "bert pre-trained" and result.table()[1][-1][2] == "failed"


def test_a_resumed_curve_trains_only_unfinished_runs(data, tmp_path, monkeypatch):
    monkeypatch.setattr(module, "fit", failing(12))
    before = curve(data, tmp_path / "race").as_dict()["systems"]
    asked = []
    monkeypatch.setattr(module, "fit", lambda what, **how: asked.append(how["out"].name) or fit(what, **how))
    after = curve(data, tmp_path / "race", resume=True).as_dict()["systems"]
    assert asked == ["bert-pretrained-12"]
    assert all(one in after for one in before if not one["error"]) and not any(one["error"] for one in after)
    with pytest.raises(InputError, match="another number of labels"):
        curve(data, tmp_path / "race", resume=True, labels=(4, 8))
    with pytest.raises(InputError, match="another initial run"):
        curve(data, tmp_path / "race", resume=True, begin_with=tmp_path / "race" / "bert-4")


def test_seeds_give_a_mean_and_a_band(data, tmp_path, charts):
    result = raced(data, tmp_path / "race", labels=(6, 12), seeds=2)
    for e in result.entrants:
        values = [one["accuracy"] for one in e.seeds]
        assert [one["seed"] for one in e.seeds] == [0, 1] and e.value == pytest.approx(sum(values) / 2)
        assert e.spread == pytest.approx(abs(values[0] - values[1]))
    assert "±" in result.markdown() and (tmp_path / "race" / "lstm-12-1").is_dir()
    assert "low" in str(charts[".svg"]["data"]["values"] if "data" in charts[".svg"] else charts[".svg"]["datasets"])


def test_without_shares_there_is_one_table_with_the_best_first(data, tmp_path, charts):
    result = raced(data, tmp_path / "race", systems=("lstm", "bert", "gpt"), settings={"gpt.heads": 2})
    held = read_json(tmp_path / "race" / "race.json")
    assert held["budget"] == "1s" and held["shares"] == [] and held["from"] is None
    assert {s["labels"] for s in held["systems"]} == {40}
    values = [s["accuracy"] for s in held["systems"]]
    assert values == sorted(values, reverse=True)
    columns, rows = result.table()
    assert columns == ["system", "accuracy", "F1", "Matthews", "seconds", "parameters", "megabytes"]
    assert {row[0] for row in rows} == {"lstm", "bert", "gpt"}
    assert "accuracy, held out (higher is better)" in str(charts[".png"])
    tokenizers = {(tmp_path / "race" / n / "tokenizer.json").read_bytes() for n in ("lstm", "bert", "gpt")}
    assert tokenizers == {(tmp_path / "race" / "tokenizer.json").read_bytes()}


def test_equal_size_counts_parameters_without_the_head(data, tmp_path):
    settings = {"lstm.hidden": 64, "bert.inner": 64, "bert.layers": 1, "lstm.layers": 1}
    shape = {name: value for name, value in TINY.items() if name not in ("hidden", "layers", "bert.inner")}
    result = race(
        data / "train.tsv",
        task="classify",
        systems=("lstm", "bert"),
        match="params",
        budget="1s",
        valid=data / "dev.tsv",
        settings={**shape, **settings},
        out=tmp_path / "race",
    )
    sizes = {e.system: e.parameters for e in result.entrants}
    assert sizes["bert"] == pytest.approx(sizes["lstm"], rel=0.2)


@pytest.mark.parametrize(("task", "system"), [("tag", "lstm"), ("regress", "bert")])
def test_other_tasks_race_by_their_own_measure(task, system, tmp_path):
    if task == "tag":
        text = "".join(f"Ann\tB-PER\nsaw\tO\nday{n}\tO\n\n" for n in range(20))
    else:
        text = "text_a\ttext_b\tscore\n" + "".join(f"a day\ta day {n}\t{n % 5}\n" for n in range(20))
    (tmp_path / "train.tsv").write_text(text, encoding="utf-8")
    how = {"systems": (system,), "settings": TINY, "budget": "1s", "out": tmp_path / "race"}
    result = race(tmp_path / "train.tsv", task=task, **how)
    [entry] = result.as_dict()["systems"]
    assert entry[task_spec(task).race.measure.key] == result.entrants[0].value is not None
    assert result.facts["valid_examples"] == 2 and entry["labels"] == 18  # some were held out


def test_translations_race_by_bleu(tmp_path):
    for part, count in (("train", 24), ("dev", 4)):
        for side, words in (("en", ("one", "two", "three")), ("de", ("eins", "zwei", "drei"))):
            lines = [" ".join(words[(n + k) % 3] for k in range(3 + n % 2)) for n in range(count)]
            (tmp_path / f"{part}.{side}").write_text("\n".join(lines) + "\n", encoding="utf-8")
    files, held = ([tmp_path / f"{part}.{side}" for side in ("en", "de")] for part in ("train", "dev"))
    settings = {"hidden": 16, "train.steps": 2, "tokenizer.kind": "word", "transformer.heads": 2}
    result = race(files, task="translate", valid=held, settings=settings, budget="1s", out=tmp_path / "race")
    held_systems = read_json(tmp_path / "race" / "race.json")["systems"]
    assert {s["system"] for s in held_systems} == {"seq2seq", "transformer"}
    assert all(s["bleu"] >= 0 and s["bits_per_byte"] > 0 and "labels" not in s for s in held_systems), result.remarks()
    assert "24 pairs to learn from, 4 held out" in result.markdown()


ERRORS = [
    ({"labels": (4, 41)}, "--labels 41: there are only 40 examples"),
    ({"labels": (0, 4)}, "--labels 0 must be at least 1"),
    ({"labels": (4,), "settings": {"data.limit": 8}}, "both limit the training examples"),
    ({"systems": ("ngram", "lstm")}, "ngram cannot be trained to classify; use bert"),
    ({"systems": ("lstm",), "begin_with": "first"}, "is a bert, which does not take part"),
    ({"systems": ("bert",), "begin_with": "first", "settings": {"tokenizer.kind": "bpe"}}, "leave out --tokenizer"),
    ({"systems": ("bert",), "begin_with": "first", "match": "params"}, "--from sets the size"),
    ({"task": "lm", "labels": (4,)}, "--labels is for tasks that label"),
    ({"task": "lm", "begin_with": "first"}, "is a bert, which does not take part"),
    ({"task": "forecast", "match": "params"}, "sizes cannot be made equal for the task forecast"),
    ({"task": "clasify"}, "did you mean 'classify'"),
    ({"settings": {"lstm.hiden": 8}}, "did you mean 'hidden'"),
    ({"valid": (), "settings": {"data.holdout": 0}}, "needs labelled examples to score on"),
]


@pytest.mark.parametrize(("how", "says"), ERRORS)
def test_invalid_races_are_refused_before_anything_is_written(how, says, data, tmp_path):
    how = {**how, "begin_with": data / how["begin_with"]} if "begin_with" in how else how
    with pytest.raises(InputError, match=says):
        raced(data, tmp_path / "race", **how)
    assert not (tmp_path / "race").exists()


def plan_of(data, match="time", budget=None, labels=(10, 40), **settings):
    return plan_race(
        "classify",
        systems=("bert",),
        budget=budget,
        match=match,
        seeds=1,
        labels=labels,
        begin_with=data / "first",
        data=data / "train.tsv",
        valid=data / "dev.tsv",
        settings={"train.batch_tokens": 40, **settings},
    )


def entered(data, tmp_path, **how):
    plan = plan_of(data, **how)
    corpus = read_shared_corpus(plan, silent)
    return {candidate.folder: candidate.settings for candidate in candidates(plan, corpus, RunFolder(tmp_path))}


def test_without_a_budget_small_shares_get_enough_updates(data, tmp_path):
    own = entered(data, tmp_path)
    epochs = {name: settings["train.epochs"] for name, settings in own.items()}
    assert epochs["bert-10"] == epochs["bert-pretrained-10"] > epochs["bert-pretrained-40"] >= 3
    folder = RunFolder(data / "first")
    for name, settings in own.items():
        chosen = resolve("bert", task="classify", layers=[settings])
        task = task_spec("classify")
        steps = task.batches(chosen, None, task.read_corpus(chosen, folder, silent)).steps_per_epoch
        assert epochs[name] * steps > 0.7 * MIN_UPDATES
    assert "train.budget" not in own["bert-10"]


def test_given_epochs_or_budgets_are_kept(data, tmp_path):
    assert entered(data, tmp_path, **{"train.epochs": 2.0})["bert-10"]["train.epochs"] == 2.0
    assert entered(data, tmp_path, budget="5s")["bert-10"]["train.budget"] == 5.0
    assert plan_of(data, labels=()).budget == "60s" and plan_of(data).budget == ""
    equal = entered(data, tmp_path, match="tokens")
    assert equal["bert-40"]["train.epochs"] == equal["bert-pretrained-40"]["train.epochs"]


def test_curves_are_ranked_by_their_value_with_the_most_labels():
    found = [Entrant("a", 0.9, labels=1), Entrant("b", 0.5, labels=1), Entrant("a", 0.6, labels=2)]
    found += [Entrant("b", 0.7, labels=2), Entrant("c", None, labels=1), Entrant("c", None, labels=2)]
    ranked = Race({"shares": [1, 2]}, found, task_spec("classify").race).ranked()
    assert [(e.system, e.labels) for e in ranked] == [("b", 1), ("b", 2), ("a", 1), ("a", 2), ("c", 1), ("c", 2)]


def test_no_labels_are_saved_if_more_labels_gain_nothing():
    start = {"system": "bert", "start": "from scratch"}
    flat = [{**start, "labels": n, "value": v} for n, v in ((50, 0.55), (200, 0.52))]
    points = [*flat, {"system": "bert", "start": "pre-trained", "labels": 50, "value": 0.57}]
    assert savings(points) == "bert from scratch gains nothing from 50 to 200 labels, so none are saved here"
