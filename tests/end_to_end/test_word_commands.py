"""Word vectors as people get and ask for them."""

import json
import random
import tomllib
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from test_bad_input import refused
from typed import TINY, ensue, sentences

import ensue as package

SMALL = ("--set", "embedding=8", "--set", "tokenizer.min_count=1")
ROYAL = (("king", "he", "crown"), ("queen", "she", "crown"), ("man", "he", "hat"), ("woman", "she", "hat"))


def royal(lines=400):
    """Words that share one company by sex and another by rank."""
    chance = random.Random(0)
    chosen = [chance.choice(ROYAL) for _ in range(lines)]
    return "".join(" ".join(chance.sample([a, a, b, b, c, c], 6)) + "\n" for a, b, c in chosen)


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """Runs of word2vec, made once."""
    folder = tmp_path_factory.mktemp("words")
    (folder / "text.txt").write_text(royal())
    torch.set_num_threads(1)
    for name, words in {"sg": (), "cbow": ("--set", "mode=cbow"), "exact": ("--preset", "softmax")}.items():
        how = ("--set", "train.epochs=30", "--set", "train.subsample=0", "--set", "train.lr=0.1")
        answer = ensue("fit", "word2vec", folder / "text.txt", *SMALL, *how, *words, "--out", folder / name, "--json")
        assert answer.code == 0, answer.err
        assert answer.json["steps"] == 30 and answer.json["parameters"] == 2 * 8 * 8
    return folder


@pytest.mark.parametrize("name", ["sg", "cbow", "exact"])
def test_neighbours_and_analogies(made, name):
    found = ensue("words", "neighbours", made / name, "King", "--top", "3", "--json").json
    assert len(found["neighbours"]) == 3 and found["neighbours"][0]["word"] in ("crown", "he", "man", "queen")
    answer = ensue("words", "analogy", made / name, "king", "man", "woman", "--top", "2")
    assert answer.code == 0 and answer.out.count("\n") == 2
    if name == "exact":
        assert "queen" in answer.out.splitlines()[0]


def test_probabilities_use_both_matrices(made):
    run = package.load(made / "exact")
    V, U = run.model.embed.weight.detach().double(), run.model.head.weight.detach().double()
    c, o = run.vectors.index_of("king"), run.vectors.index_of("crown")
    assert run.probability("crown", given="king") == pytest.approx((U @ V[c]).softmax(0)[o].item())
    assert sum(run.probability(word, given="king") for word in run.vectors.words) == pytest.approx(1)
    assert run.probability("crown", given="king") > 10 * run.probability("hat", given="king")
    told = ensue("words", "neighbours", made / "exact", "king", "--by", "probability", "--json").json["neighbours"]
    assert told[0]["probability"] == pytest.approx(max(run.probability(w, given="king") for w in run.vectors.words))
    assert set(load_file(made / "exact" / "model.safetensors")) == {
        "embed.weight",
        "head.weight",
        "counts",
    }
    near = ensue("words", "neighbours", made / "sg", "king", "--by", "context", "--top", "2", "--json").json
    assert {one["word"] for one in near["neighbours"]} <= {"king", "he", "crown"}


def test_scores_of_files(made, tmp_path):
    Path("pairs.tsv").write_text("king\tqueen\t9\nking\the\t7\nking\that\t1\nking\tpear\t2\n")
    found = ensue("words", "similarity", made / "exact", "pairs.tsv", "--json").json
    assert found["pairs"] == 3 and found["missing"] == 1 and found["missing_words"] == ["pear"]
    assert -1 <= found["spearman"] <= 1 and "Spearman" in ensue("words", "similarity", made / "exact", "pairs.tsv").out
    Path("questions.txt").write_text(": royal\nman king woman queen\nman woman king queen\nman king pear plum\n")
    found = ensue("words", "analogies", made / "exact", "questions.txt", "--json").json
    assert found["asked"] == 2 and found["missing"] == 1 and found["sections"][0]["section"] == "royal"
    assert "skipped" in ensue("words", "analogies", made / "exact", "questions.txt").out


