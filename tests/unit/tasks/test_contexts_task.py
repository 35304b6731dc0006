"""Learning words in context: reading, training, resuming to the bit, features in a tagger."""

import json

import pytest
import torch

import ensue
from ensue.core.errors import InputError
from ensue.core.files import sha256
from ensue.core.settings import read_toml
from ensue.data.tokenizers.spelled_words import fit_spelled_words
from ensue.tasks.contexts import encode_sentences

SHAPE = {"hidden": 12, "projection": 6, "filters": (3, 4), "letter": 4, "train.batch_tokens": 60}
SENTENCES = [
    "the boat lay on the bank of the river",
    "she put money into the bank",
    "the children play in the garden",
    "they saw a play on the stage",
    "a man sat by the river with a boat",
    "the man has money in the garden",
]
TAGGED = (
    "EU I-ORG\nrejects O\nlamb O\n\nPeter I-PER\nBlackburn I-PER\nsat O\n\nthe O\nEU I-ORG\n\nGlorb I-PER\nsaw O\n\n"
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("contexts")
    (folder / "text.txt").write_text("\n".join(SENTENCES * 6) + "\n", encoding="utf-8")
    (folder / "train.conll").write_text(TAGGED * 3, encoding="utf-8")
    return folder


@pytest.fixture(scope="module")
def elmo(folder):
    return ensue.fit("elmo", folder / "text.txt", out=folder / "elmo", settings={**SHAPE, "train.steps": 6})


def test_a_row_is_a_sentence_between_end_tokens_and_long_ones_are_cut():
    tokenizer = fit_spelled_words([("a b c d e", True, True)])
    rows = encode_sentences(["a b c", "", "a b c d e"], tokenizer, longest=3)
    assert rows.lengths.tolist() == [5, 5, 4]
    assert all(rows.tokens[at] == tokenizer.end for at in rows.starts[:-1])


def test_figures_have_both_directions(elmo):
    valid = elmo.config["figures"]["valid"]
    assert set(valid["perplexity"]) == {"forward", "backward"} and valid["words"] > 0
    card = elmo.folder.card.read_text(encoding="utf-8")
    assert "forward perplexity per word" in card and "backward perplexity per word" in card


def test_it_scores_sentences_and_fills_gaps(elmo, folder):
    score = elmo.score(folder / "text.txt")
    assert score.sentences == 36 and score.unknown == 0
    found = elmo.fill("the [MASK] lay on the bank", top=3)
    assert len(found.gaps) == 1 and len(found.gaps[0]) == 3 and "[MASK]" not in found.text
    with pytest.raises(InputError, match="nothing to fill in"):
        elmo.fill("the boat")


def test_an_interrupted_run_resumes_to_the_bit(folder):
    settings = {
        **SHAPE,
        "dropout": 0.2,
        "samples": 5,
        "train.steps": 6,
        "train.checkpoint_every": 2,
        "train.keep": "last",
    }
    whole = ensue.fit("elmo", folder / "text.txt", out=folder / "whole", settings=settings)
    broken = ensue.fit("elmo", folder / "text.txt", out=folder / "broken", settings=settings)
    for name in ("config.json", "model.safetensors", "checkpoints/step-00000006"):
        path = broken.folder.path / name
        (path.unlink() if path.is_file() else [part.unlink() for part in path.iterdir()] and path.rmdir())
    again = ensue.fit("elmo", out=folder / "broken", resume=True)
    assert sha256(again.folder.weights) == sha256(whole.folder.weights)


def test_context2vec_fits_and_fills(folder):
    shape = {"hidden": 8, "embedding": 6, "train.batch_tokens": 60, "train.steps": 4}
    run = ensue.fit("context2vec", folder / "text.txt", out=folder / "c2v", settings=shape)
    assert set(run.config["figures"]["valid"]["perplexity"]) == {"gap"}
    assert len(run.fill("she put [MASK] into the bank", top=4).gaps[0]) == 4


@pytest.fixture(scope="module")
def tagger(elmo, folder):
    settings = {"hidden": 6, "train.steps": 8, "train.keep": "last", "data.holdout": 0.3}
    return ensue.fit("tag", folder / "train.conll", begin_with=elmo.folder.path, out=folder / "ner", settings=settings)


def test_a_tagger_reads_the_layers_of_a_run_beside_its_own_vectors(tagger, elmo):
    held = tagger.config["features"]
    assert tagger.system == "lstm" and held["system"] == "elmo" and not held["tuned"] and len(held["shares"]) == 3
    assert sum(held["shares"]) == pytest.approx(1, abs=1e-5)
    assert tagger.config["head"]["directions"] == "both" and tagger.config["data"]["tokenizer"] == "spelt"
    ours = tagger.model.body.features.reader.state_dict()
    for name, weight in elmo.model.reader().state_dict().items():
        assert torch.equal(ours[name], weight)  # frozen is frozen
    assert "γ =" in tagger.folder.card.read_text(encoding="utf-8")
    assert read_toml(tagger.folder.settings)["features.run"] == str(elmo.folder.path)


def test_unseen_words_are_read_by_their_characters(tagger):
    one, other = (tagger.predict([f"{word} sat"])[0] for word in ("Zyx", "Q1"))
    assert len(one["tags"]) == len(other["tags"]) == 2
    tokens = [tagger.tokenizer.encode(word)[0] for word in ("Zyx", "Q1")]
    x = tagger.model.body.features.reader.embed(torch.tensor([tokens]))
    assert not torch.allclose(x[0, 0], x[0, 1])


def test_an_interrupted_tagger_with_features_resumes_to_the_bit(elmo, folder):
    settings = {"hidden": 6, "train.steps": 6, "train.checkpoint_every": 2, "train.keep": "last", "train.eval_every": 3}
    runs = [
        ensue.fit("tag", folder / "train.conll", begin_with=elmo.folder.path, out=folder / name, settings=settings)
        for name in ("ner-whole", "ner-broken")
    ]
    for name in ("config.json", "model.safetensors", "checkpoints/step-00000006"):
        path = runs[1].folder.path / name
        (path.unlink() if path.is_file() else [part.unlink() for part in path.iterdir()] and path.rmdir())
    again = ensue.fit("tag", out=folder / "ner-broken", resume=True)
    assert sha256(again.folder.weights) == sha256(runs[0].folder.weights)


def test_the_same_tagger_without_features_differs_by_them_alone(tagger, folder):
    settings = {"hidden": 6, "train.steps": 2, "data.holdout": 0.3}
    plain = ensue.fit("tag", folder / "train.conll", model="lstm", out=folder / "plain", settings=settings)
    assert plain.config["head"]["directions"] == "both" and plain.config["data"]["tokenizer"] == "word"
    assert plain.config["model"] == tagger.config["model"] and "features" not in plain.config
    names = {name for name in tagger.model.state_dict() if ".features." not in name}
    assert names == set(plain.model.state_dict())


def test_features_can_be_tuned_and_one_layer_chosen(elmo, folder):
    settings = {"hidden": 6, "train.steps": 2, "features.tuned": True, "features.layer": 1, "train.lr": 0.01}
    run = ensue.fit("tag", folder / "train.conll", begin_with=elmo.folder.path, out=folder / "tuned", settings=settings)
    assert run.config["features"]["shares"] == [0, 1, 0]
    ours = run.model.body.features.reader.state_dict()
    assert any(not torch.equal(ours[name], weight) for name, weight in elmo.model.reader().state_dict().items())


def test_a_classifier_reads_features_too(elmo, folder):
    (folder / "train.tsv").write_text("pos\tthe boat is good\nneg\tthe bank is bad\n" * 6, encoding="utf-8")
    settings = {"hidden": 6, "train.steps": 2}
    run = ensue.fit(
        "classify", folder / "train.tsv", begin_with=elmo.folder.path, out=folder / "cls", settings=settings
    )
    assert run.config["head"]["pooling"] == "max" and run.predict(["the boat"])[0]["label"] in ("pos", "neg")


def test_senses_of_a_word_in_its_contexts(elmo, folder):
    view = ensue.load(elmo.folder.path)
    from ensue.verbs.look import look

    seen = look("senses", [view.folder.path, "bank"], out=folder / "senses.json")
    assert 0 <= seen.numbers["accuracy"] <= 1 and not seen.numbers["identical"]
    assert len(seen.numbers["contexts"][0]["nearest"]) == 3 and "leave one out" in seen.note
    assert json.loads((folder / "senses.json").read_text(encoding="utf-8"))
    (folder / "bank.txt").write_text("river\tthe bank of the river\nmoney\tmoney in the bank\nriver\tthe muddy bank\n")
    assert len(look("senses", [elmo.folder.path, "bank", folder / "bank.txt"]).numbers["contexts"]) == 3
    letters = look("senses", [elmo.folder.path, "bank"], layer=1)
    assert letters.numbers["identical"] and letters.numbers["accuracy"] == pytest.approx(letters.numbers["chance"])
    assert "one vector per word" in letters.note


def test_the_weights_of_layers_are_shown(tagger, plain_out=None):
    from ensue.verbs.look import look

    seen = look("layers", [tagger.folder.path])
    assert seen.numbers["runs"][0]["shares"] == tagger.config["features"]["shares"]
    with pytest.raises(InputError, match="reads no features"):
        look("layers", [tagger.config["features"]["run"]])


@pytest.mark.parametrize(
    ("what", "settings", "said"),
    [
        ("tag", {"features.layer": 1}, "is for features of a run"),
        ("elmo", {"tokenizer.kind": "byte"}, "no words to spell"),
        ("elmo", {"filters": "a,b"}, "filters"),
        ("elmo", {"train.batch": 3}, "batch_tokens"),
    ],
)
def test_settings_that_contradict_each_other_are_refused(folder, what, settings, said):
    file = folder / ("train.conll" if what == "tag" else "text.txt")
    with pytest.raises(InputError, match=said):
        ensue.fit(what, file, model="lstm" if what == "tag" else "", out=folder / "never", settings=settings)
    assert not (folder / "never").exists()


def test_words_without_contexts_and_runs_without_vectors_are_refused(elmo):
    from ensue.verbs.look import look

    with pytest.raises(InputError, match="no built-in contexts"):
        look("senses", [elmo.folder.path, "crane"])
    with pytest.raises(InputError, match="senses needs a word"):
        look("senses", [elmo.folder.path])
    with pytest.raises(InputError, match="no layer 9"):
        look("senses", [elmo.folder.path, "bank"], layer=9)
