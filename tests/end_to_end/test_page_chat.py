"""The tab Chat in a real browser: streaming, versions, tokens, errors, storage, markup, phones."""

import json
import re

import httpx
import pytest
from browsing import IN_A_BROWSER, Opened, fits, saved, until

import ensue as library
from ensue.serve.model_registry import ModelRegistry
from ensue.serve.server import listen
from ensue.verbs.convert import convert

pytestmark = IN_A_BROWSER
API = "**/v1/chat/completions"
IDLE = "document.querySelector('.composer button').textContent === 'Send'"
SHOUT = "<img src=x onerror=window.hacked=1>"
SHORT, LONG = "tab=chat&tokens=24&temperature=1&p=1&seed=1", "tab=chat&tokens=4096&temperature=1&p=1"


@pytest.fixture(scope="module")
def address(chat_file, tmp_path_factory):
    """A server with a chat model, whose name would be markup if it were taken for that, and another model."""
    tiny = library.load(convert(chat_file, out=tmp_path_factory.mktemp("page_chat") / "tiny"))
    registry = ModelRegistry({"<b>tiny": tiny, "plain": library.load(chat_file.parent / "run")})
    with (
        pytest.MonkeyPatch.context() as patched,
        listen(registry, host="127.0.0.1", port=0) as listening,
        listening.in_background() as where,
    ):
        patched.setattr("ensue.serve.chat_api.stop_tokens", lambda run: frozenset())  # so that answers can be stopped
        asked = {"model": "<b>tiny", "messages": [{"role": "user", "content": "x"}], "max_tokens": 80}
        answered = httpx.post(f"{where}/v1/chat/completions", json=asked, timeout=300)  # kernels are compiled by now
        assert answered.status_code == 200, answered.text
        yield where


def send(page, text, wait=True):
    field = page.get_by_label("Message", exact=True)
    field.fill(text)
    field.press("Enter")
    if wait:
        until(page, f"{IDLE} && document.querySelector('.message:last-child .facts')?.textContent")
    return field


def texts(page):
    return page.locator(".message .text").all_text_contents()


def versions(page):
    return page.locator(".acts .number").all_text_contents()


def streamed(*tokens, used=9):
    """An answer of these tokens, each given as bytes."""
    pieces = []
    for number, data in enumerate(tokens):
        token = {"token": data.decode("latin-1"), "logprob": -0.5, "bytes": list(data)}
        content = [{**token, "top_logprobs": [token, {**token, "token": SHOUT, "logprob": -1.5}]}]
        choice = {"index": 0, "delta": {"content": ""}, "finish_reason": None, "logprobs": {"content": content}}
        pieces.append({"choices": [choice], "usage": {"completion_tokens": number + 1, "total_tokens": used}})
    return "".join(f"data: {json.dumps(piece)}\n\n" for piece in pieces) + "data: [DONE]\n\n"


def answer_with(page, *tokens, **more):
    body = streamed(*tokens, **more)
    page.route(API, lambda route: route.fulfill(status=200, content_type="text/event-stream", body=body))


def test_an_answer_is_streamed_with_its_tokens_and_survives_a_reload(opened):
    page = opened.open(SHORT)
    assert page.get_by_label("model").locator("option").all_text_contents() == ["<b>tiny (llama)"]  # plain cannot chat
    field = send(page, "the rain")
    asked = {"model": "<b>tiny", "messages": [{"role": "user", "content": "the rain"}], "max_tokens": 24, "seed": 1}
    said = page.request.post(f"{opened.address}/v1/chat/completions", data=asked)
    assert texts(page) == ["the rain", said.json()["choices"][0]["message"]["content"]]
    facts, used = page.locator(".facts").text_content(), page.locator(".used").text_content()
    assert re.fullmatch(r"24 tokens · first token after .* s · .* tokens/s · seed 1 · reached max tokens", facts)
    assert used == f"{said.json()['usage']['total_tokens']} of 64 tokens of context"
    page.locator(".piece").filter(has_text=re.compile(r"\S")).first.hover()
    page.locator("#token-tip .bars li").nth(4).wait_for()
    assert re.search(r"P = 0\.\d+", page.locator("#token-tip").text_content())
    page.keyboard.press("Escape")
    assert page.locator("#token-tip").is_hidden()
    page.locator(".piece").first.focus()
    page.keyboard.press("ArrowRight")
    assert page.evaluate("document.activeElement.getAttribute('aria-describedby')") == "token-tip"
    field.fill("not sent")
    page.get_by_text("Settings", exact=True).click()
    page.get_by_label("system prompt").fill("Be brief.")
    before = texts(page)
    page.reload()
    page.wait_for_selector(".message .piece")
    assert texts(page) == before and page.get_by_label("Message", exact=True).input_value() == "not sent"
    assert page.get_by_label("system prompt").input_value() == "Be brief."
    file = json.loads(saved(page, "Export JSON"))
    assert [one["role"] for one in file["messages"]] == ["system", "user", "assistant"]
    assert len(file["versions"][1]["tokens"][0]["top_logprobs"]) == 5
    page.once("dialog", lambda dialog: dialog.accept())
    page.get_by_role("button", name="New chat").click()
    assert texts(page) == [] and "the rain" not in page.evaluate("JSON.stringify(sessionStorage)")


