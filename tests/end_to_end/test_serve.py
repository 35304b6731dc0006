"""The server as clients see it: OpenAI's package, plain requests, and requests that must be rejected."""

import json
import math
import signal
import socket
import sys
import threading
import time
from inspect import signature
from pathlib import Path

import httpx
import openai
import pytest
from typed import ensue, started

from ensue.look.views import VIEWS
from ensue.serve import completions_api
from ensue.serve.schemas import ViewRequest
from ensue.serve.server import listen, load_models
from ensue.serve.views_api import SERVED_VIEWS

GIVE_UP = 60.0


@pytest.fixture(scope="module")
def lines(tmp_path_factory):
    """A translation model and a classifier, tiny."""
    folder = tmp_path_factory.mktemp("served")
    text = "the students opened their books"
    (folder / "pairs.tsv").write_text("".join(f"{text} {n}\t{text} {n}\n" for n in range(40)), encoding="utf-8")
    (folder / "labels.tsv").write_text("".join(f"{text} {n}\t{n % 2}\n" for n in range(40)), encoding="utf-8")
    few = ("--set", "train.steps=2", "--set", "hidden=16")
    for words in (
        ("seq2seq", folder / "pairs.tsv", *few, "--tokenizer", "word", "--out", folder / "seq2seq"),
        ("classify", folder / "labels.tsv", *few, "--model", "lstm", "--out", folder / "labels"),
    ):
        answer = ensue("fit", *words)
        assert answer.code == 0, answer.err
    return folder


@pytest.fixture(scope="module")
def address(runs, lines):
    """A server with a run of each kind, in a thread of this process."""
    served = load_models([runs / "lstm", runs / "gpt", runs / "bilm", lines / "seq2seq", lines / "labels"])
    with listen(served, host="127.0.0.1", port=0) as listening, listening.in_background() as where:
        yield where


@pytest.fixture
def client(address):
    with httpx.Client(base_url=address, timeout=GIVE_UP) as made:
        yield made


@pytest.fixture
def theirs(address):
    return openai.OpenAI(base_url=f"{address}/v1", api_key="none", max_retries=0)


def test_the_openai_package_lists_models_completes_and_embeds(theirs):
    assert [model.id for model in theirs.models.list()] == ["lstm", "gpt", "bilm", "seq2seq", "labels"]
    assert theirs.models.retrieve("gpt").id == "gpt"
    how = {"model": "gpt", "prompt": "the students", "max_tokens": 6, "temperature": 0}
    one = theirs.completions.create(**how, logprobs=2)
    again = theirs.completions.create(**how, logprobs=2)
    assert one.choices[0].text == again.choices[0].text and one.choices[0].finish_reason == "length"
    told = one.choices[0].logprobs
    assert len(told.tokens) == 6 == one.usage.completion_tokens and len(told.top_logprobs[0]) == 2
    assert told.token_logprobs[0] == pytest.approx(max(told.top_logprobs[0].values()))
    vectors = theirs.embeddings.create(model="lstm", input=["one", "two"])
    numbers = theirs.embeddings.create(model="lstm", input=["one", "two"], encoding_format="float")
    assert len(vectors.data) == 2
    assert vectors.data[1].embedding == pytest.approx(numbers.data[1].embedding)


def test_streamed_pieces_add_up_to_the_whole_completion(theirs):
    how = {"model": "gpt", "prompt": "the", "max_tokens": 8, "temperature": 0.9, "seed": 5, "n": 2}
    whole = theirs.completions.create(**how)
    texts, ends = ["", ""], [None, None]
    for piece in theirs.completions.create(**how, stream=True, logprobs=1):
        for choice in piece.choices:
            texts[choice.index] += choice.text
            ends[choice.index] = choice.finish_reason or ends[choice.index]
            assert len(choice.logprobs.tokens) == 1
    assert texts == [choice.text for choice in whole.choices] and texts[0] != texts[1]
    assert ends == [choice.finish_reason for choice in whole.choices]


def test_a_greedy_completion_equals_ensue_generate(client, runs):
    said = ensue("generate", runs / "lstm", "--prompt", "the ", "--tokens", 9, "--temperature", 0, "--json").json
    form = {"model": "lstm", "prompt": "the ", "max_tokens": 9, "temperature": 0}
    assert client.post("/v1/completions", json=form).json()["choices"][0]["text"] == said["samples"][0]["text"]


