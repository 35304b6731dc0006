"""The laws every model keeps, as functions that anyone can run on a model of theirs.

    chunk law     whole = in chunks = token by token
    rows law      picking rows before a step = after it
    padding law   what is padded never changes what is real
    cause law     no output depends on a later input (by gradients where there are any, else by changing inputs)
    order law     rows in another order = the answers in that order (for models without steps)
    memory law    log_prob = the logits' log-softmax, and looking (hidden, attention) changes nothing

and of an encoder–decoder, which reads a source first:

    source padding law   sentences of different lengths together = each alone, whatever stands in the padding
    source rows law      rows repeated, reordered and dropped between steps = each row alone after its own sentence

Each returns the largest difference it saw. What a model's ``traits`` do not promise is not tested.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from ensue.models.conditional import ConditionalModel, FixedSourceModel
from ensue.models.labelled import Labelled
from ensue.models.language import LanguageModel
from ensue.models.model import Model
from ensue.nn.characters import CharacterWords
from ensue.nn.eval_mode import eval_mode
from ensue.nn.state import State

LONGEST = 512
"""Contexts up to this one are read past their end."""
TOLERANCE = {torch.float32: 1e-5, torch.float64: 1e-10}


@dataclass(frozen=True, slots=True)
class Finding:
    """What testing one law showed."""

    law: str
    difference: float
    tolerance: float

    @property
    def kept(self) -> bool:
        """Whether the law holds within its tolerance; a NaN never does."""
        return self.difference <= self.tolerance


def log_probabilities(
    model: Model, tokens: Tensor, state: State | None = None, lengths: Tensor | None = None
) -> tuple[Tensor, State]:
    """The log-softmax of a model's logits (B, T, V) and its next state."""
    output = model(tokens, state, lengths)
    assert output.logits is not None and output.state is not None
    return output.logits.log_softmax(-1), output.state


def _gap(left: Tensor, right: Tensor) -> float:
    if left.shape != right.shape:
        return float("inf")
    if left.numel() == 0:
        return 0.0
    difference = (left - right).abs().max().item()
    return float("inf") if math.isnan(difference) else difference


def chunk_law(model: LanguageModel, tokens: Tensor, cuts: list[int]) -> float:
    """Whole against chunks that end at ``cuts``, and against one token at a time; and what follows both."""
    whole, after = log_probabilities(model, tokens)
    worst = 0.0
    for ends in ([*cuts, tokens.shape[1]], list(range(1, tokens.shape[1] + 1))):
        state, parts, begin = model.start(len(tokens)), [], 0
        for end in ends:
            part, state = log_probabilities(model, tokens[:, begin:end], state)
            parts.append(part)
            begin = end
        worst = max(worst, _gap(whole, torch.cat(parts, dim=1)))
        onward = tokens[:, :1]
        worst = max(
            worst,
            _gap(log_probabilities(model, onward, after.fork())[0], log_probabilities(model, onward, state)[0]),
        )
    return worst


def rows_law(model: LanguageModel, tokens: Tensor, index: Tensor) -> float:
    """Read, pick rows, read on; against pick rows, read, read on. Also that a fork outlives its origin."""
    half = tokens.shape[1] // 2
    _, state = log_probabilities(model, tokens[:, :half])
    kept = state.fork()
    later, _ = log_probabilities(model, tokens[index, half:], state.rows(index))
    first, _ = log_probabilities(model, tokens[index])
    again, _ = log_probabilities(model, tokens[:, half:], kept)
    return max(_gap(later, first[:, half:]), _gap(again[index], later))


