"""``ensue doctor``: test this installation."""

from __future__ import annotations

import math
import os
import platform
import sys
import tempfile
from collections.abc import Callable
from functools import partial
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import torch

import ensue
from ensue.core.device import check_device
from ensue.core.events import Report, silent
from ensue.data.splitting import hold_out
from ensue.exchange.arpa import write_arpa
from ensue.exchange.huggingface import gpt_from_weights
from ensue.models.ngram import NGram, NGramConfig
from ensue.models.table import SYSTEMS
from ensue.nn.recent import RecentTokens
from ensue.nn.recurrent import ChoGRUCell, GRUCell, LSTMCell, Recurrent, TanhCell
from ensue.runs.load import load
from ensue.tasks.table import task_name, task_spec
from ensue.train.counting import count
from ensue.verbs.check import resume_proof
from ensue.verbs.fit import fit

PARTS = {
    "tensorboard": "pip install 'ensue[tensorboard]' (curves in a browser)",
    "onnxruntime": "pip install 'ensue[onnx]' (convert --to onnx)",
    "transformers": "pip install transformers==4.57.6 (a reference to compare with)",
    "kenlm": "pip install kenlm (a reference for n-grams)",
    "nltk": "pip install nltk (a reference for n-grams)",
    "keras": "pip install keras (a reference for recurrent cells)",
}
TINY = {"layers": 1, "hidden": 12, "projection": 8, "heads": 2, "embedding": 12, "context": 9, "order": 3}
TINY |= {"vocabulary": 13, "source_vocabulary": 11, "inputs": 2, "window": 4}
"""Settings of a tiny model; a system takes those it has."""


def doctor(report: Report = silent) -> dict[str, Any]:
    """Facts of this machine, the versions of optional packages, and the results of tests; ``well`` if all passed."""
    tests: list[dict[str, Any]] = []
    for name, test in TESTS.items():
        report("phase", {"name": name})
        try:
            tests += test()
        except Exception as error:  # any failure is a result of the test
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
        own = cls.Config.__dataclass_fields__
        known = {
            field: value for field, value in TINY.items() if field in own and not isinstance(own[field].default, str)
        }
        laws = task_spec(task_name(name)).laws(cls(cls.Config(**known)))
        broken = [law for law in laws if not law.kept]
        detail = ", ".join(f"{law.law} off by {law.difference:.1e}" for law in broken) or "all laws kept"
        result.append({"name": f"laws of {name}", "kept": not broken, "detail": detail})
    return result


def saving() -> list[dict[str, Any]]:
    """Train, save and load give the same figures; kill and resume give the same weights."""
    with tempfile.TemporaryDirectory(prefix="ensue-doctor-") as folder:
        text = Path(folder) / "text.txt"
        text.write_text("the students opened their books and the proctor started the clock\n" * 200)
        settings = {"hidden": 16, "train.steps": 30, "train.batch": 4, "train.length": 16, "tokenizer.kind": "char"}
        run = fit("rnn", text, out=Path(folder) / "run", settings=settings)
        first = run.config["figures"]["valid"]["nll"]
        same = load(run.folder.path).score(*hold_out([str(text)], 0.1)[1]).nll == first
        learned = first < math.log(run.tokenizer.size)
        detail = f"{first:.3f} nats per token after 30 steps"
        return [
            {"name": "train, save, load", "kept": same and learned, "detail": detail},
            resume_proof(run.folder.path),
        ]


def torch_cells() -> list[dict[str, Any]]:
    """Compare the recurrent cells with torch.nn, with the same weights."""
    result = []
    for name, cell, theirs in (
        ("rnn", TanhCell(6, 5), torch.nn.RNN(6, 5, batch_first=True)),
        ("gru", GRUCell(6, 5), torch.nn.GRU(6, 5, batch_first=True)),
        ("lstm", LSTMCell(6, 5), torch.nn.LSTM(6, 5, batch_first=True)),
    ):
        weights = dict(zip(("weight_ih_l0", "weight_hh_l0", "bias_ih_l0", "bias_hh_l0"), cell.weights()))
        theirs.load_state_dict(weights)
        x = torch.randn(3, 7, 6)
        difference = _largest_difference(Recurrent(cell, "reference")(x)[0], theirs(x)[0])
        result.append(_comparison(f"{name} = torch.nn", difference))
    return result


def transformers_gpt() -> float:
    """Compare the logits of our GPT and of transformers' GPT-2 with the same weights."""
    transformers: Any = import_module("transformers")
    config = transformers.GPT2Config(vocab_size=31, n_positions=16, n_embd=16, n_layer=2, n_head=2)
    theirs = transformers.GPT2LMHeadModel(config).eval()
    ours = gpt_from_weights("gpt2", config.to_dict(), theirs.state_dict()).eval()
    tokens = torch.randint(31, (2, 12))
    return _largest_difference(ours(tokens).logits, theirs(tokens).logits)


