"""Language modelling: from text to a model of the next token."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

from ensue.core.errors import InputError
from ensue.core.events import Report, abandon_when, report_notes, silent
from ensue.core.run_folder import RunFolder
from ensue.core.seeds import derive, isolated_rng
from ensue.core.settings import check
from ensue.core.table import load_target
from ensue.data.batches import StreamBatches, WindowBatches
from ensue.data.dates import DATES
from ensue.data.reading import measure_text, table_text_source
from ensue.data.sources import Slice, Source, is_builtin
from ensue.data.splitting import hold_out
from ensue.data.tokenizers.protocol import Tokenizer, first_token
from ensue.data.tokenizers.registry import fit_tokenizer, resolve_tokenizer
from ensue.data.tokens import TokenizedText, tokenize
from ensue.data.waves import WAVES
from ensue.measure import example_losses
from ensue.measure.language import LanguageScore, language_score, stream_count, total_log_prob
from ensue.models.language import LanguageModel
from ensue.models.layer_depths import layers_of, parameter_depths
from ensue.models.table import SYSTEMS
from ensue.nn.adapters import adapt, adaptable, merge
from ensue.search.sampling import Sampling, sample
from ensue.tasks.settings import DataSettings, Settings, TokenizerSettings
from ensue.tasks.spec import Corpus, Measure, RaceSpec, Task, TrainingOptions, race_heading, saved_tokenizer
from ensue.tasks.table import systems_for
from ensue.train.layer_unfreezing import LayerUnfreezing
from ensue.train.objectives import OBJECTIVES, Objective
from ensue.train.ranks import SINGLE, Evaluate, Ranks
from ensue.train.settings import NGramTrainSettings, TextTrainSettings

MOST_EVAL_TOKENS = 200_000
"""Tokens of an evaluation during training, at most."""
SMALL_TEXT = 150_000
"""Smaller texts, in bytes, are tokenised by characters where no tokenizer is named."""
TRAIN_LENGTH = 64
"""Tokens of a training row, for models without a limit of context."""
ADAPTER_LENGTH = 256
"""Tokens of a training row, at most, where adapters are trained: published models have a context of thousands."""
ADAPTER_TRAINING = {"train.lr": 2e-3, "train.batch": 2, "train.weight_decay": 0.0}
"""Training settings of adapters where others are not typed."""


@dataclass(frozen=True, kw_only=True, slots=True)
class TextSettings(DataSettings):
    """Where the text comes from, under ``data.`` in run.toml."""

    field: str = ""
    """The field of a JSONL file that has the text; empty means text."""
    columns: str = ""
    """The column of a table that has the text, e.g. text=2; each line is then a document. Empty means no table."""
    bad_lines: str = "error"
    """What to do with a table's line that has too few columns: error, or skip (with a note)."""
    holdout: float = 0.1
    """The share of the text, at its end, to hold out if there is no validation text; 0 means none."""
    direction: str = "forward"
    """forward, or backward: the text is read from its end, so each word is predicted from those after it."""
    eval_tokens: int = 0
    """Validation tokens of an evaluation during training; 0 means 200,000, or fewer if the budget is short."""

    def __post_init__(self) -> None:
        super(TextSettings, self).__post_init__()
        check(self, "direction", self.direction in ("forward", "backward"), "forward or backward")


@dataclass(frozen=True, kw_only=True, slots=True)
class LanguageDistilSettings:
    """How a student learns the next token from its teacher, under ``distil.`` in run.toml."""

    weight: float = 0.5
    """The weight of the teacher's distributions; the rest is that of the text's own tokens."""
    temperature: float = 1.0
    """The temperature of the softmax over logits: above 1, improbable tokens count for more."""

    def __post_init__(self) -> None:
        check(self, "weight", 0 <= self.weight <= 1, "between 0 and 1")
        check(self, "temperature", 0 < self.temperature < float("inf"), "above 0")


TextCorpus = Corpus[TokenizedText]


