"""``ensue convert``: write a run in another tool's format, or make a run of another tool's file."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, cast

import torch

from ensue.core.errors import InputError, errors_in, unknown_name
from ensue.core.events import Report, report_all, silent
from ensue.core.files import read_json
from ensue.core.notes import note_once
from ensue.core.run_folder import RunFolder
from ensue.core.wording import listed
from ensue.data.tokenizers.registry import load_tokenizer
from ensue.data.tokenizers.special_tokens import adds_special_tokens, special_tokens_of
from ensue.data.tokenizers.vocabulary import Vocabulary
from ensue.data.tokenizers.word import word_tokenizer
from ensue.exchange.arpa import read_arpa, write_arpa
from ensue.exchange.gguf.file import is_gguf
from ensue.exchange.huggingface.decoder_families import FAMILIES
from ensue.exchange.huggingface.decoders import is_decoder
from ensue.exchange.huggingface.reading import (
    CONFIG_FILE,
    ImportedModel,
    build_model,
    read_folder,
)
from ensue.exchange.huggingface.stored import is_pickle, pickle_error
from ensue.exchange.huggingface.t5 import is_t5, write_t5
from ensue.exchange.huggingface.transfo_xl import is_transfo_xl, write_transfo_xl
from ensue.exchange.huggingface.writing import write_folder
from ensue.exchange.onnx import write_onnx
from ensue.exchange.word2vec import is_vector_file, read_word2vec, write_word2vec
from ensue.models.backbones import system_config
from ensue.models.gpt import GPTLanguageModel
from ensue.models.labelled import Labelled
from ensue.models.llama import LlamaLanguageModel
from ensue.models.ngram import NGram
from ensue.models.t5 import T5
from ensue.models.transformer_xl import TransformerXL
from ensue.models.word2vec import Word2Vec, Word2VecConfig
from ensue.runs.chat import CHAT, chat_template
from ensue.runs.imported_run import weights_of, write_imported_run
from ensue.runs.init_from import read_vectors
from ensue.runs.load import load
from ensue.runs.weight_bits import BITS, with_bits
from ensue.tasks.labels.kind import LabelKind
from ensue.tasks.labels.whole import Classify
from ensue.tasks.table import task_spec
from ensue.verbs.convert_decoder import (
    from_decoder_folder,
    from_gguf,
    from_t5_folder,
    from_transfo_xl_folder,
    to_decoder_folder,
    to_gguf,
)


def convert(
    src: str | Path,
    *,
    to: str | None = None,
    out: str | Path | None = None,
    task: str = "",
    weights: str = "",
    force: bool = False,
    report: Report = silent,
) -> Path:
    """Write a run in another tool's format (``to``), or make a run of another tool's file or folder.

    ``task="pair"`` says that a Hugging Face classifier labels two texts, which its folder does not say. ``weights`` is
    how the weights of a language model are stored: as-is, float32, bf16, int8 or int4. Of a run's own weights
    (float32, int8 or int4) another run is made, in which adapters are part of them.
    """
    path = Path(src)
    if to is not None:
        return _write(path, to, out, weights, force)
    if path.is_dir() and RunFolder(path).is_run():
        return _with_weights(path, weights, out, force)
    name = path.resolve().name if path.is_dir() else path.name.partition(".")[0]
    return _read(path, RunFolder(Path(out) if out else Path("runs") / name), task, weights, force, report)


def _read(path: Path, folder: RunFolder, task: str, weights: str, force: bool, report: Report) -> Path:
    """Make a run of another tool's file or folder."""
    if not path.exists():
        raise InputError("there is no such file", where=str(path))
    if path.is_file() and is_pickle(path):
        raise pickle_error(path)
    folder.check_free(force)
    if path.is_dir() and not (path / CONFIG_FILE).exists():
        hint = "name a run, or a Hugging Face folder, which has config.json, tokenizer.json and model.safetensors"
        raise InputError(f"holds no model: {CONFIG_FILE} is missing", where=str(path), hint=hint)
    if path.is_dir() and (made := _from_language_folder(path, folder, weights, force, report)) is not None:
        return made
    if weights:
        raise InputError("--weights is for folders of language models", where=str(path), hint=f"{DECODERS} are such")
    if path.is_dir():
        return _from_folder(path, folder, task, force, report)
    if is_vector_file(path):
        return _from_vectors(path, folder, force, report)
    if is_gguf(path):
        return from_gguf(path, folder, force)
    if path.name.removesuffix(".gz").endswith(".arpa"):
        model, words = read_arpa(path)
        with errors_in(path):
            tokenizer = word_tokenizer(words)
        origin = f"Read from {path.name}: {asdict(model.config)}"
        return write_imported_run(folder, force, "ngram", weights_of(model), tokenizer, origin, direction="forward")
    hint = "name a Hugging Face folder, a GGUF file (.gguf), an ARPA file (.arpa), or a vector file (.bin, .txt, .vec)"
    raise InputError("is not in a known format", where=str(path), hint=hint)


