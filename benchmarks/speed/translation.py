"""Training and beam search of ``transformer`` against transformers' Marian of the same size, in turns.

ENSUE_DATA=… python -m benchmarks.speed.translation --out runs/speed [--short] [--only training|beam]

Both train on the same batches of Multi30k (similar lengths together), 3 + 3 layers, width 256, 8 heads, dropout 0.1,
fused AdamW, clipping, smoothed loss; Marian computes its loss as its users do, from the logits. Both then translate the
same sentences of test2016 with the same weights and a beam of 5, in the same batches of 32; the weights are those of a
run in ``--out``, trained first where it is not there. Marian runs twice: with ``early_stopping="never"``, which
finds what ours finds, and with its default, a heuristic that stops sooner. Reported is theirs ÷ ours in time, so above
1 means ours is faster; and for training the share of Marian's time that is matrix products, whose inverse is what the
ratio would be if all the rest took no time.
"""

from __future__ import annotations

import argparse
import gzip
import statistics
import time
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch.profiler import ProfilerActivity, profile
from transformers import MarianConfig, MarianMTModel

import ensue
from benchmarks.record import data_folder, record
from benchmarks.turns import Round, Work, ratio, take_turns
from ensue.core.events import silent
from ensue.core.memory import keep_freed_memory
from ensue.core.run_folder import RunFolder
from ensue.exchange.huggingface import marian_weights
from ensue.search.beam import Search, beam_search
from ensue.tasks import translation
from ensue.tasks.resolving import resolve
from ensue.tasks.task import build_model
from ensue.train.objectives import Translate
from ensue.train.optimisers import gradients_of, move, norm_of

LAYERS, WIDTH, HEADS, BATCH = 3, 256, 8, 2000
PRODUCTS = ("aten::mm", "aten::addmm", "aten::bmm", "aten::baddbmm")
SHAPE = {"layers": LAYERS, "hidden": WIDTH, "heads": HEADS, "norm": "post", "train.batch_tokens": BATCH}


def files(part: str) -> list[Path]:
    return [data_folder() / "translation" / "multi30k" / f"{part}.{language}.gz" for language in ("en", "de")]


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
    gradients = gradients_of(model)
    move(optimiser, gradients, norm_of(gradients), 1.0)


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


def training(who: str, folder: Path, steps: int) -> Work:
    """So many steps a round, on the batches of that round; ours with what ``ensue fit`` does to its process."""
    settings = resolve("transformer", layers=[{**SHAPE, "data.files": tuple(map(str, files("train")))}])
    corpus = translation.corpus_of(settings, RunFolder(folder), silent)
    torch.manual_seed(0)
    model: Any = build_model(settings, corpus)
    buckets = translation.batches(settings, model, corpus)
    step = ours_step
    if who == "ours":
        keep_freed_memory()
    else:
        model, step = marian(corpus.tokenizer.size, corpus.tokenizer.end), theirs_step
    model.train()
    optimiser = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)

    def work(turn: int) -> Round:
        tokens, begun = 0, time.perf_counter()
        for number in range(turn * steps, (turn + 1) * steps):
            batch = buckets.batch(number)
            step(model, optimiser, batch)
            tokens += batch.size
        return Round(tokens, time.perf_counter() - begun)

    return work


def products(folder: Path, steps: int) -> Work:
    """The share of Marian's training that is matrix products: what is left is all that anybody can save."""
    train = training("theirs", folder, steps)

    def work(turn: int) -> Round:
        if not turn:
            return train(turn)
        with profile(activities=[ProfilerActivity.CPU]) as seen:
            done = train(turn)
        spent = {event.key: event.self_cpu_time_total for event in seen.key_averages()}
        return Round(1.0, done.seconds, sum(spent.get(name, 0) for name in PRODUCTS) / sum(spent.values()))

    return work