def check_text(sources: Sequence[Source]) -> None:
    """Raise InputError for the built-in corpora of pairs and of series, unless a file has that name."""
    if DATES in sources and not Path(DATES).exists():
        hint = f"it is for systems that translate: {', '.join(systems_for('translation'))}"
        raise InputError("the corpus holds sentence pairs, not text", where=DATES, hint=hint)
    if WAVES in sources and not Path(WAVES).exists():
        hint = "it is to forecast: ensue fit forecast waves --model lstm"
        raise InputError("the corpus holds series, not text", where=WAVES, hint=hint)


def text_sources(files: Sequence[Source], columns: str, skip: bool = False) -> list[Source]:
    """Return files as text, or with ``columns`` as tables that have a text in each line."""
    return [
        table_text_source(file, columns, skip)
        if columns and not isinstance(file, Slice) and not is_builtin(file)
        else file
        for file in files
    ]


def choose_tokenizer(
    settings: TokenizerSettings, sources: Sequence[Source], field: str | None, notes: list[str] | None = None
) -> Tokenizer:
    """Return the tokenizer that the settings name, fitted to the training text unless it is fitted already."""
    size = measure_text(sources, field)[1]
    default = "char" if size < SMALL_TEXT else "bpe"
    kind = resolve_tokenizer(default if settings.kind == "auto" else settings.kind)
    if not isinstance(kind, str):
        return kind
    small = size < 8_000_000 and kind in ("bpe", "wordpiece", "unigram")
    limits = {"vocabulary": settings.vocabulary or (2048 if small else None), "min_count": settings.min_count or None}
    return fit_tokenizer(kind, sources, **limits, field=field, size=size, notes=notes)


def holds_out(data: Any) -> bool:
    """True if the end of the text is held out; the lecture's five letters are too few to split."""
    return not data.valid and bool(data.holdout) and tuple(data.files) != ("hello",)


Choose = Callable[[TokenizerSettings, Sequence[Source], str | None, list[str] | None], Tokenizer]


def read_text_corpus(
    data: Any,
    tokens: TokenizerSettings,
    tokenizer: Tokenizer | None = None,
    report: Report = silent,
    choose: Choose = choose_tokenizer,
) -> TextCorpus:
    """Read and tokenise the text; its end is held out if there is no validation text."""
    check_text([*data.files, *data.valid])
    field = data.field or None
    train, valid = (text_sources(files, data.columns, data.bad_lines == "skip") for files in (data.files, data.valid))
    if holds_out(data):
        train, valid = hold_out(train, data.holdout, field=field)
    notes: list[str] = []
    if tokenizer is None:
        report("phase", {"name": "fitting the tokenizer"})
        tokenizer = choose(tokens, train, field, notes)
        for note in notes:
            report("note", {"text": note})
        notes.clear()

    def read(sources: Sequence[Source], name: str) -> TokenizedText:
        report("phase", {"name": f"tokenising {name}"})
        text = tokenize(sources, tokenizer, field=field, report=report, notes=notes)
        return text if getattr(data, "direction", "forward") == "forward" else replace(text, tokens=text.tokens[::-1])

    corpus = TextCorpus(tokenizer, read(train, "the text"), read(valid, "the validation text") if valid else None)
    report_notes(notes, "and {} more files were skipped", report)
    ids = corpus.train.tokens
    starts = range(0, len(ids), 1 << 20)
    if len(np.unique(ids[:1000])) <= 2 and not any(len(np.unique(ids[i : i + (1 << 20)])) > 2 for i in starts):
        what = "the text has a vocabulary of one: there is nothing to predict"  # besides the end token
        raise InputError(what, where=", ".join(map(str, data.files)), hint="give another text or tokenizer")
    return corpus


def score_text(model: LanguageModel, text: TokenizedText, streams: int = 0, report: Report = silent) -> LanguageScore:
    """Return all figures of a model on a text."""
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
    """Return the tokens that a model reads before it generates: the first token, then the prompt."""
    ids = tokenizer.encode(text)
    ids = ids if direction == "forward" else ids[::-1]
    return torch.from_numpy(np.concatenate([[first_token(tokenizer)], ids.astype(np.int64)]))


