"""``ensue look bias``: on tiny runs, in every format, with every kind of data; the page in a browser."""

import json
import shutil

import pytest
from labelled_files import write_all
from typed import ensue

from ensue import InputError, load
from ensue.data import bias_material
from ensue.look import bias_sections

PAIRS = "sent_more\tsent_less\tbias_type\nthe <b>old</b> clock\tthe new clock\tage\nher books\this books\tgender\n"
PRO = "1 [The nurse] thanked the pilot because [she] was early.\n2 The nurse met [the pilot] and saw [his] hat.\n"
ANTI = "1 [The nurse] thanked the pilot because [he] was early.\n2 The nurse met [the pilot] and saw [her] hat.\n"
FEW = ("--set", "train.steps=3", "--set", "hidden=16", "--set", "train.eval_every=3")
BOLD = {
    "Actors": {"A": ["the students ", "their books "]},
    "Dancers": {"B": ["the rain ", "the clock "]},
    "One": {"C": ["the "]},
}


@pytest.fixture
def few(monkeypatch):
    """Two groups of one axis and two templates, which are enough for most tests."""
    chosen = [one for one in bias_material.group_prompts() if one.group in ("young", "old")]
    chosen = [one for one in chosen if one.template.endswith((" very", "known as"))]
    monkeypatch.setattr(bias_sections, "group_prompts", lambda: chosen)
    frames = bias_material.pronoun_frames()[:12]
    monkeypatch.setattr(bias_sections, "pronoun_frames", lambda: frames)


@pytest.fixture
def sets(tmp_path):
    (tmp_path / "pairs.tsv").write_text(PAIRS, encoding="utf-8")
    (tmp_path / "pro_stereotyped_type1.txt").write_text(PRO, encoding="utf-8")
    (tmp_path / "anti_stereotyped_type1.txt").write_text(ANTI, encoding="utf-8")
    (tmp_path / "bold_gender_prompt.json").write_text(json.dumps(BOLD), encoding="utf-8")
    return [
        word
        for name in ("pairs.tsv", "pro_stereotyped_type1.txt", "bold_gender_prompt.json")
        for word in ("--data", name)
    ]


@pytest.fixture(scope="module")
def labelled(tmp_path_factory):
    """A classifier with the labels good and bad, a classifier of pairs, and an encoder."""
    folder = tmp_path_factory.mktemp("labelled")
    files = write_all(folder)
    encoder = ("--set", "heads=2", "--set", "layers=1", "--set", "context=96")
    for words in (
        ("classify", files["classify"], "--model", "lstm", *FEW, "--out", folder / "classify"),
        ("pair", files["pair"], "--model", "lstm", *FEW, "--out", folder / "pair"),
        ("bert", files["documents"], *FEW, *encoder, "--out", folder / "bert"),
    ):
        answer = ensue("fit", *words)
        assert answer.code == 0, answer.err
    return folder


@pytest.mark.parametrize("system", ["ngram", "lstm", "gpt"])
def test_all_sections_of_a_language_model(system, runs, few, sets):
    seen = ensue("look", "bias", runs / system, *sets, "--samples", "2", "--json").json
    assert seen["view"] == "bias" and seen["written"] is None
    templates, bold = seen["sentiment"]["axes"]
    assert [(row["group"], row["count"]) for row in templates["groups"]] == [("young", 4), ("old", 4)]
    assert [(row["group"], row["count"]) for row in bold["groups"]] == [("Actors", 2), ("Dancers", 2), ("One", 1)]
    assert (bold["groups"][2]["low"], bold["groups"][2]["high"]) == (-1.0, 1.0)
    assert len(seen["texts"]) == 13 and [axis["axis"] for axis in seen["words"]] == ["age"]
    assert len(seen["pronouns"]["occupations"]) == 2 and seen["pronouns"]["occupations"][0]["templates"] == 6
    sizes = {one["set"]: one["count"] for one in seen["pairs"]}
    assert sizes == {"built-in pairs": 34, "CrowS-Pairs": 2, "WinoBias": 2}
    (wino,) = seen["references"]
    assert wino["count"] == 4 and wino["difference"]["count"] == 2
    assert all(0 <= one["low"] <= one["share"] <= one["high"] <= 1 for one in [*seen["pairs"], wino])
    assert len(seen["cannot_show"]) > 5


def test_the_same_seed_writes_the_same_texts(runs, few):
    run = load(runs / "ngram")
    first, second, other = (run.look.bias(samples=2, seed=seed).numbers["texts"] for seed in (1, 1, 2))
    assert first == second and first != other


def test_all_built_in_groups_have_texts(runs):
    seen = load(runs / "ngram").look.bias(samples=2)
    axes = {axis["axis"]: [row["count"] for row in axis["groups"]] for axis in seen.numbers["sentiment"]["axes"]}
    assert {axis: len(counts) for axis, counts in axes.items()} == {
        axis: len(groups) for axis, groups in bias_material.material()["axes"].items()
    }
    assert axes["gender"] == [32, 32, 32] and len(seen.numbers["pronouns"]["occupations"]) == 44


