"""Language modelling: text in, a model of what comes next out.

It joins the reader and tokenizer, a model, the objective and the measure; the loop and the models know nothing of each
other.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

from ensue.core.errors import InputError
from ensue.core.events import Abandoned, Report, report_notes, silent
from ensue.core.run_folder import RunFolder
from ensue.core.seeds import derive, isolated_rng
from ensue.core.settings import check, check_below_one
from ensue.data.batches import StreamBatches, WindowBatches
from ensue.data.dates import DATES
from ensue.data.reading import measure_text, table_text_source
from ensue.data.sources import Slice, Source, is_builtin
from ensue.data.splitting import hold_out
from ensue.data.tokenizers.protocol import Tokenizer
from ensue.data.tokenizers.registry import fit_tokenizer, load_tokenizer, resolve_tokenizer
from ensue.data.tokens import TokenizedText, tokenize
from ensue.data.waves import WAVES
from ensue.measure import example_losses
from ensue.measure.language import LanguageScore, language_score, stream_count, total_log_prob
from ensue.models.language import LanguageModel
from ensue.models.layer_depths import body_depths, layers_of
from ensue.models.table import SYSTEMS
from ensue.search.sampling import Sampling, sample
from ensue.tasks.machine import fill_common
from ensue.tasks.settings import Settings, TokenizerSettings
from ensue.tasks.spec import Measure, RaceSpec, TaskSpec, TrainingOptions, race_heading
from ensue.tasks.table import systems_for
from ensue.train.layer_unfreezing import LayerUnfreezing
from ensue.train.objectives import OBJECTIVES, Objective
from ensue.train.ranks import SINGLE, Evaluate, Ranks
from ensue.train.settings import TextTrainSettings

MOST_EVAL_TOKENS = 200_000
"""Tokens that an evaluation during training reads at most."""
SMALL_TEXT = 150_000
"""Bytes below which a text is tokenised by characters where nothing else is said."""
TRAIN_LENGTH = 64
"""Tokens in a training row, for models whose context has no end."""


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


@dataclass(frozen=True)
class Corpus:
    """A text to learn from and one to validate with, as tokens."""

    tokenizer: Tokenizer
    train: TokenizedText
    valid: TokenizedText | None

    @property
    def hash(self) -> str:
        """Of both texts as tokens."""
        return self.train.hash[:32] + (self.valid.hash[:32] if self.valid else "")


def check_text(sources: Sequence[Source]) -> None:
    """Refuse the built-in corpora of pairs and of series, unless a file has its name."""
    if DATES in sources and not Path(DATES).exists():
        hint = f"it is for systems that translate: {', '.join(systems_for('translation'))}"
        raise InputError("the corpus holds sentence pairs, not text", where=DATES, hint=hint)
    if WAVES in sources and not Path(WAVES).exists():
        hint = "it is to forecast: ensue fit forecast waves --model lstm"
        raise InputError("the corpus holds series, not text", where=WAVES, hint=hint)


def text_sources(files: Sequence[Source], columns: str, skip: bool = False) -> list[Source]:
    """Files as text, or with ``columns`` as tables that hold a text in each line."""
    if not columns:
        return list(files)
    return [
        file if isinstance(file, Slice) or is_builtin(file) else table_text_source(file, columns, skip)
        for file in files
    ]


def choose_tokenizer(
    settings: TokenizerSettings, sources: Sequence[Source], field: str | None, notes: list[str] | None = None
) -> Tokenizer:
    """The tokenizer that the settings name, fitted to the training text where it is not given ready."""
    size = measure_text(sources, field)[1]
    kind = settings.kind
    if kind == "auto":
        kind = "char" if size < SMALL_TEXT else "bpe"
    found = resolve_tokenizer(kind)
    if not isinstance(found, str):
        return found
    vocabulary = settings.vocabulary or (
        2048 if size < 8_000_000 and found in ("bpe", "wordpiece", "unigram") else None
    )
    least = settings.min_count or None
    return fit_tokenizer(found, sources, vocabulary=vocabulary, min_count=least, field=field, size=size, notes=notes)


def prepare(
    data: DataSettings,
    settings: TokenizerSettings,
    tokenizer: Tokenizer | None = None,
    report: Report = silent,
) -> Corpus:
    """Read and tokenise the text, holding out its end where no validation text is given."""
    check_text([*data.files, *data.valid])
    field = data.field or None
    train, valid = (text_sources(files, data.columns, data.bad_lines == "skip") for files in (data.files, data.valid))
    if not valid and data.holdout and tuple(train) != ("hello",):  # the lecture's five letters are too few to split
        train, valid = hold_out(train, data.holdout, field=field)
    notes: list[str] = []
    if tokenizer is None:
        report("phase", {"name": "fitting the tokenizer"})
        tokenizer = choose_tokenizer(settings, train, field, notes)
        for note in notes:
            report("note", {"text": note})
        notes.clear()

    def read(sources: Sequence[Source], name: str) -> TokenizedText:
        report("phase", {"name": f"tokenising {name}"})
        text = tokenize(
            sources,
            tokenizer,
            field=field,
            report=report,
            notes=notes,
        )
        return text if data.direction == "forward" else replace(text, tokens=text.tokens[::-1])

    corpus = Corpus(tokenizer, read(train, "the text"), read(valid, "the validation text") if valid else None)
    report_notes(notes, "and {} more files were skipped", report)
    if not any(len(np.unique(part)) > 2 for part in _parts(corpus.train.tokens)):  # one token and the end mark
        what = "the text has a vocabulary of one: there is nothing to predict"
        raise InputError(what, where=", ".join(map(str, data.files)), hint="give another text or tokenizer")
    return corpus


def _parts(tokens: np.ndarray) -> Iterator[np.ndarray]:
    """The tokens a part at a time, the first part small."""
    yield tokens[:1000]
    for at in range(0, len(tokens), 1 << 20):
        yield tokens[at : at + (1 << 20)]


def read_corpus(settings: Settings, folder: RunFolder | None, report: Report) -> Corpus:
    """The run's texts as tokens, by the tokenizer in its folder where there is one already."""
    known = load_tokenizer(folder.tokenizer) if folder is not None and folder.tokenizer.exists() else None
    return prepare(settings.data, settings.tokenizer, known, report)


