"""A trained model in its folder, and what is asked of all kinds of it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
from torch import nn

from ensue.core.errors import InputError
from ensue.core.events import Report, silent
from ensue.core.run_folder import RunFolder
from ensue.core.settings import read_toml
from ensue.core.table import load_target
from ensue.data.tokenizers.protocol import Tokenizer
from ensue.data.tokenizers.registry import load_tokenizer
from ensue.data.word_vectors import WordVectors
from ensue.kernels.int8 import quantise
from ensue.models.ngram import NGram
from ensue.runs.embedding import sentence_vectors
from ensue.runs.mask_filling import Filled
from ensue.runs.word_tables import table_vectors
from ensue.search.sampling import Sample
from ensue.tasks.backbones import body_of
from ensue.tasks.load_model import model_in
from ensue.tasks.spec import TaskSpec
from ensue.tasks.table import task_name, task_spec
from ensue.tasks.translator import Translation

VIEWS = "ensue.look.run_views:RunViews"
"""Named, not imported: views are drawn of runs, so they are in a package above this one."""


@dataclass(frozen=True)
class Text:
    """One continuation that a model wrote, with its score."""

    text: str
    sample: Sample

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {
            "text": self.text,
            "log_prob": self.sample.log_prob,
            "mean_log_prob": self.sample.mean_log_prob,
            "tokens": len(self.sample.tokens),
            "ended": self.sample.ended,
        }


EIGHTHS = {"int8": "only models that label, translate or say what comes next compute in eight bits"}
"""The option of ``ensue score`` that only models with linear layers know what to do with."""
FOR_LABELS = {"out": "only labels have a confusion to draw"}
"""Options of ``ensue score`` that only models that label know."""


PREDICTIONS: dict[str, Callable[[Mapping[str, Any]], str]] = {
    "label": lambda one: f"{one['label']}\t{one['probabilities'][one['label']]:.4f}",
    "follows": lambda one: f"{'follows' if one['follows'] else 'does not follow'}\t{one['probability']:.4f}",
    "value": lambda one: f"{one['value']:.4f}",
    "choice": lambda one: f"{one['choice']}\t{one['probabilities'][one['choice']]:.4f}\t{one['text']}",
    "tags": lambda one: " ".join(
        f"{word}/{tag}" if tag != "O" else word for word, tag in zip(one["words"], one["tags"])
    ),
    "answer": lambda one: one["answer"] or "(no answer)",
}
"""How a prediction is written, by the key that tells its kind."""


class Run:
    """A trained model in its folder."""

    refused: Mapping[str, str] = {}
    """Options of ``ensue score`` that mean nothing to this kind of run, and what to do instead."""
    labels: bool = False
    """Whether it labels: only such a run has a confusion to draw."""
    eighths: bool = False
    """Whether it computes in eight bits where that is asked for."""
    reads_texts: bool = True
    """True if its model makes vectors of words in their context."""
    predict_options: tuple[str, ...] = ()
    """Options of ``ensue predict`` besides those that all runs take."""

    def __init__(self, path: str | PathLike[str]) -> None:
        self.folder = RunFolder(Path(path))
        self.config = self.folder.read_config()
        self.system: str = self.config["system"]
        self.direction: str = self.config.get("direction", "forward")

    def __repr__(self) -> str:
        return f"Run({str(self.folder.path)!r}, system={self.system!r})"

    def __str__(self) -> str:
        return str(self.folder.path)

    def __fspath__(self) -> str:
        """A run can stand where its folder can."""
        return str(self.folder.path)

    @cached_property
    def look(self) -> Any:
        """The views of this run: ``run.look.attention("…")``, ``run.look.curves()``; notebooks show them."""
        return load_target(VIEWS)(self)

    @cached_property
    def settings(self) -> dict[str, Any]:
        """Everything run.toml says, by flat names; empty for a run that was converted."""
        return read_toml(self.folder.settings) if self.folder.settings.exists() else {}

    @property
    def task(self) -> str:
        """What it was trained for: language, translation, masked, classify …"""
        return str(self.config.get("task") or task_name(self.system))

    @property
    def capabilities(self) -> tuple[str, ...]:
        """What the server and its page offer for this run; see ``ensue.serve.capabilities``."""
        return ()

    @property
    def loss_unit(self) -> str:
        """The unit of its loss; empty if it has none."""
        return ""

    @staticmethod
    def score_lines(score: Mapping[str, Any]) -> list[str]:
        """The figures of ``score``, for people."""
        numbers = ((name, value) for name, value in score.items() if isinstance(value, int | float))
        return [" · ".join(f"{name.replace('_', ' ')} {value:.4g}" for name, value in numbers)]

    @classmethod
    def card_lines(cls, score: Mapping[str, Any]) -> list[str]:
        """The figures on held-out data, as rows of the model card."""
        numbers = ((name, value) for name, value in score.items() if isinstance(value, int | float))
        return [f"| {name.replace('_', ' ')} | {value:.4g} |" for name, value in numbers]

    @staticmethod
    def data_size(data: Mapping[str, Any]) -> str:
        """How much there was to learn from, for the model card."""
        kinds = {kind: kind for kind in ("pairs", "documents", "sentences", "examples")}
        kinds |= {"texts": "texts without labels"}
        counts = [f"{data[f'train_{kind}']:,} {name}" for kind, name in kinds.items() if data.get(f"train_{kind}")]
        tokens = [f"{data[f'train_{unit}']:,} {unit}" for unit in ("tokens", "bytes") if f"train_{unit}" in data]
        return ", ".join([*counts, *tokens])

    @staticmethod
    def prediction_lines(predictions: Sequence[Mapping[str, Any]]) -> list[str]:
        """The answers of ``predict``, a line each; an empty text has an empty line."""
        return [next((write(one) for key, write in PREDICTIONS.items() if key in one), "") for one in predictions]

    @property
    def spec(self) -> TaskSpec:
        """The record of its task."""
        return task_spec(self.task)

    @cached_property
    def tokenizer(self) -> Tokenizer:
        """The tokenizer it was trained with; of two, the target's."""
        return load_tokenizer(self.folder.tokenizer)

    @cached_property
    def model(self) -> Any:
        """The model, its weights mapped from the file; a plain ``torch.nn.Module``."""
        return model_in(self.folder, self.config, self.tokenizer if self.spec.reads_text else None)

    @cached_property
    def small(self) -> Any:
        """The model with linear layers in eight bits."""
        if not isinstance(self.model, nn.Module) or isinstance(self.model, NGram):
            raise InputError(f"{self.system} counts: it has no layers for --int8", where=str(self), hint="leave it out")
        return quantise(self.model)

    def reader(self, int8: bool) -> Any:
        """The model to read with, in eight bits where that is asked for."""
        return self.small if int8 else self.model

    @cached_property
    def vectors(self) -> WordVectors:
        """The embeddings of those of its tokens that are words."""
        return table_vectors(self.model, self.tokenizer, str(self), self.system)

    def _cannot(self, what: str) -> InputError:
        purpose = f" that learnt to {self.task}" if self.labels else ""
        return InputError(f"{self.system}{purpose} cannot {what}", where=str(self.folder.path))

    def check_options(self, options: Iterable[str]) -> None:
        """Refuse options that would do nothing, before anything is read."""
        refused = {**({} if self.labels else FOR_LABELS), **({} if self.eighths else EIGHTHS), **self.refused}
        for name in options:
            if name in refused:
                what = f"{self.system} cannot use --{name.replace('_', '-')}"
                raise InputError(what, where=str(self.folder.path), hint=refused[name])

    def score(self, *args: Any, **kwargs: Any) -> Any:
        """How well the model does on files."""
        raise self._cannot("be scored")

    def per_token(self, *args: Any, **kwargs: Any) -> list[tuple[str, float]]:
        """What each token of a text costs."""
        raise self._cannot("say what each token of a text costs")

    def generate(self, *args: Any, **kwargs: Any) -> list[Text]:
        """Continuations of a prompt."""
        raise self._cannot("go on with a text")

    def next(self, *args: Any, **kwargs: Any) -> list[tuple[str, float]]:
        """The likeliest next tokens after a text."""
        raise self._cannot("say what comes next in a text")

    def translate(self, *args: Any, **kwargs: Any) -> list[Translation]:
        """Translations of lines."""
        raise self._cannot("translate")

    def predict(self, *args: Any, **kwargs: Any) -> list[dict[str, Any]]:
        """What the model says of examples."""
        raise self._cannot("label anything")

    def fill(self, *args: Any, **kwargs: Any) -> Filled:
        """A text with what is hidden in it filled in."""
        raise self._cannot("fill in what is hidden")

    def embed(self, texts: Sequence[str], *, report: Report = silent, **how: Any) -> np.ndarray:
        """A vector for each text, (N, D); see ``ensue.runs.embedding.sentence_vectors`` for how."""
        body = body_of(self.model)
        if not self.reads_texts or isinstance(body, NGram):
            raise self._cannot("make a vector of a text")
        return sentence_vectors(body, self.tokenizer, texts, report=report, **how)