def test_echo_and_stop_words(client):
    form = {"model": "gpt", "prompt": "the students", "max_tokens": 30, "temperature": 0}
    plain = client.post("/v1/completions", json=form).json()["choices"][0]["text"]
    echoed = client.post("/v1/completions", json={**form, "echo": True, "logprobs": 0}).json()["choices"][0]
    assert echoed["text"] == "the students" + plain
    assert len(echoed["logprobs"]["tokens"]) == len(echoed["logprobs"]["text_offset"]) > 30
    stop = plain[4:6]
    cut = client.post("/v1/completions", json={**form, "stop": stop}).json()["choices"][0]
    assert cut["text"] == plain[: plain.index(stop)] and cut["finish_reason"] == "stop"


def test_tokens_and_several_prompts(client):
    many = {"model": "gpt", "prompt": ["the", "rain"], "max_tokens": 3, "temperature": 0, "n": 2}
    found = client.post("/v1/completions", json=many).json()["choices"]
    assert [choice["index"] for choice in found] == [0, 1, 2, 3] and found[0]["text"] == found[1]["text"]
    assert client.post("/v1/completions", json={**many, "prompt": [1, 2, 3]}).status_code == 200


def test_optional_fields_of_openais_api_are_accepted(client):
    form = {"model": "gpt", "prompt": "the students", "max_tokens": 0, "echo": True, "logprobs": 1}
    echoed = client.post("/v1/completions", json=form).json()
    (choice,) = echoed["choices"]
    assert choice["text"] == "the students" and choice["finish_reason"] == "length"
    assert len(choice["logprobs"]["tokens"]) == echoed["usage"]["prompt_tokens"]
    assert "".join(choice["logprobs"]["tokens"]) == "the students"
    nothing = dict.fromkeys(("n", "temperature", "top_p", "top_k", "stream", "echo", "stop", "seed", "logprobs"))
    assert client.post(
        "/v1/completions", json={"model": "gpt", "prompt": "the", "max_tokens": None, **nothing}
    ).is_success
    assert client.post("/v1/completions", json={"model": "gpt", "prompt": None, "seed": -5, "max_tokens": 2}).is_success
    both = client.post("/v1/completions", json={"model": "gpt", "prompt": [[1, 2], [3]], "max_tokens": 2}).json()
    assert len(both["choices"]) == 2 and both["usage"]["prompt_tokens"] == 3


def test_logprobs_name_tokens_by_their_text_and_include_the_sampled_one(client):
    form = {"model": "gpt", "prompt": "the", "max_tokens": 12, "seed": 1, "logprobs": 1}
    (choice,) = client.post("/v1/completions", json=form).json()["choices"]
    told = choice["logprobs"]
    assert "".join(told["tokens"]).replace("<|end|>", "").replace("<unk>", "\ufffd") == choice["text"]
    assert all(token in top for token, top in zip(told["tokens"], told["top_logprobs"]))


def test_types_of_fields_are_strict(client):
    form = {"model": "gpt", "prompt": "the", "max_tokens": 1}
    for wrong in ({"n": True}, {"n": "1"}, {"stream": 1}, {"stream": "true"}, {"temperature": "0"}, {"n": 1.5}):
        assert client.post("/v1/completions", json={**form, **wrong}).status_code == 422, wrong
    for right in ({"n": 1.0}, {"temperature": 1}, {"stream": False}, {"seed": None}):
        assert client.post("/v1/completions", json={**form, **right}).is_success, right


def test_echoed_prompt_tokens_have_top_logprobs(client):
    form = {"model": "gpt", "prompt": "the rain", "max_tokens": 1, "echo": True, "logprobs": 3, "temperature": 0}
    told = client.post("/v1/completions", json=form).json()["choices"][0]["logprobs"]
    for token, cost, top in zip(told["tokens"], told["token_logprobs"], told["top_logprobs"], strict=True):
        assert top[token] == pytest.approx(cost, abs=1e-6) and len(top) in (3, 4)
        assert max(top.values()) >= cost - 1e-6
    said = client.post("/api/next", json={"model": "gpt", "text": "", "top": 3}).json()["next"]
    assert [math.exp(v) for v in sorted(told["top_logprobs"][0].values(), reverse=True)[:3]] == pytest.approx(
        [one["probability"] for one in said], abs=1e-6
    )


def test_a_stream_can_echo_its_prompt_and_report_usage(theirs):
    how = {"model": "gpt", "prompt": "the rain", "max_tokens": 3, "temperature": 0, "echo": True, "logprobs": 1}
    whole = theirs.completions.create(**how)
    *pieces, last = theirs.completions.create(**how, stream=True, stream_options={"include_usage": True})
    assert "".join(piece.choices[0].text for piece in pieces) == whole.choices[0].text
    told = [cost for piece in pieces for cost in piece.choices[0].logprobs.token_logprobs]
    assert told == pytest.approx(whole.choices[0].logprobs.token_logprobs)
    assert last.choices == [] and last.usage.total_tokens == whole.usage.total_tokens
    (echo,) = theirs.completions.create(**{**how, "max_tokens": 0}, stream=True)
    assert echo.choices[0].text == "the rain"


