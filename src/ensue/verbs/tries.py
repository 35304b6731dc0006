"""Draw several texts of one prompt, choose among them by a rule, and keep all of them in a file."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ensue.core.errors import InputError, unknown_name
from ensue.core.files import disk_errors, finite, write_json
from ensue.measure.tries import RULES, Try, compare
from ensue.runs.run import Run, Text


@dataclass(frozen=True)
class Tries:
    """The texts that were drawn, and for each its scores and whether the rule chose it."""

    texts: list[Text]
    tries: list[Try]

    @property
    def chosen(self) -> list[Text]:
        """The texts that the rule chose."""
        return [text for text, one in zip(self.texts, self.tries) if one.chosen]


def draw_tries(
    run: Run, prompt: str = "", *, select: str = "all", log: Path | None = None, int8: bool = False, **sampling: Any
) -> Tries:
    """Draw texts in one batch and choose by the rule ``select``; see ``ensue.measure.tries.RULES``.

    ``sampling`` are the options of ``ensue.search.sampling.Sampling``. ``log`` is a JSON file for all texts.
    """
    if select not in RULES:
        raise unknown_name("value of --select", select, RULES)
    if log is not None and log.is_dir():
        raise InputError(
            "is a folder, and should be a file", where=str(log), hint="name a file, as in --log tries.json"
        )
    if log is not None:
        with disk_errors(log):
            log.parent.mkdir(parents=True, exist_ok=True)
    texts = run.generate(prompt, int8=int8, **sampling)
    drawn = Tries(texts, compare([text.sample for text in texts], select))
    if log is not None:
        rows = [{**one.as_dict(), "text": text.text} for text, one in zip(drawn.texts, drawn.tries)]
        facts = {"run": str(run.folder.path), "system": run.system, "prompt": prompt, **sampling}
        write_json(log, finite({**facts, "select": select, "rule": RULES[select], "tries": rows}))
    return drawn
