"""The run that people hold: a trained model with its tokenizer, and what it can do."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch

from ensue.core.errors import InputError
from ensue.core.events import Report, silent
from ensue.core.run_folder import RunFolder
from ensue.core.settings import read_toml
from ensue.data.labelled import read_texts
from ensue.data.sources import Source
from ensue.data.tokenizers.finding import load_tokenizer
from ensue.data.tokenizers.protocol import Tokenizer, utf8
from ensue.data.tokens import TokenText, token_text, tokenise
from ensue.measure.language import LanguageScore, log_probs
from ensue.measure.masked import MaskedScore
from ensue.measure.translation import bleu_by_length
from ensue.models.encoder import Encoder
from ensue.models.ngram import NGram
from ensue.search.beam import Search
from ensue.search.ensemble import Ensemble
from ensue.search.sampling import Sample, Sampling, next_distribution, sample
from ensue.tasks.embedding import sentence_vectors
from ensue.tasks.filling import Filled, filled
from ensue.tasks.labelled import body_of, texts_of
from ensue.tasks.labeller import Labeller, quantised
from ensue.tasks.labels import LABEL_KINDS
from ensue.tasks.labels.kind import LabelKind, Reading
from ensue.tasks.labels.whole import Whole
from ensue.tasks.language_modelling import check_text, prompt_tokens, score_text
from ensue.tasks.masked import follows, score_files
from ensue.tasks.opening import form_in, model_in
from ensue.tasks.resolving import resolve, task_name
from ensue.tasks.translating import Translation, Translator
from ensue.tasks.translation import files_of_pairs, load_tokenizers, score_pairs


@dataclass(frozen=True)
class Text:
    """One continuation that a model wrote, with its score."""

    text: str
    sample: Sample

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {
            "text": self.text,
            "log_prob": self.sample.log_prob,
            "mean_log_prob": self.sample.mean_log_prob,
            "tokens": len(self.sample.tokens),
            "ended": self.sample.ended,
        }


FOR_LABELS = {"int8": "only models that label compute in eight bits", "out": "only labels have a confusion to draw"}
"""Options of ``ensue score`` that only models that label know."""


class Run:
    """A trained model in its folder."""

    refused: Mapping[str, str] = {}
    """Options of ``ensue score`` that mean nothing to this kind of run, and what to do instead."""
    labels: bool = False
    """Whether it labels: only such a run computes in eight bits, and has a confusion to draw."""

    def __init__(self, path: str | Path) -> None:
        self.folder = RunFolder(Path(path))
        self.config = self.folder.read_config()
        self.system: str = self.config["system"]
        self.direction: str = self.config.get("direction", "forward")

    def __repr__(self) -> str:
        return f"Run({str(self.folder.path)!r}, system={self.system!r})"

    @cached_property
    def settings(self) -> dict[str, Any]:
        """Everything run.toml says, by flat names; empty for a run that was converted."""
        return read_toml(self.folder.settings) if self.folder.settings.exists() else {}

    @property
    def task(self) -> str:
        """What it was trained for: language, translation, masked, classify …"""
        return str(self.config.get("task") or task_name(self.system))

    @cached_property
    def tokenizer(self) -> Tokenizer:
        """The tokenizer it was trained with; of two, the target's."""
        return load_tokenizer(self.folder.tokenizer)

    @cached_property
    def model(self) -> Any:
        """The model, its weights mapped from the file; a plain ``torch.nn.Module``."""
        return model_in(self.folder, self.config, self.tokenizer)

    def _cannot(self, what: str) -> InputError:
        purpose = f" that learnt to {self.task}" if self.labels else ""
        return InputError(f"{self.system}{purpose} cannot {what}", where=str(self.folder.path))

    def check_options(self, options: Iterable[str]) -> None:
        """Refuse options that would do nothing, before anything is read."""
        refused = {**({} if self.labels else FOR_LABELS), **self.refused}
        for name in options:
            if name in refused:
                what = f"{self.system} cannot use --{name.replace('_', '-')}"
                raise InputError(what, where=str(self.folder.path), mend=refused[name])

    def score(self, *args: Any, **kwargs: Any) -> Any:
        """How well the model does on files."""
        raise self._cannot("be scored")

    def per_token(self, *args: Any, **kwargs: Any) -> list[tuple[str, float]]:
        """What each token of a text costs."""
        raise self._cannot("say what each token of a text costs")

    def generate(self, *args: Any, **kwargs: Any) -> list[Text]:
        """Continuations of a prompt."""
        raise self._cannot("go on with a text")

    def next(self, *args: Any, **kwargs: Any) -> list[tuple[str, float]]:
        """The likeliest next tokens after a text."""
        raise self._cannot("say what comes next in a text")

    def translate(self, *args: Any, **kwargs: Any) -> list[Translation]:
        """Translations of lines."""
        raise self._cannot("translate")

    def predict(self, *args: Any, **kwargs: Any) -> list[dict[str, Any]]:
        """What the model says of examples."""
        raise self._cannot("label anything")

    def fill(self, *args: Any, **kwargs: Any) -> Filled:
        """A text with what is hidden in it filled in."""
        raise self._cannot("fill in what is hidden")

    def embed(self, texts: Sequence[str], *, report: Report = silent, **how: Any) -> np.ndarray:
        """A vector for each text, (N, D); see ``ensue.tasks.embedding.sentence_vectors`` for how."""
        body = body_of(self.model)
        if (not isinstance(body, Encoder) and self.task == "translation") or isinstance(body, NGram):
            raise self._cannot("make a vector of a text")
        return sentence_vectors(body, self.tokenizer, texts, report=report, **how)


