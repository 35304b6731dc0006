"""Encoders and models that label as people use them: fit, predict, score, fill, embed, convert, check, cost."""

import io
import json
import shutil
import sys
from pathlib import Path

import numpy as np
import pytest
from labelled_files import KINDS, write_all
from test_bad_input import contents
from typed import ensue

from ensue.core.files import sha256
from ensue.runs.load import load
from ensue.verbs import check
from ensue.verbs.fit import fit

SMALL = ("--set", "layers=1", "--set", "heads=2", "--set", "hidden=16", "--set", "context=48")
BRIEF = ("--set", "train.steps=6", "--set", "train.eval_every=3", "--set", "train.checkpoint_every=2")
TINY = (*SMALL, *BRIEF, "--set", "tokenizer.min_count=1")
MEASURES = {
    "classify": {"accuracy", "f1", "matthews", "macro_f1", "confusion", "per_class"},
    "pair": {"accuracy", "f1", "matthews"},
    "regress": {"pearson", "spearman", "mse"},
    "choose": {"accuracy", "chance"},
    "tag": {"f1", "precision", "recall", "per_type"},
    "answer": {"exact_match", "f1", "best_f1", "threshold"},
}


@pytest.fixture(scope="session")
def files(tmp_path_factory):
    return write_all(tmp_path_factory.mktemp("labelled"))


@pytest.fixture(scope="session")
def encoders(tmp_path_factory, files):
    """A tiny pre-trained encoder, and a run of each task that begins with it; tests that change one copy it first."""
    folder = tmp_path_factory.mktemp("encoders")
    answer = ensue(
        "fit", "bert", files["documents"], *TINY, "--set", "train.batch=8", "--out", folder / "bert", "--json"
    )
    assert answer.code == 0, answer.err
    assert {"masked_loss", "unigram_loss", "next_accuracy"} <= answer.json["valid"].keys()
    for task, measures in MEASURES.items():
        more = ("--set", "train.lr=1e-2", "--set", "train.steps=60") if task == "classify" else ()
        words = (task, files[task], "--from", folder / "bert", *BRIEF, *more, "--out", folder / task, "--json")
        answer = ensue("fit", *words)
        assert answer.code == 0, answer.err
        assert measures <= answer.json["valid"].keys()
    return folder


def refused(*words, says):
    """The command fails with one line after its notes, if any, and the folder it ran in stays as it was."""
    before = contents(".")
    answer = ensue(*words)
    *notes, last = answer.err.splitlines()
    assert answer.code == 2 and answer.out == "" and contents(".") == before
    assert all(line.startswith("note: ") for line in notes), answer.err
    assert last.startswith("ensue: ") and says in last, answer.err


def output(*words):
    answer = ensue(*words)
    assert answer.code == 0, answer.err
    return answer.json if "--json" in words else answer.out


@pytest.mark.parametrize("task", MEASURES)
def test_a_run_says_all_about_itself(encoders, task):
    run = load(encoders / task)
    assert run.task == task and run.system == "bert" and run.settings["begin_with"] == str(encoders / "bert")
    card = (encoders / task / "README.md").read_text()
    assert card.startswith(f"# bert to {task}\n") and "40 examples" not in card and "36 examples" in card
    if task in ("classify", "pair", "choose", "tag"):
        assert run.settings["data.labels"] == list(run.config["data"]["labels"])
    assert run.model.body.config.context == 48


@pytest.mark.parametrize("task", MEASURES)
def test_scores_have_the_measures_of_their_task(encoders, files, task):
    found = output("score", encoders / task, files[task], "--json")
    assert MEASURES[task] <= found.keys()
    assert found.get("examples", found.get("total")) == 40
    assert "40 examples" in output("score", encoders / task, files[task])
    if task == "answer":
        assert found["threshold"] == load(encoders / task).config["figures"]["valid"]["threshold"]


def test_what_was_learnt_is_predicted(encoders, files):
    found = output(
        "predict", encoders / "classify", "--text", "fine lovely great", "--text", "awful dull poor", "--json"
    )
    assert [one["label"] for one in found["predictions"]] == ["good", "bad"] and found["task"] == "classify"
    assert all(sum(one["probabilities"].values()) == pytest.approx(1) for one in found["predictions"])
    assert output("score", encoders / "classify", files["classify"], "--json")["accuracy"] > 0.9


