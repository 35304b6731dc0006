"""Training of a language model with two LSTM layers against a loop as PyTorch's own example has it, and against Keras.

python -m benchmarks.speed.lstm [--short]

2 layers of width 512, 10,000 words, embeddings tied to the output layer, dropout 0.2, batches of 20 rows of 35 words,
the state carried on from batch to batch, gradients clipped to a norm of 0.25, plain SGD: the settings of PyTorch's
word_language_model. The loop beside ours is written as that example is (``nn.LSTM``, ``nn.Linear``, log-softmax and
the likelihood loss, updates by hand). Keras, on its PyTorch backend, gets the same layers; its LSTM begins each batch
anew. Without dropout all three come to the same loss of the first batch.
"""

from __future__ import annotations

import argparse
import os
import time
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from benchmarks import descent
from benchmarks.turns import Contest, Mark, Round, Work, hold
from ensue.core.memory import keep_freed_memory
from ensue.models.recurrent import LSTMConfig, LSTMLanguageModel

VOCABULARY, WIDTH, LAYERS, ROWS, TIME, DROPOUT, CLIP, RATE = 10_000, 512, 2, 20, 35, 0.2, 0.25, 1.0
LOOP, KERAS = "nn.LSTM in the loop of PyTorch's example", "Keras, PyTorch backend"
FLOPS = 6.0 * (LAYERS * 8 * WIDTH * WIDTH + WIDTH * VOCABULARY)


class Plain(nn.Module):
    """Embedding, nn.LSTM and nn.Linear with dropout between, as people write it; time first."""

    def __init__(self) -> None:
        super().__init__()
        self.drop = nn.Dropout(DROPOUT)
        self.encoder = nn.Embedding(VOCABULARY, WIDTH)
        self.rnn = nn.LSTM(WIDTH, WIDTH, LAYERS, dropout=DROPOUT)
        self.decoder = nn.Linear(WIDTH, VOCABULARY)
        self.decoder.weight = self.encoder.weight

    def forward(self, tokens: Tensor, state: Any) -> tuple[Tensor, Any]:
        """log P of every word (T · B, V), and the state."""
        output, state = self.rnn(self.drop(self.encoder(tokens)), state)
        return torch.log_softmax(self.decoder(self.drop(output)).view(-1, VOCABULARY), dim=1), state


def ours() -> LSTMLanguageModel:
    """The weights that all begin with."""
    torch.manual_seed(0)
    config = LSTMConfig(vocabulary=VOCABULARY, layers=LAYERS, hidden=WIDTH, dropout=DROPOUT)
    return LSTMLanguageModel(config)


def cells(model: LSTMLanguageModel) -> list[Any]:
    return [layer.cell for layer in model.stack.layers]


def as_plain(model: LSTMLanguageModel) -> Plain:
    """The same weights in torch's layers, whose second bias is zero."""
    plain = Plain()
    with torch.no_grad():
        plain.encoder.weight.copy_(model.embed.weight)
        plain.decoder.bias.copy_(model.head.bias)  # type: ignore[arg-type]
        for number, cell in enumerate(cells(model)):
            own = (cell.weight_x, cell.weight_h, cell.bias, torch.zeros_like(cell.bias))
            for name, value in zip(("weight_ih", "weight_hh", "bias_ih", "bias_hh"), own, strict=True):
                getattr(plain.rnn, f"{name}_l{number}").copy_(value)
    return plain


def batches(turn: int, steps: int) -> list[Tensor]:
    """Rows of random words (B, T + 1) of a round."""
    chance = torch.Generator().manual_seed(turn)
    return [torch.randint(VOCABULARY, (ROWS, TIME + 1), generator=chance) for _ in range(steps)]


def with_ours(steps: int) -> Work:
    """As ``ensue fit`` trains, with what it does to its process."""
    keep_freed_memory()
    model = ours()
    optimiser = torch.optim.SGD(model.parameters(), lr=RATE)
    (text,) = batches(0, 1)
    first = model.eval().loss(text[:, :-1], text[:, 1:])[0].item()
    model.train()
    state: Any = None

    def work(turn: int) -> Round:
        nonlocal state
        begun = time.perf_counter()
        for text in batches(turn, steps):
            optimiser.zero_grad(set_to_none=True)
            loss, after = model.loss(text[:, :-1], text[:, 1:], state)
            descent.ours(model, optimiser, loss, CLIP)
            state = after.detach()
        return Round(steps * ROWS * TIME, time.perf_counter() - begun, first)

    return work


