"""Continuations of many prompts are those of each prompt alone."""

import pytest

import ensue
from ensue.core.errors import InputError
from ensue.runs import continuations as module
from ensue.runs.continuations import continuations
from ensue.search.sampling import Sampling

TEXT = "the cat sat on the mat .\nthe dog saw the cat and ran .\na cat and a dog are here .\n" * 20
PROMPTS = ["the cat", "a dog and the", "the", "the dog saw", "here"]
QUICK = {"train.steps": 3, "train.batch": 2, "hidden": 16}


@pytest.fixture(scope="module")
def text(tmp_path_factory):
    path = tmp_path_factory.mktemp("text") / "text.txt"
    path.write_text(TEXT, encoding="utf-8")
    return path


@pytest.mark.parametrize(
    ("system", "settings"),
    [
        ("ngram", {"tokenizer.kind": "word"}),
        ("lstm", {**QUICK, "tokenizer.kind": "char"}),
        ("gpt", {**QUICK, "heads": 2, "layers": 1, "context": 32, "tokenizer.kind": "word"}),
    ],
)
def test_a_batch_writes_what_each_prompt_alone_would(system, settings, text, tmp_path, monkeypatch):
    run = ensue.fit(system, text, out=tmp_path / "run", settings=settings)
    expected = [
        [one.text for one in run.generate(prompt, tokens=6, n=3, seed=7 + number)]
        for number, prompt in enumerate(PROMPTS)
    ]
    done = []
    monkeypatch.setattr(module, "BATCH_ROWS", 6)  # two prompts a batch
    found = continuations(
        run, PROMPTS, Sampling(tokens=6, n=3, seed=7), lambda kind, values: done.append(values["done"])
    )
    assert found == expected
    assert done == [2, 4, 5]


def test_a_model_that_reads_backwards_has_no_continuations(text, tmp_path):
    settings = {**QUICK, "tokenizer.kind": "word", "data.direction": "backward"}
    run = ensue.fit("lstm", text, out=tmp_path / "run", settings=settings)
    with pytest.raises(InputError, match="lstm cannot continue a text"):
        continuations(run, ["the"], Sampling(tokens=2))
    numbers = run.look.bias().numbers
    assert "sentiment" not in numbers and numbers["pairs"][0]["count"] == 34
