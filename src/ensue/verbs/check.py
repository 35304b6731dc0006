"""``ensue check``: does a model keep the laws, and does a run resume to the bit?"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from ensue.core.errors import InputError
from ensue.core.events import Report, silent
from ensue.core.files import sha256
from ensue.core.run_folder import RunFolder
from ensue.core.settings import describe, read_toml
from ensue.core.table import load_target
from ensue.runs.load import load
from ensue.tasks.settings import VOCABULARIES
from ensue.tasks.table import model_class, task_spec
from ensue.train.metrics import read_metrics

PROOF_STEPS = 24


def check(what: str | Path, *, resume: bool = False, report: Report = silent) -> list[dict[str, Any]]:
    """What testing showed: a list of ``name``, ``kept`` and ``detail``.

    >>> all(found["kept"] for found in check("ensue.models.window:WindowLanguageModel"))
    True
    """
    if resume:
        return [resume_proof(Path(what), report)]
    path = Path(what)
    if path.exists() or ":" not in str(what):
        run = load(path)
        model, task = run.model, run.task
    else:
        if "" not in sys.path:
            sys.path.append("")  # a module in the current folder
        cls = load_target(str(what))
        try:
            model = cls(cls.Config(**_sizes(cls))) if hasattr(cls, "Config") else cls()
        except TypeError as error:
            raise InputError(f"{what} cannot be built: {error}", hint="give it a Config, or no arguments") from error
        missing = [name for name in ("start", "forward", "log_prob", "traits", "config") if not hasattr(model, name)]
        if missing:
            raise InputError(f"{what} has no {missing[0]}, so it is no language model", hint="see docs/python.md")
        task = str(getattr(model, "task", "language"))
    result = []
    for found in task_spec(task).laws(model):
        report("phase", {"name": found.law})
        detail = f"largest difference {found.difference:.1e}, allowed {found.tolerance:.0e}"
        result.append({"name": found.law, "kept": found.kept, "detail": detail})
    return result


def _sizes(cls: Any) -> dict[str, Any]:
    """Small vocabularies for a model's settings."""
    known = {field.name for field in describe(cls.Config)}
    tied = {"tied": "target"} if {"source_vocabulary", "tied"} <= known else {}
    return {**{name: 17 for name in VOCABULARIES if name in known}, **tied}


def resume_proof(path: Path, report: Report = silent) -> dict[str, Any]:
    """Train a short copy of a run unbroken, and once killed in the middle and resumed; compare the weights."""
    folder = RunFolder(path)
    folder.read_config()
    flat = read_toml(folder.settings)
    if "-" in (*flat["data.files"], *flat.get("distil.files", ())):
        raise InputError("this run read standard input, which is gone", hint="train from a file to prove its resume")
    task = load(path).task
    by_steps = not hasattr(model_class(str(flat["system"]), task), "counter")
    with tempfile.TemporaryDirectory(prefix="ensue-proof-") as name:
        base = [
            sys.executable,
            "-m",
            "ensue",
            "fit",
            str(flat["system"]),
            "--config",
            str(folder.settings),
            "--json",
        ]
        for setting in (
            "begin_with=",  # the run it began with may be gone, and any weights will do
            "embeddings=",
            *([f"tokenizer.kind={folder.tokenizer}"] if folder.tokenizer.exists() else []),
            f"train.steps={PROOF_STEPS}",
            "train.keep=last",
            "train.budget=0",
            "train.checkpoint_every=5",
            "train.eval_every=8",
            "train.log_every=1",
            task_spec(task).short_evaluation,
            "data.hash=",
        ):
            if setting.partition("=")[0] in flat:
                base += ["--set", setting]
        report("phase", {"name": "training without a break"})
        whole, broken = Path(name) / "whole", Path(name) / "broken"
        _finish([*base, "--out", str(whole)])
        report("phase", {"name": "training, killing, resuming"})
        at = random.Random(time.time_ns()).randint(2, PROOF_STEPS - 2)
        killed = _kill_at([*base, "--out", str(broken)], broken, at if by_steps else 0)
        if (broken / "run.toml").exists():
            _finish([sys.executable, "-m", "ensue", "fit", str(broken), "--resume", "--json"])
        else:
            _finish([*base, "--out", str(broken)])
        names = ["model.safetensors"]
        optimiser = f"checkpoints/step-{PROOF_STEPS:08d}/optimiser.safetensors"
        if (whole / optimiser).exists():  # what it remembers must be the same too
            names.append(optimiser)
        same = all(sha256(whole / name) == sha256(broken / name) for name in names)
    moment = f"killed at step {killed} of {PROOF_STEPS}" if by_steps else "killed while counting"
    detail = f"{moment}: the weights have {'the same' if same else 'ANOTHER'} SHA-256 as those of an unbroken run"
    return {"name": "exact resume", "kept": same, "detail": detail}


def _finish(command: list[str]) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise InputError(f"the trial run failed: {(done.stderr or done.stdout).strip().splitlines()[-1:]}")


def _kill_at(command: list[str], folder: Path, step: int) -> int:
    """Start a training and kill it without warning once it has reached a step; answer the step it had logged."""
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        while process.poll() is None:
            if step == 0 and (folder / "run.toml").exists():
                break
            if step and _last_step(folder) >= step:
                break
            time.sleep(0.005)
        if process.poll() is None:
            os.kill(process.pid, signal.SIGKILL)
    finally:
        process.kill()
        process.wait()
    return _last_step(folder)


def _last_step(folder: Path) -> int:
    """The last step in a metrics file that may be half written."""
    return max((record["step"] for record in read_metrics(folder)), default=0)