def with_loop(steps: int) -> Work:
    """As PyTorch's example trains."""
    model = as_plain(ours())
    (text,) = batches(0, 1)
    judge = nn.NLLLoss()
    first = judge(model.eval()(text.T[:-1], None)[0], text.T[1:].reshape(-1)).item()
    model.train()
    state: Any = None

    def work(turn: int) -> Round:
        nonlocal state
        begun = time.perf_counter()
        for text in batches(turn, steps):
            time_first = text.T.contiguous()
            model.zero_grad()
            state = None if state is None else tuple(part.detach() for part in state)
            log_prob, state = model(time_first[:-1], state)
            loss = judge(log_prob, time_first[1:].reshape(-1))
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), CLIP)
            for p in model.parameters():
                assert p.grad is not None
                p.data.add_(p.grad, alpha=-RATE)
            loss.item()
        return Round(steps * ROWS * TIME, time.perf_counter() - begun, first)

    return work


def with_keras(steps: int) -> Work:
    """As Keras' users train: ``train_on_batch``."""
    os.environ["KERAS_BACKEND"] = "torch"
    import keras

    model = ours()
    embed = keras.layers.Embedding(VOCABULARY, WIDTH)
    layers = [keras.layers.LSTM(WIDTH, return_sequences=True) for _ in range(LAYERS)]
    given = keras.Input((TIME,), dtype="int32")
    x = keras.layers.Dropout(DROPOUT)(embed(given))
    for layer in layers:
        x = keras.layers.Dropout(DROPOUT)(layer(x))
    # tied, as the others are, but for the bias: logits are products with the embedding itself
    logits = keras.layers.Lambda(lambda h: keras.ops.matmul(h, keras.ops.transpose(embed.embeddings)))(x)
    net = keras.Model(given, logits)
    embed.set_weights([model.embed.weight.detach().numpy()])
    for layer, cell in zip(layers, cells(model), strict=True):
        own = (cell.weight_x.T, cell.weight_h.T, cell.bias)  # gates in the same order
        layer.set_weights([value.detach().numpy() for value in own])
    optimiser = keras.optimizers.SGD(RATE, global_clipnorm=CLIP)
    net.compile(optimiser, keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    (text,) = batches(0, 1)
    first = float(net.test_on_batch(text[:, :-1], text[:, 1:]))

    def work(turn: int) -> Round:
        begun = time.perf_counter()
        for text in batches(turn, steps):
            net.train_on_batch(text[:, :-1], text[:, 1:])
        return Round(steps * ROWS * TIME, time.perf_counter() - begun, first)

    return work


def agree(done: dict[str, list[Round]]) -> dict[str, Any]:
    """Whether all have the same loss before they begin."""
    first = {who: rounds[0].result for who, rounds in done.items()}
    assert max(first.values()) - min(first.values()) < 1e-3, first
    return {"first_losses": {who: round(loss, 4) for who, loss in first.items()}}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--short", action="store_true")
    short = parser.parse_args().short
    rounds, steps = (2, 3) if short else (5, 10)
    programs = {"ours": partial(with_ours, steps), LOOP: partial(with_loop, steps), KERAS: partial(with_keras, steps)}
    kinds = (*descent.PRODUCTS, *descent.RECURRENCE)
    facts = {} if short else {"of": LOOP, **descent.possible(programs[LOOP], kinds)}
    hold(
        Contest(
            result="lstm_speed",
            work="LSTM language model training",
            size=f"{LAYERS} layers, width {WIDTH}, {VOCABULARY:,} words, {ROWS} rows of {TIME}",
            unit="tokens",
            programs=programs,
            marks=(Mark("ours", LOOP, 1.1), Mark("ours", KERAS, 1.6)),
            flops=FLOPS,
            facts=facts,
        ),
        rounds,
        agree,
    )


if __name__ == "__main__":
    main()
