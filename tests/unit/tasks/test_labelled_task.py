"""Training to label: what is learnt from, what is held out, what counts how much, and which layers learn."""

import itertools
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
import torch

from ensue.core.errors import InputError
from ensue.core.events import silent
from ensue.data.labelled_rows import make_rows
from ensue.models.labelled import HeadConfig
from ensue.runs.build_model import build_model
from ensue.runs.settings_resolution import resolve
from ensue.tasks.labels.encoding import row_length
from ensue.tasks.labels.labeller import Labeller, compute_logits
from ensue.tasks.labels.task import batch_tokens, held_out_examples, mean_loss, stratified_sample
from ensue.tasks.table import task_of
from ensue.train.label_objectives import LabelLoss
from ensue.train.settings import LabelTrainSettings

SMALL = {"layers": 1, "heads": 2, "hidden": 8, "context": 32, "tokenizer.vocabulary": 400, "tokenizer.min_count": 1}
WORDS = {"good": "fine lovely great nice", "bad": "awful dull poor sad", "odd": "strange weird queer quaint"}


def table(path, counts, seed=0):
    """A table with so many texts of each label, sorted by label."""
    chance = np.random.default_rng(seed)
    lines = []
    for label, count in counts.items():
        for _ in range(count):
            lines.append(
                f"it was {' '.join(chance.choice(WORDS[label].split(), size=3))} really and very much so\t{label}\n"
            )
    Path(path).write_text("text\tlabel\n" + "".join(lines), encoding="utf-8")
    return str(path)


def read_corpus(tmp_path, counts=None, system="bert", task="classify", notes=None, **flat):
    file = table(tmp_path / "train.tsv", counts or {"good": 30, "bad": 20})
    small = {k: v for k, v in SMALL.items() if system != "lstm" or k not in ("heads", "context")}
    settings = resolve(system, task=task, layers=[{**small, "data.files": (file,), **flat}])
    report = silent if notes is None else lambda kind, values: notes.append(values.get("text", ""))
    return settings, task_of(settings).read_corpus(settings, None, report)


def test_a_stratified_sample_keeps_shares_and_contains_smaller_samples():
    strata = ["a"] * 60 + ["b"] * 30 + ["c"] * 10
    whole = [set(stratified_sample(strata, count, 3)) for count in (10, 20, 50, 100)]
    for less, more in itertools.pairwise(whole):
        assert less < more
    assert whole[-1] == set(range(100))
    for count, found in zip((10, 20, 50), whole):
        shares = Counter(strata[place] for place in found)
        assert all(abs(shares[kind] - share * count) <= 1 for kind, share in (("a", 0.6), ("b", 0.3), ("c", 0.1)))
    assert stratified_sample(strata, 20, 3) == stratified_sample(strata, 20, 3) != stratified_sample(strata, 20, 4)


def test_held_out_examples_are_evenly_spaced(tmp_path):
    _, corpus = read_corpus(tmp_path, {"good": 40, "bad": 40, "odd": 20})
    assert (len(corpus.examples), len(corpus.valid_examples)) == (90, 10)
    assert Counter(one.label for one in corpus.valid_examples) == {"good": 4, "bad": 4, "odd": 2}
    assert not {one.where for one in corpus.examples} & {one.where for one in corpus.valid_examples}
    _, none = read_corpus(tmp_path, **{"data.holdout": 0.0})
    assert (
        none.valid is None and task_of(resolve("bert", task="classify", layers=[{}])).evaluator(_, None, none) is None
    )


@pytest.mark.parametrize("period", [2, 5, 10])
def test_labels_that_alternate_are_all_among_the_held_out_examples(tmp_path, period):
    lines = [f"text number {n}\tlabel{n % period}\n" for n in range(400)]
    (tmp_path / "turns.tsv").write_text("text\tlabel\n" + "".join(lines))
    _, corpus = read_corpus(tmp_path, **{"data.files": (str(tmp_path / "turns.tsv"),)})
    found = Counter(one.label for one in corpus.valid_examples)
    assert len(found) == period and sum(found.values()) == 40 and max(found.values()) - min(found.values()) <= 1
    assert not {one.where for one in corpus.examples} & {one.where for one in corpus.valid_examples}


