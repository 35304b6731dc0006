"""Training and beam search of ``transformer`` against transformers' Marian and JoeyNMT of the same size, in turns.

ENSUE_DATA=… JOEYNMT=… python -m benchmarks.speed.translation --out runs/speed [--short] [--only training|beam]

All train on the same batches of Multi30k (similar lengths together), 3 + 3 layers, width 256, 8 heads, dropout 0.1,
fused AdamW, clipping, smoothed loss; Marian computes its loss as its users do, from the logits, and JoeyNMT as its
trainer does. JoeyNMT is used where it can be imported, or where $JOEYNMT names the folder of its repository; else it is
left out. Ours and Marian then translate the same sentences of test2016 with the same weights and a beam of 5, in the
same batches of 32; the weights are those of a run in ``--out``, trained first where it is not there. Marian runs twice:
with ``early_stopping="never"``, which finds what ours finds, and with its default, a heuristic that stops sooner. For
training the share of Marian's time that is matrix products is written down too; its inverse is what the ratio would be
if all the rest took no time.
"""

from __future__ import annotations

import argparse
import gzip
import importlib.util
import os
import sys
import time
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
from transformers import MarianConfig, MarianMTModel

import ensue
from benchmarks import descent
from benchmarks.record import data_folder, record
from benchmarks.turns import Contest, Mark, Round, Work, hold, ratio, take_turns
from ensue.core.events import silent
from ensue.core.memory import keep_freed_memory
from ensue.core.run_folder import RunFolder
from ensue.exchange.huggingface import marian_weights
from ensue.measure.op_counter import OpCounter
from ensue.runs.build_model import build_model
from ensue.runs.settings_resolution import resolve
from ensue.search.beam import Search, beam_search
from ensue.tasks import translation
from ensue.train.objectives import TranslationLoss

LAYERS, WIDTH, HEADS, BATCH = 3, 256, 8, 2000
MARIAN, JOEYNMT = "transformers 4.57.6 Marian", "JoeyNMT"
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


def joeynmt(vocabulary: int) -> Any:
    """JoeyNMT of the same shape; four marks of its own come before our tokens."""
    from joeynmt.model import build_model as build
    from joeynmt.vocabulary import Vocabulary

    marks = {name: f"<{name}>" for name in ("unk", "pad", "bos", "eos")}
    special = SimpleNamespace(
        **{f"{name}_token": mark for name, mark in marks.items()},
        **{f"{name}_id": number for number, name in enumerate(marks)},
        sep_token=None,
        lang_tags=[],
    )
    words = Vocabulary([f"token{number}" for number in range(vocabulary)], special)
    side = {
        "type": "transformer",
        "num_layers": LAYERS,
        "num_heads": HEADS,
        "embeddings": {"embedding_dim": WIDTH, "scale": True, "dropout": 0.1},
        "hidden_size": WIDTH,
        "ff_size": 4 * WIDTH,
        "dropout": 0.1,
        "layer_norm": "post",
    }
    config = {"encoder": dict(side), "decoder": dict(side), "tied_embeddings": True, "tied_softmax": True}
    model = build(config, words, words)
    model.loss_function = ("crossentropy", 0.1)
    return model


def there(name: str) -> bool:
    """Whether a module can be imported, with $JOEYNMT on the path where it is set."""
    if "JOEYNMT" in os.environ and os.environ["JOEYNMT"] not in sys.path:
        sys.path.insert(0, os.environ["JOEYNMT"])
    return importlib.util.find_spec(name) is not None


def ours_loss(model: Any, batch: Any) -> torch.Tensor:
    loss, _ = TranslationLoss(0.1)(model, batch, None)
    return loss


def marian_loss(model: Any, batch: Any) -> torch.Tensor:
    places, wanted = torch.arange(batch.source.shape[1]), torch.arange(batch.targets.shape[1])
    logits = model(
        input_ids=batch.source,
        attention_mask=(places < batch.source_lengths[:, None]).long(),
        decoder_input_ids=batch.tokens,
        use_cache=False,
    ).logits
    targets = batch.targets.masked_fill(wanted >= batch.lengths[:, None], -100)
    return torch.nn.functional.cross_entropy(logits.flatten(0, 1), targets.flatten(), label_smoothing=0.1)


