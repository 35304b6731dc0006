"""Load the model of a run: built from config.json, with the weights of model.safetensors."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file

from ensue.core.errors import InputError
from ensue.core.memory import keep_freed_memory
from ensue.core.run_folder import RunFolder
from ensue.core.settings import build
from ensue.data.tokenizers.protocol import Tokenizer
from ensue.models.backbones import build_body, system_config
from ensue.models.labelled import HeadConfig, Labelled
from ensue.models.ngram import NGram
from ensue.tasks.labels.features import features_from_config, set_spelling
from ensue.tasks.table import model_class


def load_model(folder: RunFolder, config: Mapping[str, Any], tokenizer: Tokenizer | None) -> Any:
    """Return the model of a run, a plain ``torch.nn.Module``; its weights are mapped from the file."""
    keep_freed_memory()
    with folder.config_errors():
        model = build_from_config(config)
    if tokenizer is not None:
        set_spelling(model, tokenizer)
        check_vocabulary(folder, system_config(model).vocabulary, tokenizer)
    try:
        tensors = load_file(folder.weights)
    except (SafetensorError, OSError) as error:
        raise InputError(f"is damaged or missing ({error})", where=str(folder.weights)) from error
    if isinstance(model, NGram):
        model.adopt(tensors)
    else:
        set_weights(model, tensors, folder.weights)
    return model.eval()


def check_vocabulary(folder: RunFolder, size: int, tokenizer: Tokenizer) -> None:
    """Raise InputError if the tokenizer has more tokens than the model."""
    if size < tokenizer.size:
        what = f"has {tokenizer.size} tokens, the model {size}"
        raise InputError(what, where=str(folder.tokenizer), hint="the folder may be damaged")


def build_from_config(config: Mapping[str, Any]) -> Any:
    """Build the model that a config.json describes, with its head and initial weights."""
    cls = model_class(config["system"], config.get("task", ""))
    model = cls(build(cls.Config, config["model"]))
    if "head" not in config:
        return model
    head = build(HeadConfig, {"directions": "one", **config["head"]})  # older runs have one and no such setting
    return Labelled(build_body(model, head, features_from_config(config)), head, config["data"]["choices"])


def set_weights(model: torch.nn.Module, tensors: dict[str, torch.Tensor], path: Path) -> None:
    """Set a model's weights; the file has tied weights once."""
    own = model.state_dict()
    shared = {tensor.data_ptr(): name for name, tensor in own.items() if name in tensors and tensor.numel()}
    whole = {
        name: tensors[name] if name in tensors else tensors[shared[tensor.data_ptr()]]
        for name, tensor in own.items()
        if name in tensors or tensor.data_ptr() in shared
    }
    wrong = [n for n in own if n not in whole or whole[n].shape != own[n].shape] + [n for n in tensors if n not in own]
    if wrong:
        raise InputError(f"does not fit config.json ({wrong[0]})", where=str(path), hint="the folder may be damaged")
    model.load_state_dict(whole)
