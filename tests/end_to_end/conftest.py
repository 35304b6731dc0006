from pathlib import Path

import pytest
import torch
from browsing import BROWSER, FLAGS, Opened
from chat_model import write_chat_model
from typed import TINY, ensue, sentences


@pytest.fixture(autouse=True)
def one_thread():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(autouse=True)
def own_folder(tmp_path, monkeypatch):
    """Relative paths, and the default runs/ folder, stay inside the test's folder."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture(scope="session")
def text(tmp_path_factory):
    path = tmp_path_factory.mktemp("text") / "text.txt"
    path.write_text(sentences(150), encoding="utf-8")
    return path


@pytest.fixture(scope="session")
def runs(tmp_path_factory, text):
    """A folder with a tiny run of each kind; tests that change one copy it first."""
    folder: Path = tmp_path_factory.mktemp("runs")
    torch.set_num_threads(1)
    for name, words in {
        "lstm": ("lstm", *TINY),
        "gpt": ("gpt", *TINY, "--set", "heads=2", "--set", "context=16", "--set", "layers=1"),
        "bilm": ("bilm", *TINY),
        "ngram": ("ngram", "--tokenizer", "word", "--set", "order=3"),
    }.items():
        answer = ensue("fit", words[0], text, *words[1:], "--out", folder / name, "--json")
        assert answer.code == 0, answer.err
    return folder


@pytest.fixture(scope="session")
def chat_file(tmp_path_factory):
    """A GGUF file of a tiny chat model."""
    torch.set_num_threads(1)
    return write_chat_model(tmp_path_factory.mktemp("chat"))


@pytest.fixture(scope="module")
def browser():
    sync_api = pytest.importorskip("playwright.sync_api", reason="the browser tests need playwright")
    with sync_api.sync_playwright() as playing:
        opened = playing.chromium.launch(executable_path=BROWSER, args=list(FLAGS))
        yield opened
        opened.close()


@pytest.fixture
def opened(browser, address):
    """A page of the server at ``address``, which a test module defines; at the end all must be well."""
    context = browser.new_context(viewport={"width": 1280, "height": 900}, accept_downloads=True)
    made = Opened(context, address)
    yield made
    made.is_well()
    context.close()
