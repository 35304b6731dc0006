"""Small good files of every format that is read, which fuzzing then damages."""

from __future__ import annotations

import gzip
import json
import math
import random
import shutil
import tarfile
from collections.abc import Iterable
from itertools import pairwise
from pathlib import Path
from typing import Any

import ensue
from ensue.core import run_files
from ensue.data.tokenizers.registry import fit_tokenizer_to_parts, save_tokenizer
from ensue.data.tokenizers.special_tokens import special_tokens_of
from ensue.data.tokenizers.spelled_words import fit_spelled_words
from ensue.exchange.huggingface import write_folder
from ensue.models.gpt import GPTConfig, GPTLanguageModel

ARCHIVE = Path(__file__).resolve().parents[2] / "tests" / "golden" / "old_runs.tar.gz"
WORDS = ("the", "students", "opened", "their", "books", "and", "proctor", "started", "clock", "while", "rain", "fell")
OPINIONS = {"good": "fine lovely great", "bad": "awful dull poor"}
SETTINGS = """hidden = 16
layers = 2
seed = 3
dropout = 0.1
[train]
lr = 1e-3
steps = 4
batch = 4
[data]
holdout = 0.1
[tokenizer]
kind = "word"
"""
TOKENIZERS = ("byte", "char", "word", "bpe", "wordpiece", "unigram")


def sentences(count: int, seed: int = 0) -> list[str]:
    """Random sentences of a dozen words."""
    chance = random.Random(seed)
    return [" ".join(chance.choices(WORDS, k=8)) for _ in range(count)]


def _lines(lines: Iterable[str]) -> str:
    return "".join(f"{line}\n" for line in lines)


def _records(records: Iterable[dict[str, Any]]) -> str:
    return _lines(map(json.dumps, records))


def old_runs(folder: Path) -> dict[str, Path]:
    """Unpack the runs of an earlier version, one of every kind; names of files in them are in this folder."""
    with tarfile.open(ARCHIVE) as archive:
        archive.extractall(folder, filter="data")
    for path in folder.rglob("*"):
        if path.suffix in (".toml", ".json", ".jsonl"):
            path.write_text(path.read_text(encoding="utf-8").replace("FOLDER", str(folder)), encoding="utf-8")
    (folder / "text.txt").write_text("".join(f"{line}\n" for line in sentences(150)), encoding="utf-8")
    pairs = (f"{a} {b} {a} {c}\t{b} {a} {c}\n" for a in WORDS for b in WORDS[:6] for c in WORDS[:2])
    (folder / "pairs.tsv").write_text("".join(pairs), encoding="utf-8")  # what the stopped runs were trained on
    two = folder / "seq2seq-two"  # a run with a tokenizer for each side
    shutil.copytree(folder / "seq2seq", two)
    shutil.copy(two / run_files.TOKENIZER, two / run_files.SOURCE_TOKENIZER)
    return {path.name: path for path in sorted(folder.iterdir()) if path.is_dir()}


