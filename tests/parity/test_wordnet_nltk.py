"""Our reader of WordNet against NLTK's, on the same files."""

import pytest

from ensue.data.wordnet import WordNet
from tiny_wordnet import WORDS, build

FORMS = ["geese", "axes", "animals", "classes", "class", "goosed", "goosing", "ran", "runs", "better", "best", "men"]


@pytest.fixture
def both(tmp_path, monkeypatch):
    nltk = pytest.importorskip("nltk")
    reader = pytest.importorskip("nltk.corpus.reader.wordnet")
    folder = build(tmp_path)
    lexnames = "".join(f"{number:02d}\tfile{number}\t1\n" for number in range(45))
    (folder / "lexnames").write_text(lexnames, encoding="utf-8")
    (folder / "index.sense").write_text("", encoding="utf-8")
    (folder / "cntlist.rev").write_text("", encoding="utf-8")
    monkeypatch.setattr(nltk.data, "path", [str(folder)])
    # it would map these synsets to those of another WordNet, which is not here
    monkeypatch.setattr(reader.WordNetCorpusReader, "map_wn", lambda *_: None, raising=False)
    return WordNet(folder), reader.WordNetCorpusReader(str(folder), None)


def described(ours):
    return [(one.part, one.offset, list(one.words)) for one in ours]


def test_the_same_synsets_in_the_same_order(both):
    ours, theirs = both
    for word in [*WORDS, *FORMS]:
        expected = theirs.synsets(word)
        assert described(ours.synsets(word)) == [(one.pos(), one.offset(), one.lemma_names()) for one in expected]
        # satellites are numbered in two ways, as versions of NLTK differ
        plain = [one.name() for one in expected if one.pos() != "s"]
        assert [one.name for one in ours.synsets(word) if one.part != "s"] == plain


def test_the_same_closures(both):
    ours, theirs = both
    for name in ("gander.n.01", "goose.n.01", "entity.n.01"):
        expected = theirs.synset(name).closure(lambda one: sorted(one.hypernyms() + one.instance_hypernyms()))
        assert [one.name for one in ours.closure(ours.synset(name))] == [one.name() for one in expected]