class LanguageRun(Run):
    """A language model: it scores, goes on with a text, and says what comes next."""

    refused = {"columns": "it reads text, not pairs; --field names the field of a JSONL file"}

    def tokens(self, *files: Source, text: str | None = None, field: str | None = None) -> TokenText:
        """A text as this run's tokens."""
        if text is not None:
            utf8(text)
            found = token_text(text, self.tokenizer)
        else:
            check_text(files)
            found = tokenise(list(files), self.tokenizer, field=field)
        if not found.bytes:
            raise InputError("the text is empty", mend="give some text")
        if self.direction == "backward":
            return replace(found, tokens=found.tokens[::-1])
        return found

    def score(
        self,
        *files: Source,
        text: str | None = None,
        field: str | None = None,
        streams: int = 0,
        report: Report = silent,
    ) -> LanguageScore:
        """How well the model predicts files, or a text."""
        return score_text(self.model, self.tokens(*files, text=text, field=field), streams, report)

    def per_token(
        self, *files: Source, text: str | None = None, field: str | None = None, streams: int = 0
    ) -> list[tuple[str, float]]:
        """Each token with its log-probability in nats, in the order of the text."""
        found = self.tokens(*files, text=text, field=field)
        values = log_probs(self.model, found.tokens, streams)
        pairs = [(self.tokenizer.name(int(token)), float(value)) for token, value in zip(found.tokens[1:], values)]
        return pairs if self.direction == "forward" else pairs[::-1]

    def generate(self, prompt: str = "", **how: Any) -> list[Text]:
        """Draw continuations of a prompt; see ``ensue.search.sampling.Sampling`` for how. All are kept."""
        self._needs_steps("write")
        ids = prompt_tokens(self.tokenizer, prompt, self.direction)
        end = None if self.tokenizer.lines else self.tokenizer.end
        drawn = sample(self.model, ids, Sampling(**how), end)
        return [Text(self._written(ids[1:].numpy(), one), one) for one in drawn]

    def _written(self, prompt: np.ndarray, one: Sample) -> str:
        """The text of a sample, so that prompt + text reads on."""
        ids = np.concatenate([prompt, np.array(one.tokens, dtype=np.int64)])
        if self.direction == "backward":
            return self.tokenizer.decode(ids[::-1])
        whole, before = self.tokenizer.decode(ids), self.tokenizer.decode(prompt)
        return whole[len(before) :] if whole.startswith(before) else self.tokenizer.decode(one.tokens)

    def next(self, text: str, top: int = 10) -> list[tuple[str, float]]:
        """The likeliest next tokens after a text, with their probabilities."""
        self._needs_steps("say what comes next")
        p = next_distribution(self.model, prompt_tokens(self.tokenizer, text, self.direction))
        values, index = p.topk(min(top, len(p)))
        return [(self.tokenizer.name(int(i)), float(v)) for i, v in zip(index, values)]

    def _needs_steps(self, what: str) -> None:
        if not self.model.traits.steps:
            raise InputError(f"a {self.system} sees both sides of a word, so it cannot {what}", mend="use lstm or gpt")


@dataclass(frozen=True)
class PairScore:
    """What ``score`` answers for a translation model."""

    figures: dict[str, Any]
    outputs: list[str]
    by_length: list[dict[str, Any]]
    """BLEU in bins of source length."""

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {**self.figures, "by_length": self.by_length}