@pytest.mark.parametrize("task", MEASURES)
def test_files_and_lines_are_predicted_alike(encoders, files, task, monkeypatch):
    found = output("predict", encoders / task, files[task], "--json")["predictions"]
    assert len(found) == 40
    lines = output("predict", encoders / task, files[task]).splitlines()
    assert len(lines) == 40
    typed = typed_lines(task, files[task])
    Path("plain.txt").write_text("".join(line + "\n" for line in typed))
    monkeypatch.setattr(sys, "stdin", io.StringIO("".join(line + "\n" for line in typed)))
    for again in (
        output("predict", encoders / task, "-", "--json")["predictions"],
        output("predict", encoders / task, "--text", typed[0], "--text", typed[1], "--json")["predictions"],
        *(
            [output("predict", encoders / task, "plain.txt", "--json")["predictions"]]
            if task in ("classify", "tag")
            else []
        ),
    ):
        for one, other in zip(found, again):
            for name in ("label", "choice", "tags", "answer"):
                assert one.get(name) == other.get(name)
            assert one.get("value", 0) == pytest.approx(other.get("value", 0), abs=1e-4)


def typed_lines(task, file):
    """The examples of a file as somebody would type them."""
    text = file.read_text()
    if task == "choose":
        records = [json.loads(line) for line in text.splitlines()]
        return ["\t".join([one["context"], *one["endings"]]) for one in records]
    if task == "answer":
        paragraphs = json.loads(text)["data"][0]["paragraphs"]
        return [f"{one['qas'][0]['question']}\t{one['context']}" for one in paragraphs]
    if task == "tag":
        return [" ".join(line.split()[0] for line in block.splitlines()) for block in text.strip().split("\n\n")]
    return [line.rpartition("\t")[0] for line in text.splitlines()[1:]]


def test_questions_without_answers_can_be_asked(encoders):
    Path("asked.jsonl").write_text(json.dumps({"question": "how was it?", "context": "the film was fine"}) + "\n")
    (found,) = output("predict", encoders / "answer", "asked.jsonl", "--json")["predictions"]
    assert found["answer"] in "the film was fine" and found.keys() >= {"start", "stop", "score", "no_answer"}


def test_a_file_of_one_label_can_be_scored(encoders):
    Path("one.tsv").write_text("text\tlabel\nfine great film\tgood\nlovely book\tgood\n")
    assert output("score", encoders / "classify", "one.tsv", "--json")["examples"] == 2


def test_numbers_of_single_texts(encoders, monkeypatch):
    lines = [f"{'great' if n % 2 else 'poor'} film\t{n % 2}.{n % 7}\n" for n in range(20)]
    Path("stars.tsv").write_text("text\tscore\n" + "".join(lines))
    run = fit("regress", "stars.tsv", out="stars", begin_with=encoders / "bert", settings={"train.steps": 2})
    assert run.config["data"]["texts"] == 1
    assert len(output("predict", "stars", "--text", "great film", "--json")["predictions"]) == 1
    Path("plain.txt").write_text("great film\npoor film\n")
    assert len(output("predict", "stars", "plain.txt", "--json")["predictions"]) == 2
    assert len(output("predict", "stars", "stars.tsv", "--json")["predictions"]) == 20


def test_which_sentence_follows(encoders, files):
    import torch

    from ensue.data.tokenizers.special_tokens import add_special_tokens

    found = output("predict", encoders / "bert", "--text", "the film\twas fine", "--json")["predictions"]
    run = load(encoders / "bert")
    ids, segments = add_special_tokens(
        run.tokenizer.special_tokens, *(run.tokenizer.encode(text) for text in ("the film", "was fine"))
    )
    row, kinds = (torch.tensor([part.tolist()]) for part in (ids, segments))
    p = run.model.next_logits(run.model.body(row, kinds).hidden[:, 0]).softmax(-1)[0, 0].item()
    assert found == [{"follows": p >= 0.5, "probability": pytest.approx(p, abs=1e-5)}]
    refused("predict", encoders / "bert", "--text", "a film", says="put a tab between two texts")


