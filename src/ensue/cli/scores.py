"""Print the scores of a run, one function for each kind of task."""

from __future__ import annotations

from typing import Any

from ensue.cli.output import print_line, print_table
from ensue.core.wording import counted


def print_scores(task: str, score: dict[str, Any]) -> None:
    """Print the scores of a run of this task."""
    PRINTERS.get(task, print_label_scores)(score)


def print_language_scores(score: dict[str, Any]) -> None:
    """Print the scores of a language model."""
    per = score["perplexity"]
    bits = "pseudo-likelihood" if score["bits_per_byte"] is None else f"{score['bits_per_byte']:.4f} bits per byte"
    print_line(
        f"{bits} · perplexity {per['token']:.2f} per token, {per['word']:.2f} per word, {per['byte']:.4f} per byte"
    )
    print_line(
        f"{score['tokens']:,} tokens, {score['words']:,} words, {score['bytes']:,} bytes, {score['unknown']:,} unknown"
    )


def print_translation_scores(score: dict[str, Any]) -> None:
    """Print the scores of a translation model."""
    print_line(f"BLEU {score['bleu']:.2f} ({score['bleu_signature']})")
    lower, exact = score["bleu_lower_tokenised"], score["exact"]
    print_line(f"BLEU {lower:.2f} in lower case · chrF {score['chrf']:.2f} · {exact:.1%} exact")
    per, bits = score["perplexity"], score["bits_per_byte"]
    print_line(f"perplexity {per['token']:.2f} per token, {per['word']:.2f} per word · {bits:.4f} bits per byte")
    print_line(f"{score['sentences']:,} sentences, {score['tokens']:,} tokens, {score['unknown']:,} unknown")
    for row in score.get("by_length", []):
        print_line(f"  {row['label']:>10} words  {row['sentences']:>6,} sentences  BLEU {row['bleu']:6.2f}")


def print_masked_scores(score: dict[str, Any]) -> None:
    """Print the scores of a masked language model."""
    masked, unigram = score["masked_loss"], score["unigram_loss"]
    print_line(f"masked loss {masked:.4f} nats per masked token (unigram baseline: {unigram:.4f})")
    print_line(f"perplexity {score['masked_perplexity']:.2f} · accuracy {score['accuracy']:.1%}")
    if "next_accuracy" in score:
        print_line(f"next-sentence accuracy {score['next_accuracy']:.1%}")
    print_line(f"{score['hidden']:,} masked tokens in {score['rows']:,} rows")


def print_context_scores(score: dict[str, Any]) -> None:
    """Print the scores of a model of words in context."""
    print_line(" · ".join(f"{name} perplexity {value:.2f} per word" for name, value in score["perplexity"].items()))
    print_line(f"{score['sentences']:,} sentences, {score['words']:,} words, {score['unknown']:,} out of vocabulary")


MEASURES = {
    "accuracy": "accuracy",
    "f1": "F1",
    "exact_match": "exact match",
    "matthews": "Matthews",
    "pearson": "Pearson",
    "spearman": "Spearman",
    "precision": "precision",
    "recall": "recall",
    "mse": "mean squared error",
    "majority": "majority baseline",
    "chance": "chance",
    "best_f1": "F1 at the best threshold",
}
"""Measures of labelling tasks, in the order they are printed."""


def print_label_scores(score: dict[str, Any]) -> None:
    """Print the scores of a classifier, tagger or question answerer: its measures, then a row for each label."""
    print_line(" · ".join(f"{name} {score[key]:.4f}" for key, name in MEASURES.items() if score.get(key) is not None))
    if "teacher" in score:
        (key, value), size = next(iter(score["teacher"].items())), score["teacher"]["parameters"]
        print_line(f"teacher: {MEASURES[key]} {value:.4f}, {size:,} parameters")
    rows = score.get("per_class") or score.get("per_type") or []
    if 0 < len(rows) <= 60:
        figures = ("precision", "recall", "f1")
        lines = [[str(row["name"]), *(f"{row[key]:.4f}" for key in figures), f"{row['count']:,}"] for row in rows]
        print_table(["label", *figures, "examples"], lines)
    print_line(f"{score.get('examples', score.get('total', 0)):,} examples")


def print_forecast_scores(score: dict[str, Any]) -> None:
    """Print the scores of a backtest; nothing if no data was held out."""
    if "mse" not in score:
        return
    mase = f" · MASE {score['mase']:.4f}" if score["mase"] is not None else ""
    print_line(f"mean squared error {score['mse']:.6g} · mean absolute error {score['mae']:.6g}{mase}")
    levels = ", ".join(f"{level:g}" for level in score["quantiles"])
    cover = f" · coverage {score['coverage']:.1%}" if score["coverage"] is not None else ""
    print_line(f"pinball loss {score['pinball']:.6g} (quantiles {levels}){cover}")
    if score["scaled_mse"] != score["mse"]:
        print_line(f"standardised: squared {score['scaled_mse']:.6g}, absolute {score['scaled_mae']:.6g}")
    if len(score["by_target"]) > 1:
        for row in score["by_target"]:
            mase = f"  MASE {row['mase']:.4f}" if row["mase"] is not None else ""
            print_line(f"  {row['target']:>16}  squared {row['mse']:.6g}  absolute {row['mae']:.6g}{mase}")
    steps = score["by_step"]
    for row in steps if len(steps) <= 6 else [steps[round(n * (len(steps) - 1) / 5)] for n in range(6)]:
        if len(steps) > 1:
            print_line(f"  step {row['step']:>4}  squared {row['mse']:.6g}  absolute {row['mae']:.6g}")
    print_line(f"{counted(score['origins'], 'origin')}, {counted(score['values'], 'value')}")


PRINTERS = {
    "language": print_language_scores,
    "translation": print_translation_scores,
    "masked": print_masked_scores,
    "contexts": print_context_scores,
    "forecast": print_forecast_scores,
}