def test_concurrent_clients_get_the_same_text_as_alone(address, client):
    def ask(number):
        form = {"model": "gpt", "prompt": "the rain "[: 3 + number], "max_tokens": 12, "seed": number}
        return httpx.post(f"{address}/v1/completions", json=form, timeout=GIVE_UP).json()["choices"][0]["text"]

    alone = [ask(number) for number in range(6)]
    got: dict[int, str] = {}
    threads = [threading.Thread(target=lambda n=n: got.__setitem__(n, ask(n))) for n in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(GIVE_UP)
    assert [got[number] for number in range(6)] == alone


def test_extreme_sampling_options_do_not_affect_other_clients(address, client):
    got = {}

    def ask(name, form):
        got[name] = httpx.post(
            f"{address}/v1/completions", json={"model": "gpt", "prompt": "the", **form}, timeout=GIVE_UP
        )

    plain = {"max_tokens": 300, "temperature": 0}
    threads = [threading.Thread(target=ask, args=("plain", plain))]
    threads += [threading.Thread(target=ask, args=("odd", {"temperature": 5e-324, "max_tokens": 3}))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(GIVE_UP)
    assert got["plain"].status_code == got["odd"].status_code == 200
    same = {"model": "gpt", "prompt": "the", "temperature": 0, "max_tokens": 3}
    assert (
        got["odd"].json()["choices"][0]["text"]
        == client.post("/v1/completions", json=same).json()["choices"][0]["text"]
    )


def test_text_offsets_do_not_depend_on_stop_words(client):
    form = {"model": "gpt", "prompt": "the", "max_tokens": 12, "temperature": 0, "logprobs": 0}
    free, held = (client.post("/v1/completions", json={**form, **more}).json() for more in ({}, {"stop": "zzzz zzzz"}))
    assert free["choices"][0]["logprobs"]["text_offset"] == held["choices"][0]["logprobs"]["text_offset"]


def running(client, model="gpt"):
    told = client.get("/metrics").text
    return int(
        next(line for line in told.splitlines() if line.startswith(f'ensue_rows_running{{model="{model}"')).split()[-1]
    )


@pytest.mark.parametrize("stream", [True, False])
def test_a_disconnected_client_frees_its_row(stream, address, client):
    form = {"model": "gpt", "prompt": "the", "max_tokens": 4096, "temperature": 0, "stream": stream}
    with httpx.Client(base_url=address, timeout=GIVE_UP) as leaving:
        if stream:
            with leaving.stream("POST", "/v1/completions", json=form) as response:
                next(response.iter_lines())
        else:
            with pytest.raises(httpx.ReadTimeout):
                leaving.post("/v1/completions", json=form, timeout=0.3)
    until = time.monotonic() + GIVE_UP
    while running(client) and time.monotonic() < until:
        time.sleep(0.02)
    assert running(client) == 0


def test_verbs_api(client):
    found = client.post("/api/next", json={"model": "lstm", "text": "the", "top": 3}).json()
    assert len(found["next"]) == 3 and all(one["text"] is None or len(one["text"]) <= 8 for one in found["next"])
    form = {"model": "seq2seq", "lines": ["the students", ""], "beam": 2, "nbest": 2}
    lines = client.post("/api/translate", json=form).json()["translations"]
    assert len(lines) == 2 and lines[1]["text"] == "" and len(lines[0]["nbest"]) == 2
    traced = client.post("/api/translate", json={"model": "seq2seq", "lines": ["the books"], "trace": True}).json()
    assert traced["trace"]["nodes"]
    said = client.post("/api/predict", json={"model": "labels", "texts": ["the students", "books"]}).json()
    assert [one["label"] in ("0", "1") for one in said["predictions"]] == [True, True]


def test_responses_do_not_reveal_folders_of_the_server(client, runs):
    told = client.post("/api/look/next", json={"models": ["lstm"], "text": "the"}).text
    told += client.post("/api/look/curves", json={"models": ["lstm"]}).text
    told += client.post("/api/predict", json={"model": "gpt", "texts": ["x"]}).text
    assert str(runs) not in told and '"run":"lstm"' in told


def test_views_as_charts(client):
    for view, form in {
        "attention": {"models": ["gpt"], "text": "the rain"},
        "next": {"models": ["lstm", "gpt"], "text": "the"},
        "surprise": {"models": ["lstm"], "text": "the rain fell"},
        "gates": {"models": ["lstm"], "text": "the rain"},
        "positions": {},
        "curves": {"models": ["lstm"]},
    }.items():
        answer = client.post(f"/api/look/{view}", json=form)
        assert answer.status_code == 200, answer.text
        assert "vega-lite" in answer.json()["chart"]["$schema"]


@pytest.fixture(scope="module")
def opened():
    """Every path that this process opens: an audit hook sees os.open as well as open. It cannot be taken back."""
    paths: list[str] = []
    sys.addaudithook(lambda event, given: paths.append(str(given[0])) if event == "open" else None)
    return paths


@pytest.fixture(scope="module")
def bait(tmp_path_factory):
    """A file that a client could name."""
    path = tmp_path_factory.mktemp("bait") / "bait.txt"
    path.write_text("the bank of the river\n" * 5, encoding="utf-8")
    return path


MODELS = ("lstm", "gpt", "bilm", "seq2seq", "labels")


@pytest.mark.parametrize("view", SERVED_VIEWS)
def test_no_view_opens_a_file_that_a_client_names(client, opened, bait, view):
    bait.read_bytes()
    assert opened[-1] == str(bait)  # the hook sees this process
    opened.clear()
    fields = ("text", "target", "words", "pairs", "word")
    for models in ([], ["lstm"], ["lstm", "gpt"], ["lstm", "gpt", "lstm"], [str(bait)], ["lstm", str(bait)]):
        for field in (*fields, "race"):
            answer = client.post(f"/api/look/{view}", json={"models": models, field: str(bait)})
            assert answer.status_code in (200, 400, 404), answer.text
    own = [field for field in fields if field in signature(VIEWS.load(view)).parameters]
    for models in (*([model] for model in MODELS), ["lstm", "gpt"], ["seq2seq", "labels"]):  # nothing else is missing
        answer = client.post(f"/api/look/{view}", json={"models": models, **dict.fromkeys(own, str(bait))})
        assert answer.status_code in (200, 400, 404), answer.text
    assert str(bait) not in opened


def test_no_route_opens_a_file_that_a_client_names(client, opened, bait):
    opened.clear()
    described = client.get("/openapi.json").json()
    asked = set()
    for path, operations in described["paths"].items():
        for method, operation in operations.items():
            for model in (*MODELS, str(bait)):
                address = path.format(name=str(bait), view=str(bait), page="tree")
                body = _filled(described, operation, str(bait)) | {
                    "model": model,
                    "files": [str(bait)],
                    "out": str(bait),
                }
                answer = client.request(method, address, json=body, params={"model": model, "text": str(bait)})
                assert answer.status_code < 500, (path, answer.text)
                asked.add(path)
    assert {"/v1/completions", "/v1/embeddings", "/api/next", "/api/translate", "/api/analogy", "/api/fill"} < asked
    assert str(bait) not in opened


def _filled(described, operation, value):
    """The body of an operation, with a value in every field that takes text."""
    schema = operation.get("requestBody", {}).get("content", {}).get("application/json", {}).get("schema", {})
    name = schema.get("$ref", "").rpartition("/")[2]
    fields = described["components"]["schemas"].get(name, {}).get("properties", {})
    return {field: found for field, how in fields.items() if (found := _text_value(how, value)) is not None}


def _text_value(how, value):
    kinds = [how, *how.get("anyOf", ())]
    if any(kind.get("type") == "string" and "enum" not in kind and "const" not in kind for kind in kinds):
        return value
    texts = any(kind.get("type") == "array" and kind.get("items", {}).get("type") == "string" for kind in kinds)
    return [value] if texts else None


def test_fields_of_a_view_request_name_no_file():
    """Files are given to views by name, as options that no request has."""
    for view in SERVED_VIEWS:
        _, *options = signature(VIEWS.load(view)).parameters.values()
        assert all(option.kind is option.KEYWORD_ONLY for option in options), view
        for option in options:
            plain = str(option.annotation) in ("str", "int", "float", "bool")
            assert plain or option.name not in ViewRequest.model_fields, (view, option)


@pytest.mark.parametrize("view", SERVED_VIEWS)
def test_errors_of_views_show_no_folder_of_the_server(client, runs, lines, view):
    for models in ([first, second] for first in MODELS for second in MODELS):
        for more in ({}, {"text": "the rain", "word": "rain", "words": "rain,the", "target": "the"}):
            options = {name: value for name, value in more.items() if name in signature(VIEWS.load(view)).parameters}
            told = client.post(f"/api/look/{view}", json={"models": models, **options}).text
            assert str(runs) not in told and str(lines) not in told and str(runs.parent) not in told, told


def test_senses_are_of_one_model(client):
    for models in ([], ["lstm", "gpt"]):
        answer = client.post("/api/look/senses", json={"models": models, "word": "bank"})
        assert answer.status_code == 400 and "senses shows one run" in answer.text


WRONG = [
    ("/v1/completions", {"model": "nobody", "prompt": "x"}, 404, "there is no model of that name"),
    ("/v1/completions", {"model": "bilm", "prompt": "x"}, 400, "cannot complete text"),
    ("/v1/completions", {"model": "seq2seq", "prompt": "x"}, 400, "cannot complete text"),
    ("/v1/completions", {"prompt": "x"}, 422, "model: Field required"),
    ("/v1/completions", {"model": "gpt", "max_tokens": -1}, 422, "max_tokens: "),
    ("/v1/completions", {"model": "gpt", "prompt": ["a", 3]}, 422, "prompt"),
    ("/api/neighbours", {"model": "gpt", "word": "x"}, 400, "are not words"),
    ("/api/forecast", {"model": "gpt", "values": [[1]]}, 400, "cannot forecast"),
    ("/v1/completions", {"model": "gpt", "stop": list("abcde")}, 422, "stop: List should have at most 4 items"),
    ("/v1/completions", {"model": "gpt", "prompt": [-1]}, 422, "prompt.0: Input should be greater than or equal to 0"),
    ("/v1/completions", {"model": "gpt", "suffix": "x"}, 400, "suffix is not supported"),
    ("/v1/completions", {"model": "gpt", "best_of": 3}, 400, "best_of is not supported"),
    ("/v1/embeddings", {"model": "gpt", "input": "x", "dimensions": 3}, 400, "have 16 dimensions"),
    ("/api/look/race", {"race": "../.."}, 404, "there is no race"),
    ("/api/look/senses", {"models": ["lstm"], "word": "nobody"}, 400, "has no built-in contexts"),
    ("/api/look/attention", {"models": ["gpt"]}, 400, 'give it with text "…"'),
    ("/v1/completions", {"model": "gpt", "max_tokens": 10**9}, 422, "max_tokens"),
    ("/v1/completions", {"model": "gpt", "temperature": -1}, 422, "temperature"),
    ("/v1/completions", {"model": "gpt", "n": 99}, 422, "n: "),
    ("/v1/completions", {"model": "gpt", "prompt": ["h"] * 16, "n": 16}, 400, "at most 32 texts"),
    ("/v1/embeddings", {"model": "lstm", "input": ["a" * 90_000] * 2}, 400, "at most 100,000 characters"),
    ("/api/translate", {"model": "seq2seq", "lines": ["a" * 4_000] * 2, "beam": 16}, 400, "characters × beam"),
    ("/v1/completions", {"model": "gpt", "stop": ["a"] * 5}, 422, "stop"),
    ("/v1/completions", {"model": "gpt", "prompt": [10**6]}, 400, "there is no token 1000000"),
    ("/v1/completions", {"model": "gpt", "prompt": "a" * 50_000}, 400, "a prompt may have at most"),
    ("/v1/embeddings", {"model": "gpt", "input": []}, 422, "input"),
    ("/v1/embeddings", {"model": "seq2seq", "input": "x"}, 400, "cannot make a vector"),
    ("/api/next", {"model": "bilm", "text": "x"}, 400, "sees both sides"),
    ("/api/translate", {"model": "gpt", "lines": ["x"]}, 400, "cannot translate"),
    ("/api/translate", {"model": "seq2seq", "lines": ["x", "y"], "trace": True}, 400, "trace takes one line"),
    ("/api/predict", {"model": "gpt", "texts": ["x"]}, 400, "cannot label"),
    ("/api/fill", {"model": "gpt", "text": "x"}, 400, "cannot fill"),
    ("/api/look/nothing", {}, 404, "there is no view"),
    ("/api/look/bptt", {}, 404, "there is no view"),
    ("/api/look/attention", {"models": ["lstm"], "text": "x"}, 400, "has no attention"),
    ("/api/look/attention", {"models": ["../../etc"], "text": "x"}, 404, "there is no model"),
    ("/nowhere", {}, 404, "Not Found"),
]


@pytest.mark.parametrize(("path", "form", "status", "says"), WRONG)
def test_errors_have_one_format(path, form, status, says, client):
    answer = client.post(path, json=form)
    assert answer.status_code == status and says in answer.json()["error"]["message"]


def test_bodies_that_are_too_large_or_not_json_are_rejected(client):
    big = client.post("/v1/completions", content=b" " * (1 << 20) + b"{}", headers={"content-type": "application/json"})
    assert big.status_code == 413
    pieces = (b" " * 65536 for _ in range(40))
    chunked = client.post("/v1/completions", content=pieces, headers={"content-type": "application/json"})
    assert chunked.status_code == 413
    for body, what in {b"{": "is not JSON", b"[]": "is not a JSON object", b"": "is empty"}.items():
        wrong = client.post("/v1/completions", content=body, headers={"content-type": "application/json"})
        assert wrong.status_code == 422 and f"the body {what}" in wrong.json()["error"]["message"], wrong.text
        assert wrong.json()["error"]["type"] == "invalid_request_error"


def test_other_hosts_are_rejected_and_security_headers_are_set(client):
    refused = client.get("/health", headers={"host": "evil.example"})
    assert refused.status_code == 421
    assert client.get("/health", headers={"origin": "http://evil.example"}).status_code == 403
    assert client.get("/health", headers={"origin": "null"}).status_code == 403
    assert client.get("/health", headers={"origin": str(client.base_url).rstrip("/")}).status_code == 200
    other = client.get("/v1/completions")
    assert other.status_code == 405 and other.headers["allow"] == "POST"
    answer = client.get("/health")
    assert answer.json() == {"status": "ok", "models": 5}
    assert "default-src 'self'" in answer.headers["content-security-policy"]
    assert answer.headers["x-content-type-options"] == "nosniff" and "access-control-allow-origin" not in answer.headers


def test_only_files_of_the_page_are_served(client):
    page = client.get("/")
    assert page.headers["content-type"].startswith("text/html") and "/page/page.js" in page.text
    for name in ("page.js", "ui.js", "tab_words.js", "page.css"):
        assert client.get(f"/page/{name}").status_code == 200
        assert "http://" not in client.get(f"/page/{name}").text.replace("http://www.w3.org", "")
    charts = client.get("/page/vega.js")
    assert "vegaEmbed" in charts.text and charts.headers["content-encoding"] == "gzip"
    plain = client.get("/page/vega.js", headers={"accept-encoding": "identity"})
    assert plain.text == charts.text and "content-encoding" not in plain.headers
    known = client.get("/page/vega.js", headers={"if-none-match": charts.headers["etag"]})
    assert known.status_code == 304 and not known.content
    for name in ("..%2fapp.py", "app.py", "%2e%2e%2f%2e%2e%2fpyproject.toml", "index.htm"):
        assert client.get(f"/page/{name}").status_code == 404


@pytest.mark.parametrize("page", ["tree", "steps", "bptt"])
def test_interactive_pages_run_their_own_scripts_only_and_without_the_rights_of_this_site(client, page):
    markup = "<script>alert(1)</script></textarea><img src=x onerror=alert(1)>"
    plain, hostile = (
        client.get(f"/api/page/{page}", params={"model": "seq2seq", "text": text}) for text in ("the books", markup)
    )
    for answer in (plain, hostile):
        policy = dict(part.strip().partition(" ")[::2] for part in answer.headers["content-security-policy"].split(";"))
        assert answer.status_code == 200 and policy["default-src"] == "'none'"
        assert "allow-same-origin" not in policy["sandbox"] and "unsafe" not in policy["script-src"]
        assert policy["script-src"].count("sha256-") == plain.text.count("<script>") > 0
    assert "alert(1)</script>" not in hostile.text and "<img src=x" not in hostile.text


def raw(address, request, wait=GIVE_UP):
    """What is answered to bytes."""
    host, port = address.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port)), timeout=wait) as wire:
        wire.sendall(request)
        found = b""
        while piece := wire.recv(65536):
            found += piece
        return found.decode()


