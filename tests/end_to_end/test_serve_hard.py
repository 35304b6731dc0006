"""The server under random requests, many clients at once, and clients that disconnect."""

import asyncio
import os
import threading
import time
from collections import Counter
from pathlib import Path

import httpx
import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from kinds import train_kinds
from schemathesis.specs.openapi.checks import negative_data_rejection, positive_data_acceptance

from ensue.serve.server import listen, load_models

CASES = int(os.environ.get("ENSUE_API_CASES", "100"))
"""Of each operation, right ones and wrong ones: more than 2,000 in all."""
GIVE_UP = 120.0
OPEN_FILES = Path("/proc/self/fd")
pytestmark = pytest.mark.xdist_group("hard")


@pytest.fixture(scope="module")
def address(tmp_path_factory):
    registry = load_models(train_kinds(tmp_path_factory.mktemp("hard")))
    with listen(registry, host="127.0.0.1", port=0) as listening, listening.in_background() as where:
        yield where


def operations(address):
    schema = schemathesis.openapi.from_url(f"{address}/openapi.json")
    return [found.ok() for found in schema.get_all_operations()]


@pytest.mark.parametrize("mode", [schemathesis.GenerationMode.POSITIVE, schemathesis.GenerationMode.NEGATIVE])
def test_responses_match_the_openapi_schema(mode, address):
    asked = Counter()
    for operation in operations(address):
        if operation.method == "get" and mode is schemathesis.GenerationMode.NEGATIVE and not operation.query:
            continue  # there is nothing that could be wrong

        def ask(case):
            _with_a_model(case)
            answer = case.call(timeout=GIVE_UP)
            asked[case.operation.label] += 1
            assert answer.status_code < 500, (answer.status_code, case.as_curl_command())
            case.validate_response(
                answer, excluded_checks=[*NOT_MEANT, *([TOO_LONG] if answer.status_code == 413 else [])]
            )

        given(case=operation.as_strategy(generation_mode=mode))(QUIET(ask))()
    assert sum(asked.values()) > 10 * CASES, asked
    print(f"{sum(asked.values())} cases, {mode}")  # noqa: T201


NOT_MEANT = [positive_data_acceptance]
"""A form may be right and yet ask a forecaster for a translation: that is refused, with a status that is described."""
TOO_LONG = negative_data_rejection
"""What is too long is refused before it is read, with a status that schemathesis does not expect there."""
QUIET = settings(
    max_examples=CASES,
    deadline=None,
    derandomize=True,
    database=None,
    phases=[Phase.generate],
    suppress_health_check=list(HealthCheck),
)
NAMES = ("lstm", "gpt", "translator", "classify", "bert", "forecast", "vectors", "answer")


def _with_a_model(case):
    """Let most cases name a run that is there, or nothing would ever be asked of one."""
    body = case.body if isinstance(case.body, dict) else None
    if body is None:
        return
    chosen = NAMES[len(str(body)) % len(NAMES)]
    if isinstance(body.get("model"), str) and len(body["model"]) <= 200 and len(body["model"]) % 4:
        body["model"] = chosen
    models = body.get("models")
    if isinstance(models, list) and len(models) in range(1, 9) and all(isinstance(m, str) and m for m in models):
        body["models"] = [chosen]


def test_three_hundred_concurrent_requests_are_answered_or_get_429(address):
    form = {"model": "gpt", "prompt": "the", "max_tokens": 400, "temperature": 0}

    async def everybody():
        limits = httpx.Limits(max_connections=None)
        async with httpx.AsyncClient(base_url=address, timeout=GIVE_UP, limits=limits) as client:
            return await asyncio.gather(*(client.post("/v1/completions", json=form) for _ in range(300)))

    answers = asyncio.run(everybody())
    found = Counter(answer.status_code for answer in answers)
    assert set(found) == {200, 429} and found[200] >= 64 and found[429] > 0, found
    assert all(answer.headers["retry-after"] == "2" for answer in answers if answer.status_code == 429)
    texts = {answer.json()["choices"][0]["text"] for answer in answers if answer.status_code == 200}
    assert len(texts) == 1  # each got what it would have got alone


def test_disconnected_clients_leak_no_rows_threads_or_files(address):
    form = {"model": "gpt", "prompt": "the", "max_tokens": 4096, "temperature": 0, "stream": True}

    async def vanish(client, count):
        async with client.stream("POST", "/v1/completions", json=form) as response:
            seen = 0
            async for _ in response.aiter_raw():
                seen += 1
                if seen > count % 4 or response.status_code != 200:
                    return

    async def crowd(number):
        for begun in range(0, number, 20):
            async with httpx.AsyncClient(base_url=address, timeout=GIVE_UP) as client:
                await asyncio.gather(*(vanish(client, begun + one) for one in range(20)))

    asyncio.run(crowd(40))  # whatever is made once is made now
    before = _held(address)
    asyncio.run(crowd(1000))
    after = _held(address)
    assert after["rows"] == 0 and after["waiting"] == 0
    assert after["threads"] <= before["threads"] + 1 and after["files"] <= before["files"] + 2, (before, after)


def _held(address):
    """Rows of the server, and threads and open files of this process, when all is quiet."""
    end = time.monotonic() + GIVE_UP
    while True:
        told = dict(line.rsplit(" ", 1) for line in httpx.get(f"{address}/metrics").text.splitlines() if line[0] != "#")
        rows = sum(int(value) for name, value in told.items() if name.startswith("ensue_rows_running"))
        waiting = sum(int(value) for name, value in told.items() if name.startswith("ensue_rows_waiting"))
        if (not rows and not waiting and told["ensue_requests_open"] == "1") or time.monotonic() > end:
            break
        time.sleep(0.05)
    return {
        "rows": rows,
        "waiting": waiting,
        "threads": threading.active_count(),
        "files": len(list(OPEN_FILES.iterdir())) if OPEN_FILES.is_dir() else 0,
    }
