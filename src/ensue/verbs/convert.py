"""``ensue convert``: exchange models with other tools."""

from __future__ import annotations

from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import torch

import ensue
from ensue.core.errors import InputError, unknown_name
from ensue.core.events import Report, silent
from ensue.core.files import write_text
from ensue.core.run_folder import RunFolder
from ensue.data.tokenizers.registry import load_tokenizer, save_tokenizer
from ensue.data.tokenizers.special_tokens import adds_special_tokens, special_tokens_of
from ensue.data.tokenizers.vocabulary import Vocabulary
from ensue.data.tokenizers.word import word_tokenizer
from ensue.exchange.arpa import read_arpa, write_arpa
from ensue.exchange.huggingface.reading import ImportedModel, build_model, is_pickle, pickle_error, read_folder
from ensue.exchange.huggingface.writing import write_folder
from ensue.exchange.onnx import write_onnx
from ensue.exchange.word2vec import is_vector_file, read_word2vec, write_word2vec
from ensue.models.labelled import Labelled
from ensue.models.ngram import NGram
from ensue.models.word2vec import Word2Vec, Word2VecConfig
from ensue.runs.load import load
from ensue.runs.save_weights import write_weights
from ensue.runs.word_tables import read_vectors
from ensue.tasks.backbones import system_config

TARGETS = ("hf", "onnx", "arpa", "word2vec")


def convert(
    src: str | Path,
    *,
    to: str | None = None,
    out: str | Path | None = None,
    task: str = "",
    force: bool = False,
    report: Report = silent,
) -> Path:
    """Write a run in another tool's format (``to``), or make a run of another tool's file or folder.

    ``task="pair"`` says that a classifier of Hugging Face's library labels two texts, which its folder does not say.
    """
    path = Path(src)
    if to is not None and to not in TARGETS:
        raise unknown_name("format", to, TARGETS)
    if to is not None:
        suffix = {"arpa": ".arpa", "onnx": ".onnx", "hf": "-hf", "word2vec": ".txt"}[to]
        target = Path(out) if out else path.with_name(path.name + suffix)
        return {"arpa": _to_arpa, "hf": _to_folder, "onnx": _to_onnx, "word2vec": _to_vectors}[to](path, target, force)
    name = path.resolve().name if path.is_dir() else path.name.partition(".")[0]
    folder = RunFolder(Path(out) if out else Path("runs") / name)
    if path.is_dir():
        if RunFolder(path).is_run():
            raise InputError("convert to what?", where=str(path), hint=f"add --to {', --to '.join(TARGETS)}")
        return _from_folder(path, folder, task, force, report)
    if not path.exists():
        raise InputError("there is no such file", where=str(path))
    if is_pickle(path):
        raise pickle_error(path)
    if is_vector_file(path):
        return _from_vectors(path, folder, force, report)
    if not path.name.removesuffix(".gz").endswith(".arpa"):
        hint = "name a folder of Hugging Face's library, an ARPA file (.arpa), or a vector file (.bin, .txt, .vec)"
        raise InputError("is no format that is known here", where=str(path), hint=hint)
    return _from_arpa(path, folder, force)


def _from_folder(path: Path, folder: RunFolder, said: str, force: bool, report: Report) -> Path:
    """A run of a folder as Hugging Face's library writes it."""
    folder.check_free(force)
    found = read_folder(path)
    for note in found.notes:
        report("note", {"text": f"{path}: {note}"})
    if found.tokenizer is None:
        raise InputError("there is no tokenizer in this folder", where=str(path), hint="add its tokenizer.json")
    made = build_model(found)
    tokenizer = load_tokenizer(found.tokenizer if found.tokenizer.name == folder.tokenizer.name else path)
    config = system_config(made.model)
    if tokenizer.size > config.vocabulary:
        what = f"has {tokenizer.size} tokens, the model {config.vocabulary}"
        raise InputError(what, where=str(found.tokenizer), hint="it belongs to another model")
    task = _converted_task(made.task, said, str(path))
    folder.make(force)
    save_tokenizer(tokenizer, folder.tokenizer)
    write_weights(made.model, folder)
    data = {
        "tokenizer": tokenizer.kind,
        "vocabulary": tokenizer.size,
        "labels": _converted_labels(made, task),
        "length": config.context,
        "stride": 0,
        "choices": getattr(made.model, "choices", 1),
        "texts": {"classify": 1, "pair": 2}.get(task, 0),
        "bare": isinstance(made.model, Labelled) and not adds_special_tokens(tokenizer),
    }
    more: dict[str, Any] = {"task": task, "data": data, "figures": _figures(made.model, folder)}
    if isinstance(made.model, Labelled):
        more["head"] = asdict(made.model.config)
    folder.write_config(made.system, config, ensue.__version__, **more)
    origin = f"Read from {path.resolve().name} ({found.architecture}), as Hugging Face's library wrote it."
    write_text(folder.card, f"# {made.system}\n\n{origin}\n")
    return folder.path


