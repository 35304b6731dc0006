"""All settings of a run, as run.toml has them; see ``ensue.tasks.settings_resolution`` for how they come together."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ensue.core.run_folder import CLOSING
from ensue.core.settings import check, toml_lines
from ensue.models.features import FeatureConfig
from ensue.models.labelled import HeadConfig
from ensue.models.table import model_class
from ensue.tasks.data_settings import (
    DataSettings,
    DocumentSettings,
    LabelSettings,
    PairSettings,
    SentenceSettings,
    SeriesSettings,
    WordSettings,
)
from ensue.train.settings import (
    ContextTrainSettings,
    ForecastTrainSettings,
    LabelTrainSettings,
    MaskedTrainSettings,
    PairTrainSettings,
    TextTrainSettings,
    WordTrainSettings,
)

VOCABULARIES = ("vocabulary", "source_vocabulary")
"""Settings of models that the tokenizers say."""


@dataclass(frozen=True, kw_only=True, slots=True)
class DistilSettings:
    """How a student learns from its teacher, under ``distil.`` in run.toml."""

    files: tuple[str, ...] = ()
    """The texts that the teacher answers about: one a line, or tables whose labels are not looked at."""
    columns: str = ""
    """Which of their columns or fields are meant, e.g. text=2; empty means as they are found."""
    temperature: float = 2.0
    """What logits are divided by before they become probabilities: above 1, unlikely labels count for more."""
    labels: float = 0.5
    """The weight of the usual loss, beside that of the teacher's answers, for examples that have a label."""
    hidden: float = 0.0
    """The weight of the difference between hidden states, an encoder's from those of another; 0 means none."""

    def __post_init__(self) -> None:
        check(self, "temperature", 0 < self.temperature < float("inf"), "above 0")
        for name in ("labels", "hidden"):
            check(self, name, 0 <= getattr(self, name) < float("inf"), "0 or more")


@dataclass(frozen=True, kw_only=True, slots=True)
class TokenizerSettings:
    """How text becomes tokens, under ``tokenizer.`` in run.toml."""

    kind: str = "auto"
    """byte, char, word, bpe, wordpiece, unigram, a path to a tokenizer, or auto: char for a small text, else bpe."""
    vocabulary: int = 0
    """At most so many tokens; 0 means what suits the tokenizer and the size of the text."""
    min_count: int = 0
    """What is rarer is unknown (word, char) or not joined (bpe, wordpiece, unigram); 0 means the tokenizer's own."""

    def __post_init__(self) -> None:
        check(self, "vocabulary", self.vocabulary >= 0, "0 or more")
        check(self, "min_count", self.min_count >= 0, "0 or more")


@dataclass(frozen=True, kw_only=True, slots=True)
class PairTokenizerSettings(TokenizerSettings):
    """How pairs become tokens, under ``tokenizer.`` in run.toml."""

    joint: bool = True
    """One vocabulary for both languages; without it, one each."""


@dataclass(frozen=True, kw_only=True, slots=True)
class MarkedTokenizerSettings(TokenizerSettings):
    """How text becomes tokens for an encoder, under ``tokenizer.`` in run.toml."""

    lowercase: bool = True
    """Whether capitals are read as small letters, accents left out (wordpiece)."""


@dataclass(frozen=True, kw_only=True, slots=True)
class VocabularySettings:
    """Which words of a text get a vector, under ``tokenizer.`` in run.toml."""

    kind: str = "word"
    """word; vectors are for whole words."""
    split: str = "letters"
    """What a word is: letters and digits with apostrophes between (letters), or what stands between white space
    (space)."""
    lowercase: bool = True
    """Whether capitals are read as small letters."""
    min_count: int = 5
    """Words that occur less often get no vector and are passed over."""
    vocabulary: int = 0
    """At most so many words, the commonest; 0 means all. What there was is written back here."""

    def __post_init__(self) -> None:
        check(self, "kind", self.kind == "word" or "/" in self.kind, "word")
        check(self, "split", self.split in ("letters", "space"), "letters or space")
        check(self, "min_count", self.min_count >= 1, "at least 1")
        check(self, "vocabulary", self.vocabulary >= 0, "0 or more")


@dataclass(frozen=True, kw_only=True, slots=True)
class RunSettings:
    """What stands first in run.toml."""

    system: str
    """The system that was trained."""
    task: str = ""
    """What it was trained to do."""
    preset: str = "default"
    """The preset its settings began with."""
    seed: int = 0
    """Where all random numbers come from."""
    device: str = "auto"
    """cpu, cuda, another name torch knows, or auto: a GPU where there is one."""
    compile: bool = False
    """Compile the model with torch.compile before training."""
    begin_with: str = ""
    """A run whose tokenizers and weights this one begins with; empty means from nothing."""
    embeddings: str = ""
    """A file of vectors, or a run with some, that the embeddings of words begin with; empty means they begin random."""
    teacher: str = ""
    """A run that labels, whose answers this one learns; empty means it learns from labels alone."""
    command: str = ""
    """What was typed to begin this run."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Settings:
    """Everything that run.toml says."""

    run: RunSettings
    model: dict[str, Any]
    train: Any
    """TextTrainSettings, PairTrainSettings …, as the task's tables say; so with the other tables."""
    data: Any
    tokenizer: Any = None
    head: Any = None
    """HeadConfig, for tasks that label."""
    distil: Any = None
    """DistilSettings, where there is a teacher."""
    features: Any = None
    """FeatureConfig, where another run's layers are read too."""

    @property
    def tables(self) -> list[str]:
        """The tables that this run has."""
        return [name for name in TABLES[self.run.task] if getattr(self, name) is not None]

    def toml(self) -> str:
        """The text of run.toml: every setting with its meaning; the model's stand at the top, the rest in tables."""
        config = model_class(self.run.system, self.run.task).Config(**self.model)
        lines = [*toml_lines(self.run), "", "# The model", *toml_lines(config)]
        for table in self.tables:
            lines += ["", f"[{table}]", *toml_lines(getattr(self, table))]
        return "\n".join([*lines, "", CLOSING]) + "\n"


LABELLED = {
    "train": LabelTrainSettings,
    "data": LabelSettings,
    "tokenizer": MarkedTokenizerSettings,
    "head": HeadConfig,
    "features": FeatureConfig,
    "distil": DistilSettings,
}
LABELS = ("classify", "pair", "regress", "choose", "tag", "answer")
"""The tasks that label; any system that reads can be trained for them."""
TABLES: dict[str, dict[str, type[Any]]] = {
    "language": {"train": TextTrainSettings, "data": DataSettings, "tokenizer": TokenizerSettings},
    "translation": {"train": PairTrainSettings, "data": PairSettings, "tokenizer": PairTokenizerSettings},
    "masked": {"train": MaskedTrainSettings, "data": DocumentSettings, "tokenizer": MarkedTokenizerSettings},
    "contexts": {"train": ContextTrainSettings, "data": SentenceSettings, "tokenizer": TokenizerSettings},
    "words": {"train": WordTrainSettings, "data": WordSettings, "tokenizer": VocabularySettings},
    "forecast": {"train": ForecastTrainSettings, "data": SeriesSettings},
    **dict.fromkeys(LABELS, LABELLED),
}
"""The tables of run.toml, by task."""
MATERIAL = {
    "language": "text",
    "translation": "sentence pairs",
    "masked": "documents",
    "contexts": "sentences",
    "words": "the words of a text",
    "forecast": "series",
    **dict.fromkeys(LABELS, "labelled examples"),
}
"""What each task learns from."""
