"""From one task to the next, as people type it: ULMFiT's three steps, and labels on a translation model's encoder."""

import json
import random
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from labelled_files import FILLERS, write_all
from typed import ensue

from ensue import fit, load
from ensue.models.bidirectional_encoder import features_of

SMALL = ("--set", "hidden=12", "--set", "embedding=8", "--set", "train.batch=4", "--set", "train.length=8")
STEPS = {"train.batch_tokens": 80, "train.steps": 9, "train.keep": "last", "train.checkpoint_every": 2}


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    return write_all(tmp_path_factory.mktemp("files"))


@pytest.fixture(scope="module")
def ulmfit(tmp_path_factory, files):
    """The first two steps: a language model, which then goes on with the texts of a labelled table."""
    folder = tmp_path_factory.mktemp("ulmfit")
    first = ensue("fit", "ulmfit", files["documents"], *SMALL, "--set", "train.steps=3", "--out", folder / "lm")
    assert first.code == 0, first.err
    words = ("--from", folder / "lm", "--columns", "text=1", "--set", "train.steps=3", "--set", "train.batch=2")
    second = ensue("fit", "ulmfit", files["classify"], *words, "--set", "train.length=8", "--out", folder / "lm2")
    assert second.code == 0, second.err
    return folder


@pytest.fixture(scope="module")
def translating(tmp_path_factory):
    """Two runs that translate fillers into capitals, one with a vocabulary for each language."""
    folder, chance = tmp_path_factory.mktemp("translating"), random.Random(1)
    words = [*FILLERS, "fine", "lovely", "great", "awful", "dull", "poor"]
    lines = [" ".join(chance.choices(words, k=5)) for _ in range(40)]
    (folder / "pairs.tsv").write_text("".join(f"{line}\t{line.upper()}\n" for line in lines), encoding="utf-8")
    small = {"hidden": 12, "layers": 1, "train.steps": 3, "data.holdout": 0.1, "tokenizer.vocabulary": 300}
    extra = {"seq2seq": {"tokenizer.joint": False}, "transformer": {"heads": 2, "context": 20}}
    for system, more in extra.items():
        fit(system, folder / "pairs.tsv", out=folder / system, settings={**small, **more})
    return folder


# ULMFiT.


def test_the_second_step_reads_a_tables_texts_and_not_its_labels(ulmfit, files):
    run = load(ulmfit / "lm2")
    texts = [line.split("\t")[0] for line in files["classify"].read_text().splitlines()[1:]]
    assert run.config["data"]["train_bytes"] + run.config["data"]["valid_bytes"] == sum(len(t) for t in texts)
    assert run.tokenizer.state() == load(ulmfit / "lm").tokenizer.state()
    assert run.settings["train.layer_decay"] == 0.7 and run.settings["train.schedule"] == "slanted"
    assert load(ulmfit / "lm").settings["train.layer_decay"] == 1.0
    scored = ensue("score", ulmfit / "lm2", files["classify"], "--columns", "text=1", "--json").json
    assert scored["bytes"] == sum(len(t) for t in texts)


def test_the_third_step_labels(ulmfit, files):
    words = ("--from", ulmfit / "lm2", "--set", "train.epochs=5", "--set", "train.batch_tokens=100", "--out", "run")
    made = ensue("fit", "classify", files["classify"], *words, "--json")
    assert made.code == 0, made.err
    run = load("run")
    assert run.system == "ulmfit" and run.task == "classify"
    flat = run.settings
    assert flat["train.layer_decay"] == 0.7 and flat["train.floor"] == pytest.approx(1 / 32)
    assert (flat["train.freeze"], flat["train.unfreeze"], flat["train.reach"]) == (-1, pytest.approx(1 / 3), 70)
    assert (flat["train.beta1"], flat["head.pooling"], flat["head.hidden"]) == (0.7, "concat", 50)
    rates = [json.loads(line)["lr"] for line in Path("run/metrics.jsonl").read_text().splitlines()]
    assert max(rates) <= 0.01 and rates[-1] < 0.002
    said = ensue("predict", "run", "--text", "the film was really lovely", "--json").json
    assert set(said["predictions"][0]["probabilities"]) == {"bad", "good"}
    scored = ensue("score", "run", files["classify"], "--json").json
    assert scored["examples"] == 40 and 0 <= scored["accuracy"] <= 1
    again = load("run").predict(["it was great", "a dull song"])
    shutil.copytree("run", "moved")
    assert load("moved").predict(["it was great", "a dull song"]) == again


