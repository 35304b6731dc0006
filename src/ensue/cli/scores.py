"""Print the scores of a run, one function for each kind of task."""

from __future__ import annotations

from typing import Any

from ensue.cli.output import say, table
from ensue.core.wording import counted


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


def show_forecast_score(score: dict[str, Any]) -> None:
    """The figures of a backtest, for people; there are none where nothing was held out."""
    if "mse" not in score:
        return
    mase = f" · MASE {score['mase']:.4f}" if score["mase"] is not None else ""
    say(f"mean squared error {score['mse']:.6g} · mean absolute error {score['mae']:.6g}{mase}")
    levels = ", ".join(f"{level:g}" for level in score["quantiles"])
    cover = f" · {score['coverage']:.1%} inside the band" if score["coverage"] is not None else ""
    say(f"pinball {score['pinball']:.6g} (quantiles {levels}){cover}")
    if score["scaled_mse"] != score["mse"]:
        say(f"in deviations of the past: squared {score['scaled_mse']:.6g}, absolute {score['scaled_mae']:.6g}")
    if len(score["by_target"]) > 1:
        for row in score["by_target"]:
            own = f"  MASE {row['mase']:.4f}" if row["mase"] is not None else ""
            say(f"  {row['target']:>16}  squared {row['mse']:.6g}  absolute {row['mae']:.6g}{own}")
    steps = score["by_step"]
    for row in steps if len(steps) <= 6 else [steps[round(n * (len(steps) - 1) / 5)] for n in range(6)]:
        if len(steps) > 1:
            say(f"  step {row['step']:>4}  squared {row['mse']:.6g}  absolute {row['mae']:.6g}")
    say(f"{counted(score['origins'], 'origin')}, {counted(score['values'], 'number')}")


SHOWN = {
    "language": show_score,
    "translation": show_pair_score,
    "masked": show_masked_score,
    "contexts": show_context_score,
    "forecast": show_forecast_score,
}


def show_figures(task: str, score: dict[str, Any]) -> None:
    """Print the scores of a run, as its task has them."""
    SHOWN.get(task, show_label_score)(score)
