"""Models that count are measured on a held-out part first, and then count all of the text.

Nothing is chosen by the held-out part, so a model that left it out would only be worse. The figure is that of a model
of the rest, with a tokenizer of the rest. It is made in the folder ``held-out`` inside the run's, so that it can be
interrupted and resumed; the folder is deleted when the run is complete.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from ensue.core.files import read_json, write_json, write_text
from ensue.core.run_files import HELD_OUT, HELD_OUT_FIGURES
from ensue.core.run_folder import RunFolder
from ensue.core.schema import Fields, Maybe, Number, Table, Whole, check_schema
from ensue.runs.settings_resolution import read_settings, resolve
from ensue.tasks.language_modelling import holds_out
from ensue.tasks.settings import Settings

SUBWORDS = ("bpe", "wordpiece", "unigram")
"""Tokenizers whose vocabulary has a size that is chosen, so that it is the same for both models."""
FIGURES_SCHEMA = Fields(
    {
        "valid": Maybe(Table()),
        "data": Fields({name: Whole(0) for name in ("train_tokens", "valid_tokens", "valid_bytes")}),
        "order": Whole(1),
        "seconds": Number(),
    }
)


def counted_again(settings: Settings) -> bool:
    """True if a run counts the held-out part too, after it was measured on it."""
    return getattr(settings.train, "recount", False) and holds_out(settings.data)


@dataclass(frozen=True)
class RestFolder(RunFolder):
    """The folder of the model of the rest, inside that of the run, which it makes too."""

    run: RunFolder
    toml: str
    """The text of the run's run.toml, without which nothing could be resumed."""

    def make(self, force: bool) -> None:
        """Create both folders."""
        self.run.make(force)
        write_text(self.run.settings, self.toml)
        self.path.mkdir()

    @property
    def figures(self) -> Path:
        """The file of figures, written when all is measured."""
        return self.path / HELD_OUT_FIGURES

    def write_figures(self, figures: dict[str, Any], counting: Path) -> None:
        """Write the figures and delete what is not needed any more."""
        write_json(self.figures, figures)
        for folder in (self.checkpoints, counting):
            shutil.rmtree(folder, ignore_errors=True)

    def read_figures(self) -> dict[str, Any] | None:
        """The figures, if the model of the rest was measured."""
        if not self.figures.exists() or not self.settings.exists():
            return None
        figures: dict[str, Any] = read_json(self.figures)
        check_schema(figures, FIGURES_SCHEMA, str(self.figures))
        return figures

    @contextmanager
    def lock(self) -> Iterator[None]:
        """Lock both folders."""
        with self.run.lock(), super().lock():
            yield

    def saved_settings(self) -> Settings | None:
        """The settings that the model of the rest was started with; None if it was not."""
        if not self.settings.exists():
            return None
        flat = read_settings(self.settings)
        return resolve(str(flat["system"]), layers=[flat])


def rest_folder(folder: RunFolder, settings: Settings) -> RestFolder:
    """The folder of the model of the rest."""
    return RestFolder(folder.path / HELD_OUT, folder, settings.toml())


def rest_settings(settings: Settings) -> Settings:
    """The settings of the model of the rest; it may take half of the budget."""
    train = replace(settings.train, recount=False, budget=settings.train.budget / 2)
    return replace(settings, train=train)


def whole_settings(settings: Settings, rest: Settings, seconds: float) -> Settings:
    """The settings of the model of all, with the tokenizer that suited the rest and what is left of the budget."""
    kind = rest.tokenizer.kind
    vocabulary = rest.tokenizer.vocabulary if kind in SUBWORDS else settings.tokenizer.vocabulary
    budget = settings.train.budget
    return replace(
        settings,
        tokenizer=replace(settings.tokenizer, kind=kind, vocabulary=vocabulary),
        train=replace(settings.train, budget=max(budget - seconds, budget / 2)),
    )


def rest_figures(rest: dict[str, Any], order: int, seconds: float) -> dict[str, Any]:
    """What config.json says of the model of the rest: its figures, and what it was."""
    about = {"train_tokens": rest["data"]["train_tokens"], "order": rest["order"], "seconds": round(rest["seconds"], 1)}
    note = (
        {"note": f"the budget ended early: it has order {rest['order']}, not {order}"} if rest["order"] != order else {}
    )
    return {"valid": rest["valid"], "held_out": {**about, **note}, "seconds": round(rest["seconds"] + seconds, 1)}
