"""The doctor compares with installed reference packages and reports failures."""

from importlib.util import find_spec

import pytest

from ensue.nn.recurrent import GRUCell
from ensue.verbs import doctor as module
from ensue.verbs.doctor import PARTS, REFERENCES, TESTS, doctor, laws, reference, torch_cells


@pytest.mark.parametrize("name", REFERENCES)
def test_references_agree(name, capfd):
    if not find_spec(name):
        pytest.skip(f"{name} is not installed")
    [found] = reference(name)
    assert found["kept"], found
    said = capfd.readouterr()
    assert said.out == "" and "Reading" not in said.err  # KenLM is told to be quiet


def test_every_reference_is_among_the_parts_that_are_listed():
    assert REFERENCES.keys() <= PARTS.keys() and REFERENCES.keys() <= TESTS.keys()


def test_a_reference_that_is_not_installed_is_left_out(monkeypatch):
    monkeypatch.setattr(module, "find_spec", lambda name: None)
    assert [reference(name) for name in REFERENCES] == [[]] * len(REFERENCES)


def test_a_cell_with_another_equation_is_detected(monkeypatch):
    if not find_spec("keras"):
        pytest.skip("keras is not installed")
    monkeypatch.setattr(module, "ChoGRUCell", GRUCell)  # it resets after the product
    assert not reference("keras")[0]["kept"]


def test_wrong_counts_are_detected(monkeypatch):
    if not find_spec("nltk"):
        pytest.skip("nltk is not installed")
    counted = module._counted
    monkeypatch.setattr(module, "_counted", lambda words, **settings: counted(words[:-20], **settings))
    assert not reference("nltk")[0]["kept"]


def test_one_test_that_breaks_does_not_hide_the_others(monkeypatch):
    def broken():
        raise ImportError("a library is missing")

    monkeypatch.setattr(module, "TESTS", {"broken": broken, "torch.nn": torch_cells})
    result = doctor()
    assert result["well"] is False
    assert result["tests"][0] == {"name": "broken", "kept": False, "detail": "ImportError: a library is missing"}
    assert len(result["tests"]) == 4 and all(test["kept"] for test in result["tests"][1:])


def test_all_is_well_where_every_test_passes(monkeypatch):
    monkeypatch.setattr(module, "TESTS", {"laws": laws})
    result, phases = doctor(), []
    assert result["well"] is True and {"ensue", "python", "torch", "device", "threads"} <= result["facts"].keys()
    assert [part["name"] for part in result["parts"]] == list(PARTS)
    doctor(report=lambda kind, values: phases.append(values["name"]))
    assert phases == ["laws"]