def objective(settings: Settings, model: LanguageModel, corpus: Corpus) -> Objective:
    """What training asks of the model."""
    return OBJECTIVES[getattr(model, "objective", "next")]


def complete_settings(settings: Settings, model: LanguageModel, corpus: Corpus) -> Settings:
    """The settings with everything that was left to us filled in, so that run.toml hides nothing."""
    train, context = settings.train, model.traits.context
    length = train.length or (context if model.cuts == "windows" and context else TRAIN_LENGTH)
    kind = model.cuts if train.cut == "auto" else train.cut
    if train.layer_decay < 1:
        layers_of(model)  # a model without layers is refused
    return fill_common(replace(settings, train=replace(train, length=length, cut=kind)), corpus.tokenizer)


def options(settings: Settings, model: Any, corpus: Any) -> TrainingOptions:
    """All layers learn alike, or more slowly the further they are from the output; the loss chooses."""
    decay = settings.train.layer_decay
    return TrainingOptions(LayerUnfreezing(body_depths(model, writes=True), decay) if decay < 1 else None)


def batches(settings: Settings, model: LanguageModel, corpus: Corpus) -> StreamBatches | WindowBatches:
    """The training text as batches: streams where there is a state to carry on, else random windows."""
    train, context = settings.train, model.traits.context
    if train.cut == "streams" and model.cuts == "windows":
        what = f"train.cut = 'streams' carries a state on, but {settings.run.system} has none to carry"
        raise InputError(what, hint="use train.cut=windows")
    if model.cuts == "windows" and context and train.length > context:
        raise InputError(f"train.length = {train.length} is more than context = {context}", hint="make it smaller")
    kind = StreamBatches if train.cut == "streams" else WindowBatches
    return kind(corpus.train.tokens, train.batch, train.length, derive(settings.run.seed, "data"))


def evaluator(settings: Settings, model: LanguageModel, corpus: Corpus) -> Evaluate | None:
    """What the loop calls to see how the model does on held-out text."""
    valid = corpus.valid
    if valid is None or len(valid) < 2:
        return None
    tokens = valid.tokens[: settings.data.eval_tokens + 1]

    def evaluate(stop: Callable[[], bool], ranks: Ranks = SINGLE) -> dict[str, float]:
        def heed(kind: str, values: dict[str, Any]) -> None:
            if stop():
                raise Abandoned

        return {"valid_loss": -total_log_prob(model, tokens, report=heed, ranks=ranks) / (len(tokens) - 1)}

    return evaluate


