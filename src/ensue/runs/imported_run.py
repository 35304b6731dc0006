"""Write the run of a model that was trained by another tool."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ensue.core.files import atomic_file, write_text
from ensue.core.run_folder import RunFolder
from ensue.core.version import __version__
from ensue.data.tokenizers.protocol import Tokenizer
from ensue.data.tokenizers.registry import save_tokenizer
from ensue.models.backbones import system_config
from ensue.runs.grouped_weights import count_parameters
from ensue.runs.save_weights import write_model


@dataclass(frozen=True, slots=True)
class ImportedWeights:
    """A model of which only the weights have to be written."""

    config: Any
    """Its settings."""
    parameters: int
    write: Callable[[Path], None]
    """Writes model.safetensors."""


def weights_of(model: Any) -> ImportedWeights:
    """The weights of a model in memory."""
    return ImportedWeights(system_config(model), count_parameters(model), lambda path: write_model(model, path))


def write_imported_run(
    folder: RunFolder,
    force: bool,
    system: str,
    weights: ImportedWeights,
    tokenizer: Tokenizer,
    origin: str,
    template: str = "",
    **facts: Any,
) -> Path:
    """Write a run; ``origin`` is for the model card, ``facts`` are for config.json.

    The weights are written beside the folder first: they may turn out to be damaged, and then nothing has changed.
    """
    ready = folder.path.with_name(f".{folder.path.name}.{os.getpid()}.weights")
    try:
        with atomic_file(ready) as temporary:
            weights.write(temporary)
            temporary.chmod(0o644)
        folder.make(force)
        save_tokenizer(tokenizer, folder.tokenizer)
        if template:
            write_text(folder.chat, template)
        ready.replace(folder.weights)
    finally:
        ready.unlink(missing_ok=True)
    figures = {
        "stopped": "converted",
        "steps": 0,
        "unit": "steps",
        "seconds": 0.0,
        "parameters": weights.parameters,
        "bytes": folder.weights.stat().st_size,
    }
    write_text(folder.card, f"# {system}\n\n{origin}\n")
    folder.write_config(system, weights.config, __version__, **facts, figures=figures)
    return folder.path