def padding_law(model: LanguageModel, tokens: Tensor, lengths: Tensor) -> float:
    """Each row alone against all rows padded to the longest; twice, so that states of uneven rows are carried on."""
    worst = 0.0
    together, state = log_probabilities(model, tokens, None, lengths)
    stepwise = model.traits.steps
    second = log_probabilities(model, tokens, state, lengths)[0] if stepwise else together
    for row, length in enumerate(lengths.tolist()):
        alone = tokens[row : row + 1, :length]
        if length == 0:
            continue
        single, memory = log_probabilities(model, alone)
        worst = max(worst, _gap(together[row : row + 1, :length], single))
        if stepwise:
            worst = max(worst, _gap(second[row : row + 1, :length], log_probabilities(model, alone, memory)[0]))
    junk = tokens.clone()
    junk[torch.arange(tokens.shape[1]) >= lengths[:, None]] = (int(tokens.max()) + 1) % model.config.vocabulary
    other, _ = log_probabilities(model, junk, None, lengths)
    real = torch.arange(tokens.shape[1]) < lengths[:, None]
    return max(worst, _gap(together[real], other[real]))


def order_law(model: LanguageModel, tokens: Tensor, index: Tensor) -> float:
    """Rows in another order are answered in that order: rows know nothing of each other."""
    return _gap(log_probabilities(model, tokens)[0][index], log_probabilities(model, tokens[index])[0])


def cause_law(model: LanguageModel, tokens: Tensor) -> float:
    """How much an output changes when a later token does."""
    first, _ = log_probabilities(model, tokens)
    worst = 0.0
    for place in range(1, tokens.shape[1]):
        changed = tokens.clone()
        changed[:, place:] = (changed[:, place:] + 1) % model.config.vocabulary
        worst = max(worst, _gap(first[:, :place], log_probabilities(model, changed)[0][:, :place]))
    return worst


def leak_law(model: LanguageModel, tokens: Tensor) -> float:
    """The gradient of each output with respect to the embeddings it must not see: later ones, or its own place.

    A causal model's output at t may depend on places ≤ t; a blind two-directional one's on all places but t.
    """
    table = _table(model)
    assert table is not None
    state = model.start(len(tokens)) if model.traits.steps else None  # whatever a start reads is not looked at
    caught: list[Tensor] = []

    def catch(module: nn.Module, inputs: tuple[Tensor], output: Tensor) -> Tensor:
        fresh = output.detach().requires_grad_()
        caught.append(fresh)
        return fresh

    handle = table.register_forward_hook(catch)
    try:
        with torch.enable_grad():
            output, _ = log_probabilities(model, tokens, state)
    finally:
        handle.remove()
    (inputs,) = caught  # (B, S, D); a window may have put places of its own before the tokens
    lead = inputs.shape[1] - tokens.shape[1]
    worst = 0.0
    for place in range(tokens.shape[1]):
        (gradient,) = torch.autograd.grad(output[:, place].square().sum(), inputs, retain_graph=True)
        hidden = (
            gradient[:, lead + place + 1 :] if model.traits.causal else gradient[:, lead + place : lead + place + 1]
        )
        worst = max(worst, hidden.abs().max().item() if hidden.numel() else 0.0)
    return worst


def memory_law(model: LanguageModel, tokens: Tensor) -> float:
    """``log_prob`` against the logits, and the logits with and without looking inside."""
    targets = tokens.roll(-1, dims=1)
    plain, _ = log_probabilities(model, tokens)
    direct, _ = model.log_prob(tokens, targets)
    window = tokens[:, : model.traits.context]  # attention is shown within one window
    looked = model(window, want=("logits", "hidden", "attention")).logits.log_softmax(-1)
    last = model(tokens, want=("last",)).logits.log_softmax(-1)
    picked = plain.gather(-1, targets[..., None])[..., 0]
    return max(_gap(picked, direct), _gap(plain[:, : window.shape[1]], looked), _gap(plain[:, -1:], last))


def source_padding_law(model: ConditionalModel, source: Tensor, lengths: Tensor, tokens: Tensor) -> float:
    """Sentences (N, S) padded to the longest against each alone, as the tokens (N, T) after them are read; and junk."""
    together, _ = log_probabilities(model, tokens, model.start(source, lengths))
    worst = 0.0
    for row, length in enumerate(lengths.tolist()):
        alone, _ = log_probabilities(model, tokens[row : row + 1], model.start(source[row : row + 1, :length]))
        worst = max(worst, _gap(together[row : row + 1], alone))
    padded = torch.arange(source.shape[1]) >= lengths[:, None]
    junk = torch.where(padded, (source + 1) % model.config.source_vocabulary, source)
    other, _ = log_probabilities(model, tokens, model.start(junk, lengths))
    return max(worst, _gap(together, other))


