"""Our beam search against transformers' generate, on a tiny Marian translation model with random weights."""

from dataclasses import dataclass

import pytest
import torch

from ensue.exchange.huggingface import marian_from_weights
from ensue.nn.protocol import Output
from ensue.nn.state import State
from ensue.search.beam import Search, beam_search

transformers = pytest.importorskip("transformers")
VOCABULARY, PAD, END, BEGIN = 37, 36, 0, 36
ACTIVATION = {"activation_function": "relu"}


@dataclass(frozen=True)
class Read(State):
    """The encoded source and what was generated so far."""

    source: torch.Tensor
    mask: torch.Tensor
    tokens: torch.Tensor


class Marian:
    """A Marian model as search wants it: all that was generated is read again at every step."""

    def __init__(self, model):
        self.model = model

    def start(self, source, lengths):
        mask = (torch.arange(source.shape[1]) < lengths[:, None]).long()
        hidden = self.model.get_encoder()(source, attention_mask=mask).last_hidden_state
        return Read(hidden, mask, torch.zeros(len(source), 0, dtype=torch.long))

    def __call__(self, tokens, state, *, want):
        tokens = torch.cat([state.tokens, tokens], dim=1)
        output = self.model(
            encoder_outputs=(state.source,),
            attention_mask=state.mask,
            decoder_input_ids=tokens,
            output_attentions="attention" in want,
            use_cache=False,
        )
        seen = tuple(layer[:, :, -1:] for layer in output.cross_attentions) if "attention" in want else None
        return Output(output.logits[:, -1:], None, seen, Read(state.source, state.mask, tokens))


def marian(seed):
    torch.manual_seed(seed)
    config = transformers.MarianConfig(
        vocab_size=VOCABULARY,
        d_model=16,
        encoder_layers=2,
        decoder_layers=2,
        encoder_attention_heads=2,
        decoder_attention_heads=2,
        encoder_ffn_dim=32,
        decoder_ffn_dim=32,
        max_position_embeddings=32,
        pad_token_id=PAD,
        eos_token_id=END,
        decoder_start_token_id=BEGIN,
        forced_eos_token_id=None,
        attn_implementation="eager",
        **ACTIVATION,
    )
    model = transformers.MarianMTModel(config).eval()
    for name, weight in model.named_parameters():  # so that tokens matter, and both sides of attention
        if weight.dim() == 2 and "embed_positions" not in name:
            torch.nn.init.normal_(weight, std=2.0 if "shared" in name else 0.25)
    head = 0.7 * torch.randn(VOCABULARY, 16)  # not tied to the embedding, or it would only repeat
    head[END] *= 1.5  # so that some hypotheses end and some are cut
    model.lm_head.weight = torch.nn.Parameter(head)
    model.generation_config.forced_eos_token_id = None
    model.final_logits_bias[0, PAD] = -1e9
    lengths = torch.tensor([7, 3, 5, 1, 6, 2])
    source = torch.randint(1, PAD, (6, 7)).masked_fill(torch.arange(7) >= lengths[:, None], PAD)
    return model, source, lengths


def theirs(model, source, longest, **how):
    """What transformers generates, without first token and padding; and whether it ended."""
    with torch.no_grad():
        made = model.generate(
            source,
            attention_mask=(source != PAD).long(),
            max_length=longest + 1,
            do_sample=False,
            early_stopping="never" if how["num_beams"] > 1 else False,
            **how,
        )
    rows = [row[1:].tolist() for row in made]
    cut = [row[: row.index(END)] if END in row else row for row in rows]
    return [(tokens, END in row) for tokens, row in zip(cut, rows)]


def ours(model, source, lengths, longest, how, **more):
    wrapped = Marian(model)
    with torch.no_grad():
        state = wrapped.start(source, lengths)
    return beam_search(wrapped, state, BEGIN, end=END, longest=longest, how=how, **more)


@pytest.mark.parametrize("beam", [1, 2, 5])
@pytest.mark.parametrize(("length", "penalty"), [("none", 0.0), ("mean", 1.0)])
def test_the_best_hypothesis_equals_generate(beam, length, penalty):
    kinds = set()
    for seed in range(5):
        model, source, lengths = marian(seed)
        expected = theirs(model, source, 8, num_beams=beam, length_penalty=penalty)
        found = ours(model, source, lengths, 8, Search(beam=beam, length=length))
        got = [(f.best.tokens, f.best.ended) for f in found]
        assert got == expected
        kinds.update(ended for _, ended in got)
    assert kinds == {True, False}


