"""Folders of decoder-only language models, in and out, a few rows of weights at a time."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ensue.core.errors import InputError
from ensue.core.events import Report, silent
from ensue.core.files import atomic_file, write_json
from ensue.data.tokenizers.subword import SubwordTokenizer
from ensue.exchange.huggingface.decoder_config import export_config, import_config, query_factor
from ensue.exchange.huggingface.decoder_families import FAMILIES
from ensue.exchange.huggingface.decoder_tokenizer import (
    DecoderTokenizer,
    read_decoder_tokenizer,
    write_decoder_tokenizer,
)
from ensue.exchange.huggingface.decoder_weights import (
    HEAD,
    Origin,
    check_tensors,
    origins,
    row_pieces,
    their_pieces,
    their_plans,
)
from ensue.exchange.huggingface.reading import CONFIG_FILE, check_has_tensors
from ensue.exchange.huggingface.stored import stored_tensors
from ensue.exchange.stored_weights import plan_tensors, stored_pieces
from ensue.exchange.tensor_files import INDEX_FILE, WEIGHTS_FILE, StoredTensors, TensorPlan, write_stream
from ensue.models.llama import LlamaConfig, LlamaLanguageModel
from ensue.nn.planning import without_storage

SHARD = 5 * 10**9
"""The largest file of weights that is written, in bytes, unless one tensor is larger."""


@dataclass(frozen=True, slots=True)
class DecoderFolder:
    """A language model in a folder; its weights are read when they are written."""

    path: Path
    config: LlamaConfig
    text: DecoderTokenizer
    stored: StoredTensors
    origins: dict[str, Origin]
    shapes: dict[str, tuple[int, ...]]
    notes: tuple[str, ...]

    def plans(self, storage: str) -> dict[str, list[TensorPlan]]:
        """Return the tensors of a run with these weights; see ``ensue.exchange.stored_weights``."""
        types = {name: self.stored.tensors[origin.parts[0]].dtype for name, origin in self.origins.items()}
        return plan_tensors(self.shapes, types, storage)

    def pieces(self, plans: Mapping[str, list[TensorPlan]], report: Report = silent) -> Iterator[Tensor]:
        """Yield what ``plans`` name, in their order."""
        done, total = 0, sum(map(math.prod, self.shapes.values()))

        def rows(name: str) -> Iterator[Tensor]:
            nonlocal done
            for piece in row_pieces(self.stored, self.origins[name]):
                yield piece
                done += piece.numel()
                report("progress", {"done": done, "total": total})

        return stored_pieces(plans, rows)

    @property
    def parameters(self) -> int:
        """The number of weights, shared ones once."""
        return sum(map(math.prod, self.shapes.values()))


def read_decoder(path: Path, config: Mapping[str, Any]) -> DecoderFolder:
    """Read and check a folder whose config.json is ``config``; only the headers of its weights are read."""
    where = str(path / CONFIG_FILE)
    ours = import_config(config, where)
    stored = stored_tensors(path)
    check_has_tensors("num_hidden_layers", ours.layers, len(stored.tensors), where)
    with without_storage():
        model = LlamaLanguageModel(ours)
    found = origins(model.state_dict(), ours, query_factor(config, where))
    check_tensors(stored, found, model, ours)
    notes = []
    if ours.tied and HEAD in stored.tensors:
        notes.append(f"{HEAD} is not used: the output layer is the embedding (tie_word_embeddings)")
    text = read_decoder_tokenizer(path, config)
    if text.tokenizer.size > ours.vocabulary:
        what = f"has {text.tokenizer.size:,} tokens, the model {ours.vocabulary:,}"
        raise InputError(what, where=str(path / "tokenizer.json"), hint="it belongs to another model")
    shapes = {name: tuple(tensor.shape) for name, tensor in model.state_dict().items() if name in found}
    return DecoderFolder(path, ours, text, stored, found, shapes, tuple(notes))


def is_decoder(config: Any) -> bool:
    """True for the config.json of a family here."""
    return isinstance(config, dict) and isinstance(config.get("model_type"), str) and config["model_type"] in FAMILIES


def write_decoder_folder(
    model: LlamaLanguageModel,
    out: Path,
    tokenizer: SubwordTokenizer,
    *,
    template: str = "",
    begin: str = "",
    end: str = "",
    stop: tuple[str, ...] = (),
    dtype: torch.dtype = torch.float32,
    shard: int = SHARD,
) -> None:
    """Write a model and its tokenizer as a folder, in several files if it is large."""
    config = export_config(model.config)
    files = _shards(their_plans(model, model.config, dtype), shard)
    ids = write_decoder_tokenizer(out, tokenizer, model.config.context, template, begin, end, stop)
    for name, plans in files.items():
        with atomic_file(out / name) as temporary:
            wanted = {plan.name for plan in plans}
            write_stream(plans, their_pieces(model, model.config, dtype, wanted), temporary)
            temporary.chmod(0o644)
    for other in {WEIGHTS_FILE, INDEX_FILE} - set(files):
        (out / other).unlink(missing_ok=True)  # of a model that was here before
    if len(files) > 1:
        total = sum(plan.size for plans in files.values() for plan in plans)
        names = {plan.name: name for name, plans in files.items() for plan in plans}
        write_json(out / INDEX_FILE, {"metadata": {"total_size": total}, "weight_map": names})
    kind = str(dtype).removeprefix("torch.")
    write_json(out / CONFIG_FILE, {**config, **ids, "torch_dtype": kind})


def _shards(plans: list[TensorPlan], most: int) -> dict[str, list[TensorPlan]]:
    """The tensors of each file, in order."""
    files: list[list[TensorPlan]] = [[]]
    for plan in plans:
        if files[-1] and sum(one.size for one in files[-1]) + plan.size > most:
            files.append([])
        files[-1].append(plan)
    if len(files) == 1:
        return {WEIGHTS_FILE: files[0]}
    return {f"model-{n + 1:05}-of-{len(files):05}.safetensors": one for n, one in enumerate(files)}
