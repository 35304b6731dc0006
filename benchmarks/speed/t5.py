"""Pre-training of ``t5`` against transformers' T5 of the same size, in turns.

python -m benchmarks.speed.t5 [--short] [--size preset|small]

Both do forward, loss, backward, clipping and fused AdamW on the same batches of texts with spans left out, with dropout
0.1. Theirs gets its labels as its users give them; its attention is the only one it has for T5, in plain operations.
"""

from __future__ import annotations

import argparse
import time
from functools import partial
from itertools import product
from typing import Any

import numpy as np
import torch
import transformers
from transformers import T5Config, T5ForConditionalGeneration

from benchmarks import descent
from benchmarks.turns import Contest, Mark, Round, Work, hold
from ensue.core.memory import keep_freed_memory
from ensue.data.pair_batches import PairBatch
from ensue.data.spans import SpanBatches, SpanOptions
from ensue.exchange.huggingface.conversion import import_weights
from ensue.exchange.huggingface.t5 import config_from_theirs, weight_map
from ensue.models.t5 import T5
from ensue.train.objectives import TranslationLoss

SIZES: dict[str, dict[str, Any]] = {
    "preset": {"d_model": 128, "d_kv": 32, "d_ff": 512, "num_heads": 4, "num_layers": 3, "length": 128, "rows": 32},
    "small": {"d_model": 256, "d_kv": 64, "d_ff": 1024, "num_heads": 4, "num_layers": 4, "length": 256, "rows": 16},
}
"""The shape of the default preset, and a larger one, of whose time more is products of matrices."""
FORMS = {
    "v1.0": {"feed_forward_proj": "relu", "tie_word_embeddings": True},
    "v1.1": {"feed_forward_proj": "gated-gelu", "tie_word_embeddings": False},
}
VOCABULARY, DROPOUT = 8192, 0.1
END, FIRST = 1, 0
PEER = f"transformers {transformers.__version__} T5ForConditionalGeneration"


def as_ours(model: Any) -> T5:
    """A model of theirs as one of ours."""
    own = T5(config_from_theirs({**model.config.to_dict(), "model_type": "t5"}, "config.json"))
    state = own.state_dict()
    with torch.no_grad():
        for name, tensor in import_weights(weight_map(own.config), model.state_dict()).items():
            state[name].copy_(tensor)
    return own


def batches(size: str) -> SpanBatches:
    """Random tokens, rare ones rarer, with spans left out."""
    chance = np.random.default_rng(0)
    tokens = np.minimum(2 + chance.zipf(1.3, size=400_000), VOCABULARY - 101).astype(np.int32)
    sentinels = list(range(VOCABULARY - 1, VOCABULARY - 101, -1))
    shape = {name: SIZES[size][name] for name in ("rows", "length")}
    return SpanBatches(tokens, sentinels, **shape, options=SpanOptions(), end=END, first=FIRST)


def ours_loss(model: Any, batch: PairBatch) -> torch.Tensor:
    return TranslationLoss()(model, batch, None)[0]


def theirs_loss(model: Any, batch: PairBatch) -> torch.Tensor:
    loss: torch.Tensor = model(input_ids=batch.source, labels=batch.targets).loss
    return loss


def training(who: str, size: str, form: str, steps: int) -> Work:
    """So many steps a round on that round's batches; ours with what ``ensue fit`` does to its process."""
    torch.manual_seed(0)
    shape = {name: number for name, number in SIZES[size].items() if name not in ("rows", "length")}
    fixed = {"vocab_size": VOCABULARY, "decoder_start_token_id": FIRST, "dropout_rate": DROPOUT}
    config = T5Config(**fixed, **shape, **FORMS[form])
    model: Any = T5ForConditionalGeneration(config)
    loss_of, update = theirs_loss, descent.theirs
    if who == "ours":
        keep_freed_memory()
        model, loss_of, update = as_ours(model), ours_loss, descent.ours
    optimiser = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
    rows = batches(size)
    first = loss_of(model.eval(), rows.batch(0)).item()  # without dropout both must come to the same
    model.train()

    def work(turn: int) -> Round:
        tokens, begun = 0, time.perf_counter()
        for number in range(turn * steps, (turn + 1) * steps):
            batch = rows.batch(number)
            optimiser.zero_grad(set_to_none=True)
            update(model, optimiser, loss_of(model, batch))
            tokens += int(batch.source_lengths.sum()) + batch.size
        return Round(tokens, time.perf_counter() - begun, first)

    return work


def agree(done: dict[str, list[Round]]) -> dict[str, Any]:
    """Whether both begin with the same loss."""
    first = {who: rounds[0].result for who, rounds in done.items()}
    assert max(first.values()) - min(first.values()) < 1e-3, first
    return {"first_losses": {who: round(loss, 4) for who, loss in first.items()}}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--short", action="store_true")
    parser.add_argument("--size", choices=tuple(SIZES), help="one of the sizes")
    typed = parser.parse_args()
    rounds, steps = (3, 2) if typed.short else (5, 3)
    for size, form in product([typed.size] if typed.size else SIZES, FORMS):
        programs = {who: partial(training, who, size, form, steps) for who in ("ours", PEER)}
        shape = SIZES[size]
        layers, wide, rows = shape["num_layers"], shape["d_model"], f"{shape['rows']} rows of {shape['length']}"
        hold(
            Contest(
                result="t5_speed",
                work=f"span corruption, T5 {form}",
                size=f"{layers} + {layers} layers, width {wide}, {VOCABULARY:,} tokens, {rows}, dropout {DROPOUT}",
                unit="tokens",
                programs=programs,
                marks=(Mark("ours", PEER, 1.6),),
                facts={} if typed.short else descent.possible(programs[PEER], (*descent.PRODUCTS, *descent.ATTENTION)),
            ),
            rounds,
            agree,
        )


if __name__ == "__main__":
    main()