def test_a_run_repeated_from_run_toml_is_the_same(made):
    settings = tomllib.loads((made / "sg" / "run.toml").read_text())
    assert settings["train"]["threads"] == 1 and settings["train"]["lr"] == 0.1 and settings["train"]["steps"] == 30
    assert settings["tokenizer"]["vocabulary"] == 8 and settings["device"] == "cpu"
    assert ensue("fit", "word2vec", "--config", made / "sg" / "run.toml", "--out", "again", "--json").code == 0
    assert Path("again/model.safetensors").read_bytes() == (made / "sg" / "model.safetensors").read_bytes()
    other = ("--config", made / "sg" / "run.toml", "--seed", "1", "--out", "other", "--json")
    assert ensue("fit", "word2vec", *other).code == 0
    assert Path("other/model.safetensors").read_bytes() != (made / "sg" / "model.safetensors").read_bytes()


def test_a_stopped_run_resumes_bit_for_bit(made, monkeypatch):
    from ensue.models.word2vec_training import Word2VecTrainer

    plain, steps = Word2VecTrainer.update, []

    def broken(self, *how):
        steps.append(how[0])
        if len(steps) == 8:
            raise KeyboardInterrupt
        return plain(self, *how)

    monkeypatch.setattr(Word2VecTrainer, "update", broken)
    how = ("--config", made / "sg" / "run.toml", "--set", "train.checkpoint_every=3", "--out", "broken")
    answer = ensue("fit", "word2vec", *how)
    assert answer.code == 130 and "--resume" in answer.err
    assert ensue("fit", "broken", "--resume", "--json").code == 0
    assert steps[8] == 6
    assert Path("broken/model.safetensors").read_bytes() == (made / "sg" / "model.safetensors").read_bytes()
    assert "finished" in ensue("fit", "broken", "--resume").err


def test_training_with_several_threads_is_noted(made):
    answer = ensue("fit", "word2vec", made / "text.txt", *SMALL, "--set", "train.threads=2", "--out", "two")
    assert answer.code == 0 and "2 threads are fast, but never give the same twice" in answer.err
    assert tomllib.loads(Path("two/run.toml").read_text())["train"]["threads"] == 2


def test_vectors_survive_export_and_import(made):
    for name in ("v.bin", "v.txt.gz"):
        assert ensue("convert", made / "sg", "--to", "word2vec", "--out", name).code == 0
        assert ensue("convert", name, "--out", f"from-{name}", "--json").json["out"] == f"from-{name}"
        assert np.array_equal(package.load(f"from-{name}").vectors.matrix, package.load(made / "sg").vectors.matrix)
        asked = [ensue("words", "neighbours", where, "king").out for where in (made / "sg", f"from-{name}", name)]
        assert asked[0] == asked[1] == asked[2]
        seen = [ensue("look", "words", where, "--words", "king queen", "--json").json for where in (made / "sg", name)]
        assert seen[0]["words"] == seen[1]["words"] and [one["system"] for one in seen] == ["word2vec", None]
    refused("convert", made / "sg", "--to", "word2vec", "--out", "v.bin", says="is there already")
    refused("words", "neighbours", "from-v.bin", "king", "--by", "probability", says="has one vector for each word")


def test_the_vector_of_a_text_is_the_mean_of_its_words(made):
    Path("texts.txt").write_text("The King, crown!\nunheard of\n")
    answer = ensue("embed", made / "sg", "texts.txt", "--out", "means.npy")
    assert answer.code == 0 and "1 text without a word that has a vector" in answer.err
    vectors, means = package.load(made / "sg").vectors, np.load("means.npy")
    wanted = (vectors.matrix[vectors.index_of("king")] + vectors.matrix[vectors.index_of("crown")]) / 2
    assert np.allclose(means[0], wanted / np.linalg.norm(wanted), atol=1e-6) and not means[1].any()
    refused("embed", made / "sg", "texts.txt", "--int8", says="for models that read texts")


def test_a_word_has_one_vector_in_all_its_contexts(made, tmp_path):
    lines = ["chess\tthe king moved", "chess\ta King of wood", "throne\tthe king slept", "throne\ther king , crowned"]
    (tmp_path / "king.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")
    found = ensue("look", "senses", made / "sg", "king", tmp_path / "king.txt", "--json").json
    assert found["identical"] and found["accuracy"] == pytest.approx(found["chance"])
    (tmp_path / "crane.txt").write_text("a crane\nthe crane\nthat crane\n", encoding="utf-8")
    refused("look", "senses", made / "sg", "crane", tmp_path / "crane.txt", says="the word 'crane' has no vector")


