"""Training and beam search of ``transformer`` against transformers' Marian of the same size, alternating in one run.

ENSUE_DATA=… python -m benchmarks.speed.translation [--short]

Both train on the same batches of Multi30k (similar lengths together), 3 + 3 layers, width 256, 8 heads, dropout 0.1,
fused AdamW, clipping, smoothed loss; Marian computes its loss as its users do, from the logits. Both translate the same
sentences with a beam of 5 in the same batches, with weights trained by neither: lengths are forced to be those of the
references, so that the work is the same. Reported is theirs ÷ ours in time, so above 1 means ours is faster.
"""

from __future__ import annotations

import argparse
import statistics
import time
from typing import Any

import torch
from transformers import MarianConfig, MarianMTModel

from benchmarks.record import data_folder, record
from ensue.core.events import silent
from ensue.search.beam import Search, beam_search
from ensue.tasks import translation
from ensue.tasks.settings import resolve
from ensue.tasks.task import build_model
from ensue.train.objectives import Translate
from ensue.train.optimisers import clip

LAYERS, WIDTH, HEADS, BATCH = 3, 256, 8, 2000


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


def beam_speed(ours: Any, theirs: Any, buckets: Any, end: int, rounds: int, batches: int) -> dict[str, Any]:
    """Sentences a second of both with a beam of 5; every hypothesis runs to the longest reference of its batch."""
    ours.eval()
    theirs.eval()
    speeds: dict[str, list[float]] = {"ours": [], "theirs": []}
    for turn in range(rounds + 1):
        chosen = [buckets.batch(turn * batches + number) for number in range(batches)]
        for name, found in speeds.items():
            begun, sentences = time.perf_counter(), 0
            for whole in chosen:
                source, lengths = whole.source[:32], whole.source_lengths[:32]
                longest = int(whole.lengths.max())
                if name == "ours":
                    with torch.no_grad():
                        state = ours.start(source, lengths)
                    how = Search(beam=5, length="mean", shortest=longest - 1)
                    beam_search(ours, state, end, end=end, longest=longest, how=how)
                else:
                    mask = (torch.arange(source.shape[1]) < lengths[:, None]).long()
                    theirs.generate(
                        input_ids=source,
                        attention_mask=mask,
                        num_beams=5,
                        do_sample=False,
                        early_stopping="never",
                        length_penalty=1.0,
                        max_new_tokens=longest,
                        min_new_tokens=longest,
                    )
                sentences += len(source)
            if turn:
                found.append(sentences / (time.perf_counter() - begun))
    ratios = [o / t for o, t in zip(speeds["ours"], speeds["theirs"])]
    return _figures("beam 5", ratios, speeds, "sentences_per_second")


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
    short = parser.parse_args().short
    folder = data_folder() / "translation" / "multi30k"
    files = tuple(str(folder / f"train.{language}.gz") for language in ("en", "de"))
    layer = {"data.files": files, "layers": LAYERS, "hidden": WIDTH, "heads": HEADS, "train.batch_tokens": BATCH}
    settings = resolve("transformer", layers=[{**layer, "norm": "post"}])
    corpus = translation.corpus_of(settings, None, silent)
    torch.manual_seed(0)
    ours, end = build_model(settings, corpus), corpus.tokenizer.end
    theirs = marian(corpus.tokenizer.size, end)
    buckets = translation.batches(settings, ours, corpus)  # type: ignore[arg-type]
    rounds, steps = (2, 4) if short else (5, 12)
    shape = f"{LAYERS}+{LAYERS} layers, width {WIDTH}, {corpus.tokenizer.size} tokens, {BATCH} tokens a batch"
    for figures in (
        train_speed(ours, theirs, buckets, rounds, steps),
        beam_speed(ours, theirs, buckets, end, rounds, 1 if short else 3),
    ):
        record("translation_speed", {"peer": "transformers 4.57.6 Marian", "size": shape, **figures})


if __name__ == "__main__":
    main()