def trained(folder: Path) -> Any:
    """A run of this size with enough training to end its sentences; it is gone on with where it is there."""
    if (folder / "run.toml").exists():
        return ensue.fit("transformer", out=folder, resume=True)
    settings = {"train.steps": 900, "train.schedule": "inverse-sqrt", "train.warmup": 300, "train.lr": 1e-3}
    return ensue.fit("transformer", files("train"), valid=files("valid"), out=folder, settings={**SHAPE, **settings})


def test_batches(run: Any, count: int) -> list[tuple[torch.Tensor, torch.Tensor]]:
    """Sentences of test2016, 32 of similar length at a time, spread over all lengths."""
    with gzip.open(files("test2016")[0], "rt", encoding="utf-8") as file:
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


def searching(stop: str | bool | None, folder: Path, count: int) -> Work:
    """A beam of 5 over so many batches: ours, or with ``stop`` Marian's with that rule."""
    if stop is None:
        keep_freed_memory()
    run = ensue.load(folder)
    end, model, way = run.tokenizer.end, run.model.eval(), ours_beam
    if stop is not None:
        model, way = with_weights_of(run), partial(theirs_beam, stop=stop)
    batches = test_batches(run, count)

    def work(turn: int) -> Round:
        begun, found = time.perf_counter(), []
        for source, lengths in batches:
            found += way(model, source, lengths, end, 2 * source.shape[1] + 10)
        return Round(len(found), time.perf_counter() - begun, found)

    return work


def with_weights_of(run: Any) -> MarianMTModel:
    """Marian with the weights of a run, and room for its padding, which is never written."""
    model = marian(run.tokenizer.size, run.tokenizer.end).eval()
    weights = marian_weights(run.model)
    for name, tensor in weights.items():
        if "layers" not in name:
            more = (0, 1) if len(tensor) == 1 else (0, 0, 0, 1)
            weights[name] = torch.nn.functional.pad(tensor, more)
    weights["final_logits_bias"][0, -1] = float("-inf")
    model.load_state_dict(weights, strict=False)
    return model


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--short", action="store_true")
    parser.add_argument("--only", choices=("training", "beam"), help="one half of it")
    parser.add_argument("--out", type=Path, default=Path("runs/speed"))
    typed = parser.parse_args()
    run = trained(typed.out)
    peer = {
        "peer": "transformers 4.57.6 Marian",
        "size": f"{LAYERS}+{LAYERS} layers, width {WIDTH}, {run.tokenizer.size} tokens, {BATCH} tokens a batch",
    }
    rounds, steps, count = (2, 4, 3) if typed.short else (9, 8, 8)
    if typed.only != "beam":
        compare_training(typed.out, peer, rounds, steps)
    if typed.only != "training":
        compare_beams(typed.out, peer, rounds, count)


def compare_training(folder: Path, peer: dict[str, Any], rounds: int, steps: int) -> None:
    """Target tokens a second of both, in turns, and what share of Marian's time is matrix products."""
    done = take_turns({who: partial(training, who, folder, steps) for who in ("ours", "theirs")}, rounds)
    figures = ratio(done["ours"], done["theirs"], "target_tokens")
    seen = take_turns({"theirs": partial(products, folder, steps)}, 3)["theirs"]
    share = statistics.median(one.result for one in seen)
    figures |= {"share_of_products_in_theirs": round(share, 3), "ratio_possible": round(1 / share, 3)}
    record("translation_speed", {**peer, "what": "training", **figures})


def compare_beams(folder: Path, peer: dict[str, Any], rounds: int, count: int) -> None:
    """Sentences a second of both, in turns, with the same weights."""
    stops = {"ours": None, 'early_stopping="never"': "never", "early_stopping=False, the default": False}
    found = take_turns({name: partial(searching, stop, folder, count) for name, stop in stops.items()}, rounds)
    for name in list(stops)[1:]:
        ours, theirs = found["ours"], found[name]
        same = sum(a == b for a, b in zip(ours[0].result, theirs[0].result, strict=True)) / len(ours[0].result)
        figures = ratio(ours, theirs, "sentences") | {"same_output": round(same, 4)}
        record("translation_speed", {**peer, "what": f"beam 5, {name}", **figures})


if __name__ == "__main__":
    main()
