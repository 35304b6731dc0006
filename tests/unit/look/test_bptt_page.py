import io
import json
import re
from html.parser import HTMLParser

import pytest
from rich.console import Console

from ensue.core.errors import InputError
from ensue.look.bptt import parse_steps, parse_values
from ensue.look.bptt_page import bptt_html
from ensue.look.bptt_text import bptt_text
from ensue.look.instruments.bptt import bptt_numbers, random_network, with_values
from ensue.look.steps_page import steps_html
from ensue.look.tree_page import tree_html
from ensue.verbs.look import look


class Scripts(HTMLParser):
    def __init__(self):
        super().__init__()
        self.tags, self.scripts = [], []

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)

    def handle_data(self, data):
        if self.tags and self.tags[-1] == "script":
            self.scripts.append(data)


def numbers_and_data(**how):
    network = random_network(steps=how.pop("steps", 3), hidden=how.pop("hidden", 1))
    numbers = bptt_numbers(network, **how)
    reader = Scripts()
    reader.feed(bptt_html(numbers))
    return numbers, json.loads(reader.scripts[0])


def test_page_shows_the_forward_pass_and_then_all_six_terms():
    numbers, data = numbers_and_data()
    titles = [step["title"] for step in data["steps"]]
    assert titles[:4] == ["Forward: step 1 of 3", "Forward: step 2 of 3", "Forward: step 3 of 3", "The error"]
    terms = [title for title in titles if ": term" in title]
    assert len(terms) == 6 and terms[-1] == "∂J(3)/∂w: term 3 of 3 (k = 1)" and titles[-1] == "∂E/∂w"
    assert numbers["formula"].startswith("∂J(t)/∂w = Σ")


def test_the_path_of_a_term_leads_back_in_time_to_its_weight():
    _, data = numbers_and_data()
    last = next(step for step in data["steps"] if step["title"].endswith("(k = 1)") and "J(3)" in step["title"])
    nodes = {f"{letter}{t}" for edge in last["way"] for letter, t in edge}
    assert nodes == {"J3", "ŷ3", "z3", "h3", "s3", "h2", "s2", "h1", "s1", "h0"} and last["weight"] == 1
    assert [line["name"] for line in last["lines"]][-4:] == ["∂h(2)/∂s(2)", "∂s(2)/∂h(1)", "∂h(1)/∂s(1)", "∂s(1)/∂w"]


def test_factors_of_a_wide_state_are_matrices_and_no_term_crosses_a_cut():
    _, data = numbers_and_data(hidden=2, steps=4, cut=2, costs=[4])
    assert data["cut"] == 2 and data["costs"] == [4]
    assert {len(line["value"]) for step in data["steps"] for line in step["lines"]} == {1, 2}
    terms = [step for step in data["steps"] if step["weight"] is not None]
    assert [step["weight"] for step in terms] == [4, 3]


def test_page_fetches_nothing_and_lists_all_steps_as_text():
    page = bptt_html(bptt_numbers(random_network()))
    assert "default-src 'none'" in page and not re.search(r"""(src|href)=["']?(https?:)?//""", page)
    assert "innerHTML" not in page and page.count("<li><b>") == 14


def test_all_pages_have_one_frame():
    import test_steps_page
    import traces

    pages = [
        bptt_html(bptt_numbers(random_network())),
        steps_html(test_steps_page.example()),
        tree_html(traces.lecture()),
    ]
    heads = [re.sub("<title>.*?</title>", "", page.partition("<style>")[0]) for page in pages]
    assert heads[0] == heads[1] == heads[2] and "Content-Security-Policy" in heads[0]
    assert all("--best: #0b57a4" in page for page in pages)


def test_terminal_shows_values_terms_and_the_check():
    console = Console(width=200, record=True, file=io.StringIO(), markup=False)
    console.print(bptt_text(bptt_numbers(random_network(hidden=2))))
    text = console.export_text()
    assert "∂J(3)/∂w: 3 terms" in text and "∂J(1)/∂w: 1 term" in text and "E = J(1) + J(2) + J(3) =" in text
    assert re.search(r"largest difference to autograd, of any term: \d\.\de-1[5-9]", text)


def test_given_values_replace_random_ones():
    network = with_values(random_network(), parse_values(["w=0.5", "x=1,0,-1", "h0=0.25", "y=0,1,1"]))
    numbers = bptt_numbers(network)
    assert numbers["values"]["w"] == [[0.5]] and numbers["values"]["x"] == [[1.0], [0.0], [-1.0]]
    assert numbers["values"]["y"] == [0, 1, 1]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"steps": 0}, "--steps 0 cannot be written out; use 1 to 12"),
        ({"hidden": 99}, "--hidden 99 cannot be written out"),
        ({"values": ["w"]}, "--values 'w' is not NAME=NUMBER"),
        ({"values": ["w=nan"]}, "--values 'w=nan' holds a number that is not finite"),
        ({"values": ["q=1"]}, "unknown value 'q'"),
        ({"values": ["w=1,2"]}, r"w has 1 numbers \(1 × 1\), not 2"),
        ({"values": ["y=0,1,2"]}, "y must be indices of the 2 outputs"),
        ({"costs": "2,4"}, "--costs 4 is not a step; steps are 1 to 3"),
        ({"costs": "x"}, "--costs 'x' is not a list of steps"),
        ({"cut": 7}, "--cut 7 is not a step"),
        ({"text": "a"}, "bptt cannot use --text"),
    ],
)
def test_invalid_requests_are_refused(options, message):
    with pytest.raises(InputError, match=message):
        look("bptt", [], **options)


def test_bptt_takes_no_run_and_parses_steps():
    with pytest.raises(InputError, match="not a run; for a run: ensue look gradients"):
        look("bptt", ["runs/lstm"])
    assert parse_steps("3,4") == [3, 4]
