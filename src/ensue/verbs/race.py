"""``ensue race``: which system suits a text? Same data, same budget, one table.

A race that is broken off can be resumed: systems that are done are kept. One system's failure is written down and the
others go on.
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from statistics import mean
from typing import Any

from ensue.core.durations import seconds
from ensue.core.errors import InputError, Interrupted, unknown_name
from ensue.core.events import Report, silent
from ensue.core.files import read_json, write_json, write_text
from ensue.core.run_folder import RunFolder
from ensue.data.tokenizers.finding import save_tokenizer
from ensue.look.race import race_chart
from ensue.look.saving import save_chart
from ensue.models.table import SYSTEMS
from ensue.nn.recurrent import Recurrent
from ensue.tasks import language_modelling as lm
from ensue.tasks.settings import own_settings, resolve
from ensue.train.metrics import read_metrics
from ensue.verbs.fit import fit
from ensue.verbs.matching import matched_sizes
from ensue.verbs.run import Run, load


@dataclass
class Entrant:
    """One system's result: the mean over seeds, or why there is none."""

    system: str
    bits_per_byte: float | None = None
    perplexity: float | None = None
    seconds: float | None = None
    parameters: int | None = None
    bytes: int | None = None
    tokens: int | None = None
    """Tokens trained on."""
    spread: float = 0.0
    """The highest less the lowest bits per byte over seeds."""
    seeds: list[dict[str, Any]] = field(default_factory=list)
    remark: str = ""
    error: str = ""


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
        many = self.facts["seeds"] > 1
        columns = ["system", "bits per byte", "perplexity per token", "seconds", "parameters", "megabytes"]
        rows = []
        for e in self.ranked():
            if e.bits_per_byte is None:
                rows.append([e.system, "failed", "", "", "", ""])
                continue
            spread = f" ± {e.spread / 2:.3f}" if many else ""
            numbers = [f"{e.bits_per_byte:.3f}{spread}", f"{e.perplexity:.1f}", f"{e.seconds:.0f}"]
            rows.append([e.system, *numbers, f"{e.parameters:,}", f"{(e.bytes or 0) / 1e6:.1f}"])
        return columns, rows

    def remarks(self) -> list[str]:
        """What the table cannot say."""
        said = [f"{e.system}: {e.error or e.remark}" for e in self.ranked() if e.error or e.remark]
        return said

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
            f"{f['tokenizer']} tokens ({f['vocabulary']:,}); {how[f['match']]}; {f['threads']} threads.",
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
    import torch

    folder = Path(out)
    systems = list(dict.fromkeys(systems))
    again = again or f"race(…, out={str(folder)!r}, resume=True)"
    _check(systems, folder, str(budget), match, seeds, force, resume)
    files = lm.data_files([data] if isinstance(data, str | Path) else data)
    shared = {"data.files": files, **(settings or {})}
    if valid:
        shared["data.valid"] = lm.data_files([valid] if isinstance(valid, str | Path) else valid)
    first = resolve(systems[0], layers=[own_settings(systems[0], shared)])
    corpus = lm.prepare(first.data, first.tokenizer, None, report)
    if corpus.valid is None:
        raise InputError("a race needs text to score on", mend="give --valid, or a longer text")
    for name in systems[1:]:
        resolve(name, layers=[own_settings(name, shared)])  # a wrong setting is found before anything is trained
    if folder.exists() and not resume:
        shutil.rmtree(folder)
    folder.mkdir(parents=True, exist_ok=True)
    save_tokenizer(corpus.tokenizer, folder / "tokenizer.json")
    shared |= {"tokenizer.kind": str(folder / "tokenizer.json")}
    sizes = matched_sizes(systems, corpus.tokenizer.size, shared) if match == "params" else {}
    facts = {"data": [Path(f).name for f in files], "budget": str(budget), "match": match, "seeds": seeds}
    facts |= {**lm.describe_corpus(corpus), "threads": torch.get_num_threads(), "torch": torch.__version__}
    facts |= {"hash": corpus.hash, "settings": {name: str(value) for name, value in (settings or {}).items()}}
    facts["valid_surcharge_bits"] = corpus.valid.surcharge
    if resume:
        _check_same(folder, facts)
    result = Race(facts, [])
    write_json(folder / "race.json", result.as_dict())
    for name in systems:
        own = {**own_settings(name, shared), **sizes.get(name, {})}
        own |= (
            {"train.epochs": own.get("train.epochs", 1.0)}
            if match == "tokens"
            else {"train.budget": seconds(str(budget))}
        )
        own["train.budget_covers"] = "training"
        report("race", {"text": f"— {name}"})
        result.entrants.append(_entrant(name, own, folder, seeds, again, report))
        write_json(folder / "race.json", result.as_dict())
    write_text(folder / "race.md", result.markdown())
    curves = {run.name: read_metrics(run) for run in sorted(folder.iterdir()) if (run / "metrics.jsonl").exists()}
    if any(e.bits_per_byte is not None for e in result.entrants):
        chart = race_chart(result.as_dict(), curves)
        for ending in ("html", "png", "svg"):
            save_chart(chart, folder / f"race.{ending}")
    return result


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
        if not SYSTEMS.load(name)(SYSTEMS.load(name).Config(vocabulary=3)).traits.steps:
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
    entrant = Entrant(name)
    for seed in range(seeds):
        path = folder / (name if seeds == 1 else f"{name}-{seed}")
        try:
            run = _trained(name, {**settings, "seed": int(settings.get("seed", 0)) + seed}, path, report)
        except Interrupted as stop:
            raise Interrupted(folder, again) from stop
        except Exception as error:  # one system's failure must not end the race; it stands in the table
            entrant.error = str(error) or type(error).__name__
            report("race", {"text": f"  failed: {entrant.error}"})
            return entrant
        figures = run.config["figures"]
        facts = {name: figures[name] for name in ("seconds", "parameters", "bytes", "tokens")}
        score = figures["valid"]
        entrant.seeds.append(
            {"bits_per_byte": score["bits_per_byte"], "perplexity": score["perplexity"]["token"], **facts}
        )
        entrant.remark = _remark(run)
        report("race", {"text": f"  {score['bits_per_byte']:.4f} bits per byte after {figures['seconds']:.0f} s"})
    bits = [one["bits_per_byte"] for one in entrant.seeds]
    entrant.bits_per_byte, entrant.spread = mean(bits), max(bits) - min(bits)
    entrant.perplexity = mean(one["perplexity"] for one in entrant.seeds)
    entrant.seconds = mean(one["seconds"] for one in entrant.seeds)
    for fact in ("parameters", "bytes", "tokens"):
        setattr(entrant, fact, entrant.seeds[0][fact])
    return entrant


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
        return f"{sum(run.model.counts):,} n-grams up to order {run.model.config.order}; no parameters, no gradient"  # type: ignore[arg-type]
    return ""