def data_files(folder: Path) -> dict[str, Path]:
    """Write a file of each format of data; return them by name."""
    chance = random.Random(0)
    rows = [(f"the {word} {n}", label) for n in range(6) for label, all_ in OPINIONS.items() for word in all_.split()]
    answers = [{"text": "fine", "answer_start": 4}]
    asked = [{"id": f"q{n}", "question": "how?", "answers": answers, "is_impossible": False} for n in range(3)]
    steps = [(n, math.sin(n / 3), n % 5) for n in range(60)]
    dated = [f"2024-{1 + n // 28:02d}-{1 + n % 28:02d}" for n in range(60)]
    columns = [("text", "label"), *rows]
    labels = {"good": "B-GOOD", "bad": "B-BAD"}
    tagged = [[(word, labels[label] if n == 1 else "O") for n, word in enumerate(t.split())] for t, label in rows]
    universal = [
        [f"{n}\t{w}\t{w}\t{'NOUN' if n % 2 else 'VERB'}\tN\t_\t0\troot\t_\t_" for n, w in enumerate(WORDS, 1)]
    ] * 3
    questions = {"context": "was fine", "question": "how?", "answers": {"text": ["fine"], "answer_start": [4]}}
    texts: dict[str, str] = {
        "text.txt": _lines(sentences(20)),
        "text.jsonl": _records({"text": line} for line in sentences(6)),
        "documents.txt": "\n\n".join("\n".join(f"{s.capitalize()}." for s in sentences(4, n)) for n in range(4)),
        "classify.tsv": _lines("\t".join(row) for row in columns),
        "classify.csv": _lines(f'"{text}",{label}' for text, label in columns),
        "classify.jsonl": _records({"text": text, "label": label} for text, label in rows),
        "headless.tsv": _lines(f"{n}\t{label}\t{text}" for n, (text, label) in enumerate(rows)),
        "pair.tsv": _lines(["sentence1\tsentence2\tlabel", *(f"{t}\t{t}\t{label}" for t, label in rows)]),
        "regress.tsv": _lines(["sentence1\tsentence2\tscore", *(f"{t}\t{t}\t{chance.random():.2f}" for t, _ in rows)]),
        "tag.conll": _lines("".join(f"{word} {tag}\n" for word, tag in sentence) for sentence in tagged),
        "tag.conllu": _lines(_lines(["# text", *sentence]) for sentence in universal),
        "choose.jsonl": _records(
            {"context": t, "endings": ["a", "b", "c"], "label": n % 3} for n, (t, _) in enumerate(rows)
        ),
        "choose.csv": _lines(["sent1,ending0,ending1,label", *(f"{t},a,b,{n % 2}" for n, (t, _) in enumerate(rows))]),
        "answer.json": json.dumps({"data": [{"title": "t", "paragraphs": [{"context": "was fine", "qas": asked}]}]}),
        "answer.jsonl": _records([questions] * 3),
        "pairs.tsv": _lines(f"{a} {b}\t{b} {a}" for a in WORDS[:6] for b in WORDS[:6]),
        "few.tsv": "the students opened\topened students\nbooks and the\tthe books\n",
        "pairs.csv": _lines(["source,target", *(f'"{a} {b}","{b}, {a}"' for a in WORDS[:4] for b in WORDS[:4])]),
        "pairs.jsonl": _records({"translation": {"en": a, "de": a}} for a in WORDS),
        "parallel.en": _lines(sentences(5)),
        "parallel.de": _lines(sentences(5, 1)),
        "series.csv": _lines(["y", *(f"{y:.4f}" for _, y, _ in steps)]),
        "dated.csv": _lines(["date,y,z", *(f"{day},{y:.4f},{z}" for day, (_, y, z) in zip(dated, steps))]),
        "keyed.csv": _lines(["id;date;y", *(f"a;{day};{y:.4f}\nb;{day};{z}" for day, (_, y, z) in zip(dated, steps))]),
        "blimp.jsonl": _records({"sentence_good": a, "sentence_bad": f"{a} a", "UID": "x"} for a in sentences(3)),
        "pairs_minimal.tsv": _lines(f"{a}\t{a} a\tkind" for a in sentences(3)),
        "agree.text": _lines(sentences(3)),
        "agree.gold": _lines(f"{n + 1}\topened\topens\t{n}" for n in range(3)),
        "similar.tsv": _lines(f"{a}\t{b}\t{n}.5" for n, (a, b) in enumerate(pairwise(WORDS))),
        "analogies.txt": _lines([": some", *(" ".join(WORDS[n : n + 4]) for n in range(8))]),
        "contexts.txt": _lines(f"sense\t{line} the" for line in sentences(4)),
        "run.toml": SETTINGS,
    }
    for name, text in texts.items():
        (folder / name).write_text(text, encoding="utf-8")
    for name in ("text.txt", "classify.tsv", "pairs.tsv"):
        (folder / f"{name}.gz").write_bytes(gzip.compress((folder / name).read_bytes()))
    return {path.name: path for path in folder.iterdir() if path.is_file()}


def tokenizer_files(folder: Path) -> dict[str, Path]:
    """Write a tokenizer of each kind, and the files of BERT and GPT-2."""
    parts = [(f"{line}\n", True, True) for line in sentences(40)]
    found = {}
    for kind in TOKENIZERS:
        found[kind] = folder / kind / "tokenizer.json"
        found[kind].parent.mkdir(parents=True)
        save_tokenizer(fit_tokenizer_to_parts(kind, parts, vocabulary=600), found[kind])
    found["spelt"] = folder / "spelt" / "tokenizer.json"
    found["spelt"].parent.mkdir()
    save_tokenizer(fit_spelled_words(parts), found["spelt"])
    return found


def hub_folders(runs: dict[str, Path], folder: Path) -> dict[str, Path]:
    """Write runs as Hugging Face folders: with one file of weights or two, and with other tokenizer files."""
    found = {}
    for name in ("bert", "roberta", "classify-bert", "answer-bert"):
        found[name] = folder / name
        ensue.convert(runs[name], to="hf", out=found[name])
    found["gpt2"] = folder / "gpt2"
    tokenizer = fit_tokenizer_to_parts("bpe", [(f"{line}\n", True, True) for line in sentences(40)], vocabulary=300)
    config = GPTConfig(vocabulary=300, layers=2, heads=2, hidden=16, context=16, positions="learned")
    special, model = special_tokens_of(tokenizer), GPTLanguageModel(config)
    write_folder(model, found["gpt2"], tokenizer_state=tokenizer.state(), special=special, labels=None, task="language")
    split_weights(found["bert"], folder / "split")
    vocabulary_files(found["bert"], folder / "bert-vocab")
    merges_files(found["roberta"], folder / "roberta-merges")
    return found | {name: folder / name for name in ("split", "bert-vocab", "roberta-merges")}