def test_an_answer_is_stopped_and_repeated_and_a_message_edited(opened):
    page = opened.open(LONG)
    field = send(page, "the rain", wait=False)
    until(page, "document.querySelectorAll('.piece').length > 3")
    assert page.get_by_role("button", name="Retry").is_disabled()
    field.press("Escape")
    until(page, f"{IDLE} && document.querySelector('.facts').textContent.endsWith('stopped')")
    first = texts(page)[1]
    page.wait_for_timeout(200)
    assert texts(page)[1] == first
    page.get_by_role("button", name="Retry").click()
    until(page, "document.querySelectorAll('.piece').length > 3")
    page.get_by_role("button", name="Stop").click()
    until(page, IDLE)
    assert versions(page) == ["2/2"] and texts(page)[1] != first
    page.get_by_role("button", name="Earlier version").click()
    assert versions(page) == ["1/2"] and texts(page)[1] == first
    assert page.evaluate("document.activeElement.ariaLabel") == "Later version"
    page.get_by_role("button", name="Edit").click()
    page.get_by_label("Edit this message").fill("the sun")
    page.reload()  # also what is being edited is kept
    page.get_by_label("Edit this message").press("Enter")
    until(page, "document.querySelectorAll('.piece').length > 3")
    page.locator("#tab-next").click()  # leaving the tab stops the answer
    page.locator("#tab-chat").click()
    until(page, "document.querySelector('.facts').textContent.endsWith('stopped')")
    assert texts(page)[0] == "the sun" and versions(page) == ["2/2"]
    page.get_by_role("button", name="Earlier version").click()
    assert texts(page) == ["the rain", first] and versions(page) == ["1/2", "1/2"]


def test_half_a_character_is_dropped_where_an_answer_was_stopped(opened):
    page = opened.open(SHORT)
    script = """async (finish) => {
        const { Reply } = await import("/page/chat_reply.js");
        const node = { text: "", pieces: [], finish: "" }, reply = new Reply(node, () => {});
        const token = (bytes) => ({ token: "x", logprob: 0, bytes, top_logprobs: [] });
        const content = [token([97]), token([240, 159])];
        reply.add({ choices: [{ logprobs: { content }, finish_reason: null }], usage: { completion_tokens: 2 } });
        node.finish = finish;
        reply.finish();
        return node.text;
    }"""
    assert page.evaluate(script, "stopped") == "a"
    assert page.evaluate(script, "length") == "a\ufffd"  # as the server's own text


def test_errors_are_shown_with_a_way_to_try_again(opened):
    page = opened.open(SHORT)
    full = {"error": {"message": "too many completions are waiting"}}
    page.route(API, lambda route: route.fulfill(status=429, json=full))
    send(page, "the rain", wait=False)
    page.get_by_role("alert").filter(has_text="too many completions are waiting.").wait_for()
    cut = streamed(b"half").removesuffix("data: [DONE]\n\n")
    page.unroute(API)
    page.route(API, lambda route: route.fulfill(status=200, content_type="text/event-stream", body=cut))
    page.get_by_role("button", name="Try again").click()
    page.get_by_role("alert").filter(has_text="the connection to the server was lost.").wait_for()
    assert texts(page) == ["the rain", "half"] and versions(page) == []
    page.unroute(API)
    page.get_by_role("button", name="Try again").click()
    until(page, f"{IDLE} && document.querySelectorAll('.piece').length > 3")
    assert page.get_by_role("alert").count() == 0 and versions(page) == ["2/2"]
    page.get_by_text("Settings", exact=True).click()
    page.get_by_label("temperature").fill("9")
    assert send(page, "kept", wait=False).input_value() == "kept"
    assert "temperature: " in page.locator(".composer [role=status]").text_content()
    assert all("429" in error for error in opened.errors)
    opened.errors.clear()  # the browser writes of every refusal


