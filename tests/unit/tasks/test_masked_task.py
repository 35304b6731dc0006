"""Pre-training an encoder: which documents are held out, and what the figures mean."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch

from ensue.core.errors import InputError
from ensue.core.events import silent
from ensue.data.splitting import evenly_spaced
from ensue.data.tokenizers.encoder_fitting import fit_encoder_tokenizer
from ensue.measure.masked import masked_score
from ensue.runs.build_model import build_model
from ensue.runs.masked import MaskedRun
from ensue.runs.settings_resolution import resolve
from ensue.tasks import masked_modelling as masked

SMALL = {
    "layers": 1,
    "heads": 2,
    "hidden": 8,
    "context": 32,
    "train.batch": 4,
    "tokenizer.vocabulary": 100,
    "tokenizer.min_count": 1,
}
WORDS = [
    "the",
    "river",
    "flows",
    "north",
    "and",
    "students",
    "read",
    "old",
    "books",
    "while",
    "rain",
    "fell",
    "on",
    "grey",
    "houses",
]


def text(path, documents, sentences=4):
    chance = np.random.default_rng(0)
    blocks = [
        "".join(" ".join(chance.choice(WORDS, size=6)).capitalize() + ".\n" for _ in range(sentences))
        for _ in range(documents)
    ]
    path.write_text("\n".join(blocks), encoding="utf-8")
    return str(path)


def prepared(file, system="bert", **flat):
    small = {k: v for k, v in SMALL.items() if system != "roberta" or not k.startswith("tokenizer")}
    settings = resolve(system, layers=[{**small, "data.files": (file,), **flat}])
    if system == "roberta":
        settings = resolve(system, layers=[{**small, "data.files": (file,), "tokenizer.vocabulary": 300, **flat}])
    corpus = masked.TASK.read_corpus(settings, None, silent)
    return settings, corpus, build_model(settings, corpus)


@pytest.mark.parametrize(
    ("documents", "held", "flat"),
    [
        *((40, 2, {}), (10, 2, {}), (4, 2, {}), (3, 0, {}), (2, 0, {})),
        *((10, 1, {"next_sentence": False}), (10, 1, {"not_next": "swapped"}), (1, 0, {"not_next": "swapped"})),
    ],
)
def test_random_pairs_need_two_documents_on_either_side(tmp_path, documents, held, flat):
    settings, corpus, model = prepared(text(tmp_path / "t.txt", documents), **flat)
    assert (len(corpus.valid) if corpus.valid else 0) == held and len(corpus.train) == documents - held
    assert masked.TASK.batches(settings, model, corpus).batch(0).size
    evaluate = masked.TASK.evaluator(settings, model, corpus)
    assert (evaluate is not None) == (held > 0)
    if evaluate:
        assert evaluate(lambda: False) == evaluate(lambda: False)


def test_a_validation_text_without_a_row_is_refused_and_a_held_out_one_ignored(tmp_path):
    valid = text(tmp_path / "v.txt", 1)
    settings, corpus, model = prepared(text(tmp_path / "t.txt", 6), **{"data.valid": (valid,)})
    with pytest.raises(InputError, match="one document"):
        masked.TASK.evaluator(settings, model, corpus)
    held = replace(settings, data=replace(settings.data, valid=()))
    assert masked.TASK.evaluator(held, model, corpus) is None
    assert masked.TASK.final_figures(held, model, corpus, None, silent) is None


@pytest.mark.parametrize(("system", "kind"), [("bert", "next"), ("albert", "order")])
def test_the_figures_equal_those_computed_by_hand(system, kind, tmp_path):
    settings, corpus, model = prepared(text(tmp_path / "t.txt", 30), system)
    torch.nn.init.normal_(model.body.embed.weight, std=0.5)
    found = masked.score_documents(settings, model, corpus.valid, corpus.tokenizer, 2000, train=corpus.train)
    rows = masked.masked_batches(settings, model, corpus.valid, corpus.tokenizer, seed=0)
    counts = np.bincount(corpus.train.tokens, minlength=corpus.tokenizer.size) + 1
    fill = right = guess = hidden = told = pairs = 0.0
    model.eval()
    for step in range(rows.steps_per_epoch):
        batch = rows.batch(step)
        with torch.no_grad():
            logits = model(batch.tokens, None, batch.lengths, segments=batch.segments).logits.log_softmax(-1)
            first = model.body(batch.tokens, batch.segments, batch.lengths).hidden[:, 0]
            told += int((model.next_logits(first).argmax(-1) == batch.not_next).sum())
        at = batch.is_masked.nonzero()[:, 0], batch.positions[batch.is_masked]
        fill -= float(logits[at][torch.arange(len(batch.targets)), batch.targets].sum())
        right += int((logits[at].argmax(-1) == batch.targets).sum())
        guess -= sum(math.log(counts[token] / counts.sum()) for token in batch.targets.tolist())
        hidden, pairs = hidden + len(batch.targets), pairs + len(batch.lengths)
    assert found.hidden == hidden and found.rows == pairs
    assert found.masked_loss == pytest.approx(fill / hidden, rel=1e-4)
    assert found.unigram_loss == pytest.approx(guess / hidden, rel=1e-6)
    figures = found.as_dict()
    assert found.accuracy == pytest.approx(right / hidden)
    assert figures[f"{kind}_accuracy"] == pytest.approx(told / pairs)
    assert found.loss == pytest.approx(found.masked_loss + figures[f"{kind}_loss"])
    assert {name for name in figures if name.startswith(("next", "order"))} == {f"{kind}_accuracy", f"{kind}_loss"}
    measured = masked.TASK.evaluator(settings, model, corpus)(lambda: False)
    assert measured.keys() == {"valid_loss", "masked_accuracy", f"{kind}_accuracy"}
    assert any(
        f"{'next-sentence' if kind == 'next' else 'sentence-order'} accuracy" in line
        for line in MaskedRun.score_lines(figures)
    )
    assert found.masked_perplexity == pytest.approx(math.exp(found.masked_loss))


def test_roberta_reads_one_text_per_row(tmp_path):
    settings, corpus, model = prepared(text(tmp_path / "t.txt", 12), "roberta")
    assert corpus.tokenizer.kind == "bpe" and corpus.tokenizer.special_tokens.double_separator
    assert masked.TASK.batches(settings, model, corpus).batch(0).not_next is None
    score = masked.score_documents(settings, model, corpus.valid, corpus.tokenizer, 50)
    assert score.next_accuracy is None and "next_loss" not in score.as_dict()


def test_the_unigram_baseline_of_files_counts_the_files(tmp_path):
    settings, corpus, model = prepared(text(tmp_path / "t.txt", 12))
    found = masked.score_files(settings, model, corpus.tokenizer, [tmp_path / "t.txt"], None)
    assert found.hidden and found.rows
    with pytest.raises(InputError, match="one document"):
        masked.score_files(settings, model, corpus.tokenizer, [text(tmp_path / "one.txt", 1)], None)
    with pytest.raises(InputError, match="no token to mask"):
        masked_score(model, [], np.ones(4))


def test_sentences_without_tokens_are_left_out():
    tokenizer = fit_encoder_tokenizer("wordpiece", [" ".join(WORDS)], 100, min_count=1)
    found = masked.encode_documents([["the river", "\u200b"], ["\u200b"], ["rain", "fell"]], tokenizer)
    assert len(found) == 2 and found.documents.tolist() == [0, 1, 3]
    assert tokenizer.decode(found.tokens[: found.sentences[1]]) == "the river"


def test_settings_that_do_not_fit_are_refused(tmp_path):
    settings, corpus, model = prepared(text(tmp_path / "t.txt", 6), **{"train.length": 64})
    with pytest.raises(InputError, match=r"train\.length = 64 is more than context = 32"):
        masked.TASK.complete_settings(settings, model, corpus)
    _, corpus, _ = prepared(text(tmp_path / "t.txt", 6), **{"tokenizer.kind": "byte"})
    assert corpus.tokenizer.size == 261
    for kind in ("char", "word"):
        with pytest.raises(InputError, match=f"a {kind} tokenizer has no special tokens"):
            prepared(text(tmp_path / "t.txt", 6), **{"tokenizer.kind": kind})
    with pytest.raises(InputError, match="the text is one document"):
        _, corpus, _ = prepared(text(tmp_path / "t.txt", 1))
        masked.TASK.batches(settings, model, corpus)


def test_evenly_spaced_indices():
    assert evenly_spaced(10, 0.2) == [2, 7] and evenly_spaced(2, 0.9) == [1]
    assert len(set(evenly_spaced(1000, 0.05))) == 50