@pytest.mark.parametrize("origin", ["http://[", "null", "http://evil.example", "http://127.0.0.1/x", ""])
def test_requests_from_other_origins_are_rejected(origin, address, client):
    refused = client.get("/health", headers={"origin": origin})
    assert refused.status_code == 403 and "other sites" in refused.json()["error"]["message"]
    assert client.get("/health", headers={"origin": address}).status_code == 200


def test_head_requests(client):
    found = client.head("/health")
    assert found.status_code == 200 and not found.content and client.head("/").status_code == 200


def test_idle_connections_and_slow_bodies_time_out(address, monkeypatch):
    monkeypatch.setattr("ensue.serve.connection_limits.IDLE_TIMEOUT", 0.3)
    monkeypatch.setattr("ensue.serve.security.BODY_TIMEOUT", 0.3)
    assert raw(address, b"GET /health HTTP/1.1\r\nHost: 127") == ""  # half a head
    late = raw(address, b"POST /api/next HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 9\r\n\r\n{")
    assert late.startswith("HTTP/1.1 408")


def test_a_stream_that_nobody_reads_stops_drawing_tokens_and_is_dropped(address, client, monkeypatch):
    def gpt(metric):
        told = client.get("/metrics").text.splitlines()
        return int(next(line for line in told if line.startswith(f'ensue_{metric}{{model="gpt"')).split()[-1])

    before, host, port = gpt("tokens_total"), *address.removeprefix("http://").split(":")
    form = {"model": "gpt", "prompt": "the", "temperature": 0}
    body = json.dumps({**form, "max_tokens": 4096, "n": 4, "logprobs": 20, "stream": True})
    head = f"POST /v1/completions HTTP/1.1\r\nHost: {host}\r\nContent-Type: application/json\r\n"
    with socket.socket() as unread:
        unread.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 14)
        unread.connect((host, int(port)))
        unread.sendall(f"{head}Content-Length: {len(body)}\r\n\r\n{body}".encode())
        until = time.monotonic() + GIVE_UP
        while time.monotonic() < until and (
            gpt("tokens_total") == before or gpt("rows_running") or gpt("rows_waiting") < 4
        ):
            time.sleep(0.02)
        paused = gpt("tokens_total")
        assert gpt("rows_waiting") == 4 and 0 < paused - before < 4 * 4096 / 2
        assert client.post("/v1/completions", json={**form, "max_tokens": 20}).is_success
        assert gpt("tokens_total") == paused + 20  # others are served; nothing is drawn for the one who does not read
        monkeypatch.setattr("ensue.serve.connection_limits.STALL_TIMEOUT", 0.1)
        while gpt("rows_waiting") and time.monotonic() < until:
            time.sleep(0.05)
        assert gpt("rows_waiting") == 0


