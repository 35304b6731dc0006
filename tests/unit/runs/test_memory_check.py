"""A model that cannot fit into memory is refused before anything is read; one that might fit is not."""

import pytest

from ensue.core.errors import InputError
from ensue.runs.build_model import build_model
from ensue.runs.memory_check import check_memory
from ensue.runs.settings_resolution import resolve
from ensue.train.ranks import Ranks


def test_gpt_3_is_refused_with_the_memory_it_needs_and_the_memory_there_is(monkeypatch, tmp_path):
    from ensue.verbs.fit import fit

    monkeypatch.setenv("ENSUE_MEMORY", "64G")
    missing = tmp_path / "nothing is read.txt"
    missing.write_text("a text\n")
    with pytest.raises(InputError, match=r"training needs 2\.8 TB .*weights.* there is 64\.0 GB") as refused:
        fit("gpt", missing, preset="gpt3", out=tmp_path / "run")
    assert "\n" not in str(refused.value) and "ENSUE_MEMORY=" in str(refused.value)
    assert not (tmp_path / "run").exists()


def test_an_optimiser_without_state_needs_less_memory(monkeypatch):
    settings = {"hidden": 64, "heads": 2, "layers": 2, "context": 16}
    monkeypatch.setenv("ENSUE_MEMORY", "1M")
    check_memory(resolve("gpt", layers=[{**settings, "train.optimiser": "sgd"}]), Ranks())
    with pytest.raises(InputError, match="training needs"):
        check_memory(resolve("gpt", layers=[settings]), Ranks())


@pytest.mark.parametrize("system", ["gpt", "transformer", "bert", "lstm", "elmo", "ngram", "word2vec"])
def test_a_model_that_fits_is_accepted(system):
    check_memory(resolve(system, layers=[{}]), Ranks())


@pytest.mark.parametrize("system", ["transformer", "bert", "lstm", "elmo"])
def test_every_kind_of_model_is_checked(system, monkeypatch):
    monkeypatch.setenv("ENSUE_MEMORY", "10K")
    with pytest.raises(InputError, match="training needs"):
        check_memory(resolve(system, layers=[{}]), Ranks())


@pytest.mark.parametrize(("system", "task"), [("gpt", ""), ("lstm", "classify")])
def test_more_layers_than_can_be_built_are_refused_at_once(system, task):
    settings = resolve(system, task=task, layers=[{"layers": 10**9}])
    with pytest.raises(InputError, match="1,000,000,000 layers cannot be built; at most 10,000 can"):
        check_memory(settings, Ranks())


def test_more_experts_than_can_be_built_are_refused_at_once():
    with pytest.raises(InputError, match="1,000,000,000 experts cannot be built"):
        check_memory(resolve("gpt", layers=[{"experts": 10**9}]), Ranks())


@pytest.mark.parametrize("system", ["lstm", "gpt", "word2vec"])
def test_a_tensor_of_too_many_elements_is_refused_before_anything_is_built(system, monkeypatch):
    def build(seed):
        raise AssertionError("a part of the model was built")

    monkeypatch.setattr("ensue.runs.build_model.seed_everything", build)
    monkeypatch.setattr("ensue.runs.build_model.model_values", lambda settings, corpus: dict(settings.model))
    size = {"embedding": 2**60} if system == "word2vec" else {"hidden": 2**40}
    settings = resolve(system, layers=[{"vocabulary": 1000, **size}])
    with pytest.raises(InputError, match="a model of this size cannot be built"):
        build_model(settings, None)
