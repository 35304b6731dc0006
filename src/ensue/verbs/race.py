"""``ensue race``: which system suits a text? Same data, same budget, one table.

A race that is broken off can be resumed: systems that are done are kept. One system's failure is written down and the
others go on; so do the other seeds of a system.
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from statistics import mean
from typing import Any

import torch

from ensue.core.durations import seconds
from ensue.core.errors import InputError, Interrupted, unknown_name
from ensue.core.events import Report, silent
from ensue.core.files import read_json, write_json, write_text
from ensue.core.run_folder import RunFolder
from ensue.core.wording import counted
from ensue.data.tokenizers.finding import save_tokenizer
from ensue.look.race import race_chart
from ensue.look.saving import save_chart
from ensue.models.table import SYSTEMS
from ensue.nn.recurrent import Recurrent
from ensue.tasks import language_modelling as lm
from ensue.tasks.machine import data_files
from ensue.tasks.resolving import own_settings, resolve, task_name
from ensue.train.metrics import read_metrics
from ensue.verbs.fit import fit
from ensue.verbs.matching import matched_sizes
from ensue.verbs.run import Run, load


@dataclass
class Entrant:
    """One system's result: the mean over the seeds that worked, or why there is none."""

    system: str
    bits_per_byte: float | None = None
    perplexity: float | None = None
    seconds: float | None = None
    parameters: int | None = None
    bytes: int | None = None
    tokens: int | None = None
    """Tokens trained on."""
    spread: float = 0.0
    """The highest less the lowest bits per byte over the seeds that worked."""
    seeds: list[dict[str, Any]] = field(default_factory=list)
    """The figures of each seed that worked."""
    remark: str = ""
    error: str = ""
    """Why seeds failed, and how many of how many."""


@dataclass
class Race:
    """All results, best first."""

    facts: dict[str, Any]
    entrants: list[Entrant]

    def as_dict(self) -> dict[str, Any]:
        """What race.json holds."""
        return {**self.facts, "systems": [asdict(entrant) for entrant in self.ranked()]}

    def ranked(self) -> list[Entrant]:
        """Best first; those that failed last."""
        return sorted(self.entrants, key=lambda e: (e.bits_per_byte is None, e.bits_per_byte or 0.0))

    def table(self) -> tuple[list[str], list[list[str]]]:
        """Columns and rows for people."""
        columns = ["system", "bits per byte", "perplexity per token", "seconds", "parameters", "megabytes"]
        rows = []
        for e in self.ranked():
            if e.bits_per_byte is None:
                rows.append([e.system, "failed", "", "", "", ""])
                continue
            spread = f" ± {e.spread / 2:.3f}" if len(e.seeds) > 1 else ""
            numbers = [f"{e.bits_per_byte:.3f}{spread}", f"{e.perplexity:.1f}", f"{e.seconds:.0f}"]
            rows.append([e.system, *numbers, f"{e.parameters:,}", f"{(e.bytes or 0) / 1e6:.1f}"])
        return columns, rows

    def remarks(self) -> list[str]:
        """What the table cannot say."""
        said = {e.system: "; ".join(filter(None, (e.error, e.remark))) for e in self.ranked()}
        return [f"{system}: {text}" for system, text in said.items() if text]

    def markdown(self) -> str:
        """The text of race.md."""
        columns, rows = self.table()
        f = self.facts
        how = {
            "time": f"{f['budget']} of training each",
            "params": f"equal size, {f['budget']} each",
            "tokens": "equal data",
        }
        lines = [
            f"{', '.join(f['data'])}: {f['train_bytes']:,} bytes to learn from, {f['valid_bytes']:,} held out; "
            f"{f['tokenizer']} tokens ({f['vocabulary']:,}); {how[f['match']]}; {counted(f['threads'], 'thread')}.",
            "",
            "| " + " | ".join(columns) + " |",
            "|---" * len(columns) + "|",
            *("| " + " | ".join(row) + " |" for row in rows),
            "",
            *(f"- {line}" for line in self.remarks()),
        ]
        return "\n".join(lines).rstrip() + "\n"


