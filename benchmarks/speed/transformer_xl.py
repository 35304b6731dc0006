"""Training of ``transformer-xl`` against transformers' TransfoXL of the same size, in turns.

python -m benchmarks.speed.transformer_xl [--rounds 3] [--steps 10]

Both do forward, loss, backward, clipping and fused AdamW on the same segments of random tokens, one after the other,
and carry the memory on: 4 layers of width 256, post-norm, a plain softmax, dropout 0.1. transformers 4.57 calls
``type_as(dtype=…)``, which torch does not have; it is given that here, as its model cannot run without.
"""

from __future__ import annotations

import argparse
import time
import warnings
from functools import partial
from typing import Any

import torch

from benchmarks import descent
from benchmarks.turns import Contest, Mark, Round, Work, hold
from ensue.core.memory import keep_freed_memory
from ensue.exchange.huggingface.conversion import import_weights
from ensue.exchange.huggingface.transfo_xl import config_from_theirs, weight_map
from ensue.models.transformer_xl import TransformerXL

LAYERS, WIDTH, HEADS, ROWS, SEGMENT = 4, 256, 4, 8, 128
VOCABULARY = 8192
PEER = "transformers TransfoXL"


def give_type_as() -> None:
    """Let ``type_as`` take a type, as transformers' deprecated model asks for."""
    before = torch.Tensor.type_as

    def type_as(tensor: torch.Tensor, other: Any = None, *, dtype: Any = None) -> torch.Tensor:
        return before(tensor, other) if dtype is None else tensor.to(dtype)

    torch.Tensor.type_as = type_as  # type: ignore[assignment]


def peer_model(memory: int) -> Any:
    """Their model with random weights."""
    from transformers.models.deprecated.transfo_xl.configuration_transfo_xl import TransfoXLConfig
    from transformers.models.deprecated.transfo_xl.modeling_transfo_xl import TransfoXLLMHeadModel

    give_type_as()
    torch.manual_seed(0)
    sizes = {"d_model": WIDTH, "d_embed": WIDTH, "n_head": HEADS, "d_head": WIDTH // HEADS, "d_inner": 4 * WIDTH}
    plain = {"cutoffs": [], "div_val": 1, "same_length": False, "clamp_len": -1, "dropout": 0.1, "dropatt": 0.0}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return TransfoXLLMHeadModel(
            TransfoXLConfig(vocab_size=VOCABULARY, n_layer=LAYERS, mem_len=memory, **sizes, **plain)
        )


def as_ours(model: Any) -> TransformerXL:
    """Our model with their weights."""
    config = config_from_theirs({**model.config.to_dict(), "tgt_len": SEGMENT}, "config.json")
    own, state = TransformerXL(config), model.state_dict()
    with torch.no_grad():
        for name, tensor in import_weights(weight_map(config), state).items():
            own.state_dict()[name].copy_(tensor)
    return own


def training(who: str, memory: int, steps: int) -> Work:
    """``steps`` segments a round; ours with what ``ensue fit`` does to its process."""
    model: Any = peer_model(memory)
    if who == "ours":
        keep_freed_memory()
        model = as_ours(model)
    optimiser = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
    tokens = torch.randint(1, VOCABULARY, (ROWS, 4096 * SEGMENT // 64 + 1), generator=torch.Generator().manual_seed(1))
    kept: list[Any] = [None]

    def loss_of(at: int) -> torch.Tensor:
        read, wanted = tokens[:, at : at + SEGMENT], tokens[:, at + 1 : at + SEGMENT + 1]
        if who == "ours":
            log_prob, state = model.log_prob(read, wanted, kept[0])
            kept[0] = state.detach()
            return -log_prob.mean()
        out = model(read, mems=kept[0], labels=wanted_labels(read, wanted))
        kept[0] = out.mems
        return out.loss

    model.eval()
    with torch.no_grad():
        first = loss_of(0).item() if who == "ours" else theirs_first(model, tokens)
    kept[0] = None
    model.train()

    def work(turn: int) -> Round:
        begun = time.perf_counter()
        for number in range(turn * steps, (turn + 1) * steps):
            at = number % (tokens.shape[1] // SEGMENT - 1) * SEGMENT
            optimiser.zero_grad(set_to_none=True)
            (descent.ours if who == "ours" else descent.theirs)(model, optimiser, loss_of(at))
        return Round(steps * ROWS * SEGMENT, time.perf_counter() - begun, first)

    return work


def wanted_labels(read: torch.Tensor, wanted: torch.Tensor) -> torch.Tensor:
    """Their loss shifts labels by one itself: the next token of the last position has no place in them."""
    return torch.cat([read[:, :1], wanted[:, :-1]], dim=1)


def theirs_first(model: Any, tokens: torch.Tensor) -> float:
    """The loss of the first segment as ours computes it, from their log-probabilities."""
    model.eval()
    scores = model(tokens[:, :SEGMENT]).prediction_scores
    return float(-scores.gather(2, tokens[:, 1 : SEGMENT + 1, None]).mean())


def agree(done: dict[str, list[Round]]) -> dict[str, Any]:
    """Whether both begin with the same loss."""
    first = {who: rounds[0].result for who, rounds in done.items()}
    assert max(first.values()) - min(first.values()) < 1e-3, first
    return {"first_losses": {who: round(loss, 4) for who, loss in first.items()}}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=10)
    typed = parser.parse_args()
    for memory in (128, 384):
        hold(
            Contest(
                result="transformer_xl_speed",
                work="training Transformer-XL",
                size=f"4 layers, width 256, {VOCABULARY:,} tokens, {ROWS} rows of {SEGMENT}, memory {memory}",
                unit="tokens",
                programs={who: partial(training, who, memory, typed.steps) for who in ("ours", PEER)},
                marks=(Mark("ours", PEER, 1.3),),
            ),
            typed.rounds,
            agree,
        )


if __name__ == "__main__":
    main()
