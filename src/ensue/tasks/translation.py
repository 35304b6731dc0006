"""Translation: sentence pairs in, a model of one given the other out.

It joins the reader of pairs, one or two tokenizers, an encoder–decoder, the objective, the search and the measure.
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
from ensue.core.events import Abandoned, Report, report_notes
from ensue.core.run_folder import RunFolder
from ensue.core.seeds import derive, isolated_rng
from ensue.core.settings import check, check_below_one
from ensue.core.wording import counted, line_numbers
from ensue.data.dates import DATES
from ensue.data.pair_batches import PairBatches
from ensue.data.pair_tokens import PairTokens, encode_pairs
from ensue.data.pairs import Pairs, builtin_pairs, read_pairs
from ensue.data.sources import is_builtin
from ensue.data.splitting import hold_out_pairs
from ensue.data.tables import parse_columns
from ensue.data.tokenizers.protocol import Tokenizer
from ensue.data.tokenizers.registry import fit_tokenizer_to_parts, load_tokenizer, resolve_tokenizer, save_tokenizer
from ensue.measure import example_losses
from ensue.measure.language import LanguageScore, language_score
from ensue.measure.translation import gleu, translation_score
from ensue.models.conditional import ConditionalModel
from ensue.search.beam import Search
from ensue.tasks.machine import fill_common
from ensue.tasks.settings import Settings, TokenizerSettings
from ensue.tasks.spec import Measure, RaceSpec, TaskSpec, race_heading
from ensue.tasks.table import systems_for
from ensue.tasks.translator import Translator
from ensue.train.objectives import ExpectedReward, Objective, TranslationLoss
from ensue.train.ranks import SINGLE, Evaluate, Ranks
from ensue.train.settings import PairTrainSettings

SOURCE_TOKENIZER = "tokenizer.source.json"
"""Beside tokenizer.json, which is the target's, where the languages have a vocabulary each."""
EVAL_PAIRS = 1000
EVAL_TOKENS = 4000
"""Tokens in a batch that is only measured."""
VOCABULARY = {"bpe": 6000, "wordpiece": 6000, "unigram": 6000}
"""Tokens of a vocabulary of parts of words, where nothing is said."""


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
class PairTokenizerSettings(TokenizerSettings):
    """How pairs become tokens, under ``tokenizer.`` in run.toml."""

    joint: bool = True
    """One vocabulary for both languages; without it, one each."""


@dataclass(frozen=True)
class PairCorpus:
    """Pairs to learn from and pairs to validate with, as tokens; of the latter the text too."""

    source_tokenizer: Tokenizer
    tokenizer: Tokenizer
    train: PairTokens
    valid: PairTokens | None
    valid_text: Pairs | None

    @property
    def hash(self) -> str:
        """Of both parts as tokens."""
        return self.train.hash[:32] + (self.valid.hash[:32] if self.valid else "")

    @property
    def joint(self) -> bool:
        """Whether both languages share a vocabulary."""
        return self.source_tokenizer is self.tokenizer


def check_pairs(sources: Sequence[str | Path]) -> None:
    """Refuse the built-in texts."""
    for source in sources:
        if is_builtin(source):
            systems = ", ".join(systems_for("language"))
            hint = f"give sentence pairs, or the corpus {DATES}; systems that learn from text are {systems}"
            raise InputError("the corpus is text and has no translations", where=str(source), hint=hint)


def read_parts(data: PairSettings, notes: list[str]) -> tuple[Pairs, Pairs | None]:
    """The pairs to learn from and those to validate with, as text."""
    check_pairs([*data.files, *data.valid])
    columns = parse_columns(data.columns) or None
    pairs = read_pairs(data.files, columns, notes)
    if data.valid:
        return pairs, read_pairs(data.valid, columns, notes)
    if tuple(data.files) == (DATES,):
        return pairs, builtin_pairs("valid")
    return hold_out_pairs(pairs, data.holdout) if data.holdout else (pairs, None)


