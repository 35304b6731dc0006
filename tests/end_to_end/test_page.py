"""The page in a real browser: each tab works, logs no error and contacts no other host."""

import base64
import re

import httpx
import pytest
from browsing import IN_A_BROWSER, Opened, fits, saved, until
from kinds import SHOUT, train_kinds

from ensue.serve.server import listen, load_models

SENTENCE = "the students opened their books"
pytestmark = IN_A_BROWSER


@pytest.fixture(scope="module")
def address(tmp_path_factory):
    """A server with a run of every kind, one of them with markup for a name, and a race."""
    registry = load_models(train_kinds(tmp_path_factory.mktemp("kinds")))
    with listen(registry, host="127.0.0.1", port=0) as listening, listening.in_background() as where:
        yield where


def opaque(page, picture):
    """Whether a picture has no hole."""
    reading = """async (data) => {
        const bytes = Uint8Array.from(atob(data), (letter) => letter.charCodeAt(0));
        const bitmap = await createImageBitmap(new Blob([bytes], { type: "image/png" }));
        const canvas = new OffscreenCanvas(bitmap.width, bitmap.height), pen = canvas.getContext("2d");
        pen.drawImage(bitmap, 0, 0);
        const { data: pixels } = pen.getImageData(0, 0, bitmap.width, bitmap.height);
        for (let at = 3; at < pixels.length; at += 4) if (pixels[at] < 255) return false;
        return true;
    }"""
    return page.evaluate(reading, base64.b64encode(picture).decode())


def test_runs_have_cards_curves_and_the_race(opened):
    page = opened.open("tab=runs")
    assert page.locator(".card").count() == 15
    assert page.locator(".card h2").all_text_contents().count(SHOUT.replace("/", "")) == 1
    until(page, "document.querySelectorAll('.chart svg').length === 2")  # the race, and curves of the first task
    page.locator("summary", has_text="translation").click()
    until(page, "document.querySelectorAll('.chart svg').length === 3")
    assert "bits per byte" in page.locator(".card", has_text="gpt").first.text_content()
    page.locator(".card", has_text="vectors").first.get_by_role("button", name="Words").click()
    assert all(f"{name}=vectors" in page.url for name in ("model", "mapped", "sensed"))
    page.locator("#tab-runs").click()
    page.locator(".card", has_text="gpt").first.get_by_role("button", name="Attention").click()
    page.wait_for_selector("#tab-attention[aria-selected=true]")
    assert "model=gpt" in page.url


def test_next_words_update_while_typing_and_can_be_clicked(opened):
    page = opened.open("tab=next")
    page.get_by_label("Text").fill("the students")
    until(page, "document.querySelectorAll('.bars').length === 7")
    first = page.locator(".card", has_text="gpt").locator(".bars button:not(:disabled)").first
    first.click()
    until(page, "document.querySelector('textarea').value.length > 12")
    assert fits(page)
    page.get_by_text("Surprisal of each token").click()
    until(page, "document.querySelectorAll('.chart svg').length === 1")  # all models on one scale
    assert b'"probability"' in saved(page, "JSON") and opaque(page, saved(page, "PNG"))
    written = page.locator("textarea").input_value()
    again = opened.open(page.url.partition("#")[2])
    assert again.locator("textarea").input_value() == written != "the students"
    until(again, "document.querySelectorAll('.chart svg').length === 1")  # what was open is open again


def test_texts_are_streamed_and_kept(opened):
    page = opened.open("tab=write&model=gpt&text=the&tokens=6")
    write = page.get_by_role("button", name="Write", exact=True)
    for tries in (1, 2):
        write.click()
        until(page, f"document.querySelectorAll('article.card').length === {tries}")
        until(page, "document.querySelectorAll('article.card:first-child .piece').length === 6")
        until(page, "!document.querySelector('button.main').disabled")
    assert page.evaluate("document.activeElement.textContent") == "Write"
    assert page.locator(".piece[tabindex='0']").count() == 2  # one of each text; arrow keys go to the others
    page.locator(".piece").first.focus()
    page.keyboard.press("ArrowRight")
    assert page.evaluate("document.activeElement === document.querySelectorAll('.piece')[1]")
    assert page.locator(".piece[tabindex='0']").count() == 2
    page.locator(".piece").first.hover()
    assert re.search(r"P = 0\.\d+; alternatives: ", page.locator(".aside").first.text_content())
    assert b'"top_logprobs"' in saved(page, "JSON") and saved(page, "PNG")[1:4] == b"PNG"
    texts = page.locator("article.card .text").all_text_contents()
    again = opened.open(page.url.partition("#")[2])  # a link writes the same tries again
    until(again, "document.querySelectorAll('.piece').length === 12 && !document.querySelector('button.main').disabled")
    assert again.locator("article.card .text").all_text_contents() == texts
    again.locator("#tab-attention").click()
    again.locator("#tab-write").click()  # and so does the tab that one comes back to
    until(again, "document.querySelectorAll('.piece').length === 12 && !document.querySelector('button.main').disabled")
    assert again.locator("article.card .text").all_text_contents() == texts
    opened.open("tab=write&tries=[[1,2],{]")  # a broken link breaks nothing
    again.get_by_role("button", name="Write", exact=True).wait_for()