class TranslationRun(Run):
    """An encoder–decoder: it translates, and scores its translations."""

    refused = {
        "text": "a translation model is scored on pairs: name two files, or one with two columns",
        "field": "a translation model is scored on pairs: use --columns source=…,target=…",
        "per_token": "a translation model is scored by the sentence",
        "streams": "sentences are no stream",
    }

    def translator(self, ensemble: Sequence[Run] = ()) -> Translator:
        """The model between its tokenizers; with others, their ensemble."""
        source, target = load_tokenizers(self.folder)
        own = (source.state(), target.state())
        for other in ensemble:
            if other.task != self.task or tuple(t.state() for t in load_tokenizers(other.folder)) != own:
                what = "has another vocabulary, so it cannot be asked together with the first"
                raise InputError(
                    what, where=str(other.folder.path), mend="train it with --tokenizer RUN/tokenizer.json"
                )
        model = Ensemble([self.model, *(run.model for run in ensemble)]) if ensemble else self.model
        longest = min(run.model.config.context for run in (self, *ensemble))
        return Translator(model, source, target, longest)

    def translate(
        self,
        lines: Sequence[str],
        *,
        search: Search | None = None,
        ensemble: Sequence[Run] = (),
        report: Report = silent,
        **how: Any,
    ) -> list[Translation]:
        """Translate lines, each in its place; see ``Translator.translate`` for how."""
        return self.translator(ensemble).translate(list(lines), search or Search(), report=report, **how)

    def score(
        self, *files: Source, columns: str = "", search: Search | None = None, report: Report = silent
    ) -> PairScore:
        """BLEU, chrF and perplexity on pairs: two files, or one with columns."""
        if not files:
            raise InputError("a translation model is scored on pairs", mend="name two files, or one with two columns")
        notes: list[str] = []
        pairs = files_of_pairs([str(f) for f in files], columns or str(self.settings.get("data.columns", "")), notes)
        for note in notes:
            report("note", {"text": note})
        figures, outputs = score_pairs(self.translator(), pairs, search or Search(), report)
        return PairScore(figures, outputs, bleu_by_length(pairs.source, outputs, [[t] for t in pairs.target]))

    def alignment(
        self, text: str, *, target: str = "", search: Search | None = None
    ) -> tuple[list[str], list[str], list[np.ndarray]]:
        """The tokens of a source and its translation (or ``target``), and where they looked: (H, T, S) a layer."""
        between = self.translator()
        source, ids, _ = pair_tokens(between, text, target, search or Search())
        end = between.tokenizer.end
        with torch.no_grad():
            state = self.model.start(torch.from_numpy(source)[None])
            seen = self.model(torch.tensor([[end, *ids]]), state, want=("attention",)).attention
        if seen is None:
            raise InputError(f"this {self.system} has no attention", where=str(self.folder.path))
        names = [between.source_tokenizer.name(int(token)) for token in source]
        return names, [between.tokenizer.name(token) for token in [*ids, end]], [layer[0].numpy() for layer in seen]


def pair_tokens(between: Translator, text: str, target: str, search: Search) -> tuple[np.ndarray, list[int], bool]:
    """A source and its translation (or ``target``) as tokens, and whether the translation has its end mark.

    The source's end mark is its last token; the target's is not among the tokens.
    """
    line = " ".join(part.strip() for part in text.splitlines() if part.strip())
    source, longest = between.encode(line), between.longest
    if not line or len(source) > longest:
        what = "an empty text" if not line else f"a text of {len(source):,} tokens"
        raise InputError(f"{what} cannot be shown", mend=f"give 1 to {longest:,} tokens")
    if not target:
        best = between.translate([line], search)[0].found[0].best
        return source, best.tokens, best.ended
    ids: list[int] = between.tokenizer.encode(target.strip()).tolist()
    if not 0 < len(ids) < longest:
        what = f"a target of {len(ids):,} tokens cannot be shown"
        raise InputError(what, mend=f"give 1 to {longest - 1:,} and leave the end mark to the model")
    return source, ids, True


def aligning_layer(layers: int) -> int:
    """Of so many layers that attend to a source the one that shows alignments, from 1: the last but one, where
    Transformers align best (Garg et al., 2019), or the only one there is."""
    return max(1, layers - 1)


