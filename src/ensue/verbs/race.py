"""``ensue race``: train systems on the same data with the same budget, and compare them in one table.

On growing shares of the labels, from scratch and from pre-trained weights, it draws learning curves. An interrupted
race can be resumed: finished runs are kept. A failure is part of the table; the other systems and seeds are trained.
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from ensue.core.errors import InputError, Interrupted, unknown_name
from ensue.core.events import Report, silent, without_repeated_notes
from ensue.core.files import disk_errors, read_json, write_json, write_text
from ensue.core.run_folder import RunFolder
from ensue.look.saving import save_chart
from ensue.look.views import show
from ensue.models.ngram import NGram
from ensue.nn.recurrent import Recurrent
from ensue.runs.load import Run, load
from ensue.verbs.fit import fit
from ensue.verbs.racing.folder import check_deletable, delete_race, is_race, open_race, read_race
from ensue.verbs.racing.plan import Candidate, RacePlan, candidates, initial_run_facts, plan_race, read_shared_corpus
from ensue.verbs.racing.results import Entrant, Race, mean_entrant, run_figures

DEFAULT_TASK = "lm"
"""The race of language models; race.json names the task of any other."""
IDENTITY = {"task": "task", "hash": "text", "budget": "budget", "match": "match", "seeds": "seeds"}
IDENTITY |= {"settings": "settings", "shares": "number of labels", "from": "initial run", "attention": "attention"}
"""The facts of race.json that a resumed race must share, by their names for people."""


def race(
    data: str | Path | Sequence[str | Path],
    *,
    task: str = DEFAULT_TASK,
    systems: Sequence[str] | None = None,
    budget: str | None = None,
    match: str = "time",
    attention: Sequence[str] = (),
    seeds: int = 1,
    labels: Sequence[int] = (),
    begin_with: str | Path = "",
    valid: str | Path | Sequence[str | Path] = (),
    settings: Mapping[str, Any] | None = None,
    out: str | Path = "runs/race",
    force: bool = False,
    resume: bool = False,
    repeat: Sequence[str] = (),
    again: str = "",
    report: Report = silent,
) -> Race:
    """Train each system on the same data with the same budget and score it on the same held-out data.

    ``task`` is lm, translate, or one that labels (classify, tag …). For the latter ``begin_with`` is a run whose system
    is also trained from its weights, and ``labels`` are numbers of labels to train on. With ``attention`` a system is
    trained once with each of these values of its setting ``attention``; "all" are all that it can use. Each is trained
    for ``budget``, by default for the steps or epochs that settings give, else for 60s; with ``labels`` and no budget
    for the task's epochs, and at least 60 updates. ``repeat`` names systems that a resumed race trains again, e.g.
    because the machine was busy. ``again`` is the command that resumes the race, for the message of an interrupted one.
    """
    folder, settings = Path(out), settings or {}
    plan = plan_race(
        task,
        systems=systems,
        budget=None if budget is None else str(budget),
        match=match,
        seeds=seeds,
        labels=labels,
        begin_with=begin_with,
        data=data,
        valid=valid,
        settings=settings,
        attention=attention,
    )
    _check_folder(folder, force, resume)
    _check_repeated(repeat, plan, resume)
    report = without_repeated_notes(report)
    corpus = read_shared_corpus(plan, report)
    result = Race(_facts(plan, settings, corpus), [], plan.rules, plan.task.labels)
    _make_folder(folder, result.facts, resume)
    plan.task.save_tokenizers(corpus, RunFolder(folder))
    entering = candidates(plan, corpus, RunFolder(folder))
    repeated = [candidate for candidate in entering if {candidate.system, candidate.name} & set(repeat)]
    for path in (path for candidate in repeated for path in _run_paths(plan, candidate, folder)):
        RunFolder(path).make(force=True)  # all at once: if the race is interrupted, it is resumed without ``repeat``
    write_json(folder / "race.json", result.as_dict())
    again = again or f"race(…, out={str(folder)!r}, resume=True)"
    for candidate in entering:
        report("race", {"text": f"— {candidate.name}"})
        try:
            result.entrants.append(_train_seeds(plan, candidate, folder, report))
        except Interrupted as stop:
            raise Interrupted(folder, again) from stop
        write_json(folder / "race.json", result.as_dict())
    _write_table_and_chart(result, folder)
    return result


def _facts(plan: RacePlan, settings: Mapping[str, Any], corpus: Any) -> dict[str, Any]:
    """The facts of race.json: the plan, the data, the settings and the machine."""
    described = plan.rules.facts(corpus, plan.task.describe_corpus(corpus))
    if plan.attention:
        described |= {"attention": list(plan.attention)}
    if plan.task.labels:
        described |= {"shares": list(plan.shares)}
    if plan.task.labels or plan.initial is not None:
        described |= {"from": initial_run_facts(plan)}
    if plan.rules.name != DEFAULT_TASK:
        described |= {"task": plan.rules.name, "measure": plan.rules.measure.key}
    return {
        "budget": plan.budget,
        "match": plan.match,
        "seeds": plan.seeds,
        "data": [Path(file).name for file in plan.typed["data.files"]],
        "settings": {name: str(value) for name, value in settings.items()},
        **described,
        "hash": corpus.hash,
        "threads": 1 if plan.match == "cpu" else torch.get_num_threads(),
        "torch": torch.__version__,
    }


def _check_folder(folder: Path, force: bool, resume: bool) -> None:
    """Refuse a folder that a race cannot be written to, before anything is read."""
    where = str(folder)
    if folder.is_file():
        raise InputError("is a file, not a folder", where=where, hint="choose another --out")
    if resume and not is_race(folder):
        raise InputError("holds no race to resume", where=where, hint="leave out --resume to start one")
    if folder.exists() and any(folder.iterdir()) and not resume:
        if not force:
            raise InputError("is there already", where=where, hint="--resume continues it, --force replaces it")
        check_deletable(folder)


def _check_repeated(repeat: Sequence[str], plan: RacePlan, resume: bool) -> None:
    """Refuse systems to train again that are not in the race, or without a race to resume."""
    if repeat and not resume:
        raise InputError("--repeat trains systems of a finished race again", hint="add --resume")
    known = [*plan.systems, *(f"{system} {one}" for system in plan.systems for one in plan.variants(system) if one)]
    for name in repeat:
        if name not in known:
            raise unknown_name("system", name, known)


def _run_paths(plan: RacePlan, candidate: Candidate, folder: Path) -> list[Path]:
    """The folder of each seed of a candidate."""
    if plan.seeds == 1:
        return [folder / candidate.folder]
    return [folder / f"{candidate.folder}-{number}" for number in range(plan.seeds)]


def _make_folder(folder: Path, facts: dict[str, Any], resume: bool) -> None:
    """Make the folder, or check that it holds this race: one table must not mix results of different races."""
    if resume:
        before = read_race(folder)
        for name, title in IDENTITY.items():
            if before.get(name) != facts.get(name):
                raise InputError(f"was a race with another {title}", where=str(folder), hint="--force starts a new one")
    elif folder.exists() and any(folder.iterdir()):
        delete_race(folder)
    with disk_errors(folder):
        folder.mkdir(parents=True, exist_ok=True)


def _train_seeds(plan: RacePlan, candidate: Candidate, folder: Path, report: Report) -> Entrant:
    """Train a candidate once for each seed; failures are part of the result."""
    figures: list[dict[str, Any]] = []
    remarks: list[str] = []
    errors: list[str] = []
    measure = plan.rules.measure
    for number, path in enumerate(_run_paths(plan, candidate, folder)):
        seed = int(candidate.settings.get("seed", 0)) + number
        name = candidate.name if plan.seeds == 1 else f"{candidate.name}, seed {seed}"
        try:
            run = _train(plan, candidate, seed, path, report)
            found, remark = run_figures(plan.rules, run), _remark(run)
            if found[measure.key] is None:
                raise InputError(f"the held-out data gives no {measure.title}", hint="see score --json for the rest")
        except Interrupted:
            raise
        except Exception as error:  # one failure must not end the race; it is part of the table
            errors.append(str(error) or type(error).__name__)
            report("race", {"text": f"{name}: failed: {errors[-1]}"})
            continue
        if plan.shares:  # checkpoints of many finished runs would fill the disk
            shutil.rmtree(run.folder.checkpoints, ignore_errors=True)
        figures.append(found)
        remarks.append(remark)
        value = format(found[measure.key], measure.format_spec)
        report("race", {"text": f"{name}: {measure.title} {value} in {found['seconds']:.0f} s"})
    entrant = mean_entrant(plan.rules, candidate, figures)
    entrant.remark = "; ".join(dict.fromkeys(filter(None, remarks)))
    entrant.error = "; ".join(dict.fromkeys(errors))
    if errors and plan.seeds > 1:
        entrant.error = f"{len(errors)} of {plan.seeds} seeds failed: {entrant.error}"
    return entrant


def _train(plan: RacePlan, candidate: Candidate, seed: int, path: Path, report: Report) -> Run:
    """The run of a candidate: the finished one in its folder, an interrupted one resumed, or a new one."""
    folder, by_name = RunFolder(path), plan.task.by_name
    what, model = (plan.task.name, candidate.system) if by_name else (candidate.system, "")
    if folder.config.exists() and not folder.damage() and "valid" in read_json(folder.config).get("figures", {}):
        return load(path)
    if folder.settings.exists():
        return fit(what, out=path, resume=True, report=report)
    return fit(what, model=model, settings={**candidate.settings, "seed": seed}, out=path, report=report)


def _remark(run: Run) -> str:
    """A remark on a run, for below the table."""
    figures = run.config["figures"]
    if figures["stopped"] == "budget":
        planned = run.settings.get("train.steps", "?")
        return f"cut short by the budget at step {figures['steps']:,} of {planned:,} planned"
    if any(layer.kernel == "reference" for layer in run.model.modules() if isinstance(layer, Recurrent)):
        return "uses the reference loop: no fused kernel computes this cell"
    if isinstance(run.model, NGram):
        return f"{sum(run.model.counts):,} n-grams up to order {run.model.config.order}; no parameters, no gradient"
    return ""


def _write_table_and_chart(result: Race, folder: Path) -> None:
    """Write race.md, and a chart if there is a result."""
    write_text(folder / "race.md", result.markdown())
    if all(entrant.value is None for entrant in result.entrants):
        return
    chart = show("race", [open_race(folder)]).draw()
    for suffix in ("html", "png", "svg"):
        save_chart(chart, folder / f"race.{suffix}")
