"""The result of `ensue cost` for every system."""

import pytest

from ensue.core.errors import InputError
from ensue.measure.hardware import Curve, Machine
from ensue.models.table import SYSTEMS
from ensue.verbs import cost as module
from ensue.verbs.cost import cost

TINY = {
    **{name: {"hidden": 8} for name in ("rnn", "gru", "gru-cho", "lstm", "bilm", "context2vec", "window", "bytenet")},
    "ulmfit": {"hidden": 8, "embedding": 8},
    "elmo": {"hidden": 8, "projection": 4, "filters": (3, 4), "letter": 4},
    "gpt": {"hidden": 8, "heads": 2, "layers": 1, "context": 16},
    "llama": {"hidden": 8, "heads": 2, "kv_heads": 1, "layers": 1, "context": 16},
    "seq2seq": {"hidden": 8, "layers": 1},
    "convs2s": {"hidden": 8, "layers": 1},
    "transformer": {"hidden": 8, "heads": 2, "layers": 1},
    "t5": {"hidden": 8, "heads": 2, "layers": 1, "inner": 16, "context": 16},
    "transformer-xl": {"hidden": 8, "heads": 2, "layers": 1, "segment": 4},
    "bert": {"hidden": 8, "heads": 2, "layers": 1, "context": 16},
    "roberta": {"hidden": 8, "heads": 2, "layers": 1, "context": 16},
    "albert": {"hidden": 8, "heads": 2, "layers": 1, "embedding": 4, "context": 16},
    "electra": {"hidden": 8, "heads": 2, "layers": 1, "embedding": 4, "context": 16},
    "deberta": {"hidden": 8, "heads": 2, "layers": 1, "context": 16},
    "word2vec": {},
}
REFUSED = {
    "ngram": "no parameters",
    "cove": "another run",
    "last": "numbers",
    "seasonal": "numbers",
    "linear": "numbers",
}
KEYS = {
    "system",
    "vocabulary",
    "parameters",
    "parameters_active",
    "bytes",
    "parts",
    "flops_per_token",
    "train_flops_per_token",
    "training",
    "generating",
    "depth",
    "settings",
}


def test_every_system_is_tested_here():
    assert set(TINY) | set(REFUSED) == set(SYSTEMS)


@pytest.mark.parametrize("system", TINY)
def test_the_cost_of_every_system_has_the_same_keys(system):
    found = cost(system, vocabulary=50, settings=TINY[system], length=8, batch=2)
    assert set(found) == KEYS and found["parameters"] == sum(found["parts"].values())
    if system != "word2vec":  # learnt by loops of its own
        memory = found["training"]["memory"]
        assert memory["peak"] >= memory["weights"] + memory["optimiser"] and found["training"]["tokens"] == 16
        assert found["depth"][-1]["sequential"] > 0


@pytest.mark.parametrize(("system", "why"), REFUSED.items())
def test_systems_without_a_cost_are_refused_with_a_reason(system, why):
    with pytest.raises(InputError, match=why):
        cost(system)


def test_memory_is_divided_over_ranks_and_time_follows_from_the_hardware():
    given = {"vocabulary": 50, "settings": {**TINY["gpt"], "train.batch": 8}}
    one, four = (cost("gpt", **given, ranks=n, hardware="a100", tokens=1e9) for n in (1, 4))
    assert four["training"]["rows"] == 2 and one["training"]["rows"] == 8  # the batch is of all ranks
    assert 0.25 * one["ranks"]["memory"]["weights"] <= four["ranks"]["memory"]["weights"]
    assert four["ranks"]["memory"]["weights"] < 0.4 * one["ranks"]["memory"]["weights"]
    assert four["ranks"]["fits"] and four["training"]["precision"] == "bf16"
    assert four["time"]["days"] == pytest.approx(one["time"]["days"] / 4)
    flops = one["train_flops_per_token"] * 1e9
    assert one["time"]["days"] == pytest.approx(flops / (312e12 * 0.45) / 86400, rel=1e-3)
    faster = cost("gpt", **given, hardware="a100", tokens=1e9, utilisation=0.9)
    assert faster["time"]["days"] == pytest.approx(one["time"]["days"] / 2)


