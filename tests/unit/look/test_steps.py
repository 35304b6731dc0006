import json

import pytest
import torch

import ensue
from ensue.core.errors import InputError
from ensue.data.pair_tokens import encode_pairs
from ensue.data.pairs import Pairs
from ensue.look.steps import _passes, step_numbers
from ensue.search.beam import Search
from ensue.tasks.translation import pair_log_prob
from ensue.verbs.look import look

SYSTEMS = {
    "transformer": {"layers": 2, "heads": 2},
    "seq2seq": {"layers": 2, "attention": "none", "encoder": "bottom"},
    "bytenet": {"layers": 2},
    "convs2s": {"layers": 2},
}


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """A run of each system that has hardly learnt anything, which is enough here."""
    folder = tmp_path_factory.mktemp("runs")
    torch.set_num_threads(1)
    words = ["one two three", "four five", "six one", "two two six five"] * 3
    (folder / "a.en").write_text("\n".join(words) + "\n")
    (folder / "a.num").write_text("\n".join(line[::-1] for line in words) + "\n")
    for name, settings in SYSTEMS.items():
        ensue.fit(
            name,
            [folder / "a.en", folder / "a.num"],
            out=folder / name,
            tokenizer="char",
            settings={"hidden": 16, "context": 40, "train.steps": 2, "data.holdout": 0.0, **settings},
        )
    return folder


def scored(run, text, target):
    """log P of a target as ``ensue score`` finds it."""
    between = run.translator()
    tokens = encode_pairs(Pairs([text], [target], [1], ""), between.source_tokenizer, between.tokenizer, most=40)
    return pair_log_prob(run.model, tokens, between.tokenizer.end)[0]


@pytest.mark.parametrize("name", SYSTEMS)
def test_log_probabilities_sum_to_the_score(name, runs):
    run = ensue.load(runs / name)
    seen = step_numbers(run, "one six", target="xis eno")
    assert seen["target"][:-1] == list("xis␣eno") == [step["token"] for step in seen["steps"][:-1]]
    assert seen["log_prob"] == pytest.approx(scored(run, "one six", "xis eno"), abs=1e-4)
    total = 0.0
    for step in seen["steps"]:
        total += step["log_prob"]
        assert step["total"] == pytest.approx(total)
    json.dumps(seen, allow_nan=False)


@pytest.mark.parametrize("name", SYSTEMS)
@pytest.mark.parametrize("beam", [1, 3])
def test_steps_are_those_of_the_translation_found(name, beam, runs):
    run, search = ensue.load(runs / name), Search(beam=beam)
    seen, (found,) = step_numbers(run, "two\nsix", search=search), run.translate(["two\nsix"], search=search)
    best = found.results[0].best
    assert len(seen["steps"]) == len(best.log_probs) and seen["ended"] == best.ended
    assert [step["log_prob"] for step in seen["steps"]] == pytest.approx(best.log_probs, abs=1e-4)
    if beam == 1:  # greedy search takes the likeliest each time
        assert all(step["choices"][0]["chosen"] for step in seen["steps"])


@pytest.mark.parametrize("name", SYSTEMS)
def test_choices_are_sorted_and_contain_the_chosen_token(name, runs):
    seen = step_numbers(ensue.load(runs / name), "one", target="eeexxx")
    ranks = set()
    for step in seen["steps"]:
        probs = [choice["prob"] for choice in step["choices"]]
        assert probs == sorted(probs, reverse=True) and sum(probs) <= 1 + 1e-9
        assert [choice["rank"] for choice in step["choices"]][:5] == [1, 2, 3, 4, 5]
        (chosen,) = (choice for choice in step["choices"] if choice["chosen"])
        assert chosen["token"] == step["token"]
        assert torch.tensor(chosen["prob"]).log().item() == pytest.approx(step["log_prob"], abs=1e-5)
        assert len(step["choices"]) == (5 if chosen["rank"] <= 5 else 6)
        ranks.add(chosen["rank"])
    assert max(ranks) > 1


