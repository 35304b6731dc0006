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


@pytest.fixture(autouse=True)
def own_folder(tmp_path, monkeypatch):
    """The runs that recipes make stay inside the test's folder."""
    monkeypatch.chdir(tmp_path)


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


def test_r174_offered_words_save_keystrokes():
    found = run("predictive_typing")
    frequency, bigram, best = (found["shares"][order] for order in (1, 2, 4))
    assert 0.4 < frequency < bigram - 0.03 and bigram < best + 0.01
    assert 0.5 < best < 0.7
    assert len(found["runs"][4].next("the students opened their", top=4)) == 4


def test_r174_the_fewest_bits_tell_whose_text_it_is():
    found = run("whose_text")
    assert sorted(found["by_size"].values()) == list(found["by_size"].values())
    assert found["by_size"][50] > 0.6 and found["by_size"][400] > 0.9
    assert 0.45 < found["style"] < found["by_size"][400]


def test_r174_errors_are_corrected_and_right_words_left_alone():
    found = run("spelling")
    assert len(found["errors"]) > 60
    assert found["corrected"] > 0.85 and found["spoilt"] < 0.05
    assert found["after"] < 0.6 * found["before"]
