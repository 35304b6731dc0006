"""The cache of words: the library's tokens, and a bounded amount of memory whatever is read."""

import random
import string
import threading

import pytest

from ensue.data.tokenizers import word_cache
from ensue.data.tokenizers.subword import fit_subwords
from ensue.data.tokenizers.word_cache import GPT2_WORDS, WordCache


class Letters:
    """A tokenizer whose tokens are letters."""

    class Encoded:
        def __init__(self, text):
            self.ids = [ord(letter) for letter in text]

    def encode_batch_fast(self, texts, add_special_tokens):
        return [self.Encoded(text) for text in texts]


@pytest.fixture
def cache(monkeypatch):
    monkeypatch.setattr(word_cache, "MAX_SHORT_TEXT_WORDS", 50)
    monkeypatch.setattr(word_cache, "MAX_CACHED_WORDS", 200)
    monkeypatch.setattr(word_cache, "SHORT_TEXT", 1000)
    return WordCache(Letters(), GPT2_WORDS)


def words(count, size=6, seed=0):
    chance = random.Random(seed)
    return " ".join("".join(chance.choices(string.ascii_letters, k=size)) for _ in range(count))


def decoded(ids):
    return "".join(map(chr, ids))


def test_tokens_do_not_depend_on_what_is_cached(cache):
    for seed in range(60):
        for text in (words(12, seed=seed), words(300, seed=seed), words(3, size=5000, seed=seed), ""):
            assert decoded(cache.encode(text.encode())) == text


def test_many_short_texts_and_long_words_are_bounded(cache):
    for seed in range(100):
        cache.encode(words(12, seed=seed).encode())
        cache.encode(words(1, size=900, seed=seed).encode())
    assert 0 < len(cache._ids) <= 50
    for seed in range(20):
        cache.encode(words(150, size=9, seed=seed).encode())
    assert 50 < len(cache._ids) <= 200 and max(map(len, cache._ids)) <= word_cache.MAX_WORD_CHARS + 1


def test_threads_can_share_a_cache(cache):
    failed = []

    def work(seed):
        for number in range(200):
            text = words(150, size=9, seed=1000 * seed + number)
            if decoded(cache.encode(text.encode())) != text:
                failed.append(text)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failed


@pytest.mark.parametrize("kind", ["bpe", "wordpiece", "unigram"])
def test_a_smaller_cache_of_the_library_changes_no_tokens(kind):
    tokenizer = fit_subwords(kind, [words(300)], 600)
    text = words(300, seed=1) + " größer"
    before = tokenizer.encode(text).tolist()
    tokenizer.limit_cache(2)
    assert tokenizer.encode(text).tolist() == before and tokenizer.encode(text[::-1]).tolist()
