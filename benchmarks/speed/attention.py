"""How the attentions grow with the number of tokens: time, memory, decoding, and where each overtakes full attention.

python -m benchmarks.speed.attention [--lengths 2048,4096,8192,16384] [--direction causal|both] [--threads 1]

One layer of width 256 with 4 heads, one row, forward and backward, in turns; the fastest of three rounds counts. What
one more token costs is timed after as many tokens. The line has the exponents that are aimed at beside the measured
ones. A chart is written beside the results.
"""

from __future__ import annotations

import argparse

import torch

from benchmarks.record import RESULTS, record
from ensue.look.saving import save_chart
from ensue.look.scaling_chart import scaling_chart
from ensue.verbs.cost_attention import cost_attention

LINEAR = ("local", "linear", "performer", "linformer", "bigbird", "sinkhorn", "reformer", "retention", "mamba")
MARKS = dict.fromkeys((*LINEAR, "gated-linear"), 1.2) | {"sparse": 1.6, "routing": 1.6}
"""The largest exponents of training time that are aimed at."""


def main() -> None:
    """Measure, record and draw."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--lengths", default="2048,4096,8192,16384")
    parser.add_argument("--direction", default="causal")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--attention", default="")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    lengths = [int(one) for one in options.lengths.split(",")]
    names = [one for one in options.attention.split(",") if one]
    found = cost_attention(names, lengths=lengths, measure=True, direction=options.direction)
    rows = []
    for one in found["measured"]:
        name = one["attention"].partition(":")[0]
        rows.append({**one, "mark": MARKS.get(name), "holds": one["time_exponent"] <= MARKS.get(name, 2.5)})
        print(f"{one['attention']:<14} n^{one['time_exponent']:.2f}  {[round(s, 3) for s in one['seconds']]}")
    facts = {key: found[key] for key in ("lengths", "width", "heads", "direction", "threads")}
    record("attention_speed", {**facts, "rows": rows})
    for suffix in ("svg", "png"):
        save_chart(scaling_chart(found), RESULTS / f"attention_{options.direction}.{suffix}")


if __name__ == "__main__":
    main()
