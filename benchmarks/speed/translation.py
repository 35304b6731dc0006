"""Training and beam search of ``transformer`` against transformers' Marian of the same size, alternating in one run.

ENSUE_DATA=… python -m benchmarks.speed.translation --out runs/speed [--short]

Both train on the same batches of Multi30k (similar lengths together), 3 + 3 layers, width 256, 8 heads, dropout 0.1,
fused AdamW, clipping, smoothed loss; Marian computes its loss as its users do, from the logits. Both then translate the
same sentences of test2016 with the same weights and a beam of 5, in the same batches of 32; the weights are those of a
run in ``--out``, trained first where it is not there. Marian runs twice: with ``early_stopping="never"``, which
finds what ours finds, and with its default, a heuristic that stops sooner. Reported is theirs ÷ ours in time, so above
1 means ours is faster.
"""

from __future__ import annotations

import argparse
import gzip
import statistics
import time
from collections.abc import Callable, Iterator
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any

import torch
from transformers import MarianConfig, MarianMTModel

import ensue
from benchmarks.record import data_folder, record
from ensue.core.events import silent
from ensue.core.run_folder import RunFolder
from ensue.exchange.huggingface import marian_weights
from ensue.search.beam import Search, beam_search
from ensue.tasks import translation
from ensue.tasks.settings import resolve
from ensue.tasks.task import build_model
from ensue.train.objectives import Translate
from ensue.train.optimisers import clip

LAYERS, WIDTH, HEADS, BATCH = 3, 256, 8, 2000
SHAPE = {"layers": LAYERS, "hidden": WIDTH, "heads": HEADS, "norm": "post", "train.batch_tokens": BATCH}


def marian(vocabulary: int, end: int) -> MarianMTModel:
    """Marian of the same shape; its start mark is our end mark, so one more token is only padding."""
    config = MarianConfig(
        vocab_size=vocabulary + 1,
        d_model=WIDTH,
        encoder_layers=LAYERS,
        decoder_layers=LAYERS,
        encoder_attention_heads=HEADS,
        decoder_attention_heads=HEADS,
        encoder_ffn_dim=4 * WIDTH,
        decoder_ffn_dim=4 * WIDTH,
        activation_function="relu",
        dropout=0.1,
        scale_embedding=True,
        pad_token_id=vocabulary,
        eos_token_id=end,
        bos_token_id=end,
        decoder_start_token_id=end,
        forced_eos_token_id=None,
        max_position_embeddings=512,
    )
    return MarianMTModel(config)


def ours_step(model: Any, optimiser: torch.optim.Optimizer, batch: Any) -> None:
    optimiser.zero_grad(set_to_none=True)
    loss, _ = Translate(0.1)(model, batch, None)
    loss.backward()
    clip([p.grad for p in model.parameters() if p.grad is not None], 1.0)
    optimiser.step()


def theirs_step(model: Any, optimiser: torch.optim.Optimizer, batch: Any) -> None:
    optimiser.zero_grad(set_to_none=True)
    places, wanted = torch.arange(batch.source.shape[1]), torch.arange(batch.targets.shape[1])
    logits = model(
        input_ids=batch.source,
        attention_mask=(places < batch.source_lengths[:, None]).long(),
        decoder_input_ids=batch.tokens,
        use_cache=False,
    ).logits
    targets = batch.targets.masked_fill(wanted >= batch.lengths[:, None], -100)
    torch.nn.functional.cross_entropy(logits.flatten(0, 1), targets.flatten(), label_smoothing=0.1).backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimiser.step()


def train_speed(ours: Any, theirs: Any, buckets: Any, rounds: int, steps: int) -> dict[str, Any]:
    """Target tokens a second of both, and their ratio, round by round."""
    work = {"ours": (ours_step, ours.train()), "theirs": (theirs_step, theirs.train())}
    optimisers = {n: torch.optim.AdamW(m.parameters(), lr=1e-4, fused=True) for n, (_, m) in work.items()}
    speeds: dict[str, list[float]] = {"ours": [], "theirs": []}
    for turn in range(rounds + 1):
        for name, (step, model) in work.items():
            tokens, begun = 0, time.perf_counter()
            for number in range(turn * steps, (turn + 1) * steps):
                batch = buckets.batch(number)
                step(model, optimisers[name], batch)
                tokens += batch.size
            if turn:  # the first round warms up
                speeds[name].append(tokens / (time.perf_counter() - begun))
    ratios = [o / t for o, t in zip(speeds["ours"], speeds["theirs"])]
    return _figures("training", ratios, speeds, "target_tokens_per_second")


def trained(folder: Path) -> Any:
    """A run of this size with enough training to end its sentences; it is gone on with where it is there."""
    if (folder / "run.toml").exists():
        return ensue.fit("transformer", out=folder, resume=True)
    settings = {"train.steps": 1500, "train.schedule": "inverse-sqrt", "train.warmup": 300, "train.lr": 1e-3}
    return ensue.fit("transformer", _files("train"), valid=_files("valid"), out=folder, settings={**SHAPE, **settings})


