"""What is in a run's folder, as a model: built as config.json says, with the weights of model.safetensors."""

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
from ensue.models.labelled import HeadConfig, Labelled
from ensue.models.ngram import NGram
from ensue.tasks.backbones import body_for, system_config
from ensue.tasks.features import acquaint, features_in
from ensue.tasks.label_kind import Form
from ensue.tasks.table import model_class


def model_in(folder: RunFolder, config: Mapping[str, Any], tokenizer: Tokenizer | None) -> Any:
    """The model of a run, its weights mapped from the file; a plain ``torch.nn.Module``."""
    keep_freed_memory()
    model = built(config)
    if tokenizer is not None:
        acquaint(model, tokenizer)
        check_vocabulary(folder, system_config(model).vocabulary, tokenizer)
    try:
        tensors = load_file(folder.weights)
    except (SafetensorError, OSError) as error:
        raise InputError(f"is damaged or missing ({error})", where=str(folder.weights)) from error
    if isinstance(model, NGram):
        model.adopt(tensors)
    else:
        fill(model, tensors, folder.weights)
    return model.eval()


def check_vocabulary(folder: RunFolder, size: int, tokenizer: Tokenizer) -> None:
    """Refuse a tokenizer with more tokens than the model."""
    if size < tokenizer.size:
        what = f"has {tokenizer.size} tokens, the model {size}"
        raise InputError(what, where=str(folder.tokenizer), hint="the folder may be damaged")


def built(config: Mapping[str, Any]) -> Any:
    """The model that a config.json describes, with whatever weights; one that labels has its head."""
    cls = model_class(config["system"], config.get("task", ""))
    model = cls(build(cls.Config, config["model"]))
    if "head" not in config:
        return model
    head = build(HeadConfig, {"directions": "one", **config["head"]})  # older runs do not say, and had one
    return Labelled(body_for(model, head, features_in(config)), head, config["data"]["choices"])


def form_in(config: Mapping[str, Any], tokenizer: Tokenizer) -> Form:
    """How a run that labels writes examples as rows."""
    facts = config["data"]
    return Form(
        tokenizer=tokenizer,
        labels=tuple(facts["labels"]),
        length=facts["length"],
        stride=facts["stride"],
        bare=facts.get("bare", False),
    )


def fill(model: torch.nn.Module, tensors: dict[str, torch.Tensor], path: Path) -> None:
    """Give a model its weights; those shared with others are stored once."""
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
