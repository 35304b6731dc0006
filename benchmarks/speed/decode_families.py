"""Writing with a model of Gemma 3's size in 4 bits: by a decode program, and layer by layer, in turns.

python -m benchmarks.speed.decode_families [--rounds 5] [--tokens 48] [--prompts 16 700] [--caps]

The preset gemma3-270m of ``llama`` with random weights: norms of queries and keys, norms on both sides of each part,
two bases of rotary positions, local layers. The prompt has 16 tokens, or 700, which is more than the span of 512.
``--caps`` adds the caps of Gemma 2. Both ways read the same tokens, and the largest difference of their logits is
recorded too: 4-bit layers round their inputs to 8 bits in a program. CPU time depends less on what else the machine
does than tokens a second.
"""

from __future__ import annotations

import argparse
import statistics
import time
from typing import Any

import torch

from benchmarks.record import record
from ensue.kernels.kernel import use
from ensue.models.llama import LlamaConfig, LlamaLanguageModel
from ensue.runs.weight_bits import with_bits

PROMPTS = (16, 700)
WAYS = {"program": "auto", "layers": "reference"}


def random_model(caps: bool) -> Any:
    """A model with random weights in 4 bits, the embedding in 8."""
    preset = LlamaLanguageModel.presets["gemma3-270m"]
    settings = {name: value for name, value in preset.items() if "." not in name}
    settings |= {"attention_cap": 50.0, "logit_cap": 30.0} if caps else {}
    torch.manual_seed(0)
    model = LlamaLanguageModel(LlamaConfig(**settings, vocabulary=preset["tokenizer.vocabulary"]))
    return with_bits(model, 4)


@torch.no_grad()
def write(model: Any, prompt: torch.Tensor, rest: torch.Tensor, way: str) -> tuple[float, float, torch.Tensor]:
    """Tokens a second and CPU milliseconds a token, read one by one after a prompt, and the logits of the last."""
    with use(WAYS[way], "decode"):
        state = model(prompt, want=("last",)).state
        output = model(rest[:, :1], state, want=("last",))  # compiles
        begun, used = time.perf_counter(), time.process_time()
        for token in rest[:, 1:].split(1, dim=1):
            output = model(token, output.state, want=("last",))
        seconds, used = time.perf_counter() - begun, time.process_time() - used
    count = rest.shape[1] - 1
    return count / seconds, 1e3 * used / count, output.logits


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--rounds", type=int, default=5)
    arguments.add_argument("--tokens", type=int, default=48)
    arguments.add_argument("--prompts", type=int, nargs="+", default=PROMPTS)
    arguments.add_argument("--caps", action="store_true")
    given = arguments.parse_args()
    model = random_model(given.caps)
    for length in given.prompts:
        rates: dict[str, list[float]] = {way: [] for way in WAYS}
        costs: dict[str, list[float]] = {way: [] for way in WAYS}
        apart = 0.0
        for turn in range(given.rounds):
            draw = torch.Generator().manual_seed(turn)
            prompt, rest = (torch.randint(262_144, (1, size), generator=draw) for size in (length, given.tokens))
            found = {}
            for way in WAYS:
                rate, cost, found[way] = write(model, prompt, rest, way)
                rates[way].append(rate)
                costs[way].append(cost)
            apart = max(apart, (found["program"] - found["layers"]).abs().max().item())
        median = {way: round(statistics.median(many), 1) for way, many in rates.items()}
        record(
            "decode_families",
            {
                "what": f"gemma3-270m{' with caps' if given.caps else ''} in 4 bits, random, after {length} tokens",
                "tokens_per_second": median,
                "spread": {way: [round(min(many), 1), round(max(many), 1)] for way, many in rates.items()},
                "cpu_milliseconds_per_token": {way: round(statistics.median(many), 1) for way, many in costs.items()},
                "ratio": round(median["program"] / median["layers"], 2),
                "largest_difference": round(apart, 4),
                "rounds": given.rounds,
            },
        )


if __name__ == "__main__":
    main()
