"""What systems can race at: a task, the measure that decides, and who may take part."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ensue.core.errors import InputError, unknown_name
from ensue.models.table import SYSTEMS
from ensue.runs.load import Run
from ensue.tasks.labels import LABEL_KINDS
from ensue.tasks.settings import LABELS
from ensue.tasks.settings_resolution import check_task, task_name


@dataclass(frozen=True)
class Measure:
    """A figure that stands in the table."""

    key: str
    """What race.json calls it."""
    title: str
    form: str = ".3f"
    """How many digits people see."""
    within: str = ""
    """Which entry is meant, of a figure that has several."""

    def of(self, figures: dict[str, Any]) -> Any:
        """Its value among the figures of a run."""
        return figures[self.key][self.within] if self.within else figures[self.key]


@dataclass(frozen=True)
class Discipline:
    """A kind of race."""

    name: str
    """What people type."""
    task: str
    """What runs call it."""
    measures: tuple[Measure, ...]
    """The first decides."""
    systems: tuple[str, ...]
    """Who takes part where nobody is named."""
    between: str
    """What takes part, for errors."""
    lower: bool = False
    """Whether the lowest value is the best."""

    @property
    def measure(self) -> Measure:
        """What decides."""
        return self.measures[0]

    @property
    def labels(self) -> bool:
        """Whether it is about labelled examples."""
        return self.task in LABELS

    def fitted(self, system: str) -> tuple[str, str]:
        """What ``fit`` is asked for, and by ``model``: a task with its system, or a system alone."""
        return (self.task, system) if self.labels or self.task == "forecast" else (system, "")

    def check(self, system: str) -> None:
        """Refuse a system that cannot take part."""
        cls = SYSTEMS.load(system)
        if self.labels or self.task == "forecast":
            check_task(system, self.task)
        elif task_name(system) != self.task:
            raise InputError(f"{system} is for {task_name(system)}, and a race is {self.between}", hint="leave it out")
        elif self.task == "language" and not cls(cls.Config(vocabulary=3)).traits.steps:
            what = f"{system} sees both sides of a word, so its figure cannot be compared"
            raise InputError(what, hint="leave it out")

    def figures(self, run: Run) -> dict[str, Any]:
        """What one run adds to the table."""
        figures = run.config["figures"]
        held = figures["valid"]  # tags that are no entities have no precision of their own
        measured = {measure.key: measure.of(held) if measure.key in held else None for measure in self.measures}
        measured |= {name: figures[name] for name in ("seconds", "parameters", "bytes", "tokens")}
        return measured | ({"seed": int(run.settings["seed"])} if self.labels else {})


ACCURACY, F1 = Measure("accuracy", "accuracy"), Measure("f1", "F1")
MEASURES: dict[str, tuple[Measure, ...]] = {
    "classify": (ACCURACY, F1, Measure("matthews", "Matthews")),
    "pair": (ACCURACY, F1, Measure("matthews", "Matthews")),
    "regress": (Measure("pearson", "Pearson"), Measure("spearman", "Spearman"), Measure("mse", "squared error")),
    "choose": (ACCURACY,),
    "tag": (F1, Measure("precision", "precision"), Measure("recall", "recall"), ACCURACY),
    "answer": (Measure("f1", "F1", ".1f"), Measure("exact_match", "exact match", ".1f")),
}
"""Of tasks that label; each begins with the measure that also chooses the weights of a run."""
LANGUAGE = Discipline(
    "lm",
    "language",
    (Measure("bits_per_byte", "bits per byte"), Measure("perplexity", "perplexity per token", ".1f", "token")),
    ("ngram", "window", "rnn", "gru", "lstm", "gpt"),
    "between language models",
    lower=True,
)
TRANSLATION = Discipline(
    "translate",
    "translation",
    (Measure("bleu", "BLEU", ".2f"), Measure("chrf", "chrF", ".2f"), Measure("bits_per_byte", "bits per byte")),
    ("seq2seq", "transformer"),
    "between systems that translate",
)
FORECAST = Discipline(
    "forecast",
    "forecast",
    (
        Measure("mase", "MASE"),
        Measure("mse", "squared error", ".5g"),
        Measure("mae", "absolute error", ".5g"),
        Measure("pinball", "pinball", ".5g"),
    ),
    ("last", "seasonal", "linear", "lstm", "gpt"),
    "between systems that forecast",
    lower=True,
)
DISCIPLINES: dict[str, Discipline] = {
    "lm": LANGUAGE,
    "translate": TRANSLATION,
    "forecast": FORECAST,
    **{
        name: Discipline(name, name, MEASURES[name], ("bert", "lstm", "gpt"), "between systems that label")
        for name in LABEL_KINDS
    },
}


def find_discipline(task: str) -> Discipline:
    """The race that ``--task`` names."""
    if task not in DISCIPLINES:
        raise unknown_name("task", task, DISCIPLINES)
    return DISCIPLINES[task]
