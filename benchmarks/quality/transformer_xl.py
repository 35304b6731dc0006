"""Transformer-XL beside a ``gpt`` of the same size, CPU time and training context, on long text.

    ENSUE_DATA=… python -m benchmarks.quality.transformer_xl [--text linux wikitext2 ptb] [--budget 15m] [--out FOLDER]

Both have the same layers, width and heads, and are trained on rows of ``--context`` tokens; Transformer-XL also sees a
memory of as many. A line of results has the bits per byte of held-out text: of gpt, and of Transformer-XL with memories
from half to eight times that of its training, as its relative positions allow. Tokens are bytes (linux, wikitext2) or
words (ptb,
with perplexity).
"""

from __future__ import annotations

import argparse
import gzip
import tempfile
from pathlib import Path
from typing import Any

import ensue
from benchmarks.record import data_folder, record
from ensue.core.settings import parse_assignments

TEXTS = {"linux": "text/linux.c.txt.gz", "wikitext2": "text/wikitext2.valid.txt.gz"}
SYSTEMS = ("gpt", "transformer-xl")
NAME = "transformer_xl"


def files_of(text: str, valid_bytes: int, folder: Path) -> tuple[Path, Path]:
    """A text and its held-out part, which is its end; of ptb its own parts."""
    folder.mkdir(parents=True, exist_ok=True)
    found = folder / "train.txt", folder / "valid.txt"
    if text == "ptb":
        for file, part in zip(found, ("train", "valid"), strict=True):
            file.write_bytes(gzip.decompress((data_folder() / f"text/ptb/{part}.txt.gz").read_bytes()))
        return found
    data = gzip.decompress((data_folder() / TEXTS[text]).read_bytes())
    at = data.index(b"\n", len(data) - valid_bytes) + 1
    found[0].write_bytes(data[:at])
    found[1].write_bytes(data[at:])
    return found


def settings_of(system: str, text: str, typed: argparse.Namespace) -> dict[str, Any]:
    """The settings of a system: the same shape, rows and tokens."""
    own: dict[str, Any] = {"segment": typed.context, "memory": typed.context}
    if system == "gpt":
        own = {"context": typed.context, "positions": "rotary"}
    tokens = {"tokenizer.kind": "word"} if text == "ptb" else {"tokenizer.kind": "byte"}
    shape = {"layers": 4, "hidden": 128, "heads": 4, "dropout": 0.1 if text == "ptb" else 0.0}
    limit = {"train.budget_clock": "cpu", "train.threads": 1, "train.batch": max(1, 4096 // typed.context)}
    every, alone = {}, {}
    for name, value in parse_assignments(typed.set).items():
        head, dot, rest = name.partition(".")
        if dot and head in SYSTEMS:
            alone |= {rest: value} if head == system else {}
        else:
            every[name] = value
    return {**shape, **own, **tokens, **limit, **every, **alone}


def run_text(text: str, typed: argparse.Namespace, out: Path) -> None:
    """Train both and write a line of results."""
    train, valid = files_of(text, typed.valid_bytes, out / f"{text}-data")
    figures: dict[str, Any] = {"text": text, "budget": typed.budget, "context": typed.context}
    for system in SYSTEMS:
        path, settings = out / f"{text}-{system}", settings_of(system, text, typed)
        if (path / "config.json").exists():
            run = ensue.load(path)
        else:
            run = ensue.fit(system, train, valid=valid, budget=typed.budget, settings=settings, out=path)
        entry = run.config["figures"]
        figures[system] = {
            "parameters": entry["parameters"],
            "steps": entry["steps"],
            "tokens": entry["tokens"],
            **scores(run, valid, typed.context if system != "gpt" else 0),
        }
    record(NAME, figures)


def scores(run: Any, valid: Path, memory: int) -> dict[str, Any]:
    """Bits per byte, and perplexity of a token; with ``memory`` for some multiples of it."""
    found: dict[str, Any] = {}
    for factor in (0.5, 1, 2, 4, 8) if memory else (0,):
        run.use_memory(int(memory * factor) if memory else None)
        score = run.score(valid)
        name = f"memory {int(memory * factor)}" if memory else "window"
        found[name] = {
            "bits_per_byte": round(score.bits_per_byte, 4),
            "perplexity": round(score.perplexity["token"], 2),
        }
    return found


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--text", nargs="+", choices=(*TEXTS, "ptb"), default=("linux", "wikitext2", "ptb"))
    parser.add_argument("--budget", default="15m", help="CPU time of each system")
    parser.add_argument("--context", type=int, default=128, help="tokens of a training row, and of the memory")
    parser.add_argument("--valid-bytes", type=int, default=100_000)
    parser.add_argument("--set", action="append", default=[], help="a setting; gpt.train.lr=… for one system alone")
    parser.add_argument("--out", type=Path, help="keep the runs here; the same words continue")
    typed = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        for text in typed.text:
            run_text(text, typed, typed.out or Path(temporary))


if __name__ == "__main__":
    main()