class MaskedRun(Run):
    """An encoder that was pre-trained: it fills in what is hidden, and makes vectors of texts."""

    refused = {
        "text": "an encoder is scored on documents: name a file",
        "columns": "it reads text, not pairs; --field names the field of a JSONL file",
        "per_token": "an encoder sees both sides of a word, so a token has no cost of its own",
        "streams": "rows are no stream",
    }

    def score(self, *files: Source, field: str | None = None, report: Report = silent) -> MaskedScore:
        """How well it fills in what is hidden in files, and tells which sentence follows."""
        if not files:
            raise InputError("an encoder is scored on documents", mend="name a file")
        settings = resolve(self.system, layers=[self.settings])
        return score_files(settings, self.model, self.tokenizer, files, field, report)

    def predict(
        self,
        texts: Sequence[str] = (),
        *,
        file: str | Path | None = None,
        columns: str = "",
        int8: bool = False,
        report: Report = silent,
    ) -> list[dict[str, Any]]:
        """Whether the second text of each pair follows the first; a tab stands between them."""
        notes: list[str] = []
        read = read_texts(file, columns, 2, notes) if file is not None else None
        pairs = [one.texts for one in read] if read is not None else [tuple(text.split("\t")) for text in texts]
        for note in notes:
            report("note", {"text": note})
        for number, pair in enumerate(pairs, start=1):
            if len(pair) != 2:
                what = f"{len(pair)} texts where an encoder tells whether one follows another"
                raise InputError(what, where=f"text {number}", mend="put a tab between two texts")
        chances = follows(self.model, self.tokenizer, [(pair[0], pair[1]) for pair in pairs])
        return [{"follows": p >= 0.5, "probability": p} for p in chances]

    def fill(self, text: str, *, top: int = 5, rounds: int = 0, seed: int = 0, temperature: float = 0.0) -> Filled:
        """Fill in every [MASK] of a text; see ``ensue.tasks.filling.filled``."""
        return filled(self.model, self.tokenizer, text, top=top, rounds=rounds, seed=seed, temperature=temperature)

    def generate(self, prompt: str = "", **how: Any) -> list[Text]:
        """An encoder has no next token to say."""
        mend = f'ensue fill {self.folder.path} "{prompt or "once"} [MASK] [MASK]" --rounds 4'
        raise InputError(f"a {self.system} sees both sides of a word, so it fills in", mend=mend)


@dataclass(frozen=True)
class LabelScore:
    """What ``score`` answers for a model that labels."""

    figures: dict[str, Any]
    answers: list[Any]

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return self.figures


class LabelRun(Run):
    """A model that labels: it predicts, and is scored by its task's measures."""

    labels = True
    refused = {
        "text": "a model that labels is scored on labelled examples: name a file",
        "field": "use --columns to say which fields hold text and label",
        "per_token": "it labels, and says nothing of single tokens",
        "streams": "examples are no stream",
    }

    def check_options(self, options: Iterable[str]) -> None:
        """Refuse options that would do nothing: only labels are taken for each other."""
        given = list(options)
        if "out" in given and self.task not in ("classify", "pair", "tag"):
            raise InputError(
                f"{self.task} has no confusion to draw", where=str(self.folder.path), mend="leave out --out"
            )
        super().check_options(given)

    def labeller(self, int8: bool = False) -> Labeller:
        """The model between its tokenizer and its task."""
        form = form_in(self.config, self.tokenizer)
        threshold = self.config["figures"].get("valid", {}).get("threshold")
        return Labeller(quantised(self.model) if int8 else self.model, self.kind, form, threshold)

    @property
    def kind(self) -> LabelKind:
        """Its task, with as many texts as its examples had."""
        kind = LABEL_KINDS[self.task]
        texts = self.config["data"].get("texts")
        return replace(kind, texts=texts) if isinstance(kind, Whole) and texts else kind

    def predict(
        self,
        texts: Sequence[str] = (),
        *,
        file: str | Path | None = None,
        columns: str = "",
        int8: bool = False,
        report: Report = silent,
    ) -> list[dict[str, Any]]:
        """What the model says of texts, or of what a file holds, in that order."""
        labeller, kind = self.labeller(int8), self.kind
        notes: list[str] = []
        if file is not None:
            examples = kind.inputs(str(file), columns, notes)
        else:
            examples = [kind.example(text, f"text {number}") for number, text in enumerate(texts, start=1)]
        for note in notes:
            report("note", {"text": note})
        full = [place for place, one in enumerate(examples) if any(text.strip() for text in texts_of([one]))]
        found = iter(labeller.answers([examples[place] for place in full], report))
        kept = set(full)
        return [next(found) if place in kept else {"empty": True} for place in range(len(examples))]

    def score(self, *files: Source, columns: str = "", int8: bool = False, report: Report = silent) -> LabelScore:
        """The task's own measures on labelled examples."""
        if not files:
            raise InputError(self.refused["text"])
        labeller = self.labeller(int8)
        notes: list[str] = []
        said, skip = self.settings.get("data.columns", ""), self.settings.get("data.bad_lines") == "skip"
        names = [str(file) for file in files]
        examples = labeller.kind.read(names, Reading(columns or str(said), learn=False, skip=skip), notes)
        for note in notes:
            report("note", {"text": note})
        return LabelScore(*labeller.score(examples, report))


RUNS: dict[str, type[Run]] = {
    "language": LanguageRun,
    "translation": TranslationRun,
    "masked": MaskedRun,
    **dict.fromkeys(LABEL_KINDS, LabelRun),
}


def load(path: str | Path) -> Run:
    """The run in a folder."""
    run = Run(path)
    if run.task == "forecast":
        from ensue.verbs.forecasting import ForecastRun  # it is a Run itself

        return ForecastRun(path)
    return RUNS[run.task](path)
