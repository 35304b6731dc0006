"""The model card, README.md of a run: the system, its data, its figures, and the command that made it."""

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
    length = f"{figures['steps']:,} {figures['unit']}, {duration_in_words(figures['seconds'])}"
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
        f"| training | {length}, seed {settings.run.seed} |",
    ]
    if settings.run.begin_with:
        lines.append(f"| initialised from | {settings.run.begin_with} |")
    if facts.get("features"):
        lines.append(_features(facts["features"]))
    if "valid" in figures:
        lines += run.card_lines(figures["valid"])
    if "held_out" in figures:
        lines.append(f"| measured with | {held_out_note(figures['held_out'])} |")
    lines += ["", "Every setting is in run.toml, with its meaning; training metrics are in metrics.jsonl.", ""]
    return "\n".join(lines)


def held_out_note(held_out: dict[str, Any]) -> str:
    """How the held-out part was measured, in a sentence."""
    early = f" ({held_out['note']})" if "note" in held_out else ""
    return f"a model of the other {held_out['train_tokens']:,} tokens{early}; this one then counted all of the text"


def _sources(settings: Settings) -> list[str]:
    """Rows for the training data: files, and a teacher."""
    spec = task_spec(settings.run.task)
    teacher = [f"| teacher | {settings.run.teacher} |"] if settings.distil is not None else []
    if settings.distil is None or not spec.labels:
        return [*teacher, f"| {spec.data} | {', '.join(settings.data.files)} |"]
    texts = f"| texts that the teacher labelled | {', '.join(settings.distil.files)} |"
    examples = [f"| examples | {', '.join(settings.data.files)} |"] if settings.data.files else []
    return [*teacher, texts, *examples]


def _features(features: dict[str, Any]) -> str:
    """A row for the features that it reads, with the learned weights of their layers."""
    tuned = "tuned" if features["tuned"] else "frozen"
    weights = ", ".join(f"s_{layer} = {weight:.3f}" for layer, weight in enumerate(features["shares"]))
    return f"| features | {features['system']} in {features['run']}, {tuned}; γ = {features['scale']:.3f}, {weights} |"
