"""A run of a model of words in context: it scores sentences, and says which words fit into a gap."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ensue.core.errors import InputError
from ensue.core.events import Report, silent
from ensue.data.sources import Source
from ensue.measure.contexts import ContextScore
from ensue.runs.cloze import filled_gaps
from ensue.runs.mask_filling import Filled
from ensue.runs.run import Run, Text
from ensue.tasks.contexts import score_files


class ContextRun(Run):
    """elmo or context2vec: vectors of words where they stand."""

    refused = {
        "text": "it is scored on sentences: name a file",
        "columns": "it reads text, not pairs; --field names the field of a JSONL file",
        "per_token": "it sees both sides of a word, so a token has no cost of its own",
        "streams": "sentences are no stream",
    }

    capabilities = ("fill",)

    @staticmethod
    def score_lines(score: Mapping[str, Any]) -> list[str]:
        """The perplexity of words, from each side."""
        sizes = f"{score['sentences']:,} sentences, {score['words']:,} words"
        return [
            " · ".join(f"{name} perplexity {value:.2f} per word" for name, value in score["perplexity"].items()),
            f"{sizes}, {score['unknown']:,} out of vocabulary",
        ]

    @classmethod
    def card_lines(cls, score: Mapping[str, Any]) -> list[str]:
        """The perplexity of words, from each side."""
        shown = [f"| {name} perplexity per word | {value:.2f} |" for name, value in score["perplexity"].items()]
        return [f"| validation text | {cls.score_lines(score)[-1]} |", *shown]

    def score(self, *files: Source, field: str | None = None, report: Report = silent) -> ContextScore:
        """The perplexity of words, from each of their sides."""
        if not files:
            raise InputError("it is scored on sentences", hint="name a file")
        length = int(self.settings.get("data.length", 100))
        return score_files(self.model, self.tokenizer, files, field, length, report)

    def fill(self, text: str, *, top: int = 5, rounds: int = 0, seed: int = 0, temperature: float = 0.0) -> Filled:
        """Which words fit into the gaps of a text, each [MASK]; see ``ensue.runs.cloze.filled_gaps``."""
        if rounds or temperature:
            raise InputError(
                "its gaps are filled one by one, by the likeliest word", hint="leave out the other options"
            )
        return filled_gaps(self.model, self.tokenizer, text, top)

    def generate(self, prompt: str = "", **how: Any) -> list[Text]:
        """It has no next word to say."""
        hint = f'ensue fill {self.folder.path} "{prompt or "once"} [MASK] ."'
        raise InputError(f"{self.system} reads from both ends, so it fills in", hint=hint)