def score_text(model: LanguageModel, text: TokenizedText, streams: int = 0, report: Report = silent) -> LanguageScore:
    """All figures of a model on a text."""
    if len(text) < 2:
        raise InputError("the text has no tokens to score")
    total = total_log_prob(model, text.tokens, streams, report)
    return language_score(
        -total,
        tokens=len(text) - 1,
        words=text.words,
        size=text.bytes,
        unknown=text.unknown,
        surcharge=text.surcharge,
        streams=streams or stream_count(len(text) - 1),
        pseudo=not model.traits.steps,
    )


def prompt_tokens(tokenizer: Tokenizer, text: str, direction: str = "forward") -> torch.Tensor:
    """The tokens a model reads before it goes on: the end mark, then the prompt."""
    ids = tokenizer.encode(text)
    ids = ids if direction == "forward" else ids[::-1]
    return torch.from_numpy(np.concatenate([[tokenizer.end], ids.astype(np.int64)]))


def sampler(settings: Settings, model: LanguageModel, corpus: Corpus, device: torch.device) -> Callable[[], str] | None:
    """What the loop calls to show what the model writes as it learns."""
    if not model.traits.steps:
        return None
    tokenizer, seed = corpus.tokenizer, settings.run.seed

    def write() -> str:
        with isolated_rng(seed):
            drawn = sample(model, prompt_tokens(tokenizer, "").to(device), Sampling(tokens=60, seed=seed))
        return tokenizer.decode(drawn[0].tokens if settings.data.direction == "forward" else drawn[0].tokens[::-1])

    return write


def final_figures(
    settings: Settings, model: LanguageModel, corpus: Corpus, folder: RunFolder, report: Report
) -> dict[str, Any] | None:
    """How the finished model does on all of the held-out text."""
    if corpus.valid is None or len(corpus.valid) < 2:
        return None
    report("phase", {"name": "scoring the validation text"})
    score = score_text(model, corpus.valid, report=report)
    report("result", {"bits_per_byte": score.bits_per_byte, "perplexity": score.perplexity["token"]})
    return asdict(score)


def describe_corpus(corpus: Corpus) -> dict[str, Any]:
    """Facts of a corpus for the model card."""
    return {
        "tokenizer": corpus.tokenizer.kind,
        "vocabulary": corpus.tokenizer.size,
        "train_tokens": len(corpus.train) - 1,
        "train_bytes": corpus.train.bytes,
        "valid_tokens": len(corpus.valid) - 1 if corpus.valid else 0,
        "valid_bytes": corpus.valid.bytes if corpus.valid else 0,
    }


def shorten(data: DataSettings, share: float) -> DataSettings:
    """Evaluations of fewer tokens if the budget is short."""
    return data if data.eval_tokens else replace(data, eval_tokens=max(2_000, int(MOST_EVAL_TOKENS * share)))


def race_facts(corpus: Corpus, facts: dict[str, Any]) -> dict[str, Any]:
    """The description of a corpus, and the bits that its unknown words cost."""
    return {**facts, "valid_surcharge_bits": corpus.valid.surcharge if corpus.valid else 0.0}


def not_comparable(system: str) -> str:
    """Why a system cannot race: a model that sees the words to predict gives no probability of a text."""
    cls = SYSTEMS.load(system)
    if cls(cls.Config(vocabulary=3)).traits.steps:
        return ""
    return f"{system} sees both sides of a word, so its figure cannot be compared"


TASK = TaskSpec(
    name="language",
    data="text",
    settings={"train": TextTrainSettings, "data": DataSettings, "tokenizer": TokenizerSettings},
    run="ensue.runs.language:LanguageRun",
    shorten=shorten,
    read_corpus=read_corpus,
    describe_corpus=describe_corpus,
    complete_settings=complete_settings,
    batches=batches,
    objective=objective,
    example_loss=example_losses.language_loss,
    evaluator=evaluator,
    options=options,
    sampler=sampler,
    final_figures=final_figures,
    short_evaluation="data.eval_tokens=2000",
    race=RaceSpec(
        name="lm",
        measures=(
            Measure("bits_per_byte", "bits per byte"),
            Measure("perplexity", "perplexity per token", ".1f", "token"),
        ),
        systems=("ngram", "window", "rnn", "gru", "lstm", "gpt"),
        between="between language models",
        lower=True,
        heading=partial(race_heading, unit="byte"),
        facts=race_facts,
        refusal=not_comparable,
    ),
)