def _converted_task(task: str, said: str, where: str) -> str:
    """What a folder's model is for. Its class does not say whether it labels one text or two: ``said`` does."""
    if said and {said, task} - {"classify", "pair"} and said != task:
        raise InputError(f"is made to {task}, not to {said}", where=where, hint="leave out --task")
    return said or task


def _converted_labels(made: ImportedModel, task: str) -> list[str]:
    """The labels in their order; their library leaves them out where they have no names."""
    if made.labels:
        return list(made.labels)
    if task == "choose":
        return [str(number) for number in range(made.model.choices)] if made.model.choices > 1 else []  # type: ignore[operator, arg-type]
    outputs = made.model.config.outputs if isinstance(made.model, Labelled) else 0
    return [f"LABEL_{number}" for number in range(outputs)] if task in ("classify", "pair", "tag") else []


def _to_folder(path: Path, target: Path, force: bool) -> Path:
    """A run as a folder that Hugging Face's library reads."""
    run = load(path)
    _check_new(target, force)
    write_folder(
        run.model,
        target,
        tokenizer_state=run.tokenizer.state(),
        special=replace(special_tokens_of(run.tokenizer), omitted=run.config.get("data", {}).get("bare", False)),
        labels=run.config.get("data", {}).get("labels") or None,
        task=run.task,
    )
    return target


def _to_onnx(path: Path, target: Path, force: bool) -> Path:
    """A run as an ONNX file."""
    _check_new(target, force)
    write_onnx(load(path).model, target)
    return target


def _check_new(target: Path, force: bool) -> None:
    """Refuse to write over what is there, unless ``force`` says so."""
    if target.exists() and (target.is_file() or any(target.iterdir())) and not force:
        raise InputError("is there already", where=str(target), hint="--force replaces it")


def _figures(model: Any, folder: RunFolder) -> dict[str, Any]:
    """What is known of a model that was not trained here."""
    return {
        "stopped": "converted",
        "steps": 0,
        "unit": "steps",
        "seconds": 0.0,
        "parameters": sum(p.numel() for p in model.parameters()),
        "bytes": folder.weights.stat().st_size,
    }


def _to_vectors(path: Path, target: Path, force: bool) -> Path:
    """The vectors of a run's words as a file of word2vec: binary where its name ends in .bin."""
    _check_new(target, force)
    write_word2vec(read_vectors(path), target)
    return target


def _from_vectors(path: Path, folder: RunFolder, force: bool, report: Report) -> Path:
    """A run of a vector file; it has one vector for each word, so the other is zero."""
    folder.check_free(force)
    notes: list[str] = []
    vectors = read_word2vec(path, notes)
    for note in notes:
        report("note", {"text": note})
    count, width = vectors.matrix.shape
    model = Word2Vec(Word2VecConfig(vocabulary=count, embedding=width))
    model.embed.weight.data = torch.from_numpy(vectors.matrix)
    folder.make(force)
    lowercase = not any(word != word.lower() for word in vectors.words)
    save_tokenizer(Vocabulary(vectors.words, "space", lowercase), folder.tokenizer)
    write_weights(model, folder)
    data = {"tokenizer": "word", "vocabulary": count}
    folder.write_config(
        "word2vec", model.config, ensue.__version__, task="words", data=data, figures=_figures(model, folder)
    )
    write_text(folder.card, f"# word2vec\n\nRead from {path.name}: {count:,} words, vectors of {width} numbers.\n")
    return folder.path


def _to_arpa(path: Path, target: Path, force: bool) -> Path:
    run = load(path)
    if not isinstance(run.model, NGram):
        raise InputError(f"a {run.system} is no n-gram model, so it has no ARPA form", where=str(path))
    if run.direction == "backward":
        raise InputError("reads from the end, which an ARPA file cannot say", where=str(path))
    if target.is_dir():
        raise InputError("is a folder", where=str(target), hint="name a file, e.g. model.arpa")
    if target.exists() and not force:
        raise InputError("is there already", where=str(target), hint="--force replaces it")
    names = [run.tokenizer.name(token) for token in range(run.tokenizer.size)]
    write_arpa(run.model, names, target)
    return target


def _from_arpa(path: Path, folder: RunFolder, force: bool) -> Path:
    folder.check_free(force)
    model, words = read_arpa(path)
    folder.make(force)
    tokenizer = word_tokenizer(words)
    save_tokenizer(tokenizer, folder.tokenizer)
    write_weights(model, folder)
    facts = {"figures": _figures(model, folder), "direction": "forward"}
    folder.write_config("ngram", model.config, ensue.__version__, **facts)
    write_text(folder.card, f"# ngram\n\nRead from {path.name}: {asdict(model.config)}\n")
    return folder.path