def test_groups_stay_together_where_a_stratified_sample_is_held_out():
    groups = [n // 2 for n in range(400)]
    strata = ["ab"[group % 2] for group in groups]
    held = held_out_examples(groups, strata, 0.1)
    assert all(n ^ 1 in held for n in held) and Counter(strata[n] for n in held) == {"a": 20, "b": 20}


def test_labels_of_held_out_examples_are_known(tmp_path):
    """The middle one of every ten is held out."""
    lines = [f"text number {n}\t{'rare' if n == 5 else 'ab'[n % 2]}\n" for n in range(10)]
    (tmp_path / "rare.tsv").write_text("text\tlabel\n" + "".join(lines))
    _, corpus = read_corpus(tmp_path, **{"data.files": (str(tmp_path / "rare.tsv"),)})
    assert [one.label for one in corpus.valid_examples] == ["rare"]
    assert corpus.encoding.labels == ("a", "b", "rare") and corpus.valid.rows.targets.tolist() == [2]


def test_a_limit_takes_a_stratified_sample(tmp_path):
    flat = {"data.limit": 10, "data.holdout": 0.0}
    _, corpus = read_corpus(tmp_path, {"good": 40, "bad": 10}, **flat)
    assert Counter(one.label for one in corpus.examples) == {"good": 8, "bad": 2}
    _, again = read_corpus(tmp_path, {"good": 40, "bad": 10}, **flat)
    _, other = read_corpus(tmp_path, {"good": 40, "bad": 10}, **flat, seed=1)
    assert corpus.hash == again.hash != other.hash


def test_validation_may_have_one_label_but_none_that_is_new(tmp_path):
    valid = table(tmp_path / "valid.tsv", {"bad": 3})
    _, corpus = read_corpus(tmp_path, **{"data.valid": (valid,)})
    assert len(corpus.valid_examples) == 3 and len(corpus.examples) == 50
    table(valid, {"bad": 2, "odd": 1})
    with pytest.raises(InputError, match=r"valid.tsv:4: the label 'odd' is none of bad, good"):
        read_corpus(tmp_path, **{"data.valid": (valid,)})


def test_labels_keep_the_order_of_the_settings(tmp_path):
    _, corpus = read_corpus(tmp_path, **{"data.labels": ("good", "bad", "odd")})
    assert corpus.encoding.labels == ("good", "bad", "odd")
    with pytest.raises(InputError, match="the label 'bad' is none of good, odd"):
        read_corpus(tmp_path, **{"data.labels": ("good", "odd")})


def test_a_note_counts_texts_that_are_cut(tmp_path):
    notes = []
    _settings, corpus = read_corpus(tmp_path, notes=notes, **{"data.length": 8})
    assert corpus.train.rows.lengths.max() == 8
    assert any("50 of 50 texts are longer than 8 tokens and were cut" in note for note in notes)
    for flat, says in (({"data.length": 99}, "more than the model's context"), ({"data.length": 5}, "no room")):
        with pytest.raises(InputError, match=says):
            row_length(resolve("bert", task="tag", layers=[{**SMALL, **flat}]))
    assert row_length(resolve("lstm", task="tag", layers=[{}])) == 256
    long = {**SMALL, "context": 4096}
    assert row_length(resolve("bert", task="tag", layers=[long])) == 4096
    assert row_length(resolve("bert", task="tag", layers=[{**long, "begin_with": "runs/bert"}])) == 256


def test_balanced_class_weights(tmp_path):
    settings, corpus = read_corpus(tmp_path, {"good": 30, "bad": 10}, **{"train.class_weights": "balanced"})
    task, model = task_of(settings), build_model(settings, corpus)
    weights = task.objective(settings, model, corpus).weights
    counts = torch.tensor([sum(one.label == label for one in corpus.examples) for label in ("bad", "good")])
    torch.testing.assert_close(weights, counts.sum() / (2 * counts))
    assert float((weights * counts).sum()) == pytest.approx(len(corpus.examples))


def test_settings_that_a_model_cannot_use_are_refused(tmp_path):
    settings, corpus = read_corpus(tmp_path, **{"train.language": 0.5})
    with pytest.raises(InputError, match="which bert does not predict"):
        task_of(settings).objective(settings, build_model(settings, corpus), corpus)
    settings, corpus = read_corpus(tmp_path, **{"train.lora": 2, "train.freeze": 1})
    with pytest.raises(InputError, match="adapters leave the body as it is"):
        task_of(settings).complete_settings(settings, build_model(settings, corpus), corpus)
    settings, corpus = read_corpus(tmp_path, system="lstm", **{"train.lora": 2})
    with pytest.raises(InputError, match="lstm has no layers for adapters"):
        task_of(settings).complete_settings(settings, build_model(settings, corpus), corpus)


def test_adapters_train_with_the_head_and_are_merged(tmp_path):
    settings, corpus = read_corpus(tmp_path, **{"train.lora": 2})
    task, model = task_of(settings), build_model(settings, corpus)
    names = model.state_dict().keys()
    options = task.options(settings, model, corpus)
    task.prepare_model(settings, model, corpus)
    learns = {name for name, parameter in model.named_parameters() if parameter.requires_grad}
    assert learns >= {"out.weight", "out.bias"} and options.unfreezing is None and options.chosen_by == "accuracy"
    assert all(name.startswith("out.") or "parametrizations.weight.0" in name for name in learns)
    done = task.finish_model(model)
    assert done.state_dict().keys() == names and all(p.requires_grad for p in done.parameters())


@pytest.mark.parametrize(
    ("flat", "frozen", "every"),
    [
        ({"train.freeze": -1}, 2, 0),
        ({"train.freeze": 99, "train.unfreeze": 1.0}, 2, 3),
        ({"train.freeze": 1, "train.unfreeze": 2.0, "train.accumulate": 2}, 1, 3),
        ({"train.layer_decay": 0.9}, 0, 0),
    ],
    ids=str,
)
def test_which_layers_are_frozen(tmp_path, flat, frozen, every):
    settings, corpus = read_corpus(tmp_path, **flat, **{"train.batch_tokens": 200})
    task, model = task_of(settings), build_model(settings, corpus)
    steps = task.batches(settings, model, corpus).steps_per_epoch
    unfreezing = task.options(settings, model, corpus).unfreezing
    assert (unfreezing.frozen, unfreezing.decay) == (frozen, flat.get("train.layer_decay", 1.0))
    share = flat.get("train.unfreeze", 0.0) / flat.get("train.accumulate", 1)
    assert unfreezing.every == (max(1, round(share * steps)) if every else 0)


def test_the_bias_of_a_number_is_the_mean(tmp_path):
    lines = [f"number {n}\tis {n}\t{n / 2}\n" for n in range(12)]
    (tmp_path / "n.tsv").write_text("text1\ttext2\tscore\n" + "".join(lines))
    settings, corpus = read_corpus(tmp_path, task="regress", **{"data.files": (str(tmp_path / "n.tsv"),)})
    model = build_model(settings, corpus)
    assert model.out.bias.item() == pytest.approx(corpus.train.rows.targets.mean())
    assert task_of(settings).complete_settings(settings, model, corpus).data.labels == ()


@pytest.mark.parametrize("system", ["bert", "gpt", "lstm"])
def test_predictions_have_the_order_of_the_examples(tmp_path, system):
    settings, corpus = read_corpus(tmp_path, system=system)
    torch.manual_seed(0)
    model = build_model(settings, corpus)
    torch.nn.init.normal_(model.out.weight)
    kind, encoding = task_of(settings).kind, corpus.encoding
    whole = Labeller(model, kind, encoding).predict(corpus.examples)
    one_by_one = [Labeller(model, kind, encoding).predict([one])[0] for one in corpus.examples[:8]]
    for a, b in zip(whole, one_by_one):
        assert a["probabilities"] == pytest.approx(b["probabilities"], abs=1e-5)
    logits = compute_logits(model, corpus.train.rows, batch_tokens=40)
    mean = mean_loss(LabelLoss(), corpus.train, logits)
    plain = LabelLoss().of(
        torch.from_numpy(np.stack(logits)), torch.from_numpy(corpus.train.rows.targets), torch.ones(1)
    )
    assert mean == pytest.approx(float(plain), abs=1e-5)
    evaluate = task_of(settings).evaluator(settings, model, corpus)
    assert evaluate(lambda: False).keys() == {"valid_loss", "accuracy"}


def test_the_head_is_that_of_the_settings(tmp_path):
    settings, corpus = read_corpus(tmp_path, **{"head.pooling": "mean", "head.dense": "relu", "head.dropout": 0.3})
    model = build_model(settings, corpus)
    assert model.config == HeadConfig(pooling="mean", dense="relu", dropout=0.3, outputs=2)
    assert task_of(settings).complete_settings(settings, model, corpus).head == model.config


def test_questions_about_a_passage_are_held_out_together(tmp_path):
    lines = [f"Who is it {n}?\tAda number {n % 7} wrote notes.\tAda" for n in range(70)]
    (tmp_path / "q.tsv").write_text("\n".join(["question\tpassage\tanswer", *lines]) + "\n", encoding="utf-8")
    settings = resolve("bert", task="answer", layers=[{**SMALL, "data.files": (str(tmp_path / "q.tsv"),)}])
    corpus = task_of(settings).read_corpus(settings, None, silent)
    assert len(corpus.valid_examples) == 10
    assert not {one.passage for one in corpus.examples} & {one.passage for one in corpus.valid_examples}


@pytest.mark.parametrize(("length", "tokens"), [(5, 1000), (100, 1600), (1000, 8000)])
def test_batches_of_long_texts_have_more_tokens(length, tokens):
    rows = make_rows([(np.ones(length), np.zeros(length))] * 4, np.zeros(4))
    assert batch_tokens(LabelTrainSettings(), rows) == tokens
    assert batch_tokens(LabelTrainSettings(batch_tokens=700), rows) == 700


def test_an_unknown_tag_is_named_with_its_line(tmp_path):
    (tmp_path / "a.conll").write_text("Ada B-PER\nwrote O\n\nIn O\nParis B-LOC\n", encoding="utf-8")
    flat = {**SMALL, "data.files": (str(tmp_path / "a.conll"),), "data.labels": ("O", "B-PER"), "data.holdout": 0.0}
    settings = resolve("bert", task="tag", layers=[flat])
    with pytest.raises(InputError, match=r"a\.conll:5: the label 'B-LOC' is none of"):
        task_of(settings).read_corpus(settings, None, silent)


def test_unknown_labels_of_validation_are_left_out_if_asked(tmp_path):
    valid = table(tmp_path / "valid.tsv", {"good": 3, "odd": 2})
    with pytest.raises(InputError, match="the label 'odd' is none of bad, good"):
        read_corpus(tmp_path, **{"data.valid": (valid,)})
    notes = []
    _, corpus = read_corpus(tmp_path, notes=notes, **{"data.valid": (valid,), "data.bad_lines": "skip"})
    assert [one.label for one in corpus.valid_examples] == ["good"] * 3
    assert any("left out 2 examples with a label that is not known" in note and "valid.tsv:5" in note for note in notes)