def test_a_stopped_sample_is_kept_and_a_rejected_one_is_not(opened):
    page = opened.open("tab=write&model=gpt&text=the&tokens=4000&temperature=1&p=1")
    working = "!document.querySelectorAll('.row button')[1].disabled"
    page.get_by_role("button", name="Write", exact=True).click()
    until(page, f"{working} && document.querySelectorAll('.piece').length > 3")
    page.get_by_role("button", name="Stop").click()
    until(page, "!document.querySelector('button.main').disabled")
    text, count = page.locator("article.card .text").text_content(), page.locator(".piece").count()
    assert 3 < count < 4000 and f"%2C{count}%2C" in page.url
    long = page.url.partition("#")[2]
    page = opened.open(long)
    until(page, "document.querySelector('.piece') && !document.querySelector('button.main').disabled")
    assert page.locator("article.card .text").text_content() == text
    page.get_by_label("max tokens").fill("99999")
    page.get_by_role("button", name="Write", exact=True).click()
    page.locator("main > div > .error").wait_for()
    assert page.locator("article.card").count() == 1 and "99999%2C" not in page.url
    assert [error for error in opened.errors if "422" not in error] == []
    opened.errors.clear()  # the browser writes of every refusal
    many = "".join(f'["gpt","the",4000,1,0,1,{seed}],' for seed in range(3))
    page = opened.open(f"tab=write&tries=[{many[:-1]}]")
    until(page, f"{working} && document.querySelector('.piece')")
    page.get_by_role("button", name="Stop").click()  # all that the link names
    until(page, "!document.querySelector('button.main').disabled")
    page.wait_for_timeout(200)
    assert page.locator("article.card").count() == 1 and page.locator("button.main").is_enabled()


def test_leaving_a_tab_that_streams_does_not_change_the_address(opened):
    page = opened.open("tab=write&model=gpt&text=the&tokens=4000&temperature=1&p=1")
    page.get_by_role("button", name="Write", exact=True).click()
    until(page, "document.querySelector('.piece')")
    before = page.evaluate("history.length")
    page.locator("#tab-write").focus()
    page.keyboard.press("ArrowLeft")
    page.wait_for_selector("#tab-next[aria-selected=true]")
    page.wait_for_timeout(300)
    assert "seed=" not in page.url and "tries=" not in page.url and page.locator("textarea").input_value() == "the"
    assert page.evaluate("history.length") == before


def test_the_link_is_shown_if_there_is_no_clipboard(opened):
    page = opened.open("tab=runs")
    page.evaluate("Object.defineProperty(navigator, 'clipboard', { value: undefined })")
    page.get_by_role("button", name="Copy a link").click()
    page.locator("#status", has_text="tab=runs").wait_for()


def test_an_unreachable_server_is_reported(browser, opened):
    page = opened.open("tab=write&model=gpt&text=the&tokens=6")
    page.route("**/v1/completions", lambda route: route.abort())
    page.get_by_role("button", name="Write", exact=True).click()
    page.get_by_text("cannot reach the server").wait_for()
    assert page.locator("article.card").count() == 0 and "tries=" not in page.url
    opened.errors.clear()


