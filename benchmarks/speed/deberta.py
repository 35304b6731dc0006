"""Pre-training of ``deberta`` against transformers' DeBERTa of the same size, in turns.

python -m benchmarks.speed.deberta [--short] [--shared]

Both do forward, loss, backward, clipping and fused AdamW on the same batches of masked tokens, 4 layers of width 256,
dropout 0.1. Theirs has no mask decoder, so ours is measured without (decoder=0), where both begin with the same weights
and the same loss, and with it, as ``ensue fit deberta`` trains. ``--shared`` is version 3: shared projections,
distances in buckets.
"""

from __future__ import annotations

import argparse
import os
import time
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from transformers import DebertaConfig, DebertaForMaskedLM, DebertaV2Config, DebertaV2ForMaskedLM

from benchmarks import descent
from benchmarks.speed.bert import LENGTH, PEER, ROWS, SMALL, agree, as_ours, batches, ours_loss, theirs_loss
from benchmarks.turns import Contest, Mark, Round, Work, hold
from ensue.core.memory import keep_freed_memory
from ensue.models.deberta import DeBERTa

RELATIVE = {"relative_attention": True, "position_biased_input": False, "pos_att_type": "c2p|p2c"}
SHARED = {"share_att_key": True, "norm_rel_ebd": "layer_norm", "position_buckets": 32}


def training(who: str, shared: bool, vocabulary: int, steps: int) -> Work:
    """So many steps a round on that round's batches; ours with what ``ensue fit`` does to its process."""
    torch.manual_seed(0)
    settings = dict(vocab_size=vocabulary, max_position_embeddings=LENGTH, **SMALL, **RELATIVE)
    model: Any
    if shared:
        model = DebertaV2ForMaskedLM(DebertaV2Config(**settings, **SHARED))
    else:
        model = DebertaForMaskedLM(DebertaConfig(**settings))
    loss_of, update = theirs_loss, descent.theirs
    if who.startswith("ours"):
        keep_freed_memory()
        model, loss_of, update = as_ours(model), ours_loss, descent.ours
        if "decoder" in who:
            model = DeBERTa(replace(model.config, decoder=2))
    optimiser = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
    rows = batches(vocabulary)
    first = loss_of(model.eval(), rows.batch(0)).item()  # without dropout and decoder both must come to the same
    model.train()

    def work(turn: int) -> Round:
        tokens, begun = 0, time.perf_counter()
        for number in range(turn * steps, (turn + 1) * steps):
            batch = rows.batch(number)
            optimiser.zero_grad(set_to_none=True)
            update(model, optimiser, loss_of(model, batch))
            tokens += batch.size
        return Round(tokens, time.perf_counter() - begun, first)

    return work


def flops(vocabulary: int) -> float:
    """Of a token, forward and twice that on the way back; the head and the last block are for masked tokens only."""
    D, L, share = SMALL["hidden_size"], SMALL["num_hidden_layers"], 0.15
    return 6.0 * (12 * L * D * D + 6 * L * D * LENGTH + share * vocabulary * D)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--short", action="store_true")
    parser.add_argument("--shared", action="store_true", help="version 3")
    typed = parser.parse_args()
    peer = f"{PEER} {'DebertaV2' if typed.shared else 'Deberta'}ForMaskedLM"
    rounds, steps = (3, 2) if typed.short else (5, 3)
    for vocabulary in (30_522, 8192):
        hold(
            Contest(
                result="deberta_speed",
                work=f"masked pre-training, {'version 3' if typed.shared else 'version 1'}",
                size=f"4 layers, width 256, {vocabulary:,} tokens, {ROWS} rows of {LENGTH}, dropout 0.1",
                unit="tokens",
                programs={
                    who: partial(training, who, typed.shared, vocabulary, steps)
                    for who in ("ours", "ours with its mask decoder", peer)
                },
                marks=(Mark("ours", peer, 1.6), Mark("ours with its mask decoder", peer)),
                flops=flops(vocabulary),
                facts={"load": round(os.getloadavg()[0], 1)},
            ),
            rounds,
            partial(agree_without_decoder, peer),
        )


def agree_without_decoder(peer: str, done: dict[str, list[Round]]) -> dict[str, Any]:
    """Whether both begin with the same loss."""
    return agree({who: done[who] for who in ("ours", peer)})


if __name__ == "__main__":
    main()
