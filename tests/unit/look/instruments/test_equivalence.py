"""What attention is equivalent to: each equivalence holds for many draws, and the views show it."""

import pytest

from ensue.core.errors import InputError
from ensue.look.equivalence import equivalence
from ensue.look.instruments.equivalence import EQUIVALENCES, graph, hopfield, kernel, linear_rnn


@pytest.mark.parametrize("seed", range(5))
def test_linear_attention_is_a_recurrent_network_in_three_forms(seed):
    numbers = linear_rnn(length=150, width=5, seed=seed)
    assert all(difference < 1e-10 for difference in numbers["differences"].values()), numbers["differences"]
    assert len(numbers["states"]) == 150 and len(numbers["differences"]) == 3


@pytest.mark.parametrize("seed", range(5))
def test_an_update_of_a_hopfield_network_is_attention_and_its_energy_falls(seed):
    numbers = hopfield(seed=seed, beta=4.0)
    assert numbers["differences"]["Hopfield update − attention"] < 1e-10
    assert numbers["falls"] and numbers["energies"][-1] < numbers["energies"][0]
    assert numbers["distances"][-1] < 0.1 * numbers["distances"][0]  # the stored pattern is retrieved


@pytest.mark.parametrize("seed", range(3))
def test_attention_passes_messages_along_the_edges_that_its_mask_allows(seed):
    numbers = graph(length=9, seed=seed)
    assert all(difference < 1e-10 for difference in numbers["differences"].values())
    assert numbers["weights"]["causal"][0][1:] == [0.0] * 8


def test_attention_is_a_kernel_smoother_and_random_features_estimate_it():
    numbers = kernel()
    assert numbers["differences"]["smoother − attention"] < 1e-10
    assert -0.6 < numbers["slope"] < -0.35
    assert numbers["errors"] == sorted(numbers["errors"], reverse=True)


@pytest.mark.parametrize("name", EQUIVALENCES)
def test_each_has_a_chart_and_a_text_with_its_differences(name):
    view = equivalence([name])
    text = view.text()
    assert all(what in text for what in view.numbers["differences"])
    assert view.draw().to_dict()["title"]["text"] in text


@pytest.mark.parametrize(("names", "message"), [([], "not 0"), (["hopfeld"], "did you mean 'hopfield'")])
def test_other_names_are_refused(names, message):
    with pytest.raises(InputError, match=message):
        equivalence(names)
