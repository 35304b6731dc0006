import json
import re
from html.parser import HTMLParser

import pytest

from ensue.core.errors import InputError
from ensue.look.saving import check_suffix, save_page
from ensue.look.steps_page import steps_html

HOSTILE = "</script><img src=x onerror=alert(1)>&$title"


def example(token="chat", *, attention=True):
    """Two steps of a source of two tokens; of the second, the chosen token is not among the likeliest."""
    choices = [{"token": token, "prob": 0.8, "rank": 1, "chosen": True}]
    late = [{"token": "x", "prob": 0.5, "rank": 1, "chosen": False}]
    late += [{"token": "<|end|>", "prob": 0.001, "rank": 1234, "chosen": True}]
    looks = [[0.9, 0.1], [0.25, 0.75]] if attention else [None, None]
    return {
        "system": "transformer",
        "text": f"{token} .",
        "search": {"beam": 5, "length": "mean"},
        "source": [token, "."],
        "target": [token, "<|end|>"],
        "ended": True,
        "encoder": [[[0.75, 0.25], [0.5, 0.5]]] if attention else None,
        "reading": "The source is read token by token.",
        "passes": None if attention else [["forward", "backward"]],
        "layer": 1 if attention else None,
        "without": None if attention else "This model has no attention.",
        "log_prob": -7.131,
        "steps": [
            {"token": token, "log_prob": -0.223, "total": -0.223, "choices": choices, "attention": looks[0]},
            {"token": "<|end|>", "log_prob": -6.908, "total": -7.131, "choices": late, "attention": looks[1]},
        ],
    }


class Tags(HTMLParser):
    def __init__(self):
        super().__init__()
        self.tags, self.scripts, self.inside = [], [], False

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.inside = tag == "script"

    def handle_data(self, data):
        if self.inside:
            self.scripts.append(data)
            self.inside = False


def parsed(page):
    parser = Tags()
    parser.feed(page)
    return parser.tags, json.loads(parser.scripts[0])


def test_page_has_a_step_per_layer_and_per_token():
    _, data = parsed(steps_html(example()))
    assert [step["kind"] for step in data["steps"]] == ["encode", "decode", "decode"]
    assert data["steps"][0]["weights"] == [[0.75, 0.25], [0.5, 0.5]]
    assert "chat to chat (0.75)" in data["steps"][0]["text"]
    assert data["steps"][1]["text"].endswith("It attends most to chat (0.90), . (0.10).")
    assert data["steps"][2]["total"] == "−7.131" and "number 1,234 by probability (0.001)" in data["steps"][2]["text"]


def test_page_of_a_model_without_attention_says_so_and_has_no_weights():
    _, data = parsed(steps_html(example(attention=False)))
    assert [step["kind"] for step in data["steps"]] == ["read", "decode", "decode"]
    assert data["steps"][0]["passes"] == [["forward", "backward"]] and "weights" not in data["steps"][0]
    for step in data["steps"][1:]:
        assert step["weights"] is None and step["text"].endswith("This model has no attention.")


def test_hostile_tokens_stay_text():
    page = steps_html(example(HOSTILE))
    tags, data = parsed(page)
    assert tags.count("script") == 2 and "img" not in tags and page.count("</script>") == 2
    assert tags == parsed(steps_html(example()))[0]
    assert data["source"][0].startswith("</script>")


def test_page_fetches_nothing_and_lists_all_steps():
    page = steps_html(example())
    assert "default-src 'none'" in page and not re.search(r"""(src|href)=["']?(https?:)?//""", page)
    assert "innerHTML" not in page and 'aria-live="polite"' in page
    assert page.count("<li><b>") == 3  # every step in words, for print and without scripts


def test_files_are_a_page_or_numbers(tmp_path):
    numbers = example()
    save_page("page", numbers, tmp_path / "x.html")
    save_page("page", numbers, tmp_path / "x.json")
    assert (tmp_path / "x.html").read_text() == "page" and json.loads((tmp_path / "x.json").read_text()) == numbers
    for name in ("x.png", "x.svg", "x"):
        with pytest.raises(InputError, match=r"a page \(\.html\) or numbers \(\.json\)"):
            check_suffix(tmp_path / name, page=True)
