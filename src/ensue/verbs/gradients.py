"""Views of gradients: ``ensue look bptt``, ``gradients``, ``gates``, ``training`` and ``copying``."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np
import torch

from ensue.core.errors import InputError
from ensue.core.run_folder import RunFolder
from ensue.data.copy_task import LETTERS, LONGEST, copying_questions
from ensue.look.bptt_page import bptt_html
from ensue.look.bptt_text import bptt_text
from ensue.look.gates import gates_chart, room_for
from ensue.look.gradients import flow_chart
from ensue.look.marks import cut_text, short_names
from ensue.look.probes import copying_chart
from ensue.look.training import training_chart
from ensue.measure.bptt import bptt_numbers, draw_network, with_values
from ensue.measure.gates import gates_over, liveliest
from ensue.measure.gradients import by_distance, factor_per_step, gradient_flow
from ensue.measure.probes import text_log_probs
from ensue.runs.language import LanguageRun
from ensue.runs.load import load
from ensue.train.metrics import read_metrics
from ensue.verbs.view import Files, Place, View

MOST_TOKENS = 128
"""How much of a text gradients and gates are shown of."""
GAPS = (0, 1, 2, 4, 6, 8, 12, 16, 20, 25, 30, 40, 50, 60)
"""The gaps that copying is asked over."""
KEPT = ("step", "norm", "norm_top", "clipped", "updates")


def bptt(
    what: Files = (),
    *,
    steps: int = 3,
    hidden: int = 1,
    seed: int = 0,
    values: Sequence[str] = (),
    costs: str = "",
    cut: int = 0,
) -> View:
    """Backpropagation through time written out, for a small network with random weights, or ``values`` (w=0.5).

    ``costs`` names the steps whose J counts (3,4,5); after step ``cut`` the graph is cut, as truncated
    backpropagation does.
    """
    if what:
        raise InputError("bptt is of a small network of its own, not of a run", hint="ensue look gradients RUN … is")
    network = with_values(draw_network(steps=steps, hidden=hidden, seed=seed), read_values(values))
    numbers = bptt_numbers(network, costs=read_steps(costs), cut=cut)
    return View(partial(bptt_html, numbers), numbers, partial(bptt_text, numbers))


def read_values(given: Sequence[str]) -> dict[str, list[float]]:
    """Values as people type them.

    >>> read_values(["w=0.5", "x=1,-1,0.5"])
    {'w': [0.5], 'x': [1.0, -1.0, 0.5]}
    """
    found: dict[str, list[float]] = {}
    for item in given:
        name, _, numbers = item.partition("=")
        try:
            found[name.strip()] = [float(number) for number in numbers.split(",")]
        except ValueError as error:
            raise InputError(f"--values {item!r} is not NAME=NUMBER,NUMBER,…", hint="e.g. --values w=0.5") from error
        if not np.isfinite(found[name.strip()]).all():
            raise InputError(f"--values {item!r} holds a number that is not finite", hint="e.g. --values w=0.5")
    return found


def read_steps(given: str) -> list[int]:
    """Numbers of steps as people type them.

    >>> read_steps("3,4,5"), read_steps("")
    ([3, 4, 5], [])
    """
    try:
        return [int(number) for number in given.split(",")] if given else []
    except ValueError as error:
        raise InputError(f"--costs {given!r} is not a list of steps", hint="e.g. --costs 3,4,5") from error


def gradients(runs: Files, *, text: str = "", layer: int = 0) -> View:
    """How gradients fade with distance, run by run, on one text; ``layer`` counts from 1."""
    held = _language_runs(runs, text)
    found = []
    for name, run in zip(short_names([str(path) for path in runs]), held):
        tokens, total = _tokens(run, text)
        try:
            flow = gradient_flow(run.model, torch.from_numpy(tokens), layer)
        except InputError as error:
            raise InputError(str(error), where=str(run.folder.path)) from error
        rows = by_distance(flow.norms)
        found.append(
            {
                "name": name,
                "run": str(run.folder.path),
                "system": run.system,
                "of": flow.of,
                "tokens": len(tokens) - 1,
                "of_tokens": total,
                "by_distance": rows,
                "factor_per_step": factor_per_step(rows),
                "bound": None if flow.bound is None else by_distance(flow.bound),
                "bound_of": flow.bound_of,
                "weight": flow.weight,
            }
        )
    return View(partial(flow_chart, found), {"text": text, "runs": found})


def gates(runs: Files, *, text: str = "", layer: int = 0, units: int = 0) -> View:
    """The gates and states of a recurrent layer over a text; ``units`` at most, those that change most."""
    if len(runs) != 1:
        raise InputError(f"gates are of one run, not {len(runs)}", hint="name one")
    (run,) = _language_runs(runs, text)
    tokens, whole = _tokens(run, text)
    seen = gates_over(run.model, torch.from_numpy(tokens[1:]), layer)
    total = next(iter(seen.states.values())).shape[1]
    room = room_for(len(seen.parts), len(tokens) - 1, total)
    chosen = liveliest(seen.parts, min(units or room, room))
    names = [run.tokenizer.name(int(token)) for token in tokens[1:]]
    gate_values, state_values = ({n: v[:, chosen] for n, v in part.items()} for part in (seen.gates, seen.states))
    title = f"{run.folder.path.name} ({run.system}): gates and states of {seen.of.partition(' of ')[2]}"
    cut = cut_text(len(names), whole)
    draw = partial(
        gates_chart, names, gate_values, state_values, chosen, title=title, senses=seen.senses, total=total, more=cut
    )
    numbers = {
        "system": run.system,
        "of": seen.of,
        "tokens": names,
        "of_tokens": whole,
        "units": chosen,
        "total_units": total,
        "gates": {name: values.round(6).tolist() for name, values in gate_values.items()},
        "states": {name: values.round(6).tolist() for name, values in state_values.items()},
        "means": {name: values.mean(axis=1).round(6).tolist() for name, values in seen.parts.items()},
    }
    return View(draw, numbers, said=cut)


def training(runs: Files) -> View:
    """Norms of gradients over training runs, and how many were clipped."""
    if not runs:
        raise InputError("whose training?", hint="name a run")
    found = []
    for name, path in zip(short_names([str(path) for path in runs]), runs):
        run = load(path)
        clip = float(run.settings.get("train.clip", 0.0))
        records = norm_records(run.folder, clip)
        if not records:
            raise InputError("has no norms of gradients in its metrics", where=str(path), hint="train it by gradient")
        clipped, updates = (sum(record[key] for record in records) for key in ("clipped", "updates"))
        facts = {"name": name, "run": str(path), "system": run.system, "clip": clip}
        found.append({**facts, "clipped": clipped, "updates": updates, "records": records})
    return View(partial(training_chart, found), {"runs": found})


def norm_records(folder: RunFolder, clip: float) -> list[dict[str, Any]]:
    """What metrics.jsonl says of norms, with how many updates a line is of."""
    before, found = 0, []
    for record in read_metrics(folder.path):
        if "norm" in record:
            updates, before = record["step"] - before, record["step"]
            own = {"norm_top": record["norm"], "clipped": int(0 < clip <= record["norm"]), **record, "updates": updates}
            found.append({name: own[name] for name in KEPT})
    return found


def copying(runs: Files, *, seed: int = 0) -> View:
    """How often runs that were trained on the corpus ``copying`` get the copy right, by the length of the gap."""
    held = _language_runs(runs, "…")
    found = []
    for name, run in zip(short_names([str(path) for path in runs]), held):
        rows = [{"gap": gap, **copied(run, gap, seed)} for gap in GAPS]
        found.append({"name": name, "run": str(run.folder.path), "system": run.system, "by_gap": rows})
    numbers = {"runs": found, "chance": 1 / len(LETTERS), "longest": LONGEST}
    return View(partial(copying_chart, found, 1 / len(LETTERS), LONGEST), numbers)


def copied(run: LanguageRun, gap: int, seed: int = 0) -> dict[str, Any]:
    """How often the right letter is the likeliest of all letters after a gap."""
    asked = copying_questions(gap, seed=seed)
    texts = [text + letter for text, letters, _ in asked for letter in letters]
    found = text_log_probs(run.model, run.tokenizer, texts).reshape(len(asked), -1)
    right = [letters[int(best)] == answer for (_, letters, answer), best in zip(asked, found.argmax(1))]
    return {"accuracy": float(np.mean(right)), "asked": len(asked)}


def _language_runs(runs: Files, text: str) -> list[LanguageRun]:
    """Runs of language models, and a text to show them on."""
    if not runs:
        raise InputError("of which run?", hint="name one or more")
    if not text.strip():
        raise InputError("gradients and gates are shown on a text", hint='give it with --text "…"')
    return [_language_run(path) for path in runs]


def _language_run(path: Place) -> LanguageRun:
    run = load(path)
    if not isinstance(run, LanguageRun):
        what = f"this {run.system} is of the task {run.task}, no language model"
        raise InputError(what, where=str(path), hint="name a run that goes on with text: fit rnn, gru, lstm or gpt")
    return run


def _tokens(run: LanguageRun, text: str) -> tuple[np.ndarray, int]:
    """The first tokens of a text, with the end mark before them: as many as fit; and how many the text has."""
    found = run.tokens(text=text).tokens.astype(np.int64)
    context = run.model.traits.context
    return found[: 1 + min(MOST_TOKENS, context or MOST_TOKENS)], len(found) - 1
