"""``ensue cost``: parameters, FLOPs, memory and time of a system, computed on a model without storage."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

import torch

from ensue.core.errors import InputError, unknown_name
from ensue.core.run_folder import RunFolder
from ensue.core.settings import build as build_settings
from ensue.look.instruments.path_length import LayerSettings, depth, layer_table
from ensue.measure.cost import (
    TrainingCost,
    active_parameters,
    default_length,
    flops_per_token,
    generating,
    is_conditional,
    parameter_parts,
    training,
)
from ensue.measure.hardware import HERE, UTILISATION, Hardware, find_hardware, measured
from ensue.measure.sharding import shard
from ensue.models.table import SYSTEMS
from ensue.nn.recompute import recompute as recompute_model
from ensue.runs.memory_check import check_parts
from ensue.runs.settings_resolution import read_settings, resolve
from ensue.tasks.settings import VOCABULARIES
from ensue.tasks.table import task_name, task_spec, trained_by_counting

VOCABULARY = 10_000
"""The default size of the vocabulary."""
LAYERS = "layers"
"""The name that gives, instead of a system's cost, a table of kinds of layers."""
DAY = 86_400
MAX_TRACED = 400
"""Layers times tokens of a model whose chains of operations are traced; a deep model gets a shorter text."""


def cost(
    system: str,
    *,
    vocabulary: int | None = None,
    preset: str = "",
    settings: Mapping[str, Any] | None = None,
    batch: int = 0,
    length: int = 0,
    precision: str = "",
    recompute: str = "",
    ranks: int = 0,
    hardware: str = "",
    utilisation: float = 0.0,
    tokens: float = 0.0,
) -> dict[str, Any]:
    """The cost of a system: parameters, FLOPs, memory, chains of operations; with ``ranks`` per rank, and in days.

    ``system`` may be the folder of a run. ``precision`` and ``recompute`` are the settings ``train.…`` of that name.

    >>> cost("window", vocabulary=100, settings={"context": 2, "embedding": 8, "hidden": 16})["parameters"]
    2772
    """
    if system == LAYERS:
        return _layers(settings or {})
    _check_numbers(batch, length, ranks, utilisation, tokens, hardware)
    saved = _saved_settings(system, preset)
    system = str(saved.get("system", system))
    cls = _system_class(system, str(saved.get("task", "")))
    given = {**(settings or {}), **({"train.recompute": recompute} if recompute else {})}
    chosen = resolve(system, preset=preset, layers=[saved, given])
    known = int(saved.get("vocabulary", 0)) or getattr(chosen.tokenizer, "vocabulary", 0)
    size = vocabulary if vocabulary is not None else known or VOCABULARY
    if size < 2:
        raise InputError(f"a vocabulary of {size} is too small", hint="at least 2 tokens are needed")
    values = {name: size if name in VOCABULARIES else value for name, value in chosen.model.items()}
    if values.get("tied") == "auto":
        values["tied"] = "all"  # one vocabulary for both languages
    device = find_hardware(hardware) if hardware else None
    chosen_precision = _precision(precision or getattr(chosen.train, "precision", "auto"), device)
    build = partial(_build, cls, values)
    with torch.device("meta"):
        model = build()
    parameters = sum(p.numel() for p in model.parameters())
    if getattr(chosen.train, "recompute", "none") == "blocks":
        recompute_model(model, system)
    rows, time = _batch(model, chosen.train, batch, length, ranks)
    forward = flops_per_token(model, length)
    loss = task_spec(task_name(system)).example_loss
    step = training(build, loss, rows, time, chosen.train, chosen_precision) if loss else None
    after = generating(model, length) if step is not None else None
    result: dict[str, Any] = {
        "system": system,
        "vocabulary": size,
        "parameters": parameters,
        "parameters_active": active_parameters(model),
        "bytes": 4 * parameters,
        "parts": parameter_parts(model),
        "flops_per_token": forward,
        "train_flops_per_token": step.flops // step.tokens if step else 3 * forward,
        "training": _training(step, chosen.train, chosen_precision) if step else None,
        "generating": {**asdict(after), "bytes_per_token": after.weights + after.state} if after else None,
        "depth": _depth(model, length) if step else None,
        "settings": values,
    }
    if ranks and step is not None:
        result["ranks"] = _ranks(build, step, ranks, chosen_precision, device)
        result["ranks"] |= {"rows": ranks * step.rows, "asked": _rows(chosen.train, batch, time)}
    if device is not None and step is not None:
        if not ranks:
            result["training"]["fits"] = step.peak <= device.memory
        result["hardware"] = asdict(device)
        result["time"] = _time(step, after, device, chosen_precision, max(ranks, 1), utilisation, tokens)
    return result


def _saved_settings(system: str, preset: str) -> dict[str, Any]:
    """The settings of a run, if ``system`` is its folder."""
    folder = RunFolder(Path(system))
    if system in SYSTEMS or not folder.path.is_dir():
        return {}
    if preset:
        raise InputError("a run has its own settings", where=system, hint="leave out --preset")
    if not folder.settings.exists() and folder.config.exists():  # it was converted
        config = folder.read_config()
        return {**config["model"], "system": config["system"], "task": str(config.get("task", ""))}
    if not folder.settings.exists():
        hint = "name a folder that `ensue fit` made, or a system"
        raise InputError(f"has no {folder.settings.name}, whose settings are counted", where=system, hint=hint)
    folder.verify(folder.settings.name)
    return read_settings(folder.settings)


