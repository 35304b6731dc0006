"""The base class of tasks, with all that ``fit``, ``race``, ``score``, ``check``, ``cost`` and the server need.

A task joins a reader, a model, an objective and a measure. Its file has a subclass of ``Task`` and one instance; a line
in ``ensue.tasks.table`` or an entry point of another package gives it a name. Abstract methods must
be written; the others do what most tasks need.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Generic, TypeVar

import torch

from ensue.core.device import check_device
from ensue.core.errors import InputError
from ensue.core.events import Report
from ensue.core.run_folder import RunFolder
from ensue.core.schema import Fields, Maybe, Number, Shape
from ensue.core.table import Table
from ensue.data.labelled_rows import LabelledRows
from ensue.data.pair_tokens import PairTokens
from ensue.data.tokenizers.protocol import Tokenizer
from ensue.data.tokenizers.registry import load_tokenizer, save_tokenizer
from ensue.data.tokens import TokenizedText
from ensue.models.laws import Finding, laws_of
from ensue.models.table import SYSTEMS
from ensue.tasks.recipes import Recipe
from ensue.tasks.settings import Settings
from ensue.train.layer_unfreezing import LayerUnfreezing
from ensue.train.objectives import Objective
from ensue.train.ranks import Evaluate
from ensue.train.settings import CountTrainSettings
from ensue.train.training import Outcome

Data = TypeVar("Data", bound=LabelledRows | PairTokens | TokenizedText)
DEFAULT_BUDGET = 300.0
"""Seconds of training where no setting limits it."""


@dataclass(frozen=True)
class Measure:
    """A figure of a race's table."""

    key: str
    """Its name in race.json."""
    title: str
    format_spec: str = ".3f"
    """How it is formatted in tables."""
    within: str = ""
    """The entry, of a figure that is a mapping."""

    def of(self, figures: Mapping[str, Any]) -> Any:
        """Its value among the figures of a run."""
        return figures[self.key][self.within] if self.within else figures[self.key]


def race_heading(facts: Mapping[str, Any], unit: str = "example") -> str:
    """The first line of race.md: the data, how much of it, and the tokens."""
    amounts = f"{facts[f'train_{unit}s']:,} {unit}s to learn from, {facts[f'valid_{unit}s']:,} held out"
    return f"{', '.join(facts['data'])}: {amounts}; {facts['tokenizer']} tokens ({facts['vocabulary']:,})"


@dataclass(frozen=True, kw_only=True)
class RaceSpec:
    """How systems are compared on a task."""

    name: str
    """The value of ``--task``."""
    measures: tuple[Measure, ...]
    """The first one ranks."""
    systems: tuple[str, ...]
    """Those that race where none is named."""
    between: str
    """Which systems race, for errors: "between language models"."""
    lower: bool = False
    """True if a lower value is better."""
    heading: Callable[[Mapping[str, Any]], str] = race_heading
    facts: Callable[[Any, dict[str, Any]], dict[str, Any]] = lambda corpus, facts: facts
    """What race.json holds of a corpus, given its description."""
    shared_settings: Callable[[Any], dict[str, Any]] = lambda corpus: {}
    """Settings that make all systems read the same rows of a corpus."""
    settings: Mapping[str, Any] = field(default_factory=dict)
    """Settings of every system, where a race is not as ``ensue fit``."""
    refusal: Callable[[str], str] = lambda system: ""
    """Why a system cannot be compared; empty if it can."""

    @property
    def measure(self) -> Measure:
        """The measure that ranks."""
        return self.measures[0]


@dataclass(frozen=True)
class TrainingOptions:
    """What a task asks of the training loop besides its objective."""

    unfreezing: LayerUnfreezing | None = None
    chosen_by: str = "valid_loss"
    """The measure that chooses the best weights."""
    counts: str = "tokens"
    """What a batch is made of; progress is reported in them per second."""
    unit: str = "nats a token"
    """The unit of the loss."""


def model_shape(preset: Mapping[str, Any]) -> dict[str, Any]:
    """A preset's settings of the model, without those of training: for systems made for another task."""
    return {name: value for name, value in preset.items() if "." not in name}


