"""T5 as people use it: pre-train on text, fine-tune on pairs and on posed examples, write, look, exchange."""

import contextlib
import json

import pytest
import torch
from typed import ensue as typed

import ensue
from ensue.core.errors import InputError
from ensue.runs.load import load
from ensue.runs.spans import SpanRun
from ensue.runs.translation import TranslationRun

TINY = {"layers": 1, "heads": 2, "hidden": 16, "inner": 32, "context": 32, "train.threads": 1, "train.evaluations": 1}
WORDS = "the cat sat on the mat and the dog ran to the park with a red ball in the sun".split()  # noqa: SIM905


def text(lines):
    return "\n".join(" ".join(WORDS[(n * 7 + k) % len(WORDS)] for k in range(8)) + "." for n in range(lines)) + "\n"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("t5")
    (path / "corpus.txt").write_text(text(200))
    rows = [(f"{WORDS[n % 20]} {WORDS[(n * 3) % 20]} film", "1" if n % 2 else "0") for n in range(60)]
    (path / "films.tsv").write_text("".join(f"{line}\t{label}\n" for line, label in rows))
    (path / "pairs.tsv").write_text("".join(f"{a} {b}\t{b} {a}\n" for a in WORDS for b in WORDS[:3]))
    return path


@pytest.fixture(scope="module")
def trained(folder):
    """A pre-trained run."""
    return ensue.fit(
        "t5", folder / "corpus.txt", out=folder / "pre", settings={**TINY, "train.steps": 12}, tokenizer="byte"
    )


def invoke(*words):
    """The code of a command, and all that it said."""
    answer = typed(*words)
    return answer.code, answer.out + answer.err


def test_pre_training_is_scored_and_fills_in_spans(trained, folder):
    assert isinstance(load(folder / "pre"), SpanRun) and trained.task == "spans"
    assert trained.config["model"]["start"] == 0
    score = trained.score(folder / "corpus.txt")
    assert 0 < score.span_loss < 10 and 0 <= score.accuracy <= 1 and score.lost > 100
    filled = trained.fill("the [MASK] sat on [MASK]")
    assert len(filled.chosen) == 2 and filled.text.startswith("the ")
    code, output = invoke("fill", folder / "pre", "the [MASK] sat")
    assert code == 0 and output.strip()
    with pytest.raises(InputError, match="MASK"):
        trained.fill("nothing is missing")


def test_a_resumed_run_has_the_same_bits(folder):
    how = {**TINY, "train.steps": 8, "train.checkpoint_every": 4, "train.keep": "last"}
    whole = ensue.fit("t5", folder / "corpus.txt", out=folder / "whole", settings=how, tokenizer="byte", dropout=0.1)

    class Stop(KeyboardInterrupt):
        pass

    def stopping(kind, facts):
        if kind == "step" and facts.get("step", 0) >= 6:
            raise Stop

    with contextlib.suppress(KeyboardInterrupt, ensue.core.errors.Interrupted):
        ensue.fit(
            "t5",
            folder / "corpus.txt",
            out=folder / "part",
            settings=how,
            tokenizer="byte",
            dropout=0.1,
            report=stopping,
        )
    resumed = ensue.fit("t5", out=folder / "part", resume=True)
    for name, weight in whole.model.state_dict().items():
        assert torch.equal(weight, resumed.model.state_dict()[name]), name


def test_pairs_continue_from_the_pre_trained_weights(trained, folder):
    run = ensue.fit(
        "t5", folder / "pairs.tsv", out=folder / "swap", begin_with=str(folder / "pre"), settings={"train.steps": 3}
    )
    assert type(run) is TranslationRun and run.task == "translation"
    assert run.config["model"]["start"] == 0 and run.tokenizer.size == trained.tokenizer.size
    (made,) = run.translate(["the cat"])
    assert made.source == "the cat"
    assert 0 <= run.score(folder / "pairs.tsv").figures["exact"] <= 1
    for command in (["look", "attention", run, "--text", "the cat", "--json"], ["check", run]):
        code, output = invoke(*command)
        assert code == 0, output


def test_labelled_examples_and_pairs_are_a_mixture(trained, folder):
    run = ensue.fit(
        "t5",
        [folder / "films.tsv", folder / "pairs.tsv"],
        out=folder / "mix",
        begin_with=str(folder / "pre"),
        settings={
            "train.steps": 3,
            "data.pose": ("classify", "text"),
            "data.prefix": ("sst2 sentence: ", "swap: "),
            "data.labels": ("0=bad", "1=good"),
            "data.mix_limit": 20,
        },
    )
    both = run.score(folder / "films.tsv", folder / "pairs.tsv")
    assert both.figures["sentences"] > 100
    with pytest.raises(InputError, match="2 tasks"):
        run.score(folder / "films.tsv")


def test_a_task_that_labels_is_posed_as_text(trained, folder):
    how = {
        "train.steps": 3,
        "data.pose": ("classify",),
        "data.prefix": ("sst2 sentence: ",),
        "data.labels": ("0=bad", "1=good"),
    }
    run = ensue.fit("t5", folder / "films.tsv", out=folder / "sst", begin_with=str(folder / "pre"), settings=how)
    ids = run.translator().encode("a film")
    assert run.tokenizer.decode(ids[:-1]) == "sst2 sentence: a film"
    (one,) = run.predict(["a film"])
    assert set(one) == {"output", "log_prob"}
    (folder / "new.txt").write_text("a film\nanother\n")
    code, output = invoke("predict", run, folder / "new.txt")
    assert code == 0 and len(output.strip("\n").split("\n")) >= 1


def test_a_run_becomes_a_folder_and_a_run_again(trained, folder):
    code, output = invoke("convert", folder / "pre", "--to", "hf", "--out", folder / "hf")
    assert code == 0, output
    config = json.loads((folder / "hf" / "config.json").read_text())
    assert (config["model_type"], config["decoder_start_token_id"], config["eos_token_id"]) == ("t5", 0, 1)
    code, output = invoke("convert", folder / "hf", "--out", folder / "back")
    assert code == 0, output
    for name, weight in trained.model.state_dict().items():
        assert torch.equal(weight, load(folder / "back").model.state_dict()[name])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["fit", "t5", "corpus.txt", "--tokenizer", "word"], "tokenizer with sentinels"),
        (["fit", "t5", "corpus.txt", "--set", "train.lost=1.5"], "lost = 1.5"),
        (["fit", "t5", "corpus.txt", "--set", "train.length=4"], "too short"),
        (["fit", "t5", "films.tsv", "--set", "data.pose=sing"], "sing"),
        (["fit", "t5", "pairs.tsv", "--set", "data.prefix=a,b"], "data.prefix has 2 values"),
        (["fit", "t5", "corpus.txt", "--set", "tied=none"], "tied"),
        (["fit", "t5", "empty.txt"], ""),
        (["score", "pre", "--text", "one"], "it is scored on files"),
    ],
)
def test_bad_input_is_one_line(trained, folder, arguments, message, monkeypatch):
    monkeypatch.chdir(folder)
    (folder / "empty.txt").write_text("")
    more = ["--out", "never"] if arguments[0] == "fit" else []
    code, output = invoke(*arguments, *more)
    assert code != 0 and message in output
    assert output.count("ensue: ") == 1 and "Traceback" not in output and not (folder / "never").exists()