def test_translation_shows_the_search_tree_step_by_step(opened):
    page = opened.open("tab=translate&beam=3")
    page.get_by_label("Sentence").fill("the books")
    page.keyboard.press("Control+Enter")
    page.wait_for_selector(".result")
    tree = page.frame_locator("iframe[title='Search tree']")
    tree.locator(".whole [data-id]").first.wait_for()
    steps = int(tree.locator("#upto").get_attribute("max"))
    shown = lambda: tree.locator(".whole g[data-step]:not(.late)").count()  # noqa: E731
    everything = shown()
    for _ in range(steps):
        tree.get_by_role("button", name="Step back").click()
    assert 0 < shown() < everything
    tree.get_by_role("button", name="Step forward").click()
    tree.locator(".whole g[data-step='2']:not(.late)").first.wait_for()
    seen = shown()
    with page.expect_download() as coming:
        tree.get_by_role("button", name="PNG").click()
    assert coming.value.path().read_bytes()[1:4] == b"PNG" and coming.value.suggested_filename == "tree.png"
    with page.expect_download() as coming:
        tree.get_by_role("button", name="JSON").click()
    assert b'"log_prob"' in coming.value.path().read_bytes()
    until(page, "location.hash.includes('tree_step=')")
    page = opened.open(page.url.partition("#")[2])  # a link brings back the step that the tree was opened to
    tree.locator(".whole [data-id]").first.wait_for()
    assert shown() == seen
    page.get_by_text("Encoding and decoding, step by step").click()  # what comes late stands below and moves nothing
    page.frame_locator("iframe[title='Encoding and decoding']").get_by_role("button", name="Step forward").click()
    until(page, "location.hash.includes('steps_step=1') && location.hash.includes('steps_open=1')")
    page = opened.open(page.url.partition("#")[2].replace("steps_open=1", ""))  # a step opens what it is of
    page.frame_locator("iframe[title='Encoding and decoding']").get_by_role("button", name="Step back").wait_for()
    page.get_by_label("beam").fill("99")
    page.get_by_role("button", name="Translate").last.click()
    page.locator(".error", has_text="beam").wait_for()
    assert page.locator("iframe").count() == 0


@pytest.mark.parametrize("model", ["gpt", "translator", "bert"])
def test_attention_of_a_decoder_a_translator_and_an_encoder(model, opened):
    page = opened.open(f"tab=attention&model={model}")
    page.get_by_label("Text").fill(SENTENCE)
    page.wait_for_selector(".chart svg")
    everything = page.locator(".lines path").count()
    page.locator(".lines .word").nth(1).hover()
    until(page, "before => document.querySelectorAll('.lines path').length < before", arg=everything)
    assert "attends to" in page.locator(".lines + p").text_content()
    page.locator(".lines .word").nth(1).click()
    page.get_by_role("button", name="head 1").click()
    until(page, "document.querySelectorAll('.heads [aria-pressed=true]').length === 1")
    assert page.evaluate("document.activeElement.getAttribute('aria-label')") == "head 1"
    link, said = page.url.partition("#")[2], page.locator(".lines + p").text_content()
    assert b"layers" in saved(page, "JSON") and saved(page, "PNG")[1:4] == b"PNG"
    page = opened.open(link)  # a link brings back the layer, the head and the word
    page.wait_for_selector(".chart svg")
    assert page.locator(".lines + p").text_content() == said and "head 1" in said and "head 2" not in said


def test_attention_of_a_long_text_shows_one_head(opened):
    def refuse(route):  # as the server does where a layer has more than 50,000 weights: no run here has so many
        told = {"error": {"message": "too many for one picture"}}
        route.continue_() if route.request.post_data_json.get("head") else route.fulfill(status=400, json=told)

    opened.page.route("**/api/look/attention", refuse)
    page = opened.open(f"tab=attention&model=gpt&text={SENTENCE}")
    page.locator("p", has_text="too many for heat maps").wait_for()
    assert page.locator(".lines path").count() > 0
    page.get_by_label("head", exact=True).focus()
    page.get_by_label("head", exact=True).select_option("2")
    until(page, "location.hash.includes('heads=2')")
    until(page, "document.querySelector('.lines path').getAttribute('stroke') === '#d55e00'")  # the second's colour
    assert page.evaluate("document.activeElement.getAttribute('aria-label')") == "head"
    page.locator(".lines .word").last.click()
    assert "at=r" in page.url
    said = page.locator(".lines + p").text_content()
    page = opened.open(page.url.partition("#")[2])
    page.locator("p", has_text="too many for heat maps").wait_for()
    assert page.locator(".lines + p").text_content() == said and "is attended to by" in said
    assert page.get_by_label("head", exact=True).input_value() == "2"
    assert [error for error in opened.errors if "400" not in error] == []
    opened.errors.clear()  # the browser writes of every refusal


