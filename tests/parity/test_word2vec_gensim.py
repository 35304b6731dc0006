"""Vectors, neighbours, analogies and scores against gensim."""

import numpy as np
import pytest

from ensue.data.word_benchmarks import read_analogies, read_similarities
from ensue.data.word_vectors import WordVectors
from ensue.exchange.word2vec import read_word2vec, write_word2vec
from ensue.measure.words import analogy, analogy_score, neighbours, similarity_score

keyed = pytest.importorskip("gensim.models.keyedvectors")
WORDS = [f"word{number}" for number in range(60)] + ["é", "日本"]


@pytest.fixture
def vectors():
    return WordVectors(WORDS, np.random.default_rng(1).normal(size=(len(WORDS), 12)).astype(np.float32))


@pytest.fixture
def theirs(vectors):
    found = keyed.KeyedVectors(12)
    found.add_vectors(WORDS, vectors.matrix)
    return found


@pytest.mark.parametrize(
    ("name", "binary"), [("v.txt", False), ("v.bin", True), ("v.txt.gz", False), ("v.bin.gz", True)]
)
def test_each_reads_what_the_other_writes(tmp_path, vectors, theirs, name, binary):
    write_word2vec(vectors, tmp_path / f"ours.{name}")
    read = keyed.KeyedVectors.load_word2vec_format(str(tmp_path / f"ours.{name}"), binary=binary)
    assert read.index_to_key == WORDS and np.array_equal(read.vectors, vectors.matrix)
    theirs.save_word2vec_format(str(tmp_path / f"theirs.{name}"), binary=binary)
    back = read_word2vec(tmp_path / f"theirs.{name}")
    assert list(back.words) == WORDS and np.array_equal(back.matrix, vectors.matrix)


def test_neighbours_and_analogies_are_the_same(vectors, theirs):
    for word in WORDS[:10]:
        ours, other = neighbours(vectors, word, 8), theirs.most_similar(word, topn=8)
        assert [w for w, _ in ours] == [w for w, _ in other]
        np.testing.assert_allclose([c for _, c in ours], [c for _, c in other], atol=1e-6)
    ours = analogy(vectors, "word1", "word2", "word3", 8)
    other = theirs.most_similar(positive=["word1", "word3"], negative=["word2"], topn=8)
    assert [w for w, _ in ours] == [w for w, _ in other]
    np.testing.assert_allclose([c for _, c in ours], [c for _, c in other], atol=1e-6)


def test_scores_of_pairs_are_the_same(tmp_path, vectors, theirs):
    chance = np.random.default_rng(2)
    pairs = [(*chance.choice(60, 2, replace=False), value) for value in chance.normal(size=40).round(2)]
    lines = [f"word{a}\tword{b}\t{value}\n" for a, b, value in pairs] + ["word1\tother\t3\n"]
    path = tmp_path / "pairs.tsv"
    path.write_text("".join(lines))
    score = similarity_score(vectors, read_similarities(path))
    linear, ranked, unknown = theirs.evaluate_word_pairs(str(path))
    assert score.pearson == pytest.approx(linear.statistic, abs=1e-6)
    assert score.spearman == pytest.approx(ranked.statistic, abs=1e-6)
    assert score.missing / (score.pairs + score.missing) * 100 == pytest.approx(unknown)


def test_scores_of_questions_are_the_same(tmp_path, vectors, theirs):
    chance = np.random.default_rng(3)
    matrix = vectors.matrix.copy()
    lines = [": some\n"]
    for number in range(30):
        a, b, c, d = chance.choice(60, 4, replace=False)
        if number % 2:
            matrix[d] = matrix[b] - matrix[a] + matrix[c]
        lines.append(f"word{a} word{b} word{c} word{d}\n")
    lines += ["word1 word2 word3 other\n", ": more\n", *lines[5:15]]
    path = tmp_path / "questions.txt"
    path.write_text("".join(lines))
    changed = WordVectors(WORDS, matrix)
    other = keyed.KeyedVectors(12)
    other.add_vectors(WORDS, matrix)
    share, sections = other.evaluate_word_analogies(str(path))
    ours = analogy_score(changed, read_analogies(path))
    assert ours[-1].accuracy == pytest.approx(share) and 0 < share < 1
    for mine, section in zip(ours, sections):
        assert (mine.right, mine.asked) == (
            len(section["correct"]),
            len(section["correct"]) + len(section["incorrect"]),
        )
