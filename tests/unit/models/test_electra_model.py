"""ELECTRA: what is sampled, what is trained, what the two encoders share, and what is kept for tasks."""

import numpy as np
import pytest
import torch

from ensue.core.errors import InputError
from ensue.data.masking import DocumentTokens, MaskedBatches, MaskingOptions
from ensue.data.tokenizers.special_tokens import SpecialTokens
from ensue.measure.cost import parameter_parts
from ensue.measure.masked import masked_score
from ensue.models.backbones import body_of
from ensue.models.electra import ELECTRA, SIZES, ELECTRAConfig
from ensue.models.labelled import HeadConfig, Labelled
from ensue.nn.eval_mode import eval_mode
from ensue.nn.sampling import inverse_transform
from ensue.runs.save_weights import own_tensors
from ensue.train.masked_objectives import replace_tokens, replaced_token_loss, replaced_token_losses

V = 31
TINY = {"vocabulary": V, "layers": 2, "heads": 4, "hidden": 16, "context": 24, "embedding": 6, "dropout": 0.0}
MARKS = SpecialTokens(start=2, separator=3, end=3, double_separator=False, mask=4, pad=0)


def electra(std=0.5, **changes):
    torch.manual_seed(0)
    made = ELECTRA(ELECTRAConfig(**{**TINY, **changes}))
    for weight in made.parameters():
        torch.nn.init.normal_(weight, std=std)
    return made


def batch_of(step=0, rows=4):
    chance = np.random.default_rng(0)
    ends = np.arange(0, 3001, 15)
    text = DocumentTokens(chance.integers(5, V, 3000).astype(np.int32), ends, np.arange(0, len(ends), 4))
    options = MaskingOptions(mask=1.0, random=0.0)
    return MaskedBatches(text, MARKS, V, rows=rows, length=24, pairs="none", masking=options).batch(step)


def test_the_loss_is_that_of_the_equations():
    model, batch = electra(), batch_of()
    hidden = model.generator(batch.tokens, batch.segments, batch.lengths).hidden
    row = torch.arange(len(batch.tokens))[:, None].expand_as(batch.positions)[batch.is_masked]
    column = batch.positions[batch.is_masked]
    p = model.head(hidden[row, column]).log_softmax(-1)
    fill = -p[torch.arange(len(p)), batch.targets].mean()
    drawn = (p.exp().double().cumsum(-1) > batch.noise[:, None]).double().argmax(-1)
    tokens = batch.tokens.clone()
    tokens[row, column] = drawn
    original = batch.tokens.clone()
    original[row, column] = batch.targets
    chance = torch.sigmoid(model.replaced(model.body(tokens, batch.segments, batch.lengths).hidden))
    replaced = tokens != original
    assert 0 < replaced.sum() <= len(drawn)
    detect = -torch.where(replaced, chance, 1 - chance).log().mean()  # rows are full: there is no padding
    assert int(batch.lengths.min()) == 24
    found = replaced_token_losses(model, batch)
    torch.testing.assert_close(found, (fill, detect))
    torch.testing.assert_close(replaced_token_loss(model, batch, None)[0], fill + 50 * detect)


def test_padding_costs_nothing():
    model = electra()
    tokens, lengths = torch.randint(5, V, (2, 9)), torch.tensor([9, 4])
    replaced = torch.rand(2, 9) < 0.3
    whole = model.replaced_loss(tokens, None, lengths, replaced)
    parts = [
        model.replaced_loss(tokens[n : n + 1, :k], None, None, replaced[n : n + 1, :k]) for n, k in ((0, 9), (1, 4))
    ]
    torch.testing.assert_close(whole, (9 * parts[0] + 4 * parts[1]) / 13)


def test_no_gradient_passes_through_what_is_sampled():
    model, batch = electra(), batch_of()
    _, detect = replaced_token_losses(model, batch)
    detect.backward()
    alone = [name for name, weight in model.named_parameters() if name.startswith(("generator.", "head."))]
    assert alone and all(model.get_parameter(name).grad is None for name in alone)
    assert model.body.embed.weight.grad is not None


def test_embeddings_are_shared_and_stored_once():
    model = electra()
    shared = ("embed.weight", "positions.weight", "segments.weight", "norm.weight", "norm.bias")
    for name in shared:
        assert model.generator.get_parameter(name) is model.body.get_parameter(name)
    assert model.head.out.weight is model.body.embed.weight
    stored = own_tensors(model)
    assert not [name for name in stored if name.startswith("generator.") and name.removeprefix("generator.") in shared]
    assert sum(t.numel() for t in stored.values()) == sum(p.numel() for p in model.parameters())


@pytest.mark.parametrize(
    ("size", "body", "generator"),
    [
        ("paper-small", 13_483_008, (64, 1, 12)),
        ("base", 108_891_648, (256, 4, 12)),
        ("large", 334_092_288, (256, 4, 24)),
    ],
)
def test_the_published_sizes(size, body, generator):
    with torch.device("meta"):
        model = ELECTRA(ELECTRAConfig(vocabulary=30_522, **SIZES[size]))
    assert parameter_parts(model)["body"] == body
    small = model.generator.config
    assert (small.hidden, small.heads, small.layers) == generator
    assert small.embedding == (SIZES[size].get("embedding") or SIZES[size]["hidden"])


def test_a_generator_as_wide_as_the_embedding_has_no_map():
    wide = electra(embedding=8, generator=0.5)
    assert isinstance(wide.generator.project, torch.nn.Identity) and wide.generator.width == 8
    assert electra(embedding=0, generator=1.0).generator.width == 16


