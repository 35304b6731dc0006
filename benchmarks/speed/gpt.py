"""Training steps of gpt against transformers' GPT-2 of the same size, with the same weights, alternating in one run.

python -m benchmarks.speed.gpt [--short]

Both do the same work: forward, loss, backward, clipping, fused AdamW. Losses are compared so that the work is the same.
Reported is theirs ÷ ours in time, so above 1 means ours is faster: the median of the rounds and their spread.
"""

from __future__ import annotations

import argparse
import statistics
import time

import torch
from transformers import GPT2Config, GPT2LMHeadModel

from benchmarks.record import record
from ensue.exchange.huggingface import gpt_from
from ensue.train.optimisers import clip

SIZES = {
    "nanogpt characters": {"vocab": 66, "context": 64, "width": 128, "layers": 4, "heads": 4, "rows": 12},
    "small words": {"vocab": 10000, "context": 128, "width": 256, "layers": 4, "heads": 4, "rows": 8},
}


def ours_step(model, optimiser, x, y):
    optimiser.zero_grad(set_to_none=True)
    loss, _ = model.loss(x, y)
    loss.backward()
    clip([p.grad for p in model.parameters() if p.grad is not None], 1.0)
    optimiser.step()
    return loss.item()


def theirs_step(model, optimiser, x, y):
    optimiser.zero_grad(set_to_none=True)
    loss = torch.nn.functional.cross_entropy(model(x, use_cache=False).logits.flatten(0, 1), y.flatten())
    loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimiser.step()
    return loss.item()


def compare(size, rounds, steps):
    torch.manual_seed(0)
    config = GPT2Config(
        vocab_size=size["vocab"],
        n_positions=size["context"],
        n_embd=size["width"],
        n_layer=size["layers"],
        n_head=size["heads"],
        resid_pdrop=0.0,
        embd_pdrop=0.0,
        attn_pdrop=0.0,
    )
    theirs = GPT2LMHeadModel(config).train()
    ours = gpt_from("gpt2", config.to_dict(), theirs.state_dict()).train()
    work = {
        "ours": (ours_step, ours, torch.optim.AdamW(ours.parameters(), lr=1e-4, fused=True)),
        "theirs": (theirs_step, theirs, torch.optim.AdamW(theirs.parameters(), lr=1e-4, fused=True)),
    }
    text = torch.randint(size["vocab"], (size["rows"], size["context"] + 1))
    times = {"ours": [], "theirs": []}
    for turn in range(rounds + 1):
        losses = {}
        for name, (step, model, optimiser) in work.items():
            begun = time.perf_counter()
            for _ in range(steps):
                losses[name] = step(model, optimiser, text[:, :-1], text[:, 1:])
            if turn:  # the first round warms up
                times[name].append((time.perf_counter() - begun) / steps)
        if turn == 0:  # later the two drift apart, as any two orders of adding up do
            assert abs(losses["ours"] - losses["theirs"]) < 1e-3, losses
    ratios = [t / o for t, o in zip(times["theirs"], times["ours"])]
    tokens = size["rows"] * size["context"]
    return {
        "ratio": round(statistics.median(ratios), 3),
        "ratio_spread": [round(min(ratios), 3), round(max(ratios), 3)],
        "tokens_per_second": round(tokens / statistics.median(times["ours"])),
        "their_tokens_per_second": round(tokens / statistics.median(times["theirs"])),
    }


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--short", action="store_true")
    short = parser.parse_args().short
    for name, size in SIZES.items():
        figures = compare(size, rounds=3 if short else 7, steps=5 if short else 15)
        record("gpt_speed", {"peer": "transformers 4.57.6 GPT2LMHeadModel", "size": name, **size, **figures})


if __name__ == "__main__":
    main()
