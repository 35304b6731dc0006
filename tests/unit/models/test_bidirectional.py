"""The bidirectional language model, and runs that read the text backward."""

import math

import numpy as np
import pytest
import torch

from ensue.measure.language import log_probs
from ensue.models.bidirectional import BidirectionalLanguageModel
from ensue.models.recurrent import RecurrentConfig
from ensue.verbs.fit import fit

TRAIN = "one for the money two for the show three to get ready now go cat go " * 20
HELD = "two to get ready for the cat"


def both_ways(**settings):
    return BidirectionalLanguageModel(RecurrentConfig(vocabulary=11, hidden=6, **settings)).eval()


@torch.no_grad()
def test_a_word_is_predicted_from_all_others_but_not_from_itself():
    model, text = both_ways(layers=2), torch.randint(11, (1, 9))
    logits = model(text).logits[0]
    for place in range(9):
        changed = text.clone()
        changed[0, place] = (text[0, place] + 1) % 11
        difference = (model(changed).logits[0] - logits).abs().amax(-1)
        assert difference[place] == 0 and (difference[torch.arange(9) != place] > 0).all()


@torch.no_grad()
def test_a_padded_row_is_read_from_its_own_end():
    model, text = both_ways(), torch.randint(11, (1, 5))
    padded = torch.cat([text, torch.randint(11, (1, 4))], 1)
    found = model(padded, lengths=torch.tensor([5])).logits[:, :5]
    torch.testing.assert_close(found, model(text).logits, atol=1e-6, rtol=0)


def test_it_is_scored_in_windows_that_cover_every_token_once():
    model, tokens = both_ways(), np.random.default_rng(0).integers(11, size=2500)
    found = log_probs(model, tokens)
    for begin, end in ((0, 128), (128, 256), (2432, 2499)):  # the first token is only read; the last window is short
        window = torch.from_numpy(tokens[1:][begin:end])[None]
        expected = model.log_prob(window, window)[0][0].detach().double().numpy()
        np.testing.assert_allclose(found[begin:end], expected, atol=1e-5)
    assert len(found) == 2499


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """An n-gram that reads a text from its end, and one that reads the text written from its end."""
    folder = tmp_path_factory.mktemp("runs")

    def counted(name, text, direction):
        (folder / f"{name}.txt").write_text(text, encoding="utf-8")
        settings = {"data.direction": direction, "data.holdout": 0.0, "tokenizer.kind": "char", "order": 4}
        return fit("ngram", folder / f"{name}.txt", out=folder / name, settings=settings)

    return counted("backward", TRAIN, "backward"), counted("mirrored", TRAIN[::-1], "forward")


def test_a_backward_run_scores_as_one_that_reads_the_mirrored_text(runs):
    backward, mirrored = runs
    found, expected = backward.score(text=HELD), mirrored.score(text=HELD[::-1])
    assert found.nll_total == pytest.approx(expected.nll_total, rel=1e-6)
    assert found.bits_per_byte == pytest.approx(expected.bits_per_byte, rel=1e-6)
    assert abs(found.nll_total - mirrored.score(text=HELD).nll_total) > 1  # direction does matter


def test_a_backward_run_names_tokens_in_the_order_of_the_text(runs):
    backward, mirrored = runs
    found, expected = backward.per_token(text=HELD), mirrored.per_token(text=HELD[::-1])
    first, *rest = found
    assert first[0] == backward.tokenizer.name(backward.tokenizer.end)  # that the text begins is guessed last
    assert "".join(name for name, _ in rest).replace("␣", " ") == HELD
    assert [value for _, value in found] == pytest.approx([value for _, value in reversed(expected)], abs=1e-5)
    assert math.fsum(value for _, value in found) == pytest.approx(-backward.score(text=HELD).nll_total, rel=1e-6)


def test_a_backward_run_predicts_the_token_before(runs):
    backward, mirrored = runs
    found, expected = backward.next("at go", 3), mirrored.next("og ta", 3)
    assert [name for name, _ in found] == [name for name, _ in expected] and found[0][0] == "c"
    assert [p for _, p in found] == pytest.approx([p for _, p in expected], abs=1e-5)


def test_a_backward_run_generates_the_text_before(runs):
    backward, mirrored = runs
    [found], [expected] = (
        run.generate(prompt, tokens=12, temperature=0.0) for run, prompt in ((backward, "cat go"), (mirrored, "og tac"))
    )
    assert found.text == expected.text[::-1] + "cat go" and len(found.text) == 12 + len("cat go")
    assert found.sample.log_prob == pytest.approx(expected.sample.log_prob, abs=1e-4)


def test_a_network_can_be_trained_backward(tmp_path):
    (tmp_path / "text.txt").write_text(TRAIN, encoding="utf-8")
    settings = {"data.direction": "backward", "tokenizer.kind": "word", "hidden": 8}
    settings |= {"train.steps": 4, "train.batch": 4, "train.length": 8}
    run = fit("lstm", tmp_path / "text.txt", out=tmp_path / "run", settings=settings)
    assert run.direction == "backward" and run.config["figures"]["valid"]["bits_per_byte"] > 0
    pairs = run.per_token(text=HELD)
    assert [name for name, _ in pairs[1:]] == HELD.split()
    assert math.fsum(value for _, value in pairs) == pytest.approx(-run.score(text=HELD).nll_total, rel=1e-6)
    assert run.generate("the cat", tokens=3)[0].text.endswith("the cat")