def test_steps_have_attention_if_the_model_has(runs):
    seen = step_numbers(ensue.load(runs / "transformer"), "one six", target="xis")
    S = len(seen["source"])
    assert S == 8 and seen["layer"] == 1 and seen["passes"] is None and seen["without"] is None
    assert len(seen["encoder"]) == 2 and all(len(layer) == S for layer in seen["encoder"])
    for row in [*(row for layer in seen["encoder"] for row in layer), *(step["attention"] for step in seen["steps"])]:
        assert len(row) == S and sum(row) == pytest.approx(1, abs=1e-5)
    _, _, weights = ensue.load(runs / "transformer").alignment("one six", target="xis")
    shown = torch.tensor([step["attention"] for step in seen["steps"]])
    torch.testing.assert_close(shown, torch.from_numpy(weights[0].mean(0)))
    seen = step_numbers(ensue.load(runs / "convs2s"), "one six")
    assert seen["encoder"] is None and "at once by 2 layers of convolutions" in seen["reading"]
    assert all(sum(step["attention"]) == pytest.approx(1, abs=1e-5) for step in seen["steps"])


def test_models_without_attention_say_so(runs):
    seen = step_numbers(ensue.load(runs / "seq2seq"), "one six", target="xis")
    assert seen["encoder"] is None and seen["layer"] is None and "the encoder's last state" in seen["without"]
    assert "token by token" in seen["reading"] and seen["passes"] == [["forward", "backward"], ["forward"]]
    assert all(step["attention"] is None for step in seen["steps"])
    assert "no attention" in step_numbers(ensue.load(runs / "bytenet"), "one")["without"]


@pytest.mark.parametrize(
    ("encoder", "passes"),
    [
        ("both", [["forward", "backward"]] * 3),
        ("forward", [["forward"]] * 3),
        ("bottom", [["forward", "backward"], ["forward"], ["forward"]]),
        ("alternating", [["forward"], ["backward"], ["forward"]]),
    ],
)
def test_passes_follow_the_encoder(encoder, passes):
    from ensue.models.seq2seq import Seq2Seq, Seq2SeqConfig

    config = Seq2SeqConfig(vocabulary=5, source_vocabulary=5, hidden=4, layers=3, encoder=encoder)
    assert _passes(Seq2Seq(config)) == passes


def test_the_view_is_a_page_or_numbers(runs, tmp_path):
    for name in SYSTEMS:
        seen = look("steps", [runs / name], text="one", out=tmp_path / f"{name}.html")
        assert "<!DOCTYPE html>" in (tmp_path / f"{name}.html").read_text()
    look("steps", [runs / name], text="one", out=tmp_path / "x.json")
    assert json.loads((tmp_path / "x.json").read_text()) == seen.numbers


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, "steps needs a text"),
        ({"text": " \n "}, "steps needs a text"),
        ({"text": "one " * 20}, "a text of 80 tokens cannot be shown; give 1 to 40 tokens"),
        ({"text": "one", "target": "e" * 40}, "a target of 40 tokens cannot be shown"),
        ({"text": "one", "target": " "}, "a target of 0 tokens cannot be shown"),
        ({"text": "one", "target": "eno", "beam": 2}, "--target is not searched for"),
        ({"text": "one", "layer": 1}, "steps cannot use --layer; it is for attention, alignment"),
        ({"text": "one", "out": "x.png"}, "this view is a page"),
    ],
)
def test_invalid_requests_are_refused_in_one_line(options, message, runs):
    with pytest.raises(InputError) as caught:
        look("steps", [runs / "transformer"], **options)
    assert message in str(caught.value) and "\n" not in str(caught.value)


def test_steps_take_one_run(runs):
    with pytest.raises(InputError, match="steps shows one run, not 2"):
        look("steps", [runs / "transformer", runs / "seq2seq"], text="one")
