"""Training rows of language models: how long they are where nobody says."""

import pytest

from ensue.models.gpt import GPTConfig, GPTLanguageModel
from ensue.models.recurrent import LSTMConfig, LSTMLanguageModel
from ensue.verbs.fit import fit

SIZES = {"layers": 1, "heads": 2, "hidden": 8, "context": 24}


@pytest.mark.parametrize("attention", ["full", "linear", "local:span=4", "mamba", "sparse"])
def test_the_window_of_a_model_with_a_context_is_the_context_whatever_its_attention(attention):
    config = GPTConfig(vocabulary=11, attention=attention, positions="rotary", **SIZES)
    assert GPTLanguageModel(config).window == 24


def test_a_model_that_carries_its_state_on_has_no_window():
    assert LSTMLanguageModel(LSTMConfig(vocabulary=11, hidden=4)).window is None


@pytest.mark.parametrize("length", [0, 10, 40])
def test_a_model_without_a_limit_is_trained_on_rows_of_its_context_unless_another_length_is_typed(tmp_path, length):
    text = tmp_path / "text.txt"
    text.write_text("the rain fell and the students opened their books\n" * 60, encoding="utf-8")
    settings = {**SIZES, "attention": "linear", "positions": "rotary", "tokenizer.kind": "char"}
    settings |= {"train.steps": 1, "train.batch": 2, "train.length": length}
    run = fit("gpt", text, settings=settings, out=tmp_path / "run")
    assert run.settings["train.length"] == (length or 24)
