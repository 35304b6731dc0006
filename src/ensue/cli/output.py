"""What commands print: one JSON object for programs, lines and tables for people."""

from __future__ import annotations

import json
import math
import sys
from typing import Any


def emit(value: Any) -> None:
    """One JSON object on standard output; a number that is not finite is null."""
    sys.stdout.write(json.dumps(_finite(value), ensure_ascii=False, allow_nan=False) + "\n")


def _finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _finite(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def say(text: str = "", end: str = "\n") -> None:
    """A line for people on standard output."""
    sys.stdout.write(text + end)


def show(picture: Any) -> None:
    """Something that rich draws, on standard output."""
    from rich.console import Console

    Console(file=sys.stdout, highlight=False, markup=False, emoji=False).print(picture)


def table(columns: list[str], rows: list[list[str]]) -> None:
    """A table for people: the first column to the left, the others to the right."""
    widths = [max(len(str(line[i])) for line in [columns, *rows]) for i in range(len(columns))]
    for line in [columns, ["─" * width for width in widths], *rows]:
        cells = [str(cell).ljust(w) if i == 0 else str(cell).rjust(w) for i, (cell, w) in enumerate(zip(line, widths))]
        say("  ".join(cells).rstrip())


def show_score(score: dict[str, Any]) -> None:
    """The figures of a language model, for people."""
    per = score["perplexity"]
    bits = "pseudo-likelihood" if score["bits_per_byte"] is None else f"{score['bits_per_byte']:.4f} bits per byte"
    say(f"{bits} · perplexity {per['token']:.2f} per token, {per['word']:.2f} per word, {per['byte']:.4f} per byte")
    say(f"{score['tokens']:,} tokens, {score['words']:,} words, {score['bytes']:,} bytes, {score['unknown']:,} unknown")


def show_pair_score(score: dict[str, Any]) -> None:
    """The figures of a translation model, for people."""
    say(f"BLEU {score['bleu']:.2f} ({score['bleu_signature']})")
    lower, exact = score["bleu_lower_tokenised"], score["exact"]
    say(f"BLEU {lower:.2f} in lower case · chrF {score['chrf']:.2f} · {exact:.1%} exact")
    per, bits = score["perplexity"], score["bits_per_byte"]
    say(f"perplexity {per['token']:.2f} per token, {per['word']:.2f} per word · {bits:.4f} bits per byte")
    say(f"{score['sentences']:,} sentences, {score['tokens']:,} tokens, {score['unknown']:,} unknown")
    for row in score.get("by_length", []):
        say(f"  {row['label']:>10} words  {row['sentences']:>6,} sentences  BLEU {row['bleu']:6.2f}")


def show_masked_score(score: dict[str, Any]) -> None:
    """The figures of an encoder that fills in, for people."""
    masked, unigram = score["masked_loss"], score["unigram_loss"]
    say(f"masked loss {masked:.4f} nats a hidden token (guessing by frequency: {unigram:.4f})")
    say(f"perplexity {score['masked_perplexity']:.2f} · {score['accuracy']:.1%} filled in rightly")
    if "next_accuracy" in score:
        say(f"which sentence follows: {score['next_accuracy']:.1%} told rightly")
    say(f"{score['hidden']:,} hidden tokens in {score['rows']:,} rows")


def show_context_score(score: dict[str, Any]) -> None:
    """The figures of a model of words in context, for people."""
    say(" · ".join(f"{name} perplexity {value:.2f} per word" for name, value in score["perplexity"].items()))
    say(f"{score['sentences']:,} sentences, {score['words']:,} words, {score['unknown']:,} beyond the vocabulary")


NAMES = {
    "accuracy": "accuracy",
    "f1": "F1",
    "exact_match": "exact match",
    "matthews": "Matthews",
    "pearson": "Pearson",
    "spearman": "Spearman",
    "precision": "precision",
    "recall": "recall",
    "mse": "mean squared error",
    "majority": "always the commonest label",
    "chance": "by chance",
    "best_f1": "F1 at the best threshold",
}
"""What figures of labels are called, in the order they are shown."""


def show_label_score(score: dict[str, Any]) -> None:
    """The figures of a model that labels, for people: the measures, then each label's own."""
    say(" · ".join(f"{name} {score[key]:.4f}" for key, name in NAMES.items() if score.get(key) is not None))
    if "teacher" in score:
        (key, value), size = next(iter(score["teacher"].items())), score["teacher"]["parameters"]
        say(f"the teacher: {NAMES[key]} {value:.4f}, with {size:,} parameters")
    rows = score.get("per_class") or score.get("per_type") or []
    if 0 < len(rows) <= 60:
        figures = ("precision", "recall", "f1")
        lines = [[str(row["name"]), *(f"{row[key]:.4f}" for key in figures), f"{row['count']:,}"] for row in rows]
        table(["label", *figures, "examples"], lines)
    say(f"{score.get('examples', score.get('total', 0)):,} examples")


SHOWN = {
    "language": show_score,
    "translation": show_pair_score,
    "masked": show_masked_score,
    "contexts": show_context_score,
}


def show_figures(task: str, score: dict[str, Any]) -> None:
    """The figures of a task, for people."""
    if task == "forecast":
        from ensue.cli.forecast import show_forecast_score

        show_forecast_score(score)
        return
    SHOWN.get(task, show_label_score)(score)