def source_rows_law(
    model: ConditionalModel, source: Tensor, lengths: Tensor, picks: list[list[int]], generator: torch.Generator
) -> float:
    """Pick rows as a search does, each time reading a token; against every row's own tokens after its own sentence."""
    state, own = model.start(source, lengths), torch.arange(len(source))
    read = torch.zeros(len(source), 0, dtype=torch.long)
    said: list[Tensor] = []  # of each step (B, 1, V), picked along with the rows
    for pick in [list(range(len(source))), *picks]:
        index = torch.tensor(pick)
        new = torch.randint(model.config.vocabulary, (len(pick), 1), generator=generator)
        read, own = torch.cat([read[index], new], dim=1), own[index]
        found, state = log_probabilities(model, new, state.rows(index))
        said = [*(one[index] for one in said), found]
    worst = 0.0
    for row, sentence in enumerate(own.tolist()):
        alone = model.start(source[sentence : sentence + 1, : int(lengths[sentence])])
        expected, _ = log_probabilities(model, read[row : row + 1], alone)
        worst = max(worst, _gap(torch.cat([one[row : row + 1] for one in said], dim=1), expected))
    return worst


def _table(model: LanguageModel) -> nn.Module | None:
    """What makes vectors of the tokens it reads: ``embed``, or the first embedding there is."""
    own = getattr(model, "embed", None)
    if isinstance(own, nn.Embedding | CharacterWords):
        return own
    return next((module for module in model.modules() if isinstance(module, nn.Embedding)), None)