def test_draws_have_the_probabilities_and_depend_on_their_numbers_alone():
    logits = torch.tensor([[0.0, 1.0, -1e9, 2.0]])
    noise = torch.rand(60_000, generator=torch.Generator().manual_seed(0))
    drawn = inverse_transform(logits.expand(len(noise), -1), noise)
    share = torch.bincount(drawn, minlength=4) / len(noise)
    torch.testing.assert_close(share, logits[0].softmax(-1), atol=0.006, rtol=0)
    assert share[2] == 0
    some = torch.tensor([4, 90, 7])
    assert torch.equal(inverse_transform(logits.expand(3, -1), noise[some]), drawn[some])
    assert inverse_transform(logits, torch.tensor([1.0])).item() == 3  # 1 − 1e-9 in single precision


def test_a_draw_that_equals_the_text_replaces_nothing():
    batch = batch_of()
    same = replace_tokens(batch, batch.targets)
    assert not same.replaced.any() and not (same.tokens == MARKS.mask).any()
    drawn = batch.targets.clone()
    drawn[::2] = (drawn[::2] - 5 + 1) % (V - 5) + 5
    other = replace_tokens(batch, drawn)
    assert int(other.replaced.sum()) == len(drawn[::2])


def test_ranks_draw_what_one_process_draws():
    model, batch = electra().eval(), batch_of()
    whole = model.sample(
        model.encode(batch.tokens, None, batch.lengths, batch.positions).hidden[:, 1:][batch.is_masked], batch.noise
    )
    parts = []
    for rows in (slice(0, 1), slice(1, 4)):
        part = batch.select(rows)
        hidden = model.encode(part.tokens, None, part.lengths, part.positions).hidden[:, 1:][part.is_masked]
        parts.append(model.sample(hidden, part.noise))
    assert torch.equal(torch.cat(parts), whole)


def test_the_discriminator_keeps_the_laws_of_encoders():
    model = electra().eval()
    tokens, lengths = torch.randint(5, V, (3, 9)), torch.tensor([9, 4, 1])
    found = model.replaced_logits(tokens, None, lengths)
    for row, length in enumerate(lengths.tolist()):
        alone = model.replaced_logits(tokens[row : row + 1, :length], None, None)
        torch.testing.assert_close(found[row, :length], alone[0], atol=1e-4, rtol=1e-4)


def test_both_learn_on_one_text():
    model = electra(std=0.1, detection=10.0, generator=1.0)
    optimiser = torch.optim.AdamW(model.parameters(), lr=1e-2, weight_decay=0.0)
    first = last = None
    for _ in range(120):
        batch = batch_of(0)
        optimiser.zero_grad()
        loss = replaced_token_loss(model, batch, None)[0]
        loss.backward()
        optimiser.step()
        first, last = first if first is not None else loss.item(), loss.item()
    assert last < 0.35 * first


def test_the_figures_are_those_computed_by_hand():
    model, batches = electra().eval(), [batch_of(0), batch_of(1)]
    torch.nn.init.zeros_(model.replaced.out.bias)
    torch.nn.init.normal_(model.replaced.out.weight, std=3.0)  # so that it says yes now and then
    score = masked_score(model, batches, np.ones(V))
    right, loss, found, said, real, count = 0, 0.0, 0, 0, 0, 0
    with torch.no_grad(), eval_mode(model):
        for batch in batches:
            hidden = model.encode(batch.tokens, batch.segments, batch.lengths, batch.positions).hidden[:, 1:]
            tokens, replaced = replace_tokens(batch, model.sample(hidden[batch.is_masked], batch.noise))
            p = torch.sigmoid(model.replaced_logits(tokens, batch.segments, batch.lengths))
            loss -= torch.where(replaced, p, 1 - p).log().sum().item()
            guess = p > 0.5
            right, count = right + int((guess == replaced).sum()), count + replaced.numel()
            found, said, real = (
                found + int((guess & replaced).sum()),
                said + int(guess.sum()),
                real + int(replaced.sum()),
            )
    precision, recall = found / said, found / real
    assert score.replaced_loss == pytest.approx(loss / count, rel=1e-4)
    assert score.replaced_accuracy == pytest.approx(right / count)
    assert score.replaced_f1 == pytest.approx(2 * precision * recall / (precision + recall))
    assert score.replaced_share == pytest.approx(real / count)
    assert score.generator_bits == pytest.approx(score.masked_loss / np.log(2))
    assert score.loss == pytest.approx(score.masked_loss + 50 * score.replaced_loss)


def test_tasks_begin_with_the_discriminator_and_a_dense_layer_of_their_own():
    model = electra()
    body = body_of(model)
    assert body is model.body and body.pooler is None
    labelled = Labelled(body, HeadConfig(outputs=3))
    assert labelled.config.dense == "gelu-erf" and labelled.dense.weight.shape == (16, 16)
    tokens = torch.randint(5, V, (2, 7))
    expected = torch.nn.functional.gelu(labelled.dense(body(tokens).hidden[:, 0]))
    torch.testing.assert_close(labelled.eval()(tokens).logits, labelled.out(expected))


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"generator": 0.0}, "generator = 0.0 .*above 0 and at most 1"),
        ({"generator": 1.5}, "generator = 1.5"),
        ({"generator": 0.01}, "generator = 0.01"),
        ({"generator_layers": -1}, "generator_layers = -1"),
        ({"detection": 0.0}, "detection = 0.0"),
        ({"next_sentence": True, "pooled": True}, "next_sentence = True"),
        ({"pooled": True}, "pooled = True"),
    ],
)
def test_settings_that_do_not_fit_are_refused_in_one_line(changes, says):
    with pytest.raises(InputError, match=says) as error:
        ELECTRAConfig(**{**TINY, **changes})
    assert "\n" not in str(error.value)
