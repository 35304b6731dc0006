"""Trainings of every system for 30 steps, and what the trained models answer: what a refactoring must not change.

Only commands and flags that users rely on are used, so that the same cases run on any version of the code.
"""

import hashlib
import json
import math
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "end_to_end"))

from labelled_files import write_all
from typed import WORDS, ensue, sentences

STEPS = ("--set", "train.steps=30", "--set", "train.log_every=5", "--set", "train.eval_every=15")
SIZE = ("--set", "hidden=32", "--set", "train.batch=4")
SMALL = (*STEPS, *SIZE)
DEEP = (*SMALL, "--set", "layers=2")
HEADS = (*DEEP, "--set", "heads=2")
LINES = (*STEPS, "--set", "hidden=32", "--set", "train.batch_tokens=120")
ATTEND = (*LINES, "--set", "layers=2", "--set", "heads=2")
WORD = ("--tokenizer", "word")


def write_files(folder):
    """The data of all cases, by name."""
    files = write_all(folder)
    texts = {
        "text.txt": sentences(150),
        "pairs.tsv": "".join(f"{a} {b} {a} {c}\t{b} {a} {c}\n" for a in WORDS for b in WORDS[:6] for c in WORDS[:2]),
        "series.csv": "y\n" + "".join(f"{math.sin(n / 3) + n % 5 / 10:.4f}\n" for n in range(300)),
    }
    for name, text in texts.items():
        (folder / name).write_text(text, encoding="utf-8")
        files[name.partition(".")[0]] = folder / name
    return files


def fits(files):
    """The words of ``ensue fit`` for each case, in an order in which later ones may begin with earlier ones."""
    text, pairs, series, documents = files["text"], files["pairs"], files["series"], files["documents"]
    narrow = tuple(word if word != "hidden=32" else "hidden=16" for word in SMALL)
    windows = ("--set", "window=24", "--set", "horizon=6")
    forecast = (*STEPS, *windows, "--set", "train.batch=8")
    gpt = ("gpt", text, *WORD, *HEADS, "--set", "context=16")
    cases = {
        "ngram": ("ngram", text, *WORD, "--set", "order=3", "--set", "train.recount=false"),
        "window": ("window", text, *WORD, *SMALL),
        **{name: (name, text, *WORD, *DEEP) for name in ("rnn", "gru", "gru-cho", "lstm")},
        "lstm-byte": ("lstm", text, "--tokenizer", "byte", *SMALL, "--set", "train.cut=streams"),
        "ulmfit": ("ulmfit", text, *WORD, *narrow),
        "bilm": ("bilm", text, *WORD, *SMALL),
        "elmo": ("elmo", text, *LINES, "--set", "projection=16"),
        "context2vec": ("context2vec", text, *LINES),
        "gpt": gpt,
        "gpt-learned-post": (*gpt, "--set", "positions=learned", "--set", "norm=post", "--set", "dropout=0.1"),
        "gpt-sinusoidal": (*gpt, "--set", "positions=sinusoidal", "--set", "train.recompute=blocks"),
        "gpt-experts": (*gpt, "--set", "experts=3", "--set", "experts_active=2", "--set", "experts_gate=noisy"),
        "gpt-wide": ("gpt", text, *WORD, *STEPS, "--set", "hidden=64", "--set", "layers=2", "--set", "train.batch=8"),
        "llama": ("llama", text, *WORD, *HEADS, "--set", "context=16", "--set", "kv_heads=1"),
        "seq2seq": ("seq2seq", pairs, *WORD, *LINES),
        "convs2s": ("convs2s", pairs, *WORD, *LINES, "--set", "layers=2"),
        "bytenet": ("bytenet", pairs, "--tokenizer", "byte", *LINES),
        "transformer": ("transformer", pairs, *WORD, *ATTEND),
        "transformer-post": ("transformer", pairs, *WORD, *ATTEND, "--set", "norm=post", "--set", "tied=none"),
        "bert": ("bert", documents, *HEADS),
        "roberta": ("roberta", documents, *HEADS),
        "word2vec": ("word2vec", text, "--set", "train.epochs=1", "--set", "tokenizer.min_count=1"),
        **{f"forecast-{one}": ("forecast", series, "--model", one, *windows) for one in ("last", "seasonal")},
        **{f"forecast-{one}": ("forecast", series, "--model", one, *forecast) for one in ("linear",)},
        **{
            f"forecast-{one}": ("forecast", series, "--model", one, *forecast, "--set", "hidden=16")
            for one in ("rnn", "gru", "gru-cho", "lstm", "gpt")
        },
        "forecast-step": ("forecast", series, "--model", "gpt", *forecast, "--set", "mode=step"),
        "forecast-quantiles": ("forecast", series, "--model", "gru", *forecast, "--set", "quantiles=0.1,0.5,0.9"),
    }
    for kind in ("classify", "pair", "regress", "tag", "choose", "answer"):
        cases[f"{kind}-bert"] = (kind, files[kind], "--from", "bert", *STEPS)
    cases |= {
        "classify-lstm": ("classify", files["classify"], "--model", "lstm", *LINES),
        "classify-gpt": ("classify", files["classify"], "--from", "gpt", *STEPS),
        "tag-lstm": ("tag", files["tag"], "--model", "lstm", *LINES),
        "tag-elmo": ("tag", files["tag"], "--from", "elmo", *STEPS),
        "classify-cove": ("classify", files["classify"], "--from", "seq2seq", *STEPS),
        "classify-ulmfit": ("classify", files["classify"], "--from", "ulmfit", *STEPS),
        "gpt-on": ("gpt", text, "--from", "gpt", *STEPS),
    }
    return cases


