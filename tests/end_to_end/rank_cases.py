"""What both one process and several train, so that tests can compare; torchrun starts this file as a program."""

import contextlib
import json
import random
import shutil
import signal
import sys
from pathlib import Path

import torch
from torch import nn
from typed import WORDS

import ensue
from ensue.core.errors import InputError, Interrupted, OtherRankFailed, RankError
from ensue.data.batches import StreamBatches
from ensue.models.table import SYSTEMS
from ensue.train import process_group
from ensue.train.loop import train
from ensue.train.objectives import next_token_loss
from ensue.train.process_group import join_process_group
from ensue.train.settings import TextTrainSettings
from ensue.train.training import Training

STEPS = {
    "train.steps": 10,
    "train.log_every": 1,
    "train.eval_every": 4,
    "train.checkpoint_every": 4,
    "train.precision": "float32",
    "train.clip": 0.5,
}
SMALL = {"hidden": 16, "layers": 2, "dropout": 0.0}
ENCODER = {**SMALL, "heads": 2, "context": 32}
LABELS = {**ENCODER, "head.dropout": 0.0, "train.batch_tokens": 50}
NORMED = {"head.norm": "batch", "data.holdout": 0.0, "train.optimiser": "sgd", "train.lr": 0.1}
"""What stands before such a norm has nearly no gradient; AdamW would move it by rounding alone."""
EXPERTS = {"experts": 3, "experts_active": 2, "experts_balance": 1.0}
"""Their balance is of all tokens of a batch, not of each rank's."""
CASES = {
    "gpt": ("gpt", "text.txt", {**SMALL, **EXPERTS, "heads": 2, "context": 32, "train.accumulate": 2}),
    "lstm": ("lstm", "text.txt", {**SMALL, "train.batch": 5, "train.length": 12, "train.renew": 0.2}),
    "one row": ("gru", "text.txt", {**SMALL, "train.batch": 1, "train.length": 12}),
    "transformer": ("transformer", "pairs.tsv", {**SMALL, "heads": 2, "train.batch_tokens": 30}),
    "bert": ("bert", "documents.txt", {**ENCODER, "train.batch": 5}),
    "albert": ("albert", "documents.txt", {**ENCODER, "layers": 3, "embedding": 8, "train.batch": 5}),
    "electra": ("electra", "documents.txt", {**ENCODER, "embedding": 8, "train.batch": 5, "detection": 5.0}),
    "deberta": ("deberta", "documents.txt", {**ENCODER, "tokenizer.kind": "wordpiece", "train.batch": 5}),
    "classify": ("classify", "labels.tsv", {**LABELS, "train.class_weights": "balanced"}),
    "batch norm": ("classify", "labels.tsv", {**LABELS, **NORMED}),
}
"""Name: what is fitted, on which file, with which settings. Rows differ in number and length, and are fewer than ranks
at times."""
SHARDED = ("gpt", "lstm", "transformer", "bert", "albert", "electra", "deberta")
"""Cases whose weights are spread over ranks too."""
UNFREEZING = {"train.shard": True, "train.freeze": 1, "train.unfreeze": 0.5}
RESUMED = ("lstm", "transformer", "electra")
"""Cases that others go on with."""


def write_data(folder):
    """The files of all cases."""
    chance = random.Random(1)

    def lines(count):
        return [" ".join(chance.choices(WORDS, k=chance.randint(3, 12))) for _ in range(count)]

    texts = {
        "text.txt": "\n".join(lines(60)),
        "pairs.tsv": "\n".join(f"{line}\t{' '.join(reversed(line.split()))}" for line in lines(80)),
        "documents.txt": "\n\n".join("\n".join(lines(6)) for _ in range(20)),
        "labels.tsv": "\n".join(f"{line}\t{chance.choice(('yes', 'no', 'no'))}" for line in lines(80)),
    }
    for name, text in texts.items():
        (folder / name).write_text(text + "\n", encoding="utf-8")


def fit(folder, name, out, **more):
    """Train a case."""
    what, data, settings = CASES[name]
    return ensue.fit(what, folder / data, out=out, settings={**STEPS, **settings, **more})


def resume(path, shard=False):
    """Go on with a run, whoever began it; as it is typed: ``--set train.shard=false``."""
    return ensue.fit("", out=path, resume=True, settings={"train.shard": str(shard).lower()})


