"""Does fine-tuning on expected GLEU help (Wu et al., 2016)? A run goes on with it, and, as a control, without it.

ENSUE_DATA=… python -m benchmarks.quality.reward --run runs/multi30k --steps 200 --out runs/reward

Both continue the same weights on the same batches of Multi30k for as many steps at the same learning rate, one towards
the expected GLEU of its own translations, one towards likelihood. Given are GLEU (of tokens, as trained) and BLEU on
test2016 of all three, and whether the differences in BLEU would hold on another test set.
"""

from __future__ import annotations

import argparse
import statistics
from pathlib import Path
from typing import Any

import ensue
from benchmarks.record import data_folder, record
from ensue.data.pairs import read_pairs
from ensue.measure.translation import gleu, paired_bootstrap
from ensue.search.beam import Search


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--run", type=Path, required=True)
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--lr", type=float, default=1e-4)
    parser.add_argument("--samples", type=int, default=8)
    parser.add_argument("--batch-tokens", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, default=Path("runs/reward"))
    typed = parser.parse_args()
    folder = data_folder() / "translation" / "multi30k"
    files = {part: [folder / f"{part}.{side}.gz" for side in ("en", "de")] for part in ("train", "valid", "test2016")}
    runs = {"before": ensue.load(typed.run)}
    for objective in ("likelihood", "reward"):
        out = typed.out / objective
        if (out / "run.toml").exists():
            runs[objective] = ensue.fit(runs["before"].system, out=out, resume=True)
            continue
        settings = {
            "begin_with": str(typed.run),
            "train.objective": objective,
            "train.steps": typed.steps,
            "train.lr": typed.lr,
            "train.schedule": "constant",
            "train.samples": typed.samples,
            "train.batch_tokens": typed.batch_tokens,
            "train.keep": "last",
            "train.eval_every": typed.steps,
            "seed": typed.seed,
        }
        runs[objective] = ensue.fit(
            runs["before"].system, files["train"], valid=files["valid"], out=out, settings=settings
        )
    pairs = read_pairs(files["test2016"])
    scores: dict[str, dict[str, Any]] = {}
    outputs: dict[str, dict[int, list[str]]] = {}
    for name, run in runs.items():
        outputs[name], scores[name] = {}, {}
        for beam in (1, 5):
            found = run.score(*files["test2016"], search=Search(beam=beam))
            outputs[name][beam] = found.outputs
            encode = run.tokenizer.encode
            rewards = [gleu(encode(o), encode(t)) for o, t in zip(found.outputs, pairs.target, strict=True)]
            scores[name][f"beam {beam}"] = {
                "bleu": round(found.figures["bleu"], 2),
                "gleu": round(statistics.fmean(rewards), 4),
            }
        scores[name]["perplexity_per_token"] = round(found.figures["perplexity"]["token"], 3)
        scores[name]["training_seconds"] = run.config["figures"]["seconds"]
    differences = {}
    for beam in (1, 5):
        for other in ("before", "likelihood"):
            found = paired_bootstrap(outputs[other][beam], outputs["reward"][beam], pairs.target)
            differences[f"reward over {other}, beam {beam}"] = {
                "bleu": round(found.delta, 2),
                "interval": [round(end, 2) for end in found.interval],
                "p": round(found.p_value, 4),
            }
    names = ("steps", "lr", "samples", "batch_tokens")
    settings = {name: getattr(typed, name) for name in names}
    record("reward", {"system": runs["before"].system, **settings, **scores, **differences}, seed=typed.seed)


if __name__ == "__main__":
    main()
