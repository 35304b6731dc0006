"""Each efficient attention against the package that has it, forward and backward, in turns.

ATTENTION_PEERS=FOLDER python -m benchmarks.speed.attention_peers [--length 4096] [--rounds 3] [--only reformer …]

One layer of width 256 with 4 heads, one row, all projections included. Blocks, buckets, ranks and features have the
same sizes on both sides. The packages (``PACKAGES``) are installed without what they depend on, into the folder that
``ATTENTION_PEERS`` names; transformers is a dependency of the tests. ``sparse``, ``retention`` and ``gated-linear``
have no package that runs on a processor here.

The share of FLOPs counts the matrix multiplications of the peer alone, for both: where it is 60 % of what the machine
can do, nobody can be twice as fast. ``grown_megabytes`` is the peak of memory above that of the process before its
first step.
"""

from __future__ import annotations

import argparse
import importlib
import os
import sys
import time
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode

from benchmarks.turns import Contest, Mark, Round, Work, hold, own_peak
from ensue.core.memory import keep_freed_memory
from ensue.nn.mixers.mixer import MixerConfig, build_mixer

PACKAGES = (
    "linformer==0.2.3",
    "performer-pytorch==1.1.4",
    "reformer-pytorch==1.4.4",
    "routing-transformer==1.6.1",
    "sinkhorn-transformer==0.11.4",
    "linear-attention-transformer==0.19.1",
    "local-attention==1.11.2",
    "einops==0.8.2",
    "axial-positional-embedding==0.3.12",
    "product-key-memory==0.3.0",
    "mixture-of-experts==0.2.3",
    "colt5-attention==0.11.2",
    "hyper-connections==0.4.11",
    "torch-einops-utils==0.2.0",
)
WIDTH, HEADS, BLOCK, SPAN, RANK, FEATURES, ROUNDS = 256, 4, 64, 128, 256, 256, 4
"""``ROUNDS`` are Reformer's hashes; ``SPAN`` the positions before a token that local attention sees."""
HEAD_WIDTH = WIDTH // HEADS
SECONDS = 1.5
"""At least so long a round takes."""


def linformer(length: int, causal: bool) -> nn.Module:
    """LinformerSelfAttention: keys and values of each head are projected by the same matrix."""
    layer = importlib.import_module("linformer.linformer").LinformerSelfAttention
    return layer(WIDTH, length, k=RANK, heads=HEADS)  # type: ignore[no-any-return]


def performer(length: int, causal: bool) -> nn.Module:
    """SelfAttention with positive random features."""
    layer = importlib.import_module("performer_pytorch").SelfAttention
    return layer(WIDTH, causal=causal, heads=HEADS, dim_head=HEAD_WIDTH, nb_features=FEATURES)  # type: ignore[no-any-return]


def linear(length: int, causal: bool) -> nn.Module:
    """SelfAttention by feature maps, exact where it is causal."""
    layer = importlib.import_module("linear_attention_transformer.linear_attention_transformer").SelfAttention
    return layer(WIDTH, HEADS, causal=causal)  # type: ignore[no-any-return]


def reformer(length: int, causal: bool) -> nn.Module:
    """LSHSelfAttention."""
    layer = importlib.import_module("reformer_pytorch").LSHSelfAttention
    return layer(WIDTH, heads=HEADS, bucket_size=BLOCK, n_hashes=ROUNDS, causal=causal)  # type: ignore[no-any-return]


class Routing(nn.Module):
    """SelfAttention of routing-transformer, without its auxiliary loss."""

    def __init__(self, length: int, causal: bool) -> None:
        super().__init__()
        layer = importlib.import_module("routing_transformer.routing_transformer").SelfAttention
        self.layer = layer(WIDTH, 1, length, HEADS, 0, BLOCK, causal=causal, shared_qk=causal)

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.layer(x)[0]
        return y


def sinkhorn(length: int, causal: bool) -> nn.Module:
    """SinkhornSelfAttention."""
    layer = importlib.import_module("sinkhorn_transformer.sinkhorn_transformer").SinkhornSelfAttention
    return layer(WIDTH, BLOCK, length, heads=HEADS, causal=causal)  # type: ignore[no-any-return]


def local(length: int, causal: bool) -> nn.Module:
    """LocalMHA with windows of exactly the span."""
    layer = importlib.import_module("local_attention").LocalMHA
    return layer(dim=WIDTH, window_size=SPAN, dim_head=HEAD_WIDTH, heads=HEADS, causal=causal)  # type: ignore[no-any-return]


class BigBird(nn.Module):
    """BigBirdBlockSparseAttention of transformers, and an output projection."""

    def __init__(self, length: int, causal: bool) -> None:
        super().__init__()
        from transformers import BigBirdConfig
        from transformers.models.big_bird.modeling_big_bird import BigBirdBlockSparseAttention, BigBirdModel

        sizes = {"hidden_size": WIDTH, "num_attention_heads": HEADS, "block_size": BLOCK, "num_random_blocks": 3}
        config = BigBirdConfig(max_position_embeddings=length, attention_probs_dropout_prob=0.0, **sizes)
        self.layer = BigBirdBlockSparseAttention(config, seed=0)
        self.out = nn.Linear(WIDTH, WIDTH)
        self.masks = BigBirdModel.create_masks_for_block_sparse_attn(torch.ones(1, length), BLOCK)

    def forward(self, x: Tensor) -> Tensor:
        band, from_blocked, to_blocked = self.masks[1], self.masks[0], self.masks[0]
        y: Tensor = self.layer(x, band, self.masks[2], self.masks[3], from_blocked, to_blocked)[0]
        return self.out(y)  # type: ignore[no-any-return]


