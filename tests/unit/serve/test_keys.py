"""Keys: blank ones are refused, and a client that guesses is slowed without using up memory."""

import pytest

from ensue.core.errors import InputError
from ensue.serve import keys
from ensue.serve.keys import FREE_GUESSES, GUESS_INTERVAL, GuessLimit, check_key, same_key


@pytest.mark.parametrize("key", ["", " ", "\t\n", " s3cret", "s3cret\n", "a\x00b"])
def test_keys_that_protect_nothing_or_cannot_be_sent_are_refused(key):
    with pytest.raises(InputError, match="key"):
        check_key(key)


@pytest.mark.parametrize("key", ["s3cret", "sëcret", "two words"])
def test_other_keys_are_accepted(key):
    check_key(key)
    assert same_key(key.encode(), key) and not same_key(b"other", key)


class Clock:
    now = 100.0

    def __call__(self):
        return self.now


def test_a_client_may_guess_a_few_times_and_then_once_in_a_while():
    clock = Clock()
    guesses = GuessLimit(clock=clock)
    for _ in range(FREE_GUESSES):
        assert guesses.wait("a") == 0
        guesses.wrong("a")
    assert guesses.wait("a") == GUESS_INTERVAL and guesses.wait("b") == 0
    allowed = 0
    for _ in range(1000):
        clock.now += GUESS_INTERVAL / 10
        if not guesses.wait("a"):
            allowed += 1
            guesses.wrong("a")
    assert allowed <= 101
    clock.now += FREE_GUESSES * GUESS_INTERVAL
    for _ in range(FREE_GUESSES):
        assert guesses.wait("a") == 0
        guesses.wrong("a")


def test_wrong_keys_of_many_clients_take_a_bounded_amount_of_memory(monkeypatch):
    monkeypatch.setattr(keys, "MAX_CLIENTS", 50)
    guesses = GuessLimit(clock=Clock())
    for client in range(500):
        for _ in range(FREE_GUESSES):
            guesses.wrong(str(client))
    assert len(guesses) == 50 and guesses.wait("499") > 0 and guesses.wait("0") == 0
