"""Language models and T5 of other tools: GGUF files and Hugging Face folders, in and out."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ensue.core.errors import InputError, unknown_name
from ensue.core.events import Report, report_all, silent
from ensue.core.notes import note_once
from ensue.core.run_folder import RunFolder
from ensue.data.chat_template import ChatTemplate
from ensue.data.tokenizers.subword import SubwordTokenizer
from ensue.exchange.gguf.blocks import FOUR_BITS, BlockFormat
from ensue.exchange.gguf.decoder import decoder_tensors
from ensue.exchange.gguf.file import GGUFFile, read_gguf
from ensue.exchange.gguf.settings import ARCHITECTURE, architecture_of, decoder_config
from ensue.exchange.gguf.tokenizer import ANSWER_ENDS, gguf_tokenizer
from ensue.exchange.gguf.writing import write_decoder
from ensue.exchange.huggingface.decoders import read_decoder, write_decoder_folder
from ensue.exchange.huggingface.t5 import read_t5
from ensue.exchange.huggingface.transfo_xl import MODEL_TYPE, read_transfo_xl
from ensue.exchange.stored_weights import FLOATS, STORAGES
from ensue.exchange.tensor_files import write_stream
from ensue.models.llama import LlamaLanguageModel
from ensue.nn.adapters import AdaptedLinear
from ensue.nn.planning import without_storage
from ensue.runs.chat import CHAT, chat_template
from ensue.runs.grouped_weights import assign_tensors, use_groups
from ensue.runs.imported_run import ImportedWeights, weights_of, write_imported_run
from ensue.runs.run import Run
from ensue.runs.weight_bits import with_bits


def from_decoder_folder(
    path: Path, config: Mapping[str, Any], folder: RunFolder, weights: str, force: bool, report: Report = silent
) -> Path:
    """Make a run of a language model in a Hugging Face folder; ``weights`` says how they are stored."""
    storage = weights or "as-is"
    if storage not in STORAGES:
        raise unknown_name("--weights", storage, STORAGES)
    source = read_decoder(path, config)
    report_all([f"{path}: {note}" for note in source.notes], report)
    plans = source.plans(storage)

    def write(file: Path) -> None:
        write_stream([plan for own in plans.values() for plan in own], source.pieces(plans, report), file)

    text = source.text
    facts: dict[str, Any] = {
        "data": {"tokenizer": text.tokenizer.kind, "vocabulary": text.tokenizer.size},
        "direction": "forward",
    }
    if text.template:
        facts[CHAT] = {"begin": text.begin, "end": text.end, "stop": list(text.stop)}
    stored = "as they were" if storage == "as-is" else f"stored as {storage}"
    origin = (
        f"Read from {path.resolve().name} ({config['model_type']}), a Hugging Face folder; its weights are {stored}."
    )
    imported = ImportedWeights(source.config, source.parameters, write)
    return write_imported_run(folder, force, "llama", imported, text.tokenizer, origin, template=text.template, **facts)


def from_transfo_xl_folder(
    path: Path, config: Mapping[str, Any], folder: RunFolder, force: bool, report: Report = silent
) -> Path:
    """Make a run of a Transformer-XL in a Hugging Face folder."""
    source = read_transfo_xl(path, config)
    report_all([f"{path}: {note}" for note in source.notes], report)
    data = {"tokenizer": source.tokenizer.kind, "vocabulary": source.tokenizer.size}
    origin = f"Read from {path.resolve().name} ({MODEL_TYPE}), a Hugging Face folder."
    imported = weights_of(source.model)
    system = "transformer-xl"
    return write_imported_run(folder, force, system, imported, source.tokenizer, origin, data=data, direction="forward")


def from_t5_folder(path: Path, config: Mapping[str, Any], folder: RunFolder, force: bool) -> Path:
    """Make a run of a T5 in a Hugging Face folder."""
    source = read_t5(path, config)
    data = {"tokenizer": source.tokenizer.kind, "vocabulary": source.tokenizer.size}
    origin = f"Read from {path.resolve().name} ({config['model_type']}), a Hugging Face folder."
    imported = weights_of(source.model)
    return write_imported_run(folder, force, "t5", imported, source.tokenizer, origin, data=data, task="translation")


def to_decoder_folder(run: Run, target: Path, weights: str) -> None:
    """Write a run of a Llama as a Hugging Face folder; adapters become part of the weights."""
    kind = "float32" if weights in ("", "as-is") else weights
    if kind not in FLOATS:
        raise InputError(f"a Hugging Face folder holds no {kind} weights here", hint="use --weights bf16 or float32")
    if not isinstance(run.tokenizer, SubwordTokenizer):
        what = f"a tokenizer of kind {run.tokenizer.kind} is not supported by Hugging Face's library"
        raise InputError(what, hint="bpe, wordpiece and unigram are")
    special, template = _special(run)
    stop = tuple(run.config[CHAT]["stop"]) if CHAT in run.config else (special["end"],)
    merged = any(isinstance(layer, AdaptedLinear) for layer in run.model.modules())
    write_decoder_folder(
        with_bits(run.model, 32) if merged else run.model,
        target,
        run.tokenizer,
        begin=special["begin"],
        end=special["end"],
        template=template,
        stop=stop,
        dtype=FLOATS[kind],
    )


def _special(run: Run) -> tuple[dict[str, str], str]:
    """The names of the tokens that begin and end a text or an answer, and the chat template if there is one."""
    tokenizer = run.tokenizer
    end = tokenizer.name(tokenizer.end)
    special, template = {"begin": tokenizer.name(getattr(tokenizer, "begin", tokenizer.end)), "end": end}, ""
    if CHAT in run.config:
        special |= {name: run.config[CHAT][name] or special[name] for name in special}
        template = chat_template(run).source
    return special, template


def to_gguf(run: Run, target: Path, name: str) -> None:
    """Write a run of a Llama as a GGUF file."""
    special, template = _special(run)
    if "local" in run.model.config.attention and architecture_of(run.model.config) == "llama":
        note_once(f"{target}: llama.cpp does not read the sliding window of a llama, and sees all of a text")
    write_decoder(run.model, target, run.tokenizer.state(), special, name, template)


def from_gguf(path: Path, folder: RunFolder, force: bool) -> Path:
    """Make a run of a language model in a GGUF file; its weights stay as they are."""
    file = read_gguf(path)
    config = decoder_config(file)
    tokenizer = gguf_tokenizer(file)
    if tokenizer.size > config.vocabulary:
        what = f"has {tokenizer.size:,} tokens, and embeddings of {config.vocabulary:,}"
        raise InputError(what, where=str(path), hint="the file may be damaged")
    tensors = decoder_tensors(file, config)
    with without_storage():
        model = LlamaLanguageModel(config)
    use_groups(model, tensors, str(path))
    assign_tensors(model, tensors, str(path))
    kinds = Counter(entry.format for entry in file.tensors.values())
    counts = ", ".join(f"{n} tensor{'s' * (n != 1)} {kind.name} ({_stored_as(kind)})" for kind, n in kinds.items())
    origin = f"Read from {path.name}, a GGUF file ({file.text(ARCHITECTURE)}): {counts}."
    data = {"tokenizer": tokenizer.kind, "vocabulary": tokenizer.size}
    facts: dict[str, Any] = {"data": data, "direction": "forward"}
    template = file.values.get("tokenizer.chat_template")
    if isinstance(template, str):
        begin, end = (_special_name(file, tokenizer, f"tokenizer.ggml.{which}_token_id") for which in ("bos", "eos"))
        ChatTemplate(template, tokenizer, begin, end)  # refused before anything is written
        turn = _special_name(file, tokenizer, "tokenizer.ggml.eot_token_id")
        stop = [end, turn, tokenizer.name(tokenizer.end), *(name for name in ANSWER_ENDS if name in tokenizer.named)]
        facts[CHAT] = {"begin": begin, "end": end, "stop": list(dict.fromkeys(filter(None, stop)))}
    imported = weights_of(model.eval())
    return write_imported_run(
        folder, force, "llama", imported, tokenizer, origin, template=str(template or ""), **facts
    )


def _stored_as(kind: BlockFormat) -> str:
    """How the weights of a format are stored in a run; queries, keys and values as the widest of the three."""
    return "float32" if kind.split is None else "4 bits" if kind.name in FOUR_BITS else "8 bits"


def _special_name(file: GGUFFile, tokenizer: SubwordTokenizer, key: str) -> str:
    """The name of a special token that a file gives by its number; empty if it gives none."""
    number = file.token(key)
    return next((name for name, token in tokenizer.named.items() if token == number), "")
