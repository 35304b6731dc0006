"""README.md of a run: what it is, what it learnt from, how good it is, and the command that made it."""

from __future__ import annotations

from typing import Any

from ensue.core.durations import spoken
from ensue.models.table import SYSTEMS
from ensue.tasks.settings import Settings


def model_card(settings: Settings, facts: dict[str, Any]) -> str:
    """The model card as Markdown."""
    data, figures = facts["data"], facts["figures"]
    summary = SYSTEMS.entries[settings.run.system].summary
    took = f"{figures['steps']:,} {figures['unit']}, {spoken(figures['seconds'])}"
    lines = [
        f"# {settings.run.system}",
        "",
        f"{summary[:1].upper()}{summary[1:]}. Trained with ensue.",
        "",
        "```",
        settings.run.command,
        "```",
        "",
        "| | |",
        "|---|---|",
        f"| text | {', '.join(settings.data.files)} |",
        f"| tokenizer | {data['tokenizer']}, {data['vocabulary']:,} tokens |",
        f"| trained on | {_size(data)} |",
        f"| parameters | {figures['parameters']:,} ({figures['bytes']:,} bytes on disk) |",
        f"| training | {took}, seed {settings.run.seed} |",
    ]
    if "valid" in figures:
        lines += _pair_lines(figures["valid"]) if "bleu" in figures["valid"] else _language_lines(figures["valid"])
    lines += [
        "",
        "Every setting is in run.toml, with its meaning; what training measured is in metrics.jsonl.",
        "",
    ]
    return "\n".join(lines)


def _size(data: dict[str, Any]) -> str:
    """How much there was to learn from."""
    pairs = f"{data['train_pairs']:,} pairs, " if "train_pairs" in data else ""
    return f"{pairs}{data['train_tokens']:,} tokens, {data['train_bytes']:,} bytes"


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