def test_fill(encoders):
    found = output("fill", encoders / "bert", "the [MASK] was [MASK]", "--json")
    assert len(found["gaps"]) == 2 and len(found["gaps"][0]) == 5 and len(found["steps"]) == 2
    assert "[MASK]" not in found["text"]
    shown = output("fill", encoders / "bert", "the [MASK] was [MASK]", "--top", "2")
    assert shown.count("mask ") == 2 and "round 2:" in shown and shown.splitlines()[-1] == found["text"]
    drawn = [
        output("fill", encoders / "bert", "[MASK] film", "--temperature", "1", "--seed", s, "--json") for s in "112"
    ]
    assert drawn[0] == drawn[1]


@pytest.mark.parametrize("run", ["bert", "classify"])
def test_embed(encoders, run, monkeypatch):
    Path("texts.txt").write_text("the film\na great book was really fine\nit\n")
    vectors = {}
    for ending in ("npy", "tsv", "jsonl"):
        assert "3 vectors of size 16" in output("embed", encoders / run, "texts.txt", "--out", f"x.{ending}")
    vectors["npy"] = np.load("x.npy")
    vectors["tsv"] = np.loadtxt("x.tsv", delimiter="\t")
    vectors["jsonl"] = np.array([json.loads(line) for line in Path("x.jsonl").read_text().splitlines()])
    told = output("embed", encoders / run, "texts.txt", "--json")
    assert (told["texts"], told["width"]) == (3, 16)
    for found in (vectors["tsv"], vectors["jsonl"], np.array(told["vectors"])):
        np.testing.assert_allclose(found, vectors["npy"], atol=1e-5)
    np.testing.assert_allclose(np.linalg.norm(vectors["npy"], axis=1), 1, atol=1e-5)
    monkeypatch.setattr(sys, "stdin", io.StringIO("it\nthe film\n"))
    lines = output("embed", encoders / run, "-").splitlines()
    np.testing.assert_allclose([json.loads(line) for line in lines], vectors["npy"][[2, 0]], atol=1e-5)
    assert output("embed", encoders / run, "texts.txt", "--no-normalise", "--pooling", "cls", "--json")["vectors"]
    Path("gaps.txt").write_text("the film\n\nit\n")  # a vector a line, also of an empty one
    gaps = np.array(output("embed", encoders / run, "gaps.txt", "--json")["vectors"])
    np.testing.assert_allclose(gaps[[0, 2]], vectors["npy"][[0, 2]], atol=1e-5)


@pytest.mark.parametrize("run", ["bert", "classify", "tag"])
def test_folders_of_hugging_face_and_back(encoders, files, run):
    output("convert", encoders / run, "--to", "hf", "--out", "theirs", "--json")
    assert (Path("theirs") / "config.json").exists()
    output("convert", "theirs", "--out", "ours", "--json")
    back = load("ours")
    assert back.task == load(encoders / run).task
    if run == "bert":
        words = ("fill", "the [MASK] was fine", "--json")
        assert output(words[0], "ours", *words[1:]) == output(words[0], encoders / run, *words[1:])
        assert output("score", "ours", files["documents"], "--json")["masked_loss"] > 0
        begun = fit("classify", files["classify"], out="begun", begin_with="ours", settings={"train.steps": 2})
        assert begun.config["figures"]["steps"] == 2
    else:
        one, other = (
            output("predict", where, files[run], "--json")["predictions"] for where in ("ours", encoders / run)
        )
        for a, b in zip(one, other):
            assert a.get("label") == b.get("label") and a.get("tags") == b.get("tags")
        refused("convert", "theirs", "--out", "ours", says="ours")


def test_a_vocabulary_may_be_smaller_than_the_weights_it_comes_with(encoders, files):
    """As tables of embeddings are often filled up to a round number."""
    import torch
    from safetensors.torch import load_file, save_file

    output("convert", encoders / "bert", "--to", "hf", "--out", "theirs", "--json")
    config = json.loads(Path("theirs/config.json").read_text())
    tensors = load_file("theirs/model.safetensors")
    for name, value in tensors.items():
        if value.shape[:1] == (config["vocab_size"],):
            tensors[name] = torch.cat([value, torch.zeros(5, *value.shape[1:])]).contiguous()
    config["vocab_size"] += 5
    Path("theirs/config.json").write_text(json.dumps(config))
    save_file(tensors, "theirs/model.safetensors", metadata={"format": "pt"})
    output("convert", "theirs", "--out", "wide", "--json")
    assert output("fill", "wide", "the [MASK]", "--json")["chosen"]
    run = fit("classify", files["classify"], out="begun", begin_with="wide", settings={"train.steps": 2})
    assert run.model.vocabulary == config["vocab_size"] > run.tokenizer.size


