"""The laws that every model keeps, as functions that can be run on any model.

    chunk law     whole = in chunks = token by token
    rows law      selecting rows before a step = selecting them after it
    padding law   padding never changes the outputs at real positions
    cause law     no output depends on a later input (leak law: tested by gradients, where there are any)
    order law     reordering rows reorders the outputs (for models without steps)
    memory law    log_prob = log-softmax of the logits, and returning hidden states or attention changes nothing

and those of an encoder–decoder, which reads a source first:

    source padding law   sentences of different lengths in a batch = each alone, whatever the padding holds
    source rows law      rows repeated, reordered and dropped between steps = each row alone after its own sentence

Each function returns the largest difference. It may be as large as rounding makes it: see ``tolerance``. Only what a
model's ``traits`` declare is tested. The chunk, rows and padding laws also hold for forecasters (``forecast_laws``).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from ensue.kernels.grouped import count_grouped
from ensue.models.conditional import ConditionalModel, FixedSourceModel
from ensue.models.labelled import Labelled
from ensue.models.language import LanguageModel
from ensue.nn.adaptive import AdaptiveEmbedding
from ensue.nn.characters import CharacterWords
from ensue.nn.eval_mode import eval_mode
from ensue.nn.protocol import Output
from ensue.nn.state import State

ROUNDED_STEPS = 25.0
"""How much larger differences may be where decode steps round inputs to 16 bits, as with weights in groups: float32 has
24. In SmolLM2, with random tokens, they are up to 17 times as large as is allowed otherwise."""
MAX_CONTEXT = 512
"""Models with a context up to this one are also read past its end."""
FLOAT32, FLOAT64 = 1e-5, 1e-10
"""Tolerances: of float32 for outputs of size 1, of float64 for outputs of any size."""


@dataclass(frozen=True, slots=True)
class Finding:
    """The result of testing one law."""

    law: str
    difference: float
    tolerance: float

    @property
    def kept(self) -> bool:
        """Whether the law holds within its tolerance; a NaN never does."""
        return self.difference <= self.tolerance


@contextmanager
def evaluation(model: nn.Module) -> Iterator[None]:
    """Set a model to evaluation mode without gradients inside the block."""
    with eval_mode(model), torch.no_grad():
        yield


def tolerance(outputs: Tensor) -> float:
    """Return the difference that rounding may cause in outputs of this precision and size.

    The same sums in another order differ by rounding, which is relative to the size of what is summed: 1.2e-7 of each
    float32 logit, a few times over. So float32 is given 1e-5 × max(1, max |output|), which a trained model with large
    logits needs. A broken law shows in the first digits, whatever their size. Float64 has digits to spare: 1e-10.
    """
    if outputs.dtype == torch.float64:
        return FLOAT64
    finite = outputs[outputs.isfinite()]
    return FLOAT32 * max(1.0, finite.abs().max().item() if finite.numel() else 0.0)


def read(model: Any, inputs: Tensor, state: State | None = None, lengths: Tensor | None = None) -> tuple[Tensor, State]:
    """Return a language model's log-probabilities (B, T, V) or a forecaster's forecasts, and the next state."""
    output = model(inputs, state, lengths)
    if not isinstance(output, Output):
        values, after = output
        return values, after
    assert output.logits is not None and output.state is not None
    return output.logits.log_softmax(-1), output.state


def altered(inputs: Tensor, vocabulary: int) -> Tensor:
    """Return tokens or numbers that all differ from ``inputs``."""
    return inputs + 9 if inputs.is_floating_point() else (inputs + 1) % vocabulary


def difference(left: Tensor, right: Tensor) -> float:
    """Return the largest absolute difference; infinite if shapes differ or a value is NaN."""
    if left.shape != right.shape:
        return float("inf")
    largest = (left - right).abs().max().item() if left.numel() else 0.0
    return float("inf") if math.isnan(largest) else largest


def chunk_law(model: Any, inputs: Tensor, cuts: list[int]) -> float:
    """Compare the whole with chunks that end at ``cuts`` and with single steps, and what follows each."""
    whole, after = read(model, inputs)
    worst = 0.0
    for ends in ([*cuts, inputs.shape[1]], list(range(1, inputs.shape[1] + 1))):
        state, parts, begin = model.start(len(inputs)), [], 0
        for end in ends:
            part, state = read(model, inputs[:, begin:end], state)
            parts.append(part)
            begin = end
        following = (read(model, inputs[:, :1], after.fork())[0], read(model, inputs[:, :1], state)[0])
        worst = max(worst, difference(whole, torch.cat(parts, dim=1)), difference(*following))
    return worst


def rows_law(model: Any, inputs: Tensor, index: Tensor) -> float:
    """Select rows between two chunks, and before both; also check that a fork outlives its origin."""
    half = inputs.shape[1] // 2
    _, state = read(model, inputs[:, :half])
    fork = state.fork()
    later, _ = read(model, inputs[index, half:], state.rows(index))
    first, _ = read(model, inputs[index])
    again, _ = read(model, inputs[:, half:], fork)
    return max(difference(later, first[:, half:]), difference(again[index], later))


def padding_law(model: Any, inputs: Tensor, lengths: Tensor, more: int | None = None) -> float:
    """Compare padded rows with each row alone, and again after that, so that states of uneven rows are carried on.

    ``more`` is how many steps are read again; by default all.
    """
    together, state = read(model, inputs, None, lengths)
    has_steps = model.traits.steps
    second = (
        read(model, inputs[:, :more], state, lengths.clamp(max=inputs[:, :more].shape[1]))[0] if has_steps else together
    )
    worst = 0.0
    for row, length in enumerate(lengths.tolist()):
        if length == 0:
            continue
        alone = inputs[row : row + 1, :length]
        single, after = read(model, alone)
        worst = max(worst, difference(together[row : row + 1, :length], single))
        if has_steps:
            following, _ = read(model, alone[:, :more], after)
            worst = max(worst, difference(second[row : row + 1, : following.shape[1]], following))
    real = torch.arange(inputs.shape[1]) < lengths[:, None]
    other_padding = altered(inputs, getattr(model.config, "vocabulary", 0))
    other_padding[real] = inputs[real]
    other, _ = read(model, other_padding, None, lengths)
    return max(worst, difference(together[real], other[real]))


def order_law(model: LanguageModel, tokens: Tensor, index: Tensor) -> float:
    """Compare rows read in another order with the outputs in that order."""
    return difference(read(model, tokens)[0][index], read(model, tokens[index])[0])


def cause_law(model: LanguageModel, tokens: Tensor) -> float:
    """Return how much an output changes when later tokens do."""
    first, _ = read(model, tokens)
    other = altered(tokens, model.config.vocabulary)
    worst = 0.0
    for t in range(1, tokens.shape[1]):
        changed = torch.cat([tokens[:, :t], other[:, t:]], dim=1)
        worst = max(worst, difference(first[:, :t], read(model, changed)[0][:, :t]))
    return worst


def leak_law(model: LanguageModel, tokens: Tensor) -> float:
    """Return the largest gradient of an output with respect to an embedding that it must not depend on.

    In a causal model these are later positions; in a bidirectional one that is blind, the output's own position.
    """
    table = _embedding(model)
    assert table is not None
    state = model.start(len(tokens)) if model.traits.steps else None  # embeddings that a start reads do not count
    caught: list[Tensor] = []

    def catch(module: nn.Module, inputs: tuple[Tensor], output: Tensor) -> Tensor:
        caught.append(output.detach().requires_grad_())
        return caught[-1]

    handle = table.register_forward_hook(catch)
    try:
        with torch.enable_grad():
            output, _ = read(model, tokens, state)
    finally:
        handle.remove()
    (inputs,) = caught  # (B, S, D); a window may have positions of its own before the tokens
    lead, causal = inputs.shape[1] - tokens.shape[1], model.traits.causal
    return largest_gradient(output, inputs, lambda t: slice(lead + t + causal, None if causal else lead + t + 1))


def largest_gradient(outputs: Tensor, inputs: Tensor, forbidden: Callable[[int], slice]) -> float:
    """Return the largest gradient of the output at any position t with respect to the inputs ``forbidden(t)``."""
    worst = 0.0
    for t in range(outputs.shape[1]):
        with torch.enable_grad():
            (gradient,) = torch.autograd.grad(outputs[:, t].square().sum(), inputs, retain_graph=True)
        part = gradient[:, forbidden(t)]
        worst = max(worst, part.abs().max().item() if part.numel() else 0.0)
    return worst


def memory_law(model: LanguageModel, tokens: Tensor) -> float:
    """Compare ``log_prob`` with the logits, and the logits with and without hidden states and attention."""
    targets = tokens.roll(-1, dims=1)
    plain, _ = read(model, tokens)
    direct, _ = model.log_prob(tokens, targets)
    window = tokens[:, : model.traits.context]  # attention is returned within one window
    with_all = model(window, want=("logits", "hidden", "attention")).logits.log_softmax(-1)
    last = model(tokens, want=("last",)).logits.log_softmax(-1)
    picked = plain.gather(-1, targets[..., None])[..., 0]
    return max(
        difference(picked, direct), difference(plain[:, : window.shape[1]], with_all), difference(plain[:, -1:], last)
    )


def source_padding_law(model: ConditionalModel, source: Tensor, lengths: Tensor, tokens: Tensor) -> float:
    """Compare padded sentences (N, S), after which tokens (N, T) are read, with each alone and with other padding."""
    together, _ = read(model, tokens, model.start(source, lengths))
    worst = 0.0
    for row, length in enumerate(lengths.tolist()):
        alone, _ = read(model, tokens[row : row + 1], model.start(source[row : row + 1, :length]))
        worst = max(worst, difference(together[row : row + 1], alone))
    padding = torch.arange(source.shape[1]) >= lengths[:, None]
    other_padding = torch.where(padding, altered(source, model.config.source_vocabulary), source)
    other, _ = read(model, tokens, model.start(other_padding, lengths))
    return max(worst, difference(together, other))


def source_rows_law(
    model: ConditionalModel, source: Tensor, lengths: Tensor, picks: list[list[int]], generator: torch.Generator
) -> float:
    """Select rows as a search does, a token after each; compare with every row's own tokens after its sentence."""
    state, own = model.start(source, lengths), torch.arange(len(source))
    tokens = torch.zeros(len(source), 0, dtype=torch.long)
    outputs: list[Tensor] = []  # of each step (B, 1, V), selected along with the rows
    for pick in [list(range(len(source))), *picks]:
        index = torch.tensor(pick)
        new = torch.randint(model.config.vocabulary, (len(pick), 1), generator=generator)
        tokens, own = torch.cat([tokens[index], new], dim=1), own[index]
        output, state = read(model, new, state.rows(index))
        outputs = [*(earlier[index] for earlier in outputs), output]
    worst = 0.0
    for row, sentence in enumerate(own.tolist()):
        alone = model.start(source[sentence : sentence + 1, : int(lengths[sentence])])
        expected, _ = read(model, tokens[row : row + 1], alone)
        worst = max(worst, difference(torch.cat([output[row : row + 1] for output in outputs], dim=1), expected))
    return worst


