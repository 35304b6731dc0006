"""The settings of a run, as run.toml holds them; ``ensue.runs.settings_resolution`` resolves them."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any

from ensue.core.run_folder import LAST_LINE
from ensue.core.settings import check, check_below_one, toml_lines

VOCABULARIES = ("vocabulary", "source_vocabulary")
"""Settings of models that follow from the tokenizers."""
TABLES = ("train", "data", "tokenizer", "head", "features", "distil")
"""The tables of run.toml, in their order; a run has those of its task."""


@dataclass(frozen=True, kw_only=True, slots=True)
class DataSettings:
    """Settings of all data that has a validation part, under ``data.`` in run.toml; each task adds its own."""

    files: tuple[str, ...] = ()
    """The text to learn from: files, folders, - for standard input, or a built-in corpus."""
    valid: tuple[str, ...] = ()
    """Validation data, in the same formats; if there is none, a part of the training data is held out."""
    hash: str = ""
    """Hash of the data; a resumed run must read the same."""

    def __post_init__(self) -> None:
        if hasattr(self, "holdout"):
            check_below_one(self, "holdout")
        for name in (field.name for field in fields(self)):
            if name.startswith("eval_"):
                check(self, name, getattr(self, name) >= 0, "0 or more")
        check(self, "bad_lines", getattr(self, "bad_lines", "error") in ("error", "skip"), "error or skip")


@dataclass(frozen=True, kw_only=True, slots=True)
class TokenizerSettings:
    """How text becomes tokens, under ``tokenizer.`` in run.toml."""

    kind: str = "auto"
    """byte, char, word, bpe, wordpiece, unigram, a path to a tokenizer, or auto: char for a small text, else bpe."""
    vocabulary: int = 0
    """The most tokens; 0 means what suits the tokenizer and the size of the text."""
    min_count: int = 0
    """Rarer items are unknown (word, char) or not merged (bpe, wordpiece, unigram); 0 means the tokenizer's default."""

    def __post_init__(self) -> None:
        check(self, "vocabulary", self.vocabulary >= 0, "0 or more")
        check(self, "min_count", self.min_count >= 0, "0 or more")


@dataclass(frozen=True, kw_only=True, slots=True)
class RunSettings:
    """The first settings of run.toml."""

    system: str
    """The system that was trained."""
    task: str = ""
    """The task."""
    preset: str = "default"
    """The preset that its settings start from."""
    seed: int = 0
    """The seed of all random numbers."""
    device: str = "auto"
    """cpu, cuda, another device of PyTorch, or auto: a GPU if there is one."""
    compile: bool = False
    """Compile the model with torch.compile before training."""
    begin_with: str = ""
    """A run whose tokenizers and weights this one starts from; empty means random weights."""
    embeddings: str = ""
    """A file of vectors, or a run with some, that word embeddings start from; empty means random embeddings."""
    teacher: str = ""
    """A labelling run whose outputs this one learns; empty means that it learns from labels only."""
    command: str = ""
    """The command that started this run."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Settings:
    """All settings of run.toml."""

    run: RunSettings
    model_config: type[Any]
    """The class of the model's settings."""
    model: dict[str, Any]
    """Their values."""
    train: Any
    """The dataclass of this table and of the others is the task's; see ``Task.settings``."""
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