def read_corpus(settings: Settings, folder: RunFolder | None, report: Report) -> PairCorpus:
    """The run's pairs as tokens, by the tokenizers in its folder where they are there already."""
    notes: list[str] = []
    report("phase", {"name": "reading the pairs"})
    train, valid = read_parts(settings.data, notes)
    parts = f"{len(train):,} to learn from, {len(valid) if valid else 0:,} to validate with"
    report("note", {"text": f"{train.description}: {parts}"})
    tokenizers = load_tokenizers(folder) if folder is not None and folder.tokenizer.exists() else None
    if tokenizers is None:
        report("phase", {"name": "fitting the tokenizer"})
        tokenizers = choose_tokenizers(settings.tokenizer, train)

    def encode(pairs: Pairs, name: str) -> PairTokens:
        """The pairs as tokens; what is said of them says which they are."""
        own: list[str] = []
        try:
            tokens = encode_pairs(pairs, *tokenizers, most=int(settings.model["context"]), notes=own)
        except InputError as error:
            raise InputError(str(error), where=name) from error
        notes.extend(f"{name}: {note}" for note in own)
        return tokens

    report("phase", {"name": "tokenising the pairs"})
    held = encode(valid, "pairs to validate with") if valid else None
    corpus = PairCorpus(*tokenizers, encode(train, "pairs to learn from"), held, valid)
    report_notes(notes, "and {} more, not shown here", report)
    return corpus


def choose_tokenizers(settings: PairTokenizerSettings, pairs: Pairs) -> tuple[Tokenizer, Tokenizer]:
    """The source's and the target's tokenizer, fitted to the pairs where they are not given ready; one where joint."""
    kind = "bpe" if settings.kind == "auto" else settings.kind
    found = resolve_tokenizer(kind)
    if not isinstance(found, str):  # a run whose languages have a vocabulary each gives both
        beside = Path(kind) / SOURCE_TOKENIZER if Path(kind).is_dir() else Path(kind).with_name(SOURCE_TOKENIZER)
        return (load_tokenizer(beside) if beside.exists() else found), found

    def fit(*sides: list[str]) -> Tokenizer:
        texts = ((text, True, True) for side in sides for text in side)
        vocabulary = settings.vocabulary or VOCABULARY.get(found)
        return fit_tokenizer_to_parts(found, texts, vocabulary=vocabulary, min_count=settings.min_count or None)

    if settings.joint:
        both = fit(pairs.source, pairs.target)
        return both, both
    return fit(pairs.source), fit(pairs.target)


def save_tokenizers(corpus: PairCorpus, folder: RunFolder) -> None:
    """Write the tokenizers into a run's folder: the target's, and the source's where it is another."""
    save_tokenizer(corpus.tokenizer, folder.tokenizer)
    if not corpus.joint:
        save_tokenizer(corpus.source_tokenizer, folder.path / SOURCE_TOKENIZER)


def load_tokenizers(folder: RunFolder) -> tuple[Tokenizer, Tokenizer]:
    """The source's and the target's tokenizer of a run."""
    target = load_tokenizer(folder.tokenizer)
    path: Path = folder.path / SOURCE_TOKENIZER
    return (load_tokenizer(path) if path.exists() else target), target


def model_settings(settings: Settings, corpus: PairCorpus) -> dict[str, Any]:
    """What the pairs say of a model."""
    facts: dict[str, Any] = {"vocabulary": corpus.tokenizer.size, "source_vocabulary": corpus.source_tokenizer.size}
    if settings.model.get("tied") == "auto":
        facts["tied"] = "all" if corpus.joint else "target"
    elif settings.model.get("tied") == "all" and not corpus.joint:
        raise InputError("tied = 'all' needs one vocabulary for both languages", hint="use tokenizer.joint=true")
    return facts


def complete_settings(settings: Settings, model: ConditionalModel, corpus: PairCorpus) -> Settings:
    """The settings with everything that was left to us filled in, so that run.toml hides nothing."""
    train, data, tokens = settings.train, settings.data, settings.tokenizer
    if train.objective == "reward":  # the best by likelihood would be the weights it began with
        train = replace(train, keep="last")
    most = max(corpus.source_tokenizer.size, corpus.tokenizer.size)
    filled = replace(
        settings,
        train=train,
        data=replace(data, eval_pairs=data.eval_pairs or EVAL_PAIRS),
        tokenizer=replace(tokens, vocabulary=tokens.vocabulary or most),
    )
    return fill_common(filled, corpus.tokenizer)


