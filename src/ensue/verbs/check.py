"""``ensue check``: test that a model keeps the laws, that a run resumes bit-exactly, and that its files are intact."""

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
from ensue.core.settings import describe
from ensue.core.table import load_target
from ensue.runs.load import load
from ensue.runs.settings_resolution import read_settings
from ensue.tasks.settings import VOCABULARIES
from ensue.tasks.table import task_spec, trained_by_counting
from ensue.train.metrics import read_metrics
from ensue.verbs.check_files import check_files

ENSUE_FIT = (sys.executable, "-m", "ensue", "fit")
PROOF_STEPS = 24
PROOF_SETTINGS = (
    "begin_with=",  # the initial run may be gone, and any weights will do
    "embeddings=",
    "train.keep=last",
    "train.budget=0",
    "train.plan=",  # it belongs to the run's own number of steps
    "train.checkpoint_every=5",
    "train.eval_every=8",
    "train.log_every=1",
    "data.hash=",
)
"""The settings of the short copies that ``resume_proof`` trains, besides their number of steps."""


def check(
    what: str | Path, *, resume: bool = False, files: bool = False, write: bool = False, report: Report = silent
) -> list[dict[str, Any]]:
    """Test a run, or a model class by "module:Class", and return ``name``, ``kept`` and ``detail`` of each test.

    ``resume`` and ``files`` are other tests of a run: that it resumes bit for bit, and that its files have the digests
    in manifest.json, which ``write`` writes first.

    >>> all(test["kept"] for test in check("ensue.models.window:WindowLanguageModel"))
    True
    """
    if files or write:
        return check_files(Path(what), write=write, report=report)
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
            raise InputError(f"{what} has no {missing[0]}, so it is not a language model", hint="see docs/python.md")
        task = str(getattr(model, "task", "language"))
    result = []
    for finding in task_spec(task).laws(model):
        report("phase", {"name": finding.law})
        detail = f"largest difference {finding.difference:.1e}, allowed {finding.tolerance:.0e}"
        result.append({"name": finding.law, "kept": finding.kept, "detail": detail})
    return result


def _sizes(cls: Any) -> dict[str, Any]:
    """Settings with small vocabularies."""
    known = {field.name for field in describe(cls.Config)}
    tied = {"tied": "target"} if {"source_vocabulary", "tied"} <= known else {}
    return {**{name: 17 for name in VOCABULARIES if name in known}, **tied}


def resume_proof(path: Path, report: Report = silent) -> dict[str, Any]:
    """Train a short copy of a run, and another that is killed in between and resumed; compare their weights."""
    folder = RunFolder(path)
    folder.read_config()
    flat = read_settings(folder.settings)
    if "-" in (*flat["data.files"], *flat.get("distil.files", ())):
        raise InputError("this run was trained from standard input", hint="train it from a file")
    task = load(path).task
    by_steps = not trained_by_counting(str(flat["system"]), task)
    with tempfile.TemporaryDirectory(prefix="ensue-proof-") as name:
        base = [*ENSUE_FIT, str(flat["system"]), "--config", str(folder.settings), "--json"]
        settings = [*PROOF_SETTINGS, f"train.steps={PROOF_STEPS}", task_spec(task).short_evaluation]
        settings += [f"tokenizer.kind={folder.tokenizer}"] if folder.tokenizer.exists() else []
        for setting in settings:
            if setting.partition("=")[0] in flat:
                base += ["--set", setting]
        report("phase", {"name": "training without interruption"})
        whole, broken = Path(name) / "whole", Path(name) / "broken"
        _finish([*base, "--out", str(whole)])
        report("phase", {"name": "training, killing, resuming"})
        at = random.Random(time.time_ns()).randint(2, PROOF_STEPS - 2)
        killed = _kill_at([*base, "--out", str(broken)], broken, at if by_steps else 0)
        if (broken / "run.toml").exists():
            _finish([*ENSUE_FIT, str(broken), "--resume", "--json"])
        else:
            _finish([*base, "--out", str(broken)])
        names = ["model.safetensors"]
        optimiser = f"checkpoints/step-{PROOF_STEPS:08d}/optimiser.safetensors"
        if (whole / optimiser).exists():  # its state must be the same too
            names.append(optimiser)
        same = all(sha256(whole / name) == sha256(broken / name) for name in names)
    moment = f"killed at step {killed} of {PROOF_STEPS}" if by_steps else "killed while counting"
    detail = f"{moment}: the weights have {'the same' if same else 'ANOTHER'} SHA-256 as without interruption"
    return {"name": "exact resume", "kept": same, "detail": detail}


def _finish(command: list[str]) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise InputError(f"the trial run failed: {(done.stderr or done.stdout).strip().splitlines()[-1:]}")


def _kill_at(command: list[str], folder: Path, step: int) -> int:
    """Start a training, kill it at a step (0: when run.toml exists), and return the last step that it logged."""
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        while process.poll() is None:
            reached = _last_step(folder) >= step if step else (folder / "run.toml").exists()
            if reached:
                break
            time.sleep(0.005)
        if process.poll() is None:
            os.kill(process.pid, signal.SIGKILL)
    finally:
        process.kill()
        process.wait()
    return _last_step(folder)


def _last_step(folder: Path) -> int:
    """The last step in a metrics file, whose last line may be incomplete."""
    return max((record["step"] for record in read_metrics(folder)), default=0)