def test_attention_maps_keys_and_rollout(opened):
    page = opened.open(f"tab=attention&model=gpt&text={SENTENCE}")
    page.wait_for_selector(".chart svg")
    assert page.get_by_label("layer", exact=True).input_value() == "2"
    page.locator(".chart svg .mark-rect path").first.click(force=True)
    until(page, "document.querySelectorAll('.heads [aria-pressed=true]').length === 1")
    assert page.get_by_label("layer", exact=True).input_value() == "1" and "heads=1" in page.url
    page.locator(".lines").press("ArrowDown")
    page.locator(".lines").press("ArrowDown")
    assert page.locator(".lines .here").text_content() == "the" and "at=1" in page.url
    page.get_by_label("rollout over all layers").check()
    page.get_by_role("heading", name="Attention rollout over all layers").wait_for()


def test_inside_a_recurrent_network(opened):
    page = opened.open("tab=inside&model=lstm")
    page.get_by_label("Text").fill(SENTENCE)
    until(page, "document.querySelectorAll('.chart svg').length === 2")
    page.get_by_label("compare all recurrent runs").check()
    until(page, "document.querySelectorAll('.chart')[1]?.textContent.includes('gru')")
    stepper = page.frame_locator("iframe[title='Backpropagation through time']")
    stepper.get_by_role("button", name="Step forward").click()
    before = stepper.locator("#title").text_content()
    with page.expect_download() as coming:
        stepper.get_by_role("button", name="PNG").click()
    assert coming.value.path().read_bytes()[1:4] == b"PNG"
    stepper.get_by_role("button", name="Last step").click()
    assert stepper.locator("#title").text_content() != before
    page.get_by_label("steps", exact=True).fill("99")
    page.locator(".error", has_text="steps").wait_for()
    assert page.locator("iframe").count() == 0


def test_words_show_neighbours_analogies_a_map_and_senses(opened):
    page = opened.open("tab=words&model=vectors&mapped=vectors&sensed=gpt&word=students")
    page.get_by_label("subtracted word").press("Enter")  # what stands in a field from the start is part of a link, too
    until(page, "['analogy0=king', 'analogy2=woman', 'by=cosine'].every((part) => location.hash.includes(part))")
    page.locator(".card .error").wait_for()
    opened.errors.clear()  # of words that the corpus has not
    page.wait_for_selector(".chart svg")
    page.get_by_role("button", name="Find").click()
    until(page, "document.querySelectorAll('.bars li').length >= 5")
    page.locator(".bars button").first.click()
    until(page, "document.querySelector('input').value !== 'students'")
    for name, word in zip(("first word", "subtracted word", "added word"), ("the", "students", "books")):
        page.get_by_label(name).fill(word)
    page.get_by_role("button", name="Solve").click()
    until(page, "document.querySelectorAll('.bars').length === 2")
    link = page.url.partition("#")[2]
    page = opened.open(link)  # what was asked is asked again
    until(page, "document.querySelectorAll('.bars').length === 2")
    page.locator("section", has_text="One word in its contexts").last.get_by_label("word", exact=True).fill("books")
    page.get_by_label("Sentences").fill("the books fell\nbooks and rain\ntheir books opened")
    page.locator("section", has_text="One word in its contexts").last.get_by_role("button", name="Draw").click()
    until(page, "document.querySelectorAll('.chart svg').length === 2")
    assert "sense=books" in page.url and "sensed=gpt" in page.url


def test_tasks_classify_compare_tag_answer_and_fill(opened):
    page = opened.open("tab=tasks&model=classify")

    def choose(model, *texts):
        page.locator("select").first.select_option(model)
        for field, text in zip(page.locator("textarea").all(), texts, strict=True):
            field.fill(text)
        page.get_by_role("button", name="Predict").click()

    choose("classify", "a lovely film")
    until(page, "document.querySelectorAll('.bars li').length === 2")
    choose("pair", "a lovely film", "a dull book")
    page.wait_for_selector(".result")
    choose("tag", "a lovely film and a dull book")
    page.wait_for_selector(".tagged")
    choose("answer", "how was it?", "it was a lovely film")
    until(page, "document.querySelector('.result') && document.querySelector('p.text')")
    assert (
        page.locator("label", has_text="Question").is_visible()
        and page.locator("label", has_text="Passage").is_visible()
    )
    choose("bert", "the [MASK] was fine")
    page.wait_for_selector(".card .bars")
    assert b'"gaps"' in saved(page, "JSON") and saved(page, "PNG")[1:4] == b"PNG"

    def with_note(route):
        answer = route.fetch()
        route.fulfill(response=answer, json={**answer.json(), "notes": ["it was <b>cut</b>"]})

    page.route("**/api/fill", with_note)
    page.get_by_role("button", name="Predict").click()
    page.locator(".soft", has_text="it was <b>cut</b>").wait_for()


