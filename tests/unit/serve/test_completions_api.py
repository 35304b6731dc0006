"""Pieces of a stream."""

import asyncio
from types import SimpleNamespace

import pytest

from ensue.search.continuous_batching import DrawnToken
from ensue.serve.completions_api import choice_pieces
from ensue.serve.engine import EngineClosed
from ensue.serve.errors import ApiError


class Choice:
    """A choice that never ends."""

    finish_reason = None

    def __init__(self) -> None:
        self.row, self.tokens = object(), []

    def add(self, drawn):
        self.tokens.append(drawn.token)
        return "a"


class Engine:
    """Has decoded ten tokens of each row when it fails."""

    def __init__(self, error):
        self.error = error

    def submit(self, rows, deliver, ahead):
        for row in rows:
            for number in range(10):
                deliver(row, DrawnToken(number, 0.0, [], False, False))
        deliver(rows[0], self.error)

    def taken(self, row):
        """Nothing waits."""

    def cancel(self, rows):
        """Nothing runs."""


@pytest.mark.parametrize(("error", "status", "before"), [(EngineClosed(), 503, 1), (ApiError(500, "no"), 500, 10)])
def test_the_end_of_the_server_overtakes_what_a_client_has_not_read(error, status, before):
    async def receive():
        await asyncio.sleep(60)

    async def read():
        choice, found = Choice(), []
        model = SimpleNamespace(engine=lambda: Engine(error))
        with pytest.raises(ApiError) as raised:
            async for _, text, _ in choice_pieces(model, [choice], SimpleNamespace(receive=receive), 64):
                found.append(text)
        return found, raised.value.status

    found, seen = asyncio.run(read())
    assert seen == status and len(found) <= before
    assert before == 1 or len(found) == before  # other errors come after what was decoded
