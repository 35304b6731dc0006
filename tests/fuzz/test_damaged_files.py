"""Two thousand damaged files of every format are read or refused in one line; see benchmarks/reliability/fuzz.py."""

import sys
import warnings
from pathlib import Path

import pytest
import torch

sys.path.insert(0, str(Path(__file__).parents[2]))

from benchmarks.reliability.fuzz import run_cases
from benchmarks.reliability.gguf_files import damage_structure
from benchmarks.reliability.gguf_samples import gguf_files
from benchmarks.reliability.targets import Workshop

CASES = {"resume": 2, "cost": 1, "look": 12, "hub": 16, "run": 30, "data": 30, "tokenizer": 30}
"""Cases of a target, by the first word of its name; of others 20."""


@pytest.fixture(scope="module")
def workshop(tmp_path_factory):
    cache = pytest.MonkeyPatch()
    folder = tmp_path_factory.mktemp("fuzz") / "files"
    cache.setenv("ENSUE_CACHE", str(folder / "cache"))
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield Workshop(folder)
    torch.set_num_threads(threads)
    cache.undo()


GROUPS = ("run_targets", "view_targets", "exchange_targets", "data_targets")


@pytest.mark.parametrize("group", GROUPS)
def test_damaged_files_are_read_or_refused_in_one_line(workshop, group):
    problems, cases = [], 0
    for target in getattr(workshop, group)():
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # numpy warns where damaged weights overflow
            tally = run_cases(target, workshop, range(CASES.get(target.name.split()[0], 20)))
        cases += tally.cases
        problems += tally.problems
    assert cases > 100
    assert problems == []


def test_whole_files_can_be_used(workshop):
    """What is damaged is good before: each target works on its own files."""
    for group in GROUPS:
        for target in getattr(workshop, group)():
            if not target.name.startswith(("resume", "cost")):
                target.use()


def test_gguf_files_with_a_changed_bit_are_refused_or_the_same(tmp_path):
    """Counts, lengths, types, dimensions, offsets, keys and names of files of every architecture."""
    row = damage_structure(gguf_files(tmp_path / "files"), 12, tmp_path)
    assert row.holds, row.measured