def _from_language_folder(path: Path, folder: RunFolder, weights: str, force: bool, report: Report) -> Path | None:
    """Make a run of a folder that holds a language model or a T5; None for one of another kind."""
    config = read_json(path / CONFIG_FILE)
    if is_decoder(config):
        return from_decoder_folder(path, config, folder, weights, force, report)
    if is_transfo_xl(config) and not weights:
        return from_transfo_xl_folder(path, config, folder, force, report)
    return from_t5_folder(path, config, folder, force) if is_t5(config) and not weights else None


def _write(path: Path, to: str, out: str | Path | None, weights: str, force: bool) -> Path:
    """Write a run in the format ``to``."""
    if to not in FORMATS:
        raise unknown_name("format", to, FORMATS)
    suffix, write = FORMATS[to]
    target = Path(out) if out else path.with_name(path.name + suffix)
    if suffix.startswith(".") and target.is_dir():
        raise InputError("is a folder", where=str(target), hint=f"name a file, e.g. model{suffix}")
    if target.is_dir() and RunFolder(target).is_run():
        raise InputError("is a run, which this would overwrite", where=str(target), hint="choose another --out")
    if target.exists() and (target.is_file() or any(target.iterdir())) and not force:
        raise InputError("is there already", where=str(target), hint="--force replaces it")
    if weights and to != "hf":
        raise InputError("--weights is for --to hf", hint="leave it out")
    write(path, target, weights)
    return target


def _to_folder(path: Path, target: Path, weights: str) -> None:
    """Write a run as a Hugging Face folder."""
    run = load(path)
    if isinstance(run.model, LlamaLanguageModel):
        to_decoder_folder(run, target, weights)
        return
    if weights:
        raise InputError("--weights is for language models", where=str(path), hint="leave it out")
    if isinstance(run.model, TransformerXL):
        write_transfo_xl(run.model, target, run.tokenizer)
        return
    if isinstance(run.model, T5):
        write_t5(run.model, target, run.tokenizer)
        return
    for head in run.config.get("untrained", ()):
        note_once(f"{path}: its {head} head is untrained, and is written as it is")
    data = run.config.get("data", {})
    write_folder(
        run.model,
        target,
        tokenizer_state=run.tokenizer.state(),
        special=replace(special_tokens_of(run.tokenizer), omitted=data.get("bare", False)),
        labels=data.get("labels") or None,
        task=run.task,
    )


def _to_gguf(path: Path, target: Path, weights: str) -> None:
    """Write a run of a Llama as a GGUF file."""
    run = load(path)
    if not isinstance(run.model, LlamaLanguageModel):
        raise InputError(f"a {run.system} has no GGUF form", where=str(path), hint="fit llama has one")
    to_gguf(run, target, path.resolve().name)


def _to_arpa(path: Path, target: Path, weights: str) -> None:
    """Write a run of an n-gram model as an ARPA file."""
    run = load(path)
    if not isinstance(run.model, NGram):
        raise InputError(f"a {run.system} is not an n-gram model, so it has no ARPA form", where=str(path))
    if run.direction == "backward":
        raise InputError("reads backward, which an ARPA file cannot express", where=str(path))
    write_arpa(run.model, [run.tokenizer.name(token) for token in range(run.tokenizer.size)], target)


def _with_weights(path: Path, weights: str, out: str | Path | None, force: bool) -> Path:
    """Make a run of a language model's run, with its weights stored in another way."""
    if not weights:
        hint = f"add --to {', --to '.join(FORMATS)}, or --weights int8"
        raise InputError("convert to what?", where=str(path), hint=hint)
    folder = RunFolder(Path(out) if out else path.with_name(f"{path.resolve().name}-{weights}"))
    if weights not in BITS:
        raise InputError(f"--weights {weights} is not for a run", where=str(path), hint=f"it can be {', '.join(BITS)}")
    run = load(path)
    if not isinstance(run.model, GPTLanguageModel):
        raise InputError(f"--weights is for gpt and llama, and this is a {run.system}", where=str(path))
    if run.model.config.adaptive:
        raise InputError("--weights is for models without adaptive=", where=str(path), hint="leave it out")
    if folder.path.resolve() == path.resolve():
        raise InputError("cannot be converted into itself", where=str(path), hint="name another --out")
    folder.check_free(force)
    facts = {name: run.config[name] for name in ("task", "direction", "data", CHAT) if name in run.config}
    template = chat_template(run).source if CHAT in run.config else ""
    found = weights_of(with_bits(run.model, BITS[weights]))
    origin = f"Made of {path.resolve().name}: its weights are stored as {weights}, or in fewer bits where they were."
    return write_imported_run(folder, force, run.system, found, run.tokenizer, origin, template, **facts)


