"""Translation: from sentence pairs to a model of the target sentence given the source sentence."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import torch

from ensue.core.errors import InputError
from ensue.core.events import Report, abandon_when, report_notes, silent
from ensue.core.run_files import SOURCE_TOKENIZER
from ensue.core.run_folder import RunFolder
from ensue.core.seeds import derive, isolated_rng
from ensue.core.wording import counted, line_numbers
from ensue.data.pair_batches import PairBatches
from ensue.data.pair_files import hold_pairs
from ensue.data.pair_tokens import PairTokens, encode_pairs
from ensue.data.pairs import Pairs
from ensue.data.tokenizers.protocol import Tokenizer
from ensue.data.tokenizers.registry import fit_tokenizer_to_parts, load_tokenizer, resolve_tokenizer, save_tokenizer
from ensue.data.tokenizers.sentinels import padding_of
from ensue.measure import example_losses
from ensue.measure.language import LanguageScore, language_score
from ensue.measure.translation import gleu, translation_score
from ensue.models.conditional import ConditionalModel
from ensue.search.beam import Search
from ensue.search.translator import Translator
from ensue.tasks.pair_reading import PairSettings, read_parts
from ensue.tasks.recipes import Recipe
from ensue.tasks.settings import Settings, TokenizerSettings
from ensue.tasks.spec import Corpus, Measure, RaceSpec, Task, race_heading
from ensue.tasks.table import task_name
from ensue.train.objectives import ExpectedReward, Objective, TranslationLoss
from ensue.train.ranks import SINGLE, Evaluate, Ranks
from ensue.train.settings import PairTrainSettings

EVAL_PAIRS = 1000
EVAL_TOKENS = 4000
"""Tokens of a batch in scoring."""
SUBWORDS = 6000
"""The most tokens of a subword tokenizer, where no setting says."""


@dataclass(frozen=True, kw_only=True, slots=True)
class PairTokenizerSettings(TokenizerSettings):
    """How pairs become tokens, under ``tokenizer.`` in run.toml."""

    joint: bool = True
    """One vocabulary for both languages; without it, one each."""


@dataclass(frozen=True)
class PairCorpus(Corpus[PairTokens]):
    """Sentence pairs; ``tokenizer`` is the target's."""

    source_tokenizer: Tokenizer
    valid_text: Pairs | None

    @property
    def joint(self) -> bool:
        """True if both languages share a vocabulary."""
        return self.source_tokenizer is self.tokenizer


def choose_tokenizers(settings: PairTokenizerSettings, pairs: Pairs) -> tuple[Tokenizer, Tokenizer]:
    """Return the source and the target tokenizer, fitted to the pairs unless they are fitted already."""
    name = "bpe" if settings.kind == "auto" else settings.kind
    kind = resolve_tokenizer(name)
    if not isinstance(kind, str):  # a run may have a source tokenizer too
        beside = Path(name) / SOURCE_TOKENIZER if Path(name).is_dir() else Path(name).with_name(SOURCE_TOKENIZER)
        return (load_tokenizer(beside) if beside.exists() else kind), kind
    default = SUBWORDS if kind in ("bpe", "wordpiece", "unigram") else None
    limits = {"vocabulary": settings.vocabulary or default, "min_count": settings.min_count or None}

    def fit(texts: list[str]) -> Tokenizer:
        return fit_tokenizer_to_parts(kind, ((text, True, True) for text in texts), **limits)

    if settings.joint:
        both = fit(pairs.source + pairs.target)
        return both, both
    return fit(pairs.source), fit(pairs.target)


def load_tokenizers(folder: RunFolder) -> tuple[Tokenizer, Tokenizer]:
    """Return the source and the target tokenizer of a run."""
    target = load_tokenizer(folder.tokenizer)
    path = folder.source_tokenizer
    return (load_tokenizer(path) if path.exists() else target), target


def pair_log_prob(
    model: ConditionalModel, pairs: PairTokens, end: int, report: Report = silent, ranks: Ranks = SINGLE
) -> tuple[float, int]:
    """Return the sum of log P of target tokens, and their number; several ranks read some rows of each batch."""
    buckets = PairBatches(pairs, EVAL_TOKENS, end, first=model.first(end))
    device = next(model.parameters()).device
    model.eval()
    total, count = 0.0, 0
    with torch.no_grad():
        for number in range(len(buckets)):
            batch, reduction = ranks.local_batch(buckets.batch(number))
            state = model.start(batch.source.to(device), batch.source_lengths.to(device))
            values, _ = model.log_prob(
                batch.tokens.to(device), batch.targets.to(device), state, batch.lengths.to(device)
            )
            total += float(reduction.total(values.double().sum()))
            count += int(reduction.total(batch.size))
            report("progress", {"done": count, "total": int(pairs.target_at[-1])})
    return total, count


