"""Runs of models that see both sides of a word: masked language models, and models of words in context."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ensue.core.errors import InputError
from ensue.core.events import Report, silent
from ensue.core.wording import counted
from ensue.data.labelled import read_texts
from ensue.data.sources import Source
from ensue.measure.contexts import ContextScore
from ensue.measure.masked import MaskedScore
from ensue.runs.mask_filling import Filled, fill_masks, fill_words
from ensue.runs.run import Run, Text
from ensue.runs.settings_resolution import resolve
from ensue.tasks import contexts, masked_modelling

PAIR_ACCURACIES = {"next_accuracy": "next-sentence", "order_accuracy": "sentence-order"}
"""What is predicted of a pair of texts, by the name of its figure."""


def pair_accuracies(score: Mapping[str, Any]) -> list[tuple[str, float]]:
    """What a score has of pairs of texts: what is predicted, and the accuracy."""
    return [(what, score[name]) for name, what in PAIR_ACCURACIES.items() if score.get(name) is not None]


def replaced_lines(score: Mapping[str, Any]) -> list[str]:
    """What a score has of a discriminator and of its generator."""
    if score.get("replaced_accuracy") is None:
        return []
    accuracy, share = score["replaced_accuracy"], score["replaced_share"]
    detected = f"replaced tokens: accuracy {accuracy:.1%} (always saying no: {1 - share:.1%})"
    return [
        f"{detected}, F1 {score['replaced_f1']:.3f}",
        f"generator: {score['generator_bits']:.3f} bits per masked token",
    ]


class BidirectionalRun(Run):
    """A model that sees both sides of a word: it is scored on files, and fills in masks."""

    refused = {
        "text": "it is scored on files: name one",
        "columns": "it reads text, not pairs; --field names the field of a JSONL file",
        "per_token": "it sees both sides of a word, so a token has no cost of its own",
        "streams": "it reads sentences, not a stream",
    }
    capabilities = ("fill",)

    def generate(self, prompt: str = "", **options: Any) -> list[Text]:
        """It has no next token."""
        hint = f'ensue fill {self} "{prompt or "once"} [MASK] [MASK]"'
        raise InputError(f"{self.system} sees both sides of a word, so it fills in masks", hint=hint)


class MaskedRun(BidirectionalRun):
    """A pre-trained encoder: it fills in masks, and says whether one text follows another."""

    loss_unit = "nats per token"

    @property
    def detects(self) -> bool:
        """Whether it learnt which tokens were replaced."""
        return hasattr(self.model, "replaced_logits")

    @staticmethod
    def score_lines(score: Mapping[str, Any]) -> list[str]:
        """The loss and accuracy of masked tokens, and the accuracy of pairs."""
        masked, unigram = score["masked_loss"], score["unigram_loss"]
        return [
            f"masked loss {masked:.4f} nats per masked token (unigram baseline: {unigram:.4f})",
            f"perplexity {score['masked_perplexity']:.2f} · accuracy {score['accuracy']:.1%}",
            *(f"{what} accuracy {share:.1%}" for what, share in pair_accuracies(score)),
            *replaced_lines(score),
            f"{score['hidden']:,} masked tokens in {score['rows']:,} rows",
        ]

    @classmethod
    def card_lines(cls, score: Mapping[str, Any]) -> list[str]:
        """The loss and accuracy of masked tokens, and the accuracy of pairs."""
        return [
            f"| validation text | {score['hidden']:,} masked tokens |",
            f"| masked loss | {score['masked_loss']:.4f} nats (guessing by frequency: {score['unigram_loss']:.4f}) |",
            f"| filled in correctly | {score['accuracy']:.1%} |",
            *(f"| {what} correct | {share:.1%} |" for what, share in pair_accuracies(score)),
            *(f"| replaced tokens | {line} |" for line in replaced_lines(score)[:1]),
        ]

    def score(self, *files: Source, field: str | None = None, report: Report = silent) -> MaskedScore:
        """The loss and accuracy of masked tokens in files, and the accuracy of pairs."""
        self.check_files(files)
        self.report_untrained("masked", report)
        settings = resolve(self.system, layers=[self.settings])
        return masked_modelling.score_files(settings, self.model, self.tokenizer, files, field, report)

    def read_examples(self, file: str | Path, columns: str, notes: list[str]) -> list[tuple[str, ...]]:
        """The pairs of texts in a file; for a discriminator, its texts."""
        if self.detects:
            return [one.texts for one in read_texts(file, columns, 1, notes)]
        return [one.texts for one in read_texts(file, columns, 2, notes)]

    def make_example(self, text: str, where: str) -> tuple[str, ...]:
        """Two texts with a tab between them; one text for a discriminator."""
        if self.detects:
            return (text,)
        pair = tuple(text.split("\t"))
        if len(pair) != 2:
            what = f"{len(pair)} texts where an encoder says whether one follows another"
            raise InputError(what, where=where, hint="put a tab between two texts")
        return pair

    def predict_examples(self, examples: list[Any], int8: bool, report: Report) -> list[dict[str, Any]]:
        """Whether the second text of each pair follows the first; or which tokens of each text look replaced."""
        if self.detects:
            return masked_modelling.replaced_probabilities(self.model, self.tokenizer, [text for (text,) in examples])
        probabilities = masked_modelling.next_sentence_probabilities(self.model, self.tokenizer, examples)
        return [{"follows": p >= 0.5, "probability": p} for p in probabilities]

    def fill(
        self,
        text: str,
        *,
        top: int = 5,
        rounds: int = 0,
        seed: int = 0,
        temperature: float = 0.0,
        report: Report = silent,
    ) -> Filled:
        """Fill in every [MASK] of a text; see ``ensue.runs.mask_filling.fill_masks``."""
        self.report_untrained("masked", report)
        return fill_masks(self.model, self.tokenizer, text, top=top, rounds=rounds, seed=seed, temperature=temperature)


class ContextRun(BidirectionalRun):
    """elmo or context2vec: vectors of words in their contexts."""

    @staticmethod
    def score_lines(score: Mapping[str, Any]) -> list[str]:
        """The perplexity of words in each direction."""
        sizes = f"{counted(score['sentences'], 'sentence')}, {counted(score['words'], 'word')}"
        return [
            " · ".join(f"{name} perplexity {value:.2f} per word" for name, value in score["perplexity"].items()),
            f"{sizes}, {score['unknown']:,} out of vocabulary",
        ]

    @classmethod
    def card_lines(cls, score: Mapping[str, Any]) -> list[str]:
        """The perplexity of words in each direction."""
        shown = [f"| {name} perplexity per word | {value:.2f} |" for name, value in score["perplexity"].items()]
        return [f"| validation text | {cls.score_lines(score)[-1]} |", *shown]

    def score(self, *files: Source, field: str | None = None, report: Report = silent) -> ContextScore:
        """The perplexity of the words of files, in each direction."""
        self.check_files(files)
        length = int(self.settings.get("data.length", 100))
        return contexts.score_files(self.model, self.tokenizer, files, field, length, report)

    def fill(
        self,
        text: str,
        *,
        top: int = 5,
        rounds: int = 0,
        seed: int = 0,
        temperature: float = 0.0,
        report: Report = silent,
    ) -> Filled:
        """Fill in every [MASK] of a text; see ``ensue.runs.mask_filling.fill_words``."""
        if rounds or temperature:
            what = f"{self.system} fills in each mask by itself, with the most likely word"
            raise InputError(what, hint="leave out the other options")
        return fill_words(self.model, self.tokenizer, text, top)
