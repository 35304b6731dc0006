"""What rounding weights to 4 bits costs on a data set, estimated without the weights before they were rounded.

python -m benchmarks.quality.weight_noise --run RUN --data FOLDER [--task arc-easy] [--limit 1000] [--seeds 2]
    [--before EVAL/arc-easy-0.jsonl]

Rounding moves a weight by at most half a step, s_jg / 2, and about uniformly. Here each 4-bit weight is moved once
more, by independent uniform noise of that size. A second error like the first one costs about as much as the first one
did, so the drop of the score estimates what is lost between 16-bit and 4-bit weights. The same questions are asked, and
the error is that of the difference for each question. ``--before`` has the answers of the run as it is, from
``ensue eval --out``.
"""

from __future__ import annotations

import argparse
import json
import statistics
from pathlib import Path

import torch
from torch import nn

import ensue
from benchmarks.record import record
from ensue.data.evaluation.catalogue import find_task
from ensue.data.evaluation.prompts import ShotDrawer, make_prompts, select
from ensue.kernels.grouped import GroupedLinear
from ensue.runs.prompts import Prompter
from ensue.verbs.eval_task import ask


def moved(layer: GroupedLinear, generator: torch.Generator) -> nn.Linear:
    """A layer in float32 with weights moved by up to half a step."""
    _, scales, _ = layer.apart()
    steps = scales.repeat_interleave(layer.group, 1)
    noise = torch.rand(layer.out_features, layer.in_features, generator=generator) - 0.5
    linear = nn.Linear(layer.in_features, layer.out_features, bias=layer.bias is not None)
    linear.weight = nn.Parameter(layer.weight + steps * noise, requires_grad=False)
    if layer.bias is not None:
        linear.bias = nn.Parameter(layer.bias, requires_grad=False)
    return linear


def move_weights(model: nn.Module, seed: int) -> int:
    """Move the weights of all 4-bit layers of a model; return their number."""
    generator, count = torch.Generator().manual_seed(seed), 0
    for parent in list(model.modules()):
        for name, layer in list(parent.named_children()):
            if isinstance(layer, GroupedLinear) and layer.bits == 4:
                setattr(parent, name, moved(layer, generator))
                count += 1
    return count


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--run", type=Path, required=True)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--task", default="arc-easy")
    parser.add_argument("--limit", type=int, default=1000)
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--before", type=Path)
    chosen = parser.parse_args()
    task = find_task(chosen.task, chosen.data)
    prompts = make_prompts(task, ShotDrawer(task.examples, 0, 0), select(task.size, chosen.limit, 0))
    right: list[dict[str, list[int]]] = []
    for seed in range(-1, chosen.seeds):
        run = ensue.load(chosen.run)
        count = 0 if seed < 0 else move_weights(run.model, seed)
        if seed < 0 and chosen.before is not None:
            lines = map(json.loads, chosen.before.read_text(encoding="utf-8").splitlines())
            known = {one["index"]: one for one in lines}
            records = [known[one.index] for one in prompts]
        else:
            records = ask(Prompter(run), task, prompts)
        right.append({name: [one["right"][name] for one in records] for name in ("acc", "acc_norm")})
        print(seed, count, {name: statistics.fmean(values) for name, values in right[-1].items()}, flush=True)
    rows = []
    for seed, noisy in enumerate(right[1:]):
        for name in ("acc", "acc_norm"):
            gains = [b - a for a, b in zip(right[0][name], noisy[name], strict=True)]
            error = statistics.stdev(gains) / len(gains) ** 0.5
            scores = {"before": statistics.fmean(right[0][name]), "after": statistics.fmean(noisy[name])}
            rows.append({"seed": seed, "measure": name, **scores, "gain": statistics.fmean(gains), "error": error})
    record("weight_noise", {"run": chosen.run.name, "task": task.name, "questions": len(prompts), "results": rows})


if __name__ == "__main__":
    main()
