"""Where the data of each task comes from, as the table ``data`` of run.toml has it."""

from __future__ import annotations

from dataclasses import dataclass

from ensue.core.settings import check, check_below_one


@dataclass(frozen=True, kw_only=True, slots=True)
class DataSettings:
    """Where the text comes from, under ``data.`` in run.toml."""

    files: tuple[str, ...] = ()
    """The text to learn from: files, folders, - for standard input, or a built-in corpus."""
    valid: tuple[str, ...] = ()
    """The text to validate with; where there is none, the end of the text is held out."""
    field: str = ""
    """Which field of a JSONL file holds the text; empty means text."""
    columns: str = ""
    """Which column of a table holds the text, e.g. text=2; then each line's text is a document. Empty: no table."""
    bad_lines: str = "error"
    """What a table's line with too few columns is: an error, or left out with a note (skip)."""
    holdout: float = 0.1
    """The share of the text that is held out where there is no validation text; 0 holds out nothing."""
    direction: str = "forward"
    """forward, or backward: the text is read from its end, so each word is predicted from those after it."""
    eval_tokens: int = 0
    """How many tokens of the validation text are looked at during training, all of them at its end; 0 means 200,000, or
    fewer where the budget is short."""
    hash: str = ""
    """Of the tokens trained on; a resumed run must find the same."""

    def __post_init__(self) -> None:
        check_below_one(self, "holdout")
        check(self, "bad_lines", self.bad_lines in ("error", "skip"), "error or skip")
        check(self, "direction", self.direction in ("forward", "backward"), "forward or backward")
        check(self, "eval_tokens", self.eval_tokens >= 0, "0 or more")


@dataclass(frozen=True, kw_only=True, slots=True)
class PairSettings:
    """Where sentence pairs come from, under ``data.`` in run.toml."""

    files: tuple[str, ...] = ()
    """The pairs to learn from: two parallel files, a table, a JSONL file, - for standard input, or the corpus dates."""
    valid: tuple[str, ...] = ()
    """The pairs to validate with; where there are none, some are held out."""
    columns: str = ""
    """Which columns of a table or fields of JSONL are meant, e.g. source=2,target=1; empty means as they are found."""
    holdout: float = 0.1
    """The share of the pairs that is held out where there are none to validate with (at most 2,000); 0: none."""
    eval_pairs: int = 0
    """How many validation pairs are looked at during training; 0 means 1,000."""
    hash: str = ""
    """Of the tokens trained on; a resumed run must find the same."""

    def __post_init__(self) -> None:
        check_below_one(self, "holdout")
        check(self, "eval_pairs", self.eval_pairs >= 0, "0 or more")


@dataclass(frozen=True, kw_only=True, slots=True)
class DocumentSettings:
    """Where documents come from, under ``data.`` in run.toml."""

    files: tuple[str, ...] = ()
    """The text to learn from: files, folders, - for standard input, or a built-in corpus."""
    valid: tuple[str, ...] = ()
    """The text to validate with; where there is none, some documents are held out."""
    field: str = ""
    """Which field of a JSONL file holds the text; empty means text."""
    holdout: float = 0.05
    """The share of the documents that is held out where there is no validation text; 0 holds out nothing."""
    eval_rows: int = 0
    """How many rows of the validation text are looked at during training; 0 means 200."""
    hash: str = ""
    """Of the tokens trained on; a resumed run must find the same."""

    def __post_init__(self) -> None:
        check_below_one(self, "holdout")
        check(self, "eval_rows", self.eval_rows >= 0, "0 or more")


@dataclass(frozen=True, kw_only=True, slots=True)
class SentenceSettings:
    """Where sentences come from, under ``data.`` in run.toml."""

    files: tuple[str, ...] = ()
    """The text to learn from: files, folders, - for standard input, or a built-in corpus."""
    valid: tuple[str, ...] = ()
    """The text to validate with; where there is none, some sentences are held out."""
    field: str = ""
    """Which field of a JSONL file holds the text; empty means text."""
    holdout: float = 0.05
    """The share of the sentences that is held out where there is no validation text; 0 holds out nothing."""
    length: int = 100
    """The most words of a row; a longer sentence is cut into several."""
    eval_rows: int = 0
    """How many sentences of the validation text are looked at during training; 0 means 500."""
    hash: str = ""
    """Of the words trained on; a resumed run must find the same."""

    def __post_init__(self) -> None:
        check_below_one(self, "holdout")
        check(self, "length", self.length >= 2, "at least 2")
        check(self, "eval_rows", self.eval_rows >= 0, "0 or more")


