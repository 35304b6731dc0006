"""Which weights a run keeps when training has ended."""

from __future__ import annotations

from ensue.train.checkpoints import Checkpoint, Checkpoints
from ensue.train.loop import Outcome, Training


def choose_weights(work: Training, checkpoints: Checkpoints, outcome: Outcome) -> None:
    """Give the model the weights that the run keeps: the last, the best, or the mean of the last few."""
    settings, evaluate = work.settings, work.evaluate
    best = checkpoints.best() if settings.keep == "best" else None
    if best is not None and not _last_is_better(work, best, outcome):
        work.model.load_state_dict(best.tensors["model"])
    if settings.average < 2 or outcome.stopped.startswith("SIG"):
        return
    mean = checkpoints.mean(settings.average)
    if not mean:
        work.report("note", {"text": "there is no checkpoint to take the mean of"})
        return
    kept = {name: value.clone() for name, value in work.model.state_dict().items()}
    before = work.worth(evaluate(lambda: False)) if evaluate else None
    work.model.load_state_dict(mean)
    text = f"the weights are the mean of the last {settings.average} checkpoints"
    if evaluate and before is not None:
        after = work.worth(evaluate(lambda: False))
        if after >= before and settings.keep == "best":
            work.model.load_state_dict(kept)
            text = f"the mean of the last {settings.average} checkpoints is no better"
        unit = f" {work.unit}" if work.chosen_by == "valid_loss" else f" ({work.chosen_by})"
        text += f": {abs(after):.4f} against {abs(before):.4f}{unit}"
    work.report("note", {"text": text})


def _last_is_better(work: Training, best: Checkpoint, outcome: Outcome) -> bool:
    """Where the budget ended a run between two evaluations, its last weights may be better than the best so far."""
    if outcome.stopped != "budget" or work.evaluate is None:
        return False
    held = best.progress
    before = float(held["worth"] if "worth" in held else held["valid_loss"])  # as older checkpoints call it
    return work.worth(work.evaluate(lambda: False)) < before