def asked(name, files):  # noqa: PLR0911 - one answer for each kind of system
    """The commands that are asked of a trained case, without the run's folder."""
    system, _, variant = name.partition("-")
    text, pairs, series = files["text"], files["pairs"], files["series"]
    write = ("--prompt", "the students", "--tokens", "24", "--n", "3", "--seed", "7")
    language = {"score": (text,), "generate": write, "next": ("the students opened",)}
    if system in ("ngram", "window", "rnn", "gru", "lstm", "ulmfit", "gpt", "llama"):
        return language
    if system in ("bilm", "context2vec", "elmo"):
        return {"score": (text,)}
    if system in ("seq2seq", "convs2s", "bytenet", "transformer"):
        return {"score": (pairs,), "translate": (pairs, "--beam", "3", "--nbest", "2")}
    if system in ("bert", "roberta"):
        return {"score": (files["documents"],)}
    if system == "forecast":
        return {"score": (series,), "predict": (series, "--horizon", "9")}
    if system == "word2vec":
        return {}
    del variant
    return {"score": (files[system],), "predict": (files[system],)}


def weights_digest(path):
    """SHA-256 of all weights, whatever their names are: of the sorted digests of their bytes."""
    import safetensors.torch

    held = safetensors.torch.load_file(path)
    one = sorted(hashlib.sha256(tensor.contiguous().numpy().tobytes()).hexdigest() for tensor in held.values())
    return hashlib.sha256("".join(one).encode()).hexdigest()[:16]


def figures(folder, name, words, files):
    """Train a case in ``folder / name`` and answer its losses, its weights' digest and all it is asked."""
    run = folder / name
    words = tuple(str(folder / word) if before == "--from" else word for before, word in zip(("", *words), words))
    answer = ensue("fit", *words, "--out", run, "--json")
    if answer.code:
        return {"error": answer.err.strip()}
    found = {"weights": weights_digest(run / "model.safetensors")} if (run / "model.safetensors").exists() else {}
    if (run / "metrics.jsonl").exists():
        records = [json.loads(line) for line in (run / "metrics.jsonl").read_text(encoding="utf-8").splitlines()]
        found["losses"] = [[one["step"], one["loss"]] for one in records if "loss" in one]
    for command, more in asked(name, files).items():
        said = ensue(command, run, *more, "--json")
        found[command] = json.loads(said.out) if not said.code else {"error": said.err.strip()}
    return json.loads(json.dumps(found).replace(str(folder), ""))