def split_weights(source: Path, target: Path) -> None:
    """Write a folder with its weights in two files and an index."""
    from safetensors.torch import load_file, save_file

    copy_files(source, target, ("config.json", "tokenizer.json"))
    weights = load_file(source / "model.safetensors")
    names: dict[str, str] = {}
    for number in range(2):
        part = {name: tensor for place, (name, tensor) in enumerate(weights.items()) if place % 2 == number}
        save_file(part, target / f"part-{number}.safetensors")
        names |= dict.fromkeys(part, f"part-{number}.safetensors")
    (target / "model.safetensors.index.json").write_text(json.dumps({"weight_map": names}), encoding="utf-8")


def vocabulary_files(source: Path, target: Path) -> None:
    """Write a BERT folder with vocab.txt instead of tokenizer.json."""
    copy_files(source, target, ("config.json", "model.safetensors"))
    vocab = sorted(_tokenizer_model(source)["vocab"].items(), key=lambda item: item[1])
    (target / "vocab.txt").write_text("".join(f"{name}\n" for name, _ in vocab), encoding="utf-8")
    (target / "tokenizer_config.json").write_text(json.dumps({"do_lower_case": True}), encoding="utf-8")


def merges_files(source: Path, target: Path) -> None:
    """Write a RoBERTa folder with vocab.json and merges.txt instead of tokenizer.json."""
    copy_files(source, target, ("config.json", "model.safetensors"))
    model = _tokenizer_model(source)
    (target / "vocab.json").write_text(json.dumps(model["vocab"]), encoding="utf-8")
    lines = (merge if isinstance(merge, str) else " ".join(merge) for merge in model["merges"])
    (target / "merges.txt").write_text("#version: 0.2\n" + "".join(f"{line}\n" for line in lines), encoding="utf-8")


def _tokenizer_model(folder: Path) -> dict[str, Any]:
    model: dict[str, Any] = json.loads((folder / "tokenizer.json").read_text(encoding="utf-8"))["model"]
    return model


def copy_files(source: Path, target: Path, names: tuple[str, ...]) -> None:
    """Copy some files of a folder to a new one."""
    target.mkdir()
    for name in names:
        (target / name).write_bytes((source / name).read_bytes())


def exchange_files(runs: dict[str, Path], folder: Path) -> dict[str, Path]:
    """Write an n-gram model as ARPA and word vectors as text and binary, plain and compressed."""
    found = {}
    for name, run in (("lm.arpa", "ngram"), ("v.txt", "word2vec"), ("v.bin", "word2vec"), ("v.txt.gz", "word2vec")):
        found[name] = folder / name
        ensue.convert(runs[run], to="arpa" if run == "ngram" else "word2vec", out=found[name])
    found["lm.arpa.gz"] = folder / "lm.arpa.gz"
    found["lm.arpa.gz"].write_bytes(gzip.compress(found["lm.arpa"].read_bytes()))
    return found


def races(runs: dict[str, Path], folder: Path) -> dict[str, Path]:
    """Write a race of two systems, and a race on shares of the labels."""
    plain, shares = folder / "race", folder / "shares"
    for name in ("lstm", "gpt"):
        (plain / name).mkdir(parents=True)
        for file in ("config.json", "metrics.jsonl", "run.toml", "tokenizer.json", "model.safetensors"):
            (plain / name / file).write_bytes((runs[name] / file).read_bytes())
    shares.mkdir()
    seed = {"bits_per_byte": 0.7, "seconds": 1.0, "parameters": 10, "bytes": 100, "tokens": 9}
    facts: dict[str, Any] = {"budget": "1s", "match": "time", "seeds": 1, "data": ["text.txt"], "settings": {}}
    facts |= {
        "threads": 1,
        "tokenizer": "word",
        "vocabulary": 14,
        "valid_tokens": 9,
        "valid_bytes": 99,
        "valid_surcharge_bits": 0.1,
    }
    costs = {"tokens": 9, "spread": 0.0, "remark": "", "error": ""}
    systems = [{"system": name, **seed, **costs, "seeds": [seed]} for name in ("lstm", "gpt")]
    (plain / "race.json").write_text(json.dumps({**facts, "systems": systems}), encoding="utf-8")
    points = [
        {"system": "bert", "start": start, "labels": labels, **costs, "accuracy": 0.5, "f1": 0.5, "seconds": 1.0}
        | {"seed": 0, "parameters": 10, "bytes": 100, "seeds": [{"accuracy": 0.5}, {"accuracy": 0.6}]}
        for start in ("from scratch", "pre-trained")
        for labels in (10, 40)
    ]
    about = {**facts, "task": "classify", "measure": "accuracy", "shares": [10, 40], "from": {"run": "bert"}}
    (shares / "race.json").write_text(json.dumps({**about, "systems": points}), encoding="utf-8")
    return {"race": plain, "shares": shares}
