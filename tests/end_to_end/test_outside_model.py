"""A model of another package works with every command: the example of docs/how-to/add-a-model.md."""

import re
from pathlib import Path

import pytest
from test_outside_mixer import SMALL, install, run, said
from typed import sentences

PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "add-a-model.md"
CODE = re.search(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL).group(1)


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    folder = tmp_path_factory.mktemp("outside")
    install(folder, "tiny", CODE, "[ensue.systems]\ntiny = tiny:TinyLanguageModel\n")
    (folder / "text.txt").write_text(sentences(60), encoding="utf-8")
    return folder


def test_the_example_is_short():
    assert len(CODE.splitlines()) < 60


def test_it_is_trained_checked_scored_and_generated_from(place):
    assert "attention" in run(place, "systems", "tiny").stdout
    words = ("tiny", "text.txt", "--tokenizer", "word", *SMALL, "--set", "attention=local:span=4", "--out", "run")
    said(place, "fit", *words)
    assert said(place, "check", "run")["kept"]
    assert said(place, "score", "run", "text.txt")["bits_per_byte"] > 0
    assert said(place, "generate", "run", "--prompt", "the", "--max-tokens", "100")["samples"]
