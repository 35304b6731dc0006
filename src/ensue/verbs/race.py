"""``ensue race``: which system suits a text or a task? Same data, same budget, one table.

On growing shares of the labels, from scratch and from a pre-trained start, it draws what pre-training saves. A race
that is broken off can be resumed: what is done is kept. One failure is written down and the others go on; so do the
other seeds of a system.
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from ensue.core.errors import InputError, Interrupted
from ensue.core.events import Report, silent, without_repeated_notes
from ensue.core.files import read_json, write_json, write_text
from ensue.core.run_folder import RunFolder
from ensue.look.saving import save_chart
from ensue.look.views import show
from ensue.nn.recurrent import Recurrent
from ensue.runs.load import Run, load
from ensue.tasks.table import race_task
from ensue.verbs.fit import fit
from ensue.verbs.racing.folder import open_race
from ensue.verbs.racing.plan import Lane, Terms, agreed, begun_facts, common_corpus, lanes
from ensue.verbs.racing.results import Entrant, Race, mean_entrant, run_figures

DEFAULT_TASK = "lm"
"""The race of language models; race.json names the task of any other."""
SAME = {"hash": "text", "shares": "number of labels", "from": "run to begin with"}
"""What a resumed race must have as it was, besides what it is called by."""


def race(
    data: str | Path | Sequence[str | Path],
    *,
    task: str = DEFAULT_TASK,
    systems: Sequence[str] | None = None,
    budget: str | None = None,
    match: str = "time",
    seeds: int = 1,
    labels: Sequence[int] = (),
    begin_with: str | Path = "",
    valid: str | Path | Sequence[str | Path] = (),
    settings: Mapping[str, Any] | None = None,
    out: str | Path = "runs/race",
    force: bool = False,
    resume: bool = False,
    again: str = "",
    report: Report = silent,
) -> Race:
    """Train each system on the same data with the same budget and score it on the same held-out data.

    ``task`` is lm, translate, or one that labels (classify, tag …). There ``begin_with`` is a run whose system also
    begins pre-trained, and ``labels`` are the shares to learn from. Each trains for ``budget`` (60s); on shares of the
    labels without one, as many epochs as the task has by itself, and at least 60 updates.
    """
    folder = Path(out)
    again = again or f"race(…, out={str(folder)!r}, resume=True)"
    terms = agreed(
        *race_task(task),
        systems=systems,
        budget=None if budget is None else str(budget),
        match=match,
        seeds=seeds,
        labels=labels,
        begin_with=begin_with,
        files={"data.files": _list(data), "data.valid": _list(valid)},
        settings=settings or {},
    )
    _check_folder(folder, force, resume)
    report = without_repeated_notes(report)
    corpus = common_corpus(terms, report)
    result = Race(_facts(terms, settings or {}, corpus), [], terms.rules, terms.task.labels)
    _begin(folder, result.facts, resume)
    terms.task.save_tokenizers(corpus, RunFolder(folder))
    write_json(folder / "race.json", result.as_dict())
    for lane in lanes(terms, corpus, RunFolder(folder)):
        report("race", {"text": f"— {lane.name}"})
        result.entrants.append(_entrant(terms, lane, folder, again, report))
        write_json(folder / "race.json", result.as_dict())
    _write_up(result, folder)
    return result


def _list(value: str | Path | Sequence[str | Path]) -> list[str | Path]:
    return [value] if isinstance(value, str | Path) else list(value)


def _facts(terms: Terms, settings: Mapping[str, Any], corpus: Any) -> dict[str, Any]:
    """What race.json says about the terms, the data, the settings and the machine."""
    described = terms.rules.facts(corpus, terms.task.describe_corpus(corpus))
    if terms.task.labels:
        described |= {"shares": list(terms.shares), "from": begun_facts(terms)}
    if terms.rules.name != DEFAULT_TASK:
        described |= {"task": terms.rules.name, "measure": terms.rules.measure.key}
    return {
        "budget": terms.budget,
        "match": terms.match,
        "seeds": terms.seeds,
        "data": [Path(file).name for file in terms.typed["data.files"]],
        "settings": {name: str(value) for name, value in settings.items()},
        **described,
        "hash": corpus.hash,
        "threads": torch.get_num_threads(),
        "torch": torch.__version__,
    }


def _check_folder(folder: Path, force: bool, resume: bool) -> None:
    """Refuse to write where a race cannot be, before anything is touched."""
    if folder.is_file():
        raise InputError("is a file, not a folder", where=str(folder), hint="choose another --out")
    if resume and not (folder / "race.json").exists():
        raise InputError("holds no race to resume", where=str(folder), hint="leave out --resume to begin one")
    if folder.exists() and any(folder.iterdir()) and not resume:
        if not force:
            hint = "--resume goes on with it, --force replaces it"
            raise InputError("is there already", where=str(folder), hint=hint)
        if not (folder / "race.json").exists():
            what = "is not a race, so --force will not delete it"
            raise InputError(what, where=str(folder), hint="choose another --out")


def _begin(folder: Path, facts: dict[str, Any], resume: bool) -> None:
    """Make the folder, or see that it holds this very race: results of different races must not stand in one table."""
    if resume:
        before = read_json(folder / "race.json")
        for name in ("task", "hash", "budget", "match", "seeds", "settings", "shares", "from"):
            if before.get(name) != facts.get(name):
                what = f"was a race with another {SAME.get(name, name)}"
                raise InputError(what, where=str(folder), hint="--force begins a new one")
    elif folder.exists():
        shutil.rmtree(folder)
    folder.mkdir(parents=True, exist_ok=True)


def _entrant(terms: Terms, lane: Lane, folder: Path, again: str, report: Report) -> Entrant:
    """Train one once a seed; a failure is an answer too."""
    done: list[tuple[dict[str, Any], str]] = []
    errors: list[str] = []
    measure = terms.rules.measure
    for number in range(terms.seeds):
        path = folder / (lane.folder if terms.seeds == 1 else f"{lane.folder}-{number}")
        seed = int(lane.settings.get("seed", 0)) + number
        name = lane.name if terms.seeds == 1 else f"{lane.name}, seed {seed}"
        try:
            run = _trained(terms, lane, seed, path, report)
            figures, remark = run_figures(terms.rules, run), _remark(run)
            if figures[measure.key] is None:
                raise InputError(f"what is held out gives no {measure.title}", hint="see score --json for the rest")
        except Interrupted as stop:
            raise Interrupted(folder, again) from stop
        except Exception as error:  # one failure must not end the race; it stands in the table
            errors.append(str(error) or type(error).__name__)
            report("race", {"text": f"{name}: failed: {errors[-1]}"})
            continue
        if terms.shares:  # so many runs would fill a disk with what is needed to go on, and they are done
            shutil.rmtree(run.folder.checkpoints, ignore_errors=True)
        done.append((figures, remark))
        value = format(figures[measure.key], measure.form)
        report("race", {"text": f"{name}: {measure.title} {value} in {figures['seconds']:.0f} s"})
    entrant = mean_entrant(terms.rules, lane.system, lane.start, lane.labels, [figures for figures, _ in done])
    entrant.remark = "; ".join(dict.fromkeys(remark for _, remark in done if remark))
    entrant.error = "; ".join(dict.fromkeys(errors))
    if errors and terms.seeds > 1:
        entrant.error = f"{len(errors)} of {terms.seeds} seeds failed: {entrant.error}"
    return entrant


def _trained(terms: Terms, lane: Lane, seed: int, path: Path, report: Report) -> Run:
    """The run of one that races: as it is where it is done, else gone on with, else new."""
    folder, by_name = RunFolder(path), terms.task.by_name
    what, model = (terms.task.name, lane.system) if by_name else (lane.system, "")
    if folder.config.exists() and "valid" in read_json(folder.config).get("figures", {}):
        return load(path)
    if folder.settings.exists():
        return fit(what, out=path, resume=True, report=report)
    return fit(what, model=model, settings={**lane.settings, "seed": seed}, out=path, report=report)


def _remark(run: Run) -> str:
    """What the table should add about a run."""
    figures = run.config["figures"]
    if figures["stopped"] == "budget":
        planned = run.settings.get("train.steps", "?")
        return f"cut short at step {figures['steps']:,} of {planned:,} planned: the machine slowed down"
    if any(layer.kernel == "reference" for layer in run.model.modules() if isinstance(layer, Recurrent)):
        return "runs the reference loop: no fused kernel computes this form"
    if run.system == "ngram":
        return f"{sum(run.model.counts):,} n-grams up to order {run.model.config.order}; no parameters, no gradient"
    return ""


def _write_up(result: Race, folder: Path) -> None:
    """The table, and the picture where there is something to draw."""
    write_text(folder / "race.md", result.markdown())
    if all(entrant.value is None for entrant in result.entrants):
        return
    chart = show("race", [open_race(folder)]).draw()
    for ending in ("html", "png", "svg"):
        save_chart(chart, folder / f"race.{ending}")
