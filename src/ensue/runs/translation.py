"""A run that translates."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from ensue.core.errors import InputError
from ensue.core.events import Report, report_all, silent
from ensue.core.settings import build
from ensue.data.labelled import read_texts
from ensue.data.pair_files import split_tasks
from ensue.data.posed import TaskForm, pose_texts, task_forms
from ensue.data.sources import Source
from ensue.measure.translation import bleu_by_length
from ensue.runs.run import Run
from ensue.search.beam import Search
from ensue.search.ensemble import Ensemble
from ensue.search.translator import Translation, Translator
from ensue.tasks.pair_reading import PairSettings, read_test_pairs
from ensue.tasks.translation import load_tokenizers, score_pairs


@dataclass(frozen=True)
class PairScore:
    """The result of ``score`` for a translation model."""

    figures: dict[str, Any]
    outputs: list[str]
    by_length: list[dict[str, Any]]
    """BLEU in bins of source length."""

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {**self.figures, "by_length": self.by_length}


class TranslationRun(Run):
    """An encoder–decoder: it translates, and its translations are scored."""

    supports_int8 = True
    refused = {
        "text": "a translation model is scored on pairs: name two files, or one with two columns",
        "field": "a translation model is scored on pairs: use --columns source=…,target=…",
        "per_token": "a translation model scores sentences",
        "streams": "it reads sentences, not a stream",
    }
    reads_texts = False
    capabilities = ("translate",)
    loss_unit = "nats per token"

    @staticmethod
    def score_lines(score: Mapping[str, Any]) -> list[str]:
        """BLEU and chrF, the perplexity of the references, and BLEU by length."""
        lower, exact = score["bleu_lower_tokenised"], score["exact"]
        per, bits = score["perplexity"], score["bits_per_byte"]
        return [
            f"BLEU {score['bleu']:.2f} ({score['bleu_signature']})",
            f"BLEU {lower:.2f} in lower case · chrF {score['chrf']:.2f} · {exact:.1%} exact",
            f"perplexity {per['token']:.2f} per token, {per['word']:.2f} per word · {bits:.4f} bits per byte",
            f"{score['sentences']:,} sentences, {score['tokens']:,} tokens, {score['unknown']:,} unknown",
            *(
                f"  {row['label']:>10} words  {row['sentences']:>6,} sentences  BLEU {row['bleu']:6.2f}"
                for row in score.get("by_length", [])
            ),
        ]

    @classmethod
    def card_lines(cls, score: Mapping[str, Any]) -> list[str]:
        """BLEU, chrF and perplexity."""
        return [
            f"| validation pairs | {score['sentences']:,} sentences, {score['tokens']:,} target tokens |",
            f"| BLEU | {score['bleu']:.2f} ({score['bleu_signature']}) |",
            f"| chrF | {score['chrf']:.2f} ({score['chrf_signature']}) |",
            f"| exact | {score['exact']:.1%} |",
            f"| perplexity per token | {score['perplexity']['token']:.2f} |",
        ]

    @property
    def pair_settings(self) -> PairSettings:
        """How the pairs that it learnt from were read."""
        own = {field.name: self.settings.get(f"data.{field.name}") for field in fields(PairSettings)}
        settings: PairSettings = build(
            PairSettings, {name: one for name, one in own.items() if one is not None}, "data."
        )
        return settings

    @property
    def form(self) -> TaskForm:
        """The form of its task; of several tasks none: a text must have the prefix of its own."""
        data = self.pair_settings
        several = len(split_tasks(data.files)) > 1
        return TaskForm() if several or not data.files else task_forms(1, data.prefix, data.pose, data.labels)[0]

    def translator(self, ensemble: Sequence[Run] = (), int8: bool = False) -> Translator:
        """The model with its tokenizers; with other runs, their ensemble."""
        source, target = load_tokenizers(self.folder)
        own = (source.state(), target.state())
        for other in ensemble:
            if other.task != self.task:
                raise other.cannot("translate")
            if tuple(tokenizer.state() for tokenizer in load_tokenizers(other.folder)) != own:
                what = "has another vocabulary, so it cannot be in an ensemble with the first"
                raise InputError(what, where=str(other), hint="train it with --tokenizer RUN/tokenizer.json")
        models = [run.model_for(int8) for run in (self, *ensemble)]
        longest = min(run.model.config.context for run in (self, *ensemble))
        return Translator(Ensemble(models) if ensemble else models[0], source, target, longest, self.form.prefix)

    def translate(
        self,
        lines: Sequence[str],
        *,
        search: Search | None = None,
        ensemble: Sequence[Run] = (),
        int8: bool = False,
        **options: Any,
    ) -> list[Translation]:
        """Translations of lines, in their order; see ``Translator.translate`` for ``options``."""
        return self.translator(ensemble, int8).translate(list(lines), search or Search(), **options)

    def score(
        self,
        *files: Source,
        columns: str = "",
        search: Search | None = None,
        int8: bool = False,
        report: Report = silent,
    ) -> PairScore:
        """BLEU, chrF and perplexity on pairs: two files, or one with columns."""
        self.check_files(files)
        notes: list[str] = []
        settings = self.pair_settings
        settings = replace(settings, columns=columns or settings.columns)
        pairs = read_test_pairs([str(f) for f in files], settings, notes)
        report_all(notes, report)
        figures, outputs = score_pairs(self.translator(int8=int8), pairs, search or Search(), report)
        return PairScore(figures, outputs, bleu_by_length(pairs.source, outputs, [[t] for t in pairs.target]))

    def read_examples(self, file: str | Path, columns: str, notes: list[str]) -> list[str]:
        """The texts of a file, or pairs of texts, as sources."""
        count = 2 if self.form.pose in ("pair", "regress") else 1
        return [pose_texts(one.texts) for one in read_texts(file, columns, count, notes, keep_empty=True)]

    def make_example(self, text: str, where: str) -> str:
        """A line as a source; two texts have a tab between them."""
        return pose_texts(text.split("\t")[:2])

    def predict_examples(self, examples: list[Any], int8: bool, report: Report) -> list[dict[str, Any]]:
        """What it writes for each source, by greedy search."""
        found = self.translate(examples, search=Search(beam=1), int8=int8, report=report)
        return [{"output": one.text, "log_prob": one.log_prob} for one in found]

    def alignment(
        self, text: str, *, target: str = "", search: Search | None = None
    ) -> tuple[list[str], list[str], list[np.ndarray]]:
        """The tokens of a source and of its translation (or ``target``), and each layer's attention, (H, T, S)."""
        translator = self.translator()
        source, ids, _ = source_and_target(translator, text, target, search or Search())
        end = translator.tokenizer.end
        with torch.no_grad():
            state = self.model.start(torch.from_numpy(source)[None])
            weights = self.model(torch.tensor([[translator.first, *ids]]), state, want=("attention",)).attention
        if weights is None:
            raise InputError(f"this {self.system} has no attention", where=str(self))
        sources = [translator.source_tokenizer.name(int(token)) for token in source]
        targets = [translator.tokenizer.name(token) for token in [*ids, end]]
        return sources, targets, [layer[0].numpy() for layer in weights]


def source_and_target(
    translator: Translator, text: str, target: str, search: Search
) -> tuple[np.ndarray, list[int], bool]:
    """A source and its translation (or ``target``) as tokens, and whether the translation ended with the end token.

    The source's last token is its end token; the target's end token is left out.
    """
    line = " ".join(part.strip() for part in text.splitlines() if part.strip())
    source, longest = translator.encode(line), translator.longest
    if not line or len(source) > longest:
        what = "an empty text" if not line else f"a text of {len(source):,} tokens"
        raise InputError(f"{what} cannot be shown", hint=f"give 1 to {longest:,} tokens")
    if not target:
        best = translator.translate([line], search)[0].results[0].best
        return source, best.tokens, best.ended
    ids: list[int] = translator.tokenizer.encode(target.strip()).tolist()
    if not 0 < len(ids) < longest:
        what = f"a target of {len(ids):,} tokens cannot be shown"
        raise InputError(what, hint=f"give 1 to {longest - 1:,} without the end token")
    return source, ids, True