def unfinished(path, copy):
    """A copy of a run as it was after step 8 of 10, where it was killed."""
    shutil.copytree(path, copy)
    shutil.rmtree(copy / "checkpoints" / "step-00000010")
    for name in ("config.json", "model.safetensors", "README.md"):
        (copy / name).unlink()


def interrupted(folder, name, out):
    """Train a case until somebody asks to stop as it is evaluated for the first time, and go on; all weights spread."""
    what, data, settings = CASES[name]

    def report(kind, values):
        if kind == "step" and values["step"] == STEPS["train.eval_every"]:
            signal.raise_signal(signal.SIGINT)

    with contextlib.suppress(Interrupted):
        ensue.fit(what, folder / data, out=out, settings={**STEPS, **settings, "train.shard": True}, report=report)
    owed = json.loads((out / "checkpoints" / "stop" / "progress.json").read_text(encoding="utf-8"))["owed"]
    resume(out, shard=True)
    return owed


def rolled_back(folder, rank):
    """Train where a loss is not finite once, on one rank only; the steps at which each rank's notes say so."""
    calls, notes = [0], []

    def objective(model, batch, state, reduction):
        loss, after = next_token_loss(model, batch, state, reduction)
        calls[0] += 1
        return loss * (float("nan") if rank and calls[0] == 6 else 1.0), after

    with join_process_group() as ranks:
        torch.manual_seed(3)
        cls = SYSTEMS.load("lstm")
        model: nn.Module = cls(cls.Config(vocabulary=12, hidden=8))
        tokens = torch.randint(1, 12, (500,)).numpy()
        work = Training(
            model=model,
            objective=objective,
            batches=StreamBatches(tokens, 4, 10, seed=1),
            settings=TextTrainSettings(steps=9, checkpoint_every=4, eval_every=100, log_every=4),
            checkpoints=ranks.checkpoints(folder, 2),
            report=lambda kind, values: notes.append(values["text"]) if kind == "note" else None,
            ranks=ranks,
        )
        work.with_weights = ranks.distribute(model, work.device)
        outcome = train(work)
    return {"step": outcome.step, "calls": calls[0], "notes": notes}


def odd(rank):
    """What ranks say where one alone meets with an error that is not for people."""
    try:
        with join_process_group() as ranks:
            if rank:
                raise OSError("odd")
            ranks.barrier()
    except (OSError, RankError, OtherRankFailed) as error:
        return f"{type(error).__name__}: {error}"
    return "nothing"


def refused(*words, **how):
    """What a rank says of something that cannot be done."""
    try:
        ensue.fit(*words, **how)
    except (InputError, OtherRankFailed) as error:
        return f"{type(error).__name__}: {error}"
    return "nothing"


def main(folder, rank):
    """All that needs several ranks, in one go."""
    for name in CASES:
        fit(folder, name, folder / "two" / name)
    for name in SHARDED:
        fit(folder, name, folder / "sharded" / name, **{"train.shard": True})
    for run in sorted(folder.glob("to two/*")):
        resume(run)
    for run in sorted(folder.glob("to sharded/*")):
        resume(run, shard=True)
    dropout = {"dropout": 0.3, "train.patience": 1, "train.lr": 1e-30}
    fit(folder, "gpt", folder / "patience", **dropout)
    text = folder / "text.txt"
    said = {
        "owed": interrupted(folder, "lstm", folder / "interrupted"),
        "rolled back": rolled_back(folder / "rolled back", rank),
        "ngram": refused("ngram", text, out=folder / "ngram"),
        "word2vec": refused("word2vec", text, out=folder / "word2vec"),
        "unfreeze": refused("classify", folder / "labels.tsv", settings=UNFREEZING, out=folder / "unfreeze"),
    }
    process_group.REPORT_WAIT = 0.1 if rank else process_group.REPORT_WAIT  # only this rank fails from here on
    said |= {
        "odd": odd(rank),
        "missing": refused("lstm", folder / "missing.txt" if rank else text, out=folder / "missing"),
        "other": refused("lstm", text if rank else folder / "documents.txt", out=folder / "other"),
    }
    (folder / f"said-{rank}.json").write_text(json.dumps(said), encoding="utf-8")


if __name__ == "__main__":
    import os

    main(Path(sys.argv[1]), int(os.environ["RANK"]))