def test_batches(run: Any, count: int) -> list[tuple[torch.Tensor, torch.Tensor]]:
    """Sentences of test2016, 32 of similar length at a time, spread over all lengths."""
    with gzip.open(_files("test2016")[0], "rt", encoding="utf-8") as file:
        ids = sorted((run.translator().encode(line.strip()) for line in file), key=len)
    batches = [ids[at : at + 32] for at in range(0, len(ids) - 31, 32)]
    chosen = batches[:: max(1, len(batches) // count)][:count]
    padded = [torch.nn.utils.rnn.pad_sequence([torch.from_numpy(one) for one in some], True) for some in chosen]
    return [(block, torch.tensor([len(one) for one in some])) for block, some in zip(padded, chosen)]


def ours_beam(model: Any, source: torch.Tensor, lengths: torch.Tensor, end: int, longest: int) -> list[list[int]]:
    with torch.no_grad():
        state = model.start(source, lengths)
    found = beam_search(model, state, end, end=end, longest=longest, how=Search(beam=5, length="mean"))
    return [one.hypotheses[0].tokens for one in found]


def theirs_beam(
    model: Any, source: torch.Tensor, lengths: torch.Tensor, end: int, longest: int, stop: str | bool
) -> list[list[int]]:
    mask = (torch.arange(source.shape[1]) < lengths[:, None]).long()
    rows = model.generate(
        input_ids=source,
        attention_mask=mask,
        num_beams=5,
        do_sample=False,
        early_stopping=stop,
        length_penalty=1.0,
        max_new_tokens=longest,
    )
    ended = [[*row[1:].tolist(), end] for row in rows]  # the first is the start mark
    return [row[: row.index(end)] for row in ended]


def beam_speed(run: Any, rounds: int, count: int) -> Iterator[dict[str, Any]]:
    """Sentences a second of both with a beam of 5 and the same weights."""
    model, end = run.model.eval(), run.tokenizer.end
    theirs = marian(run.tokenizer.size, end).eval()
    weights = {
        name: tensor if "layers" in name else torch.nn.functional.pad(tensor, _one_more(tensor))
        for name, tensor in marian_weights(model).items()
    }
    weights["final_logits_bias"][0, -1] = float("-inf")  # their padding is never written
    theirs.load_state_dict(weights, strict=False)
    batches = test_batches(run, count)
    ways: dict[str, Callable[..., list[list[int]]]] = {
        "ours": ours_beam,
        "theirs": partial(theirs_beam, stop="never"),
        "theirs, default stopping": partial(theirs_beam, stop=False),
    }
    seconds: dict[str, list[float]] = {name: [] for name in ways}
    outputs: dict[str, list[list[int]]] = {}
    for turn in range(rounds + 1):
        for name, way in ways.items():
            begun, found = time.perf_counter(), []
            for source, lengths in batches:
                found += way(theirs if "theirs" in name else model, source, lengths, end, 2 * source.shape[1] + 10)
            if turn:
                seconds[name].append(time.perf_counter() - begun)
            outputs[name] = found
    for name in list(ways)[1:]:
        ratios = [t / o for o, t in zip(seconds["ours"], seconds[name])]
        same = sum(a == b for a, b in zip(outputs["ours"], outputs[name])) / len(outputs["ours"])
        speeds = {who: [len(outputs["ours"]) / t for t in seconds[who]] for who in ("ours", name)}
        yield _figures(f"beam 5, {name}", ratios, speeds, "sentences_per_second") | {"same_output": round(same, 4)}


def _one_more(tensor: torch.Tensor) -> tuple[int, ...]:
    """Room for the padding's row in the embedding, or for its place in the bias."""
    return (0, 1) if len(tensor) == 1 else (0, 0, 0, 1)


def _files(part: str) -> list[Path]:
    return [data_folder() / "translation" / "multi30k" / f"{part}.{language}.gz" for language in ("en", "de")]


def _figures(what: str, ratios: list[float], speeds: dict[str, list[float]], unit: str) -> dict[str, Any]:
    return {
        "what": what,
        "ratio": round(statistics.median(ratios), 3),
        "ratio_spread": [round(min(ratios), 3), round(max(ratios), 3)],
        unit: {name: round(statistics.median(values), 1) for name, values in speeds.items()},
        "rounds": len(ratios),
    }


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--short", action="store_true")
    parser.add_argument("--out", type=Path, default=Path("runs/speed"))
    typed = parser.parse_args()
    run = trained(typed.out)
    settings = resolve("transformer", layers=[{**SHAPE, "data.files": tuple(map(str, _files("train")))}])
    corpus = translation.corpus_of(settings, RunFolder(typed.out), silent)
    torch.manual_seed(0)
    ours, end = build_model(settings, corpus), corpus.tokenizer.end
    theirs = marian(corpus.tokenizer.size, end)
    buckets = translation.batches(settings, ours, corpus)  # type: ignore[arg-type]
    rounds, steps = (2, 4) if typed.short else (5, 12)
    shape = f"{LAYERS}+{LAYERS} layers, width {WIDTH}, {corpus.tokenizer.size} tokens, {BATCH} tokens a batch"
    results = chain(
        [train_speed(ours, theirs, buckets, rounds, steps)], beam_speed(run, rounds, 3 if typed.short else 8)
    )
    for figures in results:
        record("translation_speed", {"peer": "transformers 4.57.6 Marian", "size": shape, **figures})


if __name__ == "__main__":
    main()