FORMATS: dict[str, tuple[str, Callable[[Path, Path, str], Any]]] = {
    "hf": ("-hf", _to_folder),
    "gguf": (".gguf", _to_gguf),
    "onnx": (".onnx", lambda path, target, _: write_onnx(load(path).model, target)),
    "arpa": (".arpa", _to_arpa),
    "word2vec": (".txt", lambda path, target, _: write_word2vec(read_vectors(path), target)),
}
"""The formats of ``to``: the suffix of the default name, and the function that writes."""
PIECE_FILES = ("spiece.model", "tokenizer.model", "spm.model")
"""Files of SentencePiece, which are not read."""
DECODERS = ", ".join(FAMILIES)
"""The families of large language models."""


def _from_folder(path: Path, folder: RunFolder, asked: str, force: bool, report: Report) -> Path:
    """Make a run of a Hugging Face folder; ``asked`` is the task that the user gave."""
    source = read_folder(path)
    report_all([f"{path}: {note}" for note in source.notes], report)
    if source.tokenizer is None:
        pieces = next((name for name in PIECE_FILES if (path / name).exists()), "")
        hint = f"{pieces} alone is not read; AutoTokenizer and save_pretrained write one" if pieces else "add one"
        raise InputError("there is no tokenizer.json in this folder", where=str(path), hint=hint)
    imported = build_model(source)
    model, config = imported.model, system_config(imported.model)
    tokenizer = load_tokenizer(source.tokenizer if source.tokenizer.name == folder.tokenizer.name else path)
    if tokenizer.size > config.vocabulary:
        what = f"has {tokenizer.size} tokens, the model {config.vocabulary}"
        raise InputError(what, where=str(source.tokenizer), hint="it belongs to another model")
    task = asked or imported.task
    kind = _check_kind(imported.task, task, str(path))
    text_count: int = kind.text_count if isinstance(kind, Classify) else 0
    data = {
        "tokenizer": tokenizer.kind,
        "vocabulary": tokenizer.size,
        "labels": _label_names(imported, kind),
        "length": config.context,
        "stride": 0,
        "choices": getattr(model, "choices", 1),
        "texts": text_count,
        "bare": isinstance(model, Labelled) and not adds_special_tokens(tokenizer),
    }
    head: dict[str, Any] = {"head": asdict(model.config)} if isinstance(model, Labelled) else {}
    origin = f"Read from {path.resolve().name} ({source.architecture}), a Hugging Face folder."
    if imported.untrained:
        head["untrained"] = list(imported.untrained)
        origin += f" Its {listed(imported.untrained)} head is new and untrained."
    found = weights_of(model)
    return write_imported_run(folder, force, imported.system, found, tokenizer, origin, task=task, data=data, **head)


def _check_kind(found: str, task: str, where: str) -> LabelKind | None:
    """The kind of labels of ``task``; refuse it unless its head and loss are those of the task found in a folder."""
    theirs, kind = (task_spec(name).kind for name in (found, task))
    same = theirs and kind and (theirs.head, theirs.loss) == (kind.head, kind.loss)
    if found != task and not same:
        raise InputError(f"is made to {found}, not to {task}", where=where, hint="leave out --task")
    return cast("LabelKind | None", kind)


def _label_names(imported: ImportedModel, kind: LabelKind | None) -> list[str]:
    """The names of the labels in their order; a folder leaves them out if they have no names."""
    if imported.labels or kind is None or kind.loss != "label":
        return list(imported.labels or ())
    model: Any = imported.model
    if kind.head == "choice":
        return [str(number) for number in range(model.choices)] if model.choices > 1 else []
    return [f"LABEL_{number}" for number in range(model.config.outputs)]


def _from_vectors(path: Path, folder: RunFolder, force: bool, report: Report) -> Path:
    """Make a run of a vector file; it has one vector for each word, so the context vectors are zero."""
    notes: list[str] = []
    vectors = read_word2vec(path, notes)
    report_all(notes, report)
    count, width = vectors.matrix.shape
    model = Word2Vec(Word2VecConfig(vocabulary=count, embedding=width))
    model.embed.weight.data = torch.from_numpy(vectors.matrix)
    lowercase = not any(word != word.lower() for word in vectors.words)
    tokenizer = Vocabulary(vectors.words, "space", lowercase)
    origin = f"Read from {path.name}: {count:,} words, vectors of size {width}."
    data = {"tokenizer": "word", "vocabulary": count}
    found = weights_of(model)
    return write_imported_run(folder, force, "word2vec", found, tokenizer, origin, task=model.task, data=data)