def test_long_prompts_are_tokenised_on_a_thread(client, monkeypatch):
    threads, plain = [], completions_api._token_ids

    def noted(*given):
        threads.append(threading.current_thread().name)
        return plain(*given)

    monkeypatch.setattr(completions_api, "_token_ids", noted)
    for prompt in ("the", "the " * 25_000):
        client.post("/v1/completions", json={"model": "gpt", "prompt": prompt, "max_tokens": 1})
    assert len(threads) == 2 and threads[0] == "server" and threads[1] != "server"


def test_a_request_with_two_lengths_is_refused(address):
    lengths = b"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"
    assert raw(address, b"POST /api/next HTTP/1.1\r\nHost: 127.0.0.1\r\n" + lengths).startswith("HTTP/1.1 400")


def test_other_sites_can_only_link_to_the_page(client):
    link = {"sec-fetch-site": "cross-site", "sec-fetch-mode": "navigate", "sec-fetch-dest": "document"}
    assert client.get("/", headers=link).status_code == 200
    for path in ("/health", "/page/vega.js", "/api/page/bptt", "/openapi.json"):
        assert client.get(path, headers=link).status_code == 403


def test_connections_beyond_the_limit_get_503(address, monkeypatch):
    monkeypatch.setattr("ensue.serve.connection_limits.MAX_CONNECTIONS", 0)
    full = raw(address, b"")
    assert full.startswith("HTTP/1.1 503") and "Retry-After: 2" in full and '"server_error"' in full


