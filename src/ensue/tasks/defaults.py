"""What most tasks do alike; a task that has nothing to add takes these functions as its own."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch

from ensue.core.events import Report
from ensue.core.run_folder import RunFolder
from ensue.data.tokenizers.protocol import Tokenizer
from ensue.data.tokenizers.registry import save_tokenizer
from ensue.tasks.machine import check_device
from ensue.tasks.settings import Settings
from ensue.tasks.training_options import Means


def save_tokenizers(corpus: Any, folder: RunFolder) -> None:
    """Write the tokenizer into a run's folder."""
    save_tokenizer(corpus.tokenizer, folder.tokenizer)


def prepared(settings: Settings, corpus: Any, folder: RunFolder, report: Report) -> Any:
    """Nothing here takes long."""
    return corpus


def with_head(settings: Settings, model: Any, corpus: Any) -> Any:
    """A system is all there is to this task."""
    return model


def settled(settings: Settings, tokenizer: Tokenizer | None = None) -> Settings:
    """The settings with the device, the threads, and the tokenizer's kind and size, where they were left to us."""
    train, tokens = settings.train, settings.tokenizer
    if tokenizer is not None:
        kind = tokenizer.kind if tokens.kind == "auto" else tokens.kind
        tokens = replace(tokens, kind=kind, vocabulary=tokens.vocabulary or tokenizer.size)
    return replace(
        settings,
        run=replace(settings.run, device=check_device(settings.run.device)),
        train=replace(train, threads=train.threads or torch.get_num_threads()),
        tokenizer=tokens,
    )


def means(settings: Settings, model: Any, corpus: Any) -> Means:
    """All layers learn alike, and the loss chooses."""
    return Means()


def finished(model: Any) -> Any:
    """Nothing was added for training."""
    return model


def writer(settings: Settings, model: Any, corpus: Any, device: torch.device) -> Callable[[], str] | None:
    """It does not write."""
    return None
