"""README.md of a run: what it is, what it learnt from, how good it is, and the command that made it."""

from __future__ import annotations

from typing import Any

from ensue.core.durations import spoken
from ensue.models.table import SYSTEMS
from ensue.tasks.settings import Settings
from ensue.tasks.table import task_spec


def model_card(settings: Settings, facts: dict[str, Any]) -> str:
    """The model card as Markdown."""
    data, figures = facts["data"], facts["figures"]
    spec = task_spec(settings.run.task)
    systems = SYSTEMS if settings.run.system in SYSTEMS else spec.systems
    summary = systems.entries[settings.run.system].summary
    took = f"{figures['steps']:,} {figures['unit']}, {spoken(figures['seconds'])}"
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
        f"| trained on | {_size(data)} |",
        f"| parameters | {figures['parameters']:,} ({figures['bytes']:,} bytes on disk) |",
        f"| training | {took}, seed {settings.run.seed} |",
    ]
    if settings.run.begin_with:
        lines.append(f"| began with | {settings.run.begin_with} |")
    if facts.get("features"):
        lines.append(_features(facts["features"]))
    if "valid" in figures:
        lines += FIGURES.get(settings.run.task, _label_lines)(figures["valid"])
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


def _size(data: dict[str, Any]) -> str:
    """How much there was to learn from."""
    if "train_windows" in data:
        form = data["form"]
        what = f"{data['train_windows']:,} windows of {form['window']:,} steps, {form['horizon']:,} ahead"
        return f"{what}, of {', '.join(form['names'][: form['targets']])}"
    kinds = {name: name for name in ("pairs", "documents", "sentences", "examples")} | {"texts": "texts without labels"}
    counts = [f"{data[f'train_{kind}']:,} {name}" for kind, name in kinds.items() if data.get(f"train_{kind}")]
    size = [f"{data['train_bytes']:,} bytes"] if "train_bytes" in data else []
    return ", ".join([*counts, f"{data['train_tokens']:,} tokens", *size])


def _language_lines(score: dict[str, Any]) -> list[str]:
    """The figures of a language model."""
    bits = score["bits_per_byte"]
    return [
        f"| validation text | {score['tokens']:,} tokens, {score['bytes']:,} bytes, {score['unknown']:,} unknown |",
        f"| bits per byte | {bits:.4f} |" if bits is not None else "| pseudo-likelihood | |",
        f"| perplexity per token | {score['perplexity']['token']:.2f} |",
        f"| perplexity per word | {score['perplexity']['word']:.2f} |",
    ]


def _pair_lines(score: dict[str, Any]) -> list[str]:
    """The figures of a translation model."""
    return [
        f"| validation pairs | {score['sentences']:,} sentences, {score['tokens']:,} target tokens |",
        f"| BLEU | {score['bleu']:.2f} ({score['bleu_signature']}) |",
        f"| chrF | {score['chrf']:.2f} ({score['chrf_signature']}) |",
        f"| exact | {score['exact']:.1%} |",
        f"| perplexity per token | {score['perplexity']['token']:.2f} |",
    ]


def _masked_lines(score: dict[str, Any]) -> list[str]:
    """The figures of an encoder that fills in."""
    lines = [
        f"| validation text | {score['hidden']:,} hidden tokens |",
        f"| masked loss | {score['masked_loss']:.4f} nats (guessing by frequency: {score['unigram_loss']:.4f}) |",
        f"| filled in rightly | {score['accuracy']:.1%} |",
    ]
    follows = score.get("next_accuracy")
    return lines + ([f"| next sentence told rightly | {follows:.1%} |"] if follows is not None else [])


def _label_lines(score: dict[str, Any]) -> list[str]:
    """The figures of a model that labels."""
    names = ("accuracy", "f1", "exact_match", "matthews", "pearson", "spearman", "majority")
    count = score.get("examples", score.get("total", 0))
    shown = [f"| {name.replace('_', ' ')} | {score[name]:.4f} |" for name in names if score.get(name) is not None]
    if "teacher" in score:
        name, value = next(iter(score["teacher"].items()))
        shown.append(f"| the teacher's {name} | {value:.4f}, with {score['teacher']['parameters']:,} parameters |")
    return [f"| validation examples | {count:,} |", *shown]


def _context_lines(score: dict[str, Any]) -> list[str]:
    """The figures of a model of words in context."""
    words = f"{score['sentences']:,} sentences, {score['words']:,} words, {score['unknown']:,} beyond the vocabulary"
    shown = [f"| {name} perplexity per word | {value:.2f} |" for name, value in score["perplexity"].items()]
    return [f"| validation text | {words} |", *shown]


def _forecast_lines(score: dict[str, Any]) -> list[str]:
    """The figures of a forecaster; a band is all there is where nothing was held out."""
    if "mse" not in score:
        return []
    mase = score["mase"]
    return [
        f"| held out | {score['origins']:,} origins, {score['values']:,} numbers |",
        f"| mean squared error | {score['mse']:.6g} |",
        f"| mean absolute error | {score['mae']:.6g} |",
        *([f"| MASE | {mase:.4f} |"] if mase is not None else []),
        f"| pinball ({', '.join(map(str, score['quantiles']))}) | {score['pinball']:.6g} |",
    ]


FIGURES = {
    "language": _language_lines,
    "translation": _pair_lines,
    "masked": _masked_lines,
    "contexts": _context_lines,
    "forecast": _forecast_lines,
}