@dataclass(frozen=True, kw_only=True, slots=True)
class LabelSettings:
    """Where labelled examples come from, under ``data.`` in run.toml."""

    files: tuple[str, ...] = ()
    """The examples to learn from: tables, JSONL, CoNLL columns or SQuAD JSON, as the task has them."""
    valid: tuple[str, ...] = ()
    """The examples to validate with; where there are none, some are held out."""
    columns: str = ""
    """Which columns or fields are meant, e.g. text=2,label=1; empty means as they are found."""
    holdout: float = 0.1
    """The share of the examples that is held out where there are none to validate with (at most 2,000); 0: none."""
    bad_lines: str = "error"
    """What a line with too few columns is, or where one is scored an unknown label: an error, or left out with a
    note (skip)."""
    limit: int = 0
    """Learn from at most so many examples, drawn evenly over the labels; 0 means all."""
    labels: tuple[str, ...] = ()
    """The labels in their order; empty means those of the examples, in the order of the alphabet or of numbers."""
    length: int = 0
    """The most tokens of a row, marks included; longer texts are cut. 0 means the model's context, at most 256."""
    stride: int = 0
    """How many tokens the windows of a long passage have in common (answer); 0 means a third of the length."""
    eval_examples: int = 0
    """How many validation examples are looked at during training; 0 means 2,000, or fewer where the budget is short."""
    hash: str = ""
    """Of the tokens trained on; a resumed run must find the same."""

    def __post_init__(self) -> None:
        check_below_one(self, "holdout")
        check(self, "bad_lines", self.bad_lines in ("error", "skip"), "error or skip")
        for name in ("limit", "length", "stride", "eval_examples"):
            check(self, name, getattr(self, name) >= 0, "0 or more")
        check(self, "labels", len(set(self.labels)) == len(self.labels), "different from each other")


@dataclass(frozen=True, kw_only=True, slots=True)
class SeriesSettings:
    """Where series come from, under ``data.`` in run.toml."""

    files: tuple[str, ...] = ()
    """The series to learn from: tables of numbers, a step a line, - for standard input, or the corpus waves."""
    valid: tuple[str, ...] = ()
    """Series to hold out; where there are none, the end of each series is held out."""
    target: tuple[str, ...] = ()
    """Which columns are forecast, by name or number; empty means all that hold numbers."""
    covariates: tuple[str, ...] = ()
    """Which columns are read beside the targets; empty means none, all means all others that hold numbers."""
    date: str = ""
    """The column of dates; empty means as it is found, none means that there is none."""
    id: str = ""
    """The column that says of which series a row is; empty means that a file is one series."""
    order: str = "error"
    """What dates out of order are: an error, or sorted (sort)."""
    fill: str = "forward"
    """How gaps are filled before they are read: forward, or interpolate (which looks ahead). No loss counts them."""
    scale: str = "standard"
    """How numbers are scaled: standard (mean 0 and deviation 1 of each column on the past to learn from), or none."""
    centre: str = "last"
    """What is subtracted from each window and added to its forecast: its last value, its mean, or none."""
    holdout: float = 0.2
    """The share of each series, at its end, that is held out and scored; 0 holds out nothing."""
    choose: float = 0.1
    """The share before it that chooses among weights and says how wide bands are; 0 means none."""
    eval_windows: int = 0
    """How many windows of that share are looked at during training; 0 means 2,000."""
    hash: str = ""
    """Of the numbers trained on; a resumed run must find the same."""

    def __post_init__(self) -> None:
        check_below_one(self, "holdout", "choose")
        check(self, "choose", self.holdout + self.choose < 1, "less than what data.holdout leaves")
        check(self, "order", self.order in ("error", "sort"), "error or sort")
        check(self, "fill", self.fill in ("forward", "interpolate"), "forward or interpolate")
        check(self, "scale", self.scale in ("standard", "none"), "standard or none")
        check(self, "centre", self.centre in ("last", "mean", "none"), "last, mean or none")
        check(self, "eval_windows", self.eval_windows >= 0, "0 or more")


@dataclass(frozen=True, kw_only=True, slots=True)
class WordSettings:
    """Where the text that words are learnt from comes from, under ``data.`` in run.toml."""

    files: tuple[str, ...] = ()
    """The text to learn from: files, folders, - for standard input, or a built-in corpus."""
    field: str = ""
    """Which field of a JSONL file holds the text; empty means text."""
    unit: str = "line"
    """What a window never reaches out of: a line, or a paragraph (between blank lines)."""
    hash: str = ""
    """Of the words trained on; a resumed run must find the same."""

    def __post_init__(self) -> None:
        check(self, "unit", self.unit in ("line", "paragraph"), "line or paragraph")
