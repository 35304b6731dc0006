"""README.md of a run: what it is, what it learnt from, how good it is, and the command that made it."""

from __future__ import annotations

from typing import Any

from ensue.core.durations import duration_in_words
from ensue.core.table import load_target
from ensue.models.table import SYSTEMS
from ensue.runs.run import Run
from ensue.tasks.settings import Settings
from ensue.tasks.table import task_spec


def model_card(settings: Settings, facts: dict[str, Any]) -> str:
    """The model card as Markdown."""
    data, figures = facts["data"], facts["figures"]
    spec = task_spec(settings.run.task)
    run: type[Run] = load_target(spec.run)
    systems = SYSTEMS if settings.run.system in SYSTEMS else spec.systems
    summary = systems.entries[settings.run.system].summary
    took = f"{figures['steps']:,} {figures['unit']}, {duration_in_words(figures['seconds'])}"
    lines = [
        f"# {settings.run.system}" + (f" to {spec.name}" if spec.by_name else ""),
        "",
        f"{summary[:1].upper()}{summary[1:]}. Trained with ensue.",
        "",
        "```",
        settings.run.command,
        "```",
        "",
        "| | |",
        "|---|---|",
        *_sources(settings),
        *([f"| tokenizer | {data['tokenizer']}, {data['vocabulary']:,} tokens |"] if "tokenizer" in data else []),
        f"| trained on | {run.data_size(data)} |",
        f"| parameters | {figures['parameters']:,} ({figures['bytes']:,} bytes on disk) |",
        f"| training | {took}, seed {settings.run.seed} |",
    ]
    if settings.run.begin_with:
        lines.append(f"| began with | {settings.run.begin_with} |")
    if facts.get("features"):
        lines.append(_features(facts["features"]))
    if "valid" in figures:
        lines += run.card_lines(figures["valid"])
    lines += [
        "",
        "Every setting is in run.toml, with its meaning; what training measured is in metrics.jsonl.",
        "",
    ]
    return "\n".join(lines)


def _sources(settings: Settings) -> list[str]:
    """What there was to learn from: files, and a teacher."""
    if settings.distil is None:
        return [f"| {task_spec(settings.run.task).data} | {', '.join(settings.data.files)} |"]
    lines = [
        f"| teacher | {settings.run.teacher} |",
        f"| texts that the teacher labelled | {', '.join(settings.distil.files)} |",
    ]
    return lines + ([f"| examples | {', '.join(settings.data.files)} |"] if settings.data.files else [])


def _features(held: dict[str, Any]) -> str:
    """What features it reads, and what it learnt of their layers."""
    how = "tuned" if held["tuned"] else "frozen"
    shares = ", ".join(f"s_{layer} = {share:.3f}" for layer, share in enumerate(held["shares"]))
    return f"| features | {held['system']} in {held['run']}, {how}; γ = {held['scale']:.3f}, {shares} |"
