"""The recipes of docs/recipes run as they stand there, and learn."""

import re
from pathlib import Path

import pytest
import torch

RECIPES = Path(__file__).parents[2] / "docs" / "recipes"


@pytest.fixture(autouse=True)
def one_thread():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def run(name):
    """The names that a recipe's script leaves behind."""
    (script,) = re.findall(r"```python\n(.*?)```", (RECIPES / f"{name}.md").read_text(encoding="utf-8"), re.DOTALL)
    names = {"__name__": name}
    exec(compile(script, f"{name}.md", "exec"), names)
    return names


def test_r52_the_last_output_tells_the_mood():
    found = run("sequence_to_vector")
    assert found["accuracy"] > 0.95
    words = found["batch"]([(["not", "good"], False), (["good"], True)])
    assert (found["model"](*words[:2]) > 0).tolist() == [False, True]


def test_r53_a_picture_gets_its_caption():
    found = run("vector_to_sequence")
    assert found["exact"] > 0.9
    assert found["model"].caption(found["new"][0][0])[-1] == "<end>"


def test_r54_prices_a_day_later_are_better_than_those_of_today():
    found = run("equal_length")
    assert 0.0095 < found["error"] < 0.012 and found["naive"] > 0.02
    assert found["same"]


def test_r55_a_sentence_goes_through_one_vector():
    found = run("encoder_decoder")
    assert found["exact"] > 0.9
    assert found["model"].encode(*found["batch"]([907])[:2]).memory[0].shape == (1, 64)