def _embedding(model: LanguageModel) -> nn.Module | None:
    """Return the module that embeds tokens: ``embed``, or else the first embedding of the model."""
    own = getattr(model, "embed", None)
    if isinstance(own, nn.Embedding | AdaptiveEmbedding | CharacterWords):
        return own
    return next((module for module in model.modules() if isinstance(module, nn.Embedding)), None)


def findings(model: LanguageModel, seed: int = 0, rows: int = 3, time: int = 7) -> Iterator[Finding]:
    """Test every law that a language model's traits promise, on random tokens, in evaluation mode."""
    generator = torch.Generator().manual_seed(seed)
    tokens = torch.randint(model.config.vocabulary, (rows, time), generator=generator)
    with evaluation(model):
        allowed = tolerance(model(tokens).logits)
        rounded = ROUNDED_STEPS if count_grouped(model) else 1.0
        if model.traits.steps:
            cuts = sorted(set((1 + torch.randperm(time - 1, generator=generator)[:2]).tolist()))
            yield Finding("chunk law", chunk_law(model, tokens, cuts), allowed * rounded)
            index = torch.randint(rows, (rows + 1,), generator=generator)
            yield Finding("rows law", rows_law(model, tokens, index), allowed)
        else:
            index = torch.randperm(rows, generator=generator)
            yield Finding("order law", order_law(model, tokens, index), allowed)
        context = model.traits.context or 0
        if model.traits.steps and 0 < context <= MAX_CONTEXT:
            past = torch.randint(model.config.vocabulary, (1, context + 3), generator=generator)
            found = chunk_law(model, past, [past.shape[1] // 2])
            yield Finding("chunk law, past the context", found, allowed * rounded)
        if model.traits.padded:
            lengths = torch.randint(0, time + 1, (rows,), generator=generator)
            lengths[0] = time
            yield Finding("padding law", padding_law(model, tokens, lengths), allowed)
        if model.traits.causal:
            yield Finding("cause law", cause_law(model, tokens), allowed)
        yield Finding("memory law", memory_law(model, tokens), allowed)
        if _embedding(model) is not None and (model.traits.causal or model.traits.blind):
            yield Finding("leak law", leak_law(model, tokens[:, : model.traits.context]), 0.0)
        if model.traits.steps:
            with torch.enable_grad():  # under autograd states append instead of writing in place
                yield Finding("chunk law, with gradients", chunk_law(model, tokens, [time // 2]), allowed)


PICKS = {
    "side by side": [[0, 0, 1, 1, 2, 2], [1, 1, 2, 3, 5, 4], [2, 3, 4, 5], [1, 0, 2, 3]],
    "uneven": [[0, 0, 1], [1, 0, 1], [2, 0, 2, 1]],
    "reordered": [[2, 0, 1], [1, 1, 0, 0], [3, 0]],
    "mixed": [[2, 1, 2, 0, 0, 1], [5, 0, 0, 3], [0, 1, 2, 3]],
}
"""Rows that searches select, for three sentences: a beam that loses one, and orders that no beam has."""


def source_laws(model: ConditionalModel, seed: int = 0, time: int = 5) -> Iterator[Finding]:
    """Test how an encoder–decoder treats its source, on three random sentences, in evaluation mode."""
    generator = torch.Generator().manual_seed(seed)
    longest = min(time, model.config.context)
    source = torch.randint(model.config.source_vocabulary, (3, longest), generator=generator)
    tokens = torch.randint(model.config.vocabulary, (3, time), generator=generator)
    lengths = torch.randint(1, longest + 1, (3,), generator=generator)
    lengths[0], lengths[1] = 1, longest  # the shortest and the longest are always tested
    with evaluation(model):
        allowed = tolerance(model(tokens, model.start(source, lengths)).logits)
        yield Finding("source padding law", source_padding_law(model, source, lengths, tokens), allowed)
        whole = torch.full_like(lengths, longest)
        worst = [source_rows_law(model, source, lengths, picks, generator) for picks in PICKS.values()]
        worst.append(source_rows_law(model, source, whole, PICKS["side by side"], generator))
        yield Finding("source rows law", max(worst), allowed)
        with torch.enable_grad():  # under autograd states append instead of writing in place
            largest = source_rows_law(model, source, lengths, PICKS["side by side"], generator)
            yield Finding("source rows law, with gradients", largest, allowed)


def laws_of(model: LanguageModel | ConditionalModel, seed: int = 0) -> Iterator[Finding]:
    """Test every law of a model; an encoder–decoder is given a source first.

    >>> from ensue.models.seq2seq import Seq2Seq, Seq2SeqConfig
    >>> model = Seq2Seq(Seq2SeqConfig(vocabulary=7, source_vocabulary=5, hidden=8))
    >>> all(finding.kept for finding in laws_of(model))
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
    """Test that neither padding nor other rows change the output of a labelling model."""
    generator = torch.Generator().manual_seed(seed)
    time, each = min(time, model.context or time), model.choices
    tokens = torch.randint(model.vocabulary, (rows, each, time), generator=generator)
    lengths = torch.randint(1, time + 1, (rows, each), generator=generator)
    lengths[0] = time

    def logits(index: Tensor, longest: int) -> Tensor:
        values: Tensor = model(tokens[index, :, :longest].flatten(0, 1), None, lengths[index].flatten()).logits
        return values

    with evaluation(model):
        together, worst = logits(torch.arange(rows), time), 0.0
        allowed = tolerance(together)
        for row in range(rows):
            alone = logits(torch.tensor([row]), int(lengths[row].max()))
            worst = max(worst, difference(together[row : row + 1, : alone.shape[1]], alone))
        yield Finding("padding law", worst, allowed)
        index = torch.randperm(rows, generator=generator)
        yield Finding("order law", difference(together[index], logits(index, time)), allowed)