def batches(settings: Settings, model: ConditionalModel, corpus: PairCorpus) -> PairBatches:
    """The pairs in batches of similar lengths."""
    seed = derive(settings.run.seed, "data")
    return PairBatches(corpus.train, settings.train.batch_tokens, corpus.tokenizer.end, seed)


def objective(settings: Settings, model: ConditionalModel, corpus: PairCorpus) -> Objective:
    """The next target token, smoothed as the settings say; or the expected GLEU of what the model writes itself."""
    train = settings.train
    if train.objective == "reward":
        return ExpectedReward(gleu, corpus.tokenizer.end, train.samples, train.likelihood)
    return TranslationLoss(train.label_smoothing)


def log_prob_sums(
    model: ConditionalModel, pairs: PairTokens, end: int, most: int | None = None, ranks: Ranks = SINGLE
) -> Iterator[Any]:
    """The sum of log P and the number of target tokens, batch by batch, of ``most`` pairs or all.

    Several ranks read some rows of each batch.
    """
    chosen = pairs if most is None or most >= len(pairs) else _first(pairs, most)
    buckets = PairBatches(chosen, EVAL_TOKENS, end)
    device = next(model.parameters()).device
    model.eval()
    with torch.no_grad():
        for number in range(len(buckets)):
            batch, reduction = ranks.local_batch(buckets.batch(number))
            state = model.start(batch.source.to(device), batch.source_lengths.to(device))
            values, _ = model.log_prob(
                batch.tokens.to(device), batch.targets.to(device), state, batch.lengths.to(device)
            )
            yield reduction.total(values.double().sum()), int(reduction.total(batch.size))


def _first(pairs: PairTokens, count: int) -> PairTokens:
    """The first ``count`` pairs."""
    return replace(
        pairs,
        source=pairs.source[: pairs.source_at[count]],
        source_at=pairs.source_at[: count + 1],
        target=pairs.target[: pairs.target_at[count]],
        target_at=pairs.target_at[: count + 1],
        lines=pairs.lines[:count],
    )


def evaluator(settings: Settings, model: ConditionalModel, corpus: PairCorpus) -> Evaluate | None:
    """What the loop calls to see how the model does on held-out pairs: nats a target token."""
    valid, most = corpus.valid, settings.data.eval_pairs or EVAL_PAIRS
    if valid is None:
        return None

    def evaluate(stop: Callable[[], bool], ranks: Ranks = SINGLE) -> dict[str, float]:
        sums = []
        for one in log_prob_sums(model, valid, corpus.tokenizer.end, most, ranks):
            if stop():
                raise Abandoned
            sums.append(one)
        total, tokens = np.array(sums).sum(0)
        return {"valid_loss": float(-total / tokens)}

    return evaluate


def sampler(
    settings: Settings, model: ConditionalModel, corpus: PairCorpus, device: torch.device
) -> Callable[[], str] | None:
    """What the loop calls to show how the model translates a held-out sentence as it learns."""
    if corpus.valid_text is None:
        return None
    line = corpus.valid_text.source[0]
    translator = Translator(model, corpus.source_tokenizer, corpus.tokenizer)

    def write() -> str:
        with isolated_rng(settings.run.seed):
            return f"{line} → {translator.translate([line], Search(beam=1))[0].text}"

    return write


def pair_score(model: ConditionalModel, pairs: PairTokens, end: int, report: Report) -> LanguageScore:
    """How probable the targets are, given their sources."""
    total, tokens = 0.0, 0
    whole = int(pairs.target_at[-1])
    for value, count in log_prob_sums(model, pairs, end):
        total, tokens = total - value, tokens + count
        report("progress", {"done": tokens, "total": whole})
    return language_score(
        total,
        tokens=tokens,
        words=pairs.words,
        size=pairs.bytes,
        unknown=pairs.unknown[1],
        surcharge=pairs.surcharge,
        streams=1,
    )