@pytest.mark.parametrize("system", ["lstm", "gru"])
def test_other_recurrent_systems_go_the_same_way(files, system):
    small = {"hidden": 8, "layers": 2, "train.batch": 4, "train.length": 8, "train.steps": 2}
    fit(system, files["documents"], out="lm", settings=small)
    tuned = {"train.batch": 4, "train.length": 8, "train.steps": 2, "preset": "ulmfit"}
    second = fit(system, files["documents"], out="lm2", begin_with="lm", settings=tuned)
    assert second.settings["train.schedule"] == "slanted" and second.settings["hidden"] == 8
    words = ("--from", "lm2", "--preset", "ulmfit", "--set", "train.steps=4", "--out", "run", "--json")
    made = ensue("fit", "classify", files["classify"], *words)
    assert made.code == 0, made.err
    run = load("run")
    assert run.system == system and run.settings["preset"] == "ulmfit" and run.model.config.pooling == "concat"
    assert run.predict(["it was great"])


def test_what_is_frozen_does_not_change_and_is_let_go_from_the_top(ulmfit, files):
    settings = {"train.steps": 4, "train.unfreeze": 0.0, "train.keep": "last", "train.batch_tokens": 100}
    run = fit("classify", files["classify"], out="frozen", begin_with=ulmfit / "lm2", settings=settings)
    before, after = load(ulmfit / "lm2").model.state_dict(), run.model.body.state_dict()
    assert all(torch.equal(before[name], after[name]) for name in before)
    one = {**settings, "train.steps": 1, "train.freeze": 1}  # the embedding alone stays
    run = fit("classify", files["classify"], out="one", begin_with=ulmfit / "lm2", settings=one)
    after = run.model.body.state_dict()
    assert torch.equal(before["embed.weight"], after["embed.weight"])
    assert not torch.equal(before["stack.layers.0.layer.cell.weight_h"], after["stack.layers.0.layer.cell.weight_h"])


def test_a_recipe_from_nothing_freezes_nothing(files):
    small = {"hidden": 8, "embedding": 8, "train.steps": 2, "tokenizer.vocabulary": 300}
    run = fit("classify", files["classify"], model="ulmfit", out="run", settings=small)
    assert run.settings["train.freeze"] == 0 and run.settings["train.schedule"] == "one-cycle"
    assert run.model.config.pooling == "concat" and run.settings["data.length"] == 400


# CoVe.


@pytest.mark.parametrize(("system", "task"), [("seq2seq", "tag"), ("transformer", "classify"), ("seq2seq", "classify")])
def test_a_translation_runs_encoder_gives_features(translating, files, system, task):
    words = ("--set", "hidden=8", "--set", "train.steps=4", "--set", "train.batch_tokens=100", "--out", "run", "--json")
    made = ensue("fit", task, files[task], "--from", translating / system, *words)
    assert made.code == 0, made.err
    run, lender = load("run"), load(translating / system)
    assert run.system == "cove" and run.task == task
    source = lender.translator().source_tokenizer
    assert run.tokenizer.state() == source.state()
    features = features_of(run.model.body)
    assert features.width == 12 and run.model.body.stack.layers[0].onward.cell.width == 8 + 12
    # every word has the state that it has when the sentence is translated
    ids = torch.tensor([[source.end, *source.encode("the film was lovely").tolist(), source.end]])
    state = lender.model.start(ids[:, 1:])
    with torch.no_grad():
        if system == "seq2seq":
            wanted = lender.model.encoder(lender.model.embed_source(ids[:, 1:]), None)[0]
            torch.testing.assert_close(state.source.parts[0], wanted)
        else:
            wanted = lender.model.encode(ids[:, 1:])[0]
        found = features.layers_of(ids)[0]
    torch.testing.assert_close(found[:, 1:], wanted)
    assert not found[:, 0].any()
    # and what is frozen is what it was
    held = {name: value for name, value in run.model.state_dict().items() if "features.reader" in name}
    first = lender.model.reader().state_dict()
    assert held and all(torch.equal(value, first[name.split("features.reader.")[1]]) for name, value in held.items())
    said = run.predict(["the film was lovely"])[0]
    assert len(said["tags"]) == 4 if task == "tag" else set(said["probabilities"]) == {"good", "bad"}
    assert ensue("score", "run", files[task], "--json").code == 0
    shutil.copytree("run", "moved")
    assert load("moved").predict(["it was great"]) == run.predict(["it was great"])