def findings(model: LanguageModel, seed: int = 0, rows: int = 3, time: int = 7) -> Iterator[Finding]:
    """Test every law that the model's traits promise, on random tokens, in evaluation mode."""
    generator = torch.Generator().manual_seed(seed)
    tokens = torch.randint(model.config.vocabulary, (rows, time), generator=generator)
    kind = next((p.dtype for p in model.parameters()), torch.float32)
    tolerance = TOLERANCE.get(kind, 1e-5)
    with eval_mode(model):
        with torch.no_grad():
            if model.traits.steps:
                cuts = sorted(set((1 + torch.randperm(time - 1, generator=generator)[:2]).tolist()))
                yield Finding("chunk law", chunk_law(model, tokens, cuts), tolerance)
                index = torch.randint(rows, (rows + 1,), generator=generator)
                yield Finding("rows law", rows_law(model, tokens, index), tolerance)
            else:
                index = torch.randperm(rows, generator=generator)
                yield Finding("order law", order_law(model, tokens, index), tolerance)
            context = model.traits.context or 0
            if model.traits.steps and 0 < context <= LONGEST:
                past = torch.randint(model.config.vocabulary, (1, context + 3), generator=generator)
                yield Finding("chunk law, past the context", chunk_law(model, past, [past.shape[1] // 2]), tolerance)
            if model.traits.padded:
                lengths = torch.randint(0, time + 1, (rows,), generator=generator)
                lengths[0] = time
                yield Finding("padding law", padding_law(model, tokens, lengths), tolerance)
            if model.traits.causal:
                yield Finding("cause law", cause_law(model, tokens), tolerance)
            yield Finding("memory law", memory_law(model, tokens), tolerance)
        if _table(model) is not None and (model.traits.causal or model.traits.blind):
            yield Finding("leak law", leak_law(model, tokens[:, : model.traits.context]), 0.0)
        if model.traits.steps:
            with torch.enable_grad():  # under autograd states append instead of writing in place
                yield Finding("chunk law, with gradients", chunk_law(model, tokens, [time // 2]), tolerance)


PICKS = {
    "side by side": [[0, 0, 1, 1, 2, 2], [1, 1, 2, 3, 5, 4], [2, 3, 4, 5], [1, 0, 2, 3]],
    "uneven": [[0, 0, 1], [1, 0, 1], [2, 0, 2, 1]],
    "reordered": [[2, 0, 1], [1, 1, 0, 0], [3, 0]],
    "mixed": [[2, 1, 2, 0, 0, 1], [5, 0, 0, 3], [0, 1, 2, 3]],
}
"""Rows as searches pick them, for three sentences: a beam that loses one, and orders that no beam has."""


def source_laws(model: ConditionalModel, seed: int = 0, time: int = 5) -> Iterator[Finding]:
    """Test what an encoder–decoder makes of its source, on three random sentences, in evaluation mode."""
    generator = torch.Generator().manual_seed(seed)
    longest = min(time, model.config.context)
    source = torch.randint(model.config.source_vocabulary, (3, longest), generator=generator)
    tokens = torch.randint(model.config.vocabulary, (3, time), generator=generator)
    lengths = torch.randint(1, longest + 1, (3,), generator=generator)
    lengths[0], lengths[1] = 1, longest  # the shortest and the longest are always there
    kind = next((p.dtype for p in model.parameters()), torch.float32)
    tolerance = TOLERANCE.get(kind, 1e-5)
    with eval_mode(model):
        with torch.no_grad():
            yield Finding("source padding law", source_padding_law(model, source, lengths, tokens), tolerance)
            whole = torch.full_like(lengths, longest)
            worst = [source_rows_law(model, source, lengths, picks, generator) for picks in PICKS.values()]
            worst.append(source_rows_law(model, source, whole, PICKS["side by side"], generator))
            yield Finding("source rows law", max(worst), tolerance)
        with torch.enable_grad():  # under autograd states append instead of writing in place
            found = source_rows_law(model, source, lengths, PICKS["side by side"], generator)
            yield Finding("source rows law, with gradients", found, tolerance)


def laws_of(model: LanguageModel | ConditionalModel, seed: int = 0) -> Iterator[Finding]:
    """Test every law that concerns a model; an encoder–decoder is given a source first.

    >>> from ensue.models.seq2seq import Seq2Seq, Seq2SeqConfig
    >>> model = Seq2Seq(Seq2SeqConfig(vocabulary=7, source_vocabulary=5, hidden=8))
    >>> all(found.kept for found in laws_of(model))
    True
    """
    if not isinstance(model, ConditionalModel):
        yield from findings(model, seed)
        return
    size = min(6, model.config.context)
    source = torch.randint(model.config.source_vocabulary, (size,), generator=torch.Generator().manual_seed(seed))
    yield from findings(FixedSourceModel(model, source), seed)
    yield from source_laws(model, seed)


def labelled_laws(model: Labelled, seed: int = 0, rows: int = 3, time: int = 7) -> Iterator[Finding]:
    """Test what a model that labels promises: neither padding nor other rows change what it says of an example."""
    generator = torch.Generator().manual_seed(seed)
    time, each = min(time, model.context or time), model.choices
    tokens = torch.randint(model.vocabulary, (rows, each, time), generator=generator)
    lengths = torch.randint(1, time + 1, (rows, each), generator=generator)
    lengths[0] = time
    tolerance = TOLERANCE.get(next(model.parameters()).dtype, 1e-5)

    def logits(index: Tensor, longest: int) -> Tensor:
        found: Tensor = model(tokens[index, :, :longest].flatten(0, 1), None, lengths[index].flatten()).logits
        return found

    with eval_mode(model), torch.no_grad():
        together, worst = logits(torch.arange(rows), time), 0.0
        for row in range(rows):
            longest = int(lengths[row].max())
            alone = logits(torch.tensor([row]), longest)
            worst = max(worst, _gap(together[row : row + 1, : alone.shape[1]], alone))
        yield Finding("padding law", worst, tolerance)
        index = torch.randperm(rows, generator=generator)
        yield Finding("order law", _gap(together[index], logits(index, time)), tolerance)