def test_a_head_that_a_folder_does_not_have_is_called_untrained_wherever_it_is_used(encoders, files):
    from safetensors.torch import load_file, save_file

    output("convert", encoders / "bert", "--to", "hf", "--out", "theirs", "--json")
    config = json.loads(Path("theirs/config.json").read_text())
    Path("theirs/config.json").write_text(json.dumps({**config, "architectures": ["BertModel"]}))
    tensors = load_file("theirs/model.safetensors")
    bare = {name: value for name, value in tensors.items() if not name.startswith("cls.")}
    save_file(bare, "theirs/model.safetensors", metadata={"format": "pt"})
    made = ensue("convert", "theirs", "--out", "bare")
    assert made.code == 0 and "no masked head: a new, untrained one is added" in made.err
    assert "masked head is new and untrained" in Path("bare/README.md").read_text()
    says = "note: bare: its masked head is untrained, so these answers are random"
    assert says in ensue("fill", "bare", "the [MASK]").err
    assert says.removeprefix("note: ") in output("fill", "bare", "the [MASK]", "--json")["notes"][0]
    assert says in ensue("score", "bare", files["documents"]).err
    assert says.removeprefix("note: ") in output("score", "bare", files["documents"], "--json")["notes"][0]
    assert "its masked head is untrained, and is written" in ensue("convert", "bare", "--to", "hf", "--out", "new").err
    assert "did not learn whether a text follows" in ensue("predict", "bare", "--text", "one\ttwo").err
    assert "untrained" not in ensue("fill", encoders / "bert", "the [MASK]").err
    trained = fit("bert", files["documents"], out="trained", begin_with="bare", settings={"train.steps": 2})
    assert "untrained" not in trained.config


# Beginning with another run.


def test_a_run_starts_with_the_head_of_another_if_labels_are_the_same(encoders, files):
    notes = []

    def report(kind, values):
        notes.append(values.get("text", ""))

    small = {"train.steps": 1, "train.lr": 1e-9, "train.keep": "last"}
    first = fit(
        "classify",
        files["classify"],
        out="first",
        begin_with=encoders / "bert",
        settings={"head.pooling": "mean", "head.dense": "relu", **small, "train.steps": 5, "train.lr": 1e-2},
    )
    same = fit("classify", files["classify"], out="same", begin_with="first", settings=small, report=report)
    assert same.model.config.pooling == "mean" and same.model.config.dense == "relu"
    assert np.allclose(same.model.out.weight.detach(), first.model.out.weight.detach(), atol=1e-6)
    assert not any("head has new random weights" in note for note in notes)
    text = files["classify"].read_text().replace("\tgood\n", "\tpraise\n")
    Path("other.tsv").write_text(text)
    other = fit("classify", "other.tsv", out="other", begin_with="first", settings=small, report=report)
    assert any("has other labels, so the head has new random weights" in note for note in notes)
    assert not np.allclose(other.model.out.weight.detach(), first.model.out.weight.detach(), atol=1e-3)
    weights = (run.model.body.embed.weight.detach() for run in (other, first))
    assert np.allclose(*weights, atol=1e-6)
    tags = fit("tag", files["tag"], out="tags", begin_with="first", settings=small)
    assert tags.task == "tag" and tags.model.config.pooling == "first"