def score_pairs(
    translator: Translator, text: Pairs, how: Search, report: Report, tokens: PairTokens | None = None
) -> tuple[dict[str, Any], list[str]]:
    """All figures on pairs: BLEU and chrF of the translations, the perplexity of the references; and the outputs.

    The perplexity is of those that are not too long for the model, and a source that is too long is translated in part;
    notes say which they are.
    """
    report("phase", {"name": "scoring"})
    if tokens is None:
        notes: list[str] = []
        between = translator.source_tokenizer, translator.tokenizer
        tokens = encode_pairs(text, *between, most=translator.longest, notes=notes)
        for note in notes:
            report("note", {"text": f"perplexity: {note}"})
    figures = asdict(pair_score(translator.model, tokens, translator.tokenizer.end, report))
    lines = zip(text.numbers, text.source)
    long = [number for number, line in lines if len(translator.encode(line)) > translator.longest]
    if long:
        what = f"cut {counted(len(long), 'source')} with more than {translator.longest:,} tokens ({line_numbers(long)})"
        report("note", {"text": f"translations: {what}"})
    report("phase", {"name": "translating"})
    outputs = [one.text for one in translator.translate(text.source, how, report=report)]
    measured = asdict(translation_score(outputs, [[target] for target in text.target]))
    kept = ("bits_per_byte", "perplexity", "nll", "tokens", "words", "bytes", "unknown")
    return {**measured, **{name: figures[name] for name in kept}}, outputs


def final_figures(
    settings: Settings, model: ConditionalModel, corpus: PairCorpus, folder: RunFolder, report: Report
) -> dict[str, Any] | None:
    """How the finished model does on the held-out pairs."""
    if corpus.valid_text is None:
        return None
    translator = Translator(model.eval(), corpus.source_tokenizer, corpus.tokenizer)
    figures, _ = score_pairs(translator, corpus.valid_text, Search(), report, corpus.valid)
    report("result", {"bleu": figures["bleu"], "perplexity": figures["perplexity"]["token"]})
    return figures


def describe_corpus(corpus: PairCorpus) -> dict[str, Any]:
    """Facts of the pairs for the model card."""
    return {
        "tokenizer": corpus.tokenizer.kind,
        "vocabulary": corpus.tokenizer.size,
        "source_vocabulary": corpus.source_tokenizer.size,
        "joint": corpus.joint,
        "train_pairs": len(corpus.train),
        "train_tokens": len(corpus.train.target),
        "train_bytes": corpus.train.bytes,
        "valid_pairs": len(corpus.valid) if corpus.valid else 0,
    }


def files_of_pairs(sources: Sequence[str | Path], columns: str, notes: list[str]) -> Pairs:
    """Pairs to score, read as those to learn from are; of the built-in corpus those that no model has seen."""
    check_pairs(sources)
    if list(sources) == [DATES]:
        return builtin_pairs("valid")
    return read_pairs(sources, parse_columns(columns) or None, notes)


TASK = TaskSpec(
    name="translation",
    data="sentence pairs",
    settings={"train": PairTrainSettings, "data": PairSettings, "tokenizer": PairTokenizerSettings},
    run="ensue.runs.translation:TranslationRun",
    read_corpus=read_corpus,
    save_tokenizers=save_tokenizers,
    describe_corpus=describe_corpus,
    model_settings=model_settings,
    complete_settings=complete_settings,
    batches=batches,
    objective=objective,
    example_loss=example_losses.translation_loss,
    evaluator=evaluator,
    sampler=sampler,
    final_figures=final_figures,
    short_evaluation="data.eval_pairs=50",
    race=RaceSpec(
        name="translate",
        measures=(
            Measure("bleu", "BLEU", ".2f"),
            Measure("chrf", "chrF", ".2f"),
            Measure("bits_per_byte", "bits per byte"),
        ),
        systems=("seq2seq", "transformer"),
        between="between systems that translate",
        heading=partial(race_heading, unit="pair"),
    ),
)
