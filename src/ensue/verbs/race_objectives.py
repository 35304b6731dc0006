"""``ensue race --objectives``: pre-train with each objective, fine-tune each on the same labels, and compare.

An interrupted race can be resumed: finished runs are kept. A failure is part of the table; the others are trained.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from ensue.core.errors import InputError, Interrupted
from ensue.core.events import Report, silent, without_repeated_notes
from ensue.core.files import disk_errors, read_json, write_json, write_text
from ensue.core.run_folder import RunFolder
from ensue.look.label_curve import SCRATCH
from ensue.look.objectives import objectives_chart
from ensue.look.saving import save_chart
from ensue.runs.load import Run, load
from ensue.runs.settings_resolution import resolve
from ensue.tasks.table import task_name, task_spec
from ensue.verbs.fit import fit
from ensue.verbs.racing.folder import check_deletable, delete_race
from ensue.verbs.racing.objectives import (
    FROM_SCRATCH,
    OBJECTIVE_RACE,
    OBJECTIVES,
    RESULTS,
    LabelledSet,
    ObjectivePlan,
    ObjectiveRace,
    ObjectiveResult,
    plan_objectives,
)
from ensue.verbs.racing.results import run_figures

LOSSLESS = {"tokenizer.kind": "bpe", "tokenizer.lowercase": False}
"""The tokenizer where none is named: masked and next tokens can both be predicted with it."""
IDENTITY = {"budget": "budget", "match": "match", "seeds": "seeds", "settings": "settings", "shape": "shape"}
IDENTITY |= {"objectives_named": "objectives", "then_named": "labelled data", "hash": "text"}
"""The facts of objectives.json that a resumed race must share, by their names for people."""


def race_objectives(
    data: str | Path | Sequence[str | Path],
    objectives: Sequence[str],
    then: Sequence[str],
    *,
    then_valid: Sequence[str] = (),
    budget: str | None = None,
    match: str = "time",
    seeds: int = 1,
    settings: Mapping[str, Any] | None = None,
    out: str | Path = "runs/objectives",
    force: bool = False,
    resume: bool = False,
    again: str = "",
    report: Report = silent,
) -> ObjectiveRace:
    """Pre-train one body with each objective on the same text, and fine-tune each on every labelled set.

    ``then`` are labelled files, each with its task in front where it is not classify (``tag:train.conll``), and
    ``then_valid`` files to score on, in the same order. Each objective is trained for ``budget``; with ``match``
    "tokens" each reads the text once. Settings that begin with ``then.`` are those of fine-tuning.
    """
    folder, settings = Path(out), settings or {}
    plan = plan_objectives(
        data, objectives, then, then_valid=then_valid, budget=budget, match=match, seeds=seeds, settings=settings
    )
    check_settings(plan)
    _check_folder(folder, force, resume)
    report = without_repeated_notes(report)
    corpus = _shared_corpus(plan, report)
    facts = {
        "data": [Path(file).name for file in plan.files["data.files"]],
        "budget": plan.budget,
        "match": plan.match,
        "seeds": plan.seeds,
        "settings": {name: str(value) for name, value in settings.items()},
        "shape": plan.shape,
        "objectives_named": list(plan.objectives),
        "then_named": [f"{one.task}:{Path(one.file).name}" for one in plan.then],
        "hash": corpus.hash,
        "threads": 1 if plan.match == "cpu" else torch.get_num_threads(),
        "torch": torch.__version__,
    }
    _make_folder(folder, facts, resume)
    task_spec("masked").save_tokenizers(corpus, RunFolder(folder))
    race = ObjectiveRace(facts, plan.then)
    try:
        for name in (*plan.objectives, SCRATCH):
            race.results.append(_train_objective(plan, name, folder, report))
            write_json(folder / RESULTS, race.as_dict())
    except Interrupted as stop:
        raise Interrupted(folder, again or f"race_objectives(…, out={str(folder)!r}, resume=True)") from stop
    _write_table_and_chart(race, folder)
    return race


def check_settings(plan: ObjectivePlan) -> None:
    """Refuse wrong settings of any objective, and of fine-tuning, before anything is read."""
    for name in plan.objectives:
        resolve(OBJECTIVES[name].system, layers=[plan.pretraining(name, "wordpiece")])
    for labelled in plan.then:
        layer = {**plan.fine_tuning(labelled, "", "wordpiece"), "data.files": (labelled.file,)}
        resolve(FROM_SCRATCH.system, task=labelled.task, layers=[layer])


def _shared_corpus(plan: ObjectivePlan, report: Report) -> Any:
    """The text as an encoder reads it; its tokenizer is that of all."""
    given = {name: value for name, value in plan.typed.items() if name.startswith("tokenizer.")}
    settings = resolve("bert", layers=[{**plan.pretraining("mlm", ""), **LOSSLESS, **given}])
    corpus = task_spec("masked").read_corpus(settings, None, report)
    if any(task_name(OBJECTIVES[name].system) == "language" for name in plan.objectives):
        corpus.tokenizer.surcharge("")  # an error if bits per byte cannot be counted
    return corpus


def _check_folder(folder: Path, force: bool, resume: bool) -> None:
    """Refuse a folder that the race cannot be written to, before anything is read."""
    where = str(folder)
    if folder.is_file():
        raise InputError("is a file, not a folder", where=where, hint="choose another --out")
    if resume and not (folder / RESULTS).is_file():
        raise InputError("holds no race of objectives to resume", where=where, hint="leave out --resume to start one")
    if folder.exists() and any(folder.iterdir()) and not resume:
        if not force:
            raise InputError("is there already", where=where, hint="--resume continues it, --force replaces it")
        check_deletable(folder, OBJECTIVE_RACE)


def _make_folder(folder: Path, facts: dict[str, Any], resume: bool) -> None:
    """Make the folder, or check that it holds this race."""
    if resume:
        before = read_json(folder / RESULTS)
        for name, title in IDENTITY.items():
            if before.get(name) != facts[name]:
                raise InputError(f"was a race with other {title}", where=str(folder), hint="--force starts a new one")
        return
    if folder.exists() and any(folder.iterdir()):
        delete_race(folder, OBJECTIVE_RACE)
    with disk_errors(folder):
        folder.mkdir(parents=True, exist_ok=True)
    write_json(folder / RESULTS, {**facts, "then": [], "objectives": []})


def _train_objective(plan: ObjectivePlan, name: str, folder: Path, report: Report) -> ObjectiveResult:
    """Pre-train with one objective and fine-tune on every labelled set, once for each seed."""
    scratch = name == SCRATCH
    objective = FROM_SCRATCH if scratch else OBJECTIVES[name]
    result = ObjectiveResult(name, objective.title, objective.system)
    tokenizer = str(RunFolder(folder).tokenizer.absolute())
    for number in range(plan.seeds):
        seed = int(plan.typed.get("seed", 0)) + number
        start = folder / f"{'scratch' if scratch else name}-{number}"
        try:
            if not scratch:
                report("race", {"text": f"— {name}, seed {seed}: pre-training"})
                run = _trained(objective.system, start, {**plan.pretraining(name, tokenizer), "seed": seed}, report)
                figures = run.config["figures"]
                result.seconds += figures["seconds"] / plan.seeds
                result.tokens, result.parameters = figures["tokens"], figures["parameters"]
            for labelled in plan.then:
                tuned = start.with_name(f"{start.name}-{labelled.name}")
                settings = {**plan.fine_tuning(labelled, "" if scratch else str(start), tokenizer), "seed": seed}
                score, parameters = _score(labelled, tuned, settings, objective.system, report)
                result.parameters = result.parameters or parameters
                result.scores.setdefault(labelled.name, []).append(score)
                shown = format(score, labelled.rules.measure.format_spec)
                report(
                    "race", {"text": f"{name}, seed {seed}: {labelled.rules.measure.title} {shown} on {labelled.name}"}
                )
        except Interrupted:
            raise
        except Exception as error:  # one failure must not end the race; it is part of the table
            result.error = str(error) or type(error).__name__
            report("race", {"text": f"{name}, seed {seed}: failed: {result.error}"})
    return result


def _score(
    labelled: LabelledSet, folder: Path, settings: dict[str, Any], system: str, report: Report
) -> tuple[float, int]:
    """The score of a run fine-tuned on a labelled set, and its parameters."""
    files = {"data.files": (labelled.file,), **({"data.valid": (labelled.valid,)} if labelled.valid else {})}
    run = _trained(labelled.task, folder, {**settings, **files}, report, model=system)
    value = run_figures(labelled.rules, run)[labelled.rules.measure.key]
    if value is None:
        what = f"{labelled.name} has no held-out examples to score on"
        raise InputError(what, where=labelled.file, hint="give --then-valid, or more examples")
    return float(value), int(run.config["figures"]["parameters"])


def _trained(what: str, path: Path, settings: dict[str, Any], report: Report, model: str = "") -> Run:
    """The finished run in a folder, an interrupted one resumed, or a new one."""
    folder = RunFolder(path)
    if folder.config.exists() and not folder.damage() and "stopped" in read_json(folder.config).get("figures", {}):
        return load(path)
    if folder.settings.exists():
        return fit(what, out=path, resume=True, report=report)
    return fit(what, model=model, settings=settings, out=path, report=report)


def _write_table_and_chart(race: ObjectiveRace, folder: Path) -> None:
    """Write objectives.md, and a chart if there is a result."""
    write_text(folder / "objectives.md", race.markdown())
    if any(one.scores for one in race.results):
        chart = objectives_chart(race.as_dict())
        for suffix in ("html", "png", "svg"):
            save_chart(chart, folder / f"objectives.{suffix}")
