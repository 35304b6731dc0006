"""Write requirements.lock and requirements-test.lock: the versions of constraints.txt with the SHA-256 of their files.

    .venv/bin/python tools/lock.py

The hashes come from the index that pip is configured for, through pip's own client. Files for CPython 3.11 and later,
for any Python 3, and source packages are listed, for all platforms. requirements.lock has what a run needs;
requirements-test.lock has everything in constraints.txt. pip's modules are not an interface, so this script belongs to
the version of pip in the Makefile.

torch is the exception. Its public files for Linux need CUDA packages that are not pinned, so the lock asks for the
build for CPUs there (2.13.0+cpu), which must be in a folder that pip is told of (find-links) when the lock is written
and when it is used. It holds the hashes of the builds that this folder had.
"""

from __future__ import annotations

import hashlib
import json
import re
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from pip._internal.commands.download import DownloadCommand
from pip._internal.exceptions import PipError
from pip._internal.index.collector import parse_links
from pip._internal.models.link import Link
from pip._vendor.packaging.utils import canonicalize_name, parse_sdist_filename, parse_wheel_filename
from pip._vendor.packaging.version import Version

ROOT = Path(__file__).resolve().parent.parent
HEADER = """# Written by tools/lock.py from constraints.txt; do not edit. {what}
#     pip install --require-hashes -r {name}
"""
WHAT = {
    "requirements.lock": "What ensue needs, with tensorboard.",
    "requirements-test.lock": "Everything in constraints.txt: what ensue and its tests need.",
}
LINUX = ' ; sys_platform {} "linux"'
OLDEST = 11
"""The oldest CPython 3 whose wheels are listed."""


def pinned() -> dict[str, str]:
    """The versions in constraints.txt by normalised name."""
    lines = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    pairs = (line.split("==") for line in lines if "==" in line and not line.startswith("#"))
    return {canonicalize_name(name): version.strip() for name, version in pairs}


def needed() -> set[str]:
    """The packages that ensue needs at run time, as pip resolves them here."""
    command = [sys.executable, "-m", "pip", "install", "--dry-run", "--ignore-installed", "--quiet", "--report", "-"]
    done = subprocess.run(
        [*command, "-c", "constraints.txt", ".[tensorboard]"], cwd=ROOT, check=True, capture_output=True, text=True
    )
    report = json.loads(done.stdout)
    return {canonicalize_name(one["metadata"]["name"]) for one in report["install"]} - {"ensue"}


def suits(filename: str, name: str, version: Version) -> bool:
    """Whether a file is of this version, and for a Python that ensue supports."""
    try:
        if not filename.endswith(".whl"):
            found, own = parse_sdist_filename(filename)
            return (found, own) == (name, version)
        found, own, _, tags = parse_wheel_filename(filename)
    except ValueError:
        return False
    if found != name or Version(own.public) != version:
        return False
    return any(tag.interpreter in ("py3", "py2.py3") or _recent(tag.interpreter, tag.abi) for tag in tags)


def _recent(interpreter: str, abi: str) -> bool:
    number = re.fullmatch(r"cp3(\d+)", interpreter)
    return number is not None and (int(number[1]) >= OLDEST or abi == "abi3")


class Index:
    """The files of packages, from the indexes and folders that pip is configured for."""

    def __init__(self) -> None:
        command = DownloadCommand("download", "")
        options, _ = command.parse_args([])
        with command.main_context():
            self.session: Any = command.get_default_session(options)
            finder: Any = command._build_package_finder(options, self.session)
        self.collector = finder._link_collector
        self.folders = [Path(place) for place in options.find_links if Path(place).is_dir()]

    def requirements(self, name: str, version: str) -> str:
        """The lines of a package: its version with the SHA-256 of each of its files.

        Files of a local index count only if no other index has the version. A build with a local version, such as
        +cpu, is for Linux; the other systems then get the public files.
        """
        found: dict[bool, set[str]] = {False: set(), True: set()}
        for page in self.collector.search_scope.get_index_urls_locations(name):
            try:
                response = self.collector.fetch_response(Link(page))
            except PipError:
                continue
            for link in parse_links(response) if response is not None else ():
                if link.hash_name == "sha256" and suits(link.filename, name, Version(version)):
                    found[link.scheme == "file"].add(link.hash)
        public, builds = found[False] or found[True], self._builds(name, version)
        if not public:
            raise SystemExit(f"no file of {name} {version} with a SHA-256 was found")
        lines = [_lines(f"{name}=={version}" + (LINUX.format("!=") if builds else ""), public)]
        return "".join(lines + [_lines(f"{name}=={build}{LINUX.format('==')}", own) for build, own in builds.items()])

    def _builds(self, name: str, version: str) -> dict[str, set[str]]:
        """The SHA-256 of builds with a local version in pip's folders, by that version."""
        builds: dict[str, set[str]] = {}
        for file in (file for folder in self.folders for file in folder.iterdir()):
            if file.suffix == ".whl" and suits(file.name, name, Version(version)):
                build = parse_wheel_filename(file.name)[1]
                if build.local:
                    builds.setdefault(str(build), set()).add(hashlib.sha256(file.read_bytes()).hexdigest())
        return builds


def _lines(requirement: str, hashes: set[str]) -> str:
    return requirement + "".join(f" \\\n    --hash=sha256:{value}" for value in sorted(hashes)) + "\n"


def main() -> None:
    """Write both files."""
    versions, index, own = pinned(), Index(), needed()
    missing = own - versions.keys()
    if missing:
        raise SystemExit(f"constraints.txt does not pin {', '.join(sorted(missing))}")
    with ThreadPoolExecutor(8) as pool:
        found = dict(zip(versions, pool.map(index.requirements, versions, versions.values())))
    for name, what in WHAT.items():
        lines = [HEADER.format(name=name, what=what)]
        for package in sorted(own if name == "requirements.lock" else versions):
            lines.append(found[package])
        (ROOT / name).write_text("".join(lines), encoding="utf-8")
        sys.stdout.write(f"wrote {name}: {len(lines) - 1} packages\n")


if __name__ == "__main__":
    main()