def kenlm_ngram() -> float:
    """Compare log P of each word of a new sentence by our Kneser–Ney and by KenLM, which reads our ARPA file."""
    kenlm: Any = import_module("kenlm")
    quiet = kenlm.Config()
    quiet.show_progress, quiet.arpa_complain = False, kenlm.ARPALoadComplain.NONE
    model = _counted([0, *WORDS, 0], vocabulary=6, order=3, end=0)
    with tempfile.TemporaryDirectory(prefix="ensue-doctor-") as folder:
        path = Path(folder) / "model.arpa"
        write_arpa(model, ["</s>", "<unk>", "a", "b", "c", "d"], path)
        scores = kenlm.Model(str(path), quiet).full_scores("a d d b c a")
        theirs = torch.tensor([log10 for log10, _, _ in scores]) * math.log(10)
    text = torch.tensor([[0, 2, 5, 5, 3, 4, 2, 0]])
    return _largest_difference(model.log_prob(text[:, :-1], text[:, 1:])[0][0], theirs)


def nltk_ngram() -> float:
    """Compare log P of each word of a new text by add-δ and by nltk's Lidstone; its ``<UNK>`` is our last word."""
    names = ["0", "1", "2", "3", "4", "5", "<UNK>"]
    words = [names[word] for word in WORDS]
    theirs = import_module("nltk.lm").Lidstone(0.3, 3)
    theirs.fit([list(import_module("nltk.util").everygrams(words, max_len=3))], words)
    model = _counted(WORDS, vocabulary=7, order=3, mode="add", delta=0.3)
    text = torch.randint(7, (1, 40))
    log2 = [theirs.logscore(names[c], [names[a], names[b]]) for a, b, c in text[0].unfold(0, 3, 1).tolist()]
    ours = model.log_prob(text[:, :-1], text[:, 1:], RecentTokens.empty(1, 2))[0][0, 1:]  # from the third word on
    return _largest_difference(ours, torch.tensor(log2) * math.log(2))


def keras_gru() -> float:
    """Compare the outputs of our GRU of Cho and of Keras' with ``reset_after=False``."""
    os.environ.setdefault("KERAS_BACKEND", "torch")  # the default is TensorFlow
    keras: Any = import_module("keras")
    cell, x = ChoGRUCell(6, 5), torch.randn(3, 7, 6)
    theirs = keras.layers.GRU(5, reset_after=False, return_sequences=True)
    theirs.build(tuple(x.shape))
    weights = []
    for ours in (cell.weight_x, cell.weight_h, cell.bias):
        reset, update, candidate = ours.detach().chunk(3)
        weights.append(
            torch.cat([-update, reset, candidate]).t().numpy()
        )  # Keras' update gate keeps what ours replaces
    theirs.set_weights(weights)
    return _largest_difference(Recurrent(cell)(x)[0], torch.from_numpy(keras.ops.convert_to_numpy(theirs(x.numpy()))))


def _counted(words: list[int], **settings: Any) -> NGram:
    """An n-gram model of a short text."""
    counter = NGram(NGramConfig(**settings)).counter()
    count(counter, np.array(words))
    return counter.finish()


def _largest_difference(ours: torch.Tensor, theirs: torch.Tensor) -> float:
    """max |ours − theirs|."""
    return (ours - theirs).abs().max().item()


WORDS = [int(word) % 6 for word in np.random.default_rng(0).zipf(1.5, 300)]
"""A short text of the words 0 to 5."""
REFERENCES: dict[str, tuple[str, Callable[[], float]]] = {
    "transformers": ("gpt = transformers' GPT-2", transformers_gpt),
    "kenlm": ("ngram = KenLM", kenlm_ngram),
    "nltk": ("ngram, mode=add = nltk's Lidstone", nltk_ngram),
    "keras": ("gru-cho = Keras' GRU, reset before", keras_gru),
}
"""Other packages: the name of the test, and the function that returns the largest difference."""


def reference(name: str) -> list[dict[str, Any]]:
    """Compare with another package for the same weights or counts, if it is installed."""
    if not find_spec(name):
        return []
    title, compare = REFERENCES[name]
    with torch.no_grad():
        return [_comparison(title, compare())]


def _comparison(name: str, difference: float) -> dict[str, Any]:
    return {"name": name, "kept": difference < 1e-5, "detail": f"largest difference {difference:.1e}"}


TESTS: dict[str, Callable[[], list[dict[str, Any]]]] = {
    "laws": laws,
    "torch.nn": torch_cells,
    **{name: partial(reference, name) for name in REFERENCES},
    "save, load, kill, resume": saving,
}