def race(
    data: str | Path | Sequence[str | Path],
    *,
    systems: Sequence[str] = ("ngram", "window", "rnn", "gru", "lstm", "gpt"),
    budget: str = "60s",
    match: str = "time",
    seeds: int = 1,
    valid: str | Path | Sequence[str | Path] = (),
    settings: Mapping[str, Any] | None = None,
    out: str | Path = "runs/race",
    force: bool = False,
    resume: bool = False,
    again: str = "",
    report: Report = silent,
) -> Race:
    """Train each system on the same text with the same budget and score it on the same held-out text."""
    folder, systems = Path(out), list(dict.fromkeys(systems))
    again = again or f"race(…, out={str(folder)!r}, resume=True)"
    _check(systems, folder, str(budget), match, seeds, force, resume)
    shared = _shared(data, valid, settings)
    corpus = _corpus(systems, shared, report)
    facts = {"budget": str(budget), "match": match, "seeds": seeds, **_facts(shared["data.files"], settings, corpus)}
    _begin(folder, facts, resume)
    save_tokenizer(corpus.tokenizer, folder / "tokenizer.json")
    shared["tokenizer.kind"] = str((folder / "tokenizer.json").absolute())  # fitted once, read by all
    sizes = matched_sizes(systems, corpus.tokenizer.size, shared) if match == "params" else {}
    result = Race(facts, [])
    write_json(folder / "race.json", result.as_dict())
    for name in systems:
        report("race", {"text": f"— {name}"})
        own = {**own_settings(name, shared), **sizes.get(name, {})}
        own |= _limit(own, str(budget), match)
        result.entrants.append(_entrant(name, own, folder, seeds, again, report))
        write_json(folder / "race.json", result.as_dict())
    _write_up(result, folder)
    return result


def _shared(
    data: str | Path | Sequence[str | Path],
    valid: str | Path | Sequence[str | Path],
    settings: Mapping[str, Any] | None,
) -> dict[str, Any]:
    """What was typed for all systems, by flat names."""
    shared = {**(settings or {}), "data.files": data_files([data] if isinstance(data, str | Path) else data)}
    if valid:
        shared["data.valid"] = data_files([valid] if isinstance(valid, str | Path) else valid)
    return shared


def _corpus(systems: Sequence[str], shared: Mapping[str, Any], report: Report) -> lm.Corpus:
    """The text that all systems learn from; a wrong setting of any of them is found before anything is trained."""
    chosen = [resolve(name, layers=[own_settings(name, shared)]) for name in systems]
    corpus = lm.prepare(chosen[0].data, chosen[0].tokenizer, None, report)
    if corpus.valid is None:
        raise InputError("a race needs text to score on", mend="give --valid, or a longer text")
    return corpus


def _facts(files: Sequence[str], settings: Mapping[str, Any] | None, corpus: lm.Corpus) -> dict[str, Any]:
    """What race.json says about the text, the settings and the machine."""
    assert corpus.valid is not None
    return {
        "data": [Path(file).name for file in files],
        "settings": {name: str(value) for name, value in (settings or {}).items()},
        **lm.describe_corpus(corpus),
        "hash": corpus.hash,
        "valid_surcharge_bits": corpus.valid.surcharge,
        "threads": torch.get_num_threads(),
        "torch": torch.__version__,
    }


def _begin(folder: Path, facts: dict[str, Any], resume: bool) -> None:
    """Make the folder, or see that it holds this very race."""
    if resume:
        _check_same(folder, facts)
    elif folder.exists():
        shutil.rmtree(folder)
    folder.mkdir(parents=True, exist_ok=True)


def _limit(own: Mapping[str, Any], budget: str, match: str) -> dict[str, Any]:
    """How long a system trains: so many times through the text where data should be equal, else so many seconds."""
    if match == "tokens":
        return {"train.epochs": own.get("train.epochs", 1.0), "train.budget_covers": "training"}
    return {"train.budget": seconds(budget), "train.budget_covers": "training"}


def _write_up(result: Race, folder: Path) -> None:
    """The table, and the picture where there is something to draw."""
    write_text(folder / "race.md", result.markdown())
    curves = {run.name: read_metrics(run) for run in sorted(folder.iterdir()) if (run / "metrics.jsonl").exists()}
    if any(e.bits_per_byte is not None for e in result.entrants):
        chart = race_chart(result.as_dict(), curves)
        for ending in ("html", "png", "svg"):
            save_chart(chart, folder / f"race.{ending}")