def test_a_series_is_drawn_with_the_mouse_and_forecast(opened):
    page = opened.open("tab=tasks&model=forecast")
    pad = page.locator(".pad")
    page.wait_for_selector(".pad .ahead")
    before = pad.locator(".ahead").get_attribute("d")
    box = pad.bounding_box()
    page.mouse.move(box["x"] + 20, box["y"] + 40)
    page.mouse.down()
    page.mouse.move(box["x"] + 600, box["y"] + 200, steps=12)
    page.mouse.up()
    until(page, "before => document.querySelector('.pad .ahead')?.getAttribute('d') !== before", arg=before)
    pad.press("ArrowUp")
    assert re.match(r"step \d+: -?[\d.]+", page.locator(".pad + p").text_content())
    assert pad.locator("text").all_text_contents()[-2:] == ["steps", "y"]
    link = page.url.partition("#")[2]
    drawn = pad.locator(".past").get_attribute("d")
    assert b'"past"' in saved(page, "JSON") and opaque(page, saved(page, "PNG"))
    again = opened.open(link)
    again.wait_for_selector(".pad .past")
    until(again, "drawn => document.querySelector('.pad .past').getAttribute('d') === drawn", arg=drawn)
    assert len(drawn.split("L")) == 24


def test_markup_in_prompts_names_and_outputs_is_shown_as_text(opened, address):
    names = [one["id"] for one in httpx.get(f"{address}/api/runs").json()["runs"]]
    counted = next(name for name in names if name.startswith("kinds") and name.endswith("/ngram"))
    page = opened.open(f"tab=write&model={counted}&tokens=200&temperature=1&p=1")
    page.get_by_label("Prompt").fill(f"{SHOUT} <img src=x onerror=window.hacked=1>")
    page.get_by_role("button", name="Write", exact=True).click()
    until(page, "!document.querySelector('button.main').disabled && document.querySelector('.piece')")
    assert SHOUT in page.locator(".text").first.text_content()
    page = opened.open(f"tab=next&text={SHOUT}")
    until(page, "document.querySelectorAll('.bars').length === 7")
    page = opened.open(f"tab=translate&text={SHOUT}&beam=2")
    page.frame_locator("iframe[title='Search tree']").locator("[data-id]").first.wait_for()
    page = opened.open(f"tab=attention&model=gpt&text=the {SHOUT}")
    page.wait_for_selector(".chart svg")


def test_tabs_work_by_keyboard_and_on_a_small_dark_screen(browser, address):
    context = browser.new_context(viewport={"width": 390, "height": 844}, color_scheme="dark")
    opened = Opened(context, address)
    page = opened.open("tab=runs")
    page.locator("#tab-runs").focus()
    for tab in ("next", "write", "chat", "translate", "attention", "inside", "words", "tasks"):
        page.keyboard.press("ArrowRight")
        page.wait_for_selector(f"#tab-{tab}[aria-selected=true]")
        assert fits(page), tab
    page.keyboard.press("Home")
    page.wait_for_selector("#tab-runs[aria-selected=true]")
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(21, 23, 28)"
    page = opened.open(f"tab=attention&model=gpt&text={SENTENCE}")
    page.wait_for_selector(".chart svg")  # maps keep their size and scroll
    own = "Number(document.querySelector('.chart svg').getAttribute('width'))"
    assert page.evaluate(f"document.querySelector('.chart svg').clientWidth >= {own} - 1") and fits(page)
    opened.is_well()
    context.close()


def test_the_key_form_grants_access(browser, address, tmp_path_factory):
    folder = tmp_path_factory.getbasetemp()
    run = next(folder.glob("kinds*/lstm"))
    with (
        listen(load_models([run]), host="127.0.0.1", port=0, key="s3cret <b>") as listening,
        listening.in_background() as where,
    ):
        context = browser.new_context()
        page = context.new_page()
        page.goto(where)
        page.get_by_label("Key").fill("wrong")
        page.get_by_role("button", name="Open").click()
        page.get_by_text("Wrong key.").wait_for()
        page.get_by_label("Key").fill("s3cret <b>")
        page.get_by_role("button", name="Open").click()
        page.wait_for_selector("nav [aria-selected=true]")
        (cookie,) = context.cookies()
        assert cookie["httpOnly"] and cookie["sameSite"] == "Strict" and "s3cret" not in cookie["value"]
        assert page.evaluate("document.cookie") == ""
        context.close()
