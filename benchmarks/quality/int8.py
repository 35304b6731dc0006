"""What eight bits cost a language model: perplexity beside that in single precision, and the same token by token.

python -m benchmarks.quality.int8 --out runs/int8 [--budget 5m] [--tokens 4000]

A ``gpt`` of 6 layers, width 384, is trained on the built-in text for so long where it is not there yet, and scored on
text that it has not seen: read in whole windows, where x has eight bits too, and token by token as it is when it
writes, where weights alone have eight bits (``ensue.kernels.decode_program``).
"""

from __future__ import annotations

import argparse
import math
from pathlib import Path
from typing import Any

import torch

import ensue
from benchmarks.record import RESULTS, record
from ensue.data.tokens import tokenize_text
from ensue.kernels.int8 import quantise

SHAPE = {"layers": 6, "hidden": 384, "heads": 6, "context": 256}
MARK = 0.01


def stepped(model: Any, tokens: torch.Tensor, rows: int = 8) -> float:
    """Perplexity a token, of rows that are read one token at a time."""
    size = min(len(tokens) // rows, SHAPE["context"])
    block = tokens[: rows * size].view(rows, size)
    total, state = 0.0, model.start(rows)
    with torch.no_grad():
        for at in range(size - 1):
            output = model(block[:, at : at + 1], state, want=("last",))
            state = output.state
            total += float(-output.logits[:, -1].log_softmax(-1).gather(1, block[:, at + 1, None]).sum())
    return math.exp(total / (rows * (size - 1)))


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--budget", default="5m")
    parser.add_argument("--tokens", type=int, default=4000)
    typed = parser.parse_args()
    if not (typed.out / "config.json").exists():
        ensue.fit("gpt", "pydoc", budget=typed.budget, settings={**SHAPE, "train.batch": 8}, out=typed.out, force=True)
    run = ensue.load(typed.out)
    pages = sorted((RESULTS.parents[1] / "docs").glob("*.md"))
    text = "\n\n".join(path.read_text(encoding="utf-8") for path in pages)
    whole = {name: run.score(text=text, int8=name == "int8").perplexity["token"] for name in ("float32", "int8")}
    tokens = torch.as_tensor(tokenize_text(text, run.tokenizer).tokens[: typed.tokens].astype("int64"))
    model = run.model.eval()
    steps = {"float32": stepped(model, tokens), "int8": stepped(quantise(model), tokens)}
    for name, found in (("in windows", whole), ("token by token", steps)):
        rise = found["int8"] / found["float32"] - 1
        record(
            "int8_quality",
            {
                "what": f"perplexity a token, {name}",
                "model": f"gpt {SHAPE}, trained for {typed.budget} on pydoc",
                "text": "this project's own pages, which it has not seen",
                "perplexity": {key: round(value, 3) for key, value in found.items()},
                "rise": round(rise, 5),
                "mark": MARK,
            },
        )
        assert rise < MARK


if __name__ == "__main__":
    main()
