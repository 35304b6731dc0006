"""``ensue doctor``: an installation that proves itself."""

from __future__ import annotations

import os
import platform
import sys
import tempfile
from collections.abc import Callable
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch

import ensue
from ensue.core.events import Report, silent
from ensue.data.splitting import held_out
from ensue.models.laws import findings
from ensue.models.table import SYSTEMS
from ensue.nn.recurrent import GRUCell, LSTMCell, Recurrent, TanhCell
from ensue.tasks.settings import check_device
from ensue.verbs.check import resume_proof
from ensue.verbs.fit import fit
from ensue.verbs.run import load

PARTS = {
    "tensorboard": "pip install 'ensue[tensorboard]' (curves in a browser)",
    "transformers": "pip install transformers==4.57.6 (a reference to compare with)",
    "kenlm": "pip install kenlm (a reference for n-grams)",
    "nltk": "pip install nltk (a reference for n-grams)",
    "keras": "pip install keras (a reference for recurrent cells)",
}
TINY = {"layers": 1, "hidden": 12, "heads": 2, "embedding": 12, "context": 5, "order": 3}


def doctor(report: Report = silent) -> dict[str, Any]:
    """Facts of this machine, which optional parts are there, and a self-test; ``well`` says whether all passed."""
    tests: list[dict[str, Any]] = []
    for name, test in TESTS.items():
        report("phase", {"name": name})
        try:
            tests += test()
        except Exception as error:  # whatever is wrong is what the doctor is here to say
            tests.append({"name": name, "kept": False, "detail": f"{type(error).__name__}: {error}"})
    facts = {
        "ensue": ensue.__version__,
        "python": f"{platform.python_version()} ({sys.executable})",
        "torch": torch.__version__,
        "device": check_device("auto"),
        "threads": f"{torch.get_num_threads()} of {os.cpu_count()} cores",
        "system": platform.platform(),
    }
    parts = [{"name": name, "version": _version(name), "get": get} for name, get in PARTS.items()]
    return {"facts": facts, "parts": parts, "tests": tests, "well": all(test["kept"] for test in tests)}


def _version(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return ""


def laws() -> list[dict[str, Any]]:
    """The laws on a tiny model of every system."""
    result = []
    for name in SYSTEMS:
        cls = SYSTEMS.load(name)
        known = {field: value for field, value in TINY.items() if field in cls.Config.__dataclass_fields__}
        broken = [f for f in findings(cls(cls.Config(vocabulary=13, **known))) if not f.kept]
        detail = ", ".join(f"{f.law} off by {f.difference:.1e}" for f in broken) or "all laws kept"
        result.append({"name": f"laws of {name}", "kept": not broken, "detail": detail})
    return result


def saving() -> list[dict[str, Any]]:
    """Train, save, load: the same figures; kill and resume: the same weights."""
    with tempfile.TemporaryDirectory(prefix="ensue-doctor-") as folder:
        text = Path(folder) / "text.txt"
        text.write_text("the students opened their books and the proctor started the clock\n" * 200)
        how = {
            "hidden": 16,
            "train.steps": 30,
            "train.batch": 4,
            "train.length": 16,
            "tokenizer.kind": "char",
        }
        run = fit("rnn", text, out=Path(folder) / "run", settings=how)
        first = run.config["figures"]["valid"]["nll"]
        same = load(run.folder.path).score(*held_out([str(text)], 0.1)[1]).nll == first
        learnt = first < torch.log(torch.tensor(float(run.tokenizer.size))).item()
        detail = f"{first:.3f} nats a token after 30 steps"
        return [
            {"name": "train, save, load", "kept": same and learnt, "detail": detail},
            resume_proof(run.folder.path),
        ]


def torch_cells() -> list[dict[str, Any]]:
    """The cells' equations against torch.nn with the same weights."""
    result = []
    for name, cell, theirs in (
        ("rnn", TanhCell(6, 5), torch.nn.RNN(6, 5, batch_first=True)),
        ("gru", GRUCell(6, 5), torch.nn.GRU(6, 5, batch_first=True)),
        ("lstm", LSTMCell(6, 5), torch.nn.LSTM(6, 5, batch_first=True)),
    ):
        weights = dict(zip(("weight_ih_l0", "weight_hh_l0", "bias_ih_l0", "bias_hh_l0"), cell.weights()))
        theirs.load_state_dict(weights)
        x = torch.randn(3, 7, 6)
        gap = (Recurrent(cell, "reference")(x)[0] - theirs(x)[0]).abs().max().item()
        result.append({"name": f"{name} = torch.nn", "kept": gap < 1e-5, "detail": f"largest difference {gap:.1e}"})
    return result


def references() -> list[dict[str, Any]]:
    """GPT-2 of transformers, where it is installed."""
    if not find_spec("transformers"):
        return []
    from transformers import GPT2Config, GPT2LMHeadModel

    from ensue.exchange.huggingface import gpt_from

    config = GPT2Config(vocab_size=31, n_positions=16, n_embd=16, n_layer=2, n_head=2)
    theirs = GPT2LMHeadModel(config).eval()
    ours = gpt_from("gpt2", config.to_dict(), theirs.state_dict()).eval()
    tokens = torch.randint(31, (2, 12))
    with torch.no_grad():
        gap = (ours(tokens).logits - theirs(tokens).logits).abs().max().item()
    return [{"name": "gpt = transformers' GPT-2", "kept": gap < 1e-5, "detail": f"largest difference {gap:.1e}"}]


TESTS: dict[str, Callable[[], list[dict[str, Any]]]] = {
    "laws": laws,
    "torch.nn": torch_cells,
    "references": references,
    "save, load, kill, resume": saving,
}
