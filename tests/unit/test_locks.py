"""The files of hashes have the versions of constraints.txt, and all that ensue needs."""

import re
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
LOCKS = ("requirements.lock", "requirements-test.lock")


def normal(name):
    return re.sub(r"[-_.]+", "-", name).lower()


def constraints():
    lines = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    return {normal(line.split("==")[0]): line.split("==")[1] for line in lines if "==" in line and line[0] != "#"}


def locked(name):
    """The versions of a lock and the hashes of each, by package."""
    text = (ROOT / name).read_text(encoding="utf-8").replace("\\\n", "")
    versions, hashes = {}, {}
    for line in (line for line in text.splitlines() if not line.startswith("#")):
        found = re.fullmatch(r"([a-z0-9-]+)==([^ ]+)(?: ; [^-]+)?((?: +--hash=sha256:[0-9a-f]{64})+)", line.strip())
        assert found, line
        versions.setdefault(found[1], set()).add(found[2].partition("+")[0])
        hashes.setdefault(found[1], []).extend(found[3].split())
    return versions, hashes


@pytest.mark.parametrize("name", LOCKS)
def test_a_lock_has_the_versions_of_the_constraints(name):
    versions, hashes = locked(name)
    pinned = constraints()
    assert versions == {package: {pinned[package]} for package in versions}
    assert all(len(values) == len(set(values)) for values in hashes.values())
    if name == "requirements-test.lock":
        assert versions.keys() == pinned.keys()


def test_the_lock_of_users_has_what_ensue_needs_and_nothing_of_the_tests():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    needed = [*project["dependencies"], *project["optional-dependencies"]["tensorboard"]]
    names = {normal(re.match(r"[\w.-]+", requirement)[0]) for requirement in needed}
    versions, _ = locked("requirements.lock")
    assert names <= versions.keys() and not {"pytest", "transformers", "kenlm", "mypy"} & versions.keys()


def test_no_lock_names_a_host():
    for name in LOCKS:
        assert "://" not in (ROOT / name).read_text(encoding="utf-8")