class Own:
    """Our own Transformer with Marian's weights, whose hypotheses share their keys and values."""

    def __init__(self, model):
        weights = model.state_dict()
        weights["final_logits_bias"] = torch.zeros_like(weights["final_logits_bias"])
        weights["model.shared.weight"] = weights["model.shared.weight"] / 4  # ours are multiplied by √16
        config = {**model.config.to_dict(), "scale_embedding": True, **ACTIVATION}
        self.model = marian_from_weights(config, weights).eval()
        width = torch.arange(16).view(2, -1).T.flatten()  # Marian's sines come first, then its cosines
        self.model.head.weight = torch.nn.Parameter(model.lm_head.weight[:, width].detach().clone())

    def __call__(self, tokens, state, *, want):
        output = self.model(tokens, state, want=want)
        output.logits[..., PAD] = -1e9
        return output


@pytest.mark.parametrize("beam", [1, 2, 5])
@pytest.mark.parametrize(("length", "penalty"), [("none", 0.0), ("mean", 1.0)])
def test_our_decoder_finds_what_generate_finds(beam, length, penalty):
    for seed in range(5):
        model, source, lengths = marian(seed)
        expected = theirs(model, source, 8, num_beams=beam, length_penalty=penalty)
        own = Own(model)
        with torch.no_grad():
            state = own.model.start(source, lengths)
        found = beam_search(own, state, BEGIN, end=END, longest=8, how=Search(beam=beam, length=length))
        assert [(f.best.tokens, f.best.ended) for f in found] == expected


@pytest.mark.parametrize("seed", range(3))
def test_constraints_equal_generate(seed):
    model, source, lengths = marian(seed)
    usual = {token for f in ours(model, source, lengths, 9, Search(beam=3)) for token in f.best.tokens}
    barred = tuple(sorted(usual)[:4])
    expected = theirs(
        model, source, 9, num_beams=3, length_penalty=1.0, min_new_tokens=4, bad_words_ids=[[t] for t in barred]
    )
    found = ours(model, source, lengths, 9, Search(beam=3, shortest=4, forbidden=barred))
    assert [(f.best.tokens, f.best.ended) for f in found] == expected
    assert all(len(tokens) >= 4 for tokens, _ in expected)


def test_scores_of_the_n_best_equal_generate():
    model, source, lengths = marian(1)
    with torch.no_grad():
        made = model.generate(
            source,
            attention_mask=(source != PAD).long(),
            max_length=9,
            num_beams=4,
            num_return_sequences=3,
            early_stopping="never",
            length_penalty=1.0,
            output_scores=True,
            return_dict_in_generate=True,
        )
    found = ours(model, source, lengths, 8, Search(beam=4, nbest=3))
    scores = torch.tensor([[one.score for one in f.hypotheses] for f in found])
    torch.testing.assert_close(scores, made.sequences_scores.view(6, 3), atol=1e-5, rtol=1e-5)


def test_attention_is_the_models_own_and_padding_gets_none():
    model, source, lengths = marian(2)
    for f, row, size in zip(ours(model, source, lengths, 6, Search(beam=3), attention=True), source, lengths.tolist()):
        tokens = f.best.tokens + [END] * f.best.ended
        with torch.no_grad():
            output = model(
                row[None, :size], decoder_input_ids=torch.tensor([[BEGIN, *tokens[:-1]]]), output_attentions=True
            )
        expected = output.cross_attentions[-1][0].mean(0)
        torch.testing.assert_close(f.best.attention[:, :size], expected, atol=1e-5, rtol=1e-4)
        assert not f.best.attention[:, size:].any()


def test_coverage_ignores_padding():
    model, source, lengths = marian(3)
    how = Search(beam=3, length="gnmt", alpha=0.7, coverage=0.4, nbest=3)
    together = ours(model, source, lengths, 8, how, attention=True)
    for f, row, size in zip(together, source, lengths):
        alone = ours(model, row[None, :size], size[None], 8, how)[0]
        assert [one.tokens for one in alone.hypotheses] == [one.tokens for one in f.hypotheses]
        for one in f.hypotheses:
            t = len(one.log_probs)
            covered = one.attention[:, :size].sum(0).clamp(max=1).log().sum().item()
            assert one.score == pytest.approx(one.log_prob / ((5 + t) / 6) ** 0.7 + 0.4 * covered, abs=1e-4)