@pytest.mark.parametrize(
    ("system", "flat"),
    [
        ("gpt", {"layers": 1, "heads": 2, "context": 48, "train.language": 0.5}),
        ("lstm", {"layers": 2, "train.freeze": -1, "train.unfreeze": 0.5, "train.layer_decay": 0.5}),
        ("roberta", {"layers": 1, "heads": 2, "context": 48, "train.lora": 2}),
    ],
)
def test_other_systems_learn_to_label(files, system, flat):
    task = "pair" if system == "roberta" else "classify"
    settings = {"hidden": 16, "train.steps": 4, "train.eval_every": 2, "tokenizer.vocabulary": 300, **flat}
    run = fit(task, files[task], model=system, out="run", settings=settings)
    assert run.system == system and run.task == task
    assert "accuracy" in run.config["figures"]["valid"]
    assert not any("parametrizations" in name for name in run.model.state_dict())
    assert run.predict(list(typed_lines(task, files[task])[:2]))
    assert len(run.embed(["the film"])[0]) == 16


def test_gpt_that_read_before_is_a_body_too(files):
    settings = {"hidden": 16, "layers": 1, "heads": 2, "context": 16, "train.steps": 2, "tokenizer.kind": "char"}
    fit("gpt", files["documents"], out="gpt", settings=settings)
    run = fit("classify", files["classify"], out="run", begin_with="gpt", settings={"train.steps": 2})
    assert run.system == "gpt" and run.config["data"]["length"] == 16
    back = fit("gpt", files["documents"], out="back", begin_with="run", settings={"train.steps": 1})
    assert back.task == "language"


# Resuming.


@pytest.mark.parametrize(
    ("what", "extra"),
    [
        ("bert", {"train.batch": 4}),
        ("classify", {"train.freeze": -1, "train.unfreeze": 0.3}),
        ("classify", {"train.lora": 2}),
    ],
    ids=str,
)
def test_an_interrupted_run_resumes_bit_for_bit(files, what, extra, monkeypatch):
    from ensue.train import loop

    data = files["documents" if what == "bert" else what]
    settings = {
        **dict(part.split("=") for part in TINY[1::2]),
        "train.batch_tokens": 100,
        "train.steps": 9,
        "train.keep": "last",
        **extra,
    }
    settings = {name: int(value) if str(value).isdecimal() else value for name, value in settings.items()}
    if what == "bert":
        del settings["train.batch_tokens"]
    whole = fit(what, data, out="whole", settings=settings)
    plain, calls = loop.update, []

    def breaking(*args):
        calls.append(1)
        if len(calls) == 6:
            raise RuntimeError("the power failed")
        return plain(*args)

    monkeypatch.setattr(loop, "update", breaking)
    with pytest.raises(RuntimeError, match="the power failed"):
        fit(what, data, out="broken", settings=settings)
    monkeypatch.setattr(loop, "update", plain)
    resumed = fit(what, out="broken", resume=True)
    assert sha256(resumed.folder.weights) == sha256(whole.folder.weights)
    assert resumed.config["figures"]["steps"] == 9


def test_a_resumed_run_wants_its_examples(encoders, files):
    shutil.copytree(encoders / "classify", "run")
    data = Path("mine.tsv")
    data.write_text(files["classify"].read_text())
    fit("classify", data, out="mine", begin_with=encoders / "bert", settings={"train.steps": 2})
    (Path("mine") / "config.json").unlink()
    data.write_text(files["classify"].read_text() + "one more film\tgood\n")
    refused("fit", "mine", "--resume", says="has changed since this run started")
    assert ensue("fit", "run", "--resume", "--set", "train.lr=5e-3").code == 2


# Looking.


def test_runs_are_checked(encoders):
    for run in ("bert", "classify", "choose", "answer"):
        found = output("check", encoders / run, "--json")
        assert found["kept"] and {"padding law", "order law"} <= {one["name"] for one in found["findings"]}


@pytest.mark.parametrize("what", ["bert", "classify"])
def test_resuming_is_proven(encoders, what, monkeypatch):
    """In this process, and broken before its first step: what is killed in the midst is tested above."""

    def finish(command):
        answer = ensue(*command[3:])
        assert answer.code == 0, answer.err

    monkeypatch.setattr(check, "_finish", finish)
    monkeypatch.setattr(check, "_kill_at", lambda command, folder, step: 0)
    found = output("check", encoders / what, "--resume", "--json")
    assert found["kept"] and "the same SHA-256" in found["findings"][0]["detail"]


