"""lstm on the Penn Treebank, word by word: perplexity per word on the validation part, </s> counted.

ENSUE_DATA=… python -m benchmarks.quality.lstm_ptb --out runs/ptb-lstm

A run that is in the folder already is gone on with, or only scored where it is finished.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import ensue
from benchmarks.record import data_folder, record


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--out", type=Path, default=Path("runs/ptb-lstm"))
    parser.add_argument("--threads", type=int, default=0)
    typed = parser.parse_args()
    out = typed.out
    folder = data_folder() / "text" / "ptb"
    if not (out / "config.json").exists():
        resume = (out / "run.toml").exists()
        texts = {} if resume else {"data": folder / "train.txt.gz", "valid": folder / "valid.txt.gz"}
        more = {} if resume else {"tokenizer": "word", "preset": "ptb", "settings": {"train.threads": typed.threads}}
        ensue.fit("lstm", out=out, resume=resume, **more, **texts)
    run = ensue.load(out)
    score = run.score(folder / "valid.txt.gz", streams=1)
    figures = run.config["figures"]
    record(
        "lstm_ptb",
        {
            "preset": "ptb",
            "perplexity_per_word": round(score.perplexity["token"], 2),
            "bits_per_byte": round(score.bits_per_byte or 0, 4),
            "training_seconds": figures["seconds"],
            "training_threads": int(run.settings.get("train.threads") or 0) or "all",
            "steps": figures["steps"],
            "parameters": figures["parameters"],
        },
        seed=int(run.settings["seed"]),
    )


if __name__ == "__main__":
    main()
