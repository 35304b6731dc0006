"""gpt with a mixture of experts on tiny Shakespeare, at the same FLOPs a token as without: nats a character.

All have the same steps, batches and seed; a token meets one two-layer network, of one, of four, or of eight.

ENSUE_DATA=… python -m benchmarks.quality.experts [--steps 600] [--experts 1,4,8]
"""

from __future__ import annotations

import argparse
import gzip
import tempfile
from pathlib import Path
from typing import Any

import torch

import ensue
from benchmarks.record import data_folder, record
from ensue.nn.experts import Experts


def shares(model: Any, tokens: torch.Tensor) -> list[float]:
    """The largest share of tokens that one expert gets, in each layer."""
    found: list[float] = []

    def look(module: Experts, given: tuple[torch.Tensor, ...], y: torch.Tensor) -> None:
        _, chosen, _ = module.route(given[0].flatten(0, 1))
        counts = chosen.flatten().bincount(minlength=len(module.experts))
        found.append(round((counts.max() / counts.sum()).item(), 3))

    hooks = [part.register_forward_hook(look) for part in model.modules() if isinstance(part, Experts)]
    with torch.no_grad():
        model.eval()(tokens)
    for hook in hooks:
        hook.remove()
    return found


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=600)
    parser.add_argument("--experts", default="1,4,8")
    parser.add_argument("--seed", type=int, default=0)
    chosen = parser.parse_args()
    text = gzip.decompress((data_folder() / "text" / "tinyshakespeare.txt.gz").read_bytes()).decode()
    cut = len(text) * 9 // 10
    with tempfile.TemporaryDirectory() as name:
        train, valid = Path(name) / "train.txt", Path(name) / "valid.txt"
        train.write_text(text[:cut], encoding="utf-8")
        valid.write_text(text[cut:], encoding="utf-8")
        for experts in map(int, chosen.experts.split(",")):
            settings = {"experts": experts, "train.steps": chosen.steps}
            run = ensue.fit(
                "gpt",
                train,
                valid=valid,
                preset="nanogpt",
                settings=settings,
                seed=chosen.seed,
                out=Path(name) / f"run-{experts}",
            )
            figures = run.config["figures"]
            counted = ensue.cost(
                "gpt", preset="nanogpt", vocabulary=run.config["model"]["vocabulary"], settings=settings
            )
            tokens = torch.tensor(run.tokenizer.encode(text[cut : cut + 6000]))[: 64 * 64].view(64, 64)
            record(
                "experts",
                {
                    "experts": experts,
                    "experts_active": 1,
                    "steps": chosen.steps,
                    "nats_per_character": round(run.score(valid).nll, 4),
                    "training_seconds": round(figures["seconds"], 1),
                    "parameters": counted["parameters"],
                    "parameters_active": counted["parameters_active"],
                    "flops_per_token": counted["flops_per_token"],
                    "largest_share_by_layer": shares(run.model, tokens),
                },
                seed=chosen.seed,
            )


if __name__ == "__main__":
    main()