def test_the_socket_sends_small_responses_without_delay(address):
    with listen(load_models([]), host="127.0.0.1", port=0) as listening:
        assert listening.listener.proto == socket.IPPROTO_TCP  # which is how asyncio knows


def test_metrics_and_openapi_schema(client):
    client.get("/nowhere")
    told = client.get("/metrics").text
    assert 'ensue_requests_total{path="other",status="404"}' in told and "ensue_requests_open 1" in told
    described = client.get("/openapi.json").json()
    assert {"/v1/completions", "/api/look/{view}", "/metrics"} <= set(described["paths"])


def test_a_key_may_have_non_ascii_letters(runs):
    with (
        listen(load_models([runs / "lstm"]), host="127.0.0.1", port=0, key="sëcret") as listening,
        listening.in_background() as at,
    ):
        for key, status in (("sëcret", 200), ("secret", 401)):
            known = httpx.get(f"{at}/health", headers={"authorization": f"Bearer {key}".encode()})
            assert known.status_code == status


def test_a_run_in_the_current_folder_is_served_by_its_name(runs, monkeypatch):
    monkeypatch.chdir(runs / "lstm")
    with listen(load_models([Path()]), host="127.0.0.1", port=0) as listening, listening.in_background() as at:
        seen = httpx.post(f"{at}/api/look/next", json={"models": ["lstm"], "text": "the"}, timeout=GIVE_UP).json()
        assert "vega-lite" in seen["chart"]["$schema"] and ".5f" in json.dumps(seen["chart"])


