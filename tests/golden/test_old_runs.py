"""Runs that earlier versions made are loaded, answer as they did, and are resumed."""

import gzip
import json
import sys
import tarfile
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

import cases
from typed import ensue

HERE = Path(__file__).parent
ARCHIVE = HERE / "old_runs.tar.gz"
(NUMBERS,) = json.loads(gzip.decompress((HERE / "numbers.json.gz").read_bytes())).values()
with tarfile.open(ARCHIVE) as held:
    RUNS = sorted({name.partition("/")[0] for name in held.getnames()})


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """The archive, unpacked beside its data."""
    where = tmp_path_factory.mktemp("old")
    with tarfile.open(ARCHIVE) as archive:
        archive.extractall(where, filter="data")
    for path in where.rglob("*"):
        if path.suffix in (".toml", ".json", ".jsonl"):
            path.write_text(path.read_text(encoding="utf-8").replace("FOLDER", str(where)), encoding="utf-8")
    cases.write_files(where)
    return where


TOLERANCES = {"answer-bert": 0.1}
"""Where other than 1e-3: one of 40 answers there is nearly a tie, which processors with and without AVX-512 break
differently."""


def numbers_in(value):
    """All numbers of a nested value, in order; times are left out."""
    if isinstance(value, dict):
        return [one for key in sorted(value) if "second" not in key for one in numbers_in(value[key])]
    if isinstance(value, list):
        return [one for item in value for one in numbers_in(item)]
    return [value] if isinstance(value, int | float) and not isinstance(value, bool) else []


@pytest.mark.parametrize("name", [name for name in RUNS if not name.startswith("stopped-")])
def test_an_old_run_scores_as_it_did(folder, name):
    asked = cases.asked(name, cases.write_files(folder))
    if not asked:
        assert ensue("words", "neighbours", folder / name, "students", "--json").code == 0
        return
    for command in ("score", "next"):
        if command in asked:
            answer = ensue(command, folder / name, *asked[command], "--json")
            assert answer.code == 0, answer.err
            new, old = numbers_in(answer.json), numbers_in(NUMBERS[name][command])
            assert new == pytest.approx(old, rel=TOLERANCES.get(name, 1e-3), abs=1e-4)


@pytest.mark.parametrize("name", [name for name in RUNS if name.startswith("stopped-")])
def test_an_old_run_is_resumed(folder, name):
    answer = ensue("fit", folder / name, "--resume", "--json")
    assert answer.code == 0, answer.err
    figures = json.loads((folder / name / "config.json").read_text(encoding="utf-8"))["figures"]
    assert figures["stopped"] == "finished" and figures["steps"] == 300