def joeynmt_loss(model: Any, batch: Any) -> torch.Tensor:
    real = torch.arange(batch.source.shape[1]) < batch.source_lengths[:, None]
    wanted = torch.arange(batch.targets.shape[1]) < batch.lengths[:, None]
    loss, *_ = model(
        return_type="loss",
        src=(batch.source + 4).masked_fill(~real, 1),
        src_length=batch.source_lengths,
        src_mask=real[:, None],
        trg_input=(batch.tokens + 4).masked_fill(~wanted, 1),
        trg=(batch.targets + 4).masked_fill(~wanted, 1),
        trg_mask=wanted[:, None],
    )
    total: torch.Tensor = loss / batch.size
    return total


def training(who: str, folder: Path, steps: int) -> Work:
    """So many steps a round, on the batches of that round; ours with what ``ensue fit`` does to its process."""
    settings = resolve("transformer", layers=[{**SHAPE, "data.files": tuple(map(str, files("train")))}])
    corpus = translation.TASK.read_corpus(settings, RunFolder(folder), silent)
    torch.manual_seed(0)
    model: Any = build_model(settings, corpus)
    buckets = translation.TASK.batches(settings, model, corpus)
    loss_of, update = ours_loss, descent.ours
    if who == "ours":
        keep_freed_memory()
    elif who == JOEYNMT:
        assert there("joeynmt")
        model, loss_of, update = joeynmt(corpus.tokenizer.size), joeynmt_loss, descent.theirs
    else:
        model = marian(corpus.tokenizer.size, corpus.tokenizer.end)
        loss_of, update = marian_loss, descent.theirs
    model.train()
    optimiser = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)

    def work(turn: int) -> Round:
        tokens, losses, begun = 0, [], time.perf_counter()
        for number in range(turn * steps, (turn + 1) * steps):
            batch = buckets.batch(number)
            optimiser.zero_grad(set_to_none=True)
            losses.append(update(model, optimiser, loss_of(model, batch)))
            tokens += batch.size
        return Round(tokens, time.perf_counter() - begun, losses)

    return work


def vocabulary(folder: Path) -> int:
    """How many tokens there are."""
    settings = resolve("transformer", layers=[{**SHAPE, "data.files": tuple(map(str, files("train")))}])
    return int(translation.TASK.read_corpus(settings, RunFolder(folder), silent).tokenizer.size)


def flops(folder: Path) -> float:
    """What a target token cannot be trained without: the products of a step of ours, which pads nothing, but for those
    within attention, one in a hundred."""
    settings = resolve("transformer", layers=[{**SHAPE, "data.files": tuple(map(str, files("train")))}])
    corpus = translation.TASK.read_corpus(settings, RunFolder(folder), silent)
    model: Any = build_model(settings, corpus).train()
    batch = translation.TASK.batches(settings, model, corpus).batch(0)
    with OpCounter() as counter:
        ours_loss(model, batch).backward()  # type: ignore[no-untyped-call]
    return counter.flops / float(batch.size)


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
    size = trained(typed.out).tokenizer.size if typed.only != "training" else vocabulary(typed.out)
    peer = {
        "peer": MARIAN,
        "size": f"{LAYERS}+{LAYERS} layers, width {WIDTH}, {size} tokens, {BATCH} tokens a batch",
    }
    rounds, steps, count = (2, 4, 3) if typed.short else (5, 8, 8)
    if typed.only != "beam":
        compare_training(typed.out, peer, rounds, steps, typed.short)
    if typed.only != "training":
        compare_beams(typed.out, peer, rounds, count)


def compare_training(folder: Path, peer: dict[str, Any], rounds: int, steps: int, short: bool) -> None:
    """Target tokens a second of all, in turns, and what share of Marian's time is matrix products."""
    marks = [Mark("ours", MARIAN, 2.0)]
    if there("joeynmt"):
        marks.append(Mark("ours", JOEYNMT, 1.5))
    else:
        print("JoeyNMT is left out: it cannot be imported, and $JOEYNMT does not say where it is")
    programs = {who: partial(training, who, folder, steps) for who in ("ours", *(mark.peer for mark in marks))}
    hold(
        Contest(
            result="translation_speed",
            work="Transformer training",
            size=peer["size"],
            unit="target_tokens",
            programs=programs,
            marks=marks,
            flops=flops(folder),
            facts={} if short else {"of": MARIAN, **descent.possible(programs[MARIAN])},
        ),
        rounds,
    )


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
