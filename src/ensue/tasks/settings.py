"""The settings of a run, as run.toml holds them; ``ensue.runs.settings_resolution`` resolves them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ensue.core.run_folder import LAST_LINE
from ensue.core.settings import check, toml_lines

VOCABULARIES = ("vocabulary", "source_vocabulary")
"""Settings of models that follow from the tokenizers."""
TABLES = ("train", "data", "tokenizer", "head", "features", "distil")
"""The tables of run.toml, in their order; a run has those of its task."""


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
    model_config: type[Any]
    """The class of the model's settings."""
    model: dict[str, Any]
    """Their values."""
    train: Any
    """The dataclass of this table and of the others is the task's; see ``TaskSpec.settings``."""
    data: Any
    tokenizer: Any = None
    head: Any = None
    """HeadConfig, for tasks that label."""
    features: Any = None
    """FeatureConfig, if the layers of another run are read too."""
    distil: Any = None
    """DistilSettings, if there is a teacher."""

    @property
    def tables(self) -> list[str]:
        """The tables that this run has."""
        return [name for name in TABLES if getattr(self, name) is not None]

    def toml(self) -> str:
        """The text of run.toml: each setting with its meaning, the model's first, the others in tables."""
        config = self.model_config(**self.model)
        lines = [*toml_lines(self.run), "", "# The model", *toml_lines(config)]
        for table in self.tables:
            lines += ["", f"[{table}]", *toml_lines(getattr(self, table))]
        return "\n".join([*lines, "", LAST_LINE]) + "\n"
