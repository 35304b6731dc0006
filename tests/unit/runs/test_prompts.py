"""Questions to a language model: their tokens, log-likelihoods and greedy answers, against plain computations."""

import numpy as np
import pytest
import torch

import ensue
from ensue.core.errors import InputError
from ensue.runs.prompts import Prompter, Question

TEXT = "the cat sat on the mat. the dog ran to the red house. a bird sang in the old tree.\n" * 12
QUESTIONS = [
    Question("the cat sat on", " the mat"),
    Question("the cat sat on", " the old tree"),
    Question("the cat sat on ", "the mat"),  # the space belongs to the continuation
    Question("", "the dog"),
    Question("   ", "the dog"),
    Question("the dog ran\n", "to the house"),
    Question("a", "b"),
]


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """A run of each kind: subwords, characters, and words with unknown ones."""
    folder = tmp_path_factory.mktemp("prompts")
    (folder / "text.txt").write_text(TEXT, encoding="utf-8")
    quick = {"train.steps": 3, "train.batch": 2, "hidden": 16}
    subwords = {"tokenizer.kind": "bpe", "tokenizer.vocabulary": 290}
    made = {
        "gpt": ("gpt", {**quick, "heads": 2, "layers": 1, "context": 32, **subwords}),
        "lstm": ("lstm", {**quick, "tokenizer.kind": "char"}),
        "ngram": ("ngram", {"order": 3, "tokenizer.kind": "word"}),
    }
    return {
        name: ensue.fit(system, folder / "text.txt", out=folder / name, settings=settings)
        for name, (system, settings) in made.items()
    }


def plainly(run, context, continuation):
    """log P by a whole forward pass over the end token, context and continuation."""
    kept = context.rstrip()
    continuation = context[len(kept) :] + continuation
    before, whole = run.tokenizer.encode(kept).tolist(), run.tokenizer.encode(kept + continuation).tolist()
    after = whole[len(before) :]
    tokens = [run.tokenizer.end, *before, *after]
    with torch.no_grad():
        log_p = run.model(torch.tensor([tokens[:-1]])).logits[0].double().log_softmax(-1)[-len(after) :]
    return float(log_p[torch.arange(len(after)), torch.tensor(after)].sum()), len(after)


@pytest.mark.parametrize("name", ("gpt", "lstm"))
def test_log_likelihoods_are_those_of_a_whole_forward_pass(name, runs):
    run = runs[name]
    for question, score in zip(QUESTIONS, Prompter(run).log_probs(QUESTIONS), strict=True):
        assert score.log_prob == pytest.approx(plainly(run, question.context, question.continuation)[0], abs=1e-4)


def test_a_text_begins_with_the_token_that_the_tokenizer_puts_there(runs, monkeypatch):
    run = runs["gpt"]
    tokens = tuple(run.tokenizer.encode("the cat").tolist())
    assert Prompter(run).context("the cat") == (run.tokenizer.end, *tokens)
    monkeypatch.setitem(run.config, "figures", {"stopped": "converted"})
    assert Prompter(run).context("the cat") == tokens  # its tokenizer has no token that begins a text
    monkeypatch.setattr(run.tokenizer, "begin", 7)
    for stopped in ("converted", "steps"):
        monkeypatch.setitem(run.config, "figures", {"stopped": stopped})
        prompter = Prompter(run)
        assert prompter.context("the cat") == (7, *tokens)
        assert prompter.request(Question("", "the cat")).context == (7,)
        assert prompter.request(Question("the", " cat")).context == (7, *run.tokenizer.encode("the").tolist())


def test_a_trailing_space_of_the_context_belongs_to_the_continuation(runs):
    with_space, without = (Prompter(runs["gpt"]).request(QUESTIONS[n]) for n in (2, 0))
    assert with_space == without


def test_the_score_of_a_whole_text_is_that_of_ensue_score(runs):
    text = "the dog sat on the mat."
    (found,) = Prompter(runs["lstm"]).log_probs([Question("", text)])
    values = [value for _, value in runs["lstm"].per_token(text=text)]
    assert found.log_prob == pytest.approx(sum(values[:-1]), abs=1e-4)  # without the end token


def test_unknown_words_cost_their_spelling(runs):
    known, short, long = (
        score.log_prob
        for score in Prompter(runs["ngram"]).log_probs([Question("the", f" {w}") for w in ("cat", "zq", "zqxjzqxj")])
    )
    assert known > short > long


@pytest.mark.parametrize("name", ("gpt", "lstm", "ngram"))
def test_an_answer_is_the_most_probable_token_again_and_again(name, runs):
    run, contexts = runs[name], ["the cat", "the cat sat on the", "a bird", ""]
    answers = Prompter(run).answers([(one, None) for one in contexts], max_tokens=6)
    for context, answer in zip(contexts, answers, strict=True):
        tokens = [run.tokenizer.end, *run.tokenizer.encode(context).tolist()]
        before, drawn = list(tokens), []
        for _ in range(6):
            with torch.no_grad():
                best = int(run.model(torch.tensor([tokens])).logits[0, -1].argmax())
            if best == run.tokenizer.end and not run.tokenizer.lines:
                break
            tokens.append(best)
            drawn.append(best)
        whole, start = (run.tokenizer.decode(np.array(ids, np.int64)) for ids in ([*before[1:], *drawn], before[1:]))
        assert answer == whole[len(start) :]


def test_an_answer_ends_before_a_stop_sequence(runs):
    prompter = Prompter(runs["lstm"])
    (whole,) = prompter.answers([("the", None)], max_tokens=12)
    assert len(whole) >= 3
    for stop in (whole[1], whole[1:3]):
        (cut,) = prompter.answers([("the", None)], stop=[stop], max_tokens=12)
        assert cut == whole[: whole.index(stop)]


def test_answers_in_a_batch_are_those_one_by_one(runs):
    prompter = Prompter(runs["gpt"])
    shots = "the cat sat on the mat. the dog ran to the red house. " * 2
    contexts = [(shots + one, "shots") for one in ("the cat", "a bird sang", "the", "a dog ran to")]
    together = prompter.answers(contexts, max_tokens=5)
    assert together == [prompter.answers([one], max_tokens=5)[0] for one in contexts]


def test_a_model_that_sees_both_sides_is_refused(tmp_path):
    (tmp_path / "text.txt").write_text(TEXT, encoding="utf-8")
    settings = {"train.steps": 2, "train.batch": 2, "hidden": 8, "tokenizer.kind": "char"}
    run = ensue.fit("bilm", tmp_path / "text.txt", out=tmp_path / "run", settings=settings)
    with pytest.raises(InputError, match="bilm cannot continue a text"):
        Prompter(run)
