"""A run that fills in what is hidden."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ensue.core.errors import InputError
from ensue.core.events import Report, silent
from ensue.data.labelled import read_texts
from ensue.data.sources import Source
from ensue.measure.masked import MaskedScore
from ensue.runs.mask_filling import Filled, filled
from ensue.runs.run import Run, Text
from ensue.runs.settings_resolution import resolve
from ensue.tasks.masked_modelling import follows, score_files


class MaskedRun(Run):
    """An encoder that was pre-trained: it fills in what is hidden, and makes vectors of texts."""

    refused = {
        "text": "an encoder is scored on documents: name a file",
        "columns": "it reads text, not pairs; --field names the field of a JSONL file",
        "per_token": "an encoder sees both sides of a word, so a token has no cost of its own",
        "streams": "rows are no stream",
    }

    capabilities = ("fill",)

    @property
    def loss_unit(self) -> str:
        """The unit of its loss."""
        return "nats per token"

    @staticmethod
    def score_lines(score: Mapping[str, Any]) -> list[str]:
        """The loss and accuracy of masked tokens, and which sentence follows."""
        masked, unigram = score["masked_loss"], score["unigram_loss"]
        follows = [f"next-sentence accuracy {score['next_accuracy']:.1%}"] if "next_accuracy" in score else []
        return [
            f"masked loss {masked:.4f} nats per masked token (unigram baseline: {unigram:.4f})",
            f"perplexity {score['masked_perplexity']:.2f} · accuracy {score['accuracy']:.1%}",
            *follows,
            f"{score['hidden']:,} masked tokens in {score['rows']:,} rows",
        ]

    @classmethod
    def card_lines(cls, score: Mapping[str, Any]) -> list[str]:
        """The loss and accuracy of masked tokens, and which sentence follows."""
        follows = score.get("next_accuracy")
        return [
            f"| validation text | {score['hidden']:,} masked tokens |",
            f"| masked loss | {score['masked_loss']:.4f} nats (guessing by frequency: {score['unigram_loss']:.4f}) |",
            f"| filled in correctly | {score['accuracy']:.1%} |",
            *([f"| next sentence correct | {follows:.1%} |"] if follows is not None else []),
        ]

    def score(self, *files: Source, field: str | None = None, report: Report = silent) -> MaskedScore:
        """How well it fills in what is hidden in files, and tells which sentence follows."""
        if not files:
            raise InputError("an encoder is scored on documents", hint="name a file")
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
                raise InputError(what, where=f"text {number}", hint="put a tab between two texts")
        chances = follows(self.model, self.tokenizer, [(pair[0], pair[1]) for pair in pairs])
        return [{"follows": p >= 0.5, "probability": p} for p in chances]

    def fill(self, text: str, *, top: int = 5, rounds: int = 0, seed: int = 0, temperature: float = 0.0) -> Filled:
        """Fill in every [MASK] of a text; see ``ensue.runs.mask_filling.filled``."""
        return filled(self.model, self.tokenizer, text, top=top, rounds=rounds, seed=seed, temperature=temperature)

    def generate(self, prompt: str = "", **how: Any) -> list[Text]:
        """An encoder has no next token to say."""
        hint = f'ensue fill {self.folder.path} "{prompt or "once"} [MASK] [MASK]" --rounds 4'
        raise InputError(f"a {self.system} sees both sides of a word, so it fills in", hint=hint)
