"""Load the model of a run: built from config.json, with the weights of model.safetensors."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import load_file

from ensue.core.errors import InputError, errors_in
from ensue.core.memory import keep_freed_memory, trim_memory
from ensue.core.run_folder import RunFolder
from ensue.core.settings import build
from ensue.data.tokenizers.protocol import Tokenizer
from ensue.exchange.tensor_files import TYPES
from ensue.models.backbones import build_body, system_config
from ensue.models.labelled import HeadConfig, Labelled
from ensue.models.table import is_ngram
from ensue.nn.planning import without_storage
from ensue.runs.adapted_weights import use_adapters
from ensue.runs.grouped_weights import assign_tensors, has_groups, use_groups
from ensue.runs.memory_check import check_parts
from ensue.tasks.labels.features import features_from_config, set_spelling
from ensue.tasks.table import model_class


def load_model(folder: RunFolder, config: Mapping[str, Any], tokenizer: Tokenizer | None) -> Any:
    """Return the model of a run, a plain ``torch.nn.Module``; its weights are mapped from the file.

    A run of adapters has its weights in ``base``.
    """
    keep_freed_memory()
    weights = (folder.base or folder).weights
    header = read_header(weights)
    shapes = {name: tuple(tensor.shape) for name, tensor in header.items()}
    with folder.config_errors():
        planned = plan_model(config, len(shapes))
    if tokenizer is not None:
        check_vocabulary(folder, system_config(planned).vocabulary, tokenizer)
    if is_ngram(planned):  # its tables are those of the file, of any length
        with errors_in(weights, RuntimeError):
            return planned.adopt(read_tensors(weights)).eval()
    if has_groups(header):
        use_groups(planned, header, str(weights))
        check_shapes(planned, shapes, weights)
        assign_tensors(planned, read_tensors(weights), str(weights))
        if folder.base is not None:
            use_adapters(planned, read_tensors(folder.weights), str(folder.weights))
        trim_memory()  # of reading a large tokenizer
        return planned.eval()
    check_shapes(planned, shapes, weights)
    with folder.config_errors():
        model = build_from_config(config)
    if tokenizer is not None:
        set_spelling(model, tokenizer)
    set_weights(model, read_tensors(weights), weights)
    return model.eval()


def read_header(path: Path) -> dict[str, torch.Tensor]:
    """Return the tensors in a file without their contents, from its header alone."""
    found = {}
    with _weight_errors(path), safe_open(path, framework="pt") as file:
        for name in file.keys():  # noqa: SIM118 (no iterator)
            part = file.get_slice(name)
            found[name] = torch.empty(part.get_shape(), dtype=TYPES[part.get_dtype()], device="meta")
    return found


def read_tensors(path: Path) -> dict[str, torch.Tensor]:
    """Return the tensors in a file, mapped from it."""
    with _weight_errors(path):
        tensors: dict[str, torch.Tensor] = load_file(path)
    return tensors


@contextmanager
def _weight_errors(path: Path) -> Iterator[None]:
    try:
        yield
    except (SafetensorError, OSError, KeyError, ValueError, TypeError) as error:
        reason = ascii(str(error).splitlines()[0] if str(error) else type(error).__name__)[1:-1]
        raise InputError(f"is damaged or missing ({reason})", where=str(path)) from error


def plan_model(config: Mapping[str, Any], tensors: int) -> Any:
    """Build the model of a config.json without storage; refuse one with more parts than there are tensors."""
    for values in (config["model"], config.get("features", {}).get("model", {})):
        check_parts(values, most=tensors)
    with without_storage():
        return build_from_config(config)


def check_shapes(planned: torch.nn.Module, shapes: Mapping[str, tuple[int, ...]], path: Path) -> None:
    """Raise InputError unless a file has every tensor of a model in its shape, shared ones once, and no other."""
    own = planned.state_dict(keep_vars=True)
    held = {id(tensor) for name, tensor in own.items() if name in shapes}
    missing = [name for name, tensor in own.items() if name not in shapes and id(tensor) not in held and tensor.numel()]
    wrong = [name for name, shape in shapes.items() if name not in own or tuple(own[name].shape) != shape]
    if wrong or missing:
        what = f"does not fit config.json ({(wrong or missing)[0]})"
        raise InputError(what, where=str(path), hint="the folder may be damaged")


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