def _check(
    systems: Sequence[str], folder: Path, budget: str, match: str, seeds: int, force: bool, resume: bool
) -> None:
    """Refuse what cannot be raced, before anything is touched."""
    seconds(budget)
    if match not in ("time", "params", "tokens"):
        raise unknown_name("match", match, ("time", "params", "tokens"))
    if seeds < 1:
        raise InputError(f"--seeds {seeds} must be at least 1")
    if folder.is_file():
        raise InputError("is a file, not a folder", where=str(folder), mend="choose another --out")
    if resume and not (folder / "race.json").exists():
        raise InputError("holds no race to resume", where=str(folder), mend="leave out --resume to begin one")
    if not systems:
        raise InputError("a race of no systems", mend="--systems ngram,lstm,gpt")
    for name in systems:
        cls, task = SYSTEMS.load(name), task_name(name)
        if task != "language":
            raise InputError(f"{name} is for {task}, and a race is between language models", mend="leave it out")
        if not cls(cls.Config(vocabulary=3)).traits.steps:
            raise InputError(f"{name} sees both sides of a word, so its figure cannot be compared", mend="leave it out")
    if folder.exists() and any(folder.iterdir()) and not resume:
        if not force:
            raise InputError(
                "is there already", where=str(folder), mend="--resume goes on with it, --force replaces it"
            )
        if not (folder / "race.json").exists():
            raise InputError(
                "is not a race, so --force will not delete it", where=str(folder), mend="choose another --out"
            )


def _check_same(folder: Path, facts: dict[str, Any]) -> None:
    """A race goes on as it began: results of different races must not stand in one table."""
    before = read_json(folder / "race.json")
    for name in ("hash", "budget", "match", "seeds", "settings"):
        if before.get(name) != facts[name]:
            what = f"was a race with another {'text' if name == 'hash' else name}"
            raise InputError(what, where=str(folder), mend="--force begins a new one")


def _entrant(name: str, settings: dict[str, Any], folder: Path, seeds: int, again: str, report: Report) -> Entrant:
    """Train one system once a seed; a failure is an answer too."""
    done: list[tuple[dict[str, Any], str]] = []
    errors: list[str] = []
    for number in range(seeds):
        path = folder / (name if seeds == 1 else f"{name}-{number}")
        seed = int(settings.get("seed", 0)) + number
        try:
            run = _trained(name, {**settings, "seed": seed}, path, report)
            figures, remark = _figures(run), _remark(run)
        except Interrupted as stop:
            raise Interrupted(folder, again) from stop
        except Exception as error:  # one failure must not end the race; it stands in the table
            errors.append(str(error) or type(error).__name__)
            report("race", {"text": f"  failed: {errors[-1]}"})
            continue
        done.append((figures, remark))
        report("race", {"text": f"  {figures['bits_per_byte']:.4f} bits per byte after {figures['seconds']:.0f} s"})
    entrant = _mean(name, [figures for figures, _ in done])
    entrant.remark = "; ".join(dict.fromkeys(remark for _, remark in done if remark))
    entrant.error = "; ".join(dict.fromkeys(errors))
    if errors and seeds > 1:
        entrant.error = f"{len(errors)} of {seeds} seeds failed: {entrant.error}"
    return entrant


def _figures(run: Run) -> dict[str, Any]:
    """What one run adds to the table."""
    figures = run.config["figures"]
    score = figures["valid"]
    facts = {name: figures[name] for name in ("seconds", "parameters", "bytes", "tokens")}
    return {"bits_per_byte": score["bits_per_byte"], "perplexity": score["perplexity"]["token"], **facts}


def _mean(name: str, seeds: list[dict[str, Any]]) -> Entrant:
    """One entrant from the figures of its seeds."""
    if not seeds:
        return Entrant(name)
    bits = [one["bits_per_byte"] for one in seeds]
    means = {fact: mean(one[fact] for one in seeds) for fact in ("bits_per_byte", "perplexity", "seconds")}
    facts = {fact: seeds[0][fact] for fact in ("parameters", "bytes", "tokens")}
    return Entrant(name, **means, **facts, spread=max(bits) - min(bits), seeds=seeds)


def _trained(name: str, settings: dict[str, Any], path: Path, report: Report) -> Run:
    """The run of a system: as it is where it is done, else gone on with, else new."""
    folder = RunFolder(path)
    if folder.config.exists() and "valid" in read_json(folder.config).get("figures", {}):
        return load(path)
    if folder.settings.exists():
        return fit(name, out=path, resume=True, report=report)
    return fit(name, settings=settings, out=path, report=report)


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