def test_gradients_of_an_int8_model_are_rejected(runs):
    with (
        listen(load_models([runs / "gpt"], int8=True), host="127.0.0.1", port=0) as listening,
        listening.in_background() as at,
    ):
        said = httpx.post(f"{at}/api/look/gradients", json={"models": ["gpt"], "text": "the rain"}, timeout=GIVE_UP)
        assert said.status_code == 400 and "int8" in said.json()["error"]["message"]


def test_every_route_requires_the_key(runs):
    with (
        listen(load_models([runs / "lstm"]), host="127.0.0.1", port=0, key="s3cret") as listening,
        listening.in_background() as at,
    ):
        known, models = {"authorization": "Bearer s3cret"}, f"{at}/v1/models"
        described = httpx.get(f"{at}/openapi.json", headers=known).json()
        assert described["components"]["securitySchemes"]["bearer"]["scheme"] == "bearer"
        for path in (*described["paths"], "/", "/page/page.js", "/openapi.json", "/nowhere"):
            assert httpx.get(f"{at}{path}").status_code == 401, path
        assert httpx.get(models, headers=known).status_code == 200
        for wrong in ({"authorization": "Bearer wrong"}, {"authorization": "s3cret"}, {"cookie": "ensue-key=s3cret"}):
            assert httpx.get(models, headers=wrong).status_code == 401, wrong
        asked = httpx.get(at, headers={"accept": "text/html"})
        assert asked.status_code == 401 and 'action="/key"' in asked.text
        assert httpx.post(f"{at}/key", data={"key": "no"}).status_code == 401
        opened = httpx.post(f"{at}/key", data={"key": "s3cret"})
        assert opened.status_code == 303 and "HttpOnly; Path=/; SameSite=strict" in opened.headers["set-cookie"]
        cookie = opened.headers["set-cookie"].split(";")[0]
        assert httpx.get(models, headers={"cookie": f"a=b, c@d=e; {cookie}"}).status_code == 200


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("nowhere",), "there is no such run"),
        (("RUN", "--host", "0.0.0.0"), "other machines can reach 0.0.0.0; set a key"),
        (("RUN", "RUN"), "a run is given twice"),
        (("RUN", "--key", ""), "the key is blank"),
        (("RUN", "--key", "  "), "the key is blank"),
        (("RUN", "--host", "0.0.0.0", "--key", " "), "the key is blank"),
    ],
)
def test_serve_reports_wrong_arguments_in_one_line(words, said, runs):
    answer = ensue("serve", *(runs / "lstm" if word == "RUN" else word for word in words))
    assert answer.code == 2 and said in answer.err and answer.err.count("\n") == 1


