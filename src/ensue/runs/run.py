"""A run: a trained model in its folder, and the operations that all kinds of runs have."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
from torch import nn

from ensue.core.errors import InputError, errors_in
from ensue.core.escapes import escape_field
from ensue.core.events import Report, report_all, silent
from ensue.core.run_folder import RunFolder
from ensue.core.schema import check_schema
from ensue.core.settings import convert, read_toml
from ensue.core.table import load_target
from ensue.data.sources import Source
from ensue.data.tokenizers.protocol import Tokenizer
from ensue.data.tokenizers.registry import load_tokenizer
from ensue.data.word_vectors import WordVectors
from ensue.kernels.int8 import quantise
from ensue.models.backbones import body_of
from ensue.models.table import is_ngram
from ensue.nn.mixers.full import use_cache_type
from ensue.nn.mixers.xl import use_memory
from ensue.runs.load_model import load_model
from ensue.runs.mask_filling import Filled
from ensue.runs.sentence_vectors import sentence_vectors
from ensue.runs.settings_resolution import setting_kinds
from ensue.runs.word_embeddings import embedding_vectors
from ensue.search.sampling import Sample
from ensue.search.translator import Translation
from ensue.tasks.spec import Task
from ensue.tasks.table import task_name, task_spec

VIEWS = "ensue.look.run_views:RunViews"
"""Named, not imported: views are drawn of runs, so they are in a package above this one."""


@dataclass(frozen=True)
class Text:
    """A continuation that a model generated, with its score."""

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


PREDICTIONS: dict[str, Callable[[Mapping[str, Any]], str]] = {
    "label": lambda one: f"{escape_field(one['label'])}\t{one['probabilities'][one['label']]:.4f}",
    "follows": lambda one: f"{'follows' if one['follows'] else 'does not follow'}\t{one['probability']:.4f}",
    "value": lambda one: f"{one['value']:.4f}",
    "choice": lambda one: f"{one['choice']}\t{one['probabilities'][one['choice']]:.4f}\t{escape_field(one['text'])}",
    "tags": lambda one: " ".join(
        escape_field(f"{word}/{tag}" if tag != "O" else word) for word, tag in zip(one["words"], one["tags"])
    ),
    "output": lambda one: escape_field(one["output"]),
    "answer": lambda one: escape_field(one["answer"]) or "(no answer)",
    "replaced": lambda one: "  ".join(f"{token} {p:.2f}" for token, p in zip(one["tokens"], one["p"], strict=True)),
}
"""How a prediction is printed, on one line, by the key that only its kind has."""


class Run:
    """A trained model in its folder."""

    refused: Mapping[str, str] = {}
    """Options of ``ensue score`` that this kind of run does not have, with a hint for each."""
    labels: bool = False
    """True if it labels: only such a run has a confusion matrix."""
    supports_int8: bool = False
    """True if it can compute with int8 linear layers."""
    reads_texts: bool = True
    """True if its model makes vectors of words in their context."""
    predict_options: tuple[str, ...] = ()
    """Options of ``ensue predict`` besides those that all runs have."""

    def __init__(self, path: str | PathLike[str]) -> None:
        self.folder = RunFolder(Path(path))
        self.config = self.folder.read_config()
        with errors_in(self.folder.config):
            check_schema(self.config, self.spec.config_schema, str(self.folder.config))
            self.spec.check_head(self.config.get("head"), self.config.get("data", {}))
        self.system: str = self.config["system"]
        self.direction: str = self.config.get("direction", "forward")

    def __repr__(self) -> str:
        return f"Run({str(self)!r}, system={self.system!r})"

    def __str__(self) -> str:
        return str(self.folder.path)

    def __fspath__(self) -> str:
        """A run can be used as the path of its folder."""
        return str(self)

    @cached_property
    def look(self) -> Any:
        """The views of this run: ``run.look.attention("…")``, ``run.look.curves()``; notebooks show them."""
        return load_target(VIEWS)(self)

    @cached_property
    def settings(self) -> dict[str, Any]:
        """The settings in run.toml, by flat names; empty for a converted run."""
        path = self.folder.settings
        if not path.exists():
            return {}
        with errors_in(path):
            flat, kinds = read_toml(path), setting_kinds(self.system, self.task)
            for name in flat.keys() & kinds.keys():
                convert(name, flat[name], kinds[name])  # raises InputError for a wrong type
        return flat

    @property
    def task(self) -> str:
        """The task it was trained for: language, translation, masked, classify …"""
        return str(self.config.get("task") or task_name(self.config["system"]))

    @property
    def spec(self) -> Task:
        """The record of its task."""
        return task_spec(self.task)

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
        """The result of ``score`` as lines to print."""
        numbers = ((name, value) for name, value in score.items() if isinstance(value, int | float))
        return [" · ".join(f"{name.replace('_', ' ')} {value:.4g}" for name, value in numbers)]

    @classmethod
    def card_lines(cls, score: Mapping[str, Any]) -> list[str]:
        """The figures on held-out data, as rows of the model card."""
        numbers = ((name, value) for name, value in score.items() if isinstance(value, int | float))
        return [f"| {name.replace('_', ' ')} | {value:.4g} |" for name, value in numbers]

    @staticmethod
    def data_size(data: Mapping[str, Any]) -> str:
        """The size of the training data, for the model card."""
        kinds = {kind: kind for kind in ("pairs", "documents", "sentences", "examples")}
        kinds |= {"texts": "texts without labels"}
        counts = [f"{data[f'train_{kind}']:,} {name}" for kind, name in kinds.items() if data.get(f"train_{kind}")]
        tokens = [f"{data[f'train_{unit}']:,} {unit}" for unit in ("tokens", "bytes") if f"train_{unit}" in data]
        return ", ".join([*counts, *tokens])

    @staticmethod
    def prediction_lines(predictions: Sequence[Mapping[str, Any]]) -> list[str]:
        """The result of ``predict``, a line each; an empty text has an empty line."""
        return [next((write(one) for key, write in PREDICTIONS.items() if key in one), "") for one in predictions]

    @cached_property
    def tokenizer(self) -> Tokenizer:
        """The tokenizer it was trained with; of two, the target's."""
        if not self.spec.reads_text:
            raise self.cannot("read text")
        return load_tokenizer(self.folder.tokenizer)

    @cached_property
    def model(self) -> Any:
        """The model, its weights mapped from the file; a plain ``torch.nn.Module``."""
        return load_model(self.folder, self.config, self.tokenizer if self.spec.reads_text else None)

    @cached_property
    def int8_model(self) -> Any:
        """The model with int8 linear layers."""
        if not isinstance(self.model, nn.Module) or is_ngram(self.model):
            raise InputError(f"{self.system} has no layers for --int8", where=str(self), hint="leave it out")
        return quantise(self.model)

    def use_cache_type(self, name: str) -> None:
        """Keep keys and values of attention as float32 or bf16 while the model generates."""
        layers = use_cache_type(self.model, name) if isinstance(self.model, nn.Module) else 0
        if not layers and name != "float32":
            raise InputError(f"{self.system} has no key–value cache", where=str(self), hint="leave out --kv-cache")

    def use_memory(self, size: int | None) -> None:
        """Let the model see ``size`` positions before each segment, instead of those it was trained with (None)."""
        if size is not None and not (isinstance(self.model, nn.Module) and use_memory(self.model, size)):
            raise InputError(f"{self.system} has no memory of segments", where=str(self), hint="leave out --memory")

    def model_for(self, int8: bool) -> Any:
        """The model, with int8 linear layers if ``int8``."""
        return self.int8_model if int8 else self.model

    @cached_property
    def vectors(self) -> WordVectors:
        """The embeddings of those of its tokens that are words."""
        if not self.spec.reads_text:
            raise self.cannot("give word vectors")
        return embedding_vectors(self.model, self.tokenizer, str(self), self.system)

    def report_untrained(self, head: str, report: Report) -> None:
        """Note that a head's answers are random: it was added to a model of another tool, which has none."""
        if head in self.config.get("untrained", ()):
            what = f"{self}: its {head} head is untrained, so these answers are random; train it with ensue fit --from"
            report("note", {"text": what})

    def cannot(self, action: str) -> InputError:
        """The error of a run that does not have an operation."""
        purpose = f" trained to {self.task}" if self.spec.by_name else ""
        return InputError(f"{self.system}{purpose} cannot {action}", where=str(self))

    def check_options(self, options: Iterable[str]) -> None:
        """Refuse options that have no effect, before anything is read."""
        refused = {} if self.labels else {"out": "only labels have a confusion matrix"}
        if not self.supports_int8:
            refused["int8"] = "only models that label, translate or predict the next token have int8 layers"
        refused |= self.refused
        for name in options:
            if name in refused:
                what = f"{self.system} cannot use --{name.replace('_', '-')}"
                raise InputError(what, where=str(self), hint=refused[name])

    def check_files(self, files: Sequence[Source]) -> None:
        """Refuse to score without files."""
        if not files:
            raise InputError(self.refused["text"], where=str(self))

    def score(self, *args: Any, **kwargs: Any) -> Any:
        """Measure the model on files."""
        raise self.cannot("be scored")

    def per_token(self, *args: Any, **kwargs: Any) -> list[tuple[str, float]]:
        """The log-probability of each token of a text."""
        raise self.cannot("score single tokens")

    def generate(self, *args: Any, **kwargs: Any) -> list[Text]:
        """Continuations of a prompt."""
        raise self.cannot("generate text")

    def next(self, *args: Any, **kwargs: Any) -> list[tuple[str, float]]:
        """The most likely next tokens after a text."""
        raise self.cannot("predict the next token")

    def translate(self, *args: Any, **kwargs: Any) -> list[Translation]:
        """Translations of lines."""
        raise self.cannot("translate")

    def predict(
        self,
        texts: Sequence[str] = (),
        *,
        file: str | Path | None = None,
        columns: str = "",
        int8: bool = False,
        report: Report = silent,
    ) -> list[dict[str, Any]]:
        """Predictions for texts, or for the contents of a file, in their order; pairs have a tab between the texts."""
        notes: list[str] = []
        if file is not None:
            examples = self.read_examples(file, columns, notes)
        else:
            examples = [self.make_example(text, f"text {number}") for number, text in enumerate(texts, start=1)]
        report_all(notes, report)
        return self.predict_examples(examples, int8, report)

    def read_examples(self, file: str | Path, columns: str, notes: list[str]) -> list[Any]:
        """The examples of a file that ``predict`` labels."""
        raise self.cannot("label anything")

    def make_example(self, text: str, where: str) -> Any:
        """A line as an example for ``predict``."""
        raise self.cannot("label anything")

    def predict_examples(self, examples: list[Any], int8: bool, report: Report) -> list[dict[str, Any]]:
        """Predictions for examples."""
        raise self.cannot("label anything")

    def fill(self, *args: Any, **kwargs: Any) -> Filled:
        """A text with its masked tokens filled in."""
        raise self.cannot("fill in masked tokens")

    def embed(self, texts: Sequence[str], *, report: Report = silent, **options: Any) -> np.ndarray:
        """A vector for each text, (N, D); see ``ensue.runs.sentence_vectors.sentence_vectors`` for ``options``."""
        body = body_of(self.model)
        if not self.reads_texts or is_ngram(body):
            raise self.cannot("make a vector of a text")
        return sentence_vectors(body, self.tokenizer, texts, report=report, **options)
