"""``ensue convert``: exchange models with other tools."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

from safetensors.torch import save_file

import ensue
from ensue.core.errors import InputError, unknown_name
from ensue.core.files import whole_file, write_text
from ensue.core.run_folder import RunFolder
from ensue.data.tokenizers.finding import save_tokenizer
from ensue.data.tokenizers.word import word_tokenizer
from ensue.exchange.arpa import read_arpa, write_arpa
from ensue.models.ngram import NGram
from ensue.verbs.run import load

TARGETS = ("arpa",)


def convert(src: str | Path, *, to: str | None = None, out: str | Path | None = None, force: bool = False) -> Path:
    """Write a run in another tool's format (``to="arpa"``), or make a run of another tool's file."""
    path = Path(src)
    if to is not None and to not in TARGETS:
        raise unknown_name("format", to, TARGETS)
    if to == "arpa":
        return _to_arpa(path, Path(out) if out else path.with_suffix(".arpa"), force)
    if path.is_dir():
        raise InputError("convert to what?", where=str(path), mend="add --to arpa")
    if not path.exists():
        raise InputError("there is no such file", where=str(path))
    if not path.name.removesuffix(".gz").endswith(".arpa"):
        raise InputError(
            "is no format that is known here", where=str(path), mend="an ARPA file ends in .arpa or .arpa.gz"
        )
    return _from_arpa(path, RunFolder(Path(out) if out else Path("runs") / path.name.partition(".")[0]), force)


def _to_arpa(path: Path, target: Path, force: bool) -> Path:
    run = load(path)
    if not isinstance(run.model, NGram):
        raise InputError(f"a {run.system} is no n-gram model, so it has no ARPA form", where=str(path))
    if run.direction == "backward":
        raise InputError("reads from the end, which an ARPA file cannot say", where=str(path))
    if target.is_dir():
        raise InputError("is a folder", where=str(target), mend="name a file, e.g. model.arpa")
    if target.exists() and not force:
        raise InputError("is there already", where=str(target), mend="--force replaces it")
    names = [run.tokenizer.name(token) for token in range(run.tokenizer.size)]
    write_arpa(run.model, names, target)
    return target


def _from_arpa(path: Path, folder: RunFolder, force: bool) -> Path:
    folder.check_free(force)
    model, words = read_arpa(path)
    folder.make(force)
    tokenizer = word_tokenizer(words)
    save_tokenizer(tokenizer, folder.tokenizer)
    with whole_file(folder.weights) as temporary:
        save_file({name: tensor.contiguous() for name, tensor in model.state_dict().items()}, temporary)
        temporary.chmod(0o644)
    figures = {
        "stopped": "converted",
        "steps": 0,
        "seconds": 0.0,
        "parameters": 0,
        "bytes": folder.weights.stat().st_size,
    }
    folder.write_config("ngram", model.config, ensue.__version__, figures=figures, direction="forward")
    write_text(folder.card, f"# ngram\n\nRead from {path.name}: {asdict(model.config)}\n")
    return folder.path
