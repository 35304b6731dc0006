"""Which weights a run keeps after training."""

from __future__ import annotations

from ensue.nn.adapters import load_trained_state, trained_state
from ensue.train.checkpoints import Checkpoint, Checkpoints
from ensue.train.training import Outcome, Training


def select_weights(training: Training, checkpoints: Checkpoints, outcome: Outcome) -> None:
    """Load the weights that the run keeps: the last, the best, or the mean of the last few checkpoints."""
    settings, evaluate = training.settings, training.evaluate
    best = checkpoints.best() if settings.keep == "best" else None
    if best is not None and not _last_is_better(training, best, outcome):
        load_trained_state(training.model, best.tensors["model"])
    if settings.average < 2 or outcome.stopped.startswith("SIG"):
        return
    mean = checkpoints.mean_weights(settings.average)
    if not mean:
        training.report("note", {"text": "there is no checkpoint to average"})
        return
    selected = {name: value.clone() for name, value in trained_state(training.model).items()}
    before = training.badness(evaluate(lambda: False)) if evaluate else None
    load_trained_state(training.model, mean)
    text = f"the weights are the mean of the last {settings.average} checkpoints"
    if evaluate and before is not None:
        after = training.badness(evaluate(lambda: False))
        if after >= before and settings.keep == "best":
            load_trained_state(training.model, selected)
            text = f"the mean of the last {settings.average} checkpoints is no better"
        by_loss = training.selection_metric == "valid_loss"
        unit = f" {training.loss_unit}" if by_loss else f" ({training.selection_metric})"
        text += f": {abs(after):.4f} against {abs(before):.4f}{unit}"
    training.report("note", {"text": text})


def _last_is_better(training: Training, best: Checkpoint, outcome: Outcome) -> bool:
    """Whether a run that the budget ended between two evaluations has better weights than its best checkpoint."""
    if outcome.stopped != "budget" or training.evaluate is None:
        return False
    saved = best.progress
    before = float(saved["worth"] if "worth" in saved else saved["valid_loss"])  # its name in older checkpoints
    return training.badness(training.evaluate(lambda: False)) < before