def race_facts(corpus: TextCorpus, facts: dict[str, Any]) -> dict[str, Any]:
    """Return the facts of a corpus, and the bits that its unknown words cost."""
    return {**facts, "valid_surcharge_bits": corpus.valid.surcharge if corpus.valid else 0.0}


def not_comparable(system: str) -> str:
    """Return why a system cannot race: a model that sees the words to predict gives no probability of a text."""
    cls = SYSTEMS.load(system)
    if cls(cls.Config(vocabulary=3)).traits.steps:
        return ""
    return f"{system} sees both sides of a word, so its figure cannot be compared"


def _is_no_output(name: str) -> bool:
    """Return whether a layer is not the output layer."""
    return name != "head"


class LanguageTask(Task):
    """Predict the next token of a text."""

    name = "language"
    data = "text"
    settings = {
        "train": TextTrainSettings,
        "data": TextSettings,
        "tokenizer": TokenizerSettings,
        "distil": LanguageDistilSettings,
    }
    counting = NGramTrainSettings
    run = "ensue.runs.language:LanguageRun"
    short_evaluation = "data.eval_tokens=2000"
    example_loss = staticmethod(example_losses.language_loss)
    race = RaceSpec(
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
        settings={"train.recount": False},  # all systems learn from the same text
        refusal=not_comparable,
    )

    def with_teacher(self) -> Task:
        """Return this task as a student learns it."""
        student: Task = load_target("ensue.tasks.language_distillation:LanguageDistilTask")()
        return student

    def shorten(self, data: TextSettings, share: float) -> TextSettings:
        """Evaluate fewer tokens if the budget is short."""
        return data if data.eval_tokens else replace(data, eval_tokens=max(2_000, int(MOST_EVAL_TOKENS * share)))

    def read_corpus(self, settings: Settings, folder: RunFolder | None, report: Report) -> TextCorpus:
        """Read and tokenise the text; all of it for a model that counts the held-out part too."""
        whole = getattr(settings.train, "recount", False)
        data = replace(settings.data, holdout=0.0) if whole else settings.data
        return read_text_corpus(data, settings.tokenizer, saved_tokenizer(folder), report)

    def describe_corpus(self, corpus: TextCorpus) -> dict[str, Any]:
        """Return the number of tokens and bytes."""
        return super().describe_corpus(corpus) | {
            "train_tokens": len(corpus.train) - 1,
            "train_bytes": corpus.train.bytes,
            "valid_tokens": len(corpus.valid) - 1 if corpus.valid else 0,
            "valid_bytes": corpus.valid.bytes if corpus.valid else 0,
        }

    def complete_settings(self, settings: Settings, model: LanguageModel, corpus: TextCorpus) -> Settings:
        """Fill in the length of rows and how the text is cut."""
        if isinstance(settings.train, NGramTrainSettings):
            return super().complete_settings(settings, model, corpus)
        train = settings.train
        length = train.length or model.window or TRAIN_LENGTH
        length = min(length, ADAPTER_LENGTH) if train.lora and not train.length else length
        self._check_adapters(settings, model)
        cut = model.cuts if train.cut == "auto" else train.cut
        if train.layer_decay < 1:
            layers_of(model)  # a model without layers is refused
        return super().complete_settings(replace(settings, train=replace(train, length=length, cut=cut)), model, corpus)

    @staticmethod
    def _check_adapters(settings: Settings, model: LanguageModel) -> None:
        """Refuse adapters of random weights, of models without layers for them, and beside rates for each layer."""
        train = settings.train
        if not train.lora:
            return
        if not settings.run.begin_with:
            hint = "name its run: --from runs/smollm2"
            raise InputError("train.lora trains adapters of a model that has learnt something already", hint=hint)
        if train.layer_decay < 1:
            raise InputError("adapters leave the layers as they are", hint="leave out train.layer_decay")
        if not adaptable(model, _is_no_output):
            what = f"{settings.run.system} has no layers for adapters"
            raise InputError(what, hint="leave out train.lora, or use gpt or llama")

    def prepare_model(self, settings: Settings, model: Any, corpus: Any) -> None:
        """Add adapters to every linear layer but the output, and freeze all else."""
        if settings.train.lora:
            adapt(model, settings.train.lora, settings.train.lora_alpha, _is_no_output)

    def finish_model(self, model: Any) -> Any:
        """Merge adapters into weights in floats; those beside weights in groups stay."""
        merge(model)
        model.requires_grad_(True)
        return model

    def tuning_settings(self, system: str, flat: Mapping[str, Any]) -> dict[str, Any]:
        """Return the settings of adapters."""
        return ADAPTER_TRAINING if flat.get("train.lora") else {}

    def batches(self, settings: Settings, model: LanguageModel, corpus: TextCorpus) -> StreamBatches | WindowBatches:
        """Return streams for a model that carries a state, else random windows."""
        train, context = settings.train, model.traits.context
        if train.cut == "streams" and model.cuts == "windows":
            what = f"train.cut = 'streams' carries a state on, but {settings.run.system} has none to carry"
            raise InputError(what, hint="use train.cut=windows")
        if model.cuts == "windows" and context and train.length > context:
            raise InputError(f"train.length = {train.length} is more than context = {context}", hint="make it smaller")
        kind = StreamBatches if train.cut == "streams" else WindowBatches
        return kind(corpus.train.tokens, train.batch, train.length, derive(settings.run.seed, "data"))

    def objective(self, settings: Settings, model: LanguageModel, corpus: TextCorpus) -> Objective:
        """Return the objective that the model's class names, or the loss of the next token."""
        return OBJECTIVES[getattr(model, "objective", "next")]

    def options(self, settings: Settings, model: Any, corpus: Any) -> TrainingOptions:
        """Return a learning rate for each layer if ``train.layer_decay`` is below 1."""
        decay = settings.train.layer_decay
        return TrainingOptions(LayerUnfreezing(parameter_depths(model, own_output=True), decay) if decay < 1 else None)

    def evaluator(self, settings: Settings, model: LanguageModel, corpus: TextCorpus) -> Evaluate | None:
        """Return a function that computes the loss on held-out text."""
        if corpus.valid is None or len(corpus.valid) < 2:
            return None
        tokens = corpus.valid.tokens[: settings.data.eval_tokens + 1]

        def evaluate(stop: Callable[[], bool], ranks: Ranks = SINGLE) -> dict[str, float]:
            total = total_log_prob(model, tokens, report=abandon_when(stop), ranks=ranks)
            return {"valid_loss": -total / (len(tokens) - 1)}

        return evaluate

    def sampler(
        self, settings: Settings, model: LanguageModel, corpus: TextCorpus, device: torch.device
    ) -> Callable[[], str] | None:
        """Return a function that generates a text."""
        if not model.traits.steps:
            return None
        tokenizer, seed = corpus.tokenizer, settings.run.seed

        def generate() -> str:
            with isolated_rng(seed):
                (text,) = sample(model, prompt_tokens(tokenizer, "").to(device), Sampling(tokens=60, seed=seed))
            tokens = text.tokens
            return tokenizer.decode(tokens if settings.data.direction == "forward" else tokens[::-1])

        return generate

    def final_figures(
        self, settings: Settings, model: LanguageModel, corpus: TextCorpus, folder: RunFolder, report: Report
    ) -> dict[str, Any] | None:
        """Return the figures on all held-out text."""
        if corpus.valid is None or len(corpus.valid) < 2:
            return None
        report("phase", {"name": "scoring the validation text"})
        score = score_text(model, corpus.valid, report=report)
        report("result", {"bits_per_byte": score.bits_per_byte, "perplexity": score.perplexity["token"]})
        return asdict(score)


TASK = LanguageTask()
