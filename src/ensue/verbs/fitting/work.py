"""What a training works on, and what it gives."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

from ensue.core.cpu_load import CPULoad
from ensue.core.events import Report
from ensue.core.run_folder import RunFolder
from ensue.tasks.settings import Settings
from ensue.tasks.spec import Task
from ensue.train.ranks import Ranks
from ensue.train.training import Outcome

Trained = tuple[torch.nn.Module, Settings, Outcome]
"""The trained model, its settings with the plan of the training, and how training ended."""


@dataclass(frozen=True)
class Fit:
    """A training: its settings, its data and its model."""

    folder: RunFolder
    settings: Settings
    task: Task
    corpus: Any
    model: Any
    report: Report
    ranks: Ranks
    cpu_load: CPULoad
    """What other processes have used since the command started."""
    fixed_threads: bool
    """True if the number of threads was set by hand."""
    rest: dict[str, Any] | None = None
    """The figures of a model without the held-out part, if the run itself counts that part too."""
