"""The time of one more token after short and long texts: linear attention against full attention, in one run.

python -m benchmarks.speed.attention_decoding [--positions 100,8192,100000] [--rows 1,8] [--rounds 5]

A gpt of 4 layers of width 256 with 4 heads and random weights reads random tokens, and then writes 32 more, token by
token, in turns with the others. Times are CPU time of one thread, and the fastest round counts, since other work on the
machine only adds time. Full attention stops at ``FULL_MOST`` positions, since its cache would need gigabytes.
``state_megabytes`` is what each keeps of the text.
"""

from __future__ import annotations

import argparse
import time
from typing import Any

import torch

from benchmarks.record import record
from ensue.models.gpt import GPTConfig, GPTLanguageModel

LAYERS, WIDTH, HEADS, VOCABULARY = 4, 256, 4, 256
STEPS, FULL_MOST, PIECE = 32, 8192, 4096
ATTENTIONS = ("full", "linear", "performer", "local:span=256", "mamba")


def built(attention: str, context: int) -> GPTLanguageModel:
    """A model with random weights."""
    torch.manual_seed(0)
    sizes = {"layers": LAYERS, "hidden": WIDTH, "heads": HEADS, "vocabulary": VOCABULARY}
    return GPTLanguageModel(GPTConfig(attention=attention, context=context, positions="rotary", **sizes)).eval()


def state_bytes(state: Any) -> int:
    """Of all tensors of a state."""
    leaves, _ = torch.utils._pytree.tree_flatten(state)
    return sum(one.nbytes for one in leaves if isinstance(one, torch.Tensor))


@torch.inference_mode()
def read(model: GPTLanguageModel, tokens: torch.Tensor) -> Any:
    """The state after tokens (B, T), read in pieces."""
    state = None
    for piece in tokens.split(PIECE, 1):
        state = model(piece, state, want=()).state
    return state


@torch.inference_mode()
def steps(model: GPTLanguageModel, state: Any, rows: int) -> float:
    """Seconds of a step; the state is not used up."""
    state, token = state.fork(), torch.zeros(rows, 1, dtype=torch.long)
    state = model(token, state).state  # a buffer may grow
    begun = time.process_time()
    for _ in range(STEPS):
        state = model(token, state).state
    return (time.process_time() - begun) / STEPS


def main() -> None:
    """Measure all positions and record a line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--positions", default="100,8192,100000")
    parser.add_argument("--rows", default="1,8")
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    torch.set_num_threads(1)
    found: list[dict[str, Any]] = []
    for rows in map(int, options.rows.split(",")):
        for position in map(int, options.positions.split(",")):
            tokens = torch.randint(VOCABULARY, (rows, position), generator=torch.Generator().manual_seed(0))
            full = position <= FULL_MOST
            models = {
                name: built(name, max(1024, position + 2 * STEPS)) for name in ATTENTIONS if full or name != "full"
            }
            states = {name: read(model, tokens) for name, model in models.items()}
            times: dict[str, list[float]] = {name: [] for name in models}
            for _ in range(options.rounds):
                for name, model in models.items():
                    times[name].append(steps(model, states[name], rows))
            for name, values in times.items():
                line = {"attention": name, "rows": rows, "position": position}
                line |= {"microseconds": round(1e6 * min(values)), "slowest": round(1e6 * max(values))}
                if full:
                    line["faster_than_full"] = round(min(times["full"]) / min(values), 2)
                found.append(line | {"state_megabytes": round(state_bytes(states[name]) / 1e6, 2)})
                print(found[-1], flush=True)
    record(
        "attention_decoding",
        {"layers": LAYERS, "width": WIDTH, "heads": HEADS, "rounds": options.rounds, "rows": found},
    )


if __name__ == "__main__":
    main()
