"""This version of ensue against another one, in turns: training, generation, beam search, int8, start-up.

git worktree add ../before COMMIT
python -m benchmarks.speed.versions --other ../before [--rounds 3] [--launches 3] [--only WORK …]

Each version runs in a process of its own, with its own ``src`` on the path; rounds alternate. Only names that both have
are used, so that a refactoring can be compared with what was there before it.
"""

from __future__ import annotations

import argparse
import inspect
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parents[2]
Step = Callable[[], Any]


def _gpt(layers: int, hidden: int, context: int, rows: int, vocabulary: int) -> Step:
    from ensue.models.gpt import GPTConfig, GPTLanguageModel

    sizes = {"layers": layers, "hidden": hidden, "context": context, "heads": hidden // 32, "vocabulary": vocabulary}
    return _trained(GPTLanguageModel(GPTConfig(**sizes)), rows, context, vocabulary)


def _trained(model: Any, rows: int, time: int, vocabulary: int) -> Step:
    """A training step on random tokens: forward, backward, clipping, AdamW."""
    import torch

    from ensue.models.model import Model

    tokens = torch.randint(vocabulary, (rows, time + 1))
    parameters = inspect.signature(Model.loss).parameters
    no_state = {"keep_state" if "keep_state" in parameters else "goes_on": False}  # the older name, for older versions
    return _step(model, lambda: model.loss(tokens[:, :-1], tokens[:, 1:], **no_state)[0])


def _step(model: Any, loss: Step) -> Step:
    import torch

    optimiser = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
    model.train()

    def step() -> None:
        optimiser.zero_grad()
        loss().backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimiser.step()

    return step


def gpt_small() -> Step:
    return _gpt(4, 128, 64, 12, 100)


def gpt_large() -> Step:
    return _gpt(6, 384, 256, 8, 5000)


def lstm() -> Step:
    from ensue.models.recurrent import LSTMConfig, LSTMLanguageModel

    return _trained(LSTMLanguageModel(LSTMConfig(vocabulary=10_000, hidden=256, layers=2)), 20, 35, 10_000)


def transformer() -> Step:
    import torch

    from ensue.models.transformer import Transformer, TransformerConfig

    sizes = {"vocabulary": 6000, "source_vocabulary": 6000, "tied": "all"}
    model = Transformer(TransformerConfig(layers=4, hidden=128, heads=4, inner=256, dropout=0.25, **sizes))
    torch.manual_seed(0)  # both versions read sentences of the same lengths
    source, target = torch.randint(6000, (96, 24)), torch.randint(6000, (96, 25))
    lengths = torch.randint(8, 25, (96,))
    return _step(model, lambda: model.pair_loss(source, lengths, target[:, :-1], target[:, 1:], lengths, 0.1))


def bert() -> Step:
    import torch

    from ensue.models.bert import BERT, BERTConfig

    model = BERT(BERTConfig(vocabulary=8000, layers=4, heads=4, hidden=256, context=128))
    torch.manual_seed(0)
    tokens, positions = torch.randint(8000, (16, 128)), torch.randint(128, (16, 19)).sort().values
    lengths, targets = torch.randint(64, 129, (16,)), torch.randint(8000, (16 * 19,))

    def loss() -> Any:
        hidden = model.encode(tokens, None, lengths, positions).hidden
        return model.masked_loss(hidden[:, 1:].flatten(0, 1), targets)

    return _step(model, loss)


def _language_run() -> Any:
    import ensue

    settings = {"layers": 4, "hidden": 256, "heads": 4, "context": 256, "train.steps": 2, "train.batch": 2}
    folder = tempfile.mkdtemp()
    return ensue.fit("gpt", "pydoc", out=f"{folder}/run", tokenizer="word", settings=settings)


def generate_1() -> Step:
    run = _language_run()
    return lambda: run.generate("the", tokens=150, n=1, seed=1)


def generate_8() -> Step:
    run = _language_run()
    return lambda: run.generate("the", tokens=150, n=8, seed=1)


def generate_int8() -> Step:
    run = _language_run()
    return lambda: run.generate("the", tokens=150, n=1, seed=1, int8=True)


def beam() -> Step:
    import ensue

    settings = {"layers": 3, "hidden": 256, "train.steps": 2, "train.batch_tokens": 500}
    run = ensue.fit("transformer", "dates", out=tempfile.mkdtemp() + "/run", tokenizer="char", settings=settings)
    lines = [f"{day} March 19{day + 40}" for day in range(10, 26)]
    return lambda: run.translate(lines)


def help_page() -> Step:
    return lambda: subprocess.run([sys.executable, "-m", "ensue", "--help"], check=True, capture_output=True)


WORKS: dict[str, tuple[Callable[[], Step], int]] = {
    "gpt training, small": (gpt_small, 40),
    "gpt training, large": (gpt_large, 3),
    "lstm training": (lstm, 8),
    "transformer training": (transformer, 8),
    "bert training": (bert, 4),
    "generation of 1 text": (generate_1, 4),
    "generation of 8 texts": (generate_8, 2),
    "generation in int8": (generate_int8, 4),
    "beam search": (beam, 2),
    "ensue --help": (help_page, 3),
}
"""What is done, and how many times in a round."""


def serve(name: str) -> None:
    """Do a round for each line that comes in, and tell how many seconds it took."""
    build, times = WORKS[name]
    step = build()
    step()
    print("ready", flush=True)
    for _ in sys.stdin:
        begun = time.perf_counter()
        for _ in range(times):
            step()
        print(json.dumps(time.perf_counter() - begun), flush=True)


def compare(name: str, other: Path, rounds: int, launches: int = 1) -> dict[str, Any]:
    """The speed of this version divided by that of the other, over alternating rounds of freshly started processes.

    A process keeps its memory layout, which can be worth a tenth of the speed, so ``launches`` counts more than rounds.
    """
    seconds: dict[str, list[float]] = {"ours": [], "other": []}
    for _ in range(launches):
        for who, values in time_rounds(name, other, rounds).items():
            seconds[who] += values
    ratios = [theirs / ours for ours, theirs in zip(seconds["ours"], seconds["other"])]
    return {
        "work": name,
        "ratio": round(statistics.median(ratios), 3),
        "best_ratio": round(min(seconds["other"]) / min(seconds["ours"]), 3),
        "ratio_spread": [round(min(ratios), 3), round(max(ratios), 3)],
        "seconds": {who: round(statistics.median(values), 3) for who, values in seconds.items()},
        "rounds": rounds,
        "launches": launches,
    }


def time_rounds(name: str, other: Path, rounds: int) -> dict[str, list[float]]:
    """Start both versions and time alternating rounds."""
    programs = {}
    for who, root in (("ours", HERE), ("other", other)):
        environment = {**os.environ, "PYTHONPATH": f"{root / 'src'}"}
        command = [sys.executable, str(Path(__file__).resolve()), "--serve", name]
        pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL}
        programs[who] = subprocess.Popen(command, env=environment, text=True, cwd=tempfile.mkdtemp(), **pipes)
    seconds: dict[str, list[float]] = {"ours": [], "other": []}
    for program in programs.values():
        while program.stdout.readline().strip() != "ready":
            if program.poll() is not None:
                raise SystemExit(f"{name}: a version failed; run it with --serve to see why")
    for turn in range(rounds):
        for who in ("ours", "other") if turn % 2 else ("other", "ours"):
            program = programs[who]
            program.stdin.write("\n")
            program.stdin.flush()
            seconds[who].append(json.loads(program.stdout.readline()))
    for program in programs.values():
        program.stdin.close()
        program.wait()
    return seconds


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--other", type=Path, help="the work tree of the other version")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--launches", type=int, default=3, help="how often both versions are started anew")
    parser.add_argument("--only", nargs="*", default=list(WORKS), help="some of the works")
    parser.add_argument("--serve", default="", help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    if chosen.serve:
        serve(chosen.serve)
        return
    from benchmarks.record import record

    commit = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"], cwd=chosen.other, capture_output=True, text=True, check=True
    )
    for name in chosen.only:
        record(
            "versions",
            {**compare(name, chosen.other.resolve(), chosen.rounds, chosen.launches), "other": commit.stdout.strip()},
        )


if __name__ == "__main__":
    main()
