"""``ensue embed``: a vector for each text of a file."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from ensue.core.errors import InputError
from ensue.core.events import Report, report_all, silent
from ensue.core.files import atomic_file
from ensue.data.labelled import read_texts
from ensue.runs.load import load

SUFFIXES = (".npy", ".tsv", ".jsonl")


def embed(
    run: str | Path,
    file: str | Path = "",
    *,
    texts: Sequence[str] | None = None,
    out: str | Path | None = None,
    pooling: str = "mean",
    normalise: bool = True,
    int8: bool = False,
    report: Report = silent,
) -> np.ndarray:
    """A vector for each text of a file, or of ``texts``, (N, D); also written to ``out`` if given."""
    if out is not None and Path(out).suffix not in SUFFIXES:
        raise InputError("is not a format for vectors", where=str(out), hint=f"use {', '.join(SUFFIXES)}")
    if texts is None:
        notes: list[str] = []
        texts = [one.texts[0] for one in read_texts(file, "", 1, notes, keep_empty=True)]
        report_all(notes, report)
    if not texts:
        raise InputError("there is no text", where=str(file), hint="give one a line")
    loaded = load(run)
    report("phase", {"name": "reading"})
    vectors = loaded.embed(texts, pooling=pooling, normalise=normalise, int8=int8, report=report)
    if out is not None:
        write_vectors(vectors, Path(out))
    return vectors


def write_vectors(vectors: np.ndarray, path: Path) -> None:
    """Write vectors as a NumPy array (.npy), tab-separated (.tsv), or a JSON list per line (.jsonl)."""
    with atomic_file(path) as temporary:
        if path.suffix == ".npy":
            with temporary.open("wb") as file:
                np.save(file, vectors, allow_pickle=False)
        elif path.suffix == ".tsv":
            np.savetxt(temporary, vectors, fmt="%.7g", delimiter="\t")
        else:
            lines = (json.dumps([float(x) for x in row]) + "\n" for row in vectors)
            with temporary.open("w", encoding="utf-8") as file:
                file.writelines(lines)
        temporary.chmod(0o644)