class Mamba(nn.Module):
    """Mamba2Mixer of transformers, in plain operations."""

    def __init__(self, length: int, causal: bool) -> None:
        super().__init__()
        from transformers import Mamba2Config
        from transformers.models.mamba2.modeling_mamba2 import Mamba2Mixer

        sizes = {"hidden_size": WIDTH, "num_heads": HEADS, "head_dim": 2 * HEAD_WIDTH, "state_size": 64, "n_groups": 1}
        self.layer = Mamba2Mixer(Mamba2Config(**sizes, expand=2, num_hidden_layers=1, chunk_size=64), 0)

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.layer.torch_forward(x)
        return y


class Pair(NamedTuple):
    """An attention of ours, and the one it is compared with."""

    ours: str
    theirs: Callable[[int, bool], nn.Module]
    package: str
    directions: tuple[str, ...] = ("both", "causal")


PAIRS = {
    "linformer": Pair(f"linformer:rank={RANK}", linformer, "linformer", ("both",)),
    "performer": Pair(f"performer:features={FEATURES}", performer, "performer-pytorch"),
    "linear": Pair("linear", linear, "linear-attention-transformer"),
    "reformer": Pair(f"reformer:chunk={BLOCK}:rounds={ROUNDS}", reformer, "reformer-pytorch"),
    "routing": Pair(f"routing:window={BLOCK}", Routing, "routing-transformer"),
    "sinkhorn": Pair(f"sinkhorn:block={BLOCK}", sinkhorn, "sinkhorn-transformer"),
    "local": Pair(f"local:span={SPAN + 1}", local, "local-attention"),
    "bigbird": Pair(f"bigbird:block={BLOCK}:window=3:global=2:random=3", BigBird, "transformers", ("both",)),
    "mamba": Pair("mamba:state=64", Mamba, "transformers", ("causal",)),
}


class Ours(nn.Module):
    """A mixer as a layer."""

    def __init__(self, text: str, length: int, causal: bool) -> None:
        super().__init__()
        self.mixer = build_mixer(text, MixerConfig(width=WIDTH, heads=HEADS, causal=causal, context=length, dropout=0))

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.mixer(x).y
        return y


def step(layer: nn.Module, x: Tensor) -> None:
    """Forward and backward, of a loss that is not constant."""
    layer.zero_grad(set_to_none=True)
    x.grad = None
    layer(x).square().mean().backward()


def built(name: str, ours: bool, length: int, causal: bool) -> tuple[nn.Module, Tensor]:
    """A layer in training, and what it reads."""
    if folder := os.environ.get("ATTENTION_PEERS"):
        sys.path.append(folder)
    torch.manual_seed(0)
    pair = PAIRS[name]
    text = f"{pair.ours}:clusters={length // BLOCK}" if name == "routing" else pair.ours
    layer = Ours(text, length, causal) if ours else pair.theirs(length, causal)
    return layer.train(), torch.randn(1, length, WIDTH, requires_grad=True)


def program(name: str, ours: bool, length: int, causal: bool) -> Work:
    """As many steps a round as take ``SECONDS``; the first round finds out how many."""
    if ours:
        keep_freed_memory()  # as ``ensue fit`` does
    layer, x = built(name, ours, length, causal)
    before, count = own_peak(), 0

    def work(turn: int) -> Round:
        nonlocal count
        begun = time.perf_counter()
        done = 0
        while done < count or (not count and time.perf_counter() - begun < SECONDS):
            step(layer, x)
            done += 1
        count = count or done
        seconds = time.perf_counter() - begun
        return Round(done * length, seconds, (own_peak() - before) / 1e6)

    return work


def flops(name: str, length: int, causal: bool) -> float:
    """Of the matrix multiplications that the peer does for a token."""
    layer, x = built(name, False, length, causal)
    with FlopCounterMode(display=False) as counter:
        step(layer, x)
    return counter.get_total_flops() / length


def grown(done: dict[str, list[Round]]) -> dict[str, Any]:
    """The peaks of memory above what the processes had before."""
    return {"grown_megabytes": {who: round(rounds[-1].result) for who, rounds in done.items()}}


def main() -> None:
    """Hold all contests."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--length", type=int, default=4096)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", nargs="+", choices=PAIRS, default=list(PAIRS))
    options = parser.parse_args()
    n = options.length
    for name in options.only:
        pair = PAIRS[name]
        for direction in pair.directions:
            causal = direction == "causal"
            names = {"ours": True, pair.package: False}
            contest = Contest(
                result="attention_peers",
                work=f"attention {name}, {direction}, forward and backward",
                size=f"{n:,} tokens, width {WIDTH}, {HEADS} heads",
                unit="tokens",
                programs={who: partial(program, name, ours, n, causal) for who, ours in names.items()},
                marks=[Mark("ours", pair.package, 2.0)],
                flops=flops(name, n, causal),
                facts={"ours_is": pair.ours},
            )
            hold(contest, options.rounds, grown)


if __name__ == "__main__":
    main()
