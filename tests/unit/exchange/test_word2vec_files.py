"""Files of vectors: written, read back, compressed, damaged."""

import gzip

import numpy as np
import pytest

from ensue.core.errors import InputError
from ensue.data.word_vectors import WordVectors
from ensue.exchange.word2vec import read_word2vec, write_word2vec

WORDS = ["the", "café", "日本", "don't", "</s>"]
VECTORS = WordVectors(WORDS, np.random.default_rng(0).normal(size=(5, 7)).astype(np.float32))


@pytest.mark.parametrize("name", ["v.txt", "v.bin", "v.vec.gz", "v.bin.gz"])
def test_vectors_survive_a_round_trip_through_a_file(tmp_path, name):
    write_word2vec(VECTORS, tmp_path / name)
    found = read_word2vec(tmp_path / name)
    assert list(found.words) == WORDS
    assert np.array_equal(found.matrix, VECTORS.matrix)


@pytest.mark.parametrize("width", [1, 2, 3])
@pytest.mark.parametrize("name", ["v.txt", "v.bin"])
def test_text_and_binary_are_distinguished_for_narrow_vectors(tmp_path, width, name):
    vectors = WordVectors(["a", "b"], np.arange(2 * width, dtype=np.float32).reshape(2, width) - 1.5)
    write_word2vec(vectors, tmp_path / name)
    assert np.array_equal(read_word2vec(tmp_path / name).matrix, vectors.matrix)


def test_many_vectors_in_many_blocks(tmp_path, monkeypatch):
    monkeypatch.setattr("ensue.exchange.word2vec.BLOCK_BYTES", 50)
    many = WordVectors([f"w{n}" for n in range(5000)], np.random.default_rng(0).normal(size=(5000, 4)).astype("f4"))
    for name in ("v.bin", "v.txt"):
        write_word2vec(many, tmp_path / name)
        assert np.array_equal(read_word2vec(tmp_path / name).matrix, many.matrix)


def test_glove_has_no_first_line_and_words_with_spaces(tmp_path):
    path = tmp_path / "glove.txt"
    path.write_text("the 0.5 -1 2\nat name 1e-2 3 4\n. . 1 2 3\n", encoding="utf-8")
    found = read_word2vec(path)
    assert list(found.words) == ["the", "at name", ". ."]
    assert found.matrix[1].tolist() == [np.float32(0.01), 3, 4]


def test_a_repeated_word_is_read_once_with_a_note(tmp_path):
    path, notes = tmp_path / "v.txt", []
    path.write_text("3 2\na 1 2\nb 3 4\na 5 6\n")
    found = read_word2vec(path, notes)
    assert list(found.words) == ["a", "b"] and found.matrix[0].tolist() == [1, 2]
    assert len(notes) == 1 and "1 word came twice" in notes[0]


BINARY = b"2 3\na " + np.arange(3, dtype="<f4").tobytes() + b"\nb " + np.arange(3, dtype="<f4").tobytes()
BAD = {
    "empty.txt": (b"", "empty.txt: the file is empty"),
    "header.txt": (b"3 4\n", "has room for 0 of the 3 vectors"),
    "cut.txt": (b"3 2\na 1 2\nb 3 4\n", "ends after 2 of the 3 vectors that it announces; the file may be cut short"),
    "cut.bin": (BINARY[:-5], "has room for 1 of the 2 vectors|ends after 1 of the 2"),
    "cut.bin.gz": (gzip.compress(BINARY[:-5]), "ends after 1 of the 2 vectors"),
    "torn.bin.gz": (gzip.compress(BINARY)[:-9], "damaged or cut short"),
    "narrow.txt": (b"2 3\na 1 2 3\nb 1 2\n", r"narrow.txt:3: 2 numbers, where vectors have 3"),
    "wide.txt": (b"a 1 2\nb 1 2\nc 1\n", r"wide.txt:3: 1 number, where vectors have 2"),
    "words.txt": (b"2 3\na 1 2 3\nb 1 x 3\n", r"words.txt:3: 'x' is not a number"),
    "nameless.txt": (b"2 3\na 1 2 3\n 1 2 3\n", r"nameless.txt:3: numbers without a word before them"),
    "announced.txt": (b"1 2\na 1 2 3\n", r"announced.txt:2: 3 numbers, where vectors have 2"),
    "minus.txt": (b"-2 3\na 1 2 3\n", r"minus.txt:2: 3 numbers, where vectors have 1"),
    "overflow.txt": (b"1 2\na 1e99 2\n", "the vector of 'a' holds a value that is not finite"),
    "latin.txt": (b"2 2\na 1 2\ncaf\xe9 3 4\n", r"latin.txt:3: a word that is not UTF-8 \(byte 0xe9\)"),
    "latin.bin": (BINARY.replace(b"b ", b"\xe9 "), r"latin.bin, vector 2: a word that is not UTF-8"),
    "more.txt": (b"1 2\na 1 2\nb 3 4\n", r"more.txt:3: more than the 1 vectors"),
    "more.bin": (BINARY.replace(b"2 3", b"1 3"), "more.bin: more than the 1 vectors that it announces"),
    "prose.txt": (b"Call me Ishmael.\n", r"prose.txt:1: not a word and its numbers"),
    "nan.txt": (b"1 2\na nan 2\n", "the vector of 'a' holds a value that is not finite"),
    "huge.txt": (b"5 99999999\na 1\n", "huge.txt:1: vectors of 99,999,999 numbers are not supported"),
    "none.bin": (b"0 3\n", "there are no vectors"),
}


@pytest.mark.parametrize("name", BAD)
def test_files_that_cannot_be_read(tmp_path, name):
    data, says = BAD[name]
    (tmp_path / name).write_bytes(data)
    with pytest.raises(InputError, match=says):
        read_word2vec(tmp_path / name)


def test_missing_files_and_unwritable_words_are_errors(tmp_path):
    with pytest.raises(InputError, match="no such file"):
        read_word2vec(tmp_path / "no.bin")
    with pytest.raises(InputError, match="is a folder"):
        read_word2vec(tmp_path)
    with pytest.raises(InputError, match="'at name' holds white space"):
        write_word2vec(WordVectors(["at name"], np.ones((1, 2))), tmp_path / "v.txt")
    assert not (tmp_path / "v.txt").exists()