@dataclass(frozen=True)
class Corpus(Generic[Data]):
    """Data to learn from and to validate with, tokenised."""

    tokenizer: Tokenizer
    train: Data
    valid: Data | None

    @property
    def hash(self) -> str:
        """Hash of both parts."""
        return "".join(part.hash[:32] for part in (self.train, self.valid) if part is not None)


def saved_tokenizer(folder: RunFolder | None) -> Tokenizer | None:
    """Return the tokenizer in a run's folder; None if there is none yet."""
    return load_tokenizer(folder.tokenizer) if folder is not None and folder.tokenizer.exists() else None


class Task(ABC):
    """A task: what it learns from, with which systems, and how they are trained and measured."""

    name: str
    """Its name in run.toml and config.json."""
    data: str
    """What it learns from, in a few words: "sentence pairs"."""
    settings: Mapping[str, type[Any]]
    """The tables of run.toml, each with its dataclass: train, data, and where needed those of ``settings.TABLES``."""
    counting: type[Any] = CountTrainSettings
    """The table ``train`` of systems that count instead of learning by gradient."""
    run: str
    """The class of its runs, as "package.module:Class"."""
    race: RaceSpec | None = None
    """How systems are compared on it; None if they are not."""
    kind: Any = None
    """The ``LabelKind`` of a task that labels."""

    facts_schema: Mapping[str, Shape] = {}
    """The fields of ``data`` in config.json that its runs read, and what they must be; all are required."""
    figures_schema: Mapping[str, Shape] = {}
    """The fields of ``figures.valid`` in config.json that its runs read, besides the measures of a race."""
    systems: Table = SYSTEMS
    """Where the model classes of its systems are."""
    accepts: tuple[str, ...] = ()
    """The systems that can be trained for it; empty means those in ``systems`` whose class names this task."""
    default_system: str = ""
    """Given, ``ensue fit TASK`` trains the task by its name, with this system where none is chosen."""
    example_file: str = ""
    """A file name for hints: "train.tsv"."""
    budget: float = DEFAULT_BUDGET
    """Seconds to train where no setting limits it; 0 if ``complete_settings`` sets a limit."""
    short_evaluation: str = ""
    """A setting that keeps evaluations short, for ``ensue check --resume``."""
    example_loss: Callable[[Any, int, int, Any], torch.Tensor] | None = None
    """The loss of a batch of full rows, given model, rows, length and ``train`` settings; None if ``ensue cost`` cannot
    count a training step."""
    train: Callable[[RunFolder, Settings, Any, Any, Report], tuple[torch.nn.Module, Settings, Outcome]] | None = None
    """A training loop of its own, for one process; it is given folder, settings, corpus, batches and report."""

    @property
    def by_name(self) -> bool:
        """True if ``ensue fit`` takes the task's name, not only the system's."""
        return bool(self.default_system)

    @property
    def labels(self) -> bool:
        """True if its models have a head that labels."""
        return "head" in self.settings

    @property
    def reads_text(self) -> bool:
        """True if its data is tokenised."""
        return "tokenizer" in self.settings

    @property
    def config_schema(self) -> Shape:
        """What the config.json of its runs must hold besides what every one does."""
        value = Maybe(Number(finite=False))
        measures = {
            m.key: Fields({m.within: value}) if m.within else value for m in (self.race.measures if self.race else ())
        }
        figures = Fields(optional={"valid": Fields(optional={**measures, **self.figures_schema})})
        required = {"data": Fields(self.facts_schema)} if self.facts_schema else {}
        return Fields(required, optional={"figures": figures})

    def check_head(self, head: Mapping[str, Any] | None, data: Mapping[str, Any]) -> None:
        """Raise InputError unless the head in the config.json of a run, and its data, are those of this task."""
        if head is not None:
            raise InputError(f"has a head, which the task {self.name} has not", hint="the folder may be damaged")

    def with_teacher(self) -> Task:
        """Return this task as a student learns it from a teacher."""
        raise InputError(f"no student can learn {self.name} from a teacher", hint="leave out the teacher")

    def suits(self, files: Sequence[str]) -> bool:
        """Return whether files are of the kind it learns from, for a system that has several tasks."""
        return False

    # Settings

    def preset(self, preset: Mapping[str, Any], recipe: Recipe | None, initialised: bool) -> dict[str, Any]:
        """Return the settings of a system's preset for this task.

        ``initialised`` is True if weights come from another run; a recipe then adds its continued pre-training.
        """
        return {**preset, **(recipe.language if recipe and initialised else {})}

    def tuning_settings(self, system: str, flat: Mapping[str, Any]) -> dict[str, Any]:
        """Return the settings of a system whose weights come from another run, where others are not typed."""
        return {}

    def shorten(self, data: Any, share: float) -> Any:
        """Return the table ``data`` with evaluations that suit a budget, given as a share of ``DEFAULT_BUDGET``."""
        return data

    def complete_settings(self, settings: Settings, model: Any, corpus: Any) -> Settings:
        """Replace every "auto" and 0 by the value that is used, so that run.toml hides nothing; refuse wrong ones."""
        train, tokens = settings.train, settings.tokenizer
        if self.reads_text:
            kind = corpus.tokenizer.kind if tokens.kind == "auto" else tokens.kind
            tokens = replace(tokens, kind=kind, vocabulary=tokens.vocabulary or corpus.tokenizer.size)
        return replace(
            settings,
            run=replace(settings.run, device=check_device(settings.run.device)),
            train=replace(train, threads=train.threads or torch.get_num_threads()),
            tokenizer=tokens,
        )

    # The corpus and the model

    @abstractmethod
    def read_corpus(self, settings: Settings, folder: RunFolder | None, report: Report) -> Any:
        """Read the data, with the tokenizers of a folder if it has them.

        A corpus has ``hash``, ``train``, ``valid`` and, if it is text, ``tokenizer``.
        """

    def save_tokenizers(self, corpus: Any, folder: RunFolder) -> None:
        """Write the tokenizers into a run's folder."""
        if self.reads_text:
            save_tokenizer(corpus.tokenizer, folder.tokenizer)

    def prepare_corpus(self, settings: Settings, corpus: Any, folder: RunFolder, report: Report) -> None:  # noqa: B027 (optional)
        """Add to the corpus what takes long to compute and is kept in the run's folder."""

    def describe_corpus(self, corpus: Any) -> dict[str, Any]:
        """Return facts of a corpus for the model card and config.json."""
        return {"tokenizer": corpus.tokenizer.kind, "vocabulary": corpus.tokenizer.size}

    def model_settings(self, settings: Settings, corpus: Any) -> dict[str, Any]:
        """Return the model's settings that follow from the data; those that a model does not have are ignored."""
        return {"vocabulary": corpus.tokenizer.size, "end": corpus.tokenizer.end}

    def add_head(self, settings: Settings, model: Any, corpus: Any) -> Any:
        """Return the model with what the task adds to a system."""
        return model

    # Training

    @abstractmethod
    def batches(self, settings: Settings, model: Any, corpus: Any) -> Any:
        """Return the training data as batches, each a pure function of its number."""

    @abstractmethod
    def objective(self, settings: Settings, model: Any, corpus: Any) -> Objective:
        """Return the training objective."""

    def evaluator(self, settings: Settings, model: Any, corpus: Any) -> Evaluate | None:
        """Return the function that measures the model on held-out data during training; None if nothing is held out."""
        return None

    def options(self, settings: Settings, model: Any, corpus: Any) -> TrainingOptions:
        """Return what the training loop needs to know besides."""
        return TrainingOptions()

    def sampler(self, settings: Settings, model: Any, corpus: Any, device: torch.device) -> Callable[[], str] | None:
        """Return the function that shows an output of the model during training; None if it writes nothing."""
        return None

    def prepare_model(self, settings: Settings, model: Any, corpus: Any) -> None:  # noqa: B027 (optional)
        """Add the modules that only training needs, such as adapters."""

    def finish_model(self, model: Any) -> Any:
        """Merge or remove them after training."""
        return model

    # Measuring

    def final_figures(
        self, settings: Settings, model: Any, corpus: Any, folder: RunFolder, report: Report
    ) -> dict[str, Any] | None:
        """Return the figures of the finished model on all held-out data; None if there is none."""
        return None

    def laws(self, model: Any) -> Iterator[Finding]:
        """Test the laws of ``ensue check`` on a model."""
        return laws_of(model)