def test_this_machine_is_measured(monkeypatch):
    machine = Machine(Curve((1e3, 1e6), (1e9, 1e11)), Curve((1e3, 1e6), (1e9, 1e10)), 1e-6, 8e9)
    monkeypatch.setattr(module, "measured", lambda: machine)
    found = cost("gpt", vocabulary=50, settings=TINY["gpt"], hardware="here", tokens=1e6)
    assert found["time"]["assumed"] is False and 0 < found["time"]["utilisation"] <= 1 and found["time"]["days"] > 0
    assert found["hardware"]["name"] == "here" and found["training"]["precision"] == "float32"


def test_experts_that_a_token_does_not_use_are_not_active():
    found = cost("gpt", vocabulary=50, settings={**TINY["gpt"], "experts": 4, "experts_active": 1})
    idle = 3 * (2 * 8 * 32 + 32 + 8)
    assert found["parameters"] - found["parameters_active"] == idle


def test_a_given_vocabulary_replaces_that_of_the_preset():
    shape = {"layers": 1, "hidden": 96, "context": 8}
    found = cost("gpt", preset="gpt3", settings=shape, batch=1)
    assert found["vocabulary"] == 50257
    assert cost("gpt", preset="gpt3", settings=shape, batch=1, vocabulary=60)["vocabulary"] == 60


def test_shared_blocks_have_their_parameters_once_and_their_operations_in_every_layer():
    shape = {"layers": 3, "hidden": 16, "heads": 2, "embedding": 8, "context": 8}
    shared, apart = (cost("albert", vocabulary=50, settings={**shape, "groups": n}, batch=2) for n in (1, 0))
    block = 4 * (16 * 16 + 16) + 2 * 4 * 16 * 16 + 4 * 16 + 16 + 4 * 16
    assert apart["parameters"] - shared["parameters"] == 2 * block
    for name in ("flops_per_token", "train_flops_per_token"):
        assert shared[name] == apart[name] > 2 * 3 * block
    memory, more = (found["training"]["memory"] for found in (shared, apart))
    assert more["weights"] - memory["weights"] == more["gradients"] - memory["gradients"] == 2 * block * 4
    assert more["optimiser"] - memory["optimiser"] == pytest.approx(
        2 * 2 * block * 4, rel=0.01
    )  # and a step counter each


def test_t5_small_has_the_published_size():
    assert cost("t5", preset="t5-small", batch=1, length=8)["parameters"] == 60_506_624


@pytest.mark.parametrize(("preset", "size"), [("paper-small", 13_483_008), ("base", 108_891_648)])
def test_electra_has_the_published_sizes(preset, size):
    found = cost("electra", preset=preset, batch=1, length=8)
    assert found["vocabulary"] == 30_522 and found["parts"]["body"] == size
    assert found["parameters"] == sum(found["parts"].values())
    alone = cost("bert", vocabulary=30_522, preset="base", batch=1, length=8) if preset == "base" else None
    if alone is not None:
        assert alone["parts"]["body"] == size + 768 * 768 + 768  # BERT's pooler
        assert found["train_flops_per_token"] > alone["train_flops_per_token"]  # it reads with both


def test_albert_base_has_the_published_size():
    found = cost("albert", preset="base", batch=1, length=8)
    assert found["vocabulary"] == 30_000 and found["parts"]["body"] == 11_683_584


def test_deberta_base_has_the_published_size():
    found = cost("deberta", preset="base", batch=1, length=8)
    assert found["vocabulary"] == 50_265 and found["parts"]["body"] == 138_601_728