def test_embeddings_are_initialised_from_vectors(made, text):
    how = ("--tokenizer", "word", *TINY, "--set", "embedding=8", "--set", "train.lr=1e-9", "--set", "train.keep=last")
    mixed = Path("mixed.txt")
    mixed.write_text(royal(30) + Path(text).read_text())
    answer = ensue("fit", "lstm", mixed, *how, "--embeddings", made / "sg", "--out", "begun")
    assert answer.code == 0, answer.err
    assert "8 of 20 words start with the vectors of" in answer.err and "12 have none and start random" in answer.err
    run, vectors = package.load("begun"), package.load(made / "sg").vectors
    token = run.tokenizer.encode("queen")[0]
    np.testing.assert_allclose(
        run.model.embed.weight[int(token)].detach().numpy(), vectors.matrix[vectors.index_of("queen")], atol=1e-5
    )
    assert ensue("words", "neighbours", "begun", "queen", "--json").json["neighbours"]
    assert ensue("convert", "begun", "--to", "word2vec", "--out", "begun.txt").code == 0
    refused("words", "neighbours", "begun", "queen", "--by", "probability", says="lstm has no P(o | c)")
    refused("fit", "lstm", mixed, "--embeddings", made / "sg", "--out", "x", says="--set embedding=8 makes them fit")
    refused("fit", "ngram", mixed, "--embeddings", made / "sg", "--out", "x", says="ngram has no embeddings")
    refused("fit", "lstm", mixed, "--embeddings", "no.bin", "--out", "x", says="no.bin: there is no such file")
    char = ("--tokenizer", "char", "--set", "embedding=8")
    refused(
        "fit", "lstm", mixed, *char, "--embeddings", made / "sg", "--out", "x", says="none of the words of this text"
    )
    both = ("--from", "begun", "--embeddings", made / "sg", "--out", "x")
    refused("fit", "lstm", mixed, *both, says="leave out one of them")


def test_a_run_is_initialised_from_another(made):
    answer = ensue(
        "fit", "word2vec", made / "text.txt", "--from", made / "sg", "--set", "train.epochs=1", "--out", "more"
    )
    assert answer.code == 0, answer.err
    assert package.load("more").vectors.words == package.load(made / "sg").vectors.words


BAD = {
    "empty.txt": ("", "the file is empty"),
    "marks.txt": ("... ,,,\n" * 10, "there are no words in this text"),
    "rare.txt": ("one two three four\n", "no word occurs 5 times or more"),
    "single.txt": ("word " * 90, "only one word, 'word'"),
}


@pytest.mark.parametrize("name", BAD)
def test_texts_that_cannot_be_trained_on_are_one_line_errors(name):
    text, says = BAD[name]
    Path(name).write_text(text)
    refused("fit", "word2vec", name, "--out", "run", says=says)


def test_invalid_questions_are_one_line_errors(made):
    Path("text.txt").write_text(sentences(40))
    run = made / "sg"
    refused("words", "neighbours", run, "kings", says="the word 'kings' has no vector; did you mean king")
    refused("words", "analogy", run, "king", "men", "woman", says="the word 'men' has no vector; did you mean")
    refused("words", "neighbours", run, "king", "--by", "sound", says="unknown measure 'sound'")
    refused("words", "similarity", run, "nowhere.tsv", says="there is no such file")
    refused("score", run, "text.txt", says="word2vec cannot be scored")
    refused("generate", run, says="word2vec cannot generate text")
    refused("fit", "word2vec", "text.txt", "--valid", "text.txt", "--out", "x", says="learns from the words of a text")
    refused(
        "fit", "word2vec", "text.txt", "--set", "train.batch=3", "--out", "x", says="learns from the words of a text"
    )
    refused("fit", "word2vec", "text.txt", "--tokenizer", "bpe", "--out", "x", says="must be word")
    refused("fit", "word2vec", "text.txt", "--compile", "--out", "x", says="compiled already")
    refused("fit", "lstm", "text.txt", "--tokenizer", run / "tokenizer.json", "--out", "x", says="has no end token")
    refused("race", "text.txt", "--systems", "word2vec", "--out", "x", says="word2vec is for words")


def test_the_card_and_the_list_of_systems(made):
    card = (made / "sg" / "README.md").read_text()
    assert "# word2vec" in card and "2,400 tokens" in card
    about = ensue("systems", "word2vec", "--json").json
    assert "log P(w_{t+j} | w_t)" in about["equation"] and "exact" in about["presets"]
    assert ensue("cost", "word2vec", "--vocabulary", "1000", "--json").json["parameters"] == 200_000
    record = json.loads((made / "sg" / "metrics.jsonl").read_text().splitlines()[-1])
    assert record["step"] == 30 and record["loss"] > 0