def test_what_encoders_cost():
    found = output("cost", "bert", "--preset", "base", "--vocabulary", "30522", "--json")
    assert found["parts"]["body"] == 109_482_240 and sum(found["parts"].values()) == found["parameters"]
    # 2 FLOPs a weight that multiplies: the blocks, attention to 512 places, the masked head
    blocks = 12 * (2 * 12 * 768**2 + 2 * 2 * 512 * 768)
    assert found["flops_per_token"] == blocks + 2 * 768**2 + 2 * 768 * 30522
    assert "109,482,240" in output("cost", "bert", "--preset", "base", "--vocabulary", "30522")
    assert output("cost", "roberta", "--json")["parameters"] > 0


def test_systems_are_explained():
    found = output("systems", "bert", "--json")
    names = {setting["name"] for setting in found["settings"]}
    assert {"layers", "next_sentence", "train.mask", "data.eval_rows", "tokenizer.lowercase"} <= names
    assert found["presets"].keys() == {"default", "tiny", "small", "base", "large"} and "Devlin" in found["equation"]
    assert "--preset NAME" in output("systems", "roberta")


def test_curves_and_confusions_are_drawn(encoders, files):
    assert output("look", "curves", encoders / "bert", encoders / "classify", "--json")
    output("score", encoders / "classify", files["classify"], "--out", "confusion.svg")
    assert "<svg" in Path("confusion.svg").read_text()


def test_the_columns_a_run_learnt_from_are_predicted(files):
    rows = [line.split("\t") for line in files["classify"].read_text().splitlines()[1:]]
    Path("a.csv").write_text("stars,body,reply\n" + "".join(f"{kind},{text},thank you all\n" for text, kind in rows))
    Path("b.txt").write_text("".join(f"{text}\n" for text, _ in rows))
    output("fit", "classify", "a.csv", "--columns", "text=body,label=stars", *TINY, "--out", "run", "--json")
    found = [output("predict", "run", file, "--json")["predictions"] for file in ("a.csv", "b.txt")]
    assert len(found[0]) == len(rows)
    for one, other in zip(*found):
        assert one["probabilities"] == pytest.approx(other["probabilities"], abs=1e-5)


def test_what_is_refused_costs_no_run(encoders):
    output("convert", encoders / "classify", "--to", "hf", "--out", "theirs", "--json")
    output("convert", "theirs", "--out", "ours", "--json")
    refused("convert", "theirs", "--task", "tag", "--out", "ours", "--force", says="is made to classify, not to tag")
    assert load("ours").task == "classify"


@pytest.mark.parametrize("words", [("predict", "classify"), ("embed", "bert")])
def test_what_is_typed_must_be_text(encoders, words, monkeypatch):
    for data, errors in ((b"fine\n\xff\n", "strict"), (b"fine\n\xff\n", "surrogateescape")):
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(data), encoding="utf-8", errors=errors))
        refused(words[0], encoders / words[1], "-", says="standard input: is not UTF-8")


@pytest.mark.parametrize("start", [b"\x80\x02", b"PK\x03\x04"])
def test_a_pickle_alone_is_refused(start):
    for name in ("pytorch_model.bin", "model.pt"):
        Path(name).write_bytes(start + b"nothing to see")
        refused("convert", name, "--out", "run", says=f"{name} is a pickle, which can run any code")


# What cannot be.

TABLES = {
    "empty.tsv": ("", "empty"),
    "one.tsv": ("text\tlabel\na film\tgood\na book\tgood\n", "every line has the label 'good'"),
    "label.tsv": ("text\tlabel\na film\tgood\na book\t\n", "label.tsv:3: the label is missing"),
    "columns.tsv": ("a film\ngood\n", "columns.tsv"),
}


@pytest.mark.parametrize("name", TABLES)
def test_tables_that_cannot_be_learnt_from(name):
    text, says = TABLES[name]
    Path(name).write_text(text)
    refused("fit", "classify", name, *TINY, "--out", "run", says=says)