def _system_class(system: str, run_task: str = "") -> Any:
    """The class of a system; refuse those whose size follows from their data. ``run_task`` is the task of a run."""
    if system not in SYSTEMS:
        raise unknown_name("system", system, [*SYSTEMS, LAYERS])
    task = task_spec(task_name(system))
    if task.labels:
        raise InputError(f"{system} is built on another run, and has its size", hint="name that one's system")
    if not task.reads_text or (run_task and not task_spec(run_task).reads_text):
        raise InputError(f"{system} reads numbers, and its size follows from the series", hint="`ensue fit` prints it")
    if trained_by_counting(system):
        what = f"{system} has no parameters: its size follows from the text"
        raise InputError(what, hint="see `ensue look ngrams`")
    return SYSTEMS.load(system)


def _check_numbers(batch: int, length: int, ranks: int, utilisation: float, tokens: float, hardware: str) -> None:
    for name, value in {"batch": batch, "length": length, "ranks": ranks}.items():
        if value < 0:
            raise InputError(f"{name} = {value} is below 0")
    if not 0 <= utilisation <= 1:
        raise InputError(f"a utilisation of {utilisation:g} is not between 0 and 1")
    if not 0 <= tokens < float("inf"):
        raise InputError(f"{tokens:g} tokens cannot be trained on")
    if tokens and not hardware:
        raise InputError("the training time depends on the machine", hint="name one: --hardware a100, or here")


def _precision(precision: str, device: Hardware | None) -> str:
    if precision not in ("auto", "float32", "bf16"):
        raise unknown_name("precision", precision, ["auto", "float32", "bf16"])
    chosen = precision if precision != "auto" else (device.precision() if device else "float32")
    if device is not None and chosen not in device.flops:
        raise InputError(f"{device.name} has no speed in {chosen}", hint=f"use {' or '.join(device.flops)}")
    return chosen


def _build(cls: Any, values: Mapping[str, Any]) -> Any:
    check_parts(values)
    try:
        return cls(cls.Config(**values))
    except (RuntimeError, OverflowError, TypeError) as error:
        raise InputError(f"a model of this size cannot be built ({str(error).splitlines()[0]})") from error


def _batch(model: Any, train: Any, batch: int, length: int, ranks: int) -> tuple[int, int]:
    """The rows of a rank's batch and the tokens of a row: as given, as in the settings of training, or by default."""
    time = length or getattr(train, "length", 0) or default_length(model)
    if is_conditional(model) or not model.traits.steps or getattr(model, "cuts", "") == "windows":
        most = getattr(model.config, "context", time)  # it reads no longer rows
        if length > most:
            what = f"rows of {length:,} tokens do not fit into a context of {most:,}"
            raise InputError(what, hint=f"give --set context={length} as well")
        time = min(time, most)
    return -(-_rows(train, batch, time) // max(ranks, 1)), time


def _rows(train: Any, batch: int, time: int) -> int:
    """The rows of a batch, over all ranks."""
    return int(batch or getattr(train, "batch", 0) or max(1, getattr(train, "batch_tokens", 0) // time))


def _training(step: TrainingCost, train: Any, precision: str) -> dict[str, Any]:
    memory = {name: getattr(step, name) for name in ("weights", "gradients", "optimiser", "buffers", "activations")}
    return {
        "rows": step.rows,
        "length": step.length,
        "tokens": step.tokens,
        "precision": precision,
        "optimiser": train.optimiser,
        "recompute": train.recompute,
        "flops_per_step": step.flops,
        "memory": {**memory, "activations_per_token": step.activations // step.tokens, "peak": step.peak},
    }


def _depth(model: Any, length: int) -> list[dict[str, Any]]:
    """The length of chains of operations, for a text and one half as long."""
    layers = getattr(model.config, "layers", 1)
    most = min(model.traits.context or 32, length or 32, 32, max(8, MAX_TRACED // layers))
    return [asdict(depth(model, size)) for size in sorted({max(most // 2, 1), most})]


def _ranks(build: Any, step: TrainingCost, ranks: int, precision: str, device: Hardware | None) -> dict[str, Any]:
    """The memory of each rank."""
    sharded = shard(build, ranks)
    share = 4 * sharded.parameters / step.weights
    memory = {
        "weights": 4 * sharded.parameters,
        "gradients": round(step.gradients * share),
        "optimiser": round(step.optimiser * share),
        "gathered": sharded.gathered(2 if precision == "bf16" else 4),
        "activations": step.activations,
    }
    total = sum(memory.values())
    fits = {} if device is None else {"fits": total <= device.memory}
    return {"ranks": ranks, "groups": sharded.groups, "memory": {**memory, "total": total}, **fits}


def _time(
    step: TrainingCost, after: Any, device: Hardware, precision: str, ranks: int, utilisation: float, tokens: float
) -> dict[str, Any]:
    """The time of a step, and of training on ``tokens``."""
    measures = device.name == HERE and not utilisation
    if measures:
        seconds = measured().seconds(step.operations)
        utilisation = step.flops / seconds / device.flops[precision]
    else:
        utilisation = utilisation or UTILISATION
        seconds = step.flops / (device.flops[precision] * utilisation)
    result: dict[str, Any] = {
        "utilisation": utilisation,
        "assumed": not measures,
        "seconds_per_step": seconds,
        "tokens_per_second": ranks * step.tokens / seconds,
    }
    if after is not None:  # each token reads all weights and the state once
        result["generated_per_second_at_most"] = device.bandwidth / (after.weights + after.state)
    if tokens:
        result |= {"tokens": tokens, "days": tokens / result["tokens_per_second"] / DAY}
        result["flops"] = tokens * step.flops / step.tokens
    return result


def _layers(settings: Mapping[str, Any]) -> dict[str, Any]:
    """The cost of kinds of layers."""
    chosen = build_settings(LayerSettings, dict(settings))
    return {"system": LAYERS, "settings": asdict(chosen), "layers": [asdict(one) for one in layer_table(chosen)]}
