"""Training steps of gpt against nanoGPT and transformers' GPT-2 of the same size, with the same weights, in turns.

NANOGPT=… python -m benchmarks.speed.gpt [--short] [--only NAME …] [--compiled]

All do the same work: forward, loss, backward, clipping, fused AdamW; their first losses are compared. nanoGPT is not a
package: $NANOGPT or --nanogpt names the folder with its model.py; without it those lines are left out. Its README
trains without torch.compile on a CPU; with it (--compiled), where a compiler is there, it is a peer of its own.
``long`` is ours over a context of 2,048 with ``train.recompute = "blocks"`` beside ours without: slower, in less room.
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import time
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch

from benchmarks import descent
from benchmarks.turns import Contest, Mark, Round, Work, hold
from ensue.core.memory import keep_freed_memory, release_freed_memory
from ensue.exchange.huggingface import gpt_from_weights
from ensue.models.gpt import GPTConfig, GPTLanguageModel
from ensue.nn.recompute import recompute_blocks

NANOGPT, COMPILED = "nanoGPT", "nanoGPT, compiled"
TRANSFORMERS = f"transformers {version('transformers')} GPT2LMHeadModel, sdpa"
SIZES: dict[str, dict[str, int]] = {
    "characters": {"vocab": 65, "context": 256, "width": 384, "layers": 6, "heads": 6, "rows": 12},
    "subwords": {"vocab": 50_257, "context": 256, "width": 384, "layers": 6, "heads": 6, "rows": 12},
    "long": {"vocab": 65, "context": 2048, "width": 384, "layers": 6, "heads": 6, "rows": 8},
    "small characters": {"vocab": 66, "context": 64, "width": 128, "layers": 4, "heads": 4, "rows": 12},
    "small words": {"vocab": 10_000, "context": 128, "width": 256, "layers": 4, "heads": 4, "rows": 8},
}
AGAIN = "ours, blocks computed again"
MARKS: dict[str, tuple[Mark, ...]] = {
    "characters": (Mark("ours", NANOGPT, 1.15), Mark("ours", COMPILED), Mark("ours", TRANSFORMERS, 1.3)),
    "subwords": (Mark("ours", NANOGPT, 1.15, 0.5), Mark("ours", COMPILED)),
    "long": (Mark(AGAIN, "ours", memory=0.5),),
    "small characters": (Mark("ours", TRANSFORMERS),),
    "small words": (Mark("ours", TRANSFORMERS),),
}
STEPS = {"characters": 3, "subwords": 2, "long": 1, "small characters": 15, "small words": 15}


def reference(size: dict[str, int]) -> Any:
    """The weights that all begin with."""
    from transformers import GPT2Config, GPT2LMHeadModel  # half of what ours alone holds, so only where it is a peer

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
    return GPT2LMHeadModel(config)


def own_model(size: dict[str, int]) -> GPTLanguageModel:
    """Ours where there is no peer, so that its process holds what one of ``ensue fit`` does."""
    torch.manual_seed(0)
    shape = {"vocabulary": size["vocab"], "hidden": size["width"], "positions": "learned"}
    return GPTLanguageModel(GPTConfig(**shape, **{name: size[name] for name in ("context", "layers", "heads")}))  # type: ignore[arg-type]


def nanogpt(folder: Path, size: dict[str, int], weights: dict[str, torch.Tensor]) -> Any:
    """nanoGPT with these weights; its matrices lie the other way round."""
    spec = importlib.util.spec_from_file_location("nanogpt_model", folder / "model.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    shape = {"block_size": "context", "vocab_size": "vocab", "n_layer": "layers", "n_head": "heads", "n_embd": "width"}
    model = module.GPT(module.GPTConfig(**{name: size[own] for name, own in shape.items()}, dropout=0.0))
    turned = ("c_attn.weight", "c_proj.weight", "c_fc.weight")
    held = {name: tensor.T if name.endswith(turned) else tensor for name, tensor in weights.items()}
    model.load_state_dict(held)
    return model


def training(who: str, folder: Path | None, size: dict[str, int], steps: int) -> Work:
    """So many steps a round on one batch; ours with what ``ensue fit`` does to its process."""
    alone, update = size == SIZES["long"], descent.theirs
    model: Any = own_model(size) if alone else reference(size)
    if who in ("ours", AGAIN):
        (release_freed_memory if who == AGAIN else keep_freed_memory)()
        update = descent.ours
    if who in ("ours", AGAIN) and not alone:
        model = gpt_from_weights("gpt2", model.config.to_dict(), model.state_dict())
    elif folder is not None and who in (NANOGPT, COMPILED):
        model = nanogpt(folder, size, model.state_dict())
    if who == AGAIN:
        recompute_blocks(model)
    model.train()
    optimiser = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
    torch.manual_seed(1)
    text = torch.randint(size["vocab"], (size["rows"], size["context"] + 1))
    x, y = text[:, :-1].contiguous(), text[:, 1:].contiguous()

    def loss_of() -> torch.Tensor:
        if who in ("ours", AGAIN):
            found: torch.Tensor = model.loss(x, y, keep_state=False)[0]
        elif who in (NANOGPT, COMPILED):
            found = model(x, y)[1]
        else:
            found = torch.nn.functional.cross_entropy(model(x, use_cache=False).logits.flatten(0, 1), y.flatten())
        return found

    if who == COMPILED:
        model.compile()

    def work(turn: int) -> Round:
        begun, losses = time.perf_counter(), []
        for _ in range(steps):
            optimiser.zero_grad(set_to_none=True)
            losses.append(update(model, optimiser, loss_of()))
        return Round(steps * size["rows"] * size["context"], time.perf_counter() - begun, losses)

    return work


def flops(size: dict[str, int]) -> float:
    """Of a token's products, forward and twice that on the way back; a token sees half the context on the mean."""
    D, L = size["width"], size["layers"]
    return 6.0 * (12 * L * D * D + size["vocab"] * D + L * D * size["context"])