def test_commands_that_cannot_be(encoders, files, runs, text):
    data = files["classify"]
    bert, classify = encoders / "bert", encoders / "classify"
    for words, says in {
        ("fit", "classify"): "there is nothing to learn from",
        ("fit", "clasify", data): "did you mean 'classify'?",
        ("fit", "bert", data, "--model", "gpt"): "--model chooses the system of a task",
        ("fit", "classify", data, "--model", "ngram"): "ngram cannot be trained to classify",
        ("fit", "classify", data, "--model", "gptt"): "did you mean 'gpt'?",
        ("fit", "classify", data, "--from", bert, "--model", "gpt"): "is a bert, not a gpt",
        ("fit", "classify", data, "--from", bert, "--tokenizer", "bpe"): "leave out --tokenizer",
        ("fit", "classify", data, "--from", "nowhere"): "nowhere",
        ("fit", "classify", data, "--from", bert, "--set", "hidden=32"): "do not fit these settings",
        ("fit", "classify", data, "--set", "data.length=99", *TINY): "more than the model's context",
        ("fit", "classify", data, "--columns", "text=9,label=1", *TINY): "column",
        ("fit", "classify", data, "--set", "train.language=0.5", *TINY): "which bert does not predict",
        ("fit", "classify", data, "--set", "train.lora=2", "--set", "train.freeze=1", *TINY): "leave the body",
        ("fit", "classify", data, "--tokenizer", "char", *TINY): "no special tokens for an encoder",
        ("fit", "regress", data, *TINY): "the label 'good' is not a number",
        ("fit", "bert", text, "--set", "train.batch_tokens=9"): "use train.batch",
        ("fit", "answer", data, *TINY): "question",
        ("predict", bert, "--text", "a film"): "whether one follows another",
        ("predict", runs / "lstm", "--text", "a film"): "lstm cannot label anything",
        ("predict", classify): "predict what?",
        ("predict", classify, data, "--text", "x"): "predict what?",
        ("predict", classify, "nowhere.txt"): "there is no such file",
        ("predict", encoders / "pair", "--text", "one text alone"): "1 texts where 2 are needed",
        ("fill", classify, "the [MASK]"): "bert trained to classify cannot fill in",
        ("fill", bert, "the film"): "there is nothing to fill in",
        ("fill", bert, "[MASK] " + "film " * 90): "reads at most 48",
        ("fill", bert, "[MASK]", "--rounds", "-1"): "rounds",
        ("fill", runs / "lstm", "the [MASK]"): "lstm cannot fill in",
        ("embed", runs / "ngram", text): "ngram cannot make a vector",
        ("embed", bert, text, "--out", "x.bin"): "is not a format for vectors",
        ("embed", bert, text, "--pooling", "sum"): "no pooling 'sum'",
        ("embed", bert, "nowhere.txt"): "there is no such file",
        ("generate", bert): "ensue fill",
        ("next", bert, "the"): "bert cannot predict the next token",
        ("translate", classify, text): "cannot translate",
        ("score", classify, "--text", "x"): "scored on labelled examples",
        ("score", classify, text): "text.txt",
        ("score", bert, "--text", "x"): "scored on files",
        ("score", bert, text, "--out", "x.svg"): "only labels have a confusion",
        ("score", encoders / "regress", files["regress"], "--out", "x.svg"): "confusion",
        ("convert", classify): "convert to what?",
        ("convert", classify, "--to", "arpa"): "no ARPA form",
    }.items():
        out = ("--out", "run") if words[0] == "fit" else ()
        refused(*words, *out, says=says)


def test_a_config_without_labels_is_refused(encoders, files):
    shutil.copytree(encoders / "classify", "run")
    config = json.loads(Path("run/config.json").read_text())
    del config["data"]["labels"]
    Path("run/config.json").write_text(json.dumps(config))
    refused("predict", "run", files["classify"], "--no-verify", says="config.json: data.labels")


def test_an_encoder_needs_more_than_one_document():
    Path("one.txt").write_text("A film. A book was fine. " * 10)
    refused("fit", "bert", "one.txt", *TINY, "--out", "run", says="next_sentence=false")
    Path("lines.txt").write_text("".join(f"{' '.join(words)} film.\n\n" for words in KINDS.values()) * 20)
    refused("fit", "bert", "lines.txt", *TINY, "--out", "run", says="end documents by blank lines")
    assert ensue("fit", "bert", "lines.txt", *TINY, "--set", "next_sentence=false", "--out", "run", "--json").code == 0
