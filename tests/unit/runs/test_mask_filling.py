"""Filling in masks: candidates, rounds and seeds."""

import pytest
import torch

from ensue.core.errors import InputError
from ensue.data.tokenizers.encoder_fitting import fit_encoder_tokenizer
from ensue.models.bert import BERT, BERTConfig
from ensue.runs.mask_filling import fill_masks, masked_row, special_ids
from ensue.search.mask_filling import distributions, fill_in

TEXTS = ["the cat sat on the mat", "a dog ran to the big house", "milk is white and snow is cold"] * 4
MASK = 4


@pytest.fixture(scope="module", params=["wordpiece", "bpe", "unigram"])
def tokenizer(request):
    return fit_encoder_tokenizer(request.param, TEXTS, 400, min_count=1)


def model_of(vocabulary, **changes):
    torch.manual_seed(0)
    sizes = {"layers": 2, "heads": 2, "hidden": 16, "context": 24, **changes}
    made = BERT(BERTConfig(vocabulary=vocabulary, **sizes)).eval()
    for weight in made.parameters():
        torch.nn.init.normal_(weight, std=0.3)
    return made


def test_each_round_masks_fewer_tokens_again():
    row = [2, *[MASK] * 7, 8, MASK, 3]
    found = fill_in(model_of(30), row, MASK, never=(0, 1, 2, 3, MASK), rounds=4)
    assert [sum(one.masked_again) for one in found.rounds] == [6, 4, 2, 0]  # ⌊8 (4 − r) / 4⌋
    assert found.positions == (1, 2, 3, 4, 5, 6, 7, 9)
    assert found.tokens[0] == 2 and found.tokens[8] == 8 and found.tokens[10] == 3
    assert not {0, 1, 2, 3, MASK} & {found.tokens[place] for place in found.positions}
    for before, after in zip(found.rounds, found.rounds[1:]):
        for place, again in enumerate(before.masked_again):
            if not again:  # what is not hidden again stays
                assert before.tokens[place] == after.tokens[place]
        kept = [p for p, again in zip(before.probabilities, before.masked_again) if not again]
        assert max(p for p, again in zip(before.probabilities, before.masked_again) if again) <= min(kept)
    assert found.rounds[-1].tokens == tuple(found.tokens[place] for place in found.positions)


def test_one_round_takes_the_most_likely_token_of_each_mask():
    model, row = model_of(30), [2, MASK, 9, MASK, 3]
    p = distributions(model, torch.tensor([row]), torch.tensor([[1, 3]]), never=(MASK,))
    assert p[:, MASK].eq(0).all()
    torch.testing.assert_close(p.sum(1), torch.ones(2))
    found = fill_in(model, row, MASK, never=(MASK,))
    assert [found.tokens[1], found.tokens[3]] == p.argmax(1).tolist()
    assert found.rounds[0].probabilities == pytest.approx(p.amax(1).tolist())
    logits = model(torch.tensor([row])).logits[0, [1, 3]]
    logits[:, MASK] = -torch.inf
    torch.testing.assert_close(p, logits.softmax(-1))


def test_filling_ends_when_nothing_is_masked_even_with_rounds_left():
    assert len(fill_in(model_of(30), [2, MASK, 3], MASK, rounds=9).rounds) == 1


def test_sampling_depends_on_its_seed_alone():
    def draw(seed):
        chance = torch.Generator().manual_seed(seed)
        return fill_in(model_of(30), [2, *[MASK] * 9, 3], MASK, rounds=3, temperature=2.0, generator=chance).tokens

    assert draw(1) == draw(1) and len({draw(seed) for seed in range(4)}) > 1


def test_rows_without_masks_and_zero_rounds_are_refused():
    with pytest.raises(InputError, match="nothing to fill in"):
        fill_in(model_of(30), [2, 9, 3], MASK)
    with pytest.raises(InputError, match="0 rounds"):
        fill_in(model_of(30), [2, MASK, 3], MASK, rounds=0)


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("[MASK] cat sat", [1, "cat sat"]),
        ("the cat [MASK]", ["the cat", 1]),
        ("the [MASK] [MASK] sat", ["the", 2, "sat"]),
        ("the [MASK][MASK] sat", ["the", 2, "sat"]),
        ("[MASK]", [1]),
        ("the <mask> sat.", ["the", 1, "sat."]),
    ],
)
def test_masks_may_be_anywhere_in_a_text(tokenizer, text, parts):
    marks = tokenizer.special_tokens
    wanted = [marks.start]
    for number, part in enumerate(parts):
        if isinstance(part, int):
            wanted += [marks.mask] * part
        else:
            space = " " if number and tokenizer.spaced else ""
            wanted += tokenizer.encode(space + part).tolist()
    assert masked_row(tokenizer, text).tolist() == [*wanted, marks.end]


def test_masks_of_a_text_are_replaced_by_words(tokenizer):
    model = model_of(tokenizer.size + 3)  # tables of weights may be larger than a vocabulary
    with torch.no_grad():
        model.head.out.bias[tokenizer.size :] = 50.0
    found = fill_masks(model, tokenizer, "the [MASK] sat on [MASK] mat [MASK]", top=4)
    assert len(found.gaps) == len(found.chosen) == 3 and len(found.steps) == 3
    assert all(len(gap) == 4 and gap[0][1] >= gap[-1][1] > 0 for gap in found.gaps)
    never = {tokenizer.name(token) for token in special_ids(tokenizer) if token is not None}
    assert not never & {name for gap in found.gaps for name, _ in gap}
    assert "[MASK]" not in found.text and "<mask>" not in found.text and "sat on" in found.text
    assert found.steps[-1]["text"] == found.text and not any(found.steps[-1]["hidden_again"])
    assert fill_masks(model, tokenizer, "the [MASK] sat on [MASK] mat [MASK]", top=4) == found
    assert found.as_dict()["gaps"][0][0].keys() == {"token", "probability"}
    assert len(fill_masks(model, tokenizer, "the [MASK] [MASK]", rounds=1).steps) == 1


def test_texts_without_a_mask_or_too_long_are_refused(tokenizer):
    model = model_of(tokenizer.size)
    with pytest.raises(InputError, match="nothing to fill in"):
        fill_masks(model, tokenizer, "the cat")
    with pytest.raises(InputError, match="the model reads at most 24"):
        fill_masks(model, tokenizer, "the cat " * 30 + "[MASK]")