def test_cove_is_typed_as_a_system_too(translating, files):
    settings = {"hidden": 8, "train.steps": 2, "features.tuned": True}
    run = fit("cove", files["classify"], out="run", begin_with=translating / "seq2seq", settings=settings)
    assert (run.system, run.task) == ("cove", "classify") and run.settings["features.tuned"] is True
    first = load(translating / "seq2seq").model.reader().state_dict()
    held = features_of(run.model.body).reader.state_dict()
    assert any(not torch.equal(held[name], first[name]) for name in first)  # tuned: it learns


def test_cove_needs_a_run_that_translates(ulmfit, files):
    none = ensue("fit", "classify", files["classify"], "--model", "cove", "--out", "run")
    assert none.code != 0 and "--from" in none.err and not Path("run").exists()
    other = ensue("fit", "cove", files["classify"], "--from", ulmfit / "lm2", "--out", "run")
    assert other.code != 0 and "is a run of ulmfit" in other.err and not Path("run").exists()
    assert ensue("cost", "cove").code != 0


def test_rows_are_no_longer_than_a_transformer_reads(translating, files):
    settings = {"hidden": 8, "train.steps": 1}
    run = fit("classify", files["classify"], out="run", begin_with=translating / "transformer", settings=settings)
    assert run.config["data"]["length"] == 20
    words = ("--from", translating / "transformer", "--set", "data.length=50", "--out", "long")
    long = ensue("fit", "classify", files["classify"], *words)
    assert long.code != 0 and "context = 20" in long.err


# Resuming.


@pytest.mark.parametrize("kind", ["ulmfit", "cove"])
def test_an_interrupted_run_resumes_bit_for_bit(ulmfit, translating, files, kind, monkeypatch):
    from ensue.train import loop

    begun = ulmfit / "lm2" if kind == "ulmfit" else translating / "seq2seq"
    extra = {"train.unfreeze": 0.3, "train.reach": 4} if kind == "ulmfit" else {"hidden": 8}
    settings = {**STEPS, **extra}
    whole = fit("classify", files["classify"], out="whole", begin_with=begun, settings=settings)
    plain, calls = loop.update, []

    def breaking(*args):
        calls.append(1)
        if len(calls) == 6:
            raise RuntimeError("the power failed")
        return plain(*args)

    monkeypatch.setattr(loop, "update", breaking)
    with pytest.raises(RuntimeError, match="power"):
        fit("classify", files["classify"], out="broken", begin_with=begun, settings=settings)
    monkeypatch.setattr(loop, "update", plain)
    resumed = fit("classify", out="broken", resume=True)
    one, two = (run.model.state_dict() for run in (whole, resumed))
    assert all(torch.equal(one[name], two[name]) for name in one)
    assert np.allclose(whole.config["figures"]["valid"]["accuracy"], resumed.config["figures"]["valid"]["accuracy"])


def test_both_are_among_the_systems():
    listed = ensue("systems").out
    assert "ulmfit" in listed and "cove" in listed
    assert "slanted" in ensue("systems", "ulmfit").out and "McCann" in ensue("systems", "cove").out
    assert "ulmfit" in ensue("systems", "lstm", "--json").json["presets"]