def test_an_empty_key_in_the_environment_is_refused(runs, monkeypatch):
    """It is a mistake, e.g. of the command that should print the key: without one everybody would get in."""
    monkeypatch.setenv("ENSUE_KEY", "")
    answer = ensue("serve", runs / "lstm")
    assert answer.code == 2 and "the key is blank" in answer.err


def awaited(process):
    """The address of a server that is about to answer."""
    address = process.stdout.readline().split(" on ")[1].split(";")[0]
    until = time.monotonic() + GIVE_UP
    while time.monotonic() < until:
        try:
            assert httpx.get(f"{address}/health").json()["status"] == "ok"
            break
        except httpx.TransportError:
            time.sleep(0.05)
    return address


def test_a_second_sigint_ends_open_streams_with_an_error(runs):
    process = started("serve", runs / "lstm", "--port", "0")
    try:
        address = awaited(process)
        form = {"model": "lstm", "prompt": "the", "max_tokens": 4096, "n": 16, "temperature": 0, "stream": True}
        small = httpx.HTTPTransport(
            socket_options=[(socket.SOL_SOCKET, socket.SO_RCVBUF, 16384)]
        )  # the server has to wait
        with (
            httpx.Client(transport=small, timeout=GIVE_UP) as client,
            client.stream("POST", f"{address}/v1/completions", json=form) as response,
        ):
            events = response.iter_lines()
            next(events)
            for _ in range(2):
                process.send_signal(signal.SIGINT)
                time.sleep(0.3)
            time.sleep(0.5)  # a client that is slow to read
            rest = [line for line in events if line.startswith("data: ")]
        assert "shutting down" in rest[-2] and rest[-1] == "data: [DONE]"
        assert process.wait(GIVE_UP) == 130 and "Traceback" not in process.stderr.read()
    finally:
        process.kill()
        process.communicate()


def test_sigterm_finishes_running_requests(runs):
    process = started("serve", runs / "lstm", "--port", "0")
    try:
        address = awaited(process)
        form = {"model": "lstm", "prompt": "the", "max_tokens": 200, "temperature": 0, "stream": True}
        with httpx.stream("POST", f"{address}/v1/completions", json=form, timeout=GIVE_UP) as response:
            events = response.iter_lines()
            next(events)
            process.terminate()
            rest = [line for line in events if line.startswith("data: ")]
        assert rest[-1] == "data: [DONE]" and len(rest) == 200  # what had begun was finished
        assert json.loads(rest[-2][6:])["choices"][0]["finish_reason"] == "length"
        assert process.wait(GIVE_UP) in (0, -15)
    finally:
        process.kill()
        process.communicate()