def pair_score(model: ConditionalModel, pairs: PairTokens, end: int, report: Report) -> LanguageScore:
    """Return the perplexity of the targets given their sources."""
    total, tokens = pair_log_prob(model, pairs, end, report)
    return language_score(
        -total,
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
    """Return all figures on pairs (BLEU and chrF of translations, perplexity of references), and the translations.

    Pairs that are too long for the model are not in the perplexity, and their sources are cut for translation; notes
    name them.
    """
    report("phase", {"name": "scoring"})
    longest = translator.longest
    if tokens is None:
        notes: list[str] = []
        tokens = encode_pairs(text, translator.source_tokenizer, translator.tokenizer, most=longest, notes=notes)
        for note in notes:
            report("note", {"text": f"perplexity: {note}"})
    figures = asdict(pair_score(translator.model, tokens, translator.tokenizer.end, report))
    long = [number for number, line in zip(text.numbers, text.source) if len(translator.encode(line)) > longest]
    if long:
        what = f"cut {counted(len(long), 'source')} with more than {longest:,} tokens ({line_numbers(long)})"
        report("note", {"text": f"translations: {what}"})
    report("phase", {"name": "translating"})
    outputs = [one.text for one in translator.translate(text.source, how, report=report)]
    scores = asdict(translation_score(outputs, [[target] for target in text.target]))
    kept = ("bits_per_byte", "perplexity", "nll", "tokens", "words", "bytes", "unknown")
    return {**scores, **{name: figures[name] for name in kept}}, outputs


class TranslationTask(Task):
    """Translate sentences."""

    name = "translation"
    data = "sentence pairs"
    settings = {"train": PairTrainSettings, "data": PairSettings, "tokenizer": PairTokenizerSettings}
    run = "ensue.runs.translation:TranslationRun"
    short_evaluation = "data.eval_pairs=50"
    example_loss = staticmethod(example_losses.translation_loss)
    race = RaceSpec(
        name="translate",
        measures=(
            Measure("bleu", "BLEU", ".2f"),
            Measure("chrf", "chrF", ".2f"),
            Measure("bits_per_byte", "bits per byte"),
        ),
        systems=("seq2seq", "transformer"),
        between="between systems that translate",
        heading=partial(race_heading, unit="pair"),
    )

    def preset(self, preset: Mapping[str, Any], recipe: Recipe | None, initialised: bool) -> dict[str, Any]:
        """Return the settings of a preset; rows of another task become as many tokens."""
        own = super().preset(preset, recipe, initialised)
        rows = own.pop("train.batch", 0)
        return own | ({"train.batch_tokens": rows * int(own["context"])} if rows else {})

    def tuning_settings(self, system: str, flat: Mapping[str, Any]) -> dict[str, Any]:
        """Return a tenth of the learning rate for a model that another task has trained (Raffel et al., 2020)."""
        return {"train.lr": flat["train.lr"] / 10} if task_name(system) != self.name and "train.lr" in flat else {}

    def suits(self, files: Sequence[str]) -> bool:
        """Return whether files hold pairs."""
        return hold_pairs(files)

    def read_corpus(self, settings: Settings, folder: RunFolder | None, report: Report) -> PairCorpus:
        """Read and tokenise the pairs."""
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
            own: list[str] = []
            try:
                tokens = encode_pairs(pairs, *tokenizers, most=int(settings.model["context"]), notes=own)
            except InputError as error:
                raise InputError(str(error), where=name) from error
            notes.extend(f"{name}: {note}" for note in own)
            return tokens

        report("phase", {"name": "tokenising the pairs"})
        held_out = encode(valid, "pairs to validate with") if valid else None
        source, target = tokenizers
        corpus = PairCorpus(target, encode(train, "pairs to learn from"), held_out, source, valid)
        report_notes(notes, "and {} more, not shown here", report)
        return corpus

    def save_tokenizers(self, corpus: PairCorpus, folder: RunFolder) -> None:
        """Write the target tokenizer, and the source tokenizer if it is another."""
        super().save_tokenizers(corpus, folder)
        if not corpus.joint:
            save_tokenizer(corpus.source_tokenizer, folder.source_tokenizer)

    def describe_corpus(self, corpus: PairCorpus) -> dict[str, Any]:
        """Return the number of pairs, target tokens and bytes."""
        return super().describe_corpus(corpus) | {
            "source_vocabulary": corpus.source_tokenizer.size,
            "joint": corpus.joint,
            "train_pairs": len(corpus.train),
            "train_tokens": len(corpus.train.target),
            "train_bytes": corpus.train.bytes,
            "valid_pairs": len(corpus.valid) if corpus.valid else 0,
        }

    def model_settings(self, settings: Settings, corpus: PairCorpus) -> dict[str, Any]:
        """Return the sizes of the vocabularies, and which embeddings are tied."""
        facts: dict[str, Any] = {"vocabulary": corpus.tokenizer.size, "source_vocabulary": corpus.source_tokenizer.size}
        if settings.model.get("start") == -1:
            facts["start"] = padding_of(corpus.tokenizer)
        if settings.model.get("tied") == "auto":
            facts["tied"] = "all" if corpus.joint else "target"
        elif (tied := settings.model.get("tied")) in ("all", "embeddings") and not corpus.joint:
            raise InputError(
                f"tied = {tied!r} needs one vocabulary for both languages", hint="use tokenizer.joint=true"
            )
        return facts

    def complete_settings(self, settings: Settings, model: ConditionalModel, corpus: PairCorpus) -> Settings:
        """Fill in the pairs of an evaluation, and the size of the larger vocabulary."""
        train, data, tokens = settings.train, settings.data, settings.tokenizer
        if train.objective == "reward":  # the best likelihood would be that of the initial weights
            train = replace(train, keep="last")
        most = max(corpus.source_tokenizer.size, corpus.tokenizer.size)
        completed = replace(
            settings,
            train=train,
            data=replace(data, eval_pairs=data.eval_pairs or EVAL_PAIRS),
            tokenizer=replace(tokens, vocabulary=tokens.vocabulary or most),
        )
        return super().complete_settings(completed, model, corpus)

    def batches(self, settings: Settings, model: ConditionalModel, corpus: PairCorpus) -> PairBatches:
        """Return batches of pairs of similar lengths."""
        seed = derive(settings.run.seed, "data")
        end, limit = corpus.tokenizer.end, settings.data.mix_limit
        how = {"first": model.first(end), "limit": limit}
        return PairBatches(corpus.train, settings.train.batch_tokens, end, seed, **how)

    def objective(self, settings: Settings, model: ConditionalModel, corpus: PairCorpus) -> Objective:
        """Return the loss of the next target token, or the expected GLEU of sampled translations."""
        train = settings.train
        if train.objective == "reward":
            return ExpectedReward(gleu, corpus.tokenizer.end, train.samples, train.likelihood)
        return TranslationLoss(train.label_smoothing)

    def evaluator(self, settings: Settings, model: ConditionalModel, corpus: PairCorpus) -> Evaluate | None:
        """Return a function that computes the loss on held-out pairs, in nats per target token."""
        if corpus.valid is None:
            return None
        pairs, end = corpus.valid.first(settings.data.eval_pairs or EVAL_PAIRS), corpus.tokenizer.end

        def evaluate(stop: Callable[[], bool], ranks: Ranks = SINGLE) -> dict[str, float]:
            total, tokens = pair_log_prob(model, pairs, end, abandon_when(stop), ranks)
            return {"valid_loss": -total / tokens}

        return evaluate

    def sampler(
        self, settings: Settings, model: ConditionalModel, corpus: PairCorpus, device: torch.device
    ) -> Callable[[], str] | None:
        """Return a function that translates a held-out sentence."""
        if corpus.valid_text is None:
            return None
        line = corpus.valid_text.source[0]
        translator = Translator(model, corpus.source_tokenizer, corpus.tokenizer)

        def translate() -> str:
            with isolated_rng(settings.run.seed):
                return f"{line} → {translator.translate([line], Search(beam=1))[0].text}"

        return translate

    def final_figures(
        self, settings: Settings, model: ConditionalModel, corpus: PairCorpus, folder: RunFolder, report: Report
    ) -> dict[str, Any] | None:
        """Return the figures on held-out pairs."""
        if corpus.valid_text is None:
            return None
        translator = Translator(model.eval(), corpus.source_tokenizer, corpus.tokenizer)
        figures, _ = score_pairs(translator, corpus.valid_text, Search(), report, corpus.valid)
        report("result", {"bleu": figures["bleu"], "perplexity": figures["perplexity"]["token"]})
        return figures


TASK = TranslationTask()