def test_markup_and_parts_of_characters_are_shown_as_text(opened):
    page = opened.open("tab=chat")
    parts = (
        b"```\n",
        SHOUT.encode(),
        b"\n```\n- **",
        b"bold** \xc3",
        b"\xa9 ",
        b"\xf0\x9f",
        b"\x91\x8d\n",
        b"<b>x</b>",
    )
    answer_with(page, *parts, used=65)
    send(page, f"</textarea>{SHOUT}")
    assert texts(page) == [f"</textarea>{SHOUT}", b"".join(parts).decode()]
    assert "é" in page.locator(".piece").all_text_contents()[3] and page.locator(".piece").count() == 6
    said = page.locator(".used").text_content()
    assert said == "65 of 64 tokens of context: the model no longer sees the oldest part"
    page.locator(".piece").nth(3).hover()
    page.locator("#token-tip .bars").nth(1).wait_for()  # one of each token of the character
    page.get_by_label("answers as").select_option("text")
    shown = page.locator(".assistant .text")
    assert shown.locator("pre code").text_content() == SHOUT and shown.locator("li strong").text_content() == "bold"
    assert page.locator("main img, main b:not(.tip b)").count() == 0 and "<b>x</b>" in shown.text_content()


def test_a_full_or_damaged_storage_loses_no_more_than_it_must(opened):
    page = opened.open(SHORT)
    limit = """(most) => {
        const keep = Storage.prototype.setItem;
        Storage.prototype.setItem = function (key, text) {
            if (text.length > most) throw new Error("full");
            keep.call(this, key, text);
        };
    }"""
    page.evaluate(limit, 2000)  # room for the texts
    send(page, "the rain")
    before = texts(page)
    page.reload()
    page.wait_for_selector(".message")
    assert texts(page) == before and page.locator(".piece").count() == 0
    page.evaluate(limit, 10)  # for nothing
    send(page, "the sun")
    page.get_by_text("too long to survive a reload").wait_for()
    circle = '{"nodes":[{"role":"user","text":"x","parent":-1,"next":0}],"first":0}'
    for text in (circle, '{"nodes":[null],"first":0}', "["):
        page.reload()
        page.evaluate("(text) => sessionStorage.setItem('ensue-chat', text)", text)
        page.reload()
        page.wait_for_selector(".composer")
        assert texts(page) == []


def test_it_works_on_a_phone(browser, address):
    context = browser.new_context(viewport={"width": 390, "height": 844}, has_touch=True, is_mobile=True)
    opened = Opened(context, address)
    page = opened.open(SHORT)
    field = send(page, "the rain", wait=False)
    assert field.input_value() == "the rain\n"  # its keyboard has no Shift+Enter
    page.get_by_role("button", name="Send").tap()
    until(page, f"{IDLE} && document.querySelectorAll('.piece').length > 3")
    page.locator(".piece").filter(has_text=re.compile(r"\S")).first.tap()
    page.locator("#token-tip .bars").wait_for()
    inside = "(box) => box.left >= 0 && box.right <= innerWidth"
    assert page.evaluate(f"({inside})(document.querySelector('#token-tip').getBoundingClientRect())") and fits(page)
    page.get_by_text("Settings", exact=True).tap()
    assert fits(page)
    opened.is_well()
    context.close()


def test_without_a_chat_model_the_tab_says_how_to_get_one(opened):
    card = {"id": "gpt", "system": "gpt", "task": "language", "can": ["next"], "figures": [], "created": 0}
    opened.page.route("**/api/runs", lambda route: route.fulfill(json={"runs": [card], "races": []}))
    page = opened.open("tab=chat")
    page.get_by_text("ensue get smollm2").wait_for()
    assert page.locator("textarea").count() == 0
