"""``ensue score RUN --probe FILE``: how often a language model prefers the right text of a minimal pair."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ensue.core.errors import InputError
from ensue.core.events import Report, silent
from ensue.data.minimal_pairs import read_minimal_pairs
from ensue.look.probe_chart import probe_chart
from ensue.look.saving import check_suffix, save_chart
from ensue.measure.probes import probe_figures, text_log_probs
from ensue.runs.language import LanguageRun
from ensue.runs.load import Run


def probe(run: Run, source: str | Path, *, out: str | Path | None = None, report: Report = silent) -> dict[str, Any]:
    """The accuracy on the minimal pairs of a file or folder, in total and by kind; also drawn to ``out`` if given."""
    if not isinstance(run, LanguageRun):
        raise InputError(f"{run.system} is not a language model", where=str(run), hint="leave out --probe")
    if out is not None:
        check_suffix(out)
    pairs = read_minimal_pairs(source)
    texts = [text for pair in pairs for text in (pair.good, pair.bad)]
    backward = run.direction == "backward"
    log_p = text_log_probs(run.model, run.tokenizer, texts, backward=backward, report=report)
    figures = {"probe": str(source), "system": run.system, **probe_figures(pairs, log_p[::2], log_p[1::2])}
    figures["unknown"] = sum(run.tokenizer.surcharge(text, True, False)[1] > 0 for text in texts)
    if out is not None:
        save_chart(probe_chart(figures, f"{run.folder.path.name} ({run.system}) on {Path(source).name}"), out)
    return figures
