"""The record of a task: all that ``fit``, ``race``, ``score``, ``check``, ``cost``, the server and the commands need.

A task joins a reader, a model, an objective and a measure. Its file builds one ``TaskSpec``; a line in
``ensue.tasks.table`` or an entry point of another package gives it a name. Functions without a default must be given;
the others are what most tasks do.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch

from ensue.core.events import Report
from ensue.core.run_folder import RunFolder
from ensue.core.table import Table, load_target
from ensue.data.tokenizers.registry import save_tokenizer
from ensue.models.laws import Finding, laws_of
from ensue.models.table import SYSTEMS
from ensue.tasks.recipes import Recipe
from ensue.tasks.settings import Settings
from ensue.train.layer_unfreezing import LayerUnfreezing
from ensue.train.objectives import Objective
from ensue.train.ranks import Evaluate
from ensue.train.training import Outcome

DEFAULT_BUDGET = 300.0
"""Seconds of training where no setting limits it."""


@dataclass(frozen=True)
class Measure:
    """A figure of a race's table."""

    key: str
    """Its name in race.json."""
    title: str
    form: str = ".3f"
    """The format for people."""
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


Train = Callable[[RunFolder, Settings, Any, Any, Report], tuple[torch.nn.Module, Settings, Outcome]]


def save_one_tokenizer(corpus: Any, folder: RunFolder) -> None:
    """Write ``corpus.tokenizer`` into a run's folder."""
    save_tokenizer(corpus.tokenizer, folder.tokenizer)


def preset_with_recipe(preset: Mapping[str, Any], recipe: Recipe | None, initialised: bool) -> dict[str, Any]:
    """A preset's settings; with a recipe those of continued pre-training where the weights come from a run."""
    return {**preset, **(recipe.language if recipe and initialised else {})}


def model_shape(preset: Mapping[str, Any], recipe: Recipe | None, initialised: bool) -> dict[str, Any]:
    """A preset's settings of the model, without those of training: for systems made for another task."""
    return {name: value for name, value in preset.items() if "." not in name}


def tokenizer_size(settings: Settings, corpus: Any) -> dict[str, Any]:
    """The size of the vocabulary, and the token that ends a text."""
    return {"vocabulary": corpus.tokenizer.size, "end": corpus.tokenizer.end}


@dataclass(frozen=True, kw_only=True)
class TaskSpec:
    """A task."""

    name: str
    """Its name in run.toml and config.json."""
    data: str
    """What it learns from, in a few words: "sentence pairs"."""
    settings: Mapping[str, type[Any]]
    """The tables of run.toml, each with its dataclass: train, data, and where needed those of ``settings.TABLES``."""
    run: str
    """The class of its runs, as "package.module:Class"."""

    # Systems
    systems: Table = SYSTEMS
    """Where the model classes of its systems are."""
    accepts: tuple[str, ...] = ()
    """The systems that can be trained for it; empty means those in ``systems`` whose class names this task."""
    default_system: str = ""
    """Given, ``ensue fit TASK`` trains the task by its name, with this system where none is chosen."""
    example_file: str = ""
    """A file name for hints: "train.tsv"."""
    preset: Callable[[Mapping[str, Any], Recipe | None, bool], dict[str, Any]] = preset_with_recipe
    """The settings of a system's preset for this task, given its recipe and whether weights come from another run."""
    tuning_rate: Callable[[str, Mapping[str, Any]], float] | None = None
    """The learning rate of a system whose weights come from another run; None means that of the preset."""
    budget: float = DEFAULT_BUDGET
    """Seconds to train where no setting limits it; 0 if ``complete_settings`` sets a limit."""
    shorten: Callable[[Any, float], Any] = lambda data, share: data
    """The table ``data`` with evaluations that suit a budget, given as a share of ``DEFAULT_BUDGET``."""

    # From settings to a corpus and a model
    read_corpus: Callable[[Settings, RunFolder | None, Report], Any]
    """Read the data, with the tokenizers of a folder if it has them. A corpus has ``hash``, ``train`` and ``valid``."""
    save_tokenizers: Callable[[Any, RunFolder], None] = save_one_tokenizer
    prepare_corpus: Callable[[Settings, Any, RunFolder, Report], None] = lambda settings, corpus, folder, report: None
    """Add to the corpus what takes long to compute and is kept in the run's folder."""
    describe_corpus: Callable[[Any], dict[str, Any]]
    """Facts of a corpus for the model card and config.json."""
    model_settings: Callable[[Settings, Any], dict[str, Any]] = tokenizer_size
    """The model's settings that follow from the data."""
    add_head: Callable[[Settings, Any, Any], Any] = lambda settings, model, corpus: model
    """The model with what the task adds to a system."""
    complete_settings: Callable[[Settings, Any, Any], Settings]
    """Replace every "auto" and 0 by the value that is used, so that run.toml hides nothing; refuse what cannot be."""

    # Training
    batches: Callable[[Settings, Any, Any], Any]
    """The training data as batches, each a pure function of its number."""
    objective: Callable[[Settings, Any, Any], Objective]
    evaluator: Callable[[Settings, Any, Any], Evaluate | None] = lambda settings, model, corpus: None
    """Make the function that measures the model on held-out data during training."""
    example_loss: Callable[[Any, int, int, Any], torch.Tensor] | None = None
    """The loss of a batch of full rows, given model, rows, length and ``train`` settings; None if ``ensue cost`` cannot
    count a training step."""
    options: Callable[[Settings, Any, Any], TrainingOptions] = lambda settings, model, corpus: TrainingOptions()
    sampler: Callable[[Settings, Any, Any, torch.device], Callable[[], str] | None] = (
        lambda settings, model, corpus, device: None
    )
    """Make the function that shows an output of the model during training; None if it writes nothing."""
    prepare_model: Callable[[Settings, Any, Any], None] = lambda settings, model, corpus: None
    """Add the modules that only training needs, such as adapters."""
    finish_model: Callable[[Any], Any] = lambda model: model
    """Merge or remove them after training."""
    train: Train | None = None
    """A training loop of its own, for one process; it is given folder, settings, corpus, batches and report."""

    # Measuring
    final_figures: Callable[[Settings, Any, Any, RunFolder, Report], dict[str, Any] | None] = (
        lambda settings, model, corpus, folder, report: None
    )
    """The figures of the finished model on all held-out data."""
    laws: Callable[[Any], Iterator[Finding]] = laws_of
    """The laws that ``ensue check`` tests on a model."""
    short_evaluation: str = ""
    """A setting that keeps evaluations short, for ``ensue check --resume``."""
    race: RaceSpec | None = None

    student: str = ""
    """A function, as "package.module:name", from this record to that of a student with a teacher; empty if none."""
    kind: Any = None
    """The ``LabelKind`` of a task that labels."""

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

    def with_teacher(self) -> TaskSpec:
        """The record of a student."""
        spec: TaskSpec = load_target(self.student)(self)
        return spec
