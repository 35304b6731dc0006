"""The key of a server: what may be one, how it is compared, and how guesses are slowed."""

from __future__ import annotations

import hmac
import math
import time
from collections import OrderedDict
from collections.abc import Callable

from ensue.core.errors import InputError

FREE_GUESSES, GUESS_INTERVAL = 10, 2.0
"""Wrong keys that a client may send at once, and the seconds until it may send one more."""
FREE_OF_PEER, INTERVAL_OF_PEER = 200, 0.2
"""The same for the address that a connection comes from, where a proxy on this machine names its clients itself."""
MAX_CLIENTS = 4096
"""Clients whose wrong keys are counted; the one whose last wrong key is oldest is forgotten first."""


def check_key(key: str) -> None:
    """Refuse a key that protects nothing or that no client can send."""
    if not key.strip():
        raise InputError("the key is blank", hint="give --key some characters, or leave it out")
    if key != key.strip() or not key.isprintable():
        raise InputError("a key cannot begin or end with white space or have control characters", hint="change --key")


def same_key(given: bytes, key: str) -> bool:
    """Compare in a time that does not depend on where they differ."""
    return hmac.compare_digest(given, key.encode())


class GuessLimit:
    """Counts wrong keys by client: ``free`` at once, then one every ``interval`` seconds.

    While a client has to wait, its keys are not compared at all, so that a right guess is not recognised either.
    """

    def __init__(
        self,
        free: int = FREE_GUESSES,
        interval: float = GUESS_INTERVAL,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._free, self._interval, self._clock = free, interval, clock
        self._paid_until: OrderedDict[str, float] = OrderedDict()
        """For each client, when all of its guesses are available again."""

    def __len__(self) -> int:
        return len(self._paid_until)

    def wait(self, client: str) -> int:
        """Seconds until this client may send a key, rounded up; 0 if it may now."""
        owed = self._paid_until.get(client, 0.0) - self._clock()
        return max(0, math.ceil(owed - (self._free - 1) * self._interval))

    def wrong(self, client: str) -> None:
        """Count a wrong key."""
        now = self._clock()
        self._paid_until[client] = max(now, self._paid_until.get(client, now)) + self._interval
        self._paid_until.move_to_end(client)
        while len(self._paid_until) > MAX_CLIENTS:
            self._paid_until.popitem(last=False)