def test_the_table_of_layers_takes_settings():
    found = cost("layers", settings={"length": 20, "hidden": 4, "span": 5})
    assert found["layers"][0]["layer"] == "self-attention"
    assert found["layers"][0]["flops"] == 4 * 20**2 * 4


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"system": "gtp"}, "did you mean 'gpt'"),
        ({"system": "layer"}, "did you mean 'layers'"),
        ({"system": "gpt", "hardware": "a1000"}, "did you mean 'a100'"),
        ({"system": "gpt", "tokens": 1e9}, "--hardware"),
        ({"system": "gpt", "precision": "fp16"}, "did you mean 'bf16'"),
        ({"system": "gpt", "hardware": "t4", "precision": "bf16"}, "no speed in bf16"),
        ({"system": "gpt", "utilisation": 2.0}, "between 0 and 1"),
        ({"system": "gpt", "ranks": -1}, "below 0"),
        ({"system": "gpt", "ranks": 1 << 20}, "ranks"),
        ({"system": "layers", "settings": {"lenght": 3}}, "did you mean 'length'"),
    ],
)
def test_invalid_arguments_are_refused_in_one_line(given, says):
    with pytest.raises(InputError, match=says) as error:
        cost(**{"vocabulary": 50, "settings": TINY["gpt"], **given} if given["system"] == "gpt" else given)
    assert "\n" not in str(error.value)


def test_recompute_is_the_same_as_the_setting_of_training():
    asked = cost("gpt", vocabulary=50, settings=TINY["gpt"], recompute="blocks")
    said = cost("gpt", vocabulary=50, settings={**TINY["gpt"], "train.recompute": "blocks"})
    kept = cost("gpt", vocabulary=50, settings=TINY["gpt"])
    assert asked == said and said["training"]["recompute"] == "blocks" and kept["training"]["recompute"] == "none"
    assert said["training"]["flops_per_step"] > kept["training"]["flops_per_step"]
    with pytest.raises(InputError, match="lstm has no blocks that could be recomputed"):
        cost("lstm", vocabulary=50, settings=TINY["lstm"], recompute="blocks")


def test_the_precision_is_that_of_training_unless_given():
    given = {**TINY["gpt"], "train.precision": "bf16"}
    assert cost("gpt", vocabulary=50, settings=given)["training"]["precision"] == "bf16"
    assert cost("gpt", vocabulary=50, settings=given, precision="float32")["training"]["precision"] == "float32"


def test_fits_is_also_reported_for_one_device():
    assert cost("gpt", vocabulary=50, settings=TINY["gpt"], hardware="t4")["training"]["fits"]
    large = {"hidden": 16384, "heads": 2, "layers": 4, "context": 16}
    assert not cost("gpt", vocabulary=50, settings=large, hardware="t4", batch=1)["training"]["fits"]


def test_rows_are_rounded_up_if_ranks_cannot_share_them_evenly():
    found = cost("gpt", vocabulary=50, settings=TINY["gpt"], batch=8, ranks=3)["ranks"]
    assert (found["rows"], found["asked"]) == (9, 8)


def test_more_layers_than_can_be_built_are_refused_at_once():
    with pytest.raises(InputError, match="1,000,000,000 layers cannot be built"):
        cost("gpt", vocabulary=50, settings={**TINY["gpt"], "layers": 10**9})


def test_a_run_is_counted_with_its_own_settings(tmp_path):
    from ensue.verbs.fit import fit

    chosen = {**TINY["gpt"], "context": 8, "train.steps": 1, "train.recompute": "blocks", "train.batch": 3}
    run = fit("gpt", "hello", out=tmp_path / "run", settings={**chosen, "context": 4})
    found = cost(str(tmp_path / "run"))
    assert found["parameters"] == sum(p.numel() for p in run.model.parameters())
    assert found["system"] == "gpt" and found["training"]["recompute"] == "blocks" and found["training"]["rows"] == 3
    with pytest.raises(InputError, match="leave out --preset"):
        cost(str(tmp_path / "run"), preset="gpt3")


def test_rows_longer_than_the_context_are_refused():
    with pytest.raises(InputError, match="do not fit into a context of 16"):
        cost("gpt", vocabulary=50, settings=TINY["gpt"], length=17)