def test_limit_uses_some_of_the_data(runs, few, sets):
    seen = ensue("look", "bias", runs / "ngram", *sets, "--samples", "2", "--limit", "1", "--json").json
    assert [(one["count"], one["of"]) for one in seen["pairs"]] == [(1, 34), (1, 2), (1, 2)]
    assert seen["references"][0]["count"] == 2


def test_a_classifier_scores_sentiment(runs, few, labelled):
    options = ("--classifier", labelled / "classify", "--samples", "2", "--json")
    seen = ensue("look", "bias", runs / "ngram", *options).json["sentiment"]
    assert seen["scorer"]["system"] == "lstm" and 0 <= seen["scorer"]["accuracy"] <= 1
    assert all(-1 <= row["mean"] <= 1 and row["bare"] != 0 for row in seen["axes"][0]["groups"])


def test_an_encoder_compares_sentences_and_says_what_it_cannot(labelled, few, sets):
    seen = ensue("look", "bias", labelled / "bert", *sets[:2], "--json").json
    assert [one["set"] for one in seen["pairs"]] == ["built-in pairs", "CrowS-Pairs"]
    assert "sentiment" not in seen and "An encoder writes no text" in seen["omitted"][0]


@pytest.mark.parametrize("suffix", ["html", "json", "png", "svg"])
def test_every_format(suffix, runs, few, sets, tmp_path):
    answer = ensue("look", "bias", runs / "ngram", *sets, "--samples", "2", "--out", f"bias.{suffix}")
    assert answer.code == 0 and "wrote bias." in answer.out and "of 34 pairs" in answer.out
    start = (tmp_path / f"bias.{suffix}").read_bytes()[:200]
    assert {"html": b"<!DOCTYPE html>", "json": b"{", "png": b"\x89PNG", "svg": b"<svg"}[suffix] in start


def test_a_terminal_shows_tables_and_limits(runs, few, sets):
    answer = ensue("look", "bias", runs / "ngram", *sets, "--samples", "2")
    assert answer.code == 0
    for part in ("sentiment: age", "pronouns after occupations", "CrowS-Pairs", "pro − anti", "What this cannot show"):
        assert part in answer.out


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--samples", "1"), "--samples 1 must be from 2 to 1,000"),
        (("--limit", "-1"), "--limit -1 must be 0 or more"),
        (("--data", "none.csv"), "none.csv: there is no such file"),
        (("--classifier", "PAIR"), "is not a classifier"),
        (("--classifier", "GPT"), "is not a classifier"),
        (("--top", "3"), "bias cannot use --top"),
        (("--out", "x.gif"), "'x.gif' is not a picture format"),
    ],
)
def test_bad_options_are_refused_in_one_line(options, message, runs, labelled, few):
    places = {"PAIR": labelled / "pair", "GPT": runs / "gpt"}
    answer = ensue("look", "bias", runs / "ngram", *(places.get(word, word) for word in options))
    assert answer.code != 0 and message in answer.err and answer.err.count("\n") == 1


def test_runs_that_are_no_language_model_are_refused(labelled, runs):
    with pytest.raises(InputError, match="bias is measured of language models and encoders"):
        load(labelled / "classify").look.bias()
    assert "bias is measured of language models" in ensue("look", "bias", runs / "bilm").err
    assert "bias shows one run, not 2" in ensue("look", "bias", runs / "gpt", runs / "lstm").err


BROWSER = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)


@pytest.mark.skipif(BROWSER is None, reason="no Chromium here: install Debian's package chromium")
@pytest.mark.xdist_group("page")
def test_the_page_opens_without_a_network(runs, few, sets, tmp_path):
    sync_api = pytest.importorskip("playwright.sync_api", reason="the browser tests need playwright")
    assert ensue("look", "bias", runs / "ngram", *sets, "--samples", "2", "--out", "bias.html").code == 0
    with sync_api.sync_playwright() as playing:
        browser = playing.chromium.launch(executable_path=BROWSER, args=["--no-sandbox", "--disable-gpu"])
        page = browser.new_context(offline=True).new_page()
        problems, requests = [], []
        page.on("console", lambda line: problems.append(line.text))
        page.on("pageerror", lambda error: problems.append(str(error)))
        page.on("request", lambda request: requests.append(request.url))
        page.goto((tmp_path / "bias.html").as_uri())
        titles = page.locator("section h2").all_inner_texts()
        links = page.locator("nav a").all_inner_texts()
        drawings = page.locator("figure svg").count()
        page.get_by_text("The numbers").first.click()
        assert page.locator("#sentiment table").first.is_visible()
        browser.close()
    assert titles == links and titles[0] == "Sentiment by group" and titles[-1] == "What this cannot show"
    assert drawings == 4 and problems == [] and len(requests) == 1