def agree(done: dict[str, list[Round]]) -> dict[str, Any]:
    """Whether all began with the same loss; later they drift apart, as any two do."""
    first = {who: rounds[0].result[0] for who, rounds in done.items()}
    assert max(first.values()) - min(first.values()) < 1e-2, first
    return {"first_losses": {who: round(loss, 4) for who, loss in first.items()}}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--short", action="store_true")
    parser.add_argument("--only", nargs="+", choices=tuple(SIZES), default=tuple(SIZES), help="some of the sizes")
    parser.add_argument("--compiled", action="store_true", help="nanoGPT with torch.compile too")
    parser.add_argument("--nanogpt", type=Path, default=os.environ.get("NANOGPT"), help="the folder with its model.py")
    typed = parser.parse_args()
    if typed.nanogpt is None:
        print("nanoGPT is left out: --nanogpt or $NANOGPT says where its model.py is")
    for name in typed.only:
        size, rounds = SIZES[name], 2 if typed.short else 3 if "small" not in name else 9
        there = [mark for mark in MARKS[name] if typed.nanogpt or mark.peer not in (NANOGPT, COMPILED)]
        if not typed.compiled:  # compiling takes longer than all the rest
            there = [mark for mark in there if mark.peer != COMPILED]
        if not there:
            continue
        steps = max(1, STEPS[name] // 3) if typed.short else STEPS[name]
        whose = list(dict.fromkeys(who for mark in there for who in (mark.ours, mark.peer)))
        programs = {who: partial(training, who, typed.nanogpt, size, steps) for who in whose}
        kinds = (*descent.PRODUCTS, *descent.ATTENTION)
        facts: dict[str, Any] = (
            {}
            if typed.short or name == "long"
            else {"of": there[0].peer, **descent.possible(programs[there[0].peer], kinds)}
        )
        hold(
            Contest(
                result="gpt_speed",
                work="GPT training",
                size=f"{size['layers']} layers, width {size['width']}, {size['vocab']:,} tokens, "
                f"{size['rows']} rows of {size['context']}",
                unit="tokens",
                programs=programs,
                marks=there,
                flops=flops(size),
                facts=facts,
            ),
            rounds,
            agree,
        )


if __name__ == "__main__":
    main()
