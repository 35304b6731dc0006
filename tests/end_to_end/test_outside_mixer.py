"""A mixer of another package works with every command: the example of docs/how-to/add-a-mixer.md."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import httpx
import pytest
import torch
from typed import sentences

PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "add-a-mixer.md"
CODE = re.search(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL).group(1)
SMALL = ("--set", "hidden=16", "--set", "layers=1", "--set", "heads=2", "--set", "train.steps=6")


def install(folder, name, code, entry_points):
    """Put a module where Python takes it for a part of an installed package with these entry points."""
    (folder / f"{name}.py").write_text(code, encoding="utf-8")
    about = folder / f"outside_{name}-1.0.dist-info"
    about.mkdir()
    (about / "METADATA").write_text(f"Metadata-Version: 2.1\nName: outside-{name}\nVersion: 1.0\n", encoding="utf-8")
    (about / "entry_points.txt").write_text(entry_points, encoding="utf-8")


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """A folder with the package, installed as far as Python can tell, and data."""
    folder = tmp_path_factory.mktemp("outside")
    install(folder, "decay", CODE, "[ensue.mixers]\ndecay = decay:Decay\n")
    (folder / "text.txt").write_text(sentences(60), encoding="utf-8")
    pairs = "".join(f"{line} {n % 7}\t{line}\n" for n, line in enumerate(sentences(60).splitlines()))
    (folder / "pairs.tsv").write_text(pairs, encoding="utf-8")
    return folder


def environment(folder):
    """An environment in which the package is installed."""
    path = os.pathsep.join([str(folder), *filter(None, [os.environ.get("PYTHONPATH")])])
    return {**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": "1"}


def run(folder, *words):
    """A command in a process of its own."""
    command = [sys.executable, "-m", "ensue", *map(str, words)]
    how = {"cwd": folder, "capture_output": True, "text": True, "timeout": 120}
    return subprocess.run(command, env=environment(folder), check=False, **how)


def said(folder, *words):
    """What a command answers as JSON."""
    answer = run(folder, *words, "--json")
    assert answer.returncode == 0, answer.stderr
    return json.loads(answer.stdout)


@pytest.fixture(scope="module")
def model(place):
    words = ("gpt", "text.txt", "--tokenizer", "word", *SMALL, "--set", "attention=decay:decay=0.9")
    said(place, "fit", *words, "--out", "gpt")
    return place / "gpt"


def test_the_example_is_short():
    assert len(CODE.splitlines()) < 60


def test_it_is_checked_scored_generated_from_and_looked_at(place, model):
    assert said(place, "check", model)["kept"]
    assert said(place, "score", model, "text.txt")["bits_per_byte"] > 0
    wanted = ("--prompt", "the", "--max-tokens", "40", "--num-samples", "2")
    assert len(said(place, "generate", model, *wanted)["samples"]) == 2
    numbers = said(place, "look", "attention", model, "--text", "the students opened", "--layer", "1", "--head", "1")
    assert torch.tensor(numbers["weights"]).sum(-1).sub(1).abs().max() < 1e-5


def test_an_encoder_decoder_searches_with_it(place):
    words = ("transformer", "pairs.tsv", "--tokenizer", "word", *SMALL, "--set", "attention=decay")
    said(place, "fit", *words, "--out", "translator")
    answer = said(place, "translate", "translator", "--text", "the students opened", "--beam", "3", "--nbest", "2")
    assert answer


def test_it_is_served(place, model):
    command = [sys.executable, "-u", "-m", "ensue", "serve", str(model), "--port", "0"]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
    with subprocess.Popen(command, env=environment(place), text=True, **pipes) as server:
        try:
            lines = (re.search(r"http://[\d.]+:\d+", line) for line in server.stdout)
            address = next(found.group(0) for found in lines if found)
            form = {"model": "gpt", "prompt": "the", "max_tokens": 5, "n": 2}
            answer = httpx.post(f"{address}/v1/completions", json=form, timeout=60)
            assert answer.status_code == 200 and len(answer.json()["choices"]) == 2
        finally:
            server.terminate()


def test_an_unknown_mixer_is_named(place):
    answer = run(place, "fit", "gpt", "text.txt", *SMALL, "--set", "attention=decya", "--out", "none")
    assert answer.returncode == 2 and "decay" in answer.stderr and not (place / "none").exists()
